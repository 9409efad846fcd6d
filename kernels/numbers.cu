// Writes to each of `count` words its own index, so that a kernel which reads them can tell which word it got.
extern "C" __global__ void gpumem_numbers(unsigned int *words, unsigned int count) {
    const unsigned long long threads = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) {
        words[i] = (unsigned int)i;
    }
}
