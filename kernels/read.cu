// Bandwidth of reading: every thread of a grid that fills the GPU adds up its part of `count` vectors of 16 bytes, one
// of the widest loads there are. Neighbouring threads read neighbouring vectors, so a warp's load is four whole lines.
//
// The loads pass by the L1 cache (.cg). With a small `count` and many `rounds` the L2 cache answers; with more data than
// fits there, device memory. Four loads are under way per thread before the first is used.
// All words hold `word`, so each thread knows its sum: report[0] grows by the threads whose sum differs.
extern "C" __global__ void gpumem_read(const uint4 *data, unsigned long long count, unsigned int rounds,
                                       unsigned int word, unsigned long long *report) {
    const unsigned long long threads = (unsigned long long)gridDim.x * blockDim.x;
    const unsigned long long me = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    unsigned int sum = 0;
    unsigned int loads = 0;
    for (unsigned int round = 0; round < rounds; ++round) {
        unsigned long long i = me;
        for (; i + 3 * threads < count; i += 4 * threads) {
            const uint4 a = __ldcg(data + i);
            const uint4 b = __ldcg(data + i + threads);
            const uint4 c = __ldcg(data + i + 2 * threads);
            const uint4 d = __ldcg(data + i + 3 * threads);
            sum += a.x + a.y + a.z + a.w + b.x + b.y + b.z + b.w;
            sum += c.x + c.y + c.z + c.w + d.x + d.y + d.z + d.w;
            loads += 4;
        }
        for (; i < count; i += threads) {
            const uint4 a = __ldcg(data + i);
            sum += a.x + a.y + a.z + a.w;
            loads += 1;
        }
    }
    if (sum != 4 * word * loads) {
        atomicAdd(&report[0], 1ull);
    }
}
