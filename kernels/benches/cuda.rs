//! Decode steps of Mamba-1 on a GPU at published widths with synthetic bf16 weights; see `scripts/gpu-bench.sh`. `--gpus`
//! only lists the GPUs, `--copy` only measures the bandwidth. Prints tokens/s, the bytes moved per step relative to the
//! bandwidth, and the time of the logit statistics relative to the step, which does not include them.

#[cfg(not(any(feature = "cuda", feature = "cuda-emulation")))]
fn main() {
    eprintln!("nothing to measure: build with the feature `cuda`");
}

#[cfg(any(feature = "cuda", feature = "cuda-emulation"))]
fn main() {
    if let Err(error) = gpu::run() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

#[cfg(any(feature = "cuda", feature = "cuda-emulation"))]
mod gpu {
    use std::time::Instant;

    use loom_kernels::cuda::{
        Buffer, Gpu, GpuConv, GpuError, GpuScan, Matrix, MatrixWeights, RowList, RowQueries, RowQuery, RowStats,
        SequenceBatch, SequenceRows,
    };

    const VOCABULARY: usize = 50_280;
    const STATE: usize = 16;
    const TAPS: usize = 4;
    const STEPS: usize = 50;

    struct Layer {
        norm: Buffer<f32>,
        in_proj: Matrix,
        conv: [Buffer<f32>; 2],
        x_proj: Matrix,
        dt_proj: Matrix,
        /// dt bias, D.
        narrow: [Buffer<f32>; 2],
        a: Buffer<f32>,
        out_proj: Matrix,
        tails: Buffer<f32>,
        states: Buffer<f32>,
    }

    pub(super) fn run() -> Result<(), GpuError> {
        let gpu = Gpu::open(0)?;
        let only = |what: &str| std::env::args().any(|argument| argument == what);
        if only("--gpus") {
            for info in Gpu::all()? {
                println!("{info:?}");
            }
            return Ok(());
        }
        let copied = bandwidth(&gpu)?;
        println!("a copy moves {:.0} GB/s", copied / 1e9);
        if only("--copy") {
            return Ok(());
        }
        println!("many rows: {}", gpu.library().unwrap_or_else(|why| format!("no cuBLAS: {why}")));
        println!(
            "{:<12} {:>4} {:>12} {:>9} {:>14} {:>9}",
            "model", "N", "tokens/s", "ms/step", "of bandwidth", "reading"
        );
        for (name, layers, d_model, rank) in
            [("mamba-130m", 24, 768, 48), ("mamba-1.4b", 48, 2048, 128), ("mamba-2.8b", 64, 2560, 160)]
        {
            for rows in [1, 8, 32, 128, 512] {
                let (seconds, bytes) = step(&gpu, layers, d_model, rank, rows)?;
                let share = bytes as f64 / seconds / copied * 100.0;
                let reading = reading(&gpu, rows)? / seconds * 100.0;
                let (tokens, millis) = (rows as f64 / seconds, seconds * 1e3);
                println!("{name:<12} {rows:>4} {tokens:>12.0} {millis:>9.3} {share:>12.1} % {reading:>7.1} %");
            }
        }
        Ok(())
    }

    /// Bytes per second, read plus written.
    fn bandwidth(gpu: &Gpu) -> Result<f64, GpuError> {
        let len = 1 << 28;
        let (from, to) = (gpu.zeros::<f32>(len)?, gpu.zeros::<f32>(len)?);
        let seconds = time(&to, 10, || gpu.copy(from.view(), to.view(), len))?;
        Ok(8.0 * len as f64 / seconds)
    }

    /// Seconds per `work`, averaged over `count` runs after a warm-up; reading `end` waits for them.
    fn time(end: &Buffer<f32>, count: usize, work: impl Fn() -> Result<(), GpuError>) -> Result<f64, GpuError> {
        let mut wait = [0.0];
        work()?;
        end.read(&mut wait)?;
        let begun = Instant::now();
        for _ in 0..count {
            work()?;
        }
        end.read(&mut wait)?;
        Ok(begun.elapsed().as_secs_f64() / count as f64)
    }

    /// Seconds of the logit statistics of a step: a draw per row, with log-probability, entropy and rank.
    fn reading(gpu: &Gpu, rows: usize) -> Result<f64, GpuError> {
        let logits: Vec<f32> = (0..rows * VOCABULARY).map(|at| (at as f32 * 0.618).sin() * 8.0).collect();
        let (logits, weights) = (gpu.upload(&logits)?, gpu.zeros::<f32>(rows * VOCABULARY)?);
        let ask = RowQuery { temperature: 0.8, top_p: 0.95, uniform: 0.5, ..RowQuery::GREEDY };
        let asks = RowQueries::new(gpu, &vec![Some(ask); rows], VOCABULARY)?;
        let readings = gpu.uninit::<RowStats>(rows)?;
        time(&weights, STEPS, || gpu.read_logits([logits.view(), weights.view()], (&asks, 0, rows), readings.view()))
    }

    /// Seconds of one step, and the bytes of weights and states that it must move.
    fn step(gpu: &Gpu, layers: usize, d_model: usize, rank: usize, rows: usize) -> Result<(f64, usize), GpuError> {
        let d_inner = 2 * d_model;
        let width = rank + 2 * STATE;
        // Small numbers of one sign, in bf16.
        let matrix = |outputs: usize, inputs: usize| -> Result<Matrix, GpuError> {
            Ok(Matrix::new(MatrixWeights::Bf16(gpu.upload(&vec![0x3a00_u16; outputs * inputs])?), outputs, inputs))
        };
        let ones = |len: usize| gpu.upload(&vec![1.0_f32; len]);
        let room = |width: usize| gpu.zeros::<f32>(rows * width);
        let stack = (0..layers)
            .map(|_| {
                Ok(Layer {
                    norm: ones(d_model)?,
                    in_proj: matrix(2 * d_inner, d_model)?,
                    conv: [ones(d_inner * TAPS)?, ones(d_inner)?],
                    x_proj: matrix(width, d_inner)?,
                    dt_proj: matrix(d_inner, rank)?,
                    narrow: [ones(d_inner)?, ones(d_inner)?],
                    a: gpu.upload(&vec![-1.0_f32; d_inner * STATE])?,
                    out_proj: matrix(d_model, d_inner)?,
                    tails: room(d_inner * (TAPS - 1))?,
                    states: room(d_inner * STATE)?,
                })
            })
            .collect::<Result<Vec<_>, GpuError>>()?;
        let (head, norm) = (matrix(VOCABULARY, d_model)?, ones(d_model)?);
        let sequence = |row: i32| SequenceRows { row, len: 1, from: row, to: row, gain_decay: 1.0, gain_write: 1.0 };
        let sequences: Vec<_> = (0..).take(rows).map(sequence).collect();
        let batch = SequenceBatch::new(gpu, &sequences, rows)?;
        let ids: Vec<u32> = (0..rows as u32).collect();
        let ids = RowList::new(gpu, &ids, VOCABULARY)?;
        let (x, h, uz, u) = (room(d_model)?, room(d_model)?, room(2 * d_inner)?, room(d_inner)?);
        let (delta, y, dbc, logits) = (room(d_inner)?, room(d_inner)?, room(width)?, room(VOCABULARY)?);
        let one = || -> Result<(), GpuError> {
            gpu.embed(&ids, &head, x.view())?;
            for (index, layer) in stack.iter().enumerate() {
                let added = (index > 0).then(|| h.view());
                gpu.rms_norm(x.view(), added, layer.norm.view(), 1e-5, y.view(), [rows, d_model])?;
                gpu.matmul((y.view(), d_model), rows, &layer.in_proj, None, (uz.view(), 2 * d_inner))?;
                let [weight, bias] = layer.conv.each_ref().map(Buffer::view);
                let conv = GpuConv { weight, bias: Some(bias), channels: d_inner, taps: TAPS };
                gpu.conv_silu(&batch, &conv, (uz.view(), 2 * d_inner), layer.tails.view(), u.view())?;
                gpu.matmul((u.view(), d_inner), rows, &layer.x_proj, None, (dbc.view(), width))?;
                gpu.matmul((dbc.view(), width), rows, &layer.dt_proj, None, (delta.view(), d_inner))?;
                let [dt_bias, d] = layer.narrow.each_ref().map(Buffer::view);
                let scan = GpuScan {
                    u: u.view(),
                    delta_raw: delta.view(),
                    dt_bias,
                    a: layer.a.view(),
                    bc: dbc.from(rank),
                    bc_stride: width,
                    d,
                    z: Some((uz.from(d_inner), 2 * d_inner)),
                    channels: d_inner,
                    d_state: STATE,
                };
                gpu.selective_scan(&batch, &scan, layer.states.view(), y.view())?;
                gpu.matmul((y.view(), d_inner), rows, &layer.out_proj, None, (h.view(), d_model))?;
            }
            gpu.rms_norm(x.view(), Some(h.view()), norm.view(), 1e-5, y.view(), [rows, d_model])?;
            gpu.matmul((y.view(), d_model), rows, &head, None, (logits.view(), VOCABULARY))
        };
        one()?;
        // Recorded if possible, as in the engine.
        let seconds = match gpu.record(one)? {
            Some(step) => time(&logits, STEPS, || gpu.replay(&step))?,
            None => time(&logits, STEPS, one)?,
        };
        let weights = 2 * (layers * (3 * d_inner * d_model + width * d_inner + d_inner * rank) + VOCABULARY * d_model);
        let states = 2 * 4 * rows * layers * d_inner * (STATE + TAPS - 1);
        Ok((seconds, weights + states))
    }
}
