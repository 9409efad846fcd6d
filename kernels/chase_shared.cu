#include "timer.cuh"

// Latency of shared memory by pointer chase, as gpumem_chase does it for global memory. The ring is copied from
// `next` into shared memory first, `nodes` words of it.
//
// how 0: a node holds the shared address of the next one (32 bits), so a hop is the load alone.
// how 1: the same with addresses of 64 bits.
// how 2: a node holds the index of the next one, as `i = next[i]` in C has it.
// report: [1] cycles, [2] nanoseconds, [3] the last node's index, [4] the SM. `hops` is a multiple of 16.
extern "C" __global__ void gpumem_chase_shared(const unsigned int *next, unsigned int nodes, unsigned int hops,
                                               unsigned int how, unsigned long long *report) {
    extern __shared__ unsigned long long ring[];
    const unsigned int base = (unsigned int)__cvta_generic_to_shared(ring);
    volatile unsigned int *indices = (volatile unsigned int *)ring;
    for (unsigned int i = 0; i < nodes; ++i) {
        if (how == 2) {
            indices[i] = next[i];
        } else {
            ring[i] = base + 8ull * next[i];
        }
    }
    unsigned int node = how == 2 ? 0 : base;
    unsigned long long wide = base;
    const unsigned long long began_ns = timer_ns();
    const unsigned long long began = cycle_count();
    for (unsigned int hop = 0; hop < hops && how == 0; hop += 16) {
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            asm volatile("ld.shared.u32 %0, [%0];" : "+r"(node) : : "memory");
        }
    }
    for (unsigned int hop = 0; hop < hops && how == 1; hop += 16) {
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            asm volatile("ld.shared.u64 %0, [%0];" : "+l"(wide) : : "memory");
        }
    }
    for (unsigned int hop = 0; hop < hops && how == 2; hop += 16) {
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            node = indices[node];
        }
    }
    const unsigned long long last = how == 1 ? (wide - base) / 8 : how == 0 ? (node - base) / 8 : node;
    report[3] = last;
    report[1] = cycle_count() - began;
    report[2] = timer_ns() - began_ns;
    report[4] = sm_number();
}
