//! What every network on a GPU has around its layers: embeddings, the residual stream, slots, the head, and the reading
//! of rows where they lie. The layers are a [`Body`]'s: `mamba.rs`, `mamba2.rs`, `decoder.rs`.
//!
//! A pass is enqueued as a whole and waited for once, when what was read of its rows comes back: some 180 bytes a row.
//! Unlike the CPU's, its results agree with those of another batch or another length of segment within a tolerance only.
//!
//! Memory is planned when a model is opened (`memory.rs`).

mod rows;

use std::sync::{Arc, Mutex};

use loom_kernels::cuda::{Buffer, Gpu, GpuError, List, Matrix, PAGE, Reading, Sequence, TOP_MAX, View};

use super::super::ends::Ends;
use super::super::row::{Room, RowAsk, RowReading};
use super::super::steps::Steps;
use super::super::{Architecture, Segment};
use super::decode::{self, Decode};
use super::memory::{Needs, Plan};
use super::reading::{asked, told};
use super::slots::{Place, Pool, lock};
use super::weights::matrix;
use crate::foundation::base::limits::GPU_PASS_TOKENS_MAX;
use crate::foundation::chat::{DeltaGains, SsmReading};

/// The layers of a network.
pub(super) trait Body: Send + Sync + 'static {
    const DELTA: bool;

    /// What a sequence keeps beside its slot; the default before the first token.
    type Rest: Clone + Default + Send + Sync + 'static;

    /// What its layers are told of a pass.
    type Plan: Send;

    fn layers(&self) -> usize;

    fn window(&self) -> Option<usize>;

    fn needs(&self) -> Needs;

    /// Takes its memory: a pass of `rows` rows, `slots` slots, `pages` pages.
    fn settle(&mut self, gpu: &Gpu, rows: usize, slots: usize, pages: usize) -> Result<(), GpuError>;

    /// Makes room for what `batch` adds to its states.
    fn grow(&self, gpu: &Gpu, batch: &mut [Segment<'_, GpuState<Self::Rest>>]) -> Result<(), GpuError>;

    /// What the layers are told of `batch`, `sequences` with their slots, after [`grow`](Self::grow).
    fn plan(
        &self,
        gpu: &Gpu,
        batch: &[Segment<'_, GpuState<Self::Rest>>],
        sequences: &[Sequence],
    ) -> Result<Self::Plan, GpuError>;

    /// Room for plans of up to `rows` sequences of one token each, that stays where it is.
    fn room(&self, gpu: &Gpu, rows: usize) -> Result<Self::Plan, GpuError>;

    /// Puts such a plan there, filled up to `rows` rows. Gives what beside `rows` decides on the launches; `None` if the
    /// batch is no such step.
    fn tell(
        &self,
        plan: &mut Self::Plan,
        batch: &[Segment<'_, GpuState<Self::Rest>>],
        sequences: &[Sequence],
        rows: usize,
    ) -> Result<Option<usize>, GpuError>;

    /// Layer `index`: adds `added` to the residual stream x, and leaves what it adds itself in `h`.
    fn layer(&self, gpu: &Gpu, index: usize, plan: &Self::Plan, stream: &Stream<'_>) -> Result<(), GpuError>;

    /// Tells those who look on of the steps Δ of a pass that was enqueued. Waits for it if there are any.
    fn look_on(&self, _: &Self::Plan, _: &mut [Segment<'_, GpuState<Self::Rest>>]) -> Result<(), GpuError> {
        Ok(())
    }

    /// As [`Architecture::look`], of the state in `slot`.
    fn look(
        &self,
        _: &Gpu,
        _slot: usize,
        _: &Steps,
        _gains: Option<&DeltaGains>,
    ) -> Result<Option<SsmReading>, GpuError> {
        Ok(None)
    }
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

impl<R> GpuState<R> {
    fn slot(&self) -> usize {
        usize::try_from(self.slot.as_ref().map_or(START, |slot| slot.index())).unwrap_or_default()
    }
}

pub(super) struct Network<B: Body> {
    gpu: Gpu,
    /// For people.
    place: String,
    body: B,
    d_model: usize,
    vocabulary: usize,
    epsilon: f32,
    table: Matrix,
    /// `None` when it is the table.
    head: Option<Matrix>,
    norm: Buffer<f32>,
    slots: Pool,
    /// What steps of one token each are told.
    decode: Mutex<Decode<B::Plan>>,
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
    /// A network at `place` whose ends are `ends`. `free` is what was free before `body`'s weights came.
    pub(super) fn new(gpu: Gpu, place: String, ends: &Ends, mut body: B, free: usize) -> Result<Self, GpuError> {
        let (d_model, vocabulary) = (ends.table.inputs(), ends.vocabulary());
        let table = matrix(&gpu, &ends.table)?;
        let head = ends.head.as_ref().map(|head| matrix(&gpu, head)).transpose()?;
        let norm = gpu.upload(&ends.norm)?;
        let workspace = gpu.workspace_bytes();
        let plan = Plan::new(&body.needs(), d_model, vocabulary, workspace, [free, gpu.free_bytes()?])?;
        let Plan { rows, some, slots, pages, sequences_max, states_bytes } = plan;
        body.settle(&gpu, rows, slots, pages)?;
        let decode = Decode::new(&gpu, &body, slots, vocabulary)?;
        Ok(Self {
            slots: Pool::new("states", 1, slots),
            decode: Mutex::new(decode),
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
            place,
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
    fn pass(&self, batch: &mut [Segment<'_, GpuState<B::Rest>>], sequences: &[Sequence]) -> Result<usize, GpuError> {
        let gpu = &self.gpu;
        let (mut row, mut wanted, mut lasts) = (0, Vec::new(), Vec::new());
        for segment in &*batch {
            let len = u32::try_from(segment.ids.len()).unwrap_or(u32::MAX);
            wanted.extend(segment.logits.clone().filter_map(|at| Some(row + u32::try_from(at).ok()?)));
            row += len;
            lasts.push(row - 1);
        }
        let rows = row as usize;
        let ids: Vec<_> = batch.iter().flat_map(|segment| segment.ids).copied().collect();
        let plan = self.body.plan(gpu, batch, sequences)?;
        self.layers(&List::new(gpu, &ids, self.vocabulary)?, &plan, rows)?;
        let (lasts, wanted) = (List::new(gpu, &lasts, rows)?, (List::new(gpu, &wanted, rows)?, wanted.len()));
        let targets = List::new(gpu, &targets(sequences), self.slots.count())?;
        let last = (self.last.view(), Some(&targets));
        gpu.copy_rows((self.x.view(), Some(&lasts)), last, [sequences.len(), self.d_model])?;
        gpu.copy_rows((self.x.view(), Some(&wanted.0)), (self.h.view(), None), [wanted.1, self.d_model])?;
        self.body.look_on(&plan, batch)?;
        Ok(wanted.1)
    }

    /// From ids to the residual stream behind the last layer, in `x`.
    fn layers(&self, ids: &List, plan: &B::Plan, rows: usize) -> Result<(), GpuError> {
        let gpu = &self.gpu;
        gpu.embed(ids, &self.table, self.x.view())?;
        let mut stream = Stream { rows, x: self.x.view(), added: None, h: self.h.view() };
        for index in 0..self.body.layers() {
            self.body.layer(gpu, index, plan, &stream)?;
            stream.added = Some(stream.h);
        }
        stream.added.map_or(Ok(()), |added| gpu.add_to(self.x.view(), added, rows * self.d_model))
    }

    /// Gives every sequence its slot and what else it needs. Slots that are read for others too are handed out, to be let
    /// go when the pass is under way.
    fn begin(&self, batch: &mut [Segment<'_, GpuState<B::Rest>>]) -> Result<(Vec<Sequence>, Held), GpuError> {
        let (mut sequences, mut shared, mut row) = (Vec::with_capacity(batch.len()), Vec::new(), 0);
        for segment in batch.iter_mut() {
            let (from, to, old) = self.advance(&mut segment.state.slot)?;
            shared.push(old);
            let len = i32::try_from(segment.ids.len()).unwrap_or(i32::MAX);
            sequences.push(Sequence { row, len, from, to, gain_decay: 1.0, gain_write: 1.0 });
            row += len;
        }
        self.body.grow(&self.gpu, batch)?;
        Ok((sequences, shared))
    }

    /// A step of one token each, as it is recorded; `None` if this is no such step.
    fn step(
        &self,
        batch: &[Segment<'_, GpuState<B::Rest>>],
        sequences: &[Sequence],
    ) -> Result<Option<Vec<Option<RowReading>>>, GpuError> {
        let plain =
            |segment: &Segment<'_, _>| segment.ids.len() == 1 && segment.asks.iter().all(|ask| ask.top <= TOP_MAX);
        if !batch.iter().all(plain) {
            return Ok(None);
        }
        let mut decode = lock(&self.decode);
        let Some(rows) = decode::rows(batch.len()) else { return Ok(None) };
        let Some(kind) = self.body.tell(decode.plan(), batch, sequences, rows)? else { return Ok(None) };
        let ids: Vec<_> = batch.iter().flat_map(|segment| segment.ids).copied().collect();
        let asks: Vec<_> = batch.iter().map(|segment| segment.asks.first().map(asked)).collect();
        if !decode.set(&ids, &targets(sequences), &asks, rows)? {
            return Ok(None);
        }
        decode.run(&self.gpu, (rows, kind), |decode| {
            self.layers(&decode.ids, &decode.plan, rows)?;
            let last = (self.last.view(), Some(&decode.targets));
            self.gpu.copy_rows((self.x.view(), None), last, [rows, self.d_model])?;
            for first in (0..rows).step_by(self.some) {
                self.judge(self.x.from(first * self.d_model), &decode.asks, first, self.some.min(rows - first))?;
            }
            Ok(())
        })?;
        let mut readings = vec![Reading::NONE; batch.len()];
        self.readings.read(&mut readings)?;
        let asked = readings.iter().zip(batch).filter_map(|(reading, segment)| Some((reading, segment.asks.first()?)));
        Ok(Some(asked.map(|(reading, ask)| told(reading, ask.top.min(self.vocabulary))).collect()))
    }

    fn note<T>(&self, outcome: Result<T, GpuError>) -> Option<T> {
        outcome.map_err(|error| *lock(&self.fault) = Some(format!("the GPU failed: {error}"))).ok()
    }
}

/// Slots to be let go when a pass is under way.
type Held = Vec<Option<Arc<Place>>>;

/// Where what comes after a pass lies.
fn targets(sequences: &[Sequence]) -> Vec<u32> {
    sequences.iter().filter_map(|sequence| u32::try_from(sequence.to).ok()).collect()
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

    fn forward(&self, batch: &mut [Segment<'_, Self::State>], room: &mut Room) {
        let rows = self.begin(batch).and_then(|(sequences, _held)| self.pass(batch, &sequences));
        self.note(rows.and_then(|rows| self.whole(self.h.view(), rows, &mut room.logits)));
    }

    fn next(&self, state: &Self::State, logits: &mut Vec<f32>) {
        self.note(self.whole(self.at(state), 1, logits));
    }

    fn read(&self, batch: &mut [Segment<'_, Self::State>], _: &mut Room) -> Vec<Option<RowReading>> {
        let read = |batch: &mut [Segment<'_, Self::State>]| {
            let (sequences, _held) = self.begin(batch)?;
            if let Some(readings) = self.step(batch, &sequences)? {
                return Ok(readings);
            }
            self.pass(batch, &sequences)?;
            let asks: Vec<_> = batch.iter().flat_map(|segment| &segment.asks).collect();
            self.answer(self.h.view(), &asks)
        };
        self.note(read(batch)).unwrap_or_default()
    }

    fn read_next(&self, state: &Self::State, asks: &[&RowAsk], _: &mut Room) -> Vec<Option<RowReading>> {
        asks.iter().map(|ask| self.note(self.answer(self.at(state), &[ask]))?.pop()?).collect()
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

    fn look(&self, state: &Self::State, steps: &Steps, gains: Option<&DeltaGains>) -> Option<SsmReading> {
        self.note(self.body.look(&self.gpu, state.slot(), steps, gains))?
    }

    fn place(&self) -> String {
        self.place.clone()
    }

    fn fault(&self) -> Option<String> {
        lock(&self.fault).take()
    }
}
