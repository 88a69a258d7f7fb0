//! Which mood may do what to which register (spec §5).

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::name::Mood;

/// A register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Register {
    /// What is asserted.
    Assert,
    /// What is guessed.
    Hypothesize,
    /// What is wanted.
    Drive,
    /// What is taken for granted.
    Believe,
}

/// What a mood may do to a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Admission {
    /// Add, resolve and take away.
    Decides,
    /// Add; this is the mood for it.
    Preferred,
    /// Add.
    Proposes,
    /// Take away or narrow only.
    Tightens,
    /// Nothing.
    Nothing,
}

/// What `mood` may do to `register`. Wherever something may be added, the types and the verifiers still have their say.
pub const fn admission(register: Register, mood: Mood) -> Admission {
    use Admission::{Decides, Nothing, Preferred, Proposes, Tightens};
    use Mood::{Bold, Calm, Curious, Deferential, Paranoid, Skeptical};
    match register {
        // CALM and BOLD bring candidates as hypotheses; their assertion is SKEPTICAL's.
        Register::Assert => match mood {
            Skeptical => Decides,
            Paranoid => Tightens,
            _ => Nothing,
        },
        Register::Hypothesize => match mood {
            Skeptical => Decides,
            Curious => Preferred,
            _ => Proposes,
        },
        Register::Drive => match mood {
            Deferential => Preferred,
            Calm | Curious | Bold => Proposes,
            _ => Nothing,
        },
        Register::Believe => match mood {
            Bold => Decides,
            Paranoid => Preferred,
            _ => Tightens,
        },
    }
}

/// The matrix as Markdown, for the docs.
pub fn matrix_table() -> String {
    let registers = [Register::Assert, Register::Hypothesize, Register::Drive, Register::Believe];
    let mut text = String::from("| | ASSERT | HYPOTHESIZE | DRIVE | BELIEVE |\n|---|---|---|---|---|\n");
    for mood in Mood::ALL {
        let cells = registers.map(|register| match admission(register, mood) {
            Admission::Decides => "decides",
            Admission::Preferred => "preferred",
            Admission::Proposes => "proposes",
            Admission::Tightens => "tightens",
            Admission::Nothing => "–",
        });
        // Writing into a string cannot fail.
        let _ = writeln!(text, "| {mood} | {} |", cells.join(" | "));
    }
    text
}
