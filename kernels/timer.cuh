// What a thread can ask its multiprocessor (SM). The compiler keeps these reads in order among each other and among
// other volatile assembly, so that what is between two of them is what is timed.

// Cycles of this SM's clock.
static __device__ __forceinline__ unsigned long long cycle_count() {
    unsigned long long count;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(count) : : "memory");
    return count;
}

// Nanoseconds of the GPU's global timer. It advances in steps of up to about a microsecond.
static __device__ __forceinline__ unsigned long long timer_ns() {
    unsigned long long time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time) : : "memory");
    return time;
}

// The number of the SM that this thread runs on.
static __device__ __forceinline__ unsigned int sm_number() {
    unsigned int number;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(number));
    return number;
}
