//! Number types of tensors in files: their sizes in bytes, and conversion.

use std::borrow::Cow;

use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::{DType, Device, Tensor};
use loom_kernels::Dtype;

/// Largest magnitude that a matrix stored as `dtype` may contain. Blocks have f16 scales (at most 65504); a larger
/// number would need an infinite scale.
pub(super) fn largest(dtype: Dtype) -> f32 {
    const F16_MAX: f32 = 65_504.0;
    match dtype {
        Dtype::F32 => f32::MAX,
        // The largest finite bf16; larger numbers round to infinity.
        Dtype::Bf16 => f32::from_bits(0x7f7f_0000),
        Dtype::Q8_0 => F16_MAX * 127.0,
        Dtype::Q4K => F16_MAX * 63.0,
    }
}

/// A supported number type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoredType {
    F32,
    F16,
    Bf16,
    /// ggml's quantised blocks with scales.
    Blocks(GgmlDType),
}

impl StoredType {
    /// A safetensors type.
    pub(super) fn of_safetensors(dtype: safetensors::Dtype) -> Option<Self> {
        match dtype {
            safetensors::Dtype::F32 => Some(Self::F32),
            safetensors::Dtype::F16 => Some(Self::F16),
            safetensors::Dtype::BF16 => Some(Self::Bf16),
            _ => None,
        }
    }

    /// A tensor type of GGUF, by its number (`ggml_type` in ggml.h).
    pub(super) fn of_gguf(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::F32,
            1 => Self::F16,
            30 => Self::Bf16,
            2 => Self::Blocks(GgmlDType::Q4_0),
            3 => Self::Blocks(GgmlDType::Q4_1),
            6 => Self::Blocks(GgmlDType::Q5_0),
            7 => Self::Blocks(GgmlDType::Q5_1),
            8 => Self::Blocks(GgmlDType::Q8_0),
            10 => Self::Blocks(GgmlDType::Q2K),
            11 => Self::Blocks(GgmlDType::Q3K),
            12 => Self::Blocks(GgmlDType::Q4K),
            13 => Self::Blocks(GgmlDType::Q5K),
            14 => Self::Blocks(GgmlDType::Q6K),
            _ => return None,
        })
    }

    /// Numbers per block, and bytes per block.
    fn block(self) -> (usize, usize) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::Bf16 => (1, 2),
            Self::Blocks(dtype) => (dtype.block_size(), dtype.type_size()),
        }
    }

    /// Bytes of a row of `width` numbers, if it consists of whole blocks.
    pub(super) fn row_bytes(self, width: usize) -> Option<usize> {
        let (numbers, bytes) = self.block();
        if width.is_multiple_of(numbers) { (width / numbers).checked_mul(bytes) } else { None }
    }

    /// The kernels' type that fits best: the same if there is one. f16 is widened to f32; other blocks are requantised
    /// as `q8_0`, which has a finer resolution.
    pub(super) fn kernel_dtype(self) -> Dtype {
        match self {
            Self::F32 | Self::F16 => Dtype::F32,
            Self::Bf16 => Dtype::Bf16,
            Self::Blocks(_) => self.block_dtype().unwrap_or(Dtype::Q8_0),
        }
    }

    /// The kernels' type that uses these blocks unchanged.
    pub(super) fn block_dtype(self) -> Option<Dtype> {
        match self {
            Self::Blocks(GgmlDType::Q8_0) => Some(Dtype::Q8_0),
            Self::Blocks(GgmlDType::Q4K) => Some(Dtype::Q4K),
            _ => None,
        }
    }

    /// Converts `bytes` to f32, row-major over `dims`.
    pub(super) fn widen(self, bytes: &[u8], dims: &[usize]) -> candle_core::Result<Vec<f32>> {
        let plain = |dtype| Tensor::from_raw_buffer(bytes, dtype, dims, &Device::Cpu);
        let tensor = match self {
            Self::F32 => plain(DType::F32),
            Self::F16 => plain(DType::F16),
            Self::Bf16 => plain(DType::BF16),
            Self::Blocks(dtype) => {
                let storage = QStorage::from_data(Cow::Borrowed(bytes), &Device::Cpu, dtype)?;
                QTensor::new(storage, dims)?.dequantize(&Device::Cpu)
            }
        };
        tensor?.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()
    }

    /// Whether the scales of every block are finite (`Q8_0` has one f16 scale, `Q4_K` two).
    pub(super) fn scales_are_finite(self, bytes: &[u8]) -> bool {
        let count = if self == Self::Blocks(GgmlDType::Q4K) { 2 } else { 1 };
        bytes.chunks(self.block().1).all(|block| {
            let scales = block.as_chunks::<2>().0.iter().take(count);
            scales.map(|bytes| u16::from_le_bytes(*bytes)).all(|scale| scale & 0x7c00 != 0x7c00)
        })
    }
}
