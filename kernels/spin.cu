#include "timer.cuh"

// Stands for a kernel that takes a known time: one thread waits for `ns` nanoseconds of the GPU's timer, and writes to
// `block` how long it really was. report[0] counts the kernels that ran: they run one after the other.
extern "C" __global__ void gpumem_spin(unsigned long long ns, unsigned long long *block, unsigned long long *report) {
    const unsigned long long began = timer_ns();
    while (timer_ns() - began < ns) {
    }
    *block = timer_ns() - began;
    *(volatile unsigned long long *)report += 1;
}
