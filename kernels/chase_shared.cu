#include "timer.cuh"

// Latency of shared memory by pointer chase, as gpumem_chase does it for global memory. The ring is copied from
// `next` into shared memory first, `nodes` words of 32 bits of it.
//
// indexed 0: a node holds the shared address of the next one, so a hop is the load alone.
// indexed 1: a node holds the index of the next one, as `i = next[i]` in C has it. Each hop computes an address, too.
// report: [1] cycles, [2] nanoseconds, [3] the last node's index, [4] the SM. `hops` is a multiple of 16.
extern "C" __global__ void gpumem_chase_shared(const unsigned int *next, unsigned int nodes, unsigned int hops,
                                               unsigned int indexed, unsigned long long *report) {
    extern __shared__ unsigned int words[];
    const unsigned int base = (unsigned int)__cvta_generic_to_shared(words);
    volatile unsigned int *ring = words;
    for (unsigned int i = 0; i < nodes; ++i) {
        ring[i] = indexed ? next[i] : base + 4 * next[i];
    }
    unsigned int node = indexed ? 0 : base;
    const unsigned long long began_ns = timer_ns();
    const unsigned long long began = cycle_count();
    if (indexed) {
        for (unsigned int hop = 0; hop < hops; hop += 16) {
#pragma unroll
            for (int i = 0; i < 16; ++i) {
                node = ring[node];
            }
        }
    } else {
        for (unsigned int hop = 0; hop < hops; hop += 16) {
#pragma unroll
            for (int i = 0; i < 16; ++i) {
                asm volatile("ld.shared.u32 %0, [%0];" : "+r"(node) : : "memory");
            }
        }
    }
    // Needs the last node, so the clocks below are read after the last load has brought it.
    report[3] = indexed ? node : (node - base) / 4;
    report[1] = cycle_count() - began;
    report[2] = timer_ns() - began_ns;
    report[4] = sm_number();
}
