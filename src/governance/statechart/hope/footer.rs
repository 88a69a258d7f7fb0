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

/// What was found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FooterFinding {
    /// What was asked holds.
    Holds,
    /// It does not hold.
    Fails,
    /// It cannot be told, or was not investigated yet.
    CannotTell,
}

/// The verdict on a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Verdict {
    /// Use it: verified and easily undone.
    Ship,
    /// Use it with monitoring: hard to undo, or only reviewed.
    Monitor,
    /// Do not use it yet: nothing can be told, there is no plan, or it is not verified.
    Research,
}

/// The contents of the footer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footer {
    /// How it was verified.
    pub verified: Verification,
    /// What was found out.
    pub finding: FooterFinding,
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

impl Footer {
    /// The verdict on the response.
    pub fn verdict(&self) -> Verdict {
        if self.finding == FooterFinding::CannotTell || !self.planned {
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
        let finding = match self.finding {
            FooterFinding::Holds => "holds",
            FooterFinding::Fails => "does not hold",
            FooterFinding::CannotTell => "cannot tell",
        };
        let Self { points, alternative, risk, .. } = self;
        write!(f, "{verdict} | Finding: {finding} | Verified: {verified} | Reversible {reversible} | {points} pt")?;
        write!(f, " | ↳Alt: {alternative} | ↳Risk: {risk}")
    }
}
