// The scan of Mamba-2 (Dao and Gu 2024, arXiv:2405.21060): one decay a head. A step is the recurrence itself; a segment is
// the paper's chunked form, which adds the same terms in another order, so the two agree within a tolerance. The
// convolution is Mamba-1's (mamba.cu); a state is [slots, heads, d_state, head_dim].
#include "common.cuh"

struct Heads {
    int heads, head_dim, d_state, groups;
    // Δ is kept within these, after the softplus and before the gains.
    float least, most;
};

__device__ __forceinline__ float delta_of(float raw, float bias, const Heads& dims) {
    return within(softplus(raw + bias), dims.least, dims.most);
}

constexpr int STEP_THREADS = 256;

// One step for every sequence (len = 1). A thread has four numbers of a head and every k-th n of the state, sixteen bytes
// of state at a time; head_dim is a multiple of 4, at most 4 · STEP_THREADS, and divides 4 · STEP_THREADS.
// xbc: rows of `xbc_stride` floats, x, B and C of the convolution behind each other; delta: rows of `delta_stride` floats,
// [heads]; dt_bias, a = −exp(A_log), d: [heads]; y: [rows, heads · head_dim]. Grid: (heads, sequences).
extern "C" __global__ void __launch_bounds__(STEP_THREADS, 2)
head_step(const float* __restrict__ xbc, int xbc_stride, const float* __restrict__ delta, int delta_stride,
          const float* __restrict__ dt_bias, const float* __restrict__ a, const float* __restrict__ d,
          float* __restrict__ states, const Sequence* __restrict__ sequences, Heads dims, float* __restrict__ y) {
    __shared__ float4 sums[STEP_THREADS];
    const int head = blockIdx.x, width = dims.heads * dims.head_dim;
    const int quads = dims.head_dim / 4, quad = threadIdx.x % quads, part = threadIdx.x / quads;
    const int parts = STEP_THREADS / quads;
    const Sequence sequence = sequences[blockIdx.y];
    if (sequence.len == 0) return;
    const size_t one = size_t(dims.d_state) * dims.head_dim;
    const float* before = states + (size_t(sequence.from) * dims.heads + head) * one;
    float* after = states + (size_t(sequence.to) * dims.heads + head) * one;
    const float* row = xbc + size_t(sequence.row) * xbc_stride;
    const float* b = row + width + head / (dims.heads / dims.groups) * dims.d_state;
    const float* c = b + dims.groups * dims.d_state;
    const float step = delta_of(delta[size_t(sequence.row) * delta_stride + head], dt_bias[head], dims);
    const float decay = exp2f(sequence.gain_decay * step * (a[head] * LOG2_E));
    float x[4], sum[4] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = row[head * dims.head_dim + 4 * quad + i];
#pragma unroll 4
    for (int n = part; n < dims.d_state; n += parts) {
        const size_t at = size_t(n) * dims.head_dim + 4 * quad;
        const float4 old = *reinterpret_cast<const float4*>(before + at);
        const float write = sequence.gain_write * step * b[n], out = c[n];
        const float h[4] = {fmaf(decay, old.x, write * x[0]), fmaf(decay, old.y, write * x[1]),
                            fmaf(decay, old.z, write * x[2]), fmaf(decay, old.w, write * x[3])};
        *reinterpret_cast<float4*>(after + at) = make_float4(h[0], h[1], h[2], h[3]);
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[i] = fmaf(h[i], out, sum[i]);
    }
    sums[threadIdx.x] = make_float4(sum[0], sum[1], sum[2], sum[3]);
    __syncthreads();
    if (part == 0) {
        for (int other = 1; other < parts; ++other) {
            const float4 more = sums[other * quads + quad];
            sum[0] += more.x, sum[1] += more.y, sum[2] += more.z, sum[3] += more.w;
        }
        float* out = y + size_t(sequence.row) * width + head * dims.head_dim + 4 * quad;
#pragma unroll
        for (int i = 0; i < 4; ++i) out[i] = fmaf(d[head], x[i], sum[i]);
    }
}

constexpr int CHUNK = 64;
constexpr int SEGMENT_THREADS = 256;
constexpr int TILE = 4;
constexpr int SIDE = CHUNK / TILE;
constexpr int DEPTH = 32;

// Whole segments, chunk by chunk. Within a chunk, with L_t = Σ_{s≤t} ln decay_s and w_s = g_write·Δ_s:
//   y_t = Σ_{s≤t} e^(L_t − L_s)·(c_t·b_s)·w_s·x_s + e^(L_t)·c_t·h + d·x_t
//   h ← e^(L_last)·h + Σ_s e^(L_last − L_s)·w_s·b_s ⊗ x_s
// L is kept in f64: it grows to tens of thousands, and its differences must not lose the small ones.
// Arguments as for `head_step`, any head_dim and d_state. Grid: (heads, sequences). Block: SEGMENT_THREADS.
extern "C" __global__ void __launch_bounds__(SEGMENT_THREADS, 2)
head_segments(const float* __restrict__ xbc, int xbc_stride, const float* __restrict__ delta, int delta_stride,
              const float* __restrict__ dt_bias, const float* __restrict__ a, const float* __restrict__ d,
              float* states, const Sequence* __restrict__ sequences, Heads dims, float* __restrict__ y) {
    __shared__ double fall[CHUNK];
    __shared__ float writes[CHUNK], decays[CHUNK], shares[CHUNK];
    __shared__ float mixed[CHUNK][CHUNK + 1];
    __shared__ float bs[DEPTH][CHUNK + 1], cs[DEPTH][CHUNK + 1];
    const int head = blockIdx.x, width = dims.heads * dims.head_dim;
    const Sequence sequence = sequences[blockIdx.y];
    if (sequence.len == 0) return;
    const size_t one = size_t(dims.d_state) * dims.head_dim;
    const float* before = states + (size_t(sequence.from) * dims.heads + head) * one;
    float* after = states + (size_t(sequence.to) * dims.heads + head) * one;
    const int group = head / (dims.heads / dims.groups) * dims.d_state;
    const int across = threadIdx.x % SIDE, down = threadIdx.x / SIDE;

    for (int begin = 0; begin < sequence.len; begin += CHUNK) {
        const int steps = min(CHUNK, sequence.len - begin);
        const size_t first = size_t(sequence.row) + begin;
        const float* x = xbc + first * xbc_stride + head * dims.head_dim;
        const float* b = xbc + first * xbc_stride + width + group;
        const float* c = b + dims.groups * dims.d_state;
        const float* h = begin == 0 ? before : after;
        if (threadIdx.x < CHUNK) {
            const int t = threadIdx.x;
            const float step = t < steps ? delta_of(delta[(first + t) * delta_stride + head], dt_bias[head], dims) : 0.0f;
            writes[t] = sequence.gain_write * step;
            fall[t] = double(sequence.gain_decay * step * (a[head] * LOG2_E));
        }
        __syncthreads();
        if (threadIdx.x == 0)
            for (int t = 1; t < CHUNK; ++t) fall[t] += fall[t - 1];
        __syncthreads();
        if (threadIdx.x < CHUNK) {
            const int t = threadIdx.x;
            decays[t] = exp2f(float(fall[t]));
            shares[t] = exp2f(float(fall[CHUNK - 1] - fall[t])) * writes[t];
        }

        // c_t · b_s, a tile of DEPTH numbers at a time.
        float sums[TILE][TILE] = {};
        for (int deep = 0; deep < dims.d_state; deep += DEPTH) {
            for (int i = threadIdx.x; i < CHUNK * DEPTH; i += SEGMENT_THREADS) {
                const int t = i / DEPTH, n = i % DEPTH;
                const bool inside = t < steps && deep + n < dims.d_state;
                bs[n][t] = inside ? b[size_t(t) * xbc_stride + deep + n] : 0.0f;
                cs[n][t] = inside ? c[size_t(t) * xbc_stride + deep + n] : 0.0f;
            }
            __syncthreads();
            for (int n = 0; n < DEPTH; ++n)
#pragma unroll
                for (int i = 0; i < TILE; ++i)
#pragma unroll
                    for (int j = 0; j < TILE; ++j)
                        sums[i][j] = fmaf(cs[n][down * TILE + i], bs[n][across * TILE + j], sums[i][j]);
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < TILE; ++i)
#pragma unroll
            for (int j = 0; j < TILE; ++j) {
                const int t = down * TILE + i, s = across * TILE + j;
                mixed[t][s] = s <= t && t < steps ? sums[i][j] * exp2f(float(fall[t] - fall[s])) * writes[s] : 0.0f;
            }
        __syncthreads();

        for (int part = 0; part < dims.head_dim; part += CHUNK) {
            const int p = part + across * TILE;
            float out[TILE][TILE] = {};
            for (int n = 0; n < dims.d_state; ++n) {
                float state[TILE];
#pragma unroll
                for (int j = 0; j < TILE; ++j) state[j] = p + j < dims.head_dim ? h[size_t(n) * dims.head_dim + p + j] : 0.0f;
#pragma unroll
                for (int i = 0; i < TILE; ++i) {
                    const int t = down * TILE + i;
                    const float read = t < steps ? c[size_t(t) * xbc_stride + n] : 0.0f;
#pragma unroll
                    for (int j = 0; j < TILE; ++j) out[i][j] = fmaf(read, state[j], out[i][j]);
                }
            }
#pragma unroll
            for (int i = 0; i < TILE; ++i)
#pragma unroll
                for (int j = 0; j < TILE; ++j) out[i][j] *= decays[down * TILE + i];
            for (int s = 0; s < steps; ++s) {
                float input[TILE];
#pragma unroll
                for (int j = 0; j < TILE; ++j) input[j] = p + j < dims.head_dim ? x[size_t(s) * xbc_stride + p + j] : 0.0f;
#pragma unroll
                for (int i = 0; i < TILE; ++i)
#pragma unroll
                    for (int j = 0; j < TILE; ++j) out[i][j] = fmaf(mixed[down * TILE + i][s], input[j], out[i][j]);
            }
#pragma unroll
            for (int i = 0; i < TILE; ++i)
#pragma unroll
                for (int j = 0; j < TILE; ++j) {
                    const int t = down * TILE + i;
                    if (t < steps && p + j < dims.head_dim)
                        y[(first + t) * width + head * dims.head_dim + p + j] =
                            fmaf(d[head], x[size_t(t) * xbc_stride + p + j], out[i][j]);
                }
        }
        // Every thread has read the old state.
        __syncthreads();
        for (size_t i = threadIdx.x; i < one; i += SEGMENT_THREADS) {
            const int n = int(i / dims.head_dim), p = int(i % dims.head_dim);
            float state = h[i] * decays[CHUNK - 1];
            for (int s = 0; s < steps; ++s)
                state = fmaf(shares[s] * b[size_t(s) * xbc_stride + n], x[size_t(s) * xbc_stride + p], state);
            after[i] = state;
        }
        __syncthreads();
    }
}
