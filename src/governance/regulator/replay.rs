//! Replays recorded events under other settings and lists the decisions that differ.

use serde::Serialize;
use serde_json::Value;

use super::core::Regulator;
use super::event_line::EventLine;
use super::settings::{SettingError, Settings};

/// The decisions of one turn, up to the start of the next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TurnDecisions {
    /// From 1; 0 is before the first turn.
    pub turn: u64,
    /// The kinds of decisions that applied at some point, in order of appearance, without `continue`.
    pub decisions: Vec<&'static str>,
}

/// A turn whose decisions differ under other settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DecisionChange {
    /// The turn.
    pub turn: u64,
    /// Decisions only under the new settings.
    pub gained: Vec<&'static str>,
    /// Decisions only under the old settings.
    pub lost: Vec<&'static str>,
}

impl Settings {
    /// These settings with the one at `path` (`scope.drift`) changed.
    ///
    /// # Errors
    /// If there is no such setting, or the value is out of range.
    pub fn with(&self, path: &str, value: &Value) -> Result<Self, SettingError> {
        let no = |why: String| SettingError::new(path, value, why);
        let mut all = serde_json::to_value(self).map_err(|error| no(error.to_string()))?;
        let pointer = format!("/{}", path.replace('.', "/"));
        let place = all.pointer_mut(&pointer).filter(|place| !place.is_object());
        *place.ok_or_else(|| no("there is no such setting".to_owned()))? = value.clone();
        let with: Self = serde_json::from_value(all).map_err(|error| no(error.to_string()))?;
        with.check()?;
        Ok(with)
    }
}

/// The decisions of a new regulator with these settings, turn by turn.
pub fn replay<'a>(settings: &Settings, events: impl IntoIterator<Item = &'a EventLine>) -> Vec<TurnDecisions> {
    let mut regulator = Regulator::new(settings.clone());
    let mut turns: Vec<TurnDecisions> = Vec::new();
    for event in events {
        regulator.on_event(event.event());
        let turn = regulator.turn();
        if turns.last().is_none_or(|last| last.turn != turn) {
            turns.push(TurnDecisions { turn, decisions: Vec::new() });
        }
        let Some(last) = turns.last_mut() else { continue };
        for kind in regulator.decide().iter().map(|ranked| ranked.decision.kind()) {
            if kind != "continue" && !last.decisions.contains(&kind) {
                last.decisions.push(kind);
            }
        }
    }
    turns
}

/// The turns in which two replays of the same events differ.
pub fn decision_changes(before: &[TurnDecisions], after: &[TurnDecisions]) -> Vec<DecisionChange> {
    let only = |of: &TurnDecisions, not: &TurnDecisions| -> Vec<_> {
        of.decisions.iter().copied().filter(|kind| !not.decisions.contains(kind)).collect()
    };
    before
        .iter()
        .zip(after)
        .map(|(before, after)| DecisionChange {
            turn: before.turn,
            gained: only(after, before),
            lost: only(before, after),
        })
        .filter(|change| !change.gained.is_empty() || !change.lost.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn other_settings_show_which_decisions_would_change() {
        let events: Vec<_> = (0..3)
            .flat_map(|_| {
                [r#"{"type":"turn_start","user_message":"x"}"#, r#"{"type":"cost","tokens_in":60,"tokens_out":0}"#]
            })
            .map(|line| EventLine::parse(line).unwrap())
            .collect();
        let settings = Settings::default().with("cost.hard.tokens", &json!(100)).unwrap();
        let before = replay(&settings, &events);
        let found: Vec<_> = before.iter().map(|turn| (turn.turn, turn.decisions.len())).collect();
        assert_eq!(found, [(1, 0), (2, 1), (3, 1)]);
        let after = replay(&settings.with("cost.hard.tokens", &json!(170)).unwrap(), &events);
        assert_eq!(
            decision_changes(&before, &after),
            [DecisionChange { turn: 2, gained: vec![], lost: vec!["circuit_break"] }]
        );
        assert_eq!(decision_changes(&before, &before), []);
    }

    #[test]
    fn a_setting_that_does_not_exist_is_refused() {
        for (path, value, expected) in [
            ("scope.drfit", json!(0.5), "no such setting"),
            ("scope", json!(0.5), "no such setting"),
            ("cost.hard.tokens", json!(-1), "cannot be -1"),
            ("tools.polls", json!("x"), "cannot be \"x\""),
            ("scope.drift", json!(9), "`scope.drift` cannot be 9: from 0 to 1 is needed"),
            ("tools.polls", json!(1), "`tools.polls` cannot be 1: 2 or more is needed"),
        ] {
            let error = Settings::default().with(path, &value).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
