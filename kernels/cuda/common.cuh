// What all kernels share: number types of weights, the few functions of Mamba, reductions. f32 throughout; weights may
// be kept narrower and are widened as they are read.
#pragma once

#ifdef LOOM_SIMT
#include "simt.hpp"
#define SHARED_DYNAMIC(type, name) type* name = reinterpret_cast<type*>(simt::block->shared.data())
#else
#include <cstdint>
#include <cuda_fp16.h>
#define SHARED_DYNAMIC(type, name)                 \
    extern __shared__ __align__(16) char shared_[]; \
    type* name = reinterpret_cast<type*>(shared_)
#endif

constexpr unsigned FULL = 0xffffffffu;
constexpr int WARP_SIZE = 32;
constexpr float LOG2_E = 1.4426950408889634f;

// Bits only: arithmetic is done in f32.
struct bf16 { uint16_t bits; };
struct f16 { uint16_t bits; };

// One sequence of a launch.
struct Sequence {
    // Its first row in the buffers of the launch, and how many rows it has; with none, nothing is done for it.
    int row, len;
    // The slot that holds its state before, and the one for its state after.
    int from, to;
    float gain_decay, gain_write;
};

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ float widen(bf16 x) { return __uint_as_float(unsigned(x.bits) << 16); }
__device__ __forceinline__ float widen(f16 x) {
#ifdef LOOM_SIMT
    _Float16 half;
    std::memcpy(&half, &x.bits, 2);
    return float(half);
#else
    return __half2float(__ushort_as_half(x.bits));
#endif
}

// ln(1 + e^x); x itself above 20, as in the reference implementations of Mamba.
__device__ __forceinline__ float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

// Δ kept within limits. NaN stays NaN.
__device__ __forceinline__ float within(float delta, float least, float most) {
    return delta < least ? least : delta > most ? most : delta;
}

__device__ __forceinline__ float silu(float x) { return x / (1.0f + expf(-x)); }

// Four floats at a multiple of 16 bytes.
__device__ __forceinline__ float4 four(const float* at) { return *reinterpret_cast<const float4*>(at); }

__device__ __forceinline__ float warp_sum(float x) {
    for (int step = WARP_SIZE / 2; step > 0; step /= 2) x += __shfl_xor_sync(FULL, x, step);
    return x;
}

__device__ __forceinline__ float warp_max(float x) {
    for (int step = WARP_SIZE / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(FULL, x, step));
    return x;
}

// The sum over the block, in every thread. `scratch` holds a float a warp; the block is whole warps.
__device__ __forceinline__ float block_sum(float x, float* scratch) {
    const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE, warps = blockDim.x / WARP_SIZE;
    x = warp_sum(x);
    if (lane == 0) scratch[warp] = x;
    __syncthreads();
    x = warp_sum(lane < warps ? scratch[lane] : 0.0f);
    __syncthreads();
    return x;
}

__device__ __forceinline__ float block_max(float x, float* scratch) {
    const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE, warps = blockDim.x / WARP_SIZE;
    x = warp_max(x);
    if (lane == 0) scratch[warp] = x;
    __syncthreads();
    x = warp_max(lane < warps ? scratch[lane] : -INFINITY);
    __syncthreads();
    return x;
}
