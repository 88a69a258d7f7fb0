//! Packed weights: W[outputs, inputs] as panels of sixteen outputs, in f32 or narrower.
//!
//! A panel is a sequence of cache lines; each lane of a line belongs to one output. A line holds one input in f32, two in
//! bf16, four in `Q8_0` and eight in `Q4_K`. For every type, a product reads a panel once from start to end.

use rayon::prelude::*;

use crate::blocks::{BLOCK, Q4_K_BYTES, Q8_0_BYTES, SUPER, scale_and_minimum, to_q4_k, to_q8_0};
use crate::half::{f16_to_f32, f32_to_bf16};
use crate::lanes::LANES;

/// The storage type of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dtype {
    /// Integers of 4 bits in superblocks of 256 inputs: GGML's `Q4_K`, 4.6 bits a weight as packed here.
    Q4K,
    /// Integers of 8 bits in blocks of 32 inputs with an f16 scale: GGML's `Q8_0`, 8.5 bits a weight.
    Q8_0,
    /// The upper half of an f32.
    Bf16,
    /// Single precision.
    F32,
}

impl Dtype {
    /// Every type, widest first.
    pub const ALL: [Self; 4] = [Self::F32, Self::Bf16, Self::Q8_0, Self::Q4K];

    /// The name, as in `--dtype`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Q8_0 => "q8_0",
            Self::Q4K => "q4_k",
        }
    }

    /// Number of inputs per block.
    pub fn block(self) -> usize {
        match self {
            Self::F32 | Self::Bf16 => 1,
            Self::Q8_0 => BLOCK,
            Self::Q4K => SUPER,
        }
    }

    /// The type actually used for a matrix with this many inputs: blocks must be whole, so `q4_k` falls back to `q8_0`, and
    /// that to f32.
    #[must_use]
    pub fn for_inputs(self, inputs: usize) -> Self {
        match self {
            Self::Q4K if !inputs.is_multiple_of(SUPER) => Self::Q8_0.for_inputs(inputs),
            Self::Q8_0 if !inputs.is_multiple_of(BLOCK) => Self::F32,
            fits => fits,
        }
    }

    /// Inputs per cache line of a panel.
    fn per_line(self) -> usize {
        match self {
            Self::F32 => 1,
            Self::Bf16 => 2,
            Self::Q8_0 => 4,
            Self::Q4K => 8,
        }
    }

    /// Bytes of a block in files.
    pub fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
            Self::Q8_0 => Q8_0_BYTES,
            Self::Q4K => Q4_K_BYTES,
        }
    }
}

impl std::fmt::Display for Dtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Dtype {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|dtype| dtype.name() == text);
        found.ok_or_else(|| format!("`{text}` is not a dtype; use f32, bf16, q8_0 or q4_k"))
    }
}

/// One cache line: a word for each of a panel's sixteen outputs.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [u32; LANES]);

/// The scales of a `Q4_K` superblock, by output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SuperScales {
    pub(crate) scale: [u16; LANES],
    pub(crate) minimum: [u16; LANES],
    pub(crate) scales: [[u8; LANES]; SUPER / BLOCK],
    pub(crate) minima: [[u8; LANES]; SUPER / BLOCK],
}

#[derive(Debug, Clone)]
pub(crate) enum Scales {
    None,
    /// `[panel][block]`: f16.
    Blocks(Vec<[u16; LANES]>),
    /// `[panel][superblock]`.
    Supers(Vec<SuperScales>),
}

/// Weights packed for [`matmul`](crate::matmul); the last panel is padded with zeros.
#[derive(Debug, Clone)]
pub struct Panels {
    dtype: Dtype,
    outputs: usize,
    inputs: usize,
    /// `[panel][line]`
    pub(crate) lines: Vec<Line>,
    pub(crate) scales: Scales,
}

impl Panels {
    /// Packs a row-major weight `[outputs, inputs]` in f32. Allocates; done once, at loading.
    ///
    /// # Panics
    /// Unless `weight` holds `outputs · inputs` numbers.
    pub fn pack(weight: &[f32], outputs: usize, inputs: usize) -> Self {
        Self::pack_as(Dtype::F32, weight, outputs, inputs)
    }

    /// Packs a row-major weight as `dtype`, or as its fallback in [`Dtype::for_inputs`]: rounded to bf16, or quantised.
    ///
    /// # Panics
    /// Unless `weight` holds `outputs · inputs` numbers.
    pub fn pack_as(dtype: Dtype, weight: &[f32], outputs: usize, inputs: usize) -> Self {
        assert_eq!(weight.len(), outputs * inputs, "Panels: expected {outputs} × {inputs} weights");
        let dtype = dtype.for_inputs(inputs);
        let quantise: fn(&[f32], &mut [u8]) = match dtype {
            Dtype::F32 => {
                let mut panels = Self::empty(dtype, outputs, inputs);
                panels.each_row(weight, |lane, row, lines, _, _| {
                    for (line, w) in lines.iter_mut().zip(row) {
                        line.0[lane] = w.to_bits();
                    }
                });
                return panels;
            }
            Dtype::Bf16 => |x, bytes| bytes.copy_from_slice(&f32_to_bf16(x[0]).to_le_bytes()),
            Dtype::Q8_0 => to_q8_0,
            Dtype::Q4K => to_q4_k,
        };
        let size = dtype.block_bytes();
        let mut blocks = vec![0; weight.len() / dtype.block() * size];
        let few = 4096 / dtype.block();
        let (from, to) = (weight.par_chunks(few * dtype.block()), blocks.par_chunks_mut(few * size));
        from.zip(to).for_each(|(weights, blocks)| {
            let blocks = blocks.chunks_exact_mut(size);
            weights.chunks_exact(dtype.block()).zip(blocks).for_each(|(x, block)| quantise(x, block));
        });
        Self::from_blocks(dtype, &blocks, outputs, inputs)
    }

    /// Packs a row-major weight from blocks as in GGUF files, bit for bit. f32 and bf16 are little-endian.
    ///
    /// # Panics
    /// Unless `blocks` holds `outputs` rows of `inputs / dtype.block()` whole blocks.
    pub fn from_blocks(dtype: Dtype, blocks: &[u8], outputs: usize, inputs: usize) -> Self {
        assert!(inputs.is_multiple_of(dtype.block()), "{inputs} inputs are not whole blocks of {dtype}");
        let size = dtype.block_bytes();
        assert_eq!(blocks.len(), outputs * (inputs / dtype.block()) * size, "Panels: bytes of {outputs} × {inputs}");
        let mut panels = Self::empty(dtype, outputs, inputs);
        panels.each_row(blocks, |lane, row, lines, scales, supers| match dtype {
            Dtype::F32 => {
                for (line, w) in lines.iter_mut().zip(row.as_chunks().0) {
                    line.0[lane] = u32::from_le_bytes(*w);
                }
            }
            Dtype::Bf16 => {
                for (at, w) in row.as_chunks().0.iter().enumerate() {
                    lines[at / 2].0[lane] |= u32::from(u16::from_le_bytes(*w)) << (at % 2 * 16);
                }
            }
            Dtype::Q8_0 => {
                for (at, block) in row.chunks_exact(size).enumerate() {
                    scales[at][lane] = u16::from_le_bytes([block[0], block[1]]);
                    for (line, four) in lines[at * 8..].iter_mut().zip(block[2..].as_chunks().0) {
                        // Signed to unsigned with an offset of 128.
                        line.0[lane] = u32::from_le_bytes(*four) ^ 0x8080_8080;
                    }
                }
            }
            Dtype::Q4K => {
                for (at, block) in row.chunks_exact(size).enumerate() {
                    let scales = &mut supers[at];
                    scales.scale[lane] = u16::from_le_bytes([block[0], block[1]]);
                    scales.minimum[lane] = u16::from_le_bytes([block[2], block[3]]);
                    for sub in 0..SUPER / BLOCK {
                        (scales.scales[sub][lane], scales.minima[sub][lane]) = scale_and_minimum(&block[4..16], sub);
                        let quants = &block[16 + sub / 2 * BLOCK..][..BLOCK];
                        for (line, eight) in lines[(at * 8 + sub) * 4..].iter_mut().zip(quants.as_chunks::<8>().0) {
                            // The first four inputs in the low halves of the bytes, the next four in the high.
                            let halves = u64::from_le_bytes(*eight) >> (sub % 2 * 4) & 0x0f0f_0f0f_0f0f_0f0f;
                            line.0[lane] = halves as u32 | ((halves >> 32) as u32) << 4;
                        }
                    }
                }
            }
        });
        panels
    }

    fn empty(dtype: Dtype, outputs: usize, inputs: usize) -> Self {
        let panels = outputs.div_ceil(LANES);
        let blocks = panels * (inputs / dtype.block());
        let super_scales = SuperScales {
            scale: [0; LANES],
            minimum: [0; LANES],
            scales: [[0; LANES]; SUPER / BLOCK],
            minima: [[0; LANES]; SUPER / BLOCK],
        };
        let scales = match dtype {
            Dtype::F32 | Dtype::Bf16 => Scales::None,
            Dtype::Q8_0 => Scales::Blocks(vec![[0; LANES]; blocks]),
            Dtype::Q4K => Scales::Supers(vec![super_scales; blocks]),
        };
        let lines = huge(panels * inputs.div_ceil(dtype.per_line()));
        Self { dtype, outputs, inputs, lines, scales }
    }

    /// Calls `place` for every row of `weight` with the row's lane, the row, and its panel's lines and scales.
    fn each_row<T: Sync>(
        &mut self,
        weight: &[T],
        place: impl Fn(usize, &[T], &mut [Line], &mut [[u16; LANES]], &mut [SuperScales]) + Sync,
    ) {
        if weight.is_empty() {
            return;
        }
        let (width, per_panel) = (weight.len() / self.outputs, self.lines_of_panel());
        let blocks = self.inputs / self.dtype.block();
        let panels = self.outputs.div_ceil(LANES);
        let mut scales: Vec<&mut [[u16; LANES]]> = (0..panels).map(|_| Default::default()).collect();
        let mut supers: Vec<&mut [SuperScales]> = (0..panels).map(|_| Default::default()).collect();
        match &mut self.scales {
            Scales::None => {}
            Scales::Blocks(all) => scales = all.chunks_exact_mut(blocks).collect(),
            Scales::Supers(all) => supers = all.chunks_exact_mut(blocks).collect(),
        }
        let panels = self.lines.par_chunks_exact_mut(per_panel).zip(scales).zip(supers);
        panels.zip(weight.par_chunks(LANES * width)).for_each(|(((lines, scales), supers), rows)| {
            for (lane, row) in rows.chunks_exact(width).enumerate() {
                place(lane, row, lines, scales, supers);
            }
        });
    }

    /// The storage type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Length of a row of y.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Length of a row of x.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        let scales = match &self.scales {
            Scales::None => 0,
            Scales::Blocks(all) => size_of_val(all.as_slice()),
            Scales::Supers(all) => size_of_val(all.as_slice()),
        };
        size_of_val(self.lines.as_slice()) + scales
    }

    pub(crate) fn lines_of_panel(&self) -> usize {
        self.inputs.div_ceil(self.dtype.per_line())
    }

    /// Copies one row of W (the weights of an output) to `row`, widened to f32. An embedding tied to the output layer thus
    /// needs no second copy.
    ///
    /// # Panics
    /// If there is no such output, or `row` is not `inputs` long.
    pub fn unpack_row(&self, output: usize, row: &mut [f32]) {
        assert!(output < self.outputs, "output {output} of {}", self.outputs);
        assert_eq!(row.len(), self.inputs, "row length");
        let (panel, lane) = (output / LANES, output % LANES);
        let lines = self.lines[panel * self.lines_of_panel()..].iter().map(|line| line.0[lane]);
        let blocks = panel * (self.inputs / self.dtype.block());
        match &self.scales {
            Scales::None if self.dtype == Dtype::F32 => {
                row.iter_mut().zip(lines).for_each(|(slot, line)| *slot = f32::from_bits(line));
            }
            Scales::None => {
                for (pair, line) in row.chunks_mut(2).zip(lines) {
                    let both = [line << 16, line & 0xffff_0000];
                    pair.iter_mut().zip(both).for_each(|(slot, bits)| *slot = f32::from_bits(bits));
                }
            }
            Scales::Blocks(scales) => {
                for (at, (four, line)) in row.chunks_exact_mut(4).zip(lines).enumerate() {
                    let scale = f16_to_f32(scales[blocks + at / 8][lane]);
                    for (slot, byte) in four.iter_mut().zip(line.to_le_bytes()) {
                        *slot = scale * (f32::from(byte) - 128.0);
                    }
                }
            }
            Scales::Supers(scales) => {
                for (at, (eight, line)) in row.chunks_exact_mut(8).zip(lines).enumerate() {
                    let (scales, sub) = (&scales[blocks + at / 32], at / 4 % 8);
                    let scale = f16_to_f32(scales.scale[lane]) * f32::from(scales.scales[sub][lane]);
                    let low = f16_to_f32(scales.minimum[lane]) * f32::from(scales.minima[sub][lane]);
                    let (first, second) = eight.split_at_mut(4);
                    let bytes = line.to_le_bytes();
                    first.iter_mut().zip(bytes).for_each(|(slot, b)| *slot = scale * f32::from(b & 15) - low);
                    second.iter_mut().zip(bytes).for_each(|(slot, b)| *slot = scale * f32::from(b >> 4) - low);
                }
            }
        }
    }
}

impl Panels {
    /// The integers `[outputs, inputs]` and the f16 scales `[outputs, inputs / 32]` of `Q8_0`; `None` for other types.
    pub fn q8_0(&self) -> Option<(Vec<i8>, Vec<u16>)> {
        let (Dtype::Q8_0, Scales::Blocks(scales)) = (self.dtype, &self.scales) else { return None };
        let blocks = self.inputs / BLOCK;
        let lanes = || (0..self.outputs).map(|output| (output / LANES, output % LANES));
        let quants = lanes().flat_map(|(panel, lane)| {
            let lines = &self.lines[panel * self.lines_of_panel()..][..self.lines_of_panel()];
            // Back to signed: see `from_blocks`.
            lines.iter().flat_map(move |line| (line.0[lane] ^ 0x8080_8080).to_le_bytes().map(u8::cast_signed))
        });
        let scales =
            lanes().flat_map(|(panel, lane)| scales[panel * blocks..][..blocks].iter().map(move |block| block[lane]));
        Some((quants.collect(), scales.collect()))
    }
}

/// Lines of zeros; large allocations use huge pages if available, which speeds up streaming reads.
fn huge(count: usize) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::with_capacity(count);
    #[cfg(target_os = "linux")]
    if count * size_of::<Line>() >= 4 << 20 {
        const MADV_HUGEPAGE: i32 = 14;
        const PAGE: usize = 4096;
        unsafe extern "C" {
            fn madvise(address: *mut std::ffi::c_void, length: usize, advice: i32) -> i32;
        }
        let from = lines.as_ptr().addr().next_multiple_of(PAGE) - lines.as_ptr().addr();
        let length = (count * size_of::<Line>() - from) / PAGE * PAGE;
        // SAFETY: the range is whole pages inside an allocation of ours, and the advice changes no content. If it
        // fails, only speed is lost.
        unsafe { madvise(lines.as_mut_ptr().byte_add(from).cast(), length, MADV_HUGEPAGE) };
    }
    lines.resize(count, Line([0; LANES]));
    lines
}
