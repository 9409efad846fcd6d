#include "pattern.cuh"

// Writes the pattern of `seed` over `count` 64-bit words. Any grid covers the range.
extern "C" __global__ void gpumem_fill(unsigned long long *words, unsigned long long count, unsigned long long seed) {
    const unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        words[i] = pattern(seed, i);
    }
}
