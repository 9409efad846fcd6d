#include "pattern.cuh"

// Compares `count` 64-bit words with the pattern of `seed`.
// report[0] grows by the number of words that differ, report[1] falls to the index of the first of them: the caller
// starts them at 0 and at the largest value. Threads count privately, so a sound range costs no atomic at all.
extern "C" __global__ void gpumem_check(const unsigned long long *words, unsigned long long count,
                                        unsigned long long seed, unsigned long long *report) {
    const unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    unsigned long long bad = 0;
    unsigned long long first = ~0ull;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        if (words[i] != pattern(seed, i)) {
            bad += 1;
            first = i < first ? i : first;
        }
    }
    if (bad != 0) {
        atomicAdd(&report[0], bad);
        atomicMin(&report[1], first);
    }
}
