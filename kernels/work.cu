// Stands for one layer: writes `out_count` floats, each from one of `in_count` inputs by `rounds` dependent
// multiply-adds. `rounds` sets how long it computes per byte it moves. `out` may be `in`. An empty input reads as 1.
extern "C" __global__ void gpumem_work(float *out, unsigned long long out_count, const float *in,
                                       unsigned long long in_count, unsigned int rounds) {
    const unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < out_count; i += stride) {
        float x = in_count == 0 ? 1.0f : in[i % in_count];
        for (unsigned int r = 0; r < rounds; ++r) {
            x = fmaf(x, 0.999f, 0.001f);
        }
        out[i] = x;
    }
}
