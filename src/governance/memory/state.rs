//! `mind-mem.json`, the person's settings, and `memory/intel-state.json`, what the memory remembers about itself. Keys
//! that are not known here are kept as they are.

use jiff::civil::Date;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::mode::{Capability, Gates, Mode, ModeError};

/// Where the settings stand.
pub const CONFIG: &str = "mind-mem.json";
/// Where the state stands.
pub const STATE: &str = "memory/intel-state.json";

/// The settings.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct Config {
    /// How many proposals may be staged.
    pub proposal_budget: Budget,
    /// Days after which a deferred proposal may come back.
    pub defer_cooldown_days: Option<i64>,
    /// Days after which a staged proposal expires.
    pub proposal_ttl_days: i64,
    /// Days without a line of history after which a task counts as stalled.
    pub stalled_after_days: i64,
    /// Whether the person lets the memory go to `enforce`.
    pub allow_enforce: bool,
    /// More phrases that make a line a signal, by kind.
    pub capture_triggers: std::collections::BTreeMap<String, Vec<String>>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            proposal_budget: Budget::default(),
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
pub struct Budget {
    /// Most new proposals of one scan.
    pub per_run: usize,
    /// Most new proposals of one day.
    pub per_day: usize,
    /// Most pending proposals.
    pub backlog_limit: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { per_run: 3, per_day: 6, backlog_limit: 30 }
    }
}

impl Config {
    /// Reads the settings; no file means the defaults.
    ///
    /// # Errors
    /// Where the file is not what it should be: the message says where.
    pub fn read(text: Option<&str>) -> Result<Self, serde_json::Error> {
        text.map_or_else(|| Ok(Self::default()), serde_json::from_str)
    }
}

/// What the memory remembers about itself.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    map: Map<String, Value>,
    /// The mode as written, or what is wrong with the file.
    mode: String,
}

impl State {
    /// Reads the state. What cannot be read, or has no mode, has a mode that is none: it fails closed.
    pub fn read(text: Option<&str>) -> Self {
        let map = text.and_then(|text| serde_json::from_str::<Map<String, Value>>(text).ok());
        let mode = match &map {
            None => "unreadable".to_owned(),
            Some(map) => map.get("governance_mode").and_then(Value::as_str).unwrap_or("missing").to_owned(),
        };
        Self { map: map.unwrap_or_default(), mode }
    }

    /// The state as its file's text.
    pub fn print(&self) -> String {
        let mut text = serde_json::to_string_pretty(&self.map).unwrap_or_default();
        text.push('\n');
        text
    }

    /// Whether the file was a JSON object: only then may it be rewritten by a scan.
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
    /// Where what is written is no mode.
    pub fn mode(&self) -> Result<Mode, ModeError> {
        Mode::parse(&self.mode)
    }

    /// Nothing, if the mode allows `capability`.
    ///
    /// # Errors
    /// [`ModeError::Forbidden`], also where the mode is unknown.
    pub fn demand(&self, capability: Capability) -> Result<(), ModeError> {
        match self.mode() {
            Ok(mode) if mode.allows(capability) => Ok(()),
            _ => Err(ModeError::Forbidden { mode: self.mode.clone(), needed: capability.needs() }),
        }
    }

    /// Sets the mode, through its gates. A mode that is unknown can only be set to the lowest one.
    ///
    /// # Errors
    /// Why the step is not open.
    pub fn step(&mut self, to: Mode, config: &Config, today: Date) -> Result<(), ModeError> {
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

    /// Days that a deferred proposal must wait: the state's own figure, else the config's, else 7.
    pub fn cooldown_days(&self, config: &Config) -> i64 {
        let own = self.map.get("defer_cooldown_days").and_then(Value::as_i64);
        config.defer_cooldown_days.or(own).unwrap_or(7)
    }

    /// Counts a scan in: the gate of the first week, the clean weeks of `propose`, and when it was.
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

    /// Notes the time of an apply, and that there was one.
    pub fn note_apply(&mut self, now: &str) {
        self.set("last_apply_ts", json!(now));
        self.count("applies");
    }

    /// One more of `counter`.
    pub fn count(&mut self, counter: &str) {
        let counters = self.map.entry("counters").or_insert_with(|| json!({}));
        if let Some(counters) = counters.as_object_mut() {
            let value = counters.get(counter).and_then(Value::as_u64).unwrap_or(0);
            counters.insert(counter.to_owned(), json!(value + 1));
        }
    }

    /// How many proposals were staged by scans today.
    pub fn staged_on(&self, today: Date) -> usize {
        let staged = self.map.get("staged").and_then(Value::as_object);
        let same = staged.filter(|staged| staged.get("date").and_then(Value::as_str) == Some(&today.to_string()));
        same.and_then(|staged| staged.get("count")?.as_u64()).map_or(0, |count| count as usize)
    }

    /// Notes that scans have staged `count` proposals today.
    pub fn set_staged_on(&mut self, today: Date, count: usize) {
        self.set("staged", json!({"date": today.to_string(), "count": count}));
    }

    /// A true-or-false value; what is absent is false.
    pub fn flag(&self, key: &str) -> bool {
        self.map.get(key).and_then(Value::as_bool).unwrap_or(false)
    }

    /// A value as it stands.
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

/// Days from one date to another.
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
            let mut state = State::read(text);
            assert!(state.demand(Capability::Propose).is_err(), "{text:?}");
            assert!(state.step(Mode::Propose, &Config::default(), date(2026, 2, 20)).is_err());
            assert!(state.step(Mode::DetectOnly, &Config::default(), date(2026, 2, 20)).is_ok());
        }
    }

    #[test]
    fn the_gate_opens_after_a_clean_week_and_shuts_with_a_critical_find() {
        let mut state = State::read(Some(r#"{"governance_mode": "detect_only", "mine": [1, 2]}"#));
        for (day, critical, open) in
            [(1, 0, false), (7, 0, false), (8, 0, true), (9, 1, false), (10, 0, false), (17, 0, true)]
        {
            state.note_scan(critical, date(2026, 2, day), "t");
            assert_eq!(state.flag("flip_gate_week1_clean"), open, "day {day}");
        }
        state.step(Mode::Propose, &Config::default(), date(2026, 2, 17)).unwrap();
        state.note_scan(0, date(2026, 2, 17), "t");
        state.note_scan(0, date(2026, 3, 3), "t");
        assert_eq!(state.get("propose_weeks_clean"), Some(&json!(2)));
        assert_eq!(State::read(Some(&state.print())), state);
        assert_eq!(state.get("mine"), Some(&json!([1, 2])));
    }
}
