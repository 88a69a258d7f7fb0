//! The state stored between sessions: everything learned from one user, as versioned JSON.

use serde::{Deserialize, Serialize};

use super::calibration::Calibration;
use super::corrections::Corrections;
use super::cost::ResourceUsage;
use super::spans::Baseline;

/// The version this program writes. It reads every older one.
const VERSION: u32 = 2;
/// Since this version a feature is a word's first six characters; before, it was five.
const SIX_CHARACTERS: u64 = 2;

/// A regulator's state between sessions. Caps and tool calls belong to a session and are not in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RegulatorState {
    version: u32,
    pub(super) user: String,
    #[serde(default)]
    pub(super) turns: u64,
    #[serde(default)]
    pub(super) spent: ResourceUsage,
    #[serde(default)]
    pub(super) recent_quality: Option<f64>,
    #[serde(default)]
    pub(super) correction_rate: f64,
    #[serde(default)]
    pub(super) level: Baseline,
    #[serde(default)]
    pub(super) corrections: Corrections,
    #[serde(default)]
    pub(super) calibrations: Vec<Calibration>,
}

/// A stored state that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// Written by a later version.
    #[error(
        "the regulator's state has version {found}, and this program reads up to {VERSION}: use the newer program, or start with another state file"
    )]
    Newer {
        /// Its version.
        found: u64,
    },
    /// Not a regulator state.
    #[error("this is no regulator state ({0}): name another state file, or remove this one to start afresh")]
    Damaged(String),
    /// It belongs to another user.
    #[error(
        "the regulator's state belongs to user `{found}`, not `{wanted}`: give each user a state file of their own"
    )]
    AnotherUser {
        /// The state's user.
        found: String,
        /// The expected user.
        wanted: String,
    },
}

/// The field that every version has; a state without it is version 0.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    version: u64,
}

impl RegulatorState {
    /// An empty state.
    pub(super) fn new(user: String) -> Self {
        Self {
            version: VERSION,
            user,
            turns: 0,
            spent: ResourceUsage::default(),
            recent_quality: None,
            correction_rate: 0.0,
            level: Baseline::default(),
            corrections: Corrections::default(),
            calibrations: Vec::new(),
        }
    }

    /// The user's id.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The state, if it belongs to `user`; a state without a user is assigned to `user`.
    ///
    /// # Errors
    /// [`StateError::AnotherUser`].
    pub fn claimed_by(mut self, user: &str) -> Result<Self, StateError> {
        if !self.user.is_empty() && self.user != user {
            return Err(StateError::AnotherUser { found: self.user, wanted: user.to_owned() });
        }
        user.clone_into(&mut self.user);
        Ok(self)
    }

    /// The state as JSON.
    ///
    /// # Errors
    /// [`StateError::Damaged`] if it contains a value that JSON cannot represent; a regulator's state never does.
    pub fn to_json(&self) -> Result<String, StateError> {
        serde_json::to_string(self).map_err(|error| StateError::Damaged(error.to_string()))
    }

    /// Reads a state of this version or an older one.
    ///
    /// # Errors
    /// See [`StateError`].
    pub fn from_json(json: &str) -> Result<Self, StateError> {
        let damaged = |error: serde_json::Error| StateError::Damaged(error.to_string());
        let head: Head = serde_json::from_str(json).map_err(damaged)?;
        if head.version > u64::from(VERSION) {
            return Err(StateError::Newer { found: head.version });
        }
        let mut value: serde_json::Value = serde_json::from_str(json).map_err(damaged)?;
        if let Some(fields) = value.as_object_mut() {
            fields.insert("version".to_owned(), VERSION.into());
        }
        let mut state: Self = serde_json::from_value(value).map_err(damaged)?;
        if head.version < SIX_CHARACTERS {
            state.corrections.rebuild_features();
        }
        let share = |value: f64| (0.0..=1.0).contains(&value);
        if !share(state.correction_rate) || !state.recent_quality.is_none_or(share) {
            return Err(StateError::Damaged("a rate outside [0, 1]".to_owned()));
        }
        state.level.check().map_err(StateError::Damaged)?;
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_or_damaged_state_is_refused_with_advice() {
        for (json, expected) in [
            (r#"{"version":3,"user":"u","rules":[]}"#, "has version 3, and this program reads up to 2"),
            (r#"{"version":99999999999}"#, "use the newer program"),
            ("", "no regulator state"),
            ("[]", "no regulator state"),
            (r#"{"version":1}"#, "missing field `user`"),
            (r#"{"version":1,"user":"u","recent_quality":7}"#, "outside [0, 1]"),
            (r#"{"version":1,"user":"u","level":{"tokens":1,"nll_sum":-5}}"#, "no regulator state"),
        ] {
            let error = RegulatorState::from_json(json).unwrap_err().to_string();
            assert!(error.contains(expected), "{json}: {error}");
        }
    }

    #[test]
    fn a_state_is_refused_for_another_user() {
        let state = RegulatorState::new("ann".into());
        assert_eq!(state.clone().claimed_by("ann").unwrap().user(), "ann");
        let error = state.claimed_by("bob").unwrap_err().to_string();
        assert!(error.contains("belongs to user `ann`, not `bob`"), "{error}");
    }

    #[test]
    fn a_state_from_before_versions_is_read() {
        let state = RegulatorState::from_json(r#"{"user":"u","recent_quality":0.5}"#).unwrap();
        assert_eq!((state.version, state.user(), state.recent_quality), (VERSION, "u", Some(0.5)));
    }
}
