// Runs CUDA kernels on a CPU, thread by thread, so that their arithmetic can be compared with the Rust kernels where
// there is no GPU. Every CUDA thread is a fiber; barriers and warp shuffles wait as the hardware would, and a barrier
// that some threads of a warp never reach is reported instead of hanging. Blocks run one after the other: what depends
// on blocks running at once, or on the hardware's rounding of its own exponentials, is not covered here.
#pragma once

#include <cmath>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <ucontext.h>
#include <vector>

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

namespace simt {

constexpr unsigned WARP = 32;
constexpr size_t STACK = 64 * 1024;

// Threads that wait for each other.
struct Group {
    unsigned members = 0, arrived = 0;
    uint64_t generation = 0;
};

struct Fiber {
    std::unique_ptr<char[]> stack = std::make_unique_for_overwrite<char[]>(STACK);
    // Where it goes on; `ucontext` only for its first step, since every switch of that asks the kernel.
    jmp_buf at;
    bool begun = false;
    dim3 index;
    unsigned linear = 0;
    bool done = false;
    // The generation it waits to see, if it waits.
    Group* waits = nullptr;
    uint64_t generation = 0;
};

struct Block {
    unsigned count = 0;
    std::vector<Group> warps;
    Group all;
    // One word a lane for shuffles.
    std::vector<uint64_t> exchange;
    std::vector<char> shared;
    jmp_buf scheduler;
    Fiber* current = nullptr;
    std::function<void()> body;
};

inline Block* block = nullptr;
// One a thread of a block, kept from block to block.
inline std::vector<std::unique_ptr<Fiber>> fibers;
inline dim3 block_index, block_dim, grid_dim;

inline void yield() {
    if (_setjmp(block->current->at) == 0) _longjmp(block->scheduler, 1);
}

inline void wait(Group& group) {
    Fiber* self = block->current;
    self->generation = group.generation;
    if (++group.arrived == group.members) {
        group.arrived = 0;
        ++group.generation;
        return;
    }
    self->waits = &group;
    yield();
    self->waits = nullptr;
}

inline Group& warp() { return block->warps[block->current->linear / WARP]; }

// A thread of one block after the other.
inline void enter() {
    for (;;) {
        block->body();
        block->current->done = true;
        yield();
    }
}

inline void begin(Fiber& fiber) {
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = fiber.stack.get();
    context.uc_stack.ss_size = STACK;
    context.uc_link = nullptr;
    makecontext(&context, enter, 0);
    fiber.begun = true;
    setcontext(&context);
}

// Goes on with a thread until it waits or ends.
inline void resume(Fiber& fiber) {
    block->current = &fiber;
    if (_setjmp(block->scheduler) != 0) return;
    if (fiber.begun) _longjmp(fiber.at, 1);
    begin(fiber);
}

// A thread that has returned is waited for no more.
inline void leave(Group& group) {
    --group.members;
    if (group.members > 0 && group.arrived == group.members) {
        group.arrived = 0;
        ++group.generation;
    }
}

inline void run_block(const std::function<void()>& body, size_t shared_bytes) {
    unsigned count = block_dim.x * block_dim.y * block_dim.z;
    Block here;
    block = &here;
    here.body = body;
    here.count = count;
    here.warps.resize((count + WARP - 1) / WARP);
    here.exchange.resize(here.warps.size() * WARP);
    // Poisoned: a kernel that reads what it has not written shows.
    here.shared.assign(shared_bytes, char(0xff));
    here.all.members = count;
    while (fibers.size() < count) fibers.push_back(std::make_unique<Fiber>());
    for (unsigned i = 0; i < count; ++i) {
        Fiber& fiber = *fibers[i];
        fiber.done = false;
        fiber.waits = nullptr;
        fiber.linear = i;
        fiber.index = dim3(i % block_dim.x, i / block_dim.x % block_dim.y, i / block_dim.x / block_dim.y);
        ++here.warps[i / WARP].members;
    }
    for (unsigned left = count; left > 0;) {
        bool moved = false;
        for (unsigned i = 0; i < count; ++i) {
            Fiber& fiber = *fibers[i];
            if (fiber.done || (fiber.waits && fiber.waits->generation == fiber.generation)) continue;
            moved = true;
            resume(fiber);
            if (fiber.done) {
                --left;
                leave(here.all);
                leave(here.warps[fiber.linear / WARP]);
            }
        }
        if (!moved) {
            std::fprintf(stderr, "simt: threads of block (%u, %u, %u) wait for others that never come\n", block_index.x,
                         block_index.y, block_index.z);
            std::abort();
        }
    }
    block = nullptr;
}

template <typename Kernel, typename... Args>
void launch(dim3 grid, dim3 threads, size_t shared_bytes, Kernel kernel, Args... args) {
    grid_dim = grid;
    block_dim = threads;
    for (unsigned z = 0; z < grid.z; ++z)
        for (unsigned y = 0; y < grid.y; ++y)
            for (unsigned x = 0; x < grid.x; ++x) {
                block_index = dim3(x, y, z);
                run_block([&] { kernel(args...); }, shared_bytes);
            }
}

template <typename T>
T shuffle(T value, unsigned from) {
    static_assert(sizeof(T) <= sizeof(uint64_t));
    unsigned base = block->current->linear / WARP * WARP;
    std::memcpy(&block->exchange[block->current->linear], &value, sizeof value);
    wait(warp());
    T got = value;
    if (base + from < block->count) std::memcpy(&got, &block->exchange[base + from], sizeof got);
    wait(warp());
    return got;
}

}  // namespace simt

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
// Blocks run one after the other, so a static is one block's own; it is not poisoned between blocks.
#define __shared__ static
#define threadIdx (simt::block->current->index)
#define blockIdx (simt::block_index)
#define blockDim (simt::block_dim)
#define gridDim (simt::grid_dim)

inline void __syncthreads() { simt::wait(simt::block->all); }
inline void __syncwarp(unsigned = ~0u) { simt::wait(simt::warp()); }
template <typename T> T __shfl_xor_sync(unsigned, T value, int mask) {
    return simt::shuffle(value, (simt::block->current->linear % simt::WARP) ^ unsigned(mask));
}
template <typename T> T __shfl_up_sync(unsigned, T value, unsigned delta) {
    unsigned lane = simt::block->current->linear % simt::WARP;
    T got = simt::shuffle(value, lane >= delta ? lane - delta : lane);
    return lane >= delta ? got : value;
}
template <typename T> T __shfl_sync(unsigned, T value, int lane) { return simt::shuffle(value, unsigned(lane)); }
template <typename T> T __ldg(const T* at) { return *at; }
template <typename T> T atomicAdd(T* at, T value) { T old = *at; *at += value; return old; }
template <typename T> T atomicMin(T* at, T value) { T old = *at; if (value < old) *at = value; return old; }
template <typename T> T atomicMax(T* at, T value) { T old = *at; if (value > old) *at = value; return old; }
inline float __expf(float x) { return expf(x); }
inline float exp2f_fast(float x) { return exp2f(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __int_as_float(int x) { float y; std::memcpy(&y, &x, 4); return y; }
inline float __uint_as_float(unsigned x) { float y; std::memcpy(&y, &x, 4); return y; }
inline unsigned __float_as_uint(float x) { unsigned y; std::memcpy(&y, &x, 4); return y; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
template <typename T> T min(T a, T b) { return b < a ? b : a; }
