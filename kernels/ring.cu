// Lays the ring of pointers that gpumem_chase follows: node i, at base + i * stride, gets the address of node next[i].
// The host makes `next` a random order in which a walk from any node visits all of them.
extern "C" __global__ void gpumem_ring(char *base, const unsigned int *next, unsigned int nodes, unsigned int stride) {
    const unsigned int threads = gridDim.x * blockDim.x;
    for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < nodes; i += threads) {
        *(char **)(base + i * stride) = base + (unsigned long long)next[i] * stride;
    }
}
