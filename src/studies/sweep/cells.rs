//! The numbered combinations of a sweep, and shards of them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::SweepError;
use super::file::SweepFile;
use crate::foundation::base::Digest;
use crate::simulation::persona::AdversaryKind;

/// One run of a sweep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// Its number, from 0.
    pub cell: usize,
    /// The persona config as named in the sweep's file.
    pub config: String,
    /// The digest of the config including the Δ policy.
    pub config_digest: Digest,
    /// The persona's model.
    pub persona_model: String,
    /// The model under test, or the adversary's model.
    pub interlocutor_model: String,
    /// The kind of adversary.
    pub adversary: AdversaryKind,
    /// The name of the Δ policy; absent for the config's own.
    pub delta: Option<String>,
    /// The seed of all random draws.
    pub seed: u64,
    /// Number of rollouts.
    pub rollouts: usize,
    /// Turns per rollout.
    pub turns: usize,
}

impl Cell {
    /// The name of its folder.
    pub fn folder(&self) -> String {
        format!("cell_{:04}", self.cell)
    }
}

/// A combination as indices into the sweep's lists.
pub(super) struct Combination {
    pub(super) config: usize,
    pub(super) persona: usize,
    pub(super) target: usize,
    pub(super) adversary: usize,
    pub(super) delta: usize,
    pub(super) seed: usize,
}

/// All combinations; the index of the last list varies fastest.
pub(super) fn combinations(file: &SweepFile) -> impl Iterator<Item = Combination> {
    let lengths = [
        file.configs.len(),
        file.persona_models.len(),
        file.targets.len(),
        file.adversaries.len(),
        file.deltas.len(),
        file.seeds.len(),
    ];
    let all = lengths.iter().fold(1usize, |product, length| product.saturating_mul(*length));
    let [configs, personas, targets, adversaries, deltas, seeds] = lengths;
    (0..all).map(move |number| {
        let mut rest = number;
        let mut index = |length: usize| {
            let index = rest % length.max(1);
            rest /= length.max(1);
            index
        };
        let [seed, delta, adversary, target, persona, config] =
            [seeds, deltas, adversaries, targets, personas, configs].map(&mut index);
        Combination { config, persona, target, adversary, delta, seed }
    })
}

/// Shard K of N: every N-th cell, starting with number K − 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    number: usize,
    of: usize,
}

impl Shard {
    /// All cells.
    pub const ALL: Self = Self { number: 1, of: 1 };

    /// Whether the shard contains cell number `cell`.
    pub const fn contains(self, cell: usize) -> bool {
        cell % self.of == self.number - 1
    }

    /// The name of the shard's folder of receipts, such as `2-of-8`.
    pub fn folder(self) -> String {
        format!("{}-of-{}", self.number, self.of)
    }
}

impl FromStr for Shard {
    type Err = SweepError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text.split_once('/').and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
        match parsed {
            Some((number, of)) if (1..=of).contains(&number) => Ok(Self { number, of }),
            _ => Err(SweepError::Shard { text: text.to_owned() }),
        }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_is_in_exactly_one_shard() {
        for of in 1..=7 {
            let shards: Vec<Shard> = (1..=of).map(|k| format!("{k}/{of}").parse().unwrap()).collect();
            for cell in 0..50 {
                assert_eq!(shards.iter().filter(|shard| shard.contains(cell)).count(), 1, "cell {cell} of {of} shards");
            }
        }
        for text in ["0/3", "4/3", "1/0", "1", "a/b", "-1/3", ""] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
        assert_eq!("2/3".parse::<Shard>().unwrap().to_string(), "2/3");
    }
}
