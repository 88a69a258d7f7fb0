//! Queries about a row of logits and their answers. A sequence submits its query before the row exists, so that an
//! architecture can answer it where the row is: on the CPU here, on a GPU without copying the row.

use loom_kernels::{SampleParams, SampleScratch, penalise, read_token, sample};

use crate::foundation::chat::{Basis, TokenId, TokenLogprob};

/// A query about one row of logits.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LogitQuery {
    pub(crate) token: QueriedToken,
    /// Number of most likely tokens to report.
    pub(crate) top: usize,
}

/// The token that the query is about.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum QueriedToken {
    Given(TokenId),
    Drawn(Draw),
}

/// How a token is sampled. None of this affects the reported statistics.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Draw {
    pub(crate) params: SampleParams,
    /// Repetition penalty; 1 is off.
    pub(crate) penalty: f32,
    /// Tokens that are penalised; empty if the penalty is off.
    pub(crate) recent: Vec<TokenId>,
    /// Uniform draw in [0, 1).
    pub(crate) uniform: f64,
}

/// Statistics of a token: log-softmax of the model's unmodified logits, whatever distribution was sampled from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TokenStats {
    pub(crate) id: TokenId,
    /// Nats.
    pub(crate) logprob: f32,
    /// Entropy of the row, nats.
    pub(crate) entropy: f32,
    /// Number of strictly greater logits.
    pub(crate) rank: u32,
    pub(crate) top: Vec<(TokenId, f32)>,
}

/// Reusable buffers of a pass: work space of the layers, rows of logits on the CPU, and what queries need.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) work: WorkBuffer,
    pub(crate) logits: Vec<f32>,
    pub(crate) row: RowScratch,
}

/// Work space of the layers, reused because allocating a large buffer per pass is slow.
#[derive(Default)]
pub(crate) struct WorkBuffer(Vec<f32>);

impl WorkBuffer {
    /// One buffer of each width, `[rows, width]`, with arbitrary content.
    pub(crate) fn parts<const N: usize>(&mut self, rows: usize, widths: [usize; N]) -> [&mut [f32]; N] {
        let len = rows * widths.iter().sum::<usize>();
        if self.0.len() < len {
            self.0.resize(len, 0.0);
        }
        let mut left = self.0.as_mut_slice();
        widths.map(|width| left.split_off_mut(..rows * width).unwrap_or_default())
    }
}

/// A penalised row and the buffers of the sampler.
#[derive(Default)]
pub(crate) struct RowScratch {
    row: Vec<f32>,
    draw: SampleScratch,
}

impl LogitQuery {
    /// The answer computed from `logits`; `None` if they are not a distribution.
    pub(crate) fn read(&self, logits: &[f32], scratch: &mut RowScratch) -> Option<TokenStats> {
        let id = match &self.token {
            QueriedToken::Given(id) => *id,
            QueriedToken::Drawn(draw) => draw.sample_from(logits, scratch)?,
        };
        let reading = read_token(logits, id, self.top).filter(|reading| reading.logprob.is_finite())?;
        Some(TokenStats {
            id,
            logprob: reading.logprob,
            entropy: reading.entropy,
            rank: reading.rank,
            top: reading.top,
        })
    }
}

impl Draw {
    fn sample_from(&self, logits: &[f32], scratch: &mut RowScratch) -> Option<TokenId> {
        let RowScratch { row, draw } = scratch;
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

impl TokenStats {
    /// A token with text `text`.
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
