//! Sampling of a reply's tokens: validated settings and the stream of random numbers.

use loom_kernels::SampleParams;

use super::logit_query::Draw;
use crate::foundation::base::RngStream;
use crate::foundation::chat::{Sampling, TokenId};

/// Samples the tokens of one reply.
pub(super) struct Sampler {
    params: SampleParams,
    penalty: f32,
    window: usize,
    stream: RngStream,
}

impl Sampler {
    /// # Errors
    /// A message about an invalid setting in `sampling`.
    pub(super) fn new(sampling: &Sampling, stream: RngStream) -> Result<Self, String> {
        let &Sampling { temperature, top_p, top_k, min_p, repetition_penalty, .. } = sampling;
        let must = |holds: bool, why: &str| if holds { Ok(()) } else { Err(why.to_owned()) };
        must(temperature.is_finite() && temperature >= 0.0, "`temperature` must be 0 (greedy) or a positive number")?;
        must(top_p > 0.0 && top_p <= 1.0, "`top_p` must be above 0 and at most 1")?;
        must(top_k != Some(0), "`top_k` must be at least 1; leave it out to keep all tokens")?;
        must((0.0..=1.0).contains(&min_p), "`min_p` must be in 0..=1")?;
        must(
            repetition_penalty.is_finite() && repetition_penalty > 0.0,
            "`repetition_penalty` must be positive; 1 is off",
        )?;
        must(sampling.max_tokens > 0, "`max_tokens` must be at least 1")?;
        must(
            sampling.stop.iter().all(|stop| !stop.is_empty()),
            "an empty stop text would end every reply immediately",
        )?;
        Ok(Self {
            params: SampleParams { temperature, top_k, top_p, min_p },
            penalty: repetition_penalty,
            window: sampling.repetition_window,
            stream,
        })
    }

    /// Sampling parameters for the token at `position` of the reply, after `history`.
    pub(super) fn draw(&self, history: &[TokenId], position: u64) -> Draw {
        #[expect(clippy::float_cmp, reason = "exactly 1 is off")]
        let window = if self.penalty == 1.0 { 0 } else { self.window };
        let (_, recent) = history.split_at(history.len().saturating_sub(window));
        Draw {
            params: self.params,
            penalty: self.penalty,
            recent: recent.to_vec(),
            uniform: self.stream.uniform(position),
        }
    }
}
