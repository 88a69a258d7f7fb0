//! Detects loops of tool calls. Calls are compared by (name, arguments, result), not by name alone: five different
//! reads that succeed are no loop.

use std::collections::VecDeque;

use super::decision::{Decision, Evidence, RankedDecision, ToolLoopPattern};
use super::settings::ToolSettings;
use crate::foundation::base::{Digest, canonical_json};

/// Most finished calls stored.
const CALLS_MAX: usize = 64;
/// Most pending calls; beyond it the oldest is dropped.
const PENDING_MAX: usize = 32;
/// Longest cycle searched for, in calls.
const CYCLE_MAX: usize = 4;
/// Polling is searched for among this many last calls.
const POLL_WINDOW: usize = 24;

#[derive(Debug, Clone)]
struct Pending {
    name: String,
    call: u64,
}

#[derive(Debug, Clone, PartialEq)]
struct Finished {
    name: String,
    /// Digest of name and arguments.
    call: u64,
    /// Digest of the result; `None` if unknown.
    result: Option<u64>,
    success: bool,
}

/// The last tool calls of an agent.
#[derive(Debug, Clone)]
pub(super) struct ToolCalls {
    settings: ToolSettings,
    pending: VecDeque<Pending>,
    finished: VecDeque<Finished>,
    failures: usize,
    found: Option<RankedDecision>,
}

impl ToolCalls {
    pub(super) fn new(settings: ToolSettings) -> Self {
        Self { settings, pending: VecDeque::new(), finished: VecDeque::new(), failures: 0, found: None }
    }

    /// Records a call.
    pub(super) fn call(&mut self, name: &str, args_json: &str) {
        if self.pending.len() == PENDING_MAX {
            self.pending.pop_front();
        }
        self.pending.push_back(Pending { name: name.to_owned(), call: digest(&[name, &canonical(args_json)]) });
    }

    /// Records the result of the oldest pending call of this tool. A result without a call is a call with unknown
    /// arguments.
    pub(super) fn result(&mut self, name: &str, success: bool, result: Option<&str>) {
        let at = self.pending.iter().position(|pending| pending.name == name);
        let call = at.and_then(|at| self.pending.remove(at)).map_or_else(|| digest(&[name]), |pending| pending.call);
        if self.finished.len() == CALLS_MAX {
            self.finished.pop_front();
        }
        let result = result.map(|text| digest(&[&canonical(text)]));
        self.finished.push_back(Finished { name: name.to_owned(), call, result, success });
        self.failures = if success { 0 } else { self.failures + 1 };
        self.found = self.cycle().or_else(|| self.failure_streak()).or_else(|| self.polling());
    }

    /// The loop found after the last result, if any.
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
            let repeated = |(i, call): &(usize, &Finished)| {
                let before = self.finished.iter().rev().nth(i + length);
                before.is_some_and(|before| (before.call, before.result) == (call.call, call.result))
            };
            let same = self.finished.iter().rev().enumerate().take_while(repeated).count();
            let rounds = same / length + 1;
            // Without a known result the calls may have differed: require twice as many rounds.
            let known = self.finished.iter().rev().take(length).all(|call| call.result.is_some());
            let needed = self.settings.cycle_repeats.max(2) * if known { 1 } else { 2 };
            (rounds >= needed).then(|| {
                ranked(
                    ToolLoopPattern::Cycle,
                    self.latest(length),
                    rounds,
                    needed,
                    "the same calls gave the same answers",
                )
            })
        })
    }

    fn failure_streak(&self) -> Option<RankedDecision> {
        let limit = self.settings.failure_streak.max(1);
        (self.failures >= limit).then(|| {
            let mut tools = self.latest(self.failures.min(CALLS_MAX));
            tools.dedup();
            ranked(ToolLoopPattern::FailureStreak, tools, self.failures, limit, "one call failed after another")
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
        (answers.len() >= self.settings.polls.max(2) && distinct.len() <= 2).then(|| {
            let tools = vec![latest.name.clone()];
            ranked(ToolLoopPattern::Polling, tools, answers.len(), self.settings.polls, "the answer does not move")
        })
    }
}

fn ranked(pattern: ToolLoopPattern, tools: Vec<String>, repeats: usize, limit: usize, why: &str) -> RankedDecision {
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
            tools.call(name, args);
            tools.result(name, success, result);
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
            tools.call("a", "1");
            tools.call("b", "2");
            tools.result("b", true, Some("y"));
            tools.result("a", true, Some("x"));
        }
        assert!(tools.ranked().is_some());
        // Results without calls, and calls without results, are bounded.
        (0..1000).for_each(|_| tools.call("c", "{}"));
        tools.result("unheard", false, None);
        assert!(tools.pending.len() <= PENDING_MAX && tools.finished.len() <= CALLS_MAX);
    }
}
