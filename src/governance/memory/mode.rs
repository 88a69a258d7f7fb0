//! Modes (Mind Mem 1.0.3, §4): what each mode allows, and the transitions between them. An unknown mode allows reading
//! only.

use std::fmt;

/// The governance mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Scans and reports.
    DetectOnly,
    /// Also stages proposals, and applies those that a person approves.
    Propose,
    /// Also applies low-risk proposals on request.
    Enforce,
}

/// Something that needs a mode. Scanning needs none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryCapability {
    /// Staging proposals.
    Propose,
    /// Applying an approved proposal.
    Apply,
    /// Applying all low-risk proposals.
    AutoApply,
}

/// A mode forbids an action or cannot be entered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModeError {
    /// The present mode does not allow the action.
    #[error("mode {mode} does not allow this: it needs mode {needed}; see `loom memory mode`")]
    WriteForbidden {
        /// The present mode, as written in the state file.
        mode: String,
        /// The lowest mode that allows it.
        needed: Mode,
    },
    /// There is no such transition.
    #[error("there is no transition from {from} to {to}: change the mode one step at a time")]
    NoTransition {
        /// The present mode.
        from: Mode,
        /// The requested mode.
        to: Mode,
    },
    /// The condition for the transition is not met.
    #[error("mode {to} is not available yet: {needs}")]
    Closed {
        /// The requested mode.
        to: Mode,
        /// The unmet condition.
        needs: &'static str,
    },
    /// The state file contains no valid mode.
    #[error("`{0}` is not a mode: set one with `loom memory mode detect_only`")]
    Unknown(String),
}

impl Mode {
    /// All modes, lowest first.
    pub const ALL: [Self; 3] = [Self::DetectOnly, Self::Propose, Self::Enforce];

    /// Its name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DetectOnly => "detect_only",
            Self::Propose => "propose",
            Self::Enforce => "enforce",
        }
    }

    /// The mode called `name`.
    ///
    /// # Errors
    /// [`ModeError::Unknown`]: an unknown mode allows nothing.
    pub fn parse(name: &str) -> Result<Self, ModeError> {
        Self::ALL.into_iter().find(|mode| mode.name() == name).ok_or_else(|| ModeError::Unknown(name.to_owned()))
    }

    /// Whether this mode allows `capability`.
    pub fn allows(self, capability: MemoryCapability) -> bool {
        self >= capability.needs()
    }

    /// The transition to `to`, if it exists and its condition is met. Transitions downwards are always allowed.
    ///
    /// # Errors
    /// Why the transition is not possible.
    pub fn step(self, to: Self, gates: Gates) -> Result<Self, ModeError> {
        match (self, to) {
            (from, to) if to <= from => Ok(to),
            (Self::DetectOnly, Self::Propose) if gates.week_clean => Ok(to),
            (Self::DetectOnly, Self::Propose) => Err(ModeError::Closed {
                to,
                needs: "seven days of scans without a critical contradiction are required",
            }),
            (Self::Propose, Self::Enforce) if gates.allow_enforce => Ok(to),
            (Self::Propose, Self::Enforce) => {
                Err(ModeError::Closed { to, needs: "write `\"allow_enforce\": true` into mind-mem.json" })
            }
            (from, to) => Err(ModeError::NoTransition { from, to }),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl MemoryCapability {
    /// The lowest mode that allows it.
    pub const fn needs(self) -> Mode {
        match self {
            Self::Propose | Self::Apply => Mode::Propose,
            Self::AutoApply => Mode::Enforce,
        }
    }
}

/// The conditions for a transition upwards.
#[derive(Debug, Clone, Copy, Default)]
pub struct Gates {
    /// `flip_gate_week1_clean` of the state.
    pub week_clean: bool,
    /// `allow_enforce` of the config.
    pub allow_enforce: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_of_section_4_and_no_others() {
        use Mode::{DetectOnly, Enforce, Propose};
        let check = |from: Mode, to, week_clean, allow_enforce, open: bool| {
            assert_eq!(from.step(to, Gates { week_clean, allow_enforce }).is_ok(), open, "{from} → {to}");
        };
        check(DetectOnly, Propose, false, true, false);
        check(DetectOnly, Propose, true, false, true);
        check(DetectOnly, Enforce, true, true, false);
        check(Propose, Enforce, true, false, false);
        check(Propose, Enforce, false, true, true);
        check(Enforce, Propose, false, false, true);
        check(Enforce, DetectOnly, false, false, true);
        check(Propose, DetectOnly, false, false, true);
    }

    #[test]
    fn the_capabilities_of_section_4() {
        let allowed = |mode: Mode| {
            [MemoryCapability::Propose, MemoryCapability::Apply, MemoryCapability::AutoApply].map(|c| mode.allows(c))
        };
        assert_eq!(allowed(Mode::DetectOnly), [false; 3]);
        assert_eq!(allowed(Mode::Propose), [true, true, false]);
        assert_eq!(allowed(Mode::Enforce), [true; 3]);
        assert!(Mode::parse("banana").is_err());
    }
}
