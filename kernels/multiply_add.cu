#include "timer.cuh"

// Bandwidth of registers: multiply-adds in eight independent chains a thread, so that none waits for another. Each
// reads three registers of 4 bytes and writes one. Every thread starts from the same number and so has the same
// `result`, which the host knows: report[0] grows by the threads that differ. [1] and [2] as in gpumem_read_l1.
extern "C" __global__ void gpumem_multiply_add(float factor, float summand, unsigned int rounds, float result,
                                               unsigned long long *report) {
    float x[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        x[i] = 1.0f;
    }
    const unsigned long long began_ns = timer_ns();
    const unsigned long long began = cycle_count();
    for (unsigned int round = 0; round < rounds; round += 8) {
#pragma unroll
        for (int i = 0; i < 64; ++i) {
            asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(x[i % 8]) : "f"(factor), "f"(summand));
        }
    }
    bool same = true;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        same = same && x[i] == result;
    }
    if (!same) {
        atomicAdd(&report[0], 1ull);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        report[1] = cycle_count() - began;
        report[2] = timer_ns() - began_ns;
    }
}
