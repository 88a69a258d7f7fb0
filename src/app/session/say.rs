//! What is said to the user: what was understood, questions, the echo, what experts advise, how it ended.

use std::fmt::Write as _;

use super::course::Course;
use super::finding;
use super::need::{Origin, Plan, other_name};
use super::outcome::{Conclusion, ItemKind, Opinion, SUSPECT, Work};
pub(super) use super::pages::{brief, counted, one_line, report, told};
pub(super) use super::verify::CRITERIA;
use crate::foundation::base::limits;
use crate::governance::mood::lint::{Choice, Question};
use crate::governance::statechart::hope::{Action, Echo, Engagement, Facts, Fit, Shape};
use crate::simulation::persona::{AdversaryKind, examples};

/// What a question is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    Persona,
    Other,
    Turns,
    Rollouts,
}

/// A question to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    about: About,
    pub(super) question: Question,
}

impl Asked {
    /// How many choices there are.
    pub(super) const fn choices(&self) -> usize {
        self.question.choices.len()
    }
}

const OTHERS: [AdversaryKind; 4] =
    [AdversaryKind::None, AdversaryKind::Contradiction, AdversaryKind::Helpfulness, AdversaryKind::Both];
const TURNS: [usize; 4] = [10, 6, 20, 50];
const ROLLOUTS: [usize; 4] = [1, 2, 4, 8];

/// The next round of questions: what is open, the most important first.
pub(super) fn open_questions(plan: &Plan) -> Vec<Asked> {
    let question = |text: &str, answers: Vec<String>, verb: &str, default: usize| Question {
        text: text.to_owned(),
        choices: answers.into_iter().map(|answer| Choice { next_move: format!("{verb} {answer}"), answer }).collect(),
        default: Some(default),
        escape: Some("none, and the default holds; or another value by EDITS at the echo".to_owned()),
    };
    let names: Vec<_> = examples().iter().map(|example| example.name.to_owned()).collect();
    let default = names.iter().position(|name| *name == plan.persona.value).unwrap_or(0);
    let mut asked = Vec::new();
    if plan.persona.is_open() {
        asked.push(Asked { about: About::Persona, question: question("Which persona?", names, "run", default) });
    }
    if plan.other.is_open() {
        let answers = OTHERS.iter().map(|kind| other_name(*kind).to_owned()).collect();
        asked.push(Asked {
            about: About::Other,
            question: question("Who does it talk with?", answers, "set against it", 0),
        });
    }
    if plan.turns.is_open() {
        let answers = TURNS.iter().map(ToString::to_string).collect();
        asked.push(Asked { about: About::Turns, question: question("How many turns?", answers, "plan turns:", 0) });
    }
    if plan.rollouts.is_open() {
        let answers = ROLLOUTS.iter().map(ToString::to_string).collect();
        asked.push(Asked {
            about: About::Rollouts,
            question: question("How many rollouts?", answers, "plan rollouts:", 0),
        });
    }
    asked.truncate(limits::QUESTIONS_MAX);
    asked
}

/// Takes a choice over into the plan; one that is not among the choices changes nothing.
pub(super) fn choose(plan: &mut Plan, asked: &Asked, choice: usize) {
    let taken = match asked.about {
        About::Persona => examples().get(choice).map(|example| example.name.clone_into(&mut plan.persona.value)),
        About::Other => OTHERS.get(choice).map(|kind| plan.other.value = *kind),
        About::Turns => TURNS.get(choice).map(|turns| plan.turns.value = *turns),
        About::Rollouts => ROLLOUTS.get(choice).map(|rollouts| plan.rollouts.value = *rollouts),
    };
    let origin = match asked.about {
        About::Persona => &mut plan.persona.origin,
        About::Other => &mut plan.other.origin,
        About::Turns => &mut plan.turns.origin,
        About::Rollouts => &mut plan.rollouts.origin,
    };
    if taken.is_some() {
        *origin = Origin::Answered;
    }
}

/// What is said to the user when `action` is performed.
pub(super) fn said(action: Action, course: &Course) -> String {
    let (work, facts) = (&course.work, &course.facts);
    match action {
        Action::AskQuestions => questions(&work.plan),
        Action::AskDifferently => differently(&work.plan),
        // Who wants to be guided sees the steps and the risks unasked.
        Action::Echo if facts.engagement == Some(Engagement::Guided) => {
            let (steps, risks) = (steps(work), failing(work, facts));
            let open = still_open(&work.plan);
            format!("{}\n{steps}\n{risks}\n{open}YES, or EDITS: what to change?", echo(work))
        }
        Action::AskApproval if facts.engagement == Some(Engagement::Guided) => {
            format!("{}\n{}\nYES, EDITS: what to change, or CANCEL?", steps(work), failing(work, facts))
        }
        Action::Echo => {
            let assumed: Vec<_> = work.assumptions.iter().map(|line| format!("[ASSUMPTION] {line}\n")).collect();
            format!("{}\n{}YES, EDITS: what to change, BLUEPRINT or RISK?", echo(work), assumed.concat())
        }
        Action::ShowBlueprint => format!("{}\nYES, or EDITS: what to change?", steps(work)),
        Action::ShowRisks => {
            format!("{}\nYES, or EDITS: what to change?", failing(work, facts))
        }
        Action::AnnounceShape => shape(work),
        Action::AskApproval => format!("{}\nYES, EDITS: what to change, or CANCEL?", steps(work)),
        Action::Decompose => format!("[LOOP] {}", steps(work)),
        Action::ShowReview => {
            format!("{}\nSATISFIED, PROMOTE (the finding is asserted), or NEW: what else to do?", findings(work))
        }
        Action::AskEngagement => "How densely shall I ask? AUTONOMOUS, COLLABORATIVE or GUIDED".to_owned(),
        Action::TellPaused if facts.audit_blocks => {
            let brief = work.file("brief");
            format!(
                "[SESSION] Paused: {brief} is not as it was agreed; what is wanted changes by an answer alone. RESUME goes on with what was agreed; or CANCEL, or WRONG: what is wanted?"
            )
        }
        Action::TellPaused => "[SESSION] Paused. RESUME, CANCEL, or WRONG: what is wanted?".to_owned(),
        Action::TellLimit => "A limit is met: this cannot be done once more in this session.".to_owned(),
        Action::TellBlocked => {
            format!("The fit is {} of 75 points: below 25 the work is not begun.", facts.fit.points())
        }
        Action::TripBreaker => "The same criterion failed again and again: I stop trying.".to_owned(),
        Action::SurfaceDoubt => "I doubt that this is what you want.".to_owned(),
        Action::SurfaceTensions => tensions(&work.panel),
        Action::Synthesize | Action::Recommend => consensus(&work.panel),
        Action::Generate => "There is no expert to ask.".to_owned(),
        Action::ParseBlocker => {
            let stuck = work.last_error.as_deref().or(work.consult.as_ref().map(|(_, words)| words.as_str()));
            format!(
                "[UNBLOCK] {}; {} so far",
                stuck.unwrap_or("nothing failed"),
                counted(facts.failures as usize, "failed attempt")
            )
        }
        Action::Research => researched(work),
        Action::GiveNoAdvice => "The experts have no advice on this.".to_owned(),
        Action::Close => closing(work),
        _ => String::new(),
    }
}

/// What was understood of the need, and what is at stake.
pub(super) fn acknowledged(work: &Work, stakes: &str) -> String {
    let Plan { persona, other, turns, rollouts } = &work.plan;
    format!(
        "TASK     {}\nCONTEXT  persona `{}`, {}\nDONE     {} of {} each, scored and reported\nSTAKES   {stakes}\nREVIEWS  a panel of experts, then the verify gate",
        work.need,
        persona.value,
        other_name(other.value),
        counted(rollouts.value, "rollout"),
        counted(turns.value, "turn"),
    )
}

fn questions(plan: &Plan) -> String {
    let mut text = String::new();
    for (number, Asked { question, .. }) in (1..).zip(open_questions(plan)) {
        let _ = writeln!(text, "{number}. {}", question.text);
        for (index, (letter, choice)) in ('A'..='Z').zip(&question.choices).enumerate() {
            let recommended = if question.default == Some(index) { "  (recommended)" } else { "" };
            let _ = writeln!(text, "   {letter}) {}{recommended}", choice.answer);
        }
    }
    if text.is_empty() {
        "Nothing is open.".to_owned()
    } else {
        text + "Answer like \"1A, 2B\"; what is left out takes the recommended choice."
    }
}

pub(super) fn echo(work: &Work) -> String {
    let Plan { persona, other, turns, rollouts } = &work.plan;
    let deliverable = format!(
        "a scored report on {} of {} between the persona `{}` and {}",
        counted(rollouts.value, "rollout"),
        counted(turns.value, "turn"),
        persona.value,
        other_name(other.value)
    );
    let constraint = work.words.last().map(String::as_str);
    Echo { deliverable: &deliverable, must_include: Some("how far the persona holds"), constraint }.to_string()
}

fn steps(work: &Work) -> String {
    let Plan { turns, rollouts, .. } = &work.plan;
    format!(
        "Steps: 1. a pilot of one turn; 2. {} of {}; 3. scores; 4. a report; then experts, and the verify gate.",
        counted(rollouts.value, "rollout"),
        counted(turns.value, "turn")
    )
}

fn failing(work: &Work, facts: &Facts) -> String {
    let mut text = "What could fail first:".to_owned();
    for (number, risk) in (1..).zip(risks(work, facts)) {
        let _ = write!(text, "\n  {number}. {risk}");
    }
    text
}

pub(super) fn risks(work: &Work, facts: &Facts) -> Vec<String> {
    let mut risks = Vec::new();
    if !work.objections.is_empty() {
        risks.push(format!("{} of the panel objected", counted(work.objections.len(), "expert")));
    }
    if work.plan.rollouts.value < 3 {
        risks.push("too few rollouts to tell the persona from chance".to_owned());
    }
    if !work.assumptions.is_empty() {
        risks.push(format!("{} nobody confirmed", counted(work.assumptions.len(), "assumption")));
    }
    if facts.failures > 0 {
        risks.push(format!("{} on the way", counted(facts.failures as usize, "failed attempt")));
    }
    if finding::of(work) == finding::Finding::Disputed {
        risks.insert(0, "the scores disagree".to_owned());
    }
    if work.found.get(&ItemKind::Rollouts).is_some_and(|found| found.contains_key(SUSPECT)) {
        risks.insert(0, "a reply wants to be obeyed by whoever rates it: nobody rated it".to_owned());
    }
    risks
        .push("what a model says of itself is no evidence: a rating counts only where its judge was tested".to_owned());
    risks.push("a persona that holds here may not hold over more turns".to_owned());
    risks.truncate(3);
    risks
}

fn shape(work: &Work) -> String {
    let Some(selection) = work.selection else { return "No shape is selected.".to_owned() };
    let mut text = format!("[SESSION] Shape: {:?} ({:?}).\nCriteria:\n", selection.shape, selection.reason);
    for (_, criterion) in CRITERIA {
        let _ = writeln!(text, "  - {criterion}");
    }
    text.truncate(text.trim_end().len());
    text
}

/// That the shape is another one than was announced, where the fit allows only a stricter one.
pub(super) fn reshaped(course: &Course, fit: &Fit) -> Option<String> {
    let shape = course.shape_under(fit)?;
    let points = fit.points();
    let changed = course.work.selection?.shape != shape;
    changed.then(|| format!("[SESSION] Shape: {shape:?}, not as announced: the fit is {points} of 75 points."))
}

/// What is waited for at a stage, as it was put.
pub(super) fn asked(stage: &str, course: &Course) -> String {
    let action = match stage {
        _ if course.facts.engagement.is_none() => Action::AskEngagement,
        "clarify" => Action::AskQuestions,
        "echo_check" => Action::Echo,
        "show_blueprint" => Action::ShowBlueprint,
        "show_risks" => Action::ShowRisks,
        "shape_approval" => Action::AskApproval,
        "review_feedback" => Action::ShowReview,
        "paused" => Action::TellPaused,
        _ => return "CANCEL, PAUSE, or WRONG: what is wanted?".to_owned(),
    };
    said(action, course)
}

/// What whoever takes the work up again needs to know.
pub(super) fn recap(course: &Course, stage: &str) -> String {
    let (work, facts) = (&course.work, &course.facts);
    let done = work.items.iter().filter(|item| item.done).count();
    let shape = course.shape().map_or_else(|| "none yet".to_owned(), |shape| format!("{shape:?}"));
    let mut text = format!(
        "[SESSION] Need: {}\n[SESSION] Stage: {stage}; intent and shape held: {:?}; shape: {shape}; {done} of {} done",
        one_line(&work.need),
        facts.held,
        counted(work.items.len(), "item"),
    );
    for line in &work.assumptions {
        let _ = write!(text, "\n[ASSUMPTION] {line}");
    }
    if course.is_open() {
        let _ = write!(text, "\n{}", asked(stage, course));
    }
    text
}

/// The open questions again, each choice with what it leads to.
fn differently(plan: &Plan) -> String {
    let mut text = "In other words, this is what each answer leads to:".to_owned();
    for Asked { question, .. } in open_questions(plan) {
        let moves: Vec<_> = question.choices.iter().map(|choice| choice.next_move.as_str()).collect();
        let _ = write!(text, "\n  {} {}", question.text, moves.join(" / "));
    }
    text
}

/// The questions that no round had room for, a line each.
fn still_open(plan: &Plan) -> String {
    let line = |Asked { question, .. }: &Asked| {
        let choices: Vec<_> = question.choices.iter().map(|choice| choice.answer.as_str()).collect();
        format!("Still open: {} {}\n", question.text, choices.join(" / "))
    };
    open_questions(plan).iter().map(line).collect::<Vec<_>>().concat()
}

/// Who of the panel is for what.
fn tensions(panel: &[Opinion]) -> String {
    let mut text = "[PANEL]".to_owned();
    for opinion in panel {
        let view = opinion.shape.map_or_else(|| "no view".to_owned(), |shape| format!("{shape:?}"));
        let _ = write!(text, " {} ({} of 9): {view}.", opinion.expert, opinion.confidence);
    }
    text
}

/// What most of the panel say, and who dissents.
fn consensus(panel: &[Opinion]) -> String {
    let of = |shape: Shape| panel.iter().filter(move |opinion| opinion.shape == Some(shape)).count();
    let all = [Shape::Tool, Shape::ToolReview, Shape::Colleague];
    let Some(most) = all.into_iter().filter(|shape| of(*shape) > 0).max_by_key(|shape| of(*shape)) else {
        return "[PANEL] Nobody has a view: there is no recommendation.".to_owned();
    };
    let dissent: Vec<_> = panel
        .iter()
        .filter(|opinion| opinion.shape.is_some_and(|shape| shape != most))
        .map(|opinion| opinion.expert.as_str())
        .collect();
    let dissent =
        if dissent.is_empty() { "nobody dissents".to_owned() } else { format!("{} dissents", dissent.join(", ")) };
    format!("[PANEL] {} of {} say {most:?}; {dissent}.", of(most), panel.len())
}

/// What there is to go by where a stage is stuck.
fn researched(work: &Work) -> String {
    let names: Vec<_> = examples().iter().map(|example| example.name).collect();
    let mut text = format!("Personas that come with loom: {}.", names.join(", "));
    if let Some(error) = &work.last_error {
        let _ = write!(text, " The last error: {error}.");
    }
    let _ = write!(text, " In the memory {} of it.", counted(work.known.len(), "line"));
    text
}

/// What was found, in short.
fn outcome(work: &Work) -> String {
    let passed = work.checks.iter().filter(|check| check.passed).count();
    format!("Finding: {}.\nChecks: {passed} of {} passed.", finding::of(work), CRITERIA.len())
}

fn findings(work: &Work) -> String {
    let mut text = outcome(work);
    for kind in [ItemKind::Measure, ItemKind::Score] {
        for (name, value) in work.found.get(&kind).into_iter().flatten() {
            let _ = write!(text, "\n  {name:<34} {}", told(value));
        }
    }
    for Opinion { expert, judged, .. } in &work.objections {
        let _ = write!(text, "\n  BLOCKER by {expert}: {}", judged.question);
    }
    text
}

fn closing(work: &Work) -> String {
    let how = match work.conclusion {
        Some(Conclusion::Done) => "Done: you are satisfied.",
        Some(Conclusion::Unreviewed) => "Done; nobody reviewed it.",
        Some(Conclusion::Cancelled) => "Cancelled.",
        Some(Conclusion::Stopped) => "Stopped: a mustNot was broken.",
        Some(Conclusion::Stuck) => "Stuck: it ends here.",
        None => "It ends here.",
    };
    format!("{how}\n{}", outcome(work))
}

#[cfg(test)]
mod tests {
    use super::super::need::Said;
    use super::*;
    use crate::governance::mood::lint::round_faults;

    #[test]
    fn the_questions_pass_the_lint_of_the_moods() {
        let mut plan = Plan::read("Something", &Said::default());
        let asked = open_questions(&plan);
        let questions: Vec<_> = asked.iter().map(|asked| asked.question.clone()).collect();
        assert_eq!(questions.len(), 3);
        assert_eq!(round_faults(&questions), []);
        for asked in &asked {
            choose(&mut plan, asked, 1);
        }
        assert_eq!((plan.turns.value, plan.other.value), (6, AdversaryKind::Contradiction));
        assert_eq!(open_questions(&plan).len(), 1);
        // What is no choice changes nothing.
        let last = open_questions(&plan).remove(0);
        choose(&mut plan, &last, 9);
        assert!(plan.rollouts.is_open());
    }
}
