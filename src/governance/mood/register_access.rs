//! Which mood may change which register (specification, §5).

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::name::Mood;

/// A register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Register {
    /// Assertions.
    Assert,
    /// Hypotheses.
    Hypothesize,
    /// Drives (goals).
    Drive,
    /// Beliefs.
    Believe,
}

/// The access of a mood to a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RegisterAccess {
    /// Add, resolve and remove.
    Decides,
    /// Add; the preferred mood for it.
    Preferred,
    /// Add.
    Proposes,
    /// Remove or narrow only.
    Tightens,
    /// None.
    Nothing,
}

/// The access of `mood` to `register`. Additions are also subject to the types and the verifiers.
pub const fn register_access(register: Register, mood: Mood) -> RegisterAccess {
    use Mood::{Bold, Calm, Curious, Deferential, Paranoid, Skeptical};
    use RegisterAccess::{Decides, Nothing, Preferred, Proposes, Tightens};
    match register {
        // CALM and BOLD add hypotheses; SKEPTICAL asserts them.
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

/// The access table as Markdown, for the docs.
pub fn matrix_table() -> String {
    let registers = [Register::Assert, Register::Hypothesize, Register::Drive, Register::Believe];
    let mut text = String::from("| | ASSERT | HYPOTHESIZE | DRIVE | BELIEVE |\n|---|---|---|---|---|\n");
    for mood in Mood::ALL {
        let cells = registers.map(|register| match register_access(register, mood) {
            RegisterAccess::Decides => "decides",
            RegisterAccess::Preferred => "preferred",
            RegisterAccess::Proposes => "proposes",
            RegisterAccess::Tightens => "tightens",
            RegisterAccess::Nothing => "–",
        });
        // Writing into a string cannot fail.
        let _ = writeln!(text, "| {mood} | {} |", cells.join(" | "));
    }
    text
}
