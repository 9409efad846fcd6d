// Coalesced against strided access: reads 2^log_words words of 4 bytes, each once, but in an order in which neighbouring
// threads are 2^log_stride words apart.
//
// The 32 threads of a warp load together. With a stride of 1 their words are 128 bytes in a row, which is four sectors of
// 32 bytes: every byte that memory delivers is used. With a stride of 8 or more each word is in a sector of its own, so
// memory delivers 32 sectors for the same 128 bytes. The other words of these sectors are needed much later, when the
// caches have dropped them.
//
// Word i holds i (gpumem_numbers), so each thread knows its sum: report[0] grows by the threads whose sum differs.
extern "C" __global__ void gpumem_stride(const unsigned int *words, unsigned int log_words, unsigned int log_stride,
                                         unsigned long long *report) {
    const unsigned int count = 1u << log_words;
    const unsigned int threads = gridDim.x * blockDim.x;
    unsigned int sum = 0;
    unsigned int expected = 0;
    // More than 2^31 words would overflow `i`: the caller has fewer.
#pragma unroll 4
    for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) {
        // The low bits of i choose the line, and the high bits the word in it.
        const unsigned int at = ((i << log_stride) & (count - 1)) | (i >> (log_words - log_stride));
        sum += words[at];
        expected += at;
    }
    if (sum != expected) {
        atomicAdd(&report[0], 1ull);
    }
}
