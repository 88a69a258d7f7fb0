//! The report as Markdown, readable as plain text.

use std::fmt::{self, Write};

use super::aggregate::counted;
use super::data::{EventRow, Flag, OmittedSentence, ParticipantRow, PromptRow, Report, TurnRow};
use super::format::{NONE, code, grouped, mean, mean_known, number, plain, quote, range, sentence, sparkline, table};
use super::omitted::{notice, section};
use super::stored::judge_warning;
use crate::simulation::judge::meaning;
use crate::simulation::persona::{AdversaryKind, Speaker};
use crate::simulation::rollout::{MonitorAction, Outcome, Reliability, ScoreMethod};

/// Maximum width of a sparkline; with more turns, a column is the mean of several.
const SPARK_COLUMNS: usize = 60;
/// Maximum number of rows of events and flagged turns; `report.json` contains all.
const ROWS_MAX: usize = 30;

impl Report {
    /// The report as Markdown. `curves` is the path of the figure, if there is one.
    pub fn markdown(&self, curves: Option<&str>) -> String {
        let mut out = String::new();
        // Writing to a String does not fail.
        let _infallible = self.write(&mut out, curves);
        out
    }

    fn write(&self, out: &mut String, curves: Option<&str>) -> fmt::Result {
        writeln!(out, "# {}\n", plain(&self.persona))?;
        self.header(out)?;
        self.scores(out)?;
        self.stored(out)?;
        self.phases(out)?;
        self.over_the_turns(out, curves)?;
        self.standstill(out)?;
        self.monitor_events(out)?;
        self.flagged(out)?;
        self.gaps(out)?;
        self.notes(out)?;
        self.timing(out)
    }

    fn header(&self, out: &mut String) -> fmt::Result {
        let finished = self.rollouts.iter().filter(|row| row.outcome == Outcome::Complete).count();
        let unfinished = self.rollouts.iter().filter(|row| row.outcome == Outcome::Unfinished).count();
        let stopped: Vec<_> = self
            .rollouts
            .iter()
            .filter_map(|row| match &row.outcome {
                Outcome::Stopped { reason, .. } => Some((row, reason)),
                _ => None,
            })
            .collect();
        let planned = self.rollouts_planned.unwrap_or(self.rollouts.len());
        let turns: usize = self.rollouts.iter().map(|row| row.turns).sum();
        if finished < planned {
            let mut parts = vec![format!("{finished} of {} finished", counted(planned, "rollout"))];
            if unfinished > 0 {
                parts.push(format!("{unfinished} running"));
            }
            if !stopped.is_empty() {
                parts.push(format!("{} stopped", stopped.len()));
            }
            let begun = self.rollouts.len();
            if begun < planned {
                parts.push(format!("{} not started", planned - begun));
            }
            writeln!(
                out,
                "> **The run is incomplete:** {}. The report covers the existing transcripts.\n",
                parts.join(", ")
            )?;
        }
        for (row, reason) in stopped {
            writeln!(
                out,
                "> Rollout {} was stopped after {}: {}\n",
                row.rollout,
                counted(row.turns, "turn"),
                plain(reason)
            )?;
        }
        if let Some(notice) = notice(&self.prompts) {
            writeln!(out, "> **{}** *Missing values* lists the sentences.\n", plain(&notice))?;
        }
        let list = |items: Vec<String>| items.join(", ");
        let seeds = list(self.seeds.iter().map(u64::to_string).collect());
        let adversaries = list(self.adversaries.iter().map(|kind| adversary(*kind).to_owned()).collect());
        let redrafts = self.events.iter().filter(|row| row.event.action == MonitorAction::Redraft).count();
        table(
            out,
            &["Run", ""],
            &[
                vec!["Configuration".into(), format!("{}, digest {}", code(&self.config), self.config_digest.short())],
                vec![
                    "Length".into(),
                    format!(
                        "{} of {} planned, {} in total",
                        counted(self.rollouts.len(), "rollout"),
                        counted(self.turns_planned, "turn"),
                        counted(turns, "turn")
                    ),
                ],
                vec!["Seed".into(), seeds],
                vec!["Persona".into(), side(&self.persona_side)],
                vec!["Other side".into(), format!("{adversaries}; {}", side(&self.interlocutor_side))],
                vec![
                    "Monitors".into(),
                    if self.events.is_empty() {
                        "no findings".into()
                    } else {
                        let accepted = self.events.len() - redrafts;
                        format!(
                            "{}: {redrafts} redrafted, {accepted} accepted despite the finding",
                            counted(self.events.len(), "finding")
                        )
                    },
                ],
                vec![
                    "Missing replies".into(),
                    if self.failures.is_empty() { "none".into() } else { self.failures.len().to_string() },
                ],
            ],
        )
    }

    fn scores(&self, out: &mut String) -> fmt::Result {
        heading(out, "Scores")?;
        let rows: Vec<Vec<String>> = self
            .scores
            .iter()
            .map(|score| {
                let interval =
                    score.interval.map_or(NONE.into(), |i| format!("{} to {}", number(i.low), number(i.high)));
                let (mean, range, n) = score
                    .value
                    .map_or((NONE.into(), NONE.into(), 0), |value| (number(value.mean), range(value), value.n));
                vec![code(&score.id), mean, interval, range, n.to_string(), meaning_cell(&score.id)]
            })
            .collect();
        table(out, &["Score", "Mean", "95 % interval", "Lowest to highest", "Rollouts", "Meaning"], &rows)?;
        writeln!(
            out,
            "Computed from the text, without a model; `docs/SCORES.md` defines each. The interval is a bootstrap over \
             rollouts and needs at least three.\n"
        )
    }

    fn stored(&self, out: &mut String) -> fmt::Result {
        if self.stored.is_empty() {
            return Ok(());
        }
        heading(out, "Judged and likelihood scores")?;
        let rows: Vec<Vec<String>> = self
            .stored
            .iter()
            .map(|score| {
                let dimension = score.dimension.as_ref().map_or(String::new(), |name| format!(" {}", plain(name)));
                let interval =
                    score.interval.map_or(NONE.into(), |i| format!("{} to {}", number(i.low), number(i.high)));
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
        table(
            out,
            &["Score", "Method", "Model", "Mean", "95 % interval", "On the scale", "Rollouts", "Meaning"],
            &rows,
        )?;
        writeln!(
            out,
            "Computed by `loom score`. *On the scale* is the total probability of the judge's answers on the rating scale, a \
             lower bound if the provider returns only some alternatives. A judge is *unreliable* if its agreement in \
             `loom judge check` is below {}: disregard its scores.\n",
            number(Reliability::AGREEMENT_MIN)
        )
    }

    fn phases(&self, out: &mut String) -> fmt::Result {
        heading(out, "Phases")?;
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
        table(out, &head, &rows)?;
        if !self.dimensions.is_empty() {
            writeln!(out, "The dimensions are prescribed intensities, means over the phase's turns.\n")?;
        }
        Ok(())
    }

    fn over_the_turns(&self, out: &mut String, curves: Option<&str>) -> fmt::Result {
        heading(out, "Over the turns")?;
        if let Some(path) = curves {
            writeln!(out, "![Prescribed intensities, confidence, entropy and length over the turns]({path})\n")?;
        }
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
        writeln!(out, "```text")?;
        for (name, values) in lines {
            let columns: Vec<Option<f64>> = values.chunks(shared).map(mean_known).collect();
            let known = || values.iter().flatten().copied();
            let (low, high) = (known().fold(f64::INFINITY, f64::min), known().fold(f64::NEG_INFINITY, f64::max));
            let [from, to] = if high >= 5.0 { [low, high].map(|x| format!("{x:.0}")) } else { [low, high].map(number) };
            writeln!(out, "{name:width$}  {}  {from} to {to}", sparkline(&columns, low, high))?;
        }
        writeln!(out, "```\n")?;
        let column = if shared == 1 { "one turn".to_owned() } else { format!("{shared} turns") };
        writeln!(
            out,
            "One column is {column}, from turn 0; each line is scaled from its lowest to its highest value, means over \
             rollouts. Confidence is the regulator's: unless calibrated, it is the geometric mean of the probabilities \
             of a message's tokens, which ranks messages and is not a probability of being right.\n"
        )
    }

    fn standstill(&self, out: &mut String) -> fmt::Result {
        heading(out, "Standstill")?;
        if self.standstills.is_empty() {
            return writeln!(out, "No six consecutive messages of the persona were a standstill.\n");
        }
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
        table(out, &["Rollout", "Turns", "Highest similarity", "Lowest novelty"], &rows)
    }

    fn monitor_events(&self, out: &mut String) -> fmt::Result {
        heading(out, "Monitor events")?;
        if self.events.is_empty() {
            return writeln!(out, "None.\n");
        }
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
        table(out, &["Rollout", "Turn", "Rule", "Finding", "Drafts", "Outcome"], shown)?;
        rest(out, rows.len())
    }

    fn flagged(&self, out: &mut String) -> fmt::Result {
        heading(out, "Flagged turns")?;
        if self.flags.is_empty() {
            return writeln!(out, "None.\n");
        }
        for Flag { rollout, turn, phase, why, before, persona } in self.flags.iter().take(ROWS_MAX) {
            let phase = phase.as_deref().map_or(String::new(), |phase| format!(", {}", plain(phase)));
            writeln!(out, "**Rollout {rollout}, turn {turn}{phase}.** {}.\n", sentence(&why.join("; ")))?;
            if let Some(before) = before {
                writeln!(out, "> Other side: {}\n>", quote(before))?;
            }
            writeln!(out, "> {}: {}\n", plain(&self.persona), quote(persona))?;
        }
        rest(out, self.flags.len())
    }

    fn gaps(&self, out: &mut String) -> fmt::Result {
        heading(out, "Missing values")?;
        self.left_out(out)?;
        let unscored = || self.stored.iter().flat_map(|score| score.missing.iter().map(move |gap| (score, gap)));
        if self.failures.is_empty() && self.missing.is_empty() && unscored().next().is_none() {
            return writeln!(out, "None: every message got a reply, and all scores could be computed.\n");
        }
        for failure in &self.failures {
            let side = match failure.speaker {
                Speaker::Persona => "the persona's",
                Speaker::Interlocutor => "the other side's",
            };
            let (rollout, turn) = (failure.rollout, failure.turn);
            writeln!(out, "- Rollout {rollout}, turn {turn}: {side} reply is missing: {}", plain(&failure.why))?;
        }
        for missing in &self.missing {
            writeln!(out, "- Not measured: {}", plain(missing))?;
        }
        for (score, (why, count)) in unscored() {
            let dimension = score.dimension.as_ref().map_or(String::new(), |name| format!(" ({})", plain(name)));
            writeln!(out, "- Not scored: {}{dimension}, {}: {}", code(&score.id), counted(*count, "time"), plain(why))?;
        }
        writeln!(out)
    }

    fn left_out(&self, out: &mut String) -> fmt::Result {
        let PromptRow { given, left_out } = &self.prompts;
        if left_out.is_empty() {
            return Ok(());
        }
        let row = |row: &OmittedSentence| {
            vec![plain(&row.item), section(row.section).to_owned(), format!("{} of {given}", row.prompts)]
        };
        let rows: Vec<Vec<String>> = left_out.iter().take(ROWS_MAX).map(row).collect();
        table(out, &["Left out of the prompt", "Section", "Prompts"], &rows)?;
        rest(out, left_out.len())
    }

    fn notes(&self, out: &mut String) -> fmt::Result {
        if self.notes.is_empty() {
            return Ok(());
        }
        heading(out, "Origin")?;
        self.notes.iter().try_for_each(|note| writeln!(out, "- {}", plain(note)))?;
        writeln!(out)
    }

    fn timing(&self, out: &mut String) -> fmt::Result {
        heading(out, "Cost and time")?;
        let (persona, other) = (self.persona_side.tokens, self.interlocutor_side.tokens);
        let (read, written) = (persona.tokens_in + other.tokens_in, persona.tokens_out + other.tokens_out);
        let tokens = |name: &str, read: u64, written: u64| vec![name.to_owned(), grouped(read), grouped(written)];
        table(
            out,
            &["Tokens", "Prompts", "Generated"],
            &[
                tokens("Persona", persona.tokens_in, persona.tokens_out),
                tokens("Other side", other.tokens_in, other.tokens_out),
                tokens("Both", read, written),
            ],
        )?;
        let timing = &self.timing;
        // Without fractions of a second.
        let began = timing.began.split_once('.').map_or(timing.began.clone(), |(whole, _)| format!("{whole}Z"));
        write!(out, "Started {began}. {:.1} s over all turns", timing.seconds)?;
        if let Some(rate) = timing.tokens_per_second {
            write!(out, ", {rate:.0} generated tokens per second and rollout")?;
        }
        writeln!(out, "; {} prompt tokens were cached.", grouped(timing.tokens_cached))
    }
}

/// How to read a score; a dash for ids of other versions.
fn meaning_cell(id: &str) -> String {
    meaning(id).map_or(NONE.into(), plain)
}

fn heading(out: &mut String, text: &str) -> fmt::Result {
    writeln!(out, "## {text}\n")
}

fn rest(out: &mut String, all: usize) -> fmt::Result {
    if all > ROWS_MAX { writeln!(out, "{} more in `report.json`.\n", all - ROWS_MAX) } else { Ok(()) }
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
