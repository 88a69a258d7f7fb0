//! Parses a chart's text, line by line, to a draft with unresolved names; the loader resolves them.
//!
//! ```text
//! chart NAME
//! amendment NUMBER "TEXT"
//! counter NAME LIMIT
//!
//! state NAME ["LABEL"] [@AMENDMENT]                 parallel, final: the same; states inside are indented
//!   initial TARGETS [/ ACTS]                        default: the first child
//!   entry ACTS                                      exit: the same
//!   history NAME shallow|deep -> TARGETS [/ ACTS] [@AMENDMENT]
//!   on EVENTS [CONDITIONS] [spend COUNTER] [refill COUNTERS] [/ ACTS] [-> TARGETS] ["LABEL"] [@AMENDMENT]
//!   always …                                        the same, without an event
//! ```
//!
//! CONDITIONS are in brackets: `[guard, not guard, in STATE, not in STATE]`. An act is an action's name or
//! `raise EVENT`. `on done` is the completion of the state itself, `on done(STATE)` that of another. `~>` instead of `->`
//! is an internal transition. `#` begins a comment. Lists are separated by commas.

use super::chart::StateKind;
use super::line::{Line, Token, Word};
use crate::foundation::config::{Problem, Problems, Span};

/// A parsed chart with unresolved names.
#[derive(Debug, Default)]
pub(super) struct Draft<'t> {
    pub(super) name: Option<Word<'t>>,
    pub(super) amendments: Vec<(Word<'t>, &'t str)>,
    pub(super) counters: Vec<(Word<'t>, Word<'t>)>,
    /// In document order; the first is the chart itself.
    pub(super) states: Vec<StateDraft<'t>>,
}

#[derive(Debug)]
pub(super) struct StateDraft<'t> {
    pub(super) kind: StateKind,
    pub(super) name: Word<'t>,
    pub(super) parent: Option<usize>,
    pub(super) label: Option<&'t str>,
    pub(super) amendment: Option<Word<'t>>,
    pub(super) initial: Option<InitialDraft<'t>>,
    pub(super) entry: Vec<ActDraft<'t>>,
    pub(super) exit: Vec<ActDraft<'t>>,
    pub(super) transitions: Vec<TransitionDraft<'t>>,
}

#[derive(Debug)]
pub(super) struct InitialDraft<'t> {
    pub(super) targets: Vec<Word<'t>>,
    pub(super) acts: Vec<ActDraft<'t>>,
}

#[derive(Debug)]
pub(super) struct ActDraft<'t> {
    pub(super) raise: bool,
    pub(super) word: Word<'t>,
}

#[derive(Debug)]
pub(super) enum TriggerDraft<'t> {
    Event(Word<'t>),
    /// Completion of a state; of the source itself if none is named.
    Done(Option<Word<'t>>),
}

#[derive(Debug)]
pub(super) struct ConditionDraft<'t> {
    pub(super) wanted: bool,
    pub(super) in_state: bool,
    pub(super) word: Word<'t>,
}

#[derive(Debug)]
pub(super) struct TransitionDraft<'t> {
    pub(super) span: Span,
    pub(super) triggers: Vec<TriggerDraft<'t>>,
    pub(super) conditions: Vec<ConditionDraft<'t>>,
    pub(super) spend: Option<Word<'t>>,
    pub(super) refill: Vec<Word<'t>>,
    pub(super) acts: Vec<ActDraft<'t>>,
    pub(super) targets: Vec<Word<'t>>,
    pub(super) internal: bool,
    pub(super) label: Option<&'t str>,
    pub(super) amendment: Option<Word<'t>>,
}

impl<'t> StateDraft<'t> {
    fn new(kind: StateKind, name: Word<'t>, parent: Option<usize>) -> Self {
        Self {
            kind,
            name,
            parent,
            label: None,
            amendment: None,
            initial: None,
            entry: Vec::new(),
            exit: Vec::new(),
            transitions: Vec::new(),
        }
    }
}

/// Parses a chart's text. A line that cannot be parsed is reported, and parsing continues with the next.
pub(super) fn read<'t>(text: &'t str, problems: &mut Problems<'_>) -> Draft<'t> {
    let root = StateDraft::new(StateKind::Compound, Word { text: "", span: 0..0 }, None);
    let mut draft = Draft { states: vec![root], ..Draft::default() };
    // The open states, outermost first: the indentation of each one's own line and of the lines inside it.
    let mut open = vec![Open { state: 0, indent: None, inside: Some(0) }];
    let mut offset = 0;
    for whole in text.split_inclusive('\n') {
        let start = offset;
        offset += whole.len();
        let indent = whole.len() - whole.trim_start_matches(' ').len();
        let mut line = match Line::lex(whole, start) {
            Ok(line) => line,
            Err(problem) => {
                problems.add(problem);
                continue;
            }
        };
        if line.tokens.is_empty() {
            continue;
        }
        while open.last().is_some_and(|open| open.indent.is_some_and(|own| indent <= own)) {
            open.pop();
        }
        let Some(top) = open.last_mut() else { continue };
        if *top.inside.get_or_insert(indent) != indent {
            let message = "this line's indentation matches no enclosing state";
            problems.add(Problem::new(line.all(), message).help("align it with the lines of its state"));
            continue;
        }
        let parent = top.state;
        match draft.line(parent, &mut line) {
            Ok(None) => {}
            Ok(Some(state)) => open.push(Open { state, indent: Some(indent), inside: None }),
            Err(problem) => problems.add(problem),
        }
    }
    draft
}

struct Open {
    state: usize,
    indent: Option<usize>,
    inside: Option<usize>,
}

impl<'t> Draft<'t> {
    /// Parses one line in the state `parent`; returns the index of the state that it opens, if any.
    fn line(&mut self, parent: usize, line: &mut Line<'t>) -> Result<Option<usize>, Problem> {
        let keyword = line.word("a keyword")?;
        let top = parent == 0;
        match keyword.text {
            "chart" if top && self.name.is_none() => self.name = Some(line.word("the chart's name")?),
            "amendment" if top => {
                self.amendments.push((line.word("its number")?, line.text("what it says, in quotes")?));
            }
            "counter" if top => self.counters.push((line.word("its name")?, line.word("its limit")?)),
            "state" | "parallel" | "final" | "history" => {
                let kind = match keyword.text {
                    "parallel" => StateKind::Parallel,
                    "final" => StateKind::Final,
                    "history" => StateKind::History { deep: false },
                    _ => StateKind::Atomic,
                };
                let mut state = StateDraft::new(kind, line.word("the state's name")?, Some(parent));
                if let StateKind::History { deep } = &mut state.kind {
                    let depth = line.word("`shallow` or `deep`")?;
                    *deep = match depth.text {
                        "shallow" => false,
                        "deep" => true,
                        _ => return Err(Problem::new(depth.span, "a history is `shallow` or `deep`")),
                    };
                    line.need("->")?;
                    state.initial = Some(InitialDraft { targets: line.words("a state")?, acts: line.acts()? });
                }
                state.label = line.maybe_text();
                state.amendment = line.amendment()?;
                line.end()?;
                self.states.push(state);
                return Ok(Some(self.states.len() - 1));
            }
            "initial" | "entry" | "exit" | "on" | "always" => {
                let Some(state) = self.states.get_mut(parent) else { return Ok(None) };
                match keyword.text {
                    "initial" => {
                        let initial = InitialDraft { targets: line.words("a state")?, acts: line.acts()? };
                        if state.initial.replace(initial).is_some() {
                            return Err(
                                Problem::new(keyword.span, "`initial` is given twice").help("keep one of the two")
                            );
                        }
                    }
                    "entry" => state.entry.extend(line.act_list()?),
                    "exit" => state.exit.extend(line.act_list()?),
                    _ if top => {
                        let message = "the chart itself has no transitions";
                        return Err(Problem::new(keyword.span, message).help("indent it under a state"));
                    }
                    word => state.transitions.push(line.transition(word == "on")?),
                }
            }
            other => {
                let message = format!("a line cannot begin with `{other}` here");
                let help = if top {
                    "a line begins with chart, amendment, counter, state, parallel, final, history or initial"
                } else {
                    "a line begins with state, parallel, final, history, initial, entry, exit, on or always"
                };
                return Err(Problem::new(keyword.span, message).help(help));
            }
        }
        line.end()?;
        Ok(None)
    }
}

impl<'t> Line<'t> {
    fn act_list(&mut self) -> Result<Vec<ActDraft<'t>>, Problem> {
        self.list(|line| {
            let raise = line.keyword("raise");
            Ok(ActDraft { raise, word: line.word(if raise { "an event" } else { "an action" })? })
        })
    }

    /// The executable content after a slash, if any.
    fn acts(&mut self) -> Result<Vec<ActDraft<'t>>, Problem> {
        if self.sign("/") { self.act_list() } else { Ok(Vec::new()) }
    }

    fn amendment(&mut self) -> Result<Option<Word<'t>>, Problem> {
        if self.sign("@") { self.word("an amendment's number").map(Some) } else { Ok(None) }
    }

    fn trigger(&mut self) -> Result<TriggerDraft<'t>, Problem> {
        let word = self.word("an event")?;
        if word.text != "done" {
            return Ok(TriggerDraft::Event(word));
        }
        if !self.sign("(") {
            return Ok(TriggerDraft::Done(None));
        }
        let state = self.word("a state")?;
        self.need(")")?;
        Ok(TriggerDraft::Done(Some(state)))
    }

    fn condition(&mut self) -> Result<ConditionDraft<'t>, Problem> {
        let wanted = !self.keyword("not");
        let in_state = self.keyword("in");
        Ok(ConditionDraft { wanted, in_state, word: self.word(if in_state { "a state" } else { "a guard" })? })
    }

    fn transition(&mut self, has_events: bool) -> Result<TransitionDraft<'t>, Problem> {
        let span = self.all();
        let triggers = if has_events { self.list(Self::trigger)? } else { Vec::new() };
        let mut conditions = Vec::new();
        if self.sign("[") {
            conditions = self.list(Self::condition)?;
            self.need("]")?;
        }
        let spend = if self.keyword("spend") { Some(self.word("a counter")?) } else { None };
        let refill = if self.keyword("refill") { self.words("a counter")? } else { Vec::new() };
        let acts = self.acts()?;
        let internal = self.peek() == Some(Token::Sign("~>"));
        let targets = if self.sign("->") || self.sign("~>") { self.words("a state")? } else { Vec::new() };
        let label = self.maybe_text();
        let amendment = self.amendment()?;
        Ok(TransitionDraft { span, triggers, conditions, spend, refill, acts, targets, internal, label, amendment })
    }
}
