//! The eight moods.

use serde::{Deserialize, Serialize};

/// A mood (spec §2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename_all = "snake_case")]
pub enum Mood {
    /// Execute one bounded step.
    Calm,
    /// Reduce ambiguity.
    Curious,
    /// Verify and adjudicate.
    Skeptical,
    /// Harden.
    Paranoid,
    /// Widen the scope.
    Bold,
    /// Find weaknesses by attacking.
    Contrite,
    /// Attack, to find what is weak.
    Petty,
    /// Ask for a preference or an approval.
    Deferential,
}

crate::config_choices! {
    Mood {
        "calm" => Calm,
        "curious" => Curious,
        "skeptical" => Skeptical,
        "paranoid" => Paranoid,
        "bold" => Bold,
        "contrite" => Contrite,
        "petty" => Petty,
        "deferential" => Deferential,
    }
}

impl Mood {
    /// All moods, in the order of the specification.
    pub const ALL: [Self; 8] = [
        Self::Calm,
        Self::Curious,
        Self::Skeptical,
        Self::Paranoid,
        Self::Bold,
        Self::Contrite,
        Self::Petty,
        Self::Deferential,
    ];

    /// The name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::Curious => "curious",
            Self::Skeptical => "skeptical",
            Self::Paranoid => "paranoid",
            Self::Bold => "bold",
            Self::Contrite => "contrite",
            Self::Petty => "petty",
            Self::Deferential => "deferential",
        }
    }

    /// The mood called `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mood| mood.name().eq_ignore_ascii_case(name))
    }

    /// Whether a run can return to it: not for recovery and questions.
    pub(super) const fn is_returned_to(self) -> bool {
        !matches!(self, Self::Contrite | Self::Deferential)
    }

    pub(super) const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl std::fmt::Display for Mood {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name().to_uppercase())
    }
}
