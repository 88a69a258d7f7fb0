// Mamba-1 (Gu and Dao 2023, arXiv:2312.00752): convolution and selective scan, a step at a time and over segments; sums of
// the steps Δ.
//
// A sequence's state lies in a slot; it is read from one slot and written to another, so a fork costs nothing. Gains on
// Δ come per sequence: Δ·g_decay decays, Δ·g_write writes.
#include "common.cuh"

constexpr int TAPS_MAX = 8;
// Rows that one thread of the convolution walks; at least TAPS_MAX.
constexpr int CONV_SPAN = 32;

// Causal depthwise convolution with SiLU over every sequence's rows.
// u: rows of `stride` floats, the first `channels` of them; weight: [taps, channels]; bias: [channels] or null;
// tails: [slots, taps − 1, channels], oldest first; y: [rows, channels].
// Grid: (⌈channels / block⌉, sequences, ⌈longest / CONV_SPAN⌉). A thread has a channel and a span of its sequence.
extern "C" __global__ void __launch_bounds__(128)
conv_silu(const float* __restrict__ u, int stride, const float* __restrict__ weight, const float* __restrict__ bias,
          float* __restrict__ tails, const Sequence* __restrict__ sequences, int channels, int taps,
          float* __restrict__ y) {
    const int channel = blockIdx.x * blockDim.x + threadIdx.x;
    const Sequence sequence = sequences[blockIdx.y];
    const int first = blockIdx.z * CONV_SPAN, end = min(first + CONV_SPAN, sequence.len), past = taps - 1;
    if (channel >= channels || first >= sequence.len) return;
    const float* before = tails + size_t(sequence.from) * past * channels + channel;
    const float* input = u + size_t(sequence.row) * stride + channel;
    float window[TAPS_MAX], w[TAPS_MAX];
#pragma unroll
    for (int j = 0; j < TAPS_MAX; ++j) {
        w[j] = j < taps ? weight[size_t(j) * channels + channel] : 0.0f;
        window[j] = 0.0f;
        if (j < past) window[j] = first == 0 ? before[size_t(j) * channels] : input[size_t(first - past + j) * stride];
    }
    const float base = bias ? bias[channel] : 0.0f;
    for (int t = first; t < end; ++t) {
        const float newest = input[size_t(t) * stride];
        float sum = base;
#pragma unroll
        for (int j = 0; j < TAPS_MAX; ++j) {
            if (j == past) window[j] = newest;
            if (j < taps) sum = fmaf(w[j], window[j], sum);
        }
        y[(size_t(sequence.row) + t) * channels + channel] = silu(sum);
#pragma unroll
        for (int j = 0; j + 1 < TAPS_MAX; ++j) window[j] = window[j + 1];
    }
    // Who has read the tail writes the new one, which may lie in the same slot.
    if (first > 0) return;
    float* after = tails + size_t(sequence.to) * past * channels + channel;
#pragma unroll
    for (int j = 0; j < TAPS_MAX - 1; ++j)
        if (j < past)
            after[size_t(j) * channels] = sequence.len <= CONV_SPAN ? window[j] : input[size_t(sequence.len - past + j) * stride];
}

// One step of the scan for every sequence (len = 1): four lanes a channel, four states each, sixteen bytes a load.
// u, delta, z as in `scan_segments`; a, states and the rows of bc begin at multiples of 16 bytes; states: [slots, channels, 16].
// Grid: (⌈channels / (block / 4)⌉, sequences). Block: whole warps.
extern "C" __global__ void __launch_bounds__(128)
scan_step16(const float* __restrict__ u, const float* __restrict__ delta, const float* __restrict__ dt_bias,
            const float* __restrict__ a, const float* __restrict__ bc, int bc_stride, const float* __restrict__ d,
            const float* __restrict__ z, int z_stride, float* __restrict__ states,
            const Sequence* __restrict__ sequences, int channels, float* __restrict__ y) {
    constexpr int STATE = 16, LANES = 4;
    const int lane = threadIdx.x % LANES, own = 4 * lane;
    const int asked = blockIdx.x * (blockDim.x / LANES) + threadIdx.x / LANES;
    // Lanes past the last channel work on it as well, for the shuffles, and write nothing.
    const int channel = asked < channels ? asked : channels - 1;
    const Sequence sequence = sequences[blockIdx.y];
    if (sequence.len == 0) return;
    const size_t row = size_t(sequence.row);
    const float4 rate = four(a + size_t(channel) * STATE + own);
    const float4 old = four(states + (size_t(sequence.from) * channels + channel) * STATE + own);
    const float4 b = four(bc + row * bc_stride + own), c = four(bc + row * bc_stride + STATE + own);
    const float input = u[row * channels + channel];
    const float step = softplus(delta[row * channels + channel] + dt_bias[channel]);
    const float fall = sequence.gain_decay * step, write = sequence.gain_write * step * input;
    const float4 h = make_float4(fmaf(exp2f(fall * (rate.x * LOG2_E)), old.x, write * b.x),
                                 fmaf(exp2f(fall * (rate.y * LOG2_E)), old.y, write * b.y),
                                 fmaf(exp2f(fall * (rate.z * LOG2_E)), old.z, write * b.z),
                                 fmaf(exp2f(fall * (rate.w * LOG2_E)), old.w, write * b.w));
    float out = fmaf(h.w, c.w, fmaf(h.z, c.z, fmaf(h.y, c.y, h.x * c.x)));
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2) out += __shfl_xor_sync(FULL, out, mask);
    if (asked >= channels) return;
    *reinterpret_cast<float4*>(states + (size_t(sequence.to) * channels + channel) * STATE + own) = h;
    if (lane == 0) {
        out = fmaf(d[channel], input, out);
        y[row * channels + channel] = z ? out * silu(z[row * z_stride + channel]) : out;
    }
}

// h_t = decay_t · h_{t−1} + write_t, as an element of the monoid that a scan runs over.
struct Affine { float decay, write; };

__device__ __forceinline__ Affine then(Affine first, Affine second) {
    return {first.decay * second.decay, fmaf(second.decay, first.write, second.write)};
}

constexpr int SCAN_THREADS = 128;
constexpr int SCAN_ITEMS = 4;
constexpr int STATE_MAX = 128;

// The selective scan over every sequence's rows, seeded from its slot.
// u, delta: [rows, channels] (delta without its bias); a = −exp(A_log): [channels, d_state]; bc: rows of `bc_stride`
// floats, B first and C behind it, `d_state` each; d, dt_bias: [channels]; z: rows of `z_stride` floats or null;
// states: [slots, channels, d_state]; y: [rows, channels].
// Grid: (channels, sequences). Block: SCAN_THREADS; a thread has SCAN_ITEMS rows that follow each other.
extern "C" __global__ void __launch_bounds__(SCAN_THREADS)
scan_segments(const float* __restrict__ u, const float* __restrict__ delta, const float* __restrict__ dt_bias,
              const float* __restrict__ a, const float* __restrict__ bc, int bc_stride, const float* __restrict__ d,
              const float* __restrict__ z, int z_stride, float* __restrict__ states,
              const Sequence* __restrict__ sequences, int channels, int d_state, float* __restrict__ y) {
    constexpr int WARPS = SCAN_THREADS / WARP_SIZE;
    __shared__ float carry[STATE_MAX];
    __shared__ Affine totals[WARPS];
    const int channel = blockIdx.x;
    const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE;
    const Sequence sequence = sequences[blockIdx.y];
    if (sequence.len == 0) return;
    const float* before = states + (size_t(sequence.from) * channels + channel) * d_state;
    for (int n = threadIdx.x; n < d_state; n += blockDim.x) carry[n] = before[n];
    const float bias = dt_bias[channel], skip = d[channel];
    __syncthreads();

    for (int begin = 0; begin < sequence.len; begin += SCAN_THREADS * SCAN_ITEMS) {
        const int first = begin + threadIdx.x * SCAN_ITEMS;
        float decays[SCAN_ITEMS], writes[SCAN_ITEMS], out[SCAN_ITEMS];
#pragma unroll
        for (int i = 0; i < SCAN_ITEMS; ++i) {
            decays[i] = writes[i] = out[i] = 0.0f;
            if (first + i < sequence.len) {
                const size_t at = (size_t(sequence.row) + first + i) * channels + channel;
                const float input = u[at], step = softplus(delta[at] + bias);
                decays[i] = sequence.gain_decay * step;
                writes[i] = sequence.gain_write * step * input;
                out[i] = skip * input;
            }
        }
        for (int n = 0; n < d_state; ++n) {
            const float rate = a[size_t(channel) * d_state + n] * LOG2_E;
            // A row past the end decays by e^0 and writes 0: it changes nothing.
            Affine own[SCAN_ITEMS], all = {1.0f, 0.0f};
#pragma unroll
            for (int i = 0; i < SCAN_ITEMS; ++i) {
                const bool inside = first + i < sequence.len;
                const float b = inside ? bc[(size_t(sequence.row) + first + i) * bc_stride + n] : 0.0f;
                own[i] = {exp2f(decays[i] * rate), writes[i] * b};
                all = then(all, own[i]);
            }
            // Inclusive over the warp, then what the warps before it did, then what came before the chunk.
            Affine upto = all;
#pragma unroll
            for (int step = 1; step < WARP_SIZE; step *= 2) {
                const Affine earlier = {__shfl_up_sync(FULL, upto.decay, step), __shfl_up_sync(FULL, upto.write, step)};
                if (lane >= step) upto = then(earlier, upto);
            }
            if (lane == WARP_SIZE - 1) totals[warp] = upto;
            Affine earlier = {__shfl_up_sync(FULL, upto.decay, 1), __shfl_up_sync(FULL, upto.write, 1)};
            if (lane == 0) earlier = {1.0f, 0.0f};
            __syncthreads();
            float h = carry[n];
            for (int other = 0; other < warp; ++other) h = fmaf(totals[other].decay, h, totals[other].write);
            h = fmaf(earlier.decay, h, earlier.write);
#pragma unroll
            for (int i = 0; i < SCAN_ITEMS; ++i) {
                h = fmaf(own[i].decay, h, own[i].write);
                if (first + i < sequence.len)
                    out[i] = fmaf(h, bc[(size_t(sequence.row) + first + i) * bc_stride + d_state + n], out[i]);
            }
            __syncthreads();
            if (threadIdx.x == SCAN_THREADS - 1) carry[n] = h;
        }
#pragma unroll
        for (int i = 0; i < SCAN_ITEMS; ++i) {
            if (first + i < sequence.len) {
                const size_t row = size_t(sequence.row) + first + i;
                y[row * channels + channel] = z ? out[i] * silu(z[row * z_stride + channel]) : out[i];
            }
        }
        __syncthreads();
    }
    float* after = states + (size_t(sequence.to) * channels + channel) * d_state;
    for (int n = threadIdx.x; n < d_state; n += blockDim.x) after[n] = carry[n];
}

// Sums of Δ = softplus(delta + dt_bias), kept within limits, over the rows of some sequences, before any gain: for those
// who look on.
// delta: rows of `delta_stride` floats; dt_bias: [channels]; watched: which sequences; sums: a row of `sums_stride` doubles
// for each of them. Grid: (⌈channels / block⌉, watched).
extern "C" __global__ void __launch_bounds__(128)
add_steps(const float* __restrict__ delta, int delta_stride, const float* __restrict__ dt_bias,
          const Sequence* __restrict__ sequences, const unsigned* __restrict__ watched, float least, float most,
          int channels, double* __restrict__ sums, int sums_stride) {
    const int channel = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned which = watched[blockIdx.y];
    if (channel >= channels || which == FULL) return;
    const Sequence sequence = sequences[which];
    double sum = 0.0;
    for (int t = 0; t < sequence.len; ++t) {
        const float raw = delta[(size_t(sequence.row) + t) * delta_stride + channel];
        sum += double(within(softplus(raw + dt_bias[channel]), least, most));
    }
    sums[size_t(blockIdx.y) * sums_stride + channel] = sum;
}
