//! What every network on a GPU has around its layers: embeddings, the residual stream, slots, the head, and the reading
//! of rows where they lie. The layers are a [`Body`]'s: `mamba.rs`, `mamba2.rs`, `decoder.rs`.
//!
//! A pass is enqueued as a whole and waited for once, when what was read of its rows comes back: some 180 bytes a row.
//! Unlike the CPU's, its results agree with those of another batch or another length of segment within a tolerance only.
//!
//! Memory is planned when a model is opened: what is left beside the weights and the room of a pass holds states, of
//! which one half may be at work and the other is for those that callers keep.

use std::sync::{Arc, Mutex};

use loom_kernels::cuda::{Ask, Buffer, Gpu, GpuError, Matrix, NO_ENTRY, PAGE, Reading, Sequence, TOP_MAX, View};

use super::super::ends::Ends;
use super::super::row::{Entry, Room, RowAsk, RowReading, Scratch};
use super::super::{Architecture, Segment};
use super::slots::{Place, Pool, lock};
use super::weights::matrix;
use crate::foundation::base::limits::{GPU_LOGIT_BYTES_MAX, GPU_PASS_TOKENS_MAX, GPU_SEQUENCES_MAX, GPU_STATES_MAX};

/// The layers of a network.
pub(super) trait Body: Send + Sync + 'static {
    const DELTA: bool;

    /// What a sequence keeps beside its slot; the default before the first token.
    type Rest: Clone + Default + Send + Sync + 'static;

    /// What its layers are told of a pass.
    type Plan;

    fn layers(&self) -> usize;

    fn window(&self) -> Option<usize>;

    fn needs(&self) -> Needs;

    /// Takes its memory: a pass of `rows` rows, `slots` slots, `pages` pages.
    fn settle(&mut self, gpu: &Gpu, rows: usize, slots: usize, pages: usize) -> Result<(), GpuError>;

    /// Makes room for what `batch` adds to its states, `sequences` with their slots.
    fn plan(
        &self,
        gpu: &Gpu,
        batch: &mut [Segment<'_, GpuState<Self::Rest>>],
        sequences: &[Sequence],
    ) -> Result<Self::Plan, GpuError>;

    /// Layer `index`: adds `added` to the residual stream x, and leaves what it adds itself in `h`.
    fn layer(&self, gpu: &Gpu, index: usize, plan: &Self::Plan, stream: &Stream<'_>) -> Result<(), GpuError>;
}

/// What a body needs of memory, bytes.
#[derive(Clone, Copy)]
pub(super) struct Needs {
    /// A slot.
    pub(super) slot: usize,
    /// A page; 0 if it has none.
    pub(super) page: usize,
    /// Pages of the longest sequence.
    pub(super) longest: usize,
    /// A row of a pass.
    pub(super) row: usize,
    /// What does not depend on the number of rows.
    pub(super) fixed: usize,
}

/// `[rows, d_model]` each.
pub(super) struct Stream<'a> {
    pub(super) rows: usize,
    pub(super) x: View<'a, f32>,
    /// `None` in front of the first layer.
    pub(super) added: Option<View<'a, f32>>,
    pub(super) h: View<'a, f32>,
}

/// A sequence's state: a slot of its own or shared with forks, none before the first token; and what the body keeps.
#[derive(Clone, Default)]
pub(super) struct GpuState<R> {
    slot: Option<Arc<Place>>,
    pub(super) rest: R,
}

/// Slot 0 is never written: it is the state before the first token.
const START: i32 = 0;

pub(super) struct Network<B> {
    gpu: Gpu,
    body: B,
    d_model: usize,
    vocabulary: usize,
    epsilon: f32,
    table: Matrix,
    /// `None` when it is the table.
    head: Option<Matrix>,
    norm: Buffer<f32>,
    slots: Pool,
    /// The residual stream after the last layer at each slot's last token, `[slots, d_model]`.
    last: Buffer<f32>,
    /// `[rows, d_model]`
    x: Buffer<f32>,
    h: Buffer<f32>,
    /// Of as many rows as the head takes at once: normed, logits, scratch.
    some: usize,
    normed: Buffer<f32>,
    logits: Buffer<f32>,
    weights: Buffer<f32>,
    /// One a row of a pass.
    readings: Buffer<Reading>,
    sequences_max: usize,
    states_bytes: u64,
    fault: Mutex<Option<String>>,
}

impl<B: Body> Network<B> {
    /// A network whose ends are `ends`. `free` is what was free before `body`'s weights came.
    pub(super) fn new(gpu: Gpu, ends: &Ends, mut body: B, free: usize) -> Result<Self, GpuError> {
        let (d_model, vocabulary) = (ends.table.inputs(), ends.vocabulary());
        let table = matrix(&gpu, &ends.table)?;
        let head = ends.head.as_ref().map(|head| matrix(&gpu, head)).transpose()?;
        let norm = gpu.upload(&ends.norm)?;
        let plan = Plan::new(&body.needs(), d_model, vocabulary, free, gpu.free_bytes()?)?;
        let Plan { rows, some, slots, pages, sequences_max, states_bytes } = plan;
        body.settle(&gpu, rows, slots, pages)?;
        Ok(Self {
            slots: Pool::new("states", 1, slots),
            last: gpu.zeros(slots * d_model)?,
            x: gpu.room(rows * d_model)?,
            h: gpu.room(rows * d_model)?,
            normed: gpu.room(some * d_model)?,
            logits: gpu.room(some * vocabulary)?,
            weights: gpu.room(some * vocabulary)?,
            readings: gpu.room(rows)?,
            epsilon: ends.norm_epsilon,
            fault: Mutex::new(None),
            states_bytes: states_bytes as u64,
            gpu,
            body,
            d_model,
            vocabulary,
            table,
            head,
            norm,
            some,
            sequences_max,
        })
    }

    /// The slot that a state is read from and the one for what comes after, where it then lies. What it lay in together
    /// with forks is handed out, to be let go when the pass is under way.
    fn advance(&self, slot: &mut Option<Arc<Place>>) -> Result<(i32, i32, Option<Arc<Place>>), GpuError> {
        if let Some(slot) = slot.as_mut().and_then(Arc::get_mut) {
            return Ok((slot.index(), slot.index(), None));
        }
        let new = self.slots.take()?;
        let index = new.index();
        let old = slot.replace(new);
        Ok((old.as_ref().map_or(START, |slot| slot.index()), index, old))
    }

    /// Enqueues a pass over `batch`, and gives the rows asked for in `h`, however many they are.
    fn pass(&self, batch: &mut [Segment<'_, GpuState<B::Rest>>]) -> Result<usize, GpuError> {
        let gpu = &self.gpu;
        let mut sequences = Vec::with_capacity(batch.len());
        let (mut row, mut wanted, mut lasts) = (0, Vec::new(), Vec::new());
        let mut shared = Vec::new();
        for segment in batch.iter_mut() {
            let (from, to, old) = self.advance(&mut segment.state.slot)?;
            shared.push(old);
            let len = i32::try_from(segment.ids.len()).unwrap_or(i32::MAX);
            sequences.push(Sequence { row, len, from, to, gain_decay: 1.0, gain_write: 1.0 });
            wanted.extend(segment.logits.clone().filter_map(|at| Some(row + i32::try_from(at).ok()?)));
            lasts.push(row + len - 1);
            row += len;
        }
        let rows = usize::try_from(row).unwrap_or_default();
        let ids: Vec<_> = batch.iter().flat_map(|segment| segment.ids).copied().collect();
        let plan = self.body.plan(gpu, batch, &sequences)?;
        gpu.embed(&ids, &self.table, self.x.view())?;
        let mut stream = Stream { rows, x: self.x.view(), added: None, h: self.h.view() };
        for index in 0..self.body.layers() {
            self.body.layer(gpu, index, &plan, &stream)?;
            stream.added = Some(stream.h);
        }
        if let Some(added) = stream.added {
            gpu.add_to(self.x.view(), added, rows * self.d_model)?;
        }
        let targets: Vec<_> = sequences.iter().map(|sequence| sequence.to).collect();
        gpu.copy_rows((self.x.view(), &lasts), (self.last.view(), Some(&targets)), self.d_model)?;
        gpu.copy_rows((self.x.view(), &wanted), (self.h.view(), None), self.d_model)?;
        Ok(wanted.len())
    }

    /// The logits of the first `rows` rows of the residual stream `x`, at most `some`.
    fn head(&self, x: View<'_, f32>, rows: usize) -> Result<(), GpuError> {
        let d_model = self.d_model;
        self.gpu.rms_norm(x, None, self.norm.view(), self.epsilon, self.normed.view(), [rows, d_model])?;
        let head = self.head.as_ref().unwrap_or(&self.table);
        self.gpu.matmul((self.normed.view(), d_model), rows, head, None, (self.logits.view(), self.vocabulary))
    }

    /// What is asked of the rows of `x`. The one place that waits for the device, but for rows of which more is asked than
    /// the kernel tells: these come over as they are.
    fn answer(&self, x: View<'_, f32>, asks: &[&RowAsk]) -> Result<Vec<Option<RowReading>>, GpuError> {
        let (mut whole, mut scratch) = (Vec::new(), Scratch::default());
        for (index, asks) in asks.chunks(self.some).enumerate() {
            let first = index * self.some;
            self.head(x.from(first * self.d_model), asks.len())?;
            let told: Vec<_> = asks.iter().map(|ask| asked(ask)).collect();
            let (logits, weights) = (self.logits.view(), self.weights.view());
            self.gpu.read_logits(logits, weights, &told, self.vocabulary, self.readings.from(first))?;
            for (row, ask) in asks.iter().enumerate().filter(|(_, ask)| ask.top > TOP_MAX) {
                let mut logits = vec![0.0; self.vocabulary];
                self.gpu.read(self.logits.part(row * self.vocabulary, self.vocabulary), &mut logits)?;
                whole.push((first + row, ask.read(&logits, &mut scratch)));
            }
        }
        let mut readings = vec![Reading::NONE; asks.len()];
        if !readings.is_empty() {
            self.readings.read(&mut readings)?;
        }
        let mut answers: Vec<_> =
            readings.iter().zip(asks).map(|(reading, ask)| told(reading, ask.top.min(self.vocabulary))).collect();
        for (at, reading) in whole {
            if let Some(answer) = answers.get_mut(at) {
                *answer = reading;
            }
        }
        Ok(answers)
    }

    fn at(&self, state: &GpuState<B::Rest>) -> View<'_, f32> {
        let slot = state.slot.as_ref().map_or(START, |slot| slot.index());
        self.last.part(usize::try_from(slot).unwrap_or_default() * self.d_model, self.d_model)
    }

    /// Replaces `logits` by those of the first `rows` rows of `x`.
    fn whole(&self, x: View<'_, f32>, rows: usize, logits: &mut Vec<f32>) -> Result<(), GpuError> {
        logits.clear();
        logits.resize(rows * self.vocabulary, 0.0);
        for (index, part) in logits.chunks_mut(self.some * self.vocabulary).enumerate() {
            self.head(x.from(index * self.some * self.d_model), part.len() / self.vocabulary)?;
            self.logits.read(part)?;
        }
        Ok(())
    }

    fn note<T>(&self, outcome: Result<T, GpuError>) -> Option<T> {
        outcome.map_err(|error| *lock(&self.fault) = Some(format!("the GPU failed: {error}"))).ok()
    }
}

/// The kernel's form of `ask`; where that tells of fewer entries than asked for, its reading is not used.
fn asked(ask: &RowAsk) -> Ask<'_> {
    let top = ask.top.min(TOP_MAX) as u32;
    match &ask.entry {
        Entry::Given(id) => Ask { given: *id, top, ..Ask::GREEDY },
        Entry::Drawn(draw) => Ask {
            temperature: draw.params.temperature,
            top_p: draw.params.top_p,
            min_p: draw.params.min_p,
            penalty: draw.penalty,
            top_k: draw.params.top_k.map_or(0, |k| u32::try_from(k).unwrap_or(u32::MAX)),
            top,
            uniform: draw.uniform,
            penalised: &draw.recent,
            given: NO_ENTRY,
        },
    }
}

fn told(reading: &Reading, top: usize) -> Option<RowReading> {
    (reading.id != NO_ENTRY && reading.logprob.is_finite()).then(|| RowReading {
        id: reading.id,
        logprob: reading.logprob,
        entropy: reading.entropy,
        rank: reading.rank,
        top: reading.top.iter().take(top).map(|entry| (entry.id, entry.logprob)).collect(),
    })
}

/// Where the memory goes.
#[derive(Debug, PartialEq)]
struct Plan {
    /// Rows of a pass, and of the head.
    rows: usize,
    some: usize,
    slots: usize,
    pages: usize,
    sequences_max: usize,
    /// Of the states that may be at work.
    states_bytes: usize,
}

/// A request's own state and the one before its reply, and as much again for what callers keep.
const STATES_PER_SEQUENCE: usize = 4;

impl Plan {
    /// `before` bytes were free in front of the weights, `free` are behind them.
    fn new(needs: &Needs, d_model: usize, vocabulary: usize, before: usize, free: usize) -> Result<Self, GpuError> {
        let rows = GPU_PASS_TOKENS_MAX.max(GPU_SEQUENCES_MAX);
        let some = (GPU_LOGIT_BYTES_MAX / (8 * vocabulary)).clamp(1, rows);
        let width = size_of::<f32>() * d_model;
        let pass =
            rows * (needs.row + 2 * width + size_of::<Reading>()) + some * (width + 8 * vocabulary) + needs.fixed;
        let slot = needs.slot + width;
        // One sequence at least, as long as they come.
        let least = STATES_PER_SEQUENCE * (slot + needs.longest.min(LONGEST_PAGES_MIN) * needs.page);
        if pass + least > free {
            let weights = before.saturating_sub(free);
            return Err(GpuError::new(format!(
                "the weights ({}), a pass of {rows} tokens ({}) and the states of one conversation ({}) come to {}, and \
                 {} are free",
                gib(weights),
                gib(pass),
                gib(least),
                gib(weights + pass + least),
                gib(before),
            )));
        }
        // Half of the rest is left to other models.
        let room = least.max((free - pass) / 2);
        let wanted = STATES_PER_SEQUENCE * GPU_SEQUENCES_MAX;
        let (slots, pages) = if needs.page == 0 {
            ((room / slot).min(GPU_STATES_MAX), 0)
        } else {
            let slots = (room / 8 / slot).clamp(STATES_PER_SEQUENCE, GPU_STATES_MAX);
            (slots, ((room - slots * slot) / needs.page).min(wanted * needs.longest))
        };
        let states_bytes = if needs.page == 0 { slots * slot } else { pages * needs.page } / 2;
        let sequences_max = (slots / STATES_PER_SEQUENCE).clamp(1, GPU_SEQUENCES_MAX);
        Ok(Self { rows, some, slots, pages, sequences_max, states_bytes })
    }
}

/// A decoder whose longest sequence does not fit is opened if this many pages of one do.
const LONGEST_PAGES_MIN: usize = 32;

fn gib(bytes: usize) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

impl<B: Body> Architecture for Network<B> {
    type State = GpuState<B::Rest>;

    const DELTA: bool = B::DELTA;

    fn layers(&self) -> usize {
        self.body.layers()
    }

    fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    fn window(&self) -> Option<usize> {
        self.body.window()
    }

    fn state_bytes(&self, tokens: usize) -> usize {
        let Needs { slot, page, .. } = self.body.needs();
        if page == 0 { slot + size_of::<f32>() * self.d_model } else { tokens.div_ceil(PAGE) * page }
    }

    fn start(&self) -> Self::State {
        GpuState::default()
    }

    fn forward(&self, batch: &mut [Segment<'_, Self::State>], logits: &mut Vec<f32>) {
        let rows = self.pass(batch);
        self.note(rows.and_then(|rows| self.whole(self.h.view(), rows, logits)));
    }

    fn next(&self, state: &Self::State, logits: &mut Vec<f32>) {
        self.note(self.whole(self.at(state), 1, logits));
    }

    fn read(&self, batch: &mut [Segment<'_, Self::State>], _: &mut Room) -> Vec<Option<RowReading>> {
        let passed = self.pass(batch);
        let asks: Vec<_> = batch.iter().flat_map(|segment| &segment.asks).collect();
        self.note(passed.and_then(|_| self.answer(self.h.view(), &asks))).unwrap_or_default()
    }

    fn read_next(&self, state: &Self::State, ask: &RowAsk, _: &mut Room) -> Option<RowReading> {
        self.note(self.answer(self.at(state), &[ask]))?.pop()?
    }

    fn sequences_max(&self) -> usize {
        self.sequences_max
    }

    fn pass_tokens_max(&self) -> usize {
        GPU_PASS_TOKENS_MAX
    }

    fn states_bytes(&self) -> Option<u64> {
        Some(self.states_bytes)
    }

    fn fault(&self) -> Option<String> {
        lock(&self.fault).take()
    }
}
