// Bandwidth of copying `count` vectors of 16 bytes: each is read once and written once, so twice the bytes move. Four
// loads are under way per thread before the first is stored.
extern "C" __global__ void gpumem_copy(uint4 *to, const uint4 *from, unsigned long long count) {
    const unsigned long long threads = (unsigned long long)gridDim.x * blockDim.x;
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 3 * threads < count; i += 4 * threads) {
        const uint4 a = from[i];
        const uint4 b = from[i + threads];
        const uint4 c = from[i + 2 * threads];
        const uint4 d = from[i + 3 * threads];
        to[i] = a;
        to[i + threads] = b;
        to[i + 2 * threads] = c;
        to[i + 3 * threads] = d;
    }
    for (; i < count; i += threads) {
        to[i] = from[i];
    }
}
