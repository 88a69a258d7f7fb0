// Rotary positions (Su et al. 2021, arXiv:2104.09864), writing keys and values into pages, and attention over them, several
// query heads to a key head. Pages are shared by forks; a table names a sequence's pages in order.
//
// keys: [pages, kv_heads, head_dim, PAGE]: neighbouring threads read neighbouring positions; values: [pages, kv_heads,
// PAGE, head_dim]: neighbouring threads read neighbouring numbers.
#include "common.cuh"

constexpr int PAGE = 64;
constexpr int HEAD_DIM_MAX = 256;

// One row of a launch.
struct Place {
    // Its position: it sees this many before it, and itself; −1 sees nothing and writes nothing.
    int position;
    // Where its sequence's pages begin in `tables`.
    int table;
};

// Turns the queries of every row in place, and writes the turned keys and the values to their pages.
// q: [rows, heads, head_dim]; k, v: [rows, kv_heads, head_dim]; turns: [positions, head_dim], cosines and then sines.
// Grid: (heads + kv_heads, rows). Block: any.
extern "C" __global__ void __launch_bounds__(128)
rotary_write(float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v,
             const float* __restrict__ turns, float* __restrict__ keys, float* __restrict__ values,
             const Place* __restrict__ places, const int* __restrict__ tables, int heads, int kv_heads, int head_dim) {
    const size_t row = blockIdx.y;
    const int half = head_dim / 2, head = blockIdx.x;
    const Place place = places[row];
    if (place.position < 0) return;
    const float* cosines = turns + size_t(place.position) * head_dim;
    const float* sines = cosines + half;
    if (head < heads) {
        float* x = q + (row * heads + head) * head_dim;
        for (int i = threadIdx.x; i < half; i += blockDim.x) {
            const float a = x[i], b = x[i + half];
            x[i] = a * cosines[i] - b * sines[i];
            x[i + half] = b * cosines[i] + a * sines[i];
        }
        return;
    }
    const size_t page = size_t(tables[place.table + place.position / PAGE]) * kv_heads + (head - heads);
    const int at = place.position % PAGE;
    const size_t from = (row * kv_heads + (head - heads)) * head_dim;
    for (int i = threadIdx.x; i < half; i += blockDim.x) {
        const float a = k[from + i], b = k[from + i + half];
        keys[(page * head_dim + i) * PAGE + at] = a * cosines[i] - b * sines[i];
        keys[(page * head_dim + i + half) * PAGE + at] = b * cosines[i] + a * sines[i];
    }
    for (int i = threadIdx.x; i < head_dim; i += blockDim.x) values[(page * PAGE + at) * head_dim + i] = v[from + i];
}

constexpr int ATTEND_THREADS = 128;

// A share of the positions that a row sees, for one query head: Σ e^(s − max), the max, and Σ e^(s − max)·v.
// parts: [rows, heads, splits, head_dim + 2], the sums first. Split i has every splits-th tile of ATTEND_THREADS positions.
// Grid: (heads, rows, splits). Block: ATTEND_THREADS.
extern "C" __global__ void __launch_bounds__(ATTEND_THREADS, 4)
attend_part(const float* __restrict__ q, const float* __restrict__ keys, const float* __restrict__ values,
            const Place* __restrict__ places, const int* __restrict__ tables, int kv_heads, int head_dim, float scale,
            float* __restrict__ parts) {
    constexpr int WARPS = ATTEND_THREADS / WARP_SIZE;
    __shared__ float query[HEAD_DIM_MAX], weights[ATTEND_THREADS], scratch[WARP_SIZE];
    const int heads = gridDim.x, head = blockIdx.x, splits = gridDim.z;
    const size_t row = blockIdx.y;
    const Place place = places[row];
    const int seen = place.position + 1, kv_head = head / (heads / kv_heads);
    for (int i = threadIdx.x; i < head_dim; i += blockDim.x) query[i] = q[(row * heads + head) * head_dim + i];
    float sums[HEAD_DIM_MAX / ATTEND_THREADS] = {};
    float most = -INFINITY, total = 0.0f;
    __syncthreads();
    for (int begin = blockIdx.z * ATTEND_THREADS; begin < seen; begin += splits * ATTEND_THREADS) {
        const int j = begin + threadIdx.x;
        float score = -INFINITY;
        if (j < seen) {
            const float* key = keys + (size_t(tables[place.table + j / PAGE]) * kv_heads + kv_head) * head_dim * PAGE + j % PAGE;
            float dot = 0.0f;
#pragma unroll 8
            for (int i = 0; i < head_dim; ++i) dot = fmaf(query[i], key[size_t(i) * PAGE], dot);
            score = dot * scale;
        }
        const float peak = fmaxf(most, block_max(score, scratch));
        const float before = expf(most - peak), weight = expf(score - peak);
        most = peak;
        total = total * before + block_sum(weight, scratch);
        weights[threadIdx.x] = weight;
        __syncthreads();
        const int count = min(ATTEND_THREADS, seen - begin);
#pragma unroll
        for (int part = 0; part < HEAD_DIM_MAX / ATTEND_THREADS; ++part) {
            const int i = part * ATTEND_THREADS + threadIdx.x;
            if (i >= head_dim) break;
            float sum = sums[part] * before;
            for (int from = 0; from < count; from += PAGE) {
                const float* value =
                    values + (size_t(tables[place.table + (begin + from) / PAGE]) * kv_heads + kv_head) * PAGE * head_dim + i;
                const int end = min(PAGE, count - from);
#pragma unroll 8
                for (int at = 0; at < end; ++at) sum = fmaf(weights[from + at], value[size_t(at) * head_dim], sum);
            }
            sums[part] = sum;
        }
        __syncthreads();
    }
    float* out = parts + ((row * heads + head) * splits + blockIdx.z) * (head_dim + 2);
#pragma unroll
    for (int part = 0; part < HEAD_DIM_MAX / ATTEND_THREADS; ++part) {
        const int i = part * ATTEND_THREADS + threadIdx.x;
        if (i < head_dim) out[i] = sums[part];
    }
    if (threadIdx.x == 0) out[head_dim] = most, out[head_dim + 1] = total;
    static_assert(WARPS <= WARP_SIZE);
}

// y[row, head] out of its parts. Grid: (heads, rows). Block: any.
extern "C" __global__ void __launch_bounds__(128)
attend_join(const float* __restrict__ parts, int splits, int head_dim, float* __restrict__ y) {
    const size_t index = size_t(blockIdx.y) * gridDim.x + blockIdx.x;
    const int stride = head_dim + 2;
    const float* part = parts + index * splits * stride;
    float most = -INFINITY, total = 0.0f;
    for (int split = 0; split < splits; ++split) most = fmaxf(most, part[split * stride + head_dim]);
    for (int split = 0; split < splits; ++split) {
        const float own = part[split * stride + head_dim];
        // A split without a position has no peak.
        total = fmaf(own == -INFINITY ? 0.0f : expf(own - most), part[split * stride + head_dim + 1], total);
    }
    for (int i = threadIdx.x; i < head_dim; i += blockDim.x) {
        float sum = 0.0f;
        for (int split = 0; split < splits; ++split) {
            const float own = part[split * stride + head_dim];
            sum = fmaf(own == -INFINITY ? 0.0f : expf(own - most), part[split * stride + i], sum);
        }
        y[index * head_dim + i] = total > 0.0f ? sum / total : 0.0f;
    }
}
