//! The quality of judged turns: level and slope, and the circuit breaks that follow from them.

use std::collections::VecDeque;

use super::decision::{BreakAction, CircuitBreakReason, Decision, Evidence, RankedDecision};
use super::settings::{JUDGED_MAX, QualitySettings};

/// The quality inferred from a correction; explicit feedback replaces it.
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

    /// Records the quality of a turn. Explicit feedback replaces an inferred quality.
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

    /// The quality of the latest judged turn.
    pub(super) fn latest(&self) -> Option<f64> {
        self.judged.back().map(|judged| judged.quality)
    }

    /// Exponential mean of all judged turns.
    pub(super) fn recent(&self) -> Option<f64> {
        self.judged.iter().fold(self.before, |mean, judged| Some(blend(mean, judged.quality)))
    }

    /// The last `n` judged turns, latest first, as of turn `now`. Judgements expire after 2`n` turns, and all of them once
    /// the latest is more than one turn old, so that a decision ends with its cause.
    fn current(&self, n: usize, now: u64) -> impl Iterator<Item = f64> + Clone {
        let is_current = self.judged.back().is_some_and(|latest| latest.turn.saturating_add(1) >= now);
        let expires = move |judged: &&Judged| is_current && judged.turn.saturating_add(2 * n as u64) > now;
        self.judged.iter().rev().take(n).take_while(expires).map(|judged| judged.quality)
    }

    /// How many of the last `n` judged turns count at turn `now`, and their mean.
    pub(super) fn last(&self, n: usize, now: u64) -> (usize, Option<f64>) {
        let values = || self.current(n, now);
        let count = values().count();
        (count, (count > 0).then(|| values().sum::<f64>() / count as f64))
    }

    /// Least-squares slope per turn over the last `n` judged turns; `None` if there are fewer.
    fn slope(&self, n: usize, now: u64) -> Option<f64> {
        if n < 2 || self.current(n, now).count() < n {
            return None;
        }
        let centre = (n - 1) as f64 / 2.0;
        // Iterates from the latest backwards, hence the sign.
        let offsets = || self.current(n, now).enumerate().map(|(i, quality)| (centre - i as f64, quality));
        let spread: f64 = offsets().map(|(x, _)| x * x).sum();
        Some(offsets().map(|(x, quality)| x * quality).sum::<f64>() / spread)
    }

    pub(super) fn decisions(&self, now: u64, out: &mut Vec<RankedDecision>) {
        let QualitySettings { trend_turns, decline_per_turn, decline_below, level_turns, level_min, .. } =
            self.settings;
        let latest = self.latest();
        if let (Some(slope), Some(latest), (_, Some(mean))) =
            (self.slope(trend_turns, now), latest, self.last(trend_turns, now))
            && slope <= -decline_per_turn
            && latest < mean
            && latest < decline_below
        {
            out.push(RankedDecision {
                decision: Decision::CircuitBreak {
                    reason: CircuitBreakReason::QualityDeclineNoRecovery { turns: trend_turns, mean_delta: slope },
                    action: BreakAction::Stop,
                    suggestion: format!(
                        "quality fell for {trend_turns} judged turns: start afresh with a shorter context, or ask the user"
                    ),
                },
                evidence: vec![
                    Evidence::new("quality_slope_per_turn", slope, -decline_per_turn),
                    Evidence::new("quality_latest", latest, decline_below),
                ],
            });
        }
        if let (judged, Some(mean)) = self.last(level_turns, now)
            && judged >= level_turns
            && mean < level_min
        {
            out.push(RankedDecision {
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
        track.decisions(qualities.len() as u64, &mut out);
        out.iter()
            .map(|ranked| match &ranked.decision {
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
            (&[1.0, 0.9, 0.75, 0.6], &[]),
            (&[0.9, 0.9, 0.9, 0.9, 0.9, 0.9], &[]),
            (&[0.05; 5], &[]),
            (&[0.05; 50], &["low"]),
            (&[0.05, 0.05, 0.05, 0.05, 0.05, 1.0, 1.0], &[]),
        ] {
            assert_eq!(breaks(qualities), expected, "{qualities:?}");
        }
    }

    #[test]
    fn explicit_feedback_replaces_an_inferred_quality() {
        let mut track = QualityTrack::new(QualitySettings::default(), None);
        track.judge(1, CORRECTED, true);
        track.judge(1, 0.8, false);
        track.judge(1, CORRECTED, true);
        assert_eq!(track.last(3, 1), (1, Some(0.8)));
    }

    #[test]
    fn judgements_expire_and_a_break_ends_when_nothing_is_judged_any_more() {
        let decided = |turns: &[u64], now: u64| {
            let mut track = QualityTrack::new(QualitySettings::default(), None);
            turns.iter().for_each(|&turn| track.judge(turn, CORRECTED, true));
            let mut out = Vec::new();
            track.decisions(now, &mut out);
            out.len()
        };
        assert_eq!(decided(&[1, 2, 3, 4, 5, 6], 6), 1);
        assert_eq!(decided(&[1, 2, 3, 4, 5, 6], 7), 1);
        assert_eq!(decided(&[1, 2, 3, 4, 5, 6], 8), 0, "two turns without a judgement");
        assert_eq!(decided(&[1, 20, 40, 60, 80, 100], 100), 0, "one complaint now and then in a long session");
    }

    #[test]
    fn stored_judgements_are_bounded_and_their_mean_is_preserved() {
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
