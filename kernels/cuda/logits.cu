// Reading rows of logits where they are: normaliser, entropy, the likeliest entries, a draw, and the drawn entry's
// log-probability and rank. A few dozen bytes a row leave the device. The log-probabilities are of the logits as they
// came; penalties, temperature and filters touch the draw alone (kernels/src/sample.rs has the same rules).
#include "common.cuh"

constexpr int TOP_MAX = 20;
constexpr int BINS = 256;
constexpr unsigned NOTHING = FULL - 1;

struct Entry { unsigned id; float logprob; };

// What is asked of one row.
struct Ask {
    // 0 is greedy.
    float temperature, top_p, min_p, penalty;
    // 0 keeps all.
    unsigned top_k;
    // How many of the likeliest to report, at most TOP_MAX.
    unsigned top;
    // [0, 1): the draw.
    double uniform;
    // The ids that `penalty` looks at: `penalised[from .. from + count]`, each once.
    unsigned from, count;
    // Read this entry instead of drawing one; FULL draws, NOTHING leaves the row alone.
    unsigned given;
};

struct Reading {
    // The drawn or given entry; FULL where the row is no distribution.
    unsigned id;
    float logprob, entropy;
    // How many entries are strictly greater.
    unsigned rank;
    Entry top[TOP_MAX];
};

// An order-preserving map of floats to words: x < y exactly if key(x) < key(y).
__device__ __forceinline__ unsigned key(float x) {
    const unsigned bits = __float_as_uint(x);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ double block_sum(double x, double* scratch) {
    const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE, warps = blockDim.x / WARP_SIZE;
    for (int step = WARP_SIZE / 2; step > 0; step /= 2) x += __shfl_xor_sync(FULL, x, step);
    if (lane == 0) scratch[warp] = x;
    __syncthreads();
    x = lane < warps ? scratch[lane] : 0.0;
    for (int step = WARP_SIZE / 2; step > 0; step /= 2) x += __shfl_xor_sync(FULL, x, step);
    __syncthreads();
    return x;
}

// The entry that stands first among those behind `last` in the order from the likeliest down, the lower id first among
// equals: as (key, ~id) in one word, 0 for none. In every thread.
__device__ __forceinline__ unsigned long long block_best(unsigned long long best, unsigned long long* scratch) {
    const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE, warps = blockDim.x / WARP_SIZE;
    for (int step = WARP_SIZE / 2; step > 0; step /= 2) {
        const unsigned long long other = __shfl_xor_sync(FULL, best, step);
        best = other > best ? other : best;
    }
    if (lane == 0) scratch[warp] = best;
    __syncthreads();
    best = lane < warps ? scratch[lane] : 0;
    for (int step = WARP_SIZE / 2; step > 0; step /= 2) {
        const unsigned long long other = __shfl_xor_sync(FULL, best, step);
        best = other > best ? other : best;
    }
    __syncthreads();
    return best;
}

__device__ __forceinline__ unsigned long long rankable(float x, unsigned id) {
    return (static_cast<unsigned long long>(key(x)) << 32) | (FULL - id);
}

// logits: [rows, vocabulary]; weights: scratch of the same dims; penalised: ids; out: [rows]. Grid: rows; block: whole warps.
extern "C" __global__ void __launch_bounds__(512, 1)
read_logits(const float* __restrict__ logits, float* __restrict__ weights, const Ask* __restrict__ asks,
            const unsigned* __restrict__ penalised, Reading* __restrict__ out, int vocabulary) {
    __shared__ float scratch[WARP_SIZE];
    __shared__ double sums[WARP_SIZE];
    __shared__ unsigned long long bests[WARP_SIZE];
    __shared__ unsigned counts[BINS];
    __shared__ double masses[BINS];
    __shared__ unsigned chosen;
    __shared__ double chosen_before;

    const Ask ask = asks[blockIdx.x];
    if (ask.given == NOTHING) return;
    const float* row = logits + size_t(blockIdx.x) * vocabulary;
    float* weight = weights + size_t(blockIdx.x) * vocabulary;
    Reading* reading = out + blockIdx.x;

    // The largest entry; a NaN or +∞ makes the row no distribution.
    float largest = -INFINITY;
    float sound = 0.0f;
    for (int i = threadIdx.x; i < vocabulary; i += blockDim.x) {
        const float x = row[i];
        if (!(x < INFINITY)) sound = 1.0f;
        largest = fmaxf(largest, x);
    }
    largest = block_max(largest, scratch);
    sound = block_max(sound, scratch);
    if (sound > 0.0f || largest == -INFINITY) {
        if (threadIdx.x == 0) {
            reading->id = FULL;
            reading->logprob = reading->entropy = NAN;
            reading->rank = 0;
        }
        return;
    }

    // s = Σ e^(x−m), t = Σ e^(x−m)(x−m): log Z = m + ln s, H = ln s − t/s. Threads sum in f32 in runs, runs in f64.
    double s = 0.0, t = 0.0;
    for (int i = threadIdx.x; i < vocabulary; i += blockDim.x) {
        const float below = fmaxf(row[i] - largest, -104.0f);
        const float e = expf(below);
        s += e;
        t += e * below;
    }
    s = block_sum(s, sums);
    t = block_sum(t, sums);
    const double ln_s = log(s);

    // The likeliest entries as they came.
    unsigned long long last = ~0ull;
    for (unsigned place = 0; place < ask.top && place < TOP_MAX && place < unsigned(vocabulary); ++place) {
        unsigned long long best = 0;
        for (int i = threadIdx.x; i < vocabulary; i += blockDim.x) {
            const unsigned long long own = rankable(row[i], i);
            if (own < last && own > best) best = own;
        }
        last = block_best(best, bests);
        const unsigned id = FULL - unsigned(last);
        if (threadIdx.x == 0) reading->top[place] = {id, float(double(row[id] - largest) - ln_s)};
    }

    unsigned id = ask.given;
    if (id == FULL) {
        // The draw's own logits: penalties, then e^((x − max)/temperature).
        for (int i = threadIdx.x; i < vocabulary; i += blockDim.x) weight[i] = row[i];
        __syncthreads();
        for (unsigned i = threadIdx.x; i < ask.count; i += blockDim.x) {
            const unsigned at = penalised[ask.from + i];
            if (at < unsigned(vocabulary)) weight[at] = weight[at] > 0.0f ? weight[at] / ask.penalty : weight[at] * ask.penalty;
        }
        __syncthreads();
        unsigned long long best = 0;
        for (int i = threadIdx.x; i < vocabulary; i += blockDim.x) {
            const unsigned long long own = rankable(weight[i], i);
            best = own > best ? own : best;
        }
        best = block_best(best, bests);
        id = FULL - unsigned(best);
        if (ask.temperature > 0.0f) {
            const float peak = weight[id];
            __syncthreads();
            double total = 0.0;
            for (int i = threadIdx.x; i < vocabulary; i += blockDim.x) {
                const float w = expf((weight[i] - peak) / ask.temperature);
                weight[i] = w;
                total += w;
            }
            total = block_sum(total, sums);

            // top-k, then the nucleus: each keeps a beginning of the order from the likeliest down. The end is found a
            // byte of (key, ~id) at a time: `prefix` is what is settled, the kept entries are those at or above it.
            unsigned long long floor_word = 0;
            for (int pass = 0; pass < 2; ++pass) {
                const bool by_count = pass == 0;
                if (by_count ? (ask.top_k == 0 || ask.top_k >= unsigned(vocabulary)) : ask.top_p >= 1.0f) continue;
                if (!by_count) {
                    total = 0.0;
                    for (int i = threadIdx.x; i < vocabulary; i += blockDim.x)
                        if (rankable(weight[i], i) >= floor_word) total += weight[i];
                    total = block_sum(total, sums);
                }
                const double share = double(ask.top_p) * total;
                unsigned long long prefix = 0;
                double before_mass = 0.0;
                unsigned before_count = 0;
                for (int shift = 56; shift >= 0; shift -= 8) {
                    for (int bin = threadIdx.x; bin < BINS; bin += blockDim.x) counts[bin] = 0, masses[bin] = 0.0;
                    __syncthreads();
                    for (int i = threadIdx.x; i < vocabulary; i += blockDim.x) {
                        const unsigned long long own = rankable(weight[i], i);
                        if (own < floor_word) continue;
                        if (shift < 56 && (own >> (shift + 8)) != (prefix >> (shift + 8))) continue;
                        const unsigned bin = unsigned(own >> shift) & (BINS - 1);
                        atomicAdd(&counts[bin], 1u);
                        atomicAdd(&masses[bin], double(weight[i]));
                    }
                    __syncthreads();
                    if (threadIdx.x == 0) {
                        unsigned count = before_count;
                        double mass = before_mass;
                        int bin = BINS - 1;
                        // The last bin in which an entry is still kept: it has fewer than k, or less than the share, before it.
                        for (; bin > 0; --bin) {
                            const unsigned upto = count + counts[bin];
                            const double reached = mass + masses[bin];
                            if (by_count ? upto >= ask.top_k : reached >= share) break;
                            count = upto;
                            mass = reached;
                        }
                        // Nothing there (rounding at the very end): the lowest bin that holds something.
                        while (counts[bin] == 0 && bin < BINS - 1) {
                            ++bin;
                            count -= counts[bin];
                            mass -= masses[bin];
                        }
                        chosen = unsigned(bin);
                        counts[0] = count;
                        chosen_before = mass;
                    }
                    __syncthreads();
                    prefix |= static_cast<unsigned long long>(chosen) << shift;
                    before_count = counts[0];
                    before_mass = chosen_before;
                    __syncthreads();
                }
                floor_word = prefix > floor_word ? prefix : floor_word;
            }

            // What is kept, in rising order of ids, until it holds `uniform` of the whole: chunks of the row are summed
            // by the threads in order, so the draw is the CPU's but for the rounding of e^x.
            const float least = ask.min_p > 0.0f ? fminf(ask.min_p, 1.0f) : 0.0f;
            const int span = (vocabulary + blockDim.x - 1) / blockDim.x;
            const int begin = min(int(threadIdx.x) * span, vocabulary), end = min(begin + span, vocabulary);
            double own = 0.0;
            for (int i = begin; i < end; ++i)
                if (rankable(weight[i], i) >= floor_word && weight[i] >= least) own += weight[i];
            const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE, warps = blockDim.x / WARP_SIZE;
            double upto = own;
            for (int step = 1; step < WARP_SIZE; step *= 2) {
                const double earlier = __shfl_up_sync(FULL, upto, step);
                if (lane >= step) upto += earlier;
            }
            if (lane == WARP_SIZE - 1) sums[warp] = upto;
            if (threadIdx.x == 0) chosen = FULL;
            __syncthreads();
            double before = upto - own, all = 0.0;
            for (int other = 0; other < warps; ++other) {
                if (other < warp) before += sums[other];
                all += sums[other];
            }
            const double aim = ask.uniform * all;
            if (before + own > aim) {
                double reached = before;
                for (int i = begin; i < end; ++i) {
                    if (rankable(weight[i], i) < floor_word || weight[i] < least) continue;
                    reached += weight[i];
                    if (reached > aim) {
                        atomicMin(&chosen, unsigned(i));
                        break;
                    }
                }
            }
            __syncthreads();
            if (chosen != FULL) id = chosen;
            __syncthreads();
        }
    }

    double greater = 0.0;
    for (int i = threadIdx.x; i < vocabulary; i += blockDim.x) greater += row[i] > row[id] ? 1.0 : 0.0;
    greater = block_sum(greater, sums);
    if (threadIdx.x == 0) {
        reading->id = id;
        reading->logprob = float(double(row[id] - largest) - ln_s);
        reading->entropy = float(fmax(ln_s - t / s, 0.0));
        reading->rank = unsigned(greater);
    }
}
