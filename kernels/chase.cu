#include "timer.cuh"

// Follows a ring of pointers. `hops` is a multiple of 16.
static __device__ __forceinline__ char *follow(char *node, unsigned int hops, unsigned int use_l1) {
    if (use_l1) {
        for (unsigned int hop = 0; hop < hops; hop += 16) {
#pragma unroll
            for (int i = 0; i < 16; ++i) {
                asm volatile("ld.global.ca.u64 %0, [%0];" : "+l"(node) : : "memory");
            }
        }
    } else {
        for (unsigned int hop = 0; hop < hops; hop += 16) {
#pragma unroll
            for (int i = 0; i < 16; ++i) {
                asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(node) : : "memory");
            }
        }
    }
    return node;
}

// Latency of global memory by pointer chase. Each node of a ring holds the address of the next one. A load can begin
// only when the load before it has brought that address, so `hops` loads take `hops` times the latency of one. The
// order is random, so nothing can be fetched ahead. One thread does it: there is nothing to do in parallel.
//
// The size of the ring, and where it is, decide what answers: the L1 cache (`use_l1`, by ld.global.ca), the L2 cache
// (ld.global.cg passes by L1), device memory, another GPU's memory, or the host's. The first `warm` hops are not timed:
// a kernel begins with an empty L1.
//
// With `sm` below its largest value only a block on that SM works: enough blocks are launched that each SM gets one.
// report: [0] 1 once a block has begun, [1] cycles, [2] nanoseconds, [3] address of the last node, [4] the SM.
extern "C" __global__ void gpumem_chase(char *start, unsigned int warm, unsigned int hops, unsigned int use_l1,
                                        unsigned int sm, unsigned long long *report) {
    if (sm != ~0u && sm != sm_number()) {
        return;
    }
    if (atomicExch(&report[0], 1ull) != 0) {
        return;
    }
    char *node = follow(start, warm, use_l1);
    // Needs the address that the last warming load brings, so the clocks below are read after it.
    report[3] = (unsigned long long)node;
    const unsigned long long began_ns = timer_ns();
    const unsigned long long began = cycle_count();
    node = follow(node, hops, use_l1);
    // As above.
    report[3] = (unsigned long long)node;
    report[1] = cycle_count() - began;
    report[2] = timer_ns() - began_ns;
    report[4] = sm_number();
}
