//! The soul beside the work: a silent audit of twelve items before every response, and the footer under it.

use super::core::{Performed, Session};
use super::outcome::{CRITERIA, Outcome, Work};
use super::place::SessionError;
use super::{finding, pages, phrases};
use crate::foundation::base::{Digest, limits};
use crate::governance::mood::lint::{no_copy, stubs};
use crate::governance::statechart::hope::{Event, Facts, Footer, Held, Percent, Reversible, Verified};
use crate::simulation::persona::AdversaryKind;

impl Session {
    /// The audit: the items that do not hold. A brief that somebody else wrote into the place of ours interrupts, because an
    /// intent changes by the user's word alone.
    pub(super) fn audit(&self) -> Outcome {
        let (work, facts) = (&self.course.work, &self.course.facts);
        let (begun, agreed) = (!work.items.is_empty(), facts.held >= Held::Intent);
        let changed = self.changed_brief();
        let searched = !work.known.iter().any(|line| line.starts_with(NOT_SEARCHED));
        let items = [
            (!agreed || work.brief().is_some(), "inversion: what would make this fail is written down"),
            (self.config().is_ok(), "the library of personas was searched"),
            (searched && changed.is_none(), "the context was read: need, memory, brief"),
            (!begun || facts.fit.points() > 0, "an estimate is given: the fit"),
            (!alternative(work).is_empty(), "an alternative is named"),
            (work.conclusion.is_none() || begun, "the size is given in points"),
            (facts.spec.points() >= 8 || agreed, "the intent is sure by 85 %"),
            (facts.failures == 0, "nothing failed on the way"),
            (!begun || !work.checks.is_empty(), "what was done is verified"),
            (self.reversible() != Reversible::Hardly, "it can be undone"),
            (work.objections.is_empty(), "no expert objects"),
            (work.assumptions.is_empty(), "nothing is assumed"),
        ];
        let failed = items.iter().filter(|(holds, _)| !holds).map(|(_, item)| (*item).to_owned()).collect();
        Outcome::Audit(failed, changed)
    }

    /// The digest of the brief as it lies there, if it is not the one that was written.
    fn changed_brief(&self) -> Option<Digest> {
        let written = self.course.work.brief()?;
        let path = self.folder.join(self.course.work.file("brief"));
        let now = Digest::of(std::fs::read(path).unwrap_or_default());
        (now != written).then_some(now)
    }

    /// What is sent to a host cannot be taken back. Without one all of it lies in one folder, which is gone in a moment; what
    /// was proposed to a memory is withdrawn there.
    fn reversible(&self) -> Reversible {
        match (self.is_hosted(), &self.settings.memory) {
            (true, _) => Reversible::Hardly,
            (false, Some(_)) => Reversible::InFiveMinutes,
            (false, None) => Reversible::InOneMinute,
        }
    }

    /// The same in words.
    pub(super) fn stakes(&self) -> String {
        match self.reversible() {
            Reversible::Hardly => {
                let hosts = self.settings.hosts().join(", ");
                format!("what is sent to {hosts} cannot be taken back; the rest lies in one folder")
            }
            Reversible::InFiveMinutes => "reversible: one folder, and a proposal that the memory can reject".to_owned(),
            Reversible::InOneMinute => "reversible: all of it lies in one folder".to_owned(),
        }
    }

    /// The footer of a response; the last one stands in the report as well.
    pub(super) fn write_footer(&mut self) -> Result<Performed, SessionError> {
        let (work, facts) = (&self.course.work, &self.course.facts);
        let footer = Footer {
            verified: verified(work, facts),
            confidence: confidence(work, facts)?,
            reversible: self.reversible(),
            points: work.items.len() as u32,
            planned: facts.held >= Held::Shape,
            alternative: alternative(work),
            risk: phrases::risks(work, facts).into_iter().next().unwrap_or_default(),
        };
        (self.told)(&footer.to_string());
        if work.conclusion.is_some() {
            let mut work = work.clone();
            work.footer = Some(footer.clone());
            let report = pages::report(&work, facts);
            match self.release(&work.file("report"), &report) {
                // The work is over all the same; what was found is in the log.
                Err(SessionError::Refused(refusal)) => (self.told)(&format!("The report is not written: {refusal}")),
                written => {
                    if let Some(report) = written? {
                        self.propose(&footer, &report.short())?;
                    }
                }
            }
        }
        Ok((Outcome::Footer(footer), vec![Event::FooterWritten]).into())
    }

    /// Writes what leaves the session, if it passes what every mood that may write demands of its output: no text copied from
    /// the transcripts, and nothing that stands for work not done.
    fn release(&mut self, name: &str, text: &str) -> Result<Option<Digest>, SessionError> {
        let transcripts = self.transcripts(super::outcome::ItemKind::Rollouts)?;
        let turns = transcripts.iter().flat_map(|transcript| &transcript.turns);
        let sources: Vec<&str> =
            turns.flat_map(|turn| [turn.persona.content.as_str(), turn.interlocutor.content.as_str()]).collect();
        // What the user says may be repeated.
        let mut own = text.replace(&self.course.work.need, "");
        for words in &self.course.work.words {
            own = own.replace(words.as_str(), "");
        }
        let copied = no_copy(&own, &sources).into_iter().map(|copy| format!("it copies \"{}\"", copy.text));
        let stubs = stubs(&own).into_iter().map(|stub| format!("line {} is {}", stub.line, stub.what));
        let faults: Vec<String> = copied.chain(stubs).take(limits::QUESTIONS_MAX).collect();
        if faults.is_empty() {
            return self.write(name, text).map(Some);
        }
        (self.told)(&format!("{name} is not written: {}", faults.join("; ")));
        Ok(None)
    }
}

/// What a line of the memory begins with when it could not be searched.
pub(super) const NOT_SEARCHED: &str = "not searched: ";

fn verified(work: &Work, facts: &Facts) -> Verified {
    match (work.checks.is_empty(), facts.gate_passed) {
        (true, _) => Verified::Assumption,
        (false, true) => Verified::Measurement,
        (false, false) => Verified::Review,
    }
}

/// How sure the work is, by counting: 95 % where the gate passed, less for what was assumed, objected to, not seen by the
/// experts, or disputed by the scores.
fn confidence(work: &Work, facts: &Facts) -> Result<Percent, SessionError> {
    let passed = work.checks.iter().filter(|check| check.passed).count();
    let share = if facts.gate_passed { 95 } else { 60 * passed / CRITERIA.len() };
    let silent = work.review.iter().filter(|opinion| opinion.judged.choice.is_none()).count();
    let disputed = usize::from(finding::of(work) == finding::Finding::Disputed);
    let doubts =
        5 * work.assumptions.len().min(4) + 10 * work.objections.len().min(3) + 5 * silent.min(3) + 20 * disputed;
    Percent::try_from(share.saturating_sub(doubts) as u8).map_err(|error| SessionError::Told(error.to_string()))
}

/// The way not taken that would tell most.
fn alternative(work: &Work) -> String {
    let told = match finding::of(work) {
        finding::Finding::Unknown if !work.checks.is_empty() => "a judge that passed its test",
        finding::Finding::Disputed => "a second judge",
        _ if work.plan.rollouts.value < 3 => "more rollouts with other seeds",
        _ if work.plan.other.value == AdversaryKind::None => "an adversary in the place of the plain target",
        _ => "another persona model",
    };
    told.to_owned()
}
