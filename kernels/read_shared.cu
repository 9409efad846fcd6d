#include "timer.cuh"

// Bandwidth of shared memory: every block reads its own `count` vectors of 16 bytes again and again. Neighbouring threads
// read neighbouring vectors, so no two of them wait for the same bank. `count` is a power of two.
// report and `loads` are those of gpumem_read_l1.
extern "C" __global__ void gpumem_read_shared(unsigned int count, unsigned int loads, unsigned int word,
                                              unsigned long long *report) {
    extern __shared__ uint4 data[];
    for (unsigned int i = threadIdx.x; i < count; i += blockDim.x) {
        data[i] = make_uint4(word, word, word, word);
    }
    __syncthreads();
    const unsigned int base = (unsigned int)__cvta_generic_to_shared(data);
    unsigned int sum = 0;
    const unsigned long long began_ns = timer_ns();
    const unsigned long long began = cycle_count();
    for (unsigned int load = 0; load < loads; load += 8) {
#pragma unroll
        for (unsigned int i = 0; i < 8; ++i) {
            const unsigned int from = base + 16 * (((load + i) * blockDim.x + threadIdx.x) & (count - 1));
            uint4 a;
            asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(a.x), "=r"(a.y), "=r"(a.z), "=r"(a.w)
                         : "r"(from));
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
