//! What is asked of one row of logits, and what is read of it. Sequences ask before the row is there, so that an
//! architecture can answer where the row lies: on the CPU here, on a GPU without the row ever leaving it.

use loom_kernels::{SampleParams, SampleScratch, penalise, read_token, sample};

use crate::foundation::chat::{Basis, TokenId, TokenLogprob};

/// What is asked of one row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RowAsk {
    pub(crate) entry: Entry,
    /// How many of the likeliest entries are reported.
    pub(crate) top: usize,
}

/// Which entry the reading is of.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Entry {
    Given(TokenId),
    Drawn(Draw),
}

/// How an entry is drawn. None of it touches what is read of the entry.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Draw {
    pub(crate) params: SampleParams,
    /// 1 is off.
    pub(crate) penalty: f32,
    /// What the penalty falls on; empty where it is off.
    pub(crate) recent: Vec<TokenId>,
    /// [0, 1)
    pub(crate) uniform: f64,
}

/// What the model thought of an entry: log-softmax of its own logits, whatever was drawn from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RowReading {
    pub(crate) id: TokenId,
    /// Nats.
    pub(crate) logprob: f32,
    /// Of the row, nats.
    pub(crate) entropy: f32,
    /// How many entries are strictly greater.
    pub(crate) rank: u32,
    pub(crate) top: Vec<(TokenId, f32)>,
}

/// Buffers of a pass, reused: what the layers work in and rows of logits where they come to the CPU, and what reading those
/// needs.
#[derive(Default)]
pub(crate) struct Room {
    pub(crate) work: Work,
    pub(crate) logits: Vec<f32>,
    pub(crate) scratch: Scratch,
}

/// What the layers of a pass work in. A large one would come from the system anew for every pass.
#[derive(Default)]
pub(crate) struct Work(Vec<f32>);

impl Work {
    /// One buffer of each width, `[rows, width]`, with anything in it.
    pub(crate) fn parts<const N: usize>(&mut self, rows: usize, widths: [usize; N]) -> [&mut [f32]; N] {
        let len = rows * widths.iter().sum::<usize>();
        if self.0.len() < len {
            self.0.resize(len, 0.0);
        }
        let mut left = self.0.as_mut_slice();
        widths.map(|width| left.split_off_mut(..rows * width).unwrap_or_default())
    }
}

/// A penalised row, and the sampler's own buffers.
#[derive(Default)]
pub(crate) struct Scratch {
    row: Vec<f32>,
    draw: SampleScratch,
}

impl RowAsk {
    /// The answer out of `logits`; `None` if they are no distribution.
    pub(crate) fn read(&self, logits: &[f32], scratch: &mut Scratch) -> Option<RowReading> {
        let id = match &self.entry {
            Entry::Given(id) => *id,
            Entry::Drawn(draw) => draw.from(logits, scratch)?,
        };
        let reading = read_token(logits, id, self.top).filter(|reading| reading.logprob.is_finite())?;
        Some(RowReading {
            id,
            logprob: reading.logprob,
            entropy: reading.entropy,
            rank: reading.rank,
            top: reading.top,
        })
    }
}

impl Draw {
    fn from(&self, logits: &[f32], scratch: &mut Scratch) -> Option<TokenId> {
        let Scratch { row, draw } = scratch;
        #[expect(clippy::float_cmp, reason = "exactly 1 is off")]
        if self.penalty == 1.0 {
            return sample(logits, &self.params, self.uniform, draw);
        }
        row.clear();
        row.extend_from_slice(logits);
        penalise(row, &self.recent, self.penalty);
        sample(row, &self.params, self.uniform, draw)
    }
}

impl RowReading {
    /// The token, whose text is `text`.
    pub(super) fn into_token(self, text: String) -> TokenLogprob {
        TokenLogprob {
            id: Some(self.id),
            text,
            logprob: Some(self.logprob),
            basis: Basis::Raw,
            entropy: Some(self.entropy),
            rank: Some(self.rank),
            top: self.top,
            top_texts: Vec::new(),
        }
    }
}
