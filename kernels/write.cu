// Bandwidth of writing: `word` over `count` vectors of 16 bytes. Nothing is read, so all traffic is writes.
extern "C" __global__ void gpumem_write(uint4 *data, unsigned long long count, unsigned int word) {
    const unsigned long long threads = (unsigned long long)gridDim.x * blockDim.x;
    const uint4 value = make_uint4(word, word, word, word);
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) {
        data[i] = value;
    }
}
