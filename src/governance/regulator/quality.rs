//! How good the judged turns were: level and slope, and when they call for a break.

use std::collections::VecDeque;

use super::decision::{BreakAction, CircuitBreakReason, Decision, Evidence, Ruling};
use super::settings::{JUDGED_MAX, QualitySettings};

/// The quality that a correction by the user implies, until somebody says otherwise.
pub(super) const CORRECTED: f64 = 0.25;
/// Weight of the latest turn in the exponential mean.
const RECENT: f64 = 0.3;

#[derive(Debug, Clone, Copy)]
struct Judged {
    turn: u64,
    quality: f64,
    inferred: bool,
}

/// The qualities of the last judged turns.
#[derive(Debug, Clone)]
pub(super) struct QualityTrack {
    settings: QualitySettings,
    judged: VecDeque<Judged>,
    /// The exponential mean over everything before `judged`.
    before: Option<f64>,
}

impl QualityTrack {
    pub(super) fn new(settings: QualitySettings, before: Option<f64>) -> Self {
        Self { settings, judged: VecDeque::new(), before }
    }

    /// Turn `turn` had `quality`; said so, or inferred from a correction. What is said replaces what was inferred.
    pub(super) fn judge(&mut self, turn: u64, quality: f64, inferred: bool) {
        let same_turn = self.judged.back().filter(|last| last.turn == turn);
        match (same_turn, inferred) {
            (Some(_), true) => return,
            (Some(last), false) if last.inferred => {
                self.judged.pop_back();
            }
            _ => {}
        }
        if self.judged.len() == JUDGED_MAX
            && let Some(oldest) = self.judged.pop_front()
        {
            self.before = Some(blend(self.before, oldest.quality));
        }
        self.judged.push_back(Judged { turn, quality, inferred });
    }

    /// Exponential mean of all judged turns.
    pub(super) fn recent(&self) -> Option<f64> {
        self.judged.iter().fold(self.before, |mean, judged| Some(blend(mean, judged.quality)))
    }

    /// How many turns of the last `n` were judged, and their mean.
    pub(super) fn last(&self, n: usize) -> (usize, Option<f64>) {
        let values = || self.judged.iter().rev().take(n).map(|judged| judged.quality);
        let count = values().count();
        (count, (count > 0).then(|| values().sum::<f64>() / count as f64))
    }

    /// Least-squares slope per turn over the last `n`, if there are so many, and whether the last one is still low.
    fn slope(&self, n: usize) -> Option<f64> {
        if n < 2 || self.judged.len() < n {
            return None;
        }
        let centre = (n - 1) as f64 / 2.0;
        // From the latest back: time runs the other way, so the sign turns.
        let offsets = || self.judged.iter().rev().take(n).enumerate().map(|(i, j)| (centre - i as f64, j.quality));
        let spread: f64 = offsets().map(|(x, _)| x * x).sum();
        Some(offsets().map(|(x, quality)| x * quality).sum::<f64>() / spread)
    }

    pub(super) fn rulings(&self, out: &mut Vec<Ruling>) {
        let QualitySettings { trend_turns, decline_per_turn, level_turns, level_min, .. } = self.settings;
        let latest = self.judged.back().map(|judged| judged.quality);
        if let (Some(slope), Some(latest), (_, Some(mean))) = (self.slope(trend_turns), latest, self.last(trend_turns))
            && slope <= -decline_per_turn
            && latest < mean
        {
            out.push(Ruling {
                decision: Decision::CircuitBreak {
                    reason: CircuitBreakReason::QualityDeclineNoRecovery { turns: trend_turns, mean_delta: slope },
                    action: BreakAction::Stop,
                    suggestion: format!(
                        "quality fell for {trend_turns} judged turns: start afresh with a shorter context, or ask the user"
                    ),
                },
                evidence: vec![
                    Evidence::new("quality_slope_per_turn", slope, -decline_per_turn),
                    Evidence::new("quality_latest", latest, None),
                ],
            });
        }
        if let (judged, Some(mean)) = self.last(level_turns)
            && judged >= level_turns
            && mean < level_min
        {
            out.push(Ruling {
                decision: Decision::CircuitBreak {
                    reason: CircuitBreakReason::QualityPersistentlyLow { turns: level_turns, mean_quality: mean },
                    action: BreakAction::Stop,
                    suggestion: format!(
                        "{level_turns} judged turns were poor: change the model or the approach, or ask the user"
                    ),
                },
                evidence: vec![Evidence::new("mean_quality", mean, level_min)],
            });
        }
    }
}

fn blend(mean: Option<f64>, latest: f64) -> f64 {
    mean.map_or(latest, |mean| mean + RECENT * (latest - mean))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaks(qualities: &[f64]) -> Vec<&'static str> {
        let mut track = QualityTrack::new(QualitySettings::default(), None);
        qualities.iter().zip(1..).for_each(|(&quality, turn)| track.judge(turn, quality, false));
        let mut out = Vec::new();
        track.rulings(&mut out);
        out.iter()
            .map(|ruling| match &ruling.decision {
                Decision::CircuitBreak { reason: CircuitBreakReason::QualityDeclineNoRecovery { .. }, .. } => "decline",
                Decision::CircuitBreak { reason: CircuitBreakReason::QualityPersistentlyLow { .. }, .. } => "low",
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn slope_and_level_break_and_recovery_does_not() {
        for (qualities, expected) in [
            (&[][..], &[][..]),
            (&[0.9, 0.7, 0.5], &[]),
            (&[0.9, 0.7, 0.5, 0.3], &["decline"]),
            (&[0.9, 0.2, 0.1, 0.6], &[]),
            (&[0.9, 0.9, 0.9, 0.9, 0.9, 0.9], &[]),
            (&[0.05; 5], &[]),
            (&[0.05; 50], &["low"]),
            (&[0.05, 0.05, 0.05, 0.05, 0.05, 1.0, 1.0], &[]),
        ] {
            assert_eq!(breaks(qualities), expected, "{qualities:?}");
        }
    }

    #[test]
    fn what_is_said_replaces_what_was_inferred() {
        let mut track = QualityTrack::new(QualitySettings::default(), None);
        track.judge(1, CORRECTED, true);
        track.judge(1, 0.8, false);
        track.judge(1, CORRECTED, true);
        assert_eq!(track.last(3), (1, Some(0.8)));
    }

    #[test]
    fn the_memory_of_judgements_is_bounded_and_its_mean_is_not_lost() {
        let mut track = QualityTrack::new(QualitySettings::default(), Some(0.5));
        let mut mean = 0.5;
        for turn in 1..=1000u32 {
            let quality = f64::from(turn % 7) / 7.0;
            mean += RECENT * (quality - mean);
            track.judge(u64::from(turn), quality, false);
        }
        assert_eq!(track.judged.len(), JUDGED_MAX);
        assert!((track.recent().unwrap() - mean).abs() < 1e-12);
    }
}
