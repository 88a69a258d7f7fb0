//! The messages to the user: the understood need, questions, the plan, advice, the result.

use std::fmt::Write as _;

use super::finding;
use super::need::Plan;
use super::outcome::{CRITERIA, Conclusion, ExpertOpinion, Work, WorkItemKind};
use super::phrases::{counted, echo, format_value, one_line, risks};
use super::questions::{differently, questions, still_open};
use super::state::SessionState;
use crate::governance::statechart::hope::{Action, Engagement, Facts, FitScore, Shape};
use crate::simulation::persona::examples;

/// The message of an action.
pub(super) fn message(action: Action, state: &SessionState) -> String {
    let (work, facts) = (&state.work, &state.facts);
    match action {
        Action::AskQuestions => questions(&work.plan),
        Action::AskDifferently => differently(&work.plan),
        // In guided mode the steps and the risks are always shown.
        Action::Echo if facts.engagement == Some(Engagement::Guided) => {
            let (steps, risks) = (steps(work), main_risks(work, facts));
            let open = still_open(&work.plan);
            let doubts = doubts(&work.plan);
            format!("{}\n{steps}\n{risks}\n{open}{doubts}Answer YES, or EDITS: changes", echo(work))
        }
        Action::AskApproval if facts.engagement == Some(Engagement::Guided) => {
            let (steps, risks) = (steps(work), main_risks(work, facts));
            format!("{}\n{steps}\n{risks}\nAnswer YES, EDITS: changes, or CANCEL", echo(work))
        }
        Action::Echo => {
            let assumed: Vec<_> = work.assumptions.iter().map(|line| format!("[ASSUMPTION] {line}\n")).collect();
            let doubts = doubts(&work.plan);
            format!("{}\n{}{doubts}Answer YES, EDITS: changes, BLUEPRINT (shows the steps) or RISK (shows the risks)", echo(work), assumed.concat())
        }
        Action::ShowBlueprint => format!("{}\nAnswer YES, or EDITS: changes", steps(work)),
        Action::ShowRisks => {
            format!("{}\nAnswer YES, or EDITS: changes", main_risks(work, facts))
        }
        Action::AnnounceShape => shape(work),
        Action::AskApproval => format!("{}\n{}\nAnswer YES, EDITS: changes, or CANCEL", echo(work), steps(work)),
        Action::Decompose => format!("[LOOP] {}", steps(work)),
        Action::ShowReview => {
            format!("{}\nAnswer SATISFIED, PROMOTE (asserts the finding), or NEW: the next need", findings(work))
        }
        Action::AskEngagement => "How many questions should be asked? AUTONOMOUS (none; defaults are used), COLLABORATIVE (one round) or GUIDED (all)".to_owned(),
        Action::TellPaused if facts.audit_blocks => {
            let brief = work.file("brief");
            format!(
                "[SESSION] Paused: {brief} was changed after it was agreed; the need can be changed only by an answer. Answer RESUME (continues with the agreed brief), CANCEL, or WRONG: the corrected need"
            )
        }
        Action::TellPaused => "[SESSION] Paused. Answer RESUME, CANCEL, or WRONG: the corrected need".to_owned(),
        Action::TellLimit => "A limit is reached: this cannot be repeated in this session.".to_owned(),
        Action::TellBlocked => {
            format!("The fit is {} of 75 points: below 25 points the work is not started.", facts.fit.points())
        }
        Action::TripBreaker => "The same criterion failed too often: the work stops.".to_owned(),
        Action::SurfaceDoubt => "The pilot may not match the need.".to_owned(),
        Action::SurfaceTensions => tensions(&work.panel),
        Action::Synthesize | Action::Recommend => consensus(&work.panel),
        Action::Generate => "No expert is available.".to_owned(),
        Action::ParseBlocker => {
            let stuck = work.last_error.as_deref().or(work.consult.as_ref().map(|(_, words)| words.as_str()));
            format!(
                "[UNBLOCK] {}; {} so far",
                stuck.unwrap_or("no failure"),
                counted(facts.failures as usize, "failed attempt")
            )
        }
        Action::Research => researched(work),
        Action::GiveNoAdvice => "The experts have no advice.".to_owned(),
        Action::Close => closing(work),
        _ => String::new(),
    }
}

/// The understood need, and what is at stake.
pub(super) fn acknowledgement(work: &Work, stakes: &str) -> String {
    let Plan { question, persona, other, turns, rollouts, .. } = &work.plan;
    format!(
        "TASK     {}\nQUESTION {}\nCONTEXT  persona `{}`, {}\nDONE     {} of {} each, scored and reported\nSTAKES   {stakes}\nREVIEWS  a panel of experts, then verification",
        work.need,
        finding::hypothesis(work),
        persona.value,
        super::phrases::versus(question.value, other.value),
        counted(rollouts.value, "rollout"),
        counted(turns.value, "turn"),
    )
}

/// What of the need was not understood.
fn doubts(plan: &Plan) -> String {
    if plan.doubts.is_empty() {
        return String::new();
    }
    format!(
        "[NOT UNDERSTOOD] {}. YES runs the plan above without it; WRONG: states the need anew.\n",
        plan.doubts.join("; ")
    )
}

fn steps(work: &Work) -> String {
    let Plan { question, turns, rollouts, .. } = &work.plan;
    let arms = if question.value.compares() { " for each of two arms" } else { "" };
    format!(
        "Steps: 1. a pilot of one turn; 2. {} of {}{arms}; 3. scores; 4. a report; then a review by experts, and verification.",
        counted(rollouts.value, "rollout"),
        counted(turns.value, "turn")
    )
}

fn main_risks(work: &Work, facts: &Facts) -> String {
    let mut text = "Main risks:".to_owned();
    for (number, risk) in (1..).zip(risks(work, facts)) {
        let _ = write!(text, "\n  {number}. {risk}");
    }
    text
}

fn shape(work: &Work) -> String {
    let Some(selection) = work.selection else { return "No shape was selected.".to_owned() };
    format!("[SESSION] Shape: {:?} ({:?}).", selection.shape, selection.reason)
}

/// The message that the shape differs from the announced one, because the fit allows only a stricter one.
pub(super) fn shape_change(state: &SessionState, fit: &FitScore) -> Option<String> {
    let shape = state.shape_under(fit)?;
    let points = fit.points();
    let changed = state.work.selection?.shape != shape;
    changed.then(|| format!("[SESSION] Shape changed to {shape:?}: the fit is only {points} of 75 points."))
}

/// The question that the session waits for at a stage.
pub(super) fn question(stage: &str, state: &SessionState) -> String {
    let action = match stage {
        _ if state.facts.engagement.is_none() => Action::AskEngagement,
        "clarify" => Action::AskQuestions,
        "echo_check" => Action::Echo,
        "show_blueprint" => Action::ShowBlueprint,
        "show_risks" => Action::ShowRisks,
        "shape_approval" => Action::AskApproval,
        "review_feedback" => Action::ShowReview,
        "paused" => Action::TellPaused,
        _ => return "Answer CANCEL, PAUSE, or WRONG: the corrected need".to_owned(),
    };
    message(action, state)
}

/// A summary for the person who resumes the work.
pub(super) fn recap(state: &SessionState, stage: &str) -> String {
    let (work, facts) = (&state.work, &state.facts);
    let done = work.items.iter().filter(|item| item.done).count();
    let shape = state.shape().map_or_else(|| "none yet".to_owned(), |shape| format!("{shape:?}"));
    let mut text = format!(
        "[SESSION] Need: {}\n[SESSION] Stage: {stage}; agreed so far: {:?}; shape: {shape}; {done} of {} done",
        one_line(&work.need),
        facts.held,
        counted(work.items.len(), "item"),
    );
    for line in &work.assumptions {
        let _ = write!(text, "\n[ASSUMPTION] {line}");
    }
    if state.is_open() {
        let _ = write!(text, "\n{}", question(stage, state));
    }
    text
}

/// The shape recommended by each expert.
fn tensions(panel: &[ExpertOpinion]) -> String {
    let mut text = "[PANEL]".to_owned();
    for opinion in panel {
        let view = opinion.shape.map_or_else(|| "no opinion".to_owned(), |shape| format!("{shape:?}"));
        let _ = write!(text, " {} ({} of 9): {view}.", opinion.expert, opinion.confidence);
    }
    text
}

/// The majority of the panel, and the dissenters.
fn consensus(panel: &[ExpertOpinion]) -> String {
    let of = |shape: Shape| panel.iter().filter(move |opinion| opinion.shape == Some(shape)).count();
    let all = [Shape::Tool, Shape::ToolReview, Shape::Colleague];
    let Some(most) = all.into_iter().filter(|shape| of(*shape) > 0).max_by_key(|shape| of(*shape)) else {
        return "[PANEL] No expert has an opinion: there is no recommendation.".to_owned();
    };
    let dissent: Vec<_> = panel
        .iter()
        .filter(|opinion| opinion.shape.is_some_and(|shape| shape != most))
        .map(|opinion| opinion.expert.as_str())
        .collect();
    let dissent =
        if dissent.is_empty() { "no dissent".to_owned() } else { format!("dissenting: {}", dissent.join(", ")) };
    format!("[PANEL] {} of {} recommend {most:?}; {dissent}.", of(most), panel.len())
}

/// Information that may help where a stage is stuck.
fn researched(work: &Work) -> String {
    let names: Vec<_> = examples().iter().map(|example| example.name).collect();
    let mut text = format!("Built-in personas: {}.", names.join(", "));
    if let Some(error) = &work.last_error {
        let _ = write!(text, " The last error: {error}.");
    }
    let _ = write!(text, " The memory has {} about it.", counted(work.known.len(), "line"));
    text
}

/// The finding and the checks in short.
fn outcome(work: &Work) -> String {
    let passed = work.checks.iter().filter(|check| check.passed).count();
    format!("Finding: {}.\nChecks: {passed} of {} passed.", finding::sentence(work), CRITERIA.len())
}

fn findings(work: &Work) -> String {
    let mut text = outcome(work);
    for kind in [WorkItemKind::Compare, WorkItemKind::Measure, WorkItemKind::Score] {
        for (name, value) in work.found.get(&kind).into_iter().flatten() {
            let _ = write!(text, "\n  {name:<34} {}", format_value(value));
        }
    }
    for ExpertOpinion { expert, judged, .. } in &work.objections {
        let _ = write!(text, "\n  BLOCKER by {expert}: {}", judged.question);
    }
    text
}

fn closing(work: &Work) -> String {
    let how = match work.conclusion {
        Some(Conclusion::Done) => "Done: accepted by the user.",
        Some(Conclusion::Unreviewed) => "Done, without a review by the user.",
        Some(Conclusion::Unverified) => "Ended: the verification does not pass, so there is no report.",
        Some(Conclusion::Cancelled) => "Cancelled.",
        Some(Conclusion::Stopped) => "Stopped: a \"must not\" criterion was violated.",
        Some(Conclusion::Stuck) => "Ended: the work is stuck.",
        None => "Ended.",
    };
    format!("{how}\n{}", outcome(work))
}
