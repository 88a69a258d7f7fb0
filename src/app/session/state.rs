//! The pure part of a session: the chart's configuration, the facts and the remaining steps, computed from its events.

use std::collections::VecDeque;
use std::sync::Arc;

use super::need::{Plan, StatedPlan};
use super::outcome::{ActionOutcome, Answer, SessionEvent, Work, WorkItemKind, all_hold};
use super::questions;
use crate::foundation::base::Digest;
use crate::governance::statechart::hope::{
    Action, Aspects, Engagement, Event, ExpertConfidence, Facts, FitScore, HopeVocabulary, Shape,
};
use crate::governance::statechart::{Chart, Configuration, start, step};
use crate::simulation::persona::AdversaryKind;

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Todo {
    /// Perform this action.
    Do(Action),
    /// Send this event to the chart.
    Send(Event),
}

/// A log with an impossible event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the log has {found} where {expected} was expected: another version of loom wrote it, or it was altered")]
pub struct Mismatch {
    found: String,
    expected: String,
}

/// The state of a session.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SessionState {
    pub(super) configuration: Configuration,
    pub(super) facts: Facts,
    pub(super) work: Work,
    pub(super) waiting: bool,
    /// The parts of the plan given on the command line.
    from_command_line: StatedPlan,
    todo: VecDeque<Todo>,
}

impl SessionState {
    /// The initial state.
    pub(super) fn begin(
        chart: &Chart<HopeVocabulary>,
        need: &str,
        from_command_line: &StatedPlan,
        engagement: Option<Engagement>,
    ) -> Self {
        let plan = Plan::read(need, from_command_line);
        let facts = Facts { engagement, spec: plan.clarity(need), ..Facts::default() };
        let begun = start(chart, |guard| facts.holds(guard));
        let work = Work::new(1, need.to_owned(), plan);
        let todo = begun.effects.into_iter().map(Todo::Do).collect();
        Self {
            configuration: begun.configuration,
            facts,
            work,
            waiting: false,
            from_command_line: from_command_line.clone(),
            todo,
        }
    }

    /// Whether an answer is expected: a question was asked, or there is no next step and the work is not over.
    pub(super) fn is_open(&self) -> bool {
        self.next().is_none() && (self.waiting || self.work.conclusion.is_none())
    }

    /// Whether the work is over: only a new need is accepted.
    pub(super) fn is_over(&self) -> bool {
        self.next().is_none() && !self.waiting && self.work.conclusion.is_some()
    }

    /// The next step; `None` while the session waits for the user, and when it is over. The self-check and the footer
    /// of a response come before waiting.
    pub(super) fn next(&self) -> Option<Todo> {
        let front = self.todo.front().copied();
        front.filter(|todo| match todo {
            Todo::Do(action) => !self.waiting || is_self_check(*action),
            Todo::Send(_) => true,
        })
    }

    /// The paths of the active leaves.
    pub(super) fn leaves(&self, chart: &Chart<HopeVocabulary>) -> Vec<String> {
        self.configuration.leaves(chart).into_iter().map(str::to_owned).collect()
    }

    /// The stage of the work: the active leaf that is not part of the self-check.
    pub(super) fn stage(&self, chart: &Chart<HopeVocabulary>) -> String {
        let leaf = self.configuration.leaves(chart).into_iter().find(|leaf| !leaf.contains("soul"));
        leaf.and_then(|leaf| leaf.rsplit('.').next()).unwrap_or_default().to_owned()
    }

    /// Computes the event record of sending `event` to the chart.
    pub(super) fn send(&self, chart: &Chart<HopeVocabulary>, event: Event) -> SessionEvent {
        let step = step(chart, &self.configuration, event, |guard| self.facts.holds(guard));
        let leaves = step.configuration.leaves(chart).into_iter().map(str::to_owned).collect();
        SessionEvent::EventSent { event, leaves, denied: step.denial.map(|denial| denial.to_string()) }
    }

    /// Applies an event. `words` looks up texts of answers by digest.
    pub(super) fn apply(
        &mut self,
        chart: &Arc<Chart<HopeVocabulary>>,
        event: &SessionEvent,
        words: impl Fn(Digest) -> Option<String>,
    ) -> Result<(), Mismatch> {
        let found = format!("{event:?}");
        let mismatch = |expected: String| Mismatch { found: found.chars().take(200).collect(), expected };
        match event {
            SessionEvent::ActionDone { action, outcome, next_events, waits } => {
                if self.next() != Some(Todo::Do(*action)) {
                    return Err(mismatch(format!("{:?}", self.next())));
                }
                self.todo.pop_front();
                self.facts.note(*action);
                self.apply_outcome(*action, outcome);
                for event in next_events.iter().rev() {
                    self.todo.push_front(Todo::Send(*event));
                }
                self.waiting |= *waits;
            }
            SessionEvent::EventSent { event, leaves, denied } => {
                if self.next() != Some(Todo::Send(*event)) {
                    return Err(mismatch(format!("{:?}", self.next())));
                }
                self.todo.pop_front();
                let step = step(chart, &self.configuration, *event, |guard| self.facts.holds(guard));
                if step.configuration.leaves(chart) != *leaves
                    || step.denial.as_ref().map(ToString::to_string) != *denied
                {
                    return Err(mismatch(format!("{:?}", step.configuration.leaves(chart))));
                }
                self.work.reshaped |= *event == Event::Reshape;
                if denied.is_none() && drops_remaining_steps(*event) {
                    self.todo.clear();
                }
                self.configuration = step.configuration;
                // Self-check actions come first: the engagement mode is known before any question, and a response has
                // its footer before the work continues.
                let (self_check, work): (Vec<_>, Vec<_>) =
                    step.effects.into_iter().partition(|action| is_self_check(*action));
                for action in self_check.into_iter().chain(work).rev() {
                    self.todo.push_front(Todo::Do(action));
                }
            }
            SessionEvent::Answered { answer, event } => {
                if !self.is_open() && !self.is_over() {
                    return Err(mismatch("no answer".to_owned()));
                }
                self.waiting = false;
                if *event == Event::NewWork {
                    // The verification was about the work before.
                    self.work.checks.clear();
                    self.facts.gate_passed = false;
                }
                self.apply_answer(answer, *event, words);
                self.todo.push_front(Todo::Send(*event));
            }
        }
        Ok(())
    }

    fn apply_answer(&mut self, answer: &Answer, event: Event, words: impl Fn(Digest) -> Option<String>) {
        match answer {
            Answer::Plain if event == Event::Yes && !self.work.plan.doubts.is_empty() => {
                // The plan that was shown is the one that is wanted.
                self.work.plan.doubts.clear();
                self.facts.spec = self.work.plan.clarity(&self.work.need);
            }
            Answer::Plain => {}
            Answer::Promote => self.work.promote = true,
            Answer::Words(digest) => {
                let Some(text) = words(*digest) else { return };
                self.work.plan.amend(&text, &self.from_command_line);
                self.facts.spec = self.work.plan.clarity(&self.work.need);
                self.work.words.push(text);
            }
            Answer::Need(digest) => {
                let Some(need) = words(*digest) else { return };
                let plan = Plan::read(&need, &self.from_command_line);
                let Facts { held, engagement, .. } = self.facts;
                self.facts = Facts { spec: plan.clarity(&need), held, engagement, ..Facts::default() };
                let Work { piece, rounds, known, .. } = &self.work;
                let piece = piece + u32::from(event == Event::NewWork);
                self.work = Work { rounds: *rounds, known: known.clone(), ..Work::new(piece, need, plan) };
            }
            Answer::Consult(consult) => {
                let asked = consult.words.and_then(words).unwrap_or_else(|| self.work.need.clone());
                self.work.consult = Some((consult.clone(), asked));
            }
            Answer::Engagement(engagement) => self.facts.engagement = Some(*engagement),
            Answer::Choices(choices) => {
                let asked = questions::open_questions(&self.work.plan);
                for (index, question) in asked.iter().enumerate() {
                    // A question without an answer takes the recommended choice.
                    let choice = choices.get(index).copied().flatten().or(question.question.default);
                    questions::choose(&mut self.work.plan, question, choice.unwrap_or_default());
                }
                if self.facts.engagement == Some(Engagement::Collaborative) {
                    // Only one round of questions: the rest is assumed, and shown with the plan.
                    let assumed = self.work.plan.assume();
                    self.work.assumptions.extend(assumed);
                }
                self.facts.spec = self.work.plan.clarity(&self.work.need);
            }
        }
    }

    #[expect(clippy::too_many_lines, reason = "one arm per outcome")]
    fn apply_outcome(&mut self, action: Action, outcome: &ActionOutcome) {
        let (work, facts) = (&mut self.work, &mut self.facts);
        match outcome {
            // The next piece of work starts without facts, except its clarity.
            ActionOutcome::Nothing if action == Action::AwaitNeed => facts.spec = work.plan.clarity(&work.need),
            ActionOutcome::Read(reading) => {
                let disagreements = reading.disagreements(&work.need, &self.from_command_line);
                work.plan.doubts.extend(disagreements);
                work.judged.extend(reading.judged.iter().cloned());
                facts.spec = work.plan.clarity(&work.need);
            }
            ActionOutcome::Nothing | ActionOutcome::Spoke(_) => {
                if ends_consultation(action) {
                    work.consult = None;
                }
            }
            ActionOutcome::Known(lines) => {
                let new: Vec<_> = lines.iter().filter(|line| !work.known.contains(line)).cloned().collect();
                work.known.extend(new);
            }
            ActionOutcome::Assumed(lines) => {
                work.plan.assume();
                work.assumptions.extend(lines.iter().cloned());
            }
            ActionOutcome::Spec(scores, judged) => {
                facts.spec = *scores;
                work.judged.extend(judged.iter().cloned());
            }
            ActionOutcome::Aspects(aspects, judged) => {
                work.aspects = Some(*aspects);
                work.judged.extend(judged.iter().cloned());
            }
            ActionOutcome::Heard(opinions) if action == Action::Review => {
                let known: Vec<_> = work.objections.iter().map(|objection| objection.expert.clone()).collect();
                let new = opinions.iter().filter(|opinion| opinion.blocker && !known.contains(&opinion.expert));
                let new: Vec<_> = new.cloned().collect();
                facts.blockers = new.len() as u32;
                if facts.blockers > 0 {
                    // An objection reopens the report, which is written again with the objection in it.
                    reopen(work, WorkItemKind::Report);
                    facts.items_left = left(work);
                }
                work.objections.extend(new);
                work.review.clone_from(opinions);
            }
            ActionOutcome::Heard(opinions) => work.panel.clone_from(opinions),
            ActionOutcome::Selected(selection) => work.selection = Some(*selection),
            ActionOutcome::Fit(fit) => facts.fit = *fit,
            ActionOutcome::Expert(profile) => {
                facts.expert = profile.as_ref().map_or_else(ExpertConfidence::default, ExpertConfidence::of);
            }
            ActionOutcome::Wrote(name, digest) => {
                work.files.insert(name.clone(), *digest);
            }
            ActionOutcome::Items(items, brief) => {
                if let Some(brief) = brief {
                    work.files.insert(work.file("brief"), *brief);
                }
                work.items.clone_from(items);
                work.rounds += 1;
                // A new round is verified again, and failures of the last one do not count.
                work.checks.clear();
                work.last_error = None;
                (facts.gate_passed, facts.failures, facts.same_errors, facts.criterion_failures) = (false, 0, 0, 0);
                facts.items_left = left(work);
            }
            ActionOutcome::Wave(results) => {
                for result in results {
                    let Some(item) = work.items.get_mut(result.item) else { continue };
                    match &result.error {
                        None => {
                            item.done = true;
                            work.found.insert(item.kind, result.found.clone());
                        }
                        Some(error) => {
                            facts.failures += 1;
                            facts.same_errors =
                                if work.last_error.as_ref() == Some(error) { facts.same_errors + 1 } else { 1 };
                            work.last_error = Some(error.clone());
                        }
                    }
                }
                facts.items_left = left(work);
            }
            ActionOutcome::Verified(checks) => {
                work.checks.clone_from(checks);
                facts.gate_passed = all_hold(checks);
                if !facts.gate_passed {
                    facts.criterion_failures += 1;
                    reopen(work, WorkItemKind::Measure);
                    reopen(work, WorkItemKind::Score);
                    reopen(work, WorkItemKind::Compare);
                    reopen(work, WorkItemKind::Report);
                    facts.items_left = left(work);
                }
            }
            ActionOutcome::Audit(changed) => {
                facts.audit_blocks = changed.is_some();
                if let Some(changed) = changed {
                    // It interrupts only once: an answer that continues accepts it.
                    work.files.insert(work.file("brief"), *changed);
                }
            }
            ActionOutcome::Footer(footer) => work.footer = Some(footer.clone()),
            ActionOutcome::Concluded(conclusion, asserted, checks) => {
                work.conclusion = Some(*conclusion);
                work.asserted.clone_from(asserted);
                if !checks.is_empty() {
                    work.checks.clone_from(checks);
                }
                facts.gate_passed = all_hold(checks);
            }
        }
    }

    /// Whether the one round of collaborative mode was answered.
    pub(super) fn questions_are_answered(&self) -> bool {
        self.facts.engagement == Some(Engagement::Collaborative) && self.work.plan.is_answered()
    }

    /// Whether the shape is too free for work with the risk `risk`. Reported only once.
    pub(super) fn is_too_free(&self, risk: Shape) -> bool {
        let (Some(aspects), Some(shape)) = (self.work.aspects, self.shape()) else { return false };
        !self.work.reshaped && Aspects { risk: risk.max(aspects.risk), ..aspects }.select().shape > shape
    }

    /// The shape of the work.
    pub(super) fn shape(&self) -> Option<Shape> {
        self.shape_under(&self.facts.fit)
    }

    /// The shape under a fit: the stricter of the selected shape and the one that the fit allows.
    pub(super) fn shape_under(&self, fit: &FitScore) -> Option<Shape> {
        let selected = self.work.selection?.shape;
        // An unscored fit has no shape.
        Some(fit.shape().map_or(selected, |fit| fit.max(selected)))
    }

    /// Whether the interlocutor is an adversary.
    pub(super) const fn is_adversarial(&self) -> bool {
        !matches!(self.work.plan.other.value, AdversaryKind::None)
    }
}

fn left(work: &Work) -> u32 {
    work.items.iter().filter(|item| !item.done).count() as u32
}

fn reopen(work: &mut Work, kind: WorkItemKind) {
    for item in work.items.iter_mut().filter(|item| item.kind == kind) {
        item.done = false;
    }
}

/// Events that drop the remaining steps of the state they leave.
const fn drops_remaining_steps(event: Event) -> bool {
    matches!(event, Event::Cancel | Event::Pause | Event::MustNotBroken | Event::IntentWithdrawn | Event::Stalled)
}

/// Actions that end a consultation.
const fn ends_consultation(action: Action) -> bool {
    matches!(action, Action::Generate | Action::Synthesize | Action::Recommend | Action::GiveNoAdvice)
}

const fn is_self_check(action: Action) -> bool {
    matches!(action, Action::DetectType | Action::AskEngagement | Action::Audit | Action::WriteFooter)
}
