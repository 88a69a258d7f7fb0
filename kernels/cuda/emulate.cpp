// The kernels as functions for the CPU (simt.hpp), launched by name as the driver launches them: for tests only.
#define LOOM_SIMT
#include "attention.cu"
#include "logits.cu"
#include "mamba.cu"
#include "mamba2.cu"
#include "norm.cu"
#include "product.cu"

#include <type_traits>
#include <utility>

namespace {

template <typename... A, size_t... I>
void run(dim3 grid, dim3 threads, void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
    simt::launch(grid, threads, 0, kernel, *static_cast<std::remove_cv_t<A>*>(arguments[I])...);
}

template <typename... A>
bool run(dim3 grid, dim3 threads, void (*kernel)(A...), void** arguments, unsigned count) {
    if (count != sizeof...(A)) return false;
    run(grid, threads, kernel, arguments, std::index_sequence_for<A...>());
    return true;
}

}  // namespace

// One block after the other. Gives 0 where there is no such kernel, or it takes another number of arguments.
extern "C" int loom_emulate(const char* name, const unsigned* grid, unsigned threads, void** arguments, unsigned count) {
    const dim3 blocks(grid[0], grid[1], grid[2]);
#define KERNEL(kernel) \
    if (std::strcmp(name, #kernel) == 0) return run(blocks, dim3(threads), kernel, arguments, count);
    KERNEL(add_steps)
    KERNEL(add_to)
    KERNEL(attend_join)
    KERNEL(attend_part)
    KERNEL(bias_rows)
    KERNEL(conv_silu)
    KERNEL(copy_rows)
    KERNEL(embed_bf16)
    KERNEL(embed_f16)
    KERNEL(embed_f32)
    KERNEL(embed_q8_0)
    KERNEL(gated_rms_norm)
    KERNEL(head_segments)
    KERNEL(head_step)
    KERNEL(join_halves)
    KERNEL(norm_parts)
    KERNEL(product_any)
    KERNEL(product_bf16_1)
    KERNEL(product_bf16_8)
    KERNEL(product_f16_1)
    KERNEL(product_f16_8)
    KERNEL(product_f32_1)
    KERNEL(product_f32_8)
    KERNEL(product_q8_0_1)
    KERNEL(product_q8_0_8)
    KERNEL(read_logits)
    KERNEL(rms_norm_residual)
    KERNEL(rotary_write)
    KERNEL(scan_segments)
    KERNEL(scan_step16)
    KERNEL(silu_gate)
    KERNEL(split_halves)
#undef KERNEL
    return 0;
}
