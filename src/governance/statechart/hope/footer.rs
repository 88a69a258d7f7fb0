//! The line under every response: what may be done with it, and why.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How something was verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verified {
    /// It was run, and this came out.
    ExecutionOutput,
    /// It was seen.
    Observation,
    /// It was measured.
    Measurement,
    /// It was read again, which is weak.
    Review,
    /// It was not verified, which blocks.
    Assumption,
}

/// How easily it is undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reversible {
    /// Within a minute.
    #[serde(rename = "2A")]
    InOneMinute,
    /// Within five minutes.
    #[serde(rename = "2B")]
    InFiveMinutes,
    /// Hardly.
    #[serde(rename = "1")]
    Hardly,
}

/// A share of a hundred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Percent(u8);

/// A share above a hundred.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a share goes from 0 to 100 %, not {0}")]
pub struct PercentError(u8);

impl TryFrom<u8> for Percent {
    type Error = PercentError;

    fn try_from(share: u8) -> Result<Self, PercentError> {
        if share <= 100 { Ok(Self(share)) } else { Err(PercentError(share)) }
    }
}

impl From<Percent> for u8 {
    fn from(percent: Percent) -> Self {
        percent.0
    }
}

/// What may be done with a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Verdict {
    /// Use it: verified, and easily undone.
    Ship,
    /// Use it and watch: hard to undo, or only reviewed.
    Monitor,
    /// Do not use it yet: too unsure, without a plan, or resting on an assumption.
    Research,
}

/// What the footer is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footer {
    /// How it was verified.
    pub verified: Verified,
    /// How sure the program is.
    pub confidence: Percent,
    /// How easily it is undone.
    pub reversible: Reversible,
    /// Its size in points.
    pub points: u32,
    /// There is a plan.
    pub planned: bool,
    /// The way not taken.
    pub alternative: String,
    /// What could go wrong most of all.
    pub risk: String,
}

/// Below this, a response is not used.
const CONFIDENCE_MIN: Percent = Percent(70);

impl Footer {
    /// What may be done with the response.
    pub fn verdict(&self) -> Verdict {
        if self.confidence < CONFIDENCE_MIN || !self.planned {
            return Verdict::Research;
        }
        match (self.verified, self.reversible) {
            (Verified::Assumption, _) => Verdict::Research,
            (Verified::Review, _) | (_, Reversible::Hardly) => Verdict::Monitor,
            (Verified::ExecutionOutput | Verified::Observation | Verified::Measurement, _) => Verdict::Ship,
        }
    }
}

impl fmt::Display for Footer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict() {
            Verdict::Ship => "🟢 SHIP",
            Verdict::Monitor => "🟡 MONITOR",
            Verdict::Research => "🔴 RESEARCH",
        };
        let verified = match self.verified {
            Verified::ExecutionOutput => "execution output",
            Verified::Observation => "observation",
            Verified::Measurement => "measurement",
            Verified::Review => "review",
            Verified::Assumption => "assumption",
        };
        let reversible = match self.reversible {
            Reversible::InOneMinute => "2A",
            Reversible::InFiveMinutes => "2B",
            Reversible::Hardly => "1",
        };
        let Self { confidence, points, alternative, risk, .. } = self;
        let confidence = confidence.0;
        write!(f, "{verdict} | Verified: {verified} | ~{confidence}% | Reversible {reversible} | {points} pt")?;
        write!(f, " | ↳Alt: {alternative} | ↳Risk: {risk}")
    }
}
