// Computes on data that was copied to the device, for as long as `rounds` says: each word goes `rounds` times through a
// step of a random number generator, of which none can begin before the last has ended. Words that were the same before
// are the same after, so the host checks them all by computing one.
extern "C" __global__ void gpumem_compute(unsigned int *words, unsigned long long count, unsigned int rounds) {
    const unsigned long long threads = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) {
        unsigned int x = words[i];
        for (unsigned int round = 0; round < rounds; ++round) {
            x = x * 1664525u + 1013904223u;
        }
        words[i] = x;
    }
}
