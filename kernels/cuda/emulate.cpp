// The kernels as functions for the CPU (simt.hpp), with the launches that the device side makes: for tests only.
#define LOOM_SIMT
#include "logits.cu"
#include "mamba.cu"
#include "norm.cu"
#include "product.cu"

namespace {
unsigned blocks(unsigned work, unsigned each) { return (work + each - 1) / each; }
}  // namespace

extern "C" {

void emulate_rms_norm(float* x, const float* added, const float* weight, float eps, float* y, int width, int rows) {
    simt::launch(dim3(rows), dim3(256), 0, rms_norm_residual, x, added, weight, eps, y, width);
}

void emulate_conv_silu(const float* u, int stride, const float* weight, const float* bias, float* tails,
                       const Sequence* sequences, int count, int channels, int taps, float* y) {
    simt::launch(dim3(blocks(channels, 128), count), dim3(128), 0, conv_silu, u, stride, weight, bias, tails, sequences,
                 channels, taps, y);
}

void emulate_scan_step16(const float* u, const float* delta, const float* dt_bias, const float* a, const float* bc,
                         int bc_stride, const float* d, const float* z, int z_stride, float* states,
                         const Sequence* sequences, int count, int channels, float* y) {
    simt::launch(dim3(blocks(channels, 8), count), dim3(128), 0, scan_step16, u, delta, dt_bias, a, bc, bc_stride, d, z,
                 z_stride, states, sequences, channels, y);
}

void emulate_scan_segments(const float* u, const float* delta, const float* dt_bias, const float* a, const float* bc,
                           int bc_stride, const float* d, const float* z, int z_stride, float* states,
                           const Sequence* sequences, int count, int channels, int d_state, float* y) {
    simt::launch(dim3(channels, count), dim3(SCAN_THREADS), 0, scan_segments, u, delta, dt_bias, a, bc, bc_stride, d, z,
                 z_stride, states, sequences, channels, d_state, y);
}

// `kind`: 0 f32, 1 bf16, 2 f16. One row at a time, or eight.
void emulate_product(int kind, const float* x, const void* weight, const float* bias, float* y, int rows, int inputs,
                     int outputs, int y_stride) {
    const bool one = rows == 1;
    const dim3 grid(blocks(outputs, 4), one ? 1 : blocks(rows, 8));
    auto run = [&](auto kernel, auto* w) {
        simt::launch(grid, dim3(128), 0, kernel, x, w, bias, y, rows, inputs, outputs, y_stride);
    };
    if (kind == 0) run(one ? product_f32_1 : product_f32_8, static_cast<const float*>(weight));
    if (kind == 1) run(one ? product_bf16_1 : product_bf16_8, static_cast<const bf16*>(weight));
    if (kind == 2) run(one ? product_f16_1 : product_f16_8, static_cast<const f16*>(weight));
}

void emulate_product_q8_0(const float* x, const int8_t* quants, const uint16_t* scales, float* y, int rows, int inputs,
                          int outputs) {
    const bool one = rows == 1;
    simt::launch(dim3(blocks(outputs, 4), one ? 1 : blocks(rows, 8)), dim3(128), 0, one ? product_q8_0_1 : product_q8_0_8,
                 x, quants, reinterpret_cast<const f16*>(scales), static_cast<const float*>(nullptr), y, rows, inputs,
                 outputs, outputs);
}

void emulate_read_logits(const float* logits, float* weights, const Ask* asks, const unsigned* penalised, Reading* out,
                         int rows, int vocabulary) {
    simt::launch(dim3(rows), dim3(512), 0, read_logits, logits, weights, asks, penalised, out, vocabulary);
}

}  // extern "C"
