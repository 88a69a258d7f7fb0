//! Detects loops of tool calls. Calls are compared by (name, arguments, result), not by name alone: five different
//! reads that succeed are no loop. Only calls since the user's last message count: what a user asks for again is no loop.
//!
//! Results are compared without what changes by itself: times, dates, durations, ids, and numbers that count attempts. A
//! number that may tell of progress (`40 %`, `3 of 9`) keeps results apart.

use std::collections::{BTreeSet, VecDeque};

use super::decision::{Decision, Evidence, RankedDecision, ToolLoopPattern};
use super::settings::ToolSettings;
use super::volatile::{is_empty_result, stable};
use crate::foundation::base::{Digest, canonical_json};

/// Most finished calls stored.
const CALLS_MAX: usize = 64;
/// Most pending calls; beyond it the oldest is dropped.
const PENDING_MAX: usize = 32;
/// Longest cycle searched for, in calls.
const CYCLE_MAX: usize = 4;
/// Polling is searched for among this many last calls.
const POLL_WINDOW: usize = 24;
/// Rounds needed, relative to the setting, where results differ in a number, and where that number tells of progress.
const COUNTING: usize = 2;
const PROGRESSING: usize = 3;
/// Most numbers of a result that are compared.
const NUMBERS_MAX: usize = 8;
/// What an answer says while something is waited for.
const WAITING: [&str; 20] = [
    "pending",
    "busy",
    "running",
    "queued",
    "progress",
    "wait",
    "not ready",
    "not yet",
    "processing",
    "starting",
    "scheduled",
    "building",
    "deploying",
    "creating",
    "provisioning",
    "initializing",
    "incomplete",
    "unavailable",
    "locked",
    "0/",
];

#[derive(Debug, Clone)]
struct Pending {
    id: Option<String>,
    name: String,
    call: u64,
}

#[derive(Debug, Clone, PartialEq)]
struct Finished {
    name: String,
    /// Digest of name and arguments.
    call: u64,
    /// Digest of the result's stable parts; `None` if unknown.
    result: Option<u64>,
    /// The same with every number left out.
    without_numbers: Option<u64>,
    /// Its numbers tell of progress: `40 %`, `3 of 9`.
    progresses: bool,
    /// The first of these numbers.
    numbers: Vec<f64>,
    /// It says that something is still waited for.
    waits: bool,
    success: bool,
}

/// The tool calls since the user's last message.
#[derive(Debug, Clone)]
pub(super) struct ToolCalls {
    settings: ToolSettings,
    pending: VecDeque<Pending>,
    finished: VecDeque<Finished>,
    failures: usize,
    /// The last calls in a row that were the same and have had no result.
    unanswered: usize,
    last_call: u64,
    found: Option<RankedDecision>,
}

impl ToolCalls {
    pub(super) fn new(settings: ToolSettings) -> Self {
        Self {
            settings,
            pending: VecDeque::new(),
            finished: VecDeque::new(),
            failures: 0,
            unanswered: 0,
            last_call: 0,
            found: None,
        }
    }

    /// The user asks for something: what was called before is no part of a loop.
    pub(super) fn new_request(&mut self) {
        self.finished.clear();
        (self.failures, self.unanswered, self.found) = (0, 0, None);
    }

    /// The user says to go on: what was found before is said again only if it goes on.
    pub(super) fn new_turn(&mut self) {
        self.found = None;
    }

    /// Records a call.
    pub(super) fn call(&mut self, id: Option<&str>, name: &str, args_json: &str) {
        if self.pending.len() == PENDING_MAX {
            self.pending.pop_front();
        }
        let call = digest(&[name, &canonical(args_json)]);
        self.pending.push_back(Pending { id: id.map(str::to_owned), name: name.to_owned(), call });
        self.unanswered = if call == self.last_call { self.unanswered + 1 } else { 1 };
        self.last_call = call;
        let limit = self.settings.unanswered.max(2);
        if self.unanswered >= limit {
            let why = "the same call was made again and again without a result";
            self.found = Some(decision(ToolLoopPattern::Cycle, vec![name.to_owned()], self.unanswered, limit, why));
        }
    }

    /// Records the result of a pending call: the one with this id, else the oldest of this tool. A result without a call
    /// is a call with unknown arguments.
    pub(super) fn result(&mut self, id: Option<&str>, name: &str, success: bool, result: Option<&str>) {
        let by_id = id.and_then(|id| self.pending.iter().position(|pending| pending.id.as_deref() == Some(id)));
        let at = by_id.or_else(|| self.pending.iter().position(|pending| pending.name == name));
        let pending = at.and_then(|at| self.pending.remove(at));
        let call = pending.as_ref().map_or_else(|| digest(&[name]), |pending| pending.call);
        let name = pending.map_or_else(|| name.to_owned(), |pending| pending.name);
        if self.finished.len() == CALLS_MAX {
            self.finished.pop_front();
        }
        // A search that finds nothing is an answer, whatever the tool calls it.
        let success = success || result.is_some_and(is_empty_result);
        let stable = result.map(|text| stable(&canonical(text)));
        let without_numbers = stable.as_deref().map(|text| digest(&[&text.replace(|c: char| c.is_ascii_digit(), "")]));
        let lower = stable.as_deref().unwrap_or_default().to_lowercase();
        let progresses = ["%", " of ", "/", " left", "remaining", "eta "].iter().any(|sign| lower.contains(sign));
        let numbers = if progresses { numbers(&lower) } else { Vec::new() };
        let waits = WAITING.iter().any(|sign| lower.contains(sign));
        let result = stable.map(|text| digest(&[&text]));
        self.finished.push_back(Finished { name, call, result, without_numbers, progresses, numbers, waits, success });
        self.failures = if success { 0 } else { self.failures + 1 };
        self.unanswered = 0;
        self.found = self.cycle().or_else(|| self.failure_streak()).or_else(|| self.polling());
    }

    /// The loop found after the last call or result, if any.
    pub(super) fn ranked(&self) -> Option<&RankedDecision> {
        self.found.as_ref()
    }

    fn latest(&self, n: usize) -> Vec<String> {
        let mut names: Vec<_> = self.finished.iter().rev().take(n).map(|call| call.name.clone()).collect();
        names.reverse();
        names
    }

    fn cycle(&self) -> Option<RankedDecision> {
        (1..=CYCLE_MAX).find_map(|length| {
            let rounds = |same: fn(&Finished, &Finished) -> bool| {
                let repeated = |(i, call): &(usize, &Finished)| {
                    let before = self.finished.iter().rev().nth(i + length);
                    before.is_some_and(|before| before.call == call.call && same(before, call))
                };
                self.finished.iter().rev().enumerate().take_while(repeated).count() / length + 1
            };
            // Without a known result the calls may have differed: require twice as many rounds.
            let known = self.finished.iter().rev().take(length).all(|call| call.result.is_some());
            let needed = self.settings.cycle_repeats.max(2) * if known { 1 } else { 2 };
            let equal = rounds(|a, b| a.result == b.result);
            let alike = rounds(|a, b| a.without_numbers == b.without_numbers);
            let progresses = self.finished.iter().rev().take(length).any(|call| call.progresses);
            let doubt = if progresses { PROGRESSING } else { COUNTING };
            if equal < needed && self.advances(length, alike) {
                return None;
            }
            let (rounds, needed) = if equal >= needed { (equal, needed) } else { (alike, doubt * needed) };
            (rounds >= needed).then(|| {
                let why = "the same calls gave the same answers";
                decision(ToolLoopPattern::Cycle, self.latest(length), rounds, needed, why)
            })
        })
    }

    /// Whether a number that tells of progress rose, or fell, in every one of the last `rounds` rounds.
    fn advances(&self, length: usize, rounds: usize) -> bool {
        (0..length).any(|call| {
            let results: Vec<&[f64]> = (0..rounds)
                .filter_map(|round| self.finished.iter().rev().nth(call + round * length))
                .map(|call| call.numbers.as_slice())
                .collect();
            (0..NUMBERS_MAX).any(|at| {
                let values: Vec<f64> = results.iter().filter_map(|numbers| numbers.get(at).copied()).collect();
                let moves =
                    |up: bool| values.windows(2).all(|pair| matches!(pair, [a, b] if (a > b) == up && (a < b) != up));
                values.len() == results.len() && values.len() > 1 && (moves(true) || moves(false))
            })
        })
    }

    fn failure_streak(&self) -> Option<RankedDecision> {
        let limit = self.settings.failure_streak.max(1);
        (self.failures >= limit).then(|| {
            let mut tools = self.latest(self.failures.min(CALLS_MAX));
            tools.dedup();
            decision(ToolLoopPattern::FailureStreak, tools, self.failures, limit, "one call failed after another")
        })
    }

    fn polling(&self) -> Option<RankedDecision> {
        let latest = self.finished.back()?;
        let answers: Vec<_> = self
            .finished
            .iter()
            .rev()
            .take(POLL_WINDOW)
            .filter(|call| call.call == latest.call)
            .filter_map(|call| call.result)
            .take(self.settings.polls.max(2))
            .collect();
        let mut distinct = answers.clone();
        distinct.sort_unstable();
        distinct.dedup();
        // The same check after each of several steps ("all tests pass") is no poll: a poll waits, or nothing else is done.
        let others: BTreeSet<u64> = self
            .finished
            .iter()
            .rev()
            .take(POLL_WINDOW)
            .map(|call| call.call)
            .filter(|&call| call != latest.call)
            .collect();
        if !latest.waits && others.len() > CYCLE_MAX {
            return None;
        }
        // An answer that has just changed ends the wait.
        let moved = answers.first().zip(answers.get(1)).is_some_and(|(latest, before)| latest != before);
        (answers.len() >= self.settings.polls.max(2) && distinct.len() <= 2 && !moved).then(|| {
            let tools = vec![latest.name.clone()];
            decision(ToolLoopPattern::Polling, tools, answers.len(), self.settings.polls, "the answer does not move")
        })
    }
}

fn decision(pattern: ToolLoopPattern, tools: Vec<String>, repeats: usize, limit: usize, why: &str) -> RankedDecision {
    let names = tools.join(" → ");
    let suggestion = match pattern {
        ToolLoopPattern::Polling => format!("{names}: {why}; wait longer between calls, or report that it is pending"),
        ToolLoopPattern::FailureStreak => {
            format!("{names}: {why}; read the error, change the approach, or ask the user")
        }
        ToolLoopPattern::Cycle => format!("{names}: {why}; use what is known, or try something else"),
    };
    RankedDecision {
        decision: Decision::ToolLoop { pattern, tools, repeats, suggestion },
        evidence: vec![Evidence::new("repeats", repeats as f64, limit as f64)],
    }
}

/// The first numbers in a text.
fn numbers(text: &str) -> Vec<f64> {
    let parts = text.split(|c: char| !c.is_ascii_digit() && c != '.');
    parts.filter_map(|part| part.trim_matches('.').parse().ok()).take(NUMBERS_MAX).collect()
}

/// Canonical JSON, so that spaces and the order of keys do not matter; other text unchanged.
fn canonical(json: &str) -> String {
    serde_json::from_str::<serde_json::Value>(json)
        .and_then(|value| canonical_json(&value))
        .unwrap_or_else(|_| json.to_owned())
}

fn digest(parts: &[&str]) -> u64 {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bytes.extend_from_slice(part.as_bytes());
    }
    Digest::of(&bytes).as_bytes().first_chunk().map_or(0, |first| u64::from_le_bytes(*first))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls as `name(args)=result`, with `!` before a failure; the loop after the last one.
    fn check(calls: &[&str], expected: Option<(ToolLoopPattern, &[&str], usize)>) {
        let mut tools = ToolCalls::new(ToolSettings::default());
        for call in calls {
            let (success, call) = call.strip_prefix('!').map_or((true, *call), |call| (false, call));
            let (head, result) = call.split_once('=').map_or((call, None), |(head, result)| (head, Some(result)));
            let (name, args) = head.trim_end_matches(')').split_once('(').unwrap();
            tools.call(None, name, args);
            tools.result(None, name, success, result);
        }
        let found = tools.ranked().map(|ranked| match &ranked.decision {
            Decision::ToolLoop { pattern, tools, repeats, .. } => (*pattern, tools.clone(), *repeats),
            other => panic!("{other:?}"),
        });
        let expected = expected.map(|(pattern, tools, repeats)| {
            (pattern, tools.iter().map(|&tool| tool.to_owned()).collect::<Vec<_>>(), repeats)
        });
        assert_eq!(found, expected, "{calls:?}");
    }

    #[test]
    fn cycles_of_one_to_four_calls_are_found_and_progress_is_not() {
        use ToolLoopPattern::Cycle;
        check(&["read(a)=1", "read(b)=2", "read(c)=3", "read(d)=4", "read(e)=5"], None);
        check(&["read(a)=1", "read(a)=1"], None);
        check(&["read(a)=1", "read(a)=1", "read(a)=1"], Some((Cycle, &["read"], 3)));
        check(&["read(a)=1", "read(a)=2", "read(a)=3"], None);
        check(&["ls()=x", "cat(y)=z"].repeat(3), Some((Cycle, &["ls", "cat"], 3)));
        check(&["a()=1", "b()=2", "c()=3", "d()=4"].repeat(3), Some((Cycle, &["a", "b", "c", "d"], 3)));
        check(&["a()=1", "b()=2", "c()=3", "d()=4", "e()=5"].repeat(3), None);
        // Ended by a different call.
        check(&["read(a)=1", "read(a)=1", "read(a)=1", "write(a)=ok"], None);
    }

    #[test]
    fn the_order_of_keys_and_spaces_make_no_difference() {
        check(
            &[r#"f({"a":1,"b":2})=x"#, r#"f({"b": 2, "a": 1})=x"#, r#"f({"a":1, "b":2})=x"#],
            Some((ToolLoopPattern::Cycle, &["f"], 3)),
        );
    }

    #[test]
    fn unknown_results_need_twice_as_many_rounds() {
        check(&["f()"; 5], None);
        check(&["f()"; 6], Some((ToolLoopPattern::Cycle, &["f"], 6)));
    }

    #[test]
    fn consecutive_failures_are_a_loop_whatever_the_calls() {
        check(
            &["!grep(a)=e1", "!grep(b)=e2", "!find(c)=e3", "!grep(d)=e4"],
            Some((ToolLoopPattern::FailureStreak, &["grep", "find", "grep"], 4)),
        );
        check(&["!grep(a)=e1", "!grep(b)=e2", "grep(c)=ok", "!grep(d)=e4", "!grep(e)=e5"], None);
    }

    #[test]
    fn polling_between_other_calls_is_found_unless_its_result_changes() {
        let polls = |answer: fn(usize) -> String| -> Vec<String> {
            (0..6).flat_map(|i| [format!("status()={}", answer(i)), format!("log({i})={i}")]).take(11).collect()
        };
        let still = polls(|_| "pending".into());
        check(&still.iter().map(String::as_str).collect::<Vec<_>>(), Some((ToolLoopPattern::Polling, &["status"], 6)));
        let moving = polls(|i| format!("{i}0 %"));
        check(&moving.iter().map(String::as_str).collect::<Vec<_>>(), None);
    }

    #[test]
    fn results_are_matched_to_their_calls_when_several_are_pending() {
        let mut tools = ToolCalls::new(ToolSettings::default());
        for _ in 0..3 {
            tools.call(None, "a", "1");
            tools.call(None, "b", "2");
            tools.result(None, "b", true, Some("y"));
            tools.result(None, "a", true, Some("x"));
        }
        assert!(tools.ranked().is_some());
        // Results without calls, and calls without results, are bounded.
        (0..1000).for_each(|_| tools.call(None, "c", "{}"));
        tools.result(None, "unheard", false, None);
        assert!(tools.pending.len() <= PENDING_MAX && tools.finished.len() <= CALLS_MAX);
    }

    #[test]
    fn calls_without_any_result_are_a_loop_after_six() {
        let mut tools = ToolCalls::new(ToolSettings::default());
        let looping = |tools: &ToolCalls| tools.ranked().is_some();
        for i in 1..=6 {
            tools.call(None, "print", "{}");
            assert_eq!(looping(&tools), i == 6);
        }
        tools.call(None, "print", "{\"page\":2}");
        assert!(looping(&tools), "it is said until something else comes of it");
        tools.result(None, "print", true, Some("ok"));
        assert!(!looping(&tools));
        // Six different calls under way at once are none.
        (0..6).for_each(|i| tools.call(None, "read", &i.to_string()));
        assert!(!looping(&tools));
    }

    #[test]
    fn clocks_ids_and_attempts_do_not_hide_a_loop_and_progress_is_none() {
        use ToolLoopPattern::Cycle;
        let calls = |results: &[&str]| results.iter().map(|result| format!("run()={result}")).collect::<Vec<_>>();
        let looping = |results: &[&str], repeats| {
            let calls = calls(results);
            check(&calls.iter().map(String::as_str).collect::<Vec<_>>(), Some((Cycle, &["run"], repeats)));
        };
        let moving = |results: &[&str]| {
            let calls = calls(results);
            check(&calls.iter().map(String::as_str).collect::<Vec<_>>(), None);
        };
        looping(
            &["[2026-03-01T10:00:01Z] error 7", "[2026-03-01T10:00:09Z] error 7", "[2026-03-02T10:10:01Z] error 7"],
            3,
        );
        looping(
            &["failed after 34 ms, attempt 1", "failed after 31 ms, attempt 2", "failed after 40 ms, attempt 3"],
            3,
        );
        looping(
            &[
                "{\"request_id\":\"6f1c2a9e\",\"error\":\"x\"}",
                "{\"request_id\":\"77ab12cd\",\"error\":\"x\"}",
                "{\"request_id\":\"0f1c2a00\",\"error\":\"x\"}",
            ],
            3,
        );
        moving(&["10 % done", "20 % done", "30 % done", "40 % done"]);
        moving(&["3 of 9 files", "4 of 9 files", "5 of 9 files", "6 of 9 files"]);
        let percent = |at: usize| format!("rolling out: {} %", 8 * at);
        let rollout: Vec<String> = (0..12).map(percent).collect();
        moving(&rollout.iter().map(String::as_str).collect::<Vec<_>>());
        // What stands still for a while, and then moves back and forth, is no progress.
        let swings: Vec<String> = (0..9).map(|at| format!("{} of 9 ready", 3 + at % 2)).collect();
        looping(&swings.iter().map(String::as_str).collect::<Vec<_>>(), 9);
        moving(&["error in column 7", "error in column 8", "error in column 9"]);
    }

    #[test]
    fn searches_that_find_nothing_are_no_failures_and_a_new_request_starts_afresh() {
        check(&["!grep(a)=no matches", "!grep(b)=", "!grep(c)=0 results", "!find(d)=[]", "!find(e)=not found"], None);
        let mut tools = ToolCalls::new(ToolSettings::default());
        for _ in 0..5 {
            tools.call(None, "run_tests", "{}");
            tools.result(None, "run_tests", true, Some("34 passed"));
            assert!(tools.ranked().is_none(), "the user asked each time");
            tools.new_request();
        }
        for _ in 0..3 {
            tools.call(None, "run_tests", "{}");
            tools.result(None, "run_tests", true, Some("34 passed"));
        }
        assert!(tools.ranked().is_some());
        tools.new_request();
        assert!(tools.ranked().is_none(), "the warning ends with its cause");
    }

    #[test]
    fn results_find_their_calls_by_id() {
        let mut tools = ToolCalls::new(ToolSettings::default());
        tools.call(Some("1"), "get", "a");
        tools.call(Some("2"), "get", "b");
        tools.result(Some("2"), "", true, Some("y"));
        assert_eq!(tools.pending.front().and_then(|pending| pending.id.as_deref()), Some("1"));
        assert_eq!(tools.finished.back().map(|call| call.name.as_str()), Some("get"));
    }
}
