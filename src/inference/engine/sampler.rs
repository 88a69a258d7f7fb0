//! From a row of logits to a token: read first, raw and untempered; then draw.

use loom_kernels::{SampleParams, penalise, read_token, sample};

use crate::foundation::base::Stream;
use crate::foundation::chat::{Basis, Sampling, TokenId, TokenLogprob};

/// Draws the tokens of one reply.
pub(super) struct Sampler {
    params: SampleParams,
    penalty: f32,
    window: usize,
    stream: Stream,
    /// The penalised row, and the kernel's own buffer; reused.
    row: Vec<f32>,
    scratch: Vec<f32>,
}

impl Sampler {
    /// # Errors
    /// What in `sampling` makes no sense, in words.
    pub(super) fn new(sampling: &Sampling, stream: Stream) -> Result<Self, String> {
        let &Sampling { temperature, top_p, top_k, min_p, repetition_penalty, .. } = sampling;
        let must = |holds: bool, why: &str| if holds { Ok(()) } else { Err(why.to_owned()) };
        must(temperature.is_finite() && temperature >= 0.0, "`temperature` must be 0 (greedy) or a positive number")?;
        must(top_p > 0.0 && top_p <= 1.0, "`top_p` must lie above 0 and at most at 1")?;
        must(top_k != Some(0), "`top_k` must be at least 1; leave it out to keep all tokens")?;
        must((0.0..=1.0).contains(&min_p), "`min_p` must lie in 0..=1")?;
        must(
            repetition_penalty.is_finite() && repetition_penalty > 0.0,
            "`repetition_penalty` must be positive; 1 is off",
        )?;
        must(sampling.max_tokens > 0, "`max_tokens` must be at least 1")?;
        must(sampling.stop.iter().all(|stop| !stop.is_empty()), "an empty stop text would end every reply at once")?;
        Ok(Self {
            params: SampleParams { temperature, top_k, top_p, min_p },
            penalty: repetition_penalty,
            window: sampling.repetition_window,
            stream,
            row: Vec::new(),
            scratch: Vec::new(),
        })
    }

    /// The token at `position` of the reply, after `history`; `None` if the row is no distribution.
    pub(super) fn draw(&mut self, logits: &[f32], history: &[TokenId], position: u64) -> Option<TokenId> {
        let uniform = self.stream.uniform(position);
        #[expect(clippy::float_cmp, reason = "exactly 1 is off")]
        if self.penalty == 1.0 {
            return sample(logits, &self.params, uniform, &mut self.scratch);
        }
        self.row.clear();
        self.row.extend_from_slice(logits);
        let (_, recent) = history.split_at(history.len().saturating_sub(self.window));
        penalise(&mut self.row, recent, self.penalty);
        sample(&self.row, &self.params, uniform, &mut self.scratch)
    }
}

/// What the model thought of `id`: log-softmax of its own logits, whatever was drawn from. `None` if the row is no
/// distribution.
pub(super) fn read(logits: &[f32], id: TokenId, text: String, top: usize) -> Option<TokenLogprob> {
    let reading = read_token(logits, id, top).filter(|reading| reading.logprob.is_finite())?;
    Some(TokenLogprob {
        id: Some(id),
        text,
        logprob: Some(reading.logprob),
        basis: Basis::Raw,
        entropy: Some(reading.entropy),
        rank: Some(reading.rank),
        top: reading.top,
        top_texts: Vec::new(),
    })
}
