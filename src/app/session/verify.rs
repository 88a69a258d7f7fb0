//! The verify gate: every criterion against what lies on the disk now, each with what was seen. Three tiers, and the next one
//! is looked at when the one before passed: what lies there is counted, then compared with what was recorded, then made again.

use super::core::Session;
use super::outcome::{CRITERIA, Check, Found, ItemKind, REPORT, Tier, UNJUDGED, Value};
use super::phrases;
use super::place::SessionError;
use super::scored;
use super::wave::{said, scores};
use crate::foundation::store::receipts::{LOG, chain};
use crate::simulation::report::Report;
use crate::simulation::rollout::{Outcome, Transcript};

impl Session {
    /// Runs the tiers in order, up to the first that fails. What was not looked at is no check.
    pub(super) fn verify(&self) -> Result<Vec<Check>, SessionError> {
        let transcripts = self.transcripts(ItemKind::Rollouts)?;
        let mut checks: Vec<Check> = Vec::new();
        for tier in [Tier::Quick, Tier::Standard, Tier::Thorough] {
            let seen = match tier {
                Tier::Quick => self.counted(&transcripts)?,
                Tier::Standard => self.compared(&transcripts)?,
                Tier::Thorough => self.made_again(&transcripts)?,
            };
            let criteria = CRITERIA.iter().filter(|(of, _)| *of == tier);
            checks.extend(criteria.zip(seen).map(|((tier, criterion), (passed, evidence))| Check {
                tier: *tier,
                criterion: (*criterion).to_owned(),
                passed,
                evidence,
            }));
            if checks.iter().any(|check| !check.passed) {
                break;
            }
        }
        Ok(checks)
    }

    /// Quick: what lies there.
    fn counted(&self, transcripts: &[Transcript]) -> Result<Vec<(bool, String)>, SessionError> {
        let plan = &self.course.work.plan;
        let pilot: usize = self.transcripts(ItemKind::Pilot)?.iter().map(|one| one.turns.len()).sum();
        let complete = transcripts.iter().filter(|transcript| transcript.outcome == Outcome::Complete).count();
        let turns: usize = transcripts.iter().map(|transcript| transcript.turns.len()).sum();
        let (rollouts, planned) = (plan.rollouts.value, plan.rollouts.value * plan.turns.value);
        let failures: usize = transcripts.iter().map(|transcript| transcript.totals.failures).sum();
        let fallbacks: usize = transcripts.iter().map(|transcript| transcript.totals.fallbacks).sum();
        Ok(vec![
            (rollouts > 0 && complete == rollouts, format!("{complete} of {rollouts}")),
            (turns == planned, format!("{turns} of {planned}")),
            (pilot == 1, phrases::counted(pilot, "turn")),
            (failures == 0, phrases::counted(failures, "message")),
            (fallbacks == 0, format!("{fallbacks} replies")),
        ])
    }

    /// Standard: what lies there beside what was recorded.
    fn compared(&self, transcripts: &[Transcript]) -> Result<Vec<(bool, String)>, SessionError> {
        let found = |kind| self.course.work.found.get(&kind);
        let now = said(transcripts).to_string();
        let kept = found(ItemKind::Rollouts).and_then(|found| found.get("said")) == Some(&Value::Text(now.clone()));
        // Why nothing was judged stands in no transcript.
        let scored = found(ItemKind::Score).cloned().unwrap_or_default();
        let mut taken = scored::taken(transcripts);
        taken.extend(scored.get_key_value(UNJUDGED).map(|(name, why)| (name.clone(), why.clone())));
        let log = std::fs::read(self.folder.join(LOG)).map_err(SessionError::io("read the log in", &self.folder))?;
        let receipts = chain(&log);
        Ok(vec![
            (kept, now.chars().take(12).collect()),
            (scored == taken && !taken.is_empty(), scored_told(&taken)),
            (receipts.is_ok(), receipts.map_or_else(|fault| fault.to_string(), |_| "the chain holds".to_owned())),
        ])
    }

    /// Thorough: measured and reported again.
    fn made_again(&self, transcripts: &[Transcript]) -> Result<Vec<(bool, String)>, SessionError> {
        let again = scores(transcripts);
        let same = self.course.work.found.get(&ItemKind::Measure) == Some(&again);
        let folder = self.run_folder(ItemKind::Rollouts);
        let report = folder.join(REPORT).is_file().then(|| Report::on(&folder)).transpose()?;
        let written = std::fs::read_to_string(folder.join(REPORT)).unwrap_or_default();
        let true_to = report.as_ref().map(Report::json).transpose()?.is_some_and(|json| json == written);
        let told = if true_to { "made again, the same bytes" } else { "missing or changed" };
        Ok(vec![(same, format!("{} scores", again.len())), (true_to, told.to_owned())])
    }
}

/// How many scores models took, and how many rows say why not.
fn scored_told(taken: &Found) -> String {
    let numbers = taken.values().filter(|value| matches!(value, Value::Number(_))).count();
    format!("{numbers} scores, {} of facts and of what was not taken", taken.len() - numbers)
}
