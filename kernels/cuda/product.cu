// Products of few rows with a big matrix, bound by reading the weights once: y[r, o] = Σᵢ x[r, i]·W[o, i] (+ bias[o]).
// A warp has an output and up to ROWS rows of x; a lane reads 16 bytes of weights at a time. Many rows go to cuBLAS, for
// which the last kernels here prepare operands and finish results.
#include "common.cuh"

// Sixteen bytes of weights as floats.
__device__ __forceinline__ void unpack(const float* at, float (&w)[4]) {
    const float4 all = four(at);
    w[0] = all.x, w[1] = all.y, w[2] = all.z, w[3] = all.w;
}

template <typename Half>
__device__ __forceinline__ void unpack(const Half* at, float (&w)[8]) {
    const uint4 eight = *reinterpret_cast<const uint4*>(at);
    const unsigned words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        w[2 * i] = widen(Half{uint16_t(words[i] & 0xffffu)});
        w[2 * i + 1] = widen(Half{uint16_t(words[i] >> 16)});
    }
}

template <int ROWS, int COUNT>
__device__ __forceinline__ void multiply(const float* __restrict__ x, int x_stride, int rows, int i, const float (&w)[COUNT],
                                         float (&sums)[ROWS]) {
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        if (r >= rows) break;
        const float4* at = reinterpret_cast<const float4*>(x + size_t(r) * x_stride + i);
#pragma unroll
        for (int j = 0; j < COUNT / 4; ++j) {
            const float4 four = at[j];
            sums[r] = fmaf(four.x, w[4 * j], sums[r]);
            sums[r] = fmaf(four.y, w[4 * j + 1], sums[r]);
            sums[r] = fmaf(four.z, w[4 * j + 2], sums[r]);
            sums[r] = fmaf(four.w, w[4 * j + 3], sums[r]);
        }
    }
}

template <int ROWS>
__device__ __forceinline__ void finish(float (&sums)[ROWS], int rows, int output, int outputs, int stride,
                                       const float* __restrict__ bias, float* __restrict__ y) {
    const int lane = threadIdx.x % WARP_SIZE;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const float sum = warp_sum(sums[r]);
        if (lane == 0 && r < rows && output < outputs) y[size_t(r) * stride + output] = bias ? sum + bias[output] : sum;
    }
}

// x: rows of `x_stride` floats, a multiple of 4; y: rows of `y_stride`. `inputs` is a multiple of the weights in 16 bytes. Grid: (⌈outputs / warps a block⌉, ⌈rows / ROWS⌉).
template <typename T, int ROWS>
__device__ __forceinline__ void product(const float* __restrict__ x, int x_stride, const T* __restrict__ weight,
                                        const float* __restrict__ bias, float* __restrict__ y, int rows, int inputs,
                                        int outputs, int y_stride) {
    constexpr int COUNT = 16 / sizeof(T);
    const int lane = threadIdx.x % WARP_SIZE;
    const int output = blockIdx.x * (blockDim.x / WARP_SIZE) + threadIdx.x / WARP_SIZE;
    const T* row = weight + size_t(output < outputs ? output : outputs - 1) * inputs;
    const int first = blockIdx.y * ROWS, some = min(ROWS, rows - first);
    x += size_t(first) * x_stride;
    y += size_t(first) * y_stride;
    float sums[ROWS] = {};
#pragma unroll 4
    for (int i = lane * COUNT; i < inputs; i += WARP_SIZE * COUNT) {
        float w[COUNT];
        unpack(row + i, w);
        multiply<ROWS>(x, x_stride, some, i, w, sums);
    }
    finish<ROWS>(sums, some, output, outputs, y_stride, bias, y);
}

// GGML's Q8_0 with the integers and the scales apart: quants [outputs, inputs], scales [outputs, inputs / 32] in f16.
template <int ROWS>
__device__ __forceinline__ void product_q8(const float* __restrict__ x, int x_stride, const int8_t* __restrict__ quants,
                                           const f16* __restrict__ scales, const float* __restrict__ bias,
                                           float* __restrict__ y, int rows, int inputs, int outputs, int y_stride) {
    constexpr int COUNT = 16, BLOCK = 32;
    const int lane = threadIdx.x % WARP_SIZE;
    const int output = blockIdx.x * (blockDim.x / WARP_SIZE) + threadIdx.x / WARP_SIZE;
    const size_t at = size_t(output < outputs ? output : outputs - 1);
    const int first = blockIdx.y * ROWS, some = min(ROWS, rows - first);
    x += size_t(first) * x_stride;
    y += size_t(first) * y_stride;
    float sums[ROWS] = {};
#pragma unroll 2
    for (int i = lane * COUNT; i < inputs; i += WARP_SIZE * COUNT) {
        const uint4 bytes = *reinterpret_cast<const uint4*>(quants + at * inputs + i);
        const float scale = widen(scales[at * (inputs / BLOCK) + i / BLOCK]);
        const unsigned words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
        float w[COUNT];
#pragma unroll
        for (int j = 0; j < COUNT; ++j) w[j] = scale * float(int8_t(words[j / 4] >> (j % 4 * 8)));
        multiply<ROWS>(x, x_stride, some, i, w, sums);
    }
    finish<ROWS>(sums, some, output, outputs, y_stride, bias, y);
}

#define PRODUCT(name, type, rows_)                                                                                       \
    extern "C" __global__ void __launch_bounds__(128)                                                                    \
    name(const float* __restrict__ x, int x_stride, const type* __restrict__ weight, const float* __restrict__ bias,                   \
         float* __restrict__ y, int rows, int inputs, int outputs, int y_stride) {                                       \
        product<type, rows_>(x, x_stride, weight, bias, y, rows, inputs, outputs, y_stride);                                       \
    }
PRODUCT(product_f32_1, float, 1)
PRODUCT(product_f32_8, float, 8)
PRODUCT(product_bf16_1, bf16, 1)
PRODUCT(product_bf16_8, bf16, 8)
PRODUCT(product_f16_1, f16, 1)
PRODUCT(product_f16_8, f16, 8)

#define PRODUCT_Q8(name, rows_)                                                                                          \
    extern "C" __global__ void __launch_bounds__(128)                                                                    \
    name(const float* __restrict__ x, int x_stride, const int8_t* __restrict__ quants, const f16* __restrict__ scales,                 \
         const float* __restrict__ bias, float* __restrict__ y, int rows, int inputs, int outputs, int y_stride) {       \
        product_q8<rows_>(x, x_stride, quants, scales, bias, y, rows, inputs, outputs, y_stride);                                  \
    }
PRODUCT_Q8(product_q8_0_1, 1)
PRODUCT_Q8(product_q8_0_8, 8)

// The same for weights in f32 whose rows, or those of x, do not begin at multiples of 16 bytes: a number a load.
extern "C" __global__ void __launch_bounds__(128)
product_any(const float* __restrict__ x, int x_stride, const float* __restrict__ weight, const float* __restrict__ bias,
            float* __restrict__ y, int rows, int inputs, int outputs, int y_stride) {
    constexpr int ROWS = 8;
    const int lane = threadIdx.x % WARP_SIZE;
    const int output = blockIdx.x * (blockDim.x / WARP_SIZE) + threadIdx.x / WARP_SIZE;
    const float* row = weight + size_t(output < outputs ? output : outputs - 1) * inputs;
    const int first = blockIdx.y * ROWS, some = min(ROWS, rows - first);
    x += size_t(first) * x_stride;
    y += size_t(first) * y_stride;
    float sums[ROWS] = {};
    for (int i = lane; i < inputs; i += WARP_SIZE) {
        const float w = row[i];
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
            if (r < some) sums[r] = fmaf(x[size_t(r) * x_stride + i], w, sums[r]);
    }
    finish<ROWS>(sums, some, output, outputs, y_stride, bias, y);
}

// Rows of a table, widened: x[r] = table[ids[r]], zeros for FULL; null stands for r itself. Grid: rows.
__device__ __forceinline__ unsigned id_of(const unsigned* __restrict__ ids) { return ids ? ids[blockIdx.x] : blockIdx.x; }

template <typename T>
__device__ __forceinline__ void embed(const unsigned* __restrict__ ids, const T* __restrict__ table, float* __restrict__ x,
                                      int width) {
    const unsigned id = id_of(ids);
    const T* row = table + size_t(id == FULL ? 0 : id) * width;
    for (int i = threadIdx.x; i < width; i += blockDim.x)
        x[size_t(blockIdx.x) * width + i] = id == FULL ? 0.0f : widen(row[i]);
}
#define EMBED(name, type)                                                                                                \
    extern "C" __global__ void __launch_bounds__(256)                                                                    \
    name(const unsigned* __restrict__ ids, const type* __restrict__ table, float* __restrict__ x, int width) {           \
        embed<type>(ids, table, x, width);                                                                               \
    }
EMBED(embed_f32, float)
EMBED(embed_bf16, bf16)
EMBED(embed_f16, f16)

extern "C" __global__ void __launch_bounds__(256)
embed_q8_0(const unsigned* __restrict__ ids, const int8_t* __restrict__ quants, const f16* __restrict__ scales,
           float* __restrict__ x, int width) {
    constexpr int BLOCK = 32;
    const unsigned id = id_of(ids);
    const size_t row = id == FULL ? 0 : id;
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        const float value = widen(scales[row * (width / BLOCK) + i / BLOCK]) * float(quants[row * width + i]);
        x[size_t(blockIdx.x) * width + i] = id == FULL ? 0.0f : value;
    }
}

// To the nearest, ties to even. NaN stays NaN.
__device__ __forceinline__ bf16 narrow(float x) {
    const unsigned bits = __float_as_uint(x);
    return {uint16_t(x == x ? (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16 : 0x7fc0u)};
}

// x as the sum of two bf16, which lose 2^−18 of it at most (Henry, Tang and Heinecke 2019, arXiv:1904.06376), so that
// tensor cores can multiply it with bf16 weights: they add exact products of bf16 in f32.
// x: rows of `x_stride` floats; halves: [2, rows, inputs], the greater ones first. Grid: (⌈inputs / block⌉, rows).
extern "C" __global__ void __launch_bounds__(256)
split_halves(const float* __restrict__ x, int x_stride, bf16* __restrict__ halves, int inputs) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= inputs) return;
    const size_t row = blockIdx.y;
    const float value = x[row * x_stride + i];
    const bf16 high = narrow(value);
    const float rest = value - widen(high);
    halves[row * inputs + i] = high;
    // Beyond bf16 there is no rest.
    halves[(gridDim.y + row) * inputs + i] = rest - rest == 0.0f ? narrow(rest) : bf16{0};
}

// y[r] = parts[0, r] + parts[1, r] + bias, which may be null. parts: [2, rows, outputs]; y: rows of `y_stride` floats.
// Grid: (⌈outputs / block⌉, rows).
extern "C" __global__ void __launch_bounds__(256)
join_halves(const float* __restrict__ parts, const float* __restrict__ bias, float* __restrict__ y, int outputs,
            int y_stride) {
    const int o = blockIdx.x * blockDim.x + threadIdx.x;
    if (o >= outputs) return;
    const size_t row = blockIdx.y;
    const float sum = parts[row * outputs + o] + parts[(gridDim.y + row) * outputs + o];
    y[row * y_stride + o] = bias ? sum + bias[o] : sum;
}

// y[r] = bias, for products that are added to it. Grid: (⌈outputs / block⌉, rows).
extern "C" __global__ void __launch_bounds__(256)
bias_rows(const float* __restrict__ bias, float* __restrict__ y, int outputs, int y_stride) {
    const int o = blockIdx.x * blockDim.x + threadIdx.x;
    if (o < outputs) y[size_t(blockIdx.y) * y_stride + o] = bias[o];
}
