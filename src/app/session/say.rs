//! What is said to the user: what was understood, questions, the echo, what experts advise, how it ended.

use std::fmt::Write as _;

use super::course::Course;
use super::finding;
use super::need::{Plan, other_name};
use super::outcome::{CRITERIA, Conclusion, ItemKind, Opinion, Work};
use super::phrases::{counted, echo, one_line, risks, told};
use super::questions::{differently, questions, still_open};
use crate::governance::statechart::hope::{Action, Engagement, Facts, Fit, Shape};
use crate::simulation::persona::examples;

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
