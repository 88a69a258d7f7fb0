//! The texts for the user: what was understood, questions, the echo, the brief, the report.

use std::fmt::Write as _;

use super::course::Course;
use super::need::{Origin, Plan, other_name};
use super::outcome::{Conclusion, ItemKind, Judged, Opinion, Value, Work};
use crate::foundation::base::limits;
use crate::governance::mood::lint::{Choice, Question};
use crate::governance::statechart::hope::{Action, Echo, Engagement, Facts};
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
        escape: Some("another value with --persona, --turns or --rollouts, or none: the default holds".to_owned()),
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
        Action::Acknowledge => acknowledged(work),
        Action::AskQuestions | Action::AskDifferently => questions(&work.plan),
        // Who wants to be guided sees the steps and the risks unasked.
        Action::Echo if facts.engagement == Some(Engagement::Guided) => {
            let (steps, risks) = (steps(work), failing(work, facts));
            format!("{}\n{steps}\n{risks}\nYES, or EDITS: what to change?", echo(work))
        }
        Action::AskApproval if facts.engagement == Some(Engagement::Guided) => {
            format!("{}\n{}\nYES, EDITS: what to change, or CANCEL?", steps(work), failing(work, facts))
        }
        Action::Echo => {
            format!("{}\nYES, EDITS: what to change, BLUEPRINT or RISK?", echo(work))
        }
        Action::ShowBlueprint => format!("{}\nYES, or EDITS: what to change?", steps(work)),
        Action::ShowRisks => {
            format!("{}\nYES, or EDITS: what to change?", failing(work, facts))
        }
        Action::AnnounceShape => shape(work),
        Action::AskApproval => format!("{}\nYES, EDITS: what to change, or CANCEL?", steps(work)),
        Action::Decompose => format!("[LOOP] {}", steps(work)),
        Action::ShowReview => format!("{}\nSATISFIED, or NEW: what else to do?", findings(work)),
        Action::AskEngagement => "How densely shall I ask? AUTONOMOUS, COLLABORATIVE or GUIDED".to_owned(),
        Action::TellPaused => "[SESSION] Paused. RESUME or CANCEL?".to_owned(),
        Action::TellLimit => "A limit is met: this cannot be done once more in this session.".to_owned(),
        Action::TellBlocked => {
            format!("The fit is {} of 75 points: below 25 the work is not begun.", facts.fit.points())
        }
        Action::TripBreaker => "The same criterion failed again and again: I stop trying.".to_owned(),
        Action::SurfaceDoubt => "I doubt that this is what you want: CANCEL, or say what you want.".to_owned(),
        Action::GiveNoAdvice => "The experts have no advice on this.".to_owned(),
        Action::Close => closing(work),
        _ => String::new(),
    }
}

fn acknowledged(work: &Work) -> String {
    let Plan { persona, other, turns, rollouts } = &work.plan;
    format!(
        "TASK     {}\nCONTEXT  persona `{}`, {}\nDONE     {} of {} each, scored and reported\nSTAKES   reversible: all of it lies in one folder\nREVIEWS  a panel of experts, then the verify gate",
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
    risks
        .push("what a model says of itself is no evidence: a rating counts only where its judge was tested".to_owned());
    risks.push("a persona that holds here may not hold over more turns".to_owned());
    risks.truncate(3);
    risks
}

fn shape(work: &Work) -> String {
    let Some(selection) = work.selection else { return "No shape is selected.".to_owned() };
    let mut text = format!("[SESSION] Shape: {:?} ({:?}).\nCriteria:\n", selection.shape, selection.reason);
    for criterion in CRITERIA {
        let _ = writeln!(text, "  - {criterion}");
    }
    text.truncate(text.trim_end().len());
    text
}

/// What the work is accepted by; the last three are mustNots.
pub(super) const CRITERIA: [&str; 10] = [
    "every planned rollout is complete",
    "every planned turn was held",
    "the pilot, one turn, went through: the smallest case",
    "the transcripts are those that were recorded",
    "the scores come out the same when they are measured again",
    "the scores that models took are on record as they stand in the transcripts, or why none was taken",
    "the report on the run is there and was not changed",
    "must not: a message without a reply",
    "must not: a reply from a model that was not named",
    "must not: a receipt that does not follow the one before it",
];

/// The brief.
pub(super) fn brief(work: &Work) -> String {
    let mut text = format!("# Brief\n\n## Objective\n\n{}\n\n> {}\n\n## Non-goals\n\n", echo(work), work.need);
    for goal in [
        "changing the persona's config",
        "training or changing a model",
        "judging a real person",
        "publishing anything",
    ] {
        let _ = writeln!(text, "- {goal}");
    }
    text +=
        "\n## Constraints\n\n- all files lie in the session's folder\n- only the models that were named are called\n";
    for words in &work.words {
        let _ = writeln!(text, "- {words}");
    }
    if !work.known.is_empty() {
        text += "\n## What the memory holds of it\n\n";
        for line in &work.known {
            let _ = writeln!(text, "- {line}");
        }
    }
    text += "\n## Acceptance\n\n";
    for criterion in CRITERIA {
        let _ = writeln!(text, "- {criterion}");
    }
    text += "\n## Stop\n\n- a mustNot is broken\n- the same criterion fails five times\n- a budget of the session is spent\n- the user cancels\n";
    if !work.assumptions.is_empty() {
        text += "\n## Assumptions\n\n";
        for line in &work.assumptions {
            let _ = writeln!(text, "- [ASSUMPTION] {line}");
        }
    }
    text
}

fn findings(work: &Work) -> String {
    let passed = work.checks.iter().filter(|check| check.passed).count();
    let mut text = format!("Checks: {passed} of {} passed.", work.checks.len());
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
    format!("{how}\n{}", findings(work))
}

/// The report.
pub(super) fn report(work: &Work, facts: &Facts) -> String {
    let mut text = format!("# Session\n\n> {}\n\n{}\n\n", work.need, echo(work));
    if let Some(footer) = &work.footer {
        let _ = writeln!(text, "{footer}\n");
    }
    let _ = writeln!(text, "## What was found\n\n| Item | Finding | Value |\n|---|---|---|");
    for (item, found) in &work.found {
        for (name, value) in found {
            let _ = writeln!(text, "| {item:?} | {name} | {} |", told(value));
        }
    }
    text += "\n## The verify gate\n\n| Criterion | | Evidence |\n|---|---|---|\n";
    for check in &work.checks {
        let mark = if check.passed { "passed" } else { "FAILED" };
        let _ = writeln!(text, "| {} | {mark} | {} |", check.criterion, check.evidence);
    }
    text += "\n## The panel\n\n| Expert | Confidence | On the finished work |\n|---|---|---|\n";
    for opinion in &work.review {
        let view = match (opinion.blocker, &opinion.judged.choice) {
            (true, _) => "BLOCKER".to_owned(),
            (false, Some(_)) => "no objection".to_owned(),
            (false, None) => format!("no view: {}", opinion.judged.unsure.as_deref().unwrap_or_default()),
        };
        let _ = writeln!(text, "| {} | {} of 9 | {view} |", opinion.expert, opinion.confidence);
    }
    for Opinion { expert, judged, .. } in &work.objections {
        let _ = writeln!(text, "\nBLOCKER by {expert}, on record and not answered by more work: {}", judged.question);
    }
    text += "\n## Assumptions and risks\n\n";
    for line in &work.assumptions {
        let _ = writeln!(text, "- [ASSUMPTION] {line}");
    }
    for risk in risks(work, facts) {
        let _ = writeln!(text, "- risk: {risk}");
    }
    let unsure = work.judged.iter().filter(|judged| judged.choice.is_none()).count();
    let _ = writeln!(
        text,
        "\nOf {} questions to the model, {unsure} had no sure answer; defaults hold there.",
        work.judged.len()
    );
    for Judged { question, choice, margin, .. } in work.judged.iter().filter(|judged| judged.choice.is_some()) {
        let margin = margin.map_or_else(|| "in words".to_owned(), |margin| format!("by {margin:.2} nats"));
        let _ = writeln!(text, "- {question}: {} ({margin})", choice.as_deref().unwrap_or_default());
    }
    text
}

fn told(value: &Value) -> String {
    match value {
        Value::Count(count) => count.to_string(),
        Value::Number(number) => format!("{number:.3}"),
        // A digest is known by its beginning.
        Value::Text(text) if text.len() == 64 && !text.contains(' ') => text.chars().take(12).collect(),
        Value::Text(text) => one_line(text).replace('|', "\\|"),
    }
}

/// A text without line breaks.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub(super) fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
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
