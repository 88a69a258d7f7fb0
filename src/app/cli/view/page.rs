//! One turn as lines of text: prescribed intensities, messages, findings of monitors and the regulator.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;

use super::reader::OpenTranscript;
use super::wrap::wrap;
use crate::foundation::chat::{Finish, ThoughtEnd};
use crate::governance::regulator::{ConfidenceBasis, Decision};
use crate::simulation::persona::Speaker;
use crate::simulation::rollout::{MonitorAction, ThoughtRecord, TokenLine, Turn, Utterance};

/// Styles of tokens by probability: the least probability, a label, the style.
pub(in crate::app::cli) const PROBABILITY_STYLES: [(f32, &str, Style); 4] = [
    (0.5, "p ≥ .5", Style::new()),
    (0.1, "≥ .1", Style::new().fg(Color::Yellow)),
    (0.01, "≥ .01", Style::new().fg(Color::LightRed)),
    (0.0, "less", Style::new().fg(Color::Red).add_modifier(Modifier::BOLD)),
];

/// Columns of an intensity's bar.
const BAR: usize = 20;

/// One turn.
pub(super) struct Page<'a> {
    turn: &'a Turn,
    name: &'a str,
    first: Speaker,
    tokens: Vec<&'a TokenLine>,
    /// What the other side said before the first turn.
    opening: Option<&'a str>,
    pub(super) heading: String,
    /// Thoughts are shown in full.
    pub(super) unfolds: bool,
}

impl<'a> Page<'a> {
    /// The turn with the index `index` of the transcript.
    pub(super) fn of(open: &'a OpenTranscript, index: usize) -> Option<Self> {
        let transcript = &open.transcript;
        let turn = transcript.turns.get(index)?;
        let phase = turn.phase.as_deref().map_or(String::new(), |phase| format!(" · {phase}"));
        Some(Self {
            turn,
            name: &transcript.config.name,
            first: transcript.opening.first_speaker,
            tokens: open.tokens.iter().filter(|line| line.turn == turn.index).collect(),
            opening: transcript.opening.words.as_deref().filter(|_| index == 0),
            heading: super::super::terminal::printable(&format!(
                "── turn {} of {}{phase} ──",
                turn.index, transcript.run.turns_planned
            )),
            unfolds: false,
        })
    }

    /// The lines, wrapped to `width`.
    pub(super) fn lines(&self, width: usize, color: bool) -> Vec<Line<'static>> {
        let dim = if color { Style::new().dim() } else { Style::new() };
        let mut lines = Vec::new();
        let widest = self.turn.intensities.iter().map(|one| one.dimension.chars().count()).max().unwrap_or(0);
        for one in &self.turn.intensities {
            let full = (one.value.clamp(0.0, 1.0) * BAR as f64).round() as usize;
            let bar = format!("{}{}", "█".repeat(full), "░".repeat(BAR - full));
            let text = format!("{:widest$}  {bar} {:.2}", one.dimension, one.value);
            lines.extend(wrap(&[(text, dim)], width));
        }
        if self.turn.told_differs() == Some(true) {
            let text = self.turn.told_beside_prescribed().unwrap_or_default();
            let style = if color { Style::new().fg(Color::Magenta) } else { Style::new() };
            lines.extend(wrap(&[(format!("! {text}"), style)], width));
        }
        if let Some(opening) = self.opening {
            lines.push(Line::default());
            lines.extend(wrap(&[("Other side, opening".to_owned(), bold(color))], width));
            lines.extend(wrap(&[(opening.to_owned(), Style::new())], width));
        }
        for instruction in &self.turn.injected {
            lines.push(Line::default());
            lines.extend(wrap(&[("Instruction to the persona's model".to_owned(), dim)], width));
            lines.extend(wrap(&[(instruction.clone(), dim)], width));
        }
        let mut pair = [&self.turn.persona, &self.turn.interlocutor];
        if self.first == Speaker::Interlocutor {
            pair.reverse();
        }
        for utterance in pair {
            lines.push(Line::default());
            self.message(utterance, width, color, &mut lines);
        }
        if !self.turn.monitor_events.is_empty() {
            lines.push(Line::default());
        }
        for event in &self.turn.monitor_events {
            let outcome = match event.action {
                MonitorAction::Redraft => "redrafted",
                MonitorAction::Accepted => "accepted",
                MonitorAction::Observed => "found afterwards",
            };
            let text =
                format!("! draft {} {}: {} ({outcome})", event.attempt, event.finding.rule, event.finding.detail);
            let style = if color { Style::new().fg(Color::Magenta) } else { Style::new() };
            lines.extend(wrap(&[(text, style)], width));
        }
        lines
    }

    fn message(&self, utterance: &Utterance, width: usize, color: bool, lines: &mut Vec<Line<'static>>) {
        let dim = if color { Style::new().dim() } else { Style::new() };
        let who = match utterance.speaker {
            Speaker::Persona => self.name,
            Speaker::Interlocutor => "Other side",
        };
        let model = utterance.model.as_deref().unwrap_or("no model answered");
        lines.extend(wrap(&[(who.to_owned(), bold(color)), (format!("  {model}"), dim)], width));
        if let Some(adversary) = &utterance.adversary {
            lines.extend(wrap(&[(format!("{:?}: {}", adversary.kind, adversary.strategy).to_lowercase(), dim)], width));
        }
        for attempt in &utterance.attempts {
            let what = match (&attempt.error, attempt.content.is_empty()) {
                (Some(error), _) => format!("[draft {} failed: {error}]", attempt.index),
                (None, true) => format!("[draft {} was empty]", attempt.index),
                (None, false) => format!("[rejected draft {}] {}", attempt.index, attempt.content),
            };
            lines.extend(wrap(&[(what, dim)], width));
        }
        if let Some(thought) = &utterance.thought {
            lines.extend(wrap(&[(thought_line(thought, self.unfolds), dim)], width));
        }
        match &utterance.failure {
            Some(failure) => lines.extend(wrap(&[(format!("(no reply: {})", failure.why), dim)], width)),
            None => lines.extend(wrap(&self.text(utterance, color), width)),
        }
        let regulator = regulator_line(utterance);
        if !regulator.is_empty() {
            lines.extend(wrap(&[(regulator, dim)], width));
        }
    }

    /// The message, with its tokens coloured if the side file contains them.
    fn text(&self, utterance: &Utterance, color: bool) -> Vec<(String, Style)> {
        let line = self.tokens.iter().find(|line| line.speaker == utterance.speaker);
        match line.filter(|line| color && line.text.concat() == utterance.content) {
            None => vec![(utterance.content.clone(), Style::new())],
            Some(line) => {
                let logprobs = line.logprob.iter().copied().chain(std::iter::repeat(None));
                line.text
                    .iter()
                    .cloned()
                    .zip(logprobs.map(|logprob| logprob.map_or(Style::new(), probability_style)))
                    .collect()
            }
        }
    }
}

/// A thought in one line, or with its text.
fn thought_line(thought: &ThoughtRecord, unfolds: bool) -> String {
    let end = match thought.end {
        ThoughtEnd::Budget => ", ended by its budget",
        ThoughtEnd::Unfinished => ", unfinished",
        _ => "",
    };
    let confidence = thought.confidence.map_or_else(String::new, |confidence| format!(", confidence {confidence:.2}"));
    let text = if unfolds { format!(" {}", thought.content.trim()) } else { String::new() };
    format!("[thought of {} tokens{end}{confidence}]{text}", thought.tokens.count)
}

fn bold(color: bool) -> Style {
    if color { Style::new().bold() } else { Style::new() }
}

/// The style of a token with this log-probability.
pub(in crate::app::cli) fn probability_style(logprob: f32) -> Style {
    let probability = logprob.exp();
    PROBABILITY_STYLES.iter().find(|(from, ..)| probability >= *from).map_or(Style::new(), |(_, _, style)| *style)
}

/// The regulator's statistics of a message, on one line.
fn regulator_line(utterance: &Utterance) -> String {
    let reading = &utterance.regulator.reading;
    let mut parts = Vec::new();
    if let Some(confidence) = reading.confidence {
        let basis = match reading.confidence_basis {
            Some(ConfidenceBasis::Calibrated) => "calibrated",
            Some(ConfidenceBasis::Uncalibrated) => "uncalibrated",
            Some(ConfidenceBasis::Structural) => "from text structure",
            None => "of unknown basis",
        };
        parts.push(format!("confidence {confidence:.2} ({basis})"));
    }
    if let Some(entropy) = utterance.tokens.entropy_mean {
        parts.push(format!("entropy {entropy:.2} nats"));
    }
    // Scripted and imported messages have no tokens.
    if utterance.tokens.count > 0 {
        parts.push(format!("{} tokens", utterance.tokens.count));
    }
    match utterance.finish {
        Some(Finish::Length) => parts.push("cut off".to_owned()),
        Some(Finish::Refusal) => parts.push("refused".to_owned()),
        _ => {}
    }
    let decisions = utterance.regulator.decisions.iter().map(|ruling| &ruling.decision);
    let urgent: Vec<_> = decisions.filter(|decision| **decision != Decision::Continue).filter_map(name).collect();
    if !urgent.is_empty() {
        parts.push(format!("regulator: {}", urgent.join(", ")));
    }
    parts.join(" · ")
}

/// The decision's name in the transcript.
fn name(decision: &Decision) -> Option<String> {
    serde_json::to_value(decision).ok()?.get("decision")?.as_str().map(str::to_owned)
}
