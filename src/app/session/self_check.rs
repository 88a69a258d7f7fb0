//! The self-check before every response, and the footer after it.

use super::core::{Performed, Session};
use super::outcome::{ActionOutcome, Work, all_hold};
use super::setup::SessionError;
use super::{documents, finding, phrases};
use crate::foundation::base::limits::RESULT_BYTES_MAX;
use crate::foundation::base::{Digest, limits};
use crate::foundation::store::read_limited;
use crate::governance::mood::lint::{copied_passages, stubs};
use crate::governance::statechart::hope::{Agreement, Event, Facts, Footer, Reversibility, Verification};
use crate::simulation::persona::AdversaryKind;

impl Session {
    /// The self-check before a response: a brief that was changed by someone else interrupts the work, because the need can
    /// be changed only by an answer of the user. What else could go wrong is in the footer and in the verification.
    pub(super) fn audit(&self) -> ActionOutcome {
        ActionOutcome::Audit(self.changed_brief())
    }

    /// The digest of the brief on disk, if it differs from the one written.
    fn changed_brief(&self) -> Option<Digest> {
        let written = self.state.work.brief()?;
        let path = self.folder.join(self.state.work.file("brief"));
        let now = Digest::of(read_limited(&path, RESULT_BYTES_MAX).unwrap_or_default());
        (now != written).then_some(now)
    }

    /// Text sent to a host cannot be taken back. Otherwise all results are in one folder, which can be deleted; a
    /// proposal to a memory can be withdrawn there.
    fn reversible(&self) -> Reversibility {
        match (self.is_hosted(), &self.settings.memory) {
            (true, _) => Reversibility::Hardly,
            (false, Some(_)) => Reversibility::InFiveMinutes,
            (false, None) => Reversibility::InOneMinute,
        }
    }

    /// The reversibility in words.
    pub(super) fn stakes(&self) -> String {
        match self.reversible() {
            Reversibility::Hardly => {
                let hosts = self.settings.hosts().join(", ");
                format!("text sent to {hosts} cannot be taken back; the other results are in one folder")
            }
            Reversibility::InFiveMinutes => "reversible: one folder, and a proposal that can be rejected".to_owned(),
            Reversibility::InOneMinute => "reversible: all results are in one folder".to_owned(),
        }
    }

    /// Writes the footer of a response; the last one is also in the report.
    pub(super) fn write_footer(&mut self) -> Result<Performed, SessionError> {
        let (mut work, mut facts) = (self.state.work.clone(), self.state.facts);
        if facts.gate_passed {
            // The files as they are now: somebody may have changed them since the last verification.
            work.checks = self.verify();
            facts.gate_passed = all_hold(&work.checks);
        }
        let footer = Footer {
            verified: verified(&work, &facts),
            finding: finding::of(&work).in_footer(),
            reversible: self.reversible(),
            points: work.items.len() as u32,
            planned: facts.held >= Agreement::Shape,
            alternative: alternative(&work),
            risk: phrases::risks(&work, &facts).into_iter().next().unwrap_or_default(),
        };
        (self.on_message)(&footer.to_string());
        if work.conclusion.is_some() && facts.gate_passed {
            work.footer = Some(footer.clone());
            let report = documents::report(&work, &facts);
            match self.release(&work.file("report"), &report) {
                // The work is over anyway; the results are in the log.
                Err(SessionError::Refused(refusal)) => {
                    (self.on_message)(&format!("The report was not written: {refusal}"));
                }
                written => {
                    if let Some(report) = written? {
                        self.propose(&footer, &report.short())?;
                    }
                }
            }
        } else if work.conclusion.is_some() {
            (self.on_message)("No report was written: only work that has just passed the verification has one.");
        }
        Ok((ActionOutcome::Footer(footer), vec![Event::FooterWritten]).into())
    }

    /// Writes a document, if it passes the lint of every mood that may write: no text copied from the transcripts, and
    /// no placeholders.
    fn release(&mut self, name: &str, text: &str) -> Result<Option<Digest>, SessionError> {
        let transcripts = self.transcripts(super::outcome::WorkItemKind::Rollouts)?;
        let turns = transcripts.iter().flat_map(|transcript| &transcript.turns);
        let sources: Vec<&str> =
            turns.flat_map(|turn| [turn.persona.content.as_str(), turn.interlocutor.content.as_str()]).collect();
        // The user's own words may be repeated.
        let mut own = text.replace(&self.state.work.need, "");
        for words in &self.state.work.words {
            own = own.replace(words.as_str(), "");
        }
        let copied = copied_passages(&own, &sources).into_iter().map(|copy| format!("it copies \"{}\"", copy.text));
        let stubs = stubs(&own).into_iter().map(|stub| format!("line {} is {}", stub.line, stub.what));
        let faults: Vec<String> = copied.chain(stubs).take(limits::QUESTIONS_MAX).collect();
        if faults.is_empty() {
            return self.write(name, text).map(Some);
        }
        (self.on_message)(&format!("{name} was not written: {}", faults.join("; ")));
        Ok(None)
    }
}

/// What a failed or missing verification leaves is an assumption; an expert's objection makes it a matter of review.
fn verified(work: &Work, facts: &Facts) -> Verification {
    match (facts.gate_passed, work.objections.is_empty()) {
        (false, _) => Verification::Assumption,
        (true, true) => Verification::Measurement,
        (true, false) => Verification::Review,
    }
}

/// The most informative alternative.
fn alternative(work: &Work) -> String {
    let alternative = match finding::of(work) {
        finding::Finding::Unknown if !work.checks.is_empty() => "a judge that passed its test",
        finding::Finding::Disputed => "a second judge",
        _ if work.plan.rollouts.value < finding::ROLLOUTS_MIN => "more rollouts with other seeds",
        _ if work.plan.other.value == AdversaryKind::None => "an adversary in place of the plain target",
        _ => "another persona model",
    };
    alternative.to_owned()
}
