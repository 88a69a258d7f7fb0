//! Named random streams. Every random draw is addressed by a stream's name and a position, so that a run gives the same
//! draws when it is repeated, resumed or parallelised.

/// A counter-based random stream: draws are addressed by position, and drawing changes no state.
///
/// ```
/// use loom_agent::foundation::base::RngStream;
/// let reply = RngStream::root(42).child("rollout", 3).child("turn", 7).child("persona", 0);
/// assert_eq!(reply.uniform(0), reply.uniform(0));
/// assert_ne!(reply.uniform(0), reply.uniform(1));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RngStream {
    key: [u64; 2],
}

impl RngStream {
    /// The root stream of a run's seed.
    pub fn root(seed: u64) -> Self {
        Self::keyed(blake3::Hasher::new_derive_key("loom random stream v1").update(&seed.to_le_bytes()))
    }

    /// The child stream `name` number `index`.
    #[must_use]
    pub fn child(&self, name: &str, index: u64) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("loom random child v1");
        for word in self.key {
            hasher.update(&word.to_le_bytes());
        }
        hasher.update(&index.to_le_bytes());
        Self::keyed(hasher.update(name.as_bytes()))
    }

    /// 64 uniformly distributed bits at `position`.
    pub fn bits(&self, position: u64) -> u64 {
        let [k0, k1] = self.key;
        mix(mix(k0 ^ position.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_add(k1))
    }

    /// A number in `[0, 1)` at `position`, with 53 random bits.
    pub fn uniform(&self, position: u64) -> f64 {
        (self.bits(position) >> 11) as f64 * (-53f64).exp2()
    }

    /// An index in `0..len` at `position`; 0 when `len` is 0. Bias is below 2⁻⁵³·`len`.
    pub fn index(&self, position: u64, len: usize) -> usize {
        let scaled = self.uniform(position) * len as f64;
        (scaled as usize).min(len.saturating_sub(1))
    }

    fn keyed(hasher: &blake3::Hasher) -> Self {
        let mut reader = hasher.finalize_xof();
        let mut word = || {
            let mut bytes = [0; 8];
            reader.fill(&mut bytes);
            u64::from_le_bytes(bytes)
        };
        Self { key: [word(), word()] }
    }
}

/// The finaliser of `SplitMix64` (Steele, Lea and Flood, OOPSLA 2014, variant 13 by Stafford).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_named_by_every_step_of_its_path() {
        let root = RngStream::root(1);
        let draws = [
            root.bits(0),
            root.bits(1),
            RngStream::root(2).bits(0),
            root.child("turn", 0).bits(0),
            root.child("turn", 1).bits(0),
            root.child("role", 0).bits(0),
            root.child("turn", 0).child("turn", 0).bits(0),
        ];
        let distinct: std::collections::BTreeSet<_> = draws.iter().collect();
        assert_eq!(distinct.len(), draws.len());
    }

    #[test]
    fn draws_fill_the_unit_interval_evenly() {
        let stream = RngStream::root(7);
        let n = 20_000;
        let mut bins = [0u32; 20];
        for position in 0..n {
            let x = stream.uniform(position);
            assert!((0.0..1.0).contains(&x));
            bins[(x * 20.0) as usize] += 1;
        }
        // Chi-square with 19 degrees of freedom: 43.8 is its 99.9th percentile.
        let expected = n as f64 / 20.0;
        let chi2: f64 = bins.iter().map(|&b| (f64::from(b) - expected).powi(2) / expected).sum();
        assert!(chi2 < 43.8, "chi-square {chi2}");
    }

    #[test]
    fn an_index_stays_inside() {
        let stream = RngStream::root(3);
        assert!((0..1000).all(|position| stream.index(position, 7) < 7));
        assert_eq!(stream.index(0, 0), 0);
    }
}
