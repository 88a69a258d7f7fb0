//! Modes (Mind Mem 1.0.3, §4): what may be done in each, and what leads from one to another. What is not a mode may do
//! nothing but look.

use std::fmt;

/// How far the memory may go by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Looks and reports.
    DetectOnly,
    /// Also stages proposals, and applies those that a person chooses.
    Propose,
    /// Also applies low-risk proposals when told to, and lets decisions be superseded.
    Enforce,
}

/// Something that needs a mode. Scanning and detecting need none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// Staging proposals.
    Propose,
    /// Applying one that a person chose.
    Apply,
    /// Applying low-risk ones without a choice.
    AutoApply,
    /// Superseding decisions.
    Supersede,
}

/// That a mode forbids something, or cannot be reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModeError {
    /// The mode is too low.
    #[error("mode {mode} does not allow this: it needs {needed}; see `loom memory mode`")]
    Forbidden {
        /// The mode as it stands in the state.
        mode: String,
        /// The lowest mode that allows it.
        needed: Mode,
    },
    /// There is no such step.
    #[error("no step leads from {from} to {to}: go one step up at a time")]
    NoStep {
        /// Where it is.
        from: Mode,
        /// Where it should go.
        to: Mode,
    },
    /// The gate is shut.
    #[error("{to} is not open yet: {needs}")]
    Shut {
        /// Where it should go.
        to: Mode,
        /// What would open it.
        needs: &'static str,
    },
    /// The state names no mode.
    #[error("`{0}` is no mode: set one with `loom memory mode detect_only`")]
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
    /// [`ModeError::Unknown`]: what is unknown allows nothing.
    pub fn parse(name: &str) -> Result<Self, ModeError> {
        Self::ALL.into_iter().find(|mode| mode.name() == name).ok_or_else(|| ModeError::Unknown(name.to_owned()))
    }

    /// Whether this mode allows `capability`.
    pub fn allows(self, capability: Capability) -> bool {
        self >= capability.needs()
    }

    /// Goes to `to`, if the step exists and its gate is open. Down is always open.
    ///
    /// # Errors
    /// Why not.
    pub fn step(self, to: Self, gates: Gates) -> Result<Self, ModeError> {
        match (self, to) {
            (from, to) if to <= from => Ok(to),
            (Self::DetectOnly, Self::Propose) if gates.week_clean => Ok(to),
            (Self::DetectOnly, Self::Propose) => {
                Err(ModeError::Shut { to, needs: "scans must find no critical contradiction for seven days" })
            }
            (Self::Propose, Self::Enforce) if gates.allow_enforce => Ok(to),
            (Self::Propose, Self::Enforce) => {
                Err(ModeError::Shut { to, needs: "write `\"allow_enforce\": true` into mind-mem.json" })
            }
            (from, to) => Err(ModeError::NoStep { from, to }),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Capability {
    /// The lowest mode that allows it.
    pub const fn needs(self) -> Mode {
        match self {
            Self::Propose | Self::Apply => Mode::Propose,
            Self::AutoApply | Self::Supersede => Mode::Enforce,
        }
    }
}

/// What must be so before a step up.
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
            [Capability::Propose, Capability::Apply, Capability::AutoApply, Capability::Supersede]
                .map(|c| mode.allows(c))
        };
        assert_eq!(allowed(Mode::DetectOnly), [false; 4]);
        assert_eq!(allowed(Mode::Propose), [true, true, false, false]);
        assert_eq!(allowed(Mode::Enforce), [true; 4]);
        assert!(Mode::parse("banana").is_err());
    }
}
