#include "timer.cuh"

// Latency of registers: a chain of multiply-adds, each of which needs the result of the one before. The operands and the
// result are in registers, so the time of a step is that of reading them, computing and writing back.
// report: [1] cycles, [2] nanoseconds, [3] the result's bits, [4] the SM. `steps` is a multiple of 64.
extern "C" __global__ void gpumem_chain(float x, float factor, float summand, unsigned int steps,
                                        unsigned long long *report) {
    const unsigned long long began_ns = timer_ns();
    const unsigned long long began = cycle_count();
    for (unsigned int step = 0; step < steps; step += 64) {
#pragma unroll
        for (int i = 0; i < 64; ++i) {
            asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(x) : "f"(factor), "f"(summand));
        }
    }
    report[3] = __float_as_uint(x);
    report[1] = cycle_count() - began;
    report[2] = timer_ns() - began_ns;
    report[4] = sm_number();
}
