//! `mind-mem.json`, the user's settings, and `memory/intel-state.json`, the persistent state. Unknown keys are preserved.

use jiff::civil::Date;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::mode::{Gates, MemoryCapability, Mode, ModeError};

/// The path of the settings.
pub const CONFIG_FILE: &str = "mind-mem.json";
/// The path of the state.
pub const STATE_FILE: &str = "memory/intel-state.json";

/// A clean week: so many days in a row, each with a clean scan.
const CLEAN_WEEK_DAYS: i64 = 7;

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
    /// How many snapshots of applied proposals are stored whole; older ones are reduced to what a rollback needs.
    pub whole_snapshots: usize,
    /// Risks of proposals that need no token: the person's policy. Empty unless the person fills it in.
    pub auto_approve: Vec<String>,
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
            whole_snapshots: 5,
            auto_approve: Vec::new(),
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
        self.set("clean_days", json!(0));
        self.set("last_clean_day", Value::Null);
        self.set("propose_weeks_clean", json!(0));
        Ok(())
    }

    /// The cooldown of a deferred proposal in days: the settings' value, else the state's, else 7.
    pub fn cooldown_days(&self, config: &MemoryConfig) -> i64 {
        let own = self.map.get("defer_cooldown_days").and_then(Value::as_i64);
        config.defer_cooldown_days.or(own).unwrap_or(7)
    }

    /// Records a scan: its time, the days with clean scans, and the upgrade conditions that follow from them. A clean week
    /// is seven scans on seven days in a row; a day without a scan, or with one that was not clean, starts the count again.
    pub fn note_scan(&mut self, clean: bool, today: Date, now: &str) {
        let last = self.date("last_clean_day");
        let days = self.map.get("clean_days").and_then(Value::as_i64).unwrap_or(0);
        let days = match last.map(|last| days_between(last, today)) {
            _ if !clean => 0,
            Some(0) if self.date("unclean_day") != Some(today) => days,
            Some(1) => days + 1,
            _ if self.date("unclean_day") == Some(today) => 0,
            _ => 1,
        };
        if !clean {
            self.set("unclean_day", json!(today.to_string()));
        }
        self.set("last_clean_day", if days > 0 { json!(today.to_string()) } else { Value::Null });
        self.set("clean_days", json!(days));
        match self.mode() {
            // Once open, the gate stays open until a scan is not clean.
            Ok(Mode::DetectOnly) if !clean => self.set("flip_gate_week1_clean", json!(false)),
            Ok(Mode::DetectOnly) if days >= CLEAN_WEEK_DAYS => self.set("flip_gate_week1_clean", json!(true)),
            Ok(Mode::Propose) => self.set("propose_weeks_clean", json!(days / CLEAN_WEEK_DAYS)),
            _ => {}
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
    fn a_clean_week_is_seven_days_of_scans() {
        let check = |scans: &[(i8, bool)], open: bool| {
            let mut state = MemoryState::read(Some(r#"{"governance_mode": "detect_only"}"#));
            for (day, clean) in scans {
                state.note_scan(*clean, date(2026, 2, *day), "t");
            }
            assert_eq!(state.flag("flip_gate_week1_clean"), open, "{scans:?}");
        };
        let days = |days: std::ops::RangeInclusive<i8>| days.map(|day| (day, true)).collect::<Vec<_>>();
        check(&days(1..=6), false);
        check(&days(1..=7), true);
        check(&[(1, true), (8, true)], false);
        check(&[days(1..=3), days(5..=10)].concat(), false);
        check(&[days(1..=3), days(5..=11)].concat(), true);
        check(&[days(1..=6), vec![(7, true), (7, true)]].concat(), true);
        check(&[days(1..=7), vec![(7, false)]].concat(), false);
        check(&[days(1..=6), vec![(7, false), (7, true)]].concat(), false);
        check(&[days(1..=6), vec![(7, false)], days(8..=13)].concat(), false);
        check(&[days(1..=6), vec![(7, false)], days(8..=14)].concat(), true);
        check(&[(1, true); 20], false);
    }

    #[test]
    fn clean_weeks_count_in_propose_and_unknown_keys_survive() {
        let mut state = MemoryState::read(Some(r#"{"governance_mode": "detect_only", "mine": [1, 2]}"#));
        for day in 1..=7 {
            state.note_scan(true, date(2026, 2, day), "t");
        }
        state.step(Mode::Propose, &MemoryConfig::default(), date(2026, 2, 17)).unwrap();
        for day in 1..=14 {
            state.note_scan(true, date(2026, 3, day), "t");
        }
        assert_eq!(state.get("propose_weeks_clean"), Some(&json!(2)));
        assert_eq!(MemoryState::read(Some(&state.print())), state);
        assert_eq!(state.get("mine"), Some(&json!([1, 2])));
    }
}
