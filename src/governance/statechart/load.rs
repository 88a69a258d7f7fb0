//! Resolves a draft to a chart: names to ids, words to events, guards and actions. Problems are reported with positions.

use super::chart::{
    Amendment, Chart, Condition, ConditionTest, Counter, CounterId, Executable, InitialEntry, State, StateKind,
    Transition, TransitionId, Trigger, Vocabulary,
};
use super::check;
use super::line::Word;
use super::set::{StateId, StateSet};
use super::text::{self, ActDraft, ConditionDraft, Draft, StateDraft, TransitionDraft, TriggerDraft};
use crate::foundation::base::{Digest, limits};
use crate::foundation::config::{Choice, ConfigErrors, Problem, Problems, nearest};

impl<V: Vocabulary> Chart<V> {
    /// Parses a chart and runs all checks: every state is reachable, every handled event has an unconditional fallback, and
    /// every cycle has a counter.
    ///
    /// # Errors
    /// Every problem, with its position in the text.
    pub fn load(source_name: &str, text: &str) -> Result<Self, ConfigErrors> {
        Self::read_and(source_name, text, check::check)
    }

    /// Parses a chart without the checks.
    ///
    /// # Errors
    /// Every problem, with its position in the text.
    pub fn read(source_name: &str, text: &str) -> Result<Self, ConfigErrors> {
        Self::read_and(source_name, text, |_, _| {})
    }

    fn read_and(
        source_name: &str,
        text: &str,
        check: impl FnOnce(&Self, &mut Problems<'_>),
    ) -> Result<Self, ConfigErrors> {
        let mut problems = Problems::new(text);
        let draft = text::read(text, &mut problems);
        let chart = Loader { draft: &draft, problems: &mut problems }.chart(Digest::of(text));
        // If a line could not be parsed, the checks would report consequential errors.
        if let Some(chart) = &chart
            && problems.is_empty()
        {
            check(chart, &mut problems);
        }
        problems.finish(source_name, chart)
    }
}

struct Loader<'d, 't, 'p, 's> {
    draft: &'d Draft<'t>,
    problems: &'p mut Problems<'s>,
}

impl Loader<'_, '_, '_, '_> {
    fn chart<V: Vocabulary>(mut self, digest: Digest) -> Option<Chart<V>> {
        let draft = self.draft;
        let Some(name) = &draft.name else {
            self.problems.add(Problem::new(0..0, "the chart has no name").help("begin it with `chart NAME`"));
            return None;
        };
        let edges: usize = draft.states.iter().map(|state| state.transitions.len()).sum();
        for (what, have, most) in [
            ("states", draft.states.len(), limits::CHART_STATES_MAX),
            ("transitions", edges, limits::CHART_TRANSITIONS_MAX),
            ("counters", draft.counters.len(), usize::from(u8::MAX)),
        ] {
            if have > most {
                let message = format!("the chart has {have} {what}; a chart may have {most}");
                self.problems.add(Problem::new(name.span.clone(), message).help("split it into several charts"));
                return None;
            }
        }
        let mut chart = Chart {
            name: name.text.to_owned(),
            digest,
            states: Vec::new(),
            transitions: Vec::new(),
            counters: self.counters(),
            amendments: self.amendments(),
            leaves: StateSet::EMPTY,
        };
        for (index, state) in draft.states.iter().enumerate() {
            let ids = chart.transitions.len()..chart.transitions.len() + state.transitions.len();
            chart.states.push(self.state(index, state, ids.map(|id| TransitionId(id as u16)).collect()));
            for transition in &state.transitions {
                chart.transitions.push(self.transition(StateId(index as u8), transition));
            }
        }
        let leaves = chart.states().filter(|(_, state)| matches!(state.kind, StateKind::Atomic | StateKind::Final));
        chart.leaves = leaves.map(|(id, _)| id).collect();
        self.targets_can_be_active_together(&chart);
        Some(chart)
    }

    fn counters(&mut self) -> Vec<Counter> {
        let mut counters: Vec<Counter> = Vec::new();
        for (name, limit) in &self.draft.counters {
            if counters.iter().any(|earlier| earlier.name == name.text) {
                self.twice(name, "counter");
            }
            let limit = self.number(limit, "a counter's limit");
            counters.push(Counter { name: name.text.to_owned(), limit, span: name.span.clone() });
        }
        counters
    }

    fn amendments(&mut self) -> Vec<Amendment> {
        let mut amendments: Vec<Amendment> = Vec::new();
        for (word, text) in &self.draft.amendments {
            let number = self.number(word, "an amendment's number");
            if amendments.iter().any(|earlier| earlier.number == number) {
                self.twice(word, "amendment");
            }
            amendments.push(Amendment { number, text: (*text).to_owned(), span: word.span.clone() });
        }
        amendments
    }

    fn number(&mut self, word: &Word<'_>, what: &str) -> u16 {
        word.text.parse().ok().filter(|number| *number > 0).unwrap_or_else(|| {
            let message = format!("{what} is a whole number from 1 to {}", u16::MAX);
            self.problems.add(Problem::new(word.span.clone(), message));
            1
        })
    }

    fn twice(&mut self, word: &Word<'_>, what: &str) {
        let message = format!("the {what} `{}` is defined twice", word.text);
        self.problems.add(Problem::new(word.span.clone(), message).label("again here").help("rename one of them"));
    }

    fn state<V: Vocabulary>(&mut self, index: usize, draft: &StateDraft<'_>, own: Vec<TransitionId>) -> State<V> {
        let id = StateId(index as u8);
        let inner = |history: bool| {
            let all = self.draft.children(index).filter(|child| self.draft.is_history(*child) == history);
            all.map(|child| StateId(child as u8)).collect::<StateSet>()
        };
        let (children, histories) = (inner(false), inner(true));
        let inside = (index + 1..self.draft.states.len()).filter(|other| self.draft.is_inside(*other, index));
        let inside = inside.map(|other| StateId(other as u8)).collect();
        let kind = match draft.kind {
            StateKind::Atomic if !children.is_empty() || index == 0 => StateKind::Compound,
            kind => kind,
        };
        self.form(index, draft, kind, children);
        let initial = match (&draft.initial, kind) {
            (Some(initial), StateKind::Compound | StateKind::History { .. }) => Some(self.initial(id, draft, initial)),
            (None, StateKind::Compound) => {
                children.iter().next().map(|first| InitialEntry { targets: vec![first], acts: vec![] })
            }
            _ => None,
        };
        let path = self.draft.path(index);
        State {
            name: draft.name.text.to_owned(),
            path,
            label: draft.label.map(str::to_owned),
            kind,
            parent: draft.parent.map(|parent| StateId(parent as u8)),
            children,
            histories,
            inside,
            entry: self.acts(&draft.entry),
            exit: self.acts(&draft.exit),
            initial,
            transitions: own,
            amendment: self.amendment(draft.amendment.as_ref()),
            span: draft.name.span.clone(),
        }
    }

    /// Checks what a state's kind forbids.
    fn form(&mut self, index: usize, draft: &StateDraft<'_>, kind: StateKind, children: StateSet) {
        let name = &draft.name;
        let mut fault = |message: String, help: &str| {
            self.problems.add(Problem::new(name.span.clone(), message).help(help));
        };
        let plain = draft.transitions.is_empty() && draft.entry.is_empty() && draft.exit.is_empty();
        match kind {
            StateKind::Compound if children.is_empty() => fault("the chart has no states".into(), "add `state NAME`"),
            StateKind::Parallel if children.is_empty() => {
                fault(format!("`{}` is parallel and has no states inside", name.text), "indent its regions under it");
            }
            StateKind::Final if !children.is_empty() || !draft.transitions.is_empty() => {
                fault(format!("`{}` is final: it has no children and no transitions", name.text), "make it a `state`");
            }
            StateKind::History { .. } if !children.is_empty() || !plain => {
                fault(format!("`{}` is a history: it has no contents", name.text), "put them into its parent state");
            }
            StateKind::Atomic | StateKind::Parallel | StateKind::Final if draft.initial.is_some() => {
                fault(format!("`{}` has no child states", name.text), "leave `initial` out");
            }
            _ => {}
        }
        if name.text.contains('.') {
            fault("a state's name has no dots".into(), "nest the states in place of dots");
        }
        let siblings = draft.parent.map(|parent| self.draft.children(parent).take_while(move |other| *other < index));
        if siblings.is_some_and(|mut siblings| siblings.any(|other| self.draft.name(other) == name.text)) {
            self.twice(name, "state");
        }
    }

    fn initial<V: Vocabulary>(
        &mut self,
        id: StateId,
        draft: &StateDraft<'_>,
        initial: &text::InitialDraft<'_>,
    ) -> InitialEntry<V> {
        let home =
            if matches!(draft.kind, StateKind::History { .. }) { draft.parent.unwrap_or(0) } else { usize::from(id.0) };
        let targets = self.targets(usize::from(id.0), &initial.targets);
        for (target, word) in targets.iter().zip(&initial.targets) {
            if !self.draft.is_inside(usize::from(target.0), home) {
                let message = format!("`{}` is not inside `{}`", word.text, self.draft.name(home));
                self.problems.add(Problem::new(word.span.clone(), message).help("name a state inside it"));
            }
            if [id, *target].iter().all(|id| self.draft.is_history(usize::from(id.0))) {
                let problem = Problem::new(word.span.clone(), "a history leads to a state, not to another history");
                self.problems.add(problem.help("name a state"));
            }
        }
        InitialEntry { targets, acts: self.acts(&initial.acts) }
    }

    fn transition<V: Vocabulary>(&mut self, source: StateId, draft: &TransitionDraft<'_>) -> Transition<V> {
        let at = usize::from(source.0);
        let spend = draft.spend.as_ref().and_then(|word| self.counter(word));
        let refill: Vec<_> = draft.refill.iter().filter_map(|word| Some((self.counter(word)?, word))).collect();
        for (counter, word) in &refill {
            // This makes the counters decrease lexicographically.
            if spend.is_none_or(|spend| *counter <= spend) {
                let message = format!(
                    "`{}` can only be refilled by a transition that spends a counter declared before it",
                    word.text
                );
                let help = "otherwise counters could refill each other forever; move it down in the list of counters";
                self.problems.add(Problem::new(word.span.clone(), message).help(help));
            }
        }
        Transition {
            source,
            triggers: draft.triggers.iter().filter_map(|trigger| self.trigger(source, trigger)).collect(),
            conditions: draft.conditions.iter().filter_map(|condition| self.condition(at, condition)).collect(),
            spend,
            refill: refill.into_iter().map(|(counter, _)| counter).collect(),
            acts: self.acts(&draft.acts),
            targets: self.targets(at, &draft.targets),
            internal: draft.internal,
            label: draft.label.map(str::to_owned),
            amendment: self.amendment(draft.amendment.as_ref()),
            span: draft.span.clone(),
        }
    }

    fn trigger<V: Vocabulary>(&mut self, source: StateId, draft: &TriggerDraft<'_>) -> Option<Trigger<V>> {
        Some(match draft {
            TriggerDraft::Event(word) => Trigger::Event(self.choose(word, "event")?),
            TriggerDraft::Done(None) => Trigger::Done(source),
            TriggerDraft::Done(Some(word)) => Trigger::Done(self.resolve(usize::from(source.0), word)?),
        })
    }

    fn condition<V: Vocabulary>(&mut self, at: usize, draft: &ConditionDraft<'_>) -> Option<Condition<V>> {
        let test = if draft.in_state {
            ConditionTest::In(self.resolve(at, &draft.word)?)
        } else {
            ConditionTest::Guard(self.choose(&draft.word, "guard")?)
        };
        Some(Condition { test, wanted: draft.wanted })
    }

    fn acts<V: Vocabulary>(&mut self, drafts: &[ActDraft<'_>]) -> Vec<Executable<V>> {
        let act = |draft: &ActDraft<'_>| {
            Some(if draft.raise {
                Executable::Raise(self.choose(&draft.word, "event")?)
            } else {
                Executable::Do(self.choose(&draft.word, "action")?)
            })
        };
        drafts.iter().filter_map(act).collect()
    }

    fn choose<T: Choice>(&mut self, word: &Word<'_>, what: &str) -> Option<T> {
        let found = T::NAMES.iter().find(|(name, _)| *name == word.text).map(|(_, value)| *value);
        if found.is_none() {
            self.unknown(word, what, &T::NAMES.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        }
        found
    }

    fn counter(&mut self, word: &Word<'_>) -> Option<CounterId> {
        let found = self.draft.counters.iter().position(|(name, _)| name.text == word.text);
        if found.is_none() {
            self.unknown(word, "counter", &self.draft.counters.iter().map(|(name, _)| name.text).collect::<Vec<_>>());
        }
        found.map(|index| CounterId(index as u8))
    }

    fn amendment(&mut self, word: Option<&Word<'_>>) -> Option<u16> {
        let word = word?;
        let known = self.draft.amendments.iter().map(|(number, _)| number.text);
        if !known.clone().any(|number| number == word.text) {
            self.unknown(word, "amendment", &known.collect::<Vec<_>>());
            return None;
        }
        word.text.parse().ok()
    }

    fn unknown(&mut self, word: &Word<'_>, what: &str, known: &[&str]) {
        let problem = Problem::new(word.span.clone(), format!("`{}` is not a known {what}", word.text));
        let help = match nearest(word.text, known.iter().copied()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None if known.is_empty() => format!("none is declared; declare it with `{what} …` at the top"),
            None => format!("known here: {}", known.join(", ")),
        };
        self.problems.add(problem.label(format!("unknown {what}")).help(help));
    }

    fn targets(&mut self, at: usize, words: &[Word<'_>]) -> Vec<StateId> {
        words.iter().filter_map(|word| self.resolve(at, word)).collect()
    }

    /// Resolves a state's name relative to `at`: first among its descendants, then among its siblings, and so on outwards.
    fn resolve(&mut self, at: usize, word: &Word<'_>) -> Option<StateId> {
        let found = self.draft.find(at, word.text);
        if found.is_none() {
            let paths: Vec<String> = (1..self.draft.states.len()).map(|index| self.draft.path(index)).collect();
            let names = paths.iter().map(String::as_str);
            let last = |path: &'_ &str| path.rsplit('.').next() == word.text.rsplit('.').next();
            match names.clone().find(last) {
                Some(path) => {
                    let problem = Problem::new(word.span.clone(), format!("`{}` is not visible from here", word.text));
                    self.problems.add(problem.label("unknown state").help(format!("write `{path}`")));
                }
                None => self.unknown(word, "state", &names.collect::<Vec<_>>()),
            }
        }
        found.map(|index| StateId(index as u8))
    }

    fn targets_can_be_active_together<V: Vocabulary>(&mut self, chart: &Chart<V>) {
        let together = |a: StateId, b: StateId| {
            let meeting = chart.ancestors(a).find(|state| chart.state(*state).inside.contains(b));
            let apart = a != b && !chart.state(a).inside.contains(b) && !chart.state(b).inside.contains(a);
            apart && meeting.is_some_and(|meeting| chart.state(meeting).kind == StateKind::Parallel)
        };
        let of_states = chart.states.iter().filter_map(|state| Some((&state.initial.as_ref()?.targets, &state.span)));
        let of_transitions = chart.transitions.iter().map(|transition| (&transition.targets, &transition.span));
        for (targets, span) in of_states.chain(of_transitions) {
            let mut pairs =
                targets.iter().enumerate().flat_map(|(n, a)| targets.iter().skip(n + 1).map(move |b| (*a, *b)));
            if let Some((a, b)) = pairs.find(|(a, b)| !together(*a, *b)) {
                let (a, b) = (&chart.state(a).path, &chart.state(b).path);
                let message = format!("`{a}` and `{b}` cannot be active at the same time");
                let help = "several targets must be in different regions of a parallel state";
                self.problems.add(Problem::new(span.clone(), message).help(help));
            }
        }
    }
}
