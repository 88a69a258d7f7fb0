// Norms and gates: RMS norm with the residual stream, a gated norm by groups, SwiGLU's gate, and copies of rows.
#include "common.cuh"

// 1/sqrt(mean). A mean that overflowed is NaN: scaling by 0 would turn a state that is out of range into plausible zeros.
static __device__ __forceinline__ float inverse(float mean) { return mean == INFINITY ? NAN : rsqrtf(mean); }

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
    const float scale = inverse(block_sum(squares, scratch) / float(width) + eps);
    float* out = y + size_t(blockIdx.x) * width;
    for (int i = threadIdx.x; i < width; i += blockDim.x) out[i] = row[i] * scale * weight[i];
}

// Mamba-2's norm: out = rms(y · silu(z)) · weight, each group of `width / groups` numbers by itself.
// y, out: [rows, width]; z: rows of `z_stride` floats; weight: [width]. Grid: (groups, rows). Block: whole warps.
extern "C" __global__ void __launch_bounds__(256)
gated_rms_norm(const float* __restrict__ y, const float* __restrict__ z, int z_stride, const float* __restrict__ weight,
               float eps, float* __restrict__ out, int width) {
    __shared__ float scratch[WARP_SIZE];
    const int part = width / gridDim.x, from = blockIdx.x * part;
    const size_t row = blockIdx.y;
    float squares = 0.0f;
    for (int i = from + threadIdx.x; i < from + part; i += blockDim.x) {
        const float value = y[row * width + i] * silu(z[row * z_stride + i]);
        squares = fmaf(value, value, squares);
    }
    const float scale = inverse(block_sum(squares, scratch) / float(part) + eps);
    for (int i = from + threadIdx.x; i < from + part; i += blockDim.x)
        out[row * width + i] = y[row * width + i] * silu(z[row * z_stride + i]) * scale * weight[i];
}

// Falcon Mamba's norms (Zuo et al. 2024, arXiv:2410.05355): three parts of every row, each by itself and without weights,
// in place: `first` numbers from 0 on, and twice `others` from `begin` on. x: rows of `stride` floats. Grid: (3, rows).
extern "C" __global__ void __launch_bounds__(256)
norm_parts(float* __restrict__ x, int stride, int first, int begin, int others, float eps) {
    __shared__ float scratch[WARP_SIZE];
    const int part = blockIdx.x, from = part == 0 ? 0 : begin + (part - 1) * others, width = part == 0 ? first : others;
    float* row = x + size_t(blockIdx.y) * stride + from;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < width; i += blockDim.x) squares = fmaf(row[i], row[i], squares);
    const float scale = inverse(block_sum(squares, scratch) / float(width) + eps);
    for (int i = threadIdx.x; i < width; i += blockDim.x) row[i] *= scale;
}

// up = silu(gate) · up, `count` numbers each.
extern "C" __global__ void __launch_bounds__(256)
silu_gate(const float* __restrict__ gate, float* __restrict__ up, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) up[i] *= silu(gate[i]);
}

// x += added, `count` numbers each.
extern "C" __global__ void __launch_bounds__(256)
add_to(float* __restrict__ x, const float* __restrict__ added, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) x[i] += added[i];
}

// to[to_rows[r]] = from[from_rows[r]], rows of `width` floats; null stands for r itself, FULL for none. Grid: rows.
extern "C" __global__ void __launch_bounds__(256)
copy_rows(const float* __restrict__ from, const unsigned* __restrict__ from_rows, float* __restrict__ to,
          const unsigned* __restrict__ to_rows, int width) {
    const unsigned own_from = from_rows ? from_rows[blockIdx.x] : blockIdx.x, own_to = to_rows ? to_rows[blockIdx.x] : blockIdx.x;
    if (own_from == FULL || own_to == FULL) return;
    const size_t source = own_from, target = own_to;
    for (int i = threadIdx.x; i < width; i += blockDim.x) to[target * width + i] = from[source * width + i];
}
