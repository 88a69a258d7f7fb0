//! Verification: checks every criterion against the files on disk and records the evidence. There are three tiers; each
//! runs only if the one before passed: count the results, compare them with the records, compute them again.

use super::core::Session;
use super::outcome::{
    CRITERIA, Found, FoundValue, REPORT, UNJUDGED, VerifyCheck, VerifyTier, WorkItemKind, named_by_arm,
};
use super::phrases;
use super::scored;
use super::setup::SessionError;
use super::wave::{scores, transcript_digest};
use crate::foundation::base::limits::{RECEIPTS_BYTES_MAX, RESULT_BYTES_MAX};
use crate::foundation::store::receipts::{LOG, chain};
use crate::foundation::store::{read_limited, read_text};
use crate::simulation::report::Report;
use crate::simulation::rollout::{Outcome, Transcript, run_faults};

/// A run of an arm and its transcripts.
type Arm = (WorkItemKind, Vec<Transcript>);

impl Session {
    /// Runs the tiers in order, up to the first failure. Later criteria get no check.
    pub(super) fn verify(&self) -> Vec<VerifyCheck> {
        let mut checks: Vec<VerifyCheck> = Vec::new();
        for tier in [VerifyTier::Quick, VerifyTier::Standard, VerifyTier::Thorough] {
            let arms: Result<Vec<Arm>, SessionError> =
                self.arms().iter().map(|run| Ok((*run, self.transcripts(*run)?))).collect();
            let seen = arms.and_then(|arms| match tier {
                VerifyTier::Quick => self.counted(&arms),
                VerifyTier::Standard => self.compared(&arms),
                VerifyTier::Thorough => self.recomputed(&arms),
            });
            let seen = match seen {
                Ok(seen) => seen,
                // Files that cannot be read do not pass; the criteria after the first are not checked.
                Err(error) => vec![(false, phrases::one_line(&error.to_string()))],
            };
            let criteria = CRITERIA.iter().filter(|(of, _)| *of == tier);
            checks.extend(criteria.zip(seen).map(|((tier, criterion), (passed, evidence))| VerifyCheck {
                tier: *tier,
                criterion: (*criterion).to_owned(),
                passed,
                evidence,
            }));
            if checks.iter().any(|check| !check.passed) {
                break;
            }
        }
        checks
    }

    /// Quick: counts the results.
    fn counted(&self, arms: &[Arm]) -> Result<Vec<(bool, String)>, SessionError> {
        let transcripts = || arms.iter().flat_map(|(_, transcripts)| transcripts);
        let plan = &self.state.work.plan;
        let pilot: usize = self.transcripts(WorkItemKind::Pilot)?.iter().map(|one| one.turns.len()).sum();
        let complete = |transcripts: &Vec<Transcript>| {
            transcripts.iter().filter(|transcript| transcript.outcome == Outcome::Complete).count()
        };
        let whole = arms.iter().all(|(_, transcripts)| complete(transcripts) == plan.rollouts.value);
        let complete: usize = arms.iter().map(|(_, transcripts)| complete(transcripts)).sum();
        let turns: usize = transcripts().map(|transcript| transcript.turns.len()).sum();
        let rollouts = plan.rollouts.value * arms.len();
        let planned = rollouts * plan.turns.value;
        let failures: usize = transcripts().map(|transcript| transcript.totals.failures).sum();
        let fallbacks: usize = transcripts().map(|transcript| transcript.totals.fallbacks).sum();
        Ok(vec![
            (rollouts > 0 && whole, format!("{complete} of {rollouts}")),
            (turns == planned, format!("{turns} of {planned}")),
            (pilot == 1, phrases::counted(pilot, "turn")),
            (failures == 0, phrases::counted(failures, "message")),
            (fallbacks == 0, phrases::counted(fallbacks, "fallback")),
        ])
    }

    /// Standard: compares the results with the records.
    fn compared(&self, arms: &[Arm]) -> Result<Vec<(bool, String)>, SessionError> {
        let found = |kind| self.state.work.found.get(&kind);
        let digests: Vec<String> =
            arms.iter().map(|(_, transcripts)| transcript_digest(transcripts).to_string()).collect();
        let said = |run| found(run).and_then(|found| found.get("said"));
        let kept = arms.iter().zip(&digests).all(|((run, _), now)| said(*run) == Some(&FoundValue::Text(now.clone())));
        // The reason for missing ratings is not in the transcripts.
        let scored = found(WorkItemKind::Score).cloned().unwrap_or_default();
        let mut taken = Found::new();
        for (run, transcripts) in arms {
            taken.extend(named_by_arm(*run, scored::taken(transcripts, &self.decisive())));
        }
        let unjudged = |name: &str| name.ends_with(UNJUDGED);
        taken.extend(scored.iter().filter(|(name, _)| unjudged(name)).map(|(name, why)| (name.clone(), why.clone())));
        let log = read_limited(&self.folder.join(LOG), RECEIPTS_BYTES_MAX)
            .map_err(SessionError::io("read the log in", &self.folder))?;
        let receipts = chain(&log);
        let unregistered = match &receipts {
            Ok((receipts, _)) => self.registration_fault(receipts),
            Err(_) => Some("the receipts cannot be read".to_owned()),
        };
        let faults: Vec<String> = std::iter::once(WorkItemKind::Pilot)
            .chain(arms.iter().map(|(run, _)| *run))
            .flat_map(|kind| run_faults(&self.run_folder(kind), self.key))
            .collect();
        let evidence = |now: &str| now.chars().take(12).collect::<String>();
        Ok(vec![
            (kept && faults.is_empty(), faults.first().cloned().unwrap_or_else(|| evidence(&digests.concat()))),
            (scored == taken && !taken.is_empty(), describe_scores(&taken)),
            (receipts.is_ok(), receipts.map_or_else(|fault| fault.to_string(), |_| "the chain is intact".to_owned())),
            (unregistered.is_none(), unregistered.unwrap_or_else(|| "registered before".to_owned())),
        ])
    }

    /// Thorough: measures and reports again.
    fn recomputed(&self, arms: &[Arm]) -> Result<Vec<(bool, String)>, SessionError> {
        let mut again = Found::new();
        let mut identical = true;
        for (run, transcripts) in arms {
            again.extend(named_by_arm(*run, scores(transcripts)));
            let folder = self.run_folder(*run);
            let report = folder.join(REPORT).is_file().then(|| Report::on(&folder)).transpose()?;
            let written = read_text(&folder.join(REPORT), RESULT_BYTES_MAX).unwrap_or_default();
            identical &= report.as_ref().map(Report::json).transpose()?.is_some_and(|json| json == written);
        }
        let found = |kind| self.state.work.found.get(&kind);
        let compared =
            found(WorkItemKind::Compare).is_none_or(|found| self.difference().is_ok_and(|now| now == *found));
        let same = found(WorkItemKind::Measure) == Some(&again) && compared;
        let evidence = if identical { "regenerated with the same bytes" } else { "missing or changed" };
        Ok(vec![(same, format!("{} scores", again.len())), (identical, evidence.to_owned())])
    }
}

/// The number of scores taken by models, and of other entries.
fn describe_scores(taken: &Found) -> String {
    let numbers = taken.values().filter(|value| matches!(value, FoundValue::Number(_))).count();
    format!("{numbers} scores, {} facts and reasons for missing scores", taken.len() - numbers)
}
