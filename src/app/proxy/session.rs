//! The sessions behind the proxy: what each spends, and what its regulator decides.
//!
//! Caps are kept here and not by the regulators, because calls of one session, and of one key, may run at the same time. A
//! regulator follows one call at a time; a call that begins while another of its session runs is counted and not read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::{Map, Value, json};

use crate::foundation::chat::Finish;
use crate::governance::regulator::{
    BreakAction, CostSettings, Decision, EventLine, LlmEvent, RankedDecision, Regulator, ResourceLimits, ResourceUsage,
    Settings,
};

/// Most sessions at once; beyond it the one that was idle longest is forgotten.
const SESSIONS_MAX: usize = 1024;
/// Bytes per token, where nobody counts tokens.
const BYTES_PER_TOKEN: u64 = 4;
/// Most tool calls of one reply that are read, and most bytes of the arguments of each.
const TOOL_CALLS_MAX: usize = 128;
const ARGUMENTS_BYTES_MAX: usize = 1 << 20;

/// What the proxy enforces.
#[derive(Debug, Clone, Default)]
pub struct ProxySettings {
    /// The regulator's settings; the hard caps hold for each session.
    pub regulator: Settings,
    /// Hard caps for all sessions of one API key together.
    pub key_caps: ResourceLimits,
    /// Only reports: nothing is refused or stopped.
    pub observe: bool,
}

/// A key and the name of one of its sessions. The key itself is not stored, only its digest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SessionId {
    pub(super) key: String,
    pub(super) name: String,
}

/// All sessions.
pub(super) struct Sessions {
    settings: ProxySettings,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    sessions: BTreeMap<SessionId, Session>,
    keys: BTreeMap<String, Ledger>,
    calls: u64,
}

struct Session {
    regulator: Regulator,
    ledger: Ledger,
    /// The call that the regulator follows.
    followed: Option<u64>,
    /// Calls that were refused, and replies that were cut.
    refused: u64,
    stopped: u64,
    used: u64,
}

/// What is spent: by calls that have ended, and so far by those under way.
#[derive(Debug, Default)]
struct Ledger {
    settled: ResourceUsage,
    running: BTreeMap<u64, ResourceUsage>,
    calls: u64,
}

impl Ledger {
    fn spent(&self) -> ResourceUsage {
        self.running.values().fold(self.settled, |sum, usage| sum.plus(*usage))
    }

    fn settle(&mut self, call: u64, usage: ResourceUsage) {
        if self.running.remove(&call).is_some() {
            self.settled = self.settled.plus(usage);
        }
    }
}

/// What holds for a session at some time.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Verdict {
    pub(super) turn: u64,
    /// The work should end: the reply that is being generated, and calls after it.
    pub(super) stop: bool,
    /// The next call may be made.
    pub(super) allow: bool,
    /// Every decision, the most urgent first, each with whether it is the `key`'s or the `session`'s.
    pub(super) decisions: Vec<(&'static str, RankedDecision)>,
}

impl Verdict {
    /// What to do about the most urgent circuit break.
    pub(super) fn suggestion(&self) -> String {
        let found = self.decisions.iter().find_map(|(scope, ranked)| match &ranked.decision {
            Decision::CircuitBreak { suggestion, .. } => Some(format!("the {scope} is stopped: {suggestion}")),
            _ => None,
        });
        found.unwrap_or_else(|| "the session is stopped".to_owned())
    }

    /// The most urgent decision.
    pub(super) fn first(&self) -> &'static str {
        self.decisions.first().map_or("continue", |(_, ranked)| ranked.decision.kind())
    }

    pub(super) fn json(&self, id: &SessionId, usage: ResourceUsage) -> Value {
        let decisions: Vec<Value> = self
            .decisions
            .iter()
            .map(|(scope, ranked)| {
                let mut fields = match serde_json::to_value(ranked) {
                    Ok(Value::Object(fields)) => fields,
                    _ => Map::new(),
                };
                fields.insert("scope".to_owned(), json!(scope));
                Value::Object(fields)
            })
            .collect();
        json!({ "session": id.name, "turn": self.turn, "stop": self.stop, "decision": self.first(), "decisions": decisions, "spent": usage })
    }
}

impl Sessions {
    pub(super) fn new(settings: ProxySettings) -> Self {
        Self { settings, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a call: its request is read, and its prompt counted until its usage is known.
    pub(super) fn begin(self: &Arc<Self>, id: SessionId, request: &Map<String, Value>) -> (Call, Verdict) {
        let mut state = self.state();
        state.calls += 1;
        let number = state.calls;
        let mut call = Call {
            sessions: Arc::clone(self),
            id,
            number,
            model: request.get("model").and_then(Value::as_str).map(str::to_owned),
            prompt_tokens: text_bytes(request.get("messages").or_else(|| request.get("prompt")))
                .div_ceil(BYTES_PER_TOKEN),
            tokens: 0,
            text_bytes: 0,
            billed: None,
            tools: Vec::new(),
            ended: false,
            refused: false,
            began: Instant::now(),
        };
        let usage = call.usage();
        let id = call.id.clone();
        state.session(&id, &self.settings, number).ledger.calls += 1;
        state.keys.entry(id.key.clone()).or_default().calls += 1;
        let session = state.session(&id, &self.settings, number);
        if session.followed.is_none() {
            session.followed = Some(number);
        }
        // Only what is spent already counts against the caps: the prompt's length is an estimate.
        let line = Value::Object(request.clone()).to_string();
        if session.followed == Some(number) {
            for event in EventLine::parse_line(&line).unwrap_or_default() {
                session.regulator.on_event(event.event());
            }
        }
        let verdict = state.verdict(&id, &self.settings);
        if verdict.allow || self.settings.observe {
            let session = state.session(&id, &self.settings, number);
            session.ledger.running.insert(number, usage);
            state.keys.entry(id.key.clone()).or_default().running.insert(number, usage);
        } else {
            state.session(&id, &self.settings, number).refused += 1;
            (call.ended, call.refused) = (true, true);
            if let Some(session) = state.sessions.get_mut(&id).filter(|session| session.followed == Some(number)) {
                session.followed = None;
            }
        }
        drop(state);
        (call, verdict)
    }

    /// What a session has spent.
    pub(super) fn spent(&self, id: &SessionId) -> ResourceUsage {
        self.state().sessions.get(id).map(|session| session.ledger.spent()).unwrap_or_default()
    }

    /// Hands a session's regulator events that it cannot see by itself: feedback, corrections, results of tools.
    pub(super) fn tell(&self, id: &SessionId, events: &[EventLine]) -> Verdict {
        let mut state = self.state();
        let number = state.calls;
        let session = state.session(id, &self.settings, number);
        events.iter().for_each(|event| session.regulator.on_event(event.event()));
        state.verdict(id, &self.settings)
    }

    /// Every session, the latest first.
    pub(super) fn overview(&self) -> Vec<Overview> {
        let state = self.state();
        let mut all: Vec<(u64, Overview)> = state
            .sessions
            .iter()
            .map(|(id, session)| {
                let overview = Overview {
                    id: id.clone(),
                    turns: session.regulator.turn(),
                    calls: session.ledger.calls,
                    running: session.ledger.running.len(),
                    spent: session.ledger.spent(),
                    key_spent: state.keys.get(&id.key).map(Ledger::spent).unwrap_or_default(),
                    refused: session.refused,
                    stopped: session.stopped,
                    verdict: state.verdict(id, &self.settings),
                };
                (session.used, overview)
            })
            .collect();
        all.sort_by_key(|(used, _)| std::cmp::Reverse(*used));
        all.into_iter().map(|(_, overview)| overview).collect()
    }
}

/// A session in the overview.
pub(super) struct Overview {
    pub(super) id: SessionId,
    pub(super) turns: u64,
    pub(super) calls: u64,
    pub(super) running: usize,
    pub(super) spent: ResourceUsage,
    pub(super) key_spent: ResourceUsage,
    pub(super) refused: u64,
    pub(super) stopped: u64,
    pub(super) verdict: Verdict,
}

impl State {
    fn session(&mut self, id: &SessionId, settings: &ProxySettings, now: u64) -> &mut Session {
        if !self.sessions.contains_key(id) && self.sessions.len() >= SESSIONS_MAX {
            let idle = self.sessions.iter().filter(|(_, session)| session.ledger.running.is_empty());
            let oldest = idle.min_by_key(|(_, session)| session.used).map(|(id, _)| id.clone());
            oldest.and_then(|id| self.sessions.remove(&id));
        }
        let session = self.sessions.entry(id.clone()).or_insert_with(|| {
            let mut own = settings.regulator.clone();
            own.cost.hard = ResourceLimits::default();
            let regulator = Regulator::new(own);
            Session { regulator, ledger: Ledger::default(), followed: None, refused: 0, stopped: 0, used: 0 }
        });
        session.used = now;
        session
    }

    fn verdict(&self, id: &SessionId, settings: &ProxySettings) -> Verdict {
        let mut decisions = Vec::new();
        let cost = &settings.regulator.cost;
        let of_key = CostSettings { hard: settings.key_caps, ..cost.clone() };
        let spent = self.keys.get(&id.key).map(Ledger::spent).unwrap_or_default();
        decisions.extend(of_key.reached(spent).map(|ranked| ("key", ranked)));
        let (mut turn, mut stop) = (0, false);
        if let Some(session) = self.sessions.get(id) {
            decisions.extend(cost.reached(session.ledger.spent()).map(|ranked| ("session", ranked)));
            turn = session.regulator.turn();
            stop = session.regulator.stop_requested();
            let own = session.regulator.decide().iter().filter(|ranked| ranked.decision != Decision::Continue);
            decisions.extend(own.map(|ranked| ("session", ranked.clone())));
        }
        decisions.sort_by_key(|(_, ranked)| ranked.decision.rank());
        let action = |wanted: BreakAction| {
            decisions.iter().any(
                |(_, ranked)| matches!(&ranked.decision, Decision::CircuitBreak { action, .. } if *action == wanted),
            )
        };
        stop |= action(BreakAction::Stop);
        let allow = !stop && !action(BreakAction::PauseAndAsk);
        Verdict { turn, stop, allow, decisions }
    }
}

/// One call, from its request to the end of its reply. A call that is dropped, because the client left, is settled with
/// what was counted.
pub(super) struct Call {
    sessions: Arc<Sessions>,
    pub(super) id: SessionId,
    number: u64,
    model: Option<String>,
    prompt_tokens: u64,
    tokens: u64,
    text_bytes: u64,
    billed: Option<ResourceUsage>,
    /// The tool calls of a streamed reply, in pieces: id, name, arguments.
    tools: Vec<(String, String, String)>,
    ended: bool,
    refused: bool,
    began: Instant,
}

impl Call {
    /// Whether it must not be made.
    pub(super) fn is_refused(&self) -> bool {
        self.refused
    }

    /// What it has cost so far: as the provider says, else as counted.
    pub(super) fn usage(&self) -> ResourceUsage {
        let wallclock_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let counted = ResourceUsage {
            tokens_in: self.prompt_tokens,
            tokens_out: self.tokens.saturating_add(self.text_bytes.div_ceil(BYTES_PER_TOKEN)),
            ..ResourceUsage::default()
        };
        let mut usage = self.billed.unwrap_or(counted);
        usage.money_micros = self.sessions.settings.regulator.cost.money_micros(self.model.as_deref(), &usage);
        usage.wallclock_ms = wallclock_ms;
        usage
    }

    /// Reads a part of the reply: a chunk of a stream, or all of it.
    pub(super) fn read(&mut self, data: &str) -> Verdict {
        let value: Value = serde_json::from_str(data).unwrap_or_default();
        let events: Vec<EventLine> = EventLine::parse_line(data).unwrap_or_default();
        if let Some(model) = value.get("model").and_then(Value::as_str) {
            self.model = Some(model.to_owned());
        }
        self.collect_tool_calls(&value);
        if let Some(usage) = value.get("usage").and_then(usage_of) {
            self.billed = Some(usage);
        } else if events.is_empty() {
            // A reply of another form, such as a text completion's.
            self.text_bytes = self.text_bytes.saturating_add(text_bytes(value.get("choices")));
        }
        for event in &events {
            match event.event() {
                LlmEvent::Token { .. } => self.tokens += 1,
                LlmEvent::Text { text } => self.text_bytes += text.len() as u64,
                _ => {}
            }
        }
        let usage = self.usage();
        let mut state = self.sessions.state();
        if let Some(session) = state.sessions.get_mut(&self.id) {
            session.ledger.running.insert(self.number, usage);
            if session.followed == Some(self.number) {
                events.iter().for_each(|event| session.regulator.on_event(event.event()));
            }
        }
        if let Some(key) = state.keys.get_mut(&self.id.key) {
            key.running.insert(self.number, usage);
        }
        state.verdict(&self.id, &self.sessions.settings)
    }

    /// Whether the reply is to be stopped now.
    pub(super) fn is_stopped(&self, verdict: &Verdict) -> bool {
        verdict.stop && !self.sessions.settings.observe
    }

    /// The pieces of streamed tool calls, which come by index.
    fn collect_tool_calls(&mut self, value: &Value) {
        let pieces = value.pointer("/choices/0/delta/tool_calls").and_then(Value::as_array);
        for piece in pieces.into_iter().flatten() {
            let index = piece.get("index").and_then(Value::as_u64).unwrap_or(0) as usize;
            if index >= TOOL_CALLS_MAX {
                continue;
            }
            if self.tools.len() <= index {
                self.tools.resize(index + 1, Default::default());
            }
            let Some((id, name, arguments)) = self.tools.get_mut(index) else { continue };
            let text = |path: &str| piece.pointer(path).and_then(Value::as_str).unwrap_or_default();
            id.push_str(text("/id"));
            name.push_str(text("/function/name"));
            if arguments.len() < ARGUMENTS_BYTES_MAX {
                arguments.push_str(text("/function/arguments"));
            }
        }
    }

    /// The reply has ended; `cut` if the proxy stopped it.
    pub(super) fn end(&mut self, cut: bool) -> (Verdict, ResourceUsage) {
        let usage = self.usage();
        let mut state = self.sessions.state();
        if !std::mem::replace(&mut self.ended, true) {
            if let Some(session) = state.sessions.get_mut(&self.id) {
                session.ledger.settle(self.number, usage);
                session.stopped += u64::from(cut);
                if session.followed == Some(self.number) {
                    session.followed = None;
                    for (id, name, arguments) in self.tools.drain(..).filter(|(_, name, _)| !name.is_empty()) {
                        let call_id = Some(id.as_str()).filter(|id| !id.is_empty());
                        session.regulator.on_event(LlmEvent::ToolCall {
                            call_id,
                            tool_name: &name,
                            args_json: &arguments,
                        });
                    }
                    if cut {
                        let finish = Some(Finish::Cancelled);
                        session.regulator.on_event(LlmEvent::TurnComplete { full_response: "", finish });
                    }
                }
            }
            if let Some(key) = state.keys.get_mut(&self.id.key) {
                key.settle(self.number, usage);
            }
        }
        let spent = state.sessions.get(&self.id).map(|session| session.ledger.spent()).unwrap_or_default();
        (state.verdict(&self.id, &self.sessions.settings), spent)
    }

    /// The call failed upstream: nothing is counted.
    pub(super) fn failed(&mut self) -> (Verdict, ResourceUsage) {
        self.billed = Some(ResourceUsage::default());
        self.end(false)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.ended {
            self.end(false);
        }
    }
}

/// A provider's usage: of chat and text completions, or of responses.
fn usage_of(usage: &Value) -> Option<ResourceUsage> {
    let count = |names: [&str; 2]| names.iter().find_map(|name| usage.get(*name).and_then(Value::as_u64));
    let cached = ["/prompt_tokens_details/cached_tokens", "/input_tokens_details/cached_tokens"];
    Some(ResourceUsage {
        tokens_in: count(["prompt_tokens", "input_tokens"])?,
        tokens_out: count(["completion_tokens", "output_tokens"]).unwrap_or(0),
        tokens_cached: cached.iter().find_map(|path| usage.pointer(path).and_then(Value::as_u64)).unwrap_or(0),
        ..ResourceUsage::default()
    })
}

/// The bytes of all texts in a value.
fn text_bytes(value: Option<&Value>) -> u64 {
    match value {
        Some(Value::String(text)) => text.len() as u64,
        Some(Value::Array(items)) => items.iter().map(|item| text_bytes(Some(item))).sum(),
        Some(Value::Object(fields)) => {
            ["content", "text", "delta", "message"].iter().map(|name| text_bytes(fields.get(*name))).sum()
        }
        _ => 0,
    }
}
