//! `mind-mem.json`, the user's settings, and `memory/intel-state.json`, the persistent state. Unknown keys are preserved.

use jiff::civil::Date;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::mode::{Gates, MemoryCapability, Mode, ModeError};

/// The path of the settings.
pub const CONFIG_FILE: &str = "mind-mem.json";
/// The path of the state.
pub const STATE_FILE: &str = "memory/intel-state.json";

/// The settings.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct MemoryConfig {
    /// Limits on staged proposals.
    pub proposal_budget: ProposalBudget,
    /// Days until a deferred proposal may be proposed again.
    pub defer_cooldown_days: Option<i64>,
    /// Days until a staged proposal expires.
    pub proposal_ttl_days: i64,
    /// Days without a history entry after which a task counts as stalled.
    pub stalled_after_days: i64,
    /// Whether mode `enforce` may be entered.
    pub allow_enforce: bool,
    /// Additional trigger phrases for signals, by kind.
    pub capture_triggers: std::collections::BTreeMap<String, Vec<String>>,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self {
            proposal_budget: ProposalBudget::default(),
            defer_cooldown_days: None,
            proposal_ttl_days: 30,
            stalled_after_days: 14,
            allow_enforce: false,
            capture_triggers: std::collections::BTreeMap::new(),
        }
    }
}

/// Invariants 1 to 3 of §3.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(default)]
pub struct ProposalBudget {
    /// New proposals per scan.
    pub per_run: usize,
    /// New proposals per day.
    pub per_day: usize,
    /// Pending proposals.
    pub backlog_limit: usize,
}

impl Default for ProposalBudget {
    fn default() -> Self {
        Self { per_run: 3, per_day: 6, backlog_limit: 30 }
    }
}

impl MemoryConfig {
    /// Reads the settings; a missing file means the defaults.
    ///
    /// # Errors
    /// If the file is not valid; the message contains the position.
    pub fn read(text: Option<&str>) -> Result<Self, serde_json::Error> {
        text.map_or_else(|| Ok(Self::default()), serde_json::from_str)
    }
}

/// The persistent state.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryState {
    map: Map<String, Value>,
    /// The mode as written, or what is wrong with the file.
    mode: String,
}

impl MemoryState {
    /// Reads the state. An unreadable file or a missing mode results in an invalid mode, which allows nothing.
    pub fn read(text: Option<&str>) -> Self {
        let map = text.and_then(|text| serde_json::from_str::<Map<String, Value>>(text).ok());
        let mode = match &map {
            None => "unreadable".to_owned(),
            Some(map) => map.get("governance_mode").and_then(Value::as_str).unwrap_or("missing").to_owned(),
        };
        Self { map: map.unwrap_or_default(), mode }
    }

    /// The state as text.
    pub fn print(&self) -> String {
        let mut text = serde_json::to_string_pretty(&self.map).unwrap_or_default();
        text.push('\n');
        text
    }

    /// Whether the file was a JSON object: only then may a scan rewrite it.
    pub fn is_readable(&self) -> bool {
        self.mode != "unreadable"
    }

    /// The mode as written.
    pub fn mode_name(&self) -> &str {
        &self.mode
    }

    /// The mode.
    ///
    /// # Errors
    /// If the file does not contain a valid mode.
    pub fn mode(&self) -> Result<Mode, ModeError> {
        Mode::parse(&self.mode)
    }

    /// Checks that the mode allows `capability`.
    ///
    /// # Errors
    /// [`ModeError::Forbidden`], also if the mode is unknown.
    pub fn require(&self, capability: MemoryCapability) -> Result<(), ModeError> {
        match self.mode() {
            Ok(mode) if mode.allows(capability) => Ok(()),
            _ => Err(ModeError::WriteForbidden { mode: self.mode.clone(), needed: capability.needs() }),
        }
    }

    /// Changes the mode if its conditions are met. From an unknown mode only the lowest can be entered.
    ///
    /// # Errors
    /// Why the transition is not possible.
    pub fn step(&mut self, to: Mode, config: &MemoryConfig, today: Date) -> Result<(), ModeError> {
        let gates = Gates { week_clean: self.flag("flip_gate_week1_clean"), allow_enforce: config.allow_enforce };
        match self.mode() {
            Ok(from) => from.step(to, gates)?,
            Err(_) if to == Mode::DetectOnly => to,
            Err(error) => return Err(error),
        };
        to.name().clone_into(&mut self.mode);
        self.set("governance_mode", json!(to.name()));
        self.set("mode_since", json!(today.to_string()));
        self.set("clean_since", Value::Null);
        self.set("propose_weeks_clean", json!(0));
        Ok(())
    }

    /// The cooldown of a deferred proposal in days: the settings' value, else the state's, else 7.
    pub fn cooldown_days(&self, config: &MemoryConfig) -> i64 {
        let own = self.map.get("defer_cooldown_days").and_then(Value::as_i64);
        config.defer_cooldown_days.or(own).unwrap_or(7)
    }

    /// Records a scan: its time, the clean days, and the upgrade conditions that follow from them.
    pub fn note_scan(&mut self, critical: usize, today: Date, now: &str) {
        let since = self.date("clean_since").unwrap_or(today);
        if critical > 0 {
            self.set("clean_since", Value::Null);
            self.set("propose_weeks_clean", json!(0));
            if self.mode() == Ok(Mode::DetectOnly) {
                self.set("flip_gate_week1_clean", json!(false));
            }
        } else {
            let days = days_between(since, today).max(0);
            self.set("clean_since", json!(since.to_string()));
            match self.mode() {
                Ok(Mode::DetectOnly) if days >= 7 => self.set("flip_gate_week1_clean", json!(true)),
                Ok(Mode::Propose) => self.set("propose_weeks_clean", json!(days / 7)),
                _ => {}
            }
        }
        self.set("last_scan_ts", json!(now));
        self.count("scans");
    }

    /// Records an apply.
    pub fn note_apply(&mut self, now: &str) {
        self.set("last_apply_ts", json!(now));
        self.count("applies");
    }

    /// Increments `counter`.
    pub fn count(&mut self, counter: &str) {
        let counters = self.map.entry("counters").or_insert_with(|| json!({}));
        if let Some(counters) = counters.as_object_mut() {
            let value = counters.get(counter).and_then(Value::as_u64).unwrap_or(0);
            counters.insert(counter.to_owned(), json!(value + 1));
        }
    }

    /// The number of proposals staged by scans today.
    pub fn staged_on(&self, today: Date) -> usize {
        let staged = self.map.get("staged").and_then(Value::as_object);
        let same = staged.filter(|staged| staged.get("date").and_then(Value::as_str) == Some(&today.to_string()));
        same.and_then(|staged| staged.get("count")?.as_u64()).map_or(0, |count| count as usize)
    }

    /// Sets the number of proposals staged by scans today.
    pub fn set_staged_on(&mut self, today: Date, count: usize) {
        self.set("staged", json!({"date": today.to_string(), "count": count}));
    }

    /// A Boolean value; false if absent.
    pub fn flag(&self, key: &str) -> bool {
        self.map.get(key).and_then(Value::as_bool).unwrap_or(false)
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key)
    }

    fn date(&self, key: &str) -> Option<Date> {
        self.map.get(key)?.as_str()?.parse().ok()
    }

    fn set(&mut self, key: &str, value: Value) {
        self.map.insert(key.to_owned(), value);
    }
}

/// The days from one date to another.
pub fn days_between(from: Date, to: Date) -> i64 {
    from.until(to).map_or(0, |span| i64::from(span.get_days()))
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    #[test]
    fn a_damaged_state_allows_nothing() {
        for text in [
            None,
            Some(""),
            Some("[]"),
            Some("{}"),
            Some(r#"{"governance_mode": "banana"}"#),
            Some(r#"{"governance_mode": 3}"#),
        ] {
            let mut state = MemoryState::read(text);
            assert!(state.require(MemoryCapability::Propose).is_err(), "{text:?}");
            assert!(state.step(Mode::Propose, &MemoryConfig::default(), date(2026, 2, 20)).is_err());
            assert!(state.step(Mode::DetectOnly, &MemoryConfig::default(), date(2026, 2, 20)).is_ok());
        }
    }

    #[test]
    fn the_upgrade_condition_needs_a_clean_week_and_is_reset_by_a_critical_contradiction() {
        let mut state = MemoryState::read(Some(r#"{"governance_mode": "detect_only", "mine": [1, 2]}"#));
        for (day, critical, open) in
            [(1, 0, false), (7, 0, false), (8, 0, true), (9, 1, false), (10, 0, false), (17, 0, true)]
        {
            state.note_scan(critical, date(2026, 2, day), "t");
            assert_eq!(state.flag("flip_gate_week1_clean"), open, "day {day}");
        }
        state.step(Mode::Propose, &MemoryConfig::default(), date(2026, 2, 17)).unwrap();
        state.note_scan(0, date(2026, 2, 17), "t");
        state.note_scan(0, date(2026, 3, 3), "t");
        assert_eq!(state.get("propose_weeks_clean"), Some(&json!(2)));
        assert_eq!(MemoryState::read(Some(&state.print())), state);
        assert_eq!(state.get("mine"), Some(&json!([1, 2])));
    }
}
