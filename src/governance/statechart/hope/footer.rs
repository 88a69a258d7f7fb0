//! The line under every response: its verdict and the reasons.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How something was verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verification {
    /// By running it.
    ExecutionOutput,
    /// By observation.
    Observation,
    /// By measurement.
    Measurement,
    /// By review, which is weak evidence.
    Review,
    /// Not verified, which blocks.
    Assumption,
}

/// How easily it is undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reversibility {
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

/// A percentage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Percent(u8);

/// A percentage above 100.
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

/// The verdict on a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Verdict {
    /// Use it: verified and easily undone.
    Ship,
    /// Use it with monitoring: hard to undo, or only reviewed.
    Monitor,
    /// Do not use it yet: low confidence, no plan, or not verified.
    Research,
}

/// The contents of the footer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footer {
    /// How it was verified.
    pub verified: Verification,
    /// The confidence.
    pub confidence: Percent,
    /// How easily it is undone.
    pub reversible: Reversibility,
    /// Its size in points.
    pub points: u32,
    /// There is a plan.
    pub planned: bool,
    /// The rejected alternative.
    pub alternative: String,
    /// The largest risk.
    pub risk: String,
}

/// Lowest confidence for use.
const CONFIDENCE_MIN: Percent = Percent(70);

impl Footer {
    /// The verdict on the response.
    pub fn verdict(&self) -> Verdict {
        if self.confidence < CONFIDENCE_MIN || !self.planned {
            return Verdict::Research;
        }
        match (self.verified, self.reversible) {
            (Verification::Assumption, _) => Verdict::Research,
            (Verification::Review, _) | (_, Reversibility::Hardly) => Verdict::Monitor,
            (Verification::ExecutionOutput | Verification::Observation | Verification::Measurement, _) => Verdict::Ship,
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
            Verification::ExecutionOutput => "execution output",
            Verification::Observation => "observation",
            Verification::Measurement => "measurement",
            Verification::Review => "review",
            Verification::Assumption => "assumption",
        };
        let reversible = match self.reversible {
            Reversibility::InOneMinute => "2A",
            Reversibility::InFiveMinutes => "2B",
            Reversibility::Hardly => "1",
        };
        let Self { confidence, points, alternative, risk, .. } = self;
        let confidence = confidence.0;
        write!(f, "{verdict} | Verified: {verified} | ~{confidence}% | Reversible {reversible} | {points} pt")?;
        write!(f, " | ↳Alt: {alternative} | ↳Risk: {risk}")
    }
}
