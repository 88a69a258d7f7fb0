// RMS norm with the residual stream, one block a row.
#include "common.cuh"

// x[row] += added[row] where `added` is not null; y[row] = x[row] / sqrt(mean(x[row]^2) + eps) * weight.
// x, added, y: [rows, width]; weight: [width]. Grid: rows. Block: whole warps.
extern "C" __global__ void __launch_bounds__(256)
rms_norm_residual(float* __restrict__ x, const float* __restrict__ added, const float* __restrict__ weight, float eps,
                  float* __restrict__ y, int width) {
    __shared__ float scratch[WARP_SIZE];
    float* row = x + size_t(blockIdx.x) * width;
    const float* more = added ? added + size_t(blockIdx.x) * width : nullptr;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        float value = row[i];
        if (more) row[i] = value += more[i];
        squares = fmaf(value, value, squares);
    }
    const float scale = rsqrtf(block_sum(squares, scratch) / float(width) + eps);
    float* out = y + size_t(blockIdx.x) * width;
    for (int i = threadIdx.x; i < width; i += blockDim.x) out[i] = row[i] * scale * weight[i];
}
