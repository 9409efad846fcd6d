#include "timer.cuh"

// Bandwidth of the L1 caches: every block reads its own `count` vectors of 16 bytes again and again (.ca keeps them in
// L1). `count` is a power of two, and so small that the regions of all blocks on an SM fit into its L1 together.
// All words hold `word`: report[0] grows by the threads whose sum differs. [1] and [2] are the cycles and nanoseconds of
// block 0, for the clock under this load. `loads`, per thread, is a multiple of 8.
extern "C" __global__ void gpumem_read_l1(const uint4 *data, unsigned int count, unsigned int loads, unsigned int word,
                                          unsigned long long *report) {
    const uint4 *mine = data + (unsigned long long)blockIdx.x * count;
    unsigned int sum = 0;
    const unsigned long long began_ns = timer_ns();
    const unsigned long long began = cycle_count();
    for (unsigned int load = 0; load < loads; load += 8) {
#pragma unroll
        for (unsigned int i = 0; i < 8; ++i) {
            const uint4 *from = mine + (((load + i) * blockDim.x + threadIdx.x) & (count - 1));
            uint4 a;
            asm volatile("ld.global.ca.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(a.x), "=r"(a.y), "=r"(a.z), "=r"(a.w)
                         : "l"(from));
            sum += a.x + a.y + a.z + a.w;
        }
    }
    if (sum != 4 * word * loads) {
        atomicAdd(&report[0], 1ull);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        report[1] = cycle_count() - began;
        report[2] = timer_ns() - began_ns;
    }
}
