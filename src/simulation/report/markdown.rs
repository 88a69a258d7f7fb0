//! The report as Markdown, readable as plain text. `report.md.j2` has the wording and the order; this file has the tables.

use std::fmt;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Value, context};
use serde::Serialize;

use super::data::{EventRow, OmittedSentence, ParticipantRow, Report, TurnRow};
use super::format::{
    NONE, code, counted, grouped, mean, mean_known, number, plain, quote, range, sentence, sparkline, table,
};
use super::load::ReportError;
use super::omitted::{notice, section};
use super::stored::judge_warning;
use super::summary::RolloutInterval;
use crate::simulation::judge::info;
use crate::simulation::persona::{AdversaryKind, Speaker};
use crate::simulation::rollout::{MonitorAction, Outcome, Reliability, ScoreMethod};

/// Maximum width of a sparkline; with more turns, a column is the mean of several.
const SPARK_COLUMNS: usize = 60;
/// Maximum number of rows of events and flagged turns; `report.json` contains all.
const ROWS_MAX: usize = 30;
const TEMPLATE: &str = "report.md.j2";

/// The tables, each as Markdown; empty where there is nothing to show.
#[derive(Serialize)]
struct Tables {
    verdict: String,
    run: String,
    phases: String,
    findings: String,
    regulator: String,
    standstills: String,
    stored: String,
    judges: String,
    scores: String,
    omitted: String,
    tokens: String,
}

impl Report {
    /// The report as Markdown. `curves` is the path of the figure, if there is one.
    ///
    /// # Errors
    /// If the template fails.
    pub fn markdown(&self, curves: Option<&str>) -> Result<String, ReportError> {
        let (sparklines, column) = self.sparklines();
        let timing = &self.timing;
        let text = environment()?.get_template(TEMPLATE)?.render(context! {
            persona => self.persona.clone(),
            notices => self.notices(),
            verdict => Value::from(Serde(VerdictView::of(self))),
            tables => Value::from(Serde(self.tables())),
            dimensions => self.dimensions.clone(),
            curves,
            sparklines,
            column,
            monitors => self.monitors_line(),
            told => self.told_line(),
            flags => Value::from(Serde(self.flags.iter().take(ROWS_MAX).collect::<Vec<_>>())),
            flags_more => more(self.flags.len()),
            agreement_min => number(Reliability::AGREEMENT_MIN),
            gaps => self.gaps(),
            notes => self.notes.clone(),
            timing => context! {
                // Without fractions of a second.
                began => timing.began.split_once('.').map_or(timing.began.clone(), |(whole, _)| format!("{whole}Z")),
                seconds => format!("{:.1}", timing.seconds),
                rate => timing.tokens_per_second.map(|rate| format!("{rate:.0}")),
                cached => grouped(timing.tokens_cached),
            },
        })?;
        Ok(collapsed(&text))
    }

    /// What a reader must know first: an incomplete run, stopped rollouts, truncated prompts.
    pub(super) fn notices(&self) -> Vec<String> {
        let mut notices = Vec::new();
        let ended = |wanted: fn(&Outcome) -> bool| self.rollouts.iter().filter(|row| wanted(&row.outcome)).count();
        let finished = ended(|outcome| *outcome == Outcome::Complete);
        let unfinished = ended(|outcome| *outcome == Outcome::Unfinished);
        let stopped = ended(|outcome| matches!(outcome, Outcome::Stopped { .. }));
        let planned = self.rollouts_planned.unwrap_or(self.rollouts.len());
        if finished < planned {
            let mut parts = vec![format!("{finished} of {} finished", counted(planned, "rollout"))];
            parts.extend((unfinished > 0).then(|| format!("{unfinished} running")));
            parts.extend((stopped > 0).then(|| format!("{stopped} stopped")));
            let begun = self.rollouts.len();
            parts.extend((begun < planned).then(|| format!("{} not started", planned - begun)));
            let text =
                format!("The run is incomplete: {}. The report covers the existing transcripts.", parts.join(", "));
            notices.push(text);
        }
        for row in &self.rollouts {
            if let Outcome::Stopped { reason, .. } = &row.outcome {
                let after = counted(row.turns, "turn");
                notices.push(format!("Rollout {} was stopped after {after}: {}", row.rollout, plain(reason)));
            }
        }
        notices.extend(notice(&self.prompts).map(|notice| plain(&notice)));
        notices
    }

    /// Which rollouts the monitors checked, and what they found.
    pub(super) fn monitors_line(&self) -> String {
        if self.monitors.is_empty() {
            return "No monitor ran over these transcripts; `loom score` runs them over imported ones.".to_owned();
        }
        let all = self.rollouts.len();
        let names: Vec<String> = self
            .monitors
            .iter()
            .map(
                |(name, count)| {
                    if *count == all { name.clone() } else { format!("{name} (in {count} of {all} rollouts)") }
                },
            )
            .collect();
        let ran = format!("Monitors that ran: {}.", names.join(", "));
        let redrafts = self.events.iter().filter(|row| row.event.action == MonitorAction::Redraft).count();
        if self.events.is_empty() {
            return format!("{ran} They found nothing.");
        }
        let counts = [(redrafts, "redrafted"), (self.events.len() - redrafts, "in accepted messages")];
        let counts: Vec<String> = counts.iter().map(|(count, what)| format!("{count} {what}")).collect();
        format!("{ran} {}: {}.", counted(self.events.len(), "finding"), counts.join(", "))
    }

    /// At which turns the persona's model was told something else than prescribed.
    pub(super) fn told_line(&self) -> Option<String> {
        let turns: Vec<String> = self
            .told_differs
            .iter()
            .take(ROWS_MAX)
            .map(|at| format!("rollout {} turn {}", at.rollout, at.turn))
            .collect();
        let more = if self.told_differs.len() > ROWS_MAX { ", …" } else { "" };
        let what = "The newest instruction of the persona's model named another phase or level than prescribed";
        (!turns.is_empty()).then(|| format!("{what} at {}{more}.", turns.join(", ")))
    }

    fn tables(&self) -> Tables {
        Tables {
            verdict: self.verdict_table(),
            run: self.run_table(),
            phases: self.phases_table(),
            findings: self.findings_table(),
            regulator: self.regulator_table(),
            standstills: self.standstills_table(),
            stored: self.stored_table(),
            judges: self.judges_table(),
            scores: self.scores_table(),
            omitted: self.omitted_table(),
            tokens: self.tokens_table(),
        }
    }

    fn verdict_table(&self) -> String {
        let rows = self.verdict.aspects.iter().map(|aspect| {
            let turns: Vec<String> =
                aspect.turns.iter().map(|at| format!("rollout {} turn {}", at.rollout, at.turn)).collect();
            vec![
                plain(&aspect.name()),
                format!("**{}**", aspect.held.text()),
                aspect.share().unwrap_or_else(|| NONE.to_owned()),
                if aspect.figure.is_empty() { NONE.to_owned() } else { plain(&aspect.figure) },
                if turns.is_empty() { NONE.to_owned() } else { turns.join("; ") },
            ]
        });
        rendered(
            &["Aspect", "Verdict", "Rollouts in which it held", "Evidence", "Deciding turns"],
            &rows.collect::<Vec<_>>(),
        )
    }

    fn run_table(&self) -> String {
        let turns: usize = self.rollouts.iter().map(|row| row.turns).sum();
        let seeds: Vec<String> = self.seeds.iter().map(u64::to_string).collect();
        let adversaries: Vec<&str> = self.adversaries.iter().map(|kind| adversary(*kind)).collect();
        let length = format!(
            "{} of {} planned, {} in total",
            counted(self.rollouts.len(), "rollout"),
            counted(self.turns_planned, "turn"),
            counted(turns, "turn")
        );
        let missing = if self.failures.is_empty() { "none".to_owned() } else { self.failures.len().to_string() };
        let rows = [
            ("Configuration", format!("{}, digest {}", code(&self.config), self.config_digest.short())),
            ("Length", length),
            ("Seed", if seeds.is_empty() { "not recorded".to_owned() } else { seeds.join(", ") }),
            ("Persona", side(&self.persona_side)),
            ("Other side", format!("{}; {}", adversaries.join(", "), side(&self.interlocutor_side))),
            ("Missing replies", missing),
        ];
        rendered(&["Run", ""], &rows.map(|(name, value)| vec![name.to_owned(), value]))
    }

    fn scores_table(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .scores
            .iter()
            .map(|score| {
                let interval = interval(score.interval);
                let (mean, range, n) = score
                    .value
                    .map_or((NONE.into(), NONE.into(), 0), |value| (number(value.mean), range(value), value.n));
                vec![code(&score.id), mean, interval, range, n.to_string(), meaning_cell(&score.id)]
            })
            .collect();
        rendered(&["Score", "Mean", "95 % interval", "Lowest to highest", "Rollouts", "Meaning"], &rows)
    }

    fn stored_table(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .stored
            .iter()
            .map(|score| {
                let dimension = score.dimension.as_ref().map_or(String::new(), |name| format!(" {}", plain(name)));
                let interval = interval(score.interval);
                vec![
                    format!("{}{dimension}", code(&score.id)),
                    method(score.method).to_owned(),
                    score.judge.as_ref().map_or(NONE.into(), |judge| {
                        let warning = judge_warning(score).map_or(String::new(), |warning| format!(", **{warning}**"));
                        code(&judge.model) + &warning
                    }),
                    mean(score.value),
                    interval,
                    score.top.map_or(String::new(), |top| format!("of {top}: ≥ ")) + &mean(score.mass),
                    score.value.map_or(0, |value| value.n).to_string(),
                    meaning_cell(&score.id),
                ]
            })
            .collect();
        let head = ["Score", "Method", "Model", "Mean", "95 % interval", "On the scale", "Rollouts", "Meaning"];
        rendered(&head, &rows)
    }

    fn judges_table(&self) -> String {
        let rows = self.judges.iter().map(|row| {
            let dimension = row.dimension.as_ref().map_or(String::new(), |name| format!(" {}", plain(name)));
            vec![
                format!("{}{dimension}", code(&row.id)),
                row.judges.iter().map(|judge| code(judge)).collect::<Vec<_>>().join(", "),
                row.windows.to_string(),
                row.alpha.map_or(NONE.into(), number),
            ]
        });
        rendered(&["Score", "Judges", "Windows", "Krippendorff's α"], &rows.collect::<Vec<_>>())
    }

    fn phases_table(&self) -> String {
        let mut head = vec!["Phase", "Turns"];
        head.extend(self.dimensions.iter().map(String::as_str));
        head.extend(["Confidence", "Entropy, nats", "Words", "Findings"]);
        let rows: Vec<Vec<String>> = self
            .phases
            .iter()
            .map(|row| {
                let mut cells = vec![row.phase.as_deref().map_or("(no phases)".into(), plain), row.turns.to_string()];
                cells.extend(self.dimensions.iter().map(|name| {
                    let found = row.intensities.iter().find(|intensity| intensity.dimension == *name);
                    found.map_or(NONE.into(), |intensity| number(intensity.value))
                }));
                cells.extend([row.confidence, row.entropy].map(mean));
                cells.push(row.words.map_or(NONE.into(), |words| format!("{:.0}", words.mean)));
                cells.push(row.events.to_string());
                cells
            })
            .collect();
        rendered(&head, &rows)
    }

    /// The lines of values over the turns, and how many turns one column is.
    fn sparklines(&self) -> (String, String) {
        let mut lines: Vec<(String, Vec<Option<f64>>)> = self
            .dimensions
            .iter()
            .map(|name| {
                let values = self.turns.iter().map(|row| {
                    row.intensities
                        .iter()
                        .find(|intensity| intensity.dimension == *name)
                        .map(|intensity| intensity.value)
                });
                (name.clone(), values.collect())
            })
            .collect();
        let of = |value: fn(&TurnRow) -> Option<f64>| self.turns.iter().map(value).collect::<Vec<_>>();
        lines.push(("confidence".into(), of(|row| row.confidence.map(|mean| mean.mean))));
        lines.push(("entropy, nats".into(), of(|row| row.entropy.map(|mean| mean.mean))));
        lines.push(("novelty".into(), of(|row| row.novelty.map(|mean| mean.mean))));
        lines.push(("words".into(), of(|row| row.words.map(|mean| mean.mean))));
        lines.push(("findings".into(), of(|row| Some(row.events as f64))));
        lines.retain(|(_, values)| values.iter().any(Option::is_some));
        let width = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        let shared = self.turns.len().div_ceil(SPARK_COLUMNS).max(1);
        let mut out = String::new();
        for (name, values) in lines {
            let columns: Vec<Option<f64>> = values.chunks(shared).map(mean_known).collect();
            let known = || values.iter().flatten().copied();
            let (low, high) = (known().fold(f64::INFINITY, f64::min), known().fold(f64::NEG_INFINITY, f64::max));
            let [from, to] = if high >= 5.0 { [low, high].map(|x| format!("{x:.0}")) } else { [low, high].map(number) };
            out.push_str(&format!("{name:width$}  {}  {from} to {to}\n", sparkline(&columns, low, high)));
        }
        (out, if shared == 1 { "one turn".to_owned() } else { format!("{shared} turns") })
    }

    fn standstills_table(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .standstills
            .iter()
            .map(|row| {
                let span = &row.standstill;
                vec![
                    row.rollout.to_string(),
                    format!("{}–{}", span.first, span.last),
                    number(span.similarity),
                    span.novelty.map_or(NONE.into(), number),
                ]
            })
            .collect();
        rendered(&["Rollout", "Turns", "Highest similarity", "Lowest novelty"], &rows)
    }

    fn findings_table(&self) -> String {
        // One row per rule and turn, over all drafts.
        let alike = |a: &EventRow, b: &EventRow| {
            (a.rollout, a.turn, &a.event.finding.rule) == (b.rollout, b.turn, &b.event.finding.rule)
        };
        let mut sorted: Vec<&EventRow> = self.events.iter().collect();
        sorted.sort_by_key(|row| (row.rollout, row.turn, &row.event.finding.rule, row.event.attempt));
        let rows: Vec<Vec<String>> = sorted
            .chunk_by(|a, b| alike(a, b))
            .filter_map(|drafts| {
                let accepted = drafts.iter().find(|row| row.event.action.is_final());
                let shown = accepted.or_else(|| drafts.first())?;
                Some(vec![
                    shown.rollout.to_string(),
                    shown.turn.to_string(),
                    code(&shown.event.finding.rule),
                    plain(&shown.event.finding.detail),
                    drafts.len().to_string(),
                    if accepted.is_some() { "**accepted**" } else { "redrafted" }.to_owned(),
                ])
            })
            .collect();
        let shown = rows.get(..rows.len().min(ROWS_MAX)).unwrap_or_default();
        rendered(&["Rollout", "Turn", "Rule", "Finding", "Drafts", "Outcome"], shown) + &more(rows.len())
    }

    /// Per kind of decision: how many turns, the first of them, what it rested on there.
    fn regulator_table(&self) -> String {
        let mut kinds: Vec<&str> = Vec::new();
        for row in &self.regulator {
            if !kinds.contains(&row.decision.as_str()) {
                kinds.push(&row.decision);
            }
        }
        let all: usize = self.rollouts.iter().map(|row| row.turns).sum();
        let rows: Vec<Vec<String>> = kinds
            .into_iter()
            .filter_map(|kind| {
                let of = || self.regulator.iter().filter(|row| row.decision == kind);
                let first = of().next()?;
                let turns: std::collections::BTreeSet<(usize, usize)> =
                    of().map(|row| (row.rollout, row.turn)).collect();
                Some(vec![
                    code(kind),
                    format!("{} of {all}", turns.len()),
                    format!("rollout {} turn {}", first.rollout, first.turn),
                    plain(&first.detail),
                ])
            })
            .collect();
        rendered(&["Decision", "Turns", "First", "There"], &rows)
    }

    fn gaps(&self) -> Vec<String> {
        let mut gaps = Vec::new();
        for failure in &self.failures {
            let side = match failure.speaker {
                Speaker::Persona => "the persona's",
                Speaker::Interlocutor => "the other side's",
            };
            let (rollout, turn) = (failure.rollout, failure.turn);
            gaps.push(format!("Rollout {rollout}, turn {turn}: {side} reply is missing: {}", plain(&failure.why)));
        }
        gaps.extend(self.missing.iter().map(|missing| format!("Not measured: {}", plain(missing))));
        for (score, (why, count)) in
            self.stored.iter().flat_map(|score| score.missing.iter().map(move |gap| (score, gap)))
        {
            let dimension = score.dimension.as_ref().map_or(String::new(), |name| format!(" ({})", plain(name)));
            gaps.push(format!(
                "Not scored: {}{dimension}, {}: {}",
                code(&score.id),
                counted(*count, "time"),
                plain(why)
            ));
        }
        gaps
    }

    fn omitted_table(&self) -> String {
        let row = |row: &OmittedSentence| {
            vec![
                plain(&row.item),
                section(row.section).to_owned(),
                format!("{} of {}", row.prompts, self.prompts.given),
            ]
        };
        let rows: Vec<Vec<String>> = self.prompts.left_out.iter().take(ROWS_MAX).map(row).collect();
        rendered(&["Left out of the prompt", "Section", "Prompts"], &rows) + &more(self.prompts.left_out.len())
    }

    fn tokens_table(&self) -> String {
        let (persona, other) = (self.persona_side.tokens, self.interlocutor_side.tokens);
        let (read, written) = (persona.tokens_in + other.tokens_in, persona.tokens_out + other.tokens_out);
        let tokens = |name: &str, read: u64, written: u64| vec![name.to_owned(), grouped(read), grouped(written)];
        let rows = [
            tokens("Persona", persona.tokens_in, persona.tokens_out),
            tokens("Other side", other.tokens_in, other.tokens_out),
            tokens("Both", read, written),
        ];
        rendered(&["Tokens", "Prompts", "Generated"], &rows)
    }
}

/// The verdict with the names of its aspects, for templates.
#[derive(Serialize)]
pub(super) struct VerdictView {
    summary: String,
    aspects: Vec<AspectView>,
    /// What would tell more, each with the aspects that it is about.
    needs: Vec<NeedView>,
}

#[derive(Serialize)]
struct NeedView {
    need: String,
    about: Vec<String>,
}

#[derive(Serialize)]
struct AspectView {
    name: String,
    held: &'static str,
    /// The CSS class.
    class: &'static str,
    share: Option<String>,
    figure: String,
    turns: Vec<super::verdict::DecidingTurn>,
    needs: Vec<String>,
}

impl VerdictView {
    pub(super) fn of(report: &Report) -> Self {
        use super::verdict::Held;
        let aspects = report.verdict.aspects.iter().map(|aspect| AspectView {
            name: aspect.name(),
            held: aspect.held.text(),
            class: match aspect.held {
                Held::Held => "held",
                Held::DidNotHold => "broke",
                Held::CannotTell => "unknown",
            },
            share: aspect.share(),
            figure: aspect.figure.clone(),
            turns: aspect.turns.clone(),
            needs: aspect.needs.clone(),
        });
        let mut needs: Vec<NeedView> = Vec::new();
        for aspect in &report.verdict.aspects {
            for need in &aspect.needs {
                match needs.iter_mut().find(|other| other.need == *need) {
                    Some(other) => other.about.push(aspect.name()),
                    None => needs.push(NeedView { need: need.clone(), about: vec![aspect.name()] }),
                }
            }
        }
        Self { summary: report.verdict.summary.clone(), aspects: aspects.collect(), needs }
    }
}

fn environment() -> Result<Environment<'static>, minijinja::Error> {
    let mut templates = Environment::new();
    templates.set_undefined_behavior(minijinja::UndefinedBehavior::Strict);
    templates.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    templates.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    templates.add_template(TEMPLATE, include_str!("report.md.j2"))?;
    templates.add_filter("plain", |text: &str| plain(text));
    templates.add_filter("quote", |text: &str| quote(text));
    templates.add_filter("sentence", |text: &str| sentence(text));
    Ok(templates)
}

/// A table, or nothing without rows.
fn rendered(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut out = String::new();
    if rows.is_empty() {
        return out;
    }
    // Writing to a String does not fail.
    let _infallible: fmt::Result = table(&mut out, head, rows);
    out
}

/// At most one blank line in a row, and one line break at the end.
fn collapsed(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.dedup_by(|later, earlier| later.is_empty() && earlier.is_empty());
    lines.join("\n").trim_end().to_owned() + "\n"
}

fn more(all: usize) -> String {
    if all > ROWS_MAX { format!("{} more in `report.json`.\n\n", all - ROWS_MAX) } else { String::new() }
}

/// An interval over rollouts; that of a median is marked.
pub(super) fn interval(interval: Option<RolloutInterval>) -> String {
    use super::summary::IntervalOf;
    let Some(RolloutInterval { interval, of }) = interval else { return NONE.to_owned() };
    let median = if of == IntervalOf::Median { " (median)" } else { "" };
    format!("{} to {}{median}", number(interval.low), number(interval.high))
}

/// How to read a score; a dash for ids of other versions.
fn meaning_cell(id: &str) -> String {
    info(id).map_or(NONE.into(), |info| plain(info.meaning))
}

pub(super) fn side(side: &ParticipantRow) -> String {
    let mut text = match side.answered.as_slice() {
        [] => "no model answered".to_owned(),
        answered => {
            let each = answered.iter().map(|one| format!("{} {}", code(&one.model), one.messages));
            format!("{} of {}", each.collect::<Vec<_>>().join(", "), counted(side.messages, "message"))
        }
    };
    for (count, what) in [(side.fallbacks, "fallback"), (side.refusals, "refusal")] {
        if count > 0 {
            text.push_str(", ");
            text.push_str(&counted(count, what));
        }
    }
    if side.cut_off > 0 {
        text.push_str(", ");
        text.push_str(&side.cut_off.to_string());
        text.push_str(" cut off at the token limit");
    }
    text
}

pub(super) const fn adversary(kind: AdversaryKind) -> &'static str {
    match kind {
        AdversaryKind::None => "no adversary",
        AdversaryKind::Contradiction => "contradiction adversary",
        AdversaryKind::Helpfulness => "helpfulness adversary",
        AdversaryKind::Both => "both adversaries in turn",
    }
}

/// The name of a scoring method.
pub(super) const fn method(method: ScoreMethod) -> &'static str {
    match method {
        ScoreMethod::Measured => "measured",
        ScoreMethod::LogprobRating => "rating by log-probabilities",
        ScoreMethod::TopLogprobRating => "rating by the top log-probabilities",
        ScoreMethod::WrittenRating => "written rating",
        ScoreMethod::Likelihood => "likelihood",
    }
}
