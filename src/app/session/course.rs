//! The pure part of a session: where the chart stands, what is known and what is to do, after all that happened.

use std::collections::VecDeque;
use std::sync::Arc;

use super::need::{Plan, Said};
use super::outcome::{Answer, Happened, ItemKind, Outcome, Work};
use super::questions;
use crate::foundation::base::Digest;
use crate::governance::statechart::hope::{
    Action, Aspects, Engagement, Event, ExpertConfidence, Facts, Fit, Hope, Shape,
};
use crate::governance::statechart::{Chart, Configuration, start, step};
use crate::simulation::persona::AdversaryKind;

/// What is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Todo {
    /// Perform this.
    Do(Action),
    /// Tell the chart this.
    Tell(Event),
}

/// A log that says what cannot have happened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the log says {said}, but {due} was due: another version of loom wrote it, or it is made up")]
pub struct Mismatch {
    said: String,
    due: String,
}

/// A session's course so far.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Course {
    pub(super) configuration: Configuration,
    pub(super) facts: Facts,
    pub(super) work: Work,
    pub(super) waiting: bool,
    /// What the command line said of the plan.
    said: Said,
    todo: VecDeque<Todo>,
}

impl Course {
    /// Before anything happened.
    pub(super) fn begin(chart: &Chart<Hope>, need: &str, said: &Said, engagement: Option<Engagement>) -> Self {
        let plan = Plan::read(need, said);
        let facts = Facts { engagement, spec: plan.clarity(need), ..Facts::default() };
        let begun = start(chart, |guard| facts.holds(guard));
        let work = Work::new(1, need.to_owned(), plan);
        let todo = begun.effects.into_iter().map(Todo::Do).collect();
        Self { configuration: begun.configuration, facts, work, waiting: false, said: said.clone(), todo }
    }

    /// Whether an answer can be given: something was asked, or nothing is left to do and the work is not over.
    pub(super) fn is_open(&self) -> bool {
        self.next().is_none() && (self.waiting || self.work.conclusion.is_none())
    }

    /// Whether the work is over: only more work can be asked for.
    pub(super) fn is_over(&self) -> bool {
        self.next().is_none() && !self.waiting && self.work.conclusion.is_some()
    }

    /// What is next; `None` while the session waits for the user, and when it is over. A response gets its audit and its
    /// footer before the answer to it is waited for.
    pub(super) fn next(&self) -> Option<Todo> {
        let front = self.todo.front().copied();
        front.filter(|todo| match todo {
            Todo::Do(action) => !self.waiting || is_souls(*action),
            Todo::Tell(_) => true,
        })
    }

    /// The paths of the active leaves.
    pub(super) fn leaves(&self, chart: &Chart<Hope>) -> Vec<String> {
        self.configuration.leaves(chart).into_iter().map(str::to_owned).collect()
    }

    /// Where the work stands: the leaf that is no part of the soul.
    pub(super) fn stage(&self, chart: &Chart<Hope>) -> String {
        let leaf = self.configuration.leaves(chart).into_iter().find(|leaf| !leaf.contains("soul"));
        leaf.and_then(|leaf| leaf.rsplit('.').next()).unwrap_or_default().to_owned()
    }

    /// What telling the chart `event` will do; the record of it.
    pub(super) fn tell(&self, chart: &Chart<Hope>, event: Event) -> Happened {
        let step = step(chart, &self.configuration, event, |guard| self.facts.holds(guard));
        let leaves = step.configuration.leaves(chart).into_iter().map(str::to_owned).collect();
        Happened::Told { event, leaves, denied: step.denial.map(|denial| denial.to_string()) }
    }

    /// Takes in what happened. `words` has the texts of answers by digest.
    pub(super) fn take(
        &mut self,
        chart: &Arc<Chart<Hope>>,
        happened: &Happened,
        words: impl Fn(Digest) -> Option<String>,
    ) -> Result<(), Mismatch> {
        let said = format!("{happened:?}");
        let mismatch = |due: String| Mismatch { said: said.chars().take(200).collect(), due };
        match happened {
            Happened::Did { action, outcome, tells, waits } => {
                if self.next() != Some(Todo::Do(*action)) {
                    return Err(mismatch(format!("{:?}", self.next())));
                }
                self.todo.pop_front();
                self.facts.note(*action);
                self.learn(*action, outcome);
                for event in tells.iter().rev() {
                    self.todo.push_front(Todo::Tell(*event));
                }
                self.waiting |= *waits;
            }
            Happened::Told { event, leaves, denied } => {
                if self.next() != Some(Todo::Tell(*event)) {
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
                if denied.is_none() && leaves_at_once(*event) {
                    self.todo.clear();
                }
                self.configuration = step.configuration;
                // Soul first: how densely to ask is known before anything is asked, and a response has its footer before the
                // work goes on.
                let (soul, work): (Vec<_>, Vec<_>) = step.effects.into_iter().partition(|action| is_souls(*action));
                for action in soul.into_iter().chain(work).rev() {
                    self.todo.push_front(Todo::Do(action));
                }
            }
            Happened::Answered { answer, event } => {
                if !self.is_open() && !self.is_over() {
                    return Err(mismatch("no answer".to_owned()));
                }
                self.waiting = false;
                self.heed(answer, *event, words);
                self.todo.push_front(Todo::Tell(*event));
            }
        }
        Ok(())
    }

    fn heed(&mut self, answer: &Answer, event: Event, words: impl Fn(Digest) -> Option<String>) {
        match answer {
            Answer::Plain => {}
            Answer::Promote => self.work.promote = true,
            Answer::Words(digest) => {
                let Some(text) = words(*digest) else { return };
                self.work.plan.amend(&text, &self.said);
                self.facts.spec = self.work.plan.clarity(&self.work.need);
                self.work.words.push(text);
            }
            Answer::Need(digest) => {
                let Some(need) = words(*digest) else { return };
                let plan = Plan::read(&need, &self.said);
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
                    // Who leaves a question out agrees with what was recommended.
                    let choice = choices.get(index).copied().flatten().or(question.question.default);
                    questions::choose(&mut self.work.plan, question, choice.unwrap_or_default());
                }
                if self.facts.engagement == Some(Engagement::Collaborative) {
                    // One round is enough: the rest is assumed, and told with the echo.
                    let assumed = self.work.plan.assume();
                    self.work.assumptions.extend(assumed);
                }
                self.facts.spec = self.work.plan.clarity(&self.work.need);
            }
        }
    }

    fn learn(&mut self, action: Action, outcome: &Outcome) {
        let (work, facts) = (&mut self.work, &mut self.facts);
        match outcome {
            // The next piece of work begins without facts, but for how clear it is.
            Outcome::Nothing if action == Action::AwaitNeed => facts.spec = work.plan.clarity(&work.need),
            Outcome::Nothing | Outcome::Spoke(_) => {
                if gives_advice(action) {
                    work.consult = None;
                }
            }
            Outcome::Known(lines) => {
                let new: Vec<_> = lines.iter().filter(|line| !work.known.contains(line)).cloned().collect();
                work.known.extend(new);
            }
            Outcome::Assumed(lines) => {
                work.plan.assume();
                work.assumptions.extend(lines.iter().cloned());
            }
            Outcome::Spec(scores, judged) => {
                facts.spec = *scores;
                work.judged.extend(judged.iter().cloned());
            }
            Outcome::Aspects(aspects, judged) => {
                work.aspects = Some(*aspects);
                work.judged.extend(judged.iter().cloned());
            }
            Outcome::Heard(opinions) if action == Action::Review => {
                let known: Vec<_> = work.objections.iter().map(|objection| objection.expert.clone()).collect();
                let new = opinions.iter().filter(|opinion| opinion.blocker && !known.contains(&opinion.expert));
                let new: Vec<_> = new.cloned().collect();
                facts.blockers = new.len() as u32;
                if facts.blockers > 0 {
                    // What answers an objection is work: the report is written anew, with the objection in it.
                    reopen(work, ItemKind::Report);
                    facts.items_left = left(work);
                }
                work.objections.extend(new);
                work.review.clone_from(opinions);
            }
            Outcome::Heard(opinions) => work.panel.clone_from(opinions),
            Outcome::Selected(selection) => work.selection = Some(*selection),
            Outcome::Fit(fit) => facts.fit = *fit,
            Outcome::Expert(profile) => {
                facts.expert = profile.as_ref().map_or_else(ExpertConfidence::default, ExpertConfidence::of);
            }
            Outcome::Wrote(name, digest) => {
                work.files.insert(name.clone(), *digest);
            }
            Outcome::Items(items, brief) => {
                if let Some(brief) = brief {
                    work.files.insert(work.file("brief"), *brief);
                }
                work.items.clone_from(items);
                work.rounds += 1;
                // Another round is verified anew, and what failed in the last one failed there.
                work.checks.clear();
                work.last_error = None;
                (facts.gate_passed, facts.failures, facts.same_errors, facts.criterion_failures) = (false, 0, 0, 0);
                facts.items_left = left(work);
            }
            Outcome::Wave(results) => {
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
            Outcome::Verified(checks) => {
                work.checks.clone_from(checks);
                facts.gate_passed = !checks.is_empty() && checks.iter().all(|check| check.passed);
                if !facts.gate_passed {
                    facts.criterion_failures += 1;
                    reopen(work, ItemKind::Measure);
                    reopen(work, ItemKind::Score);
                    reopen(work, ItemKind::Report);
                    facts.items_left = left(work);
                }
            }
            Outcome::Audit(failed, changed) => {
                work.audit.clone_from(failed);
                facts.audit_blocks = changed.is_some();
                if let Some(changed) = changed {
                    // It interrupts once: whoever goes on knows of it.
                    work.files.insert(work.file("brief"), *changed);
                }
            }
            Outcome::Footer(footer) => work.footer = Some(footer.clone()),
            Outcome::Concluded(conclusion, asserted) => {
                work.conclusion = Some(*conclusion);
                work.asserted.clone_from(asserted);
            }
        }
    }

    /// Whether the user, who wants to collaborate, answered a round of questions already.
    pub(super) fn is_asked_enough(&self) -> bool {
        self.facts.engagement == Some(Engagement::Collaborative) && self.work.plan.is_answered()
    }

    /// Whether the shape is too free for work whose risk turns out to be `risk`. That is found once.
    pub(super) fn is_too_free(&self, risk: Shape) -> bool {
        let (Some(aspects), Some(shape)) = (self.work.aspects, self.shape()) else { return false };
        !self.work.reshaped && Aspects { risk: risk.max(aspects.risk), ..aspects }.select().shape > shape
    }

    /// The shape that the work has.
    pub(super) fn shape(&self) -> Option<Shape> {
        self.shape_under(&self.facts.fit)
    }

    /// The shape under a fit: the stricter of the one that the aspects ask for and the one that the fit allows.
    pub(super) fn shape_under(&self, fit: &Fit) -> Option<Shape> {
        let selected = self.work.selection?.shape;
        // Before it is scored a fit allows nothing, and says nothing.
        Some(fit.shape().map_or(selected, |fit| fit.max(selected)))
    }

    /// The mood of whoever the persona talks with.
    pub(super) const fn is_adversarial(&self) -> bool {
        !matches!(self.work.plan.other.value, AdversaryKind::None)
    }
}

fn left(work: &Work) -> u32 {
    work.items.iter().filter(|item| !item.done).count() as u32
}

fn reopen(work: &mut Work, kind: ItemKind) {
    for item in work.items.iter_mut().filter(|item| item.kind == kind) {
        item.done = false;
    }
}

/// Events after which nothing of what was to do in the state that they leave is done any more.
const fn leaves_at_once(event: Event) -> bool {
    matches!(event, Event::Cancel | Event::Pause | Event::MustNotBroken | Event::IntentWithdrawn | Event::Stalled)
}

/// Actions with which a consultation ends.
const fn gives_advice(action: Action) -> bool {
    matches!(action, Action::Generate | Action::Synthesize | Action::Recommend | Action::GiveNoAdvice)
}

const fn is_souls(action: Action) -> bool {
    matches!(action, Action::DetectType | Action::AskEngagement | Action::Audit | Action::WriteFooter)
}
