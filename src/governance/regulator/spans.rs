//! Low-confidence spans: runs of unlikely tokens, found by Page's cumulative sum (Biometrika 1954) over token
//! log-probabilities and widened to whole words.

use unicode_segmentation::UnicodeSegmentation;

use super::decision::{ConfidenceSpan, TextSpan};
use super::reply::TokenPosition;
use super::settings::ConfidenceSettings;

/// Tokens after which the session's own mean is used.
const LEVEL_TOKENS_MIN: u64 = 64;

/// The session's mean negative log-probability, so that not every token of an uncertain model is reported.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(super) struct Baseline {
    tokens: u64,
    nll_sum: f64,
}

impl Baseline {
    /// Adds a finished turn: `tokens` tokens with a mean log-probability of `mean`.
    pub(super) fn learn(&mut self, tokens: u64, mean: Option<f64>) {
        if let Some(mean) = mean {
            self.tokens = self.tokens.saturating_add(tokens);
            self.nll_sum -= mean * tokens as f64;
        }
    }

    /// Checks a stored baseline.
    pub(super) fn check(self) -> Result<(), String> {
        let fine = self.nll_sum.is_finite() && self.nll_sum >= 0.0;
        if fine { Ok(()) } else { Err("a level that no log-probabilities can have".to_owned()) }
    }

    /// The reference value: a token above it adds to a span.
    fn reference(self, settings: &ConfidenceSettings) -> f64 {
        if self.tokens < LEVEL_TOKENS_MIN {
            return settings.span_nll;
        }
        settings.span_nll.max(self.nll_sum / self.tokens as f64 + settings.span_margin)
    }
}

/// The low-confidence spans of `text`, in order, disjoint. Tokens without a log-probability are skipped.
pub(super) fn low_confidence(
    text: &str,
    places: &[TokenPosition],
    level: Baseline,
    settings: &ConfidenceSettings,
) -> Vec<ConfidenceSpan> {
    let runs = runs(places, level.reference(settings), settings.span_excess);
    let mut cursor = Cursor::new(text);
    let mut spans: Vec<ConfidenceSpan> = Vec::new();
    for run in runs {
        let found = words_around(text, run.start_byte, run.end_byte);
        let Some((start, end)) = found else { continue };
        match spans.last_mut() {
            // Two runs that share a word become one span.
            Some(last) if start < last.span.end_byte => {
                let (a, b) = (last_tokens(last, places), run.tokens as f64);
                last.mean_token_logprob = (last.mean_token_logprob * a + run.mean_logprob * b) / (a + b);
                last.confidence = libm::exp(last.mean_token_logprob);
                last.span = cursor.span(last.span.start_byte, end.max(last.span.end_byte), last.span.start_char);
                text.get(last.span.start_byte..last.span.end_byte).unwrap_or_default().clone_into(&mut last.text);
            }
            _ => {
                let start_char = cursor.chars_before(start);
                spans.push(ConfidenceSpan {
                    span: cursor.span(start, end, start_char),
                    text: text.get(start..end).unwrap_or_default().to_owned(),
                    confidence: libm::exp(run.mean_logprob),
                    mean_token_logprob: run.mean_logprob,
                });
            }
        }
    }
    spans
}

/// The number of tokens with a log-probability that end inside a span.
fn last_tokens(span: &ConfidenceSpan, places: &[TokenPosition]) -> f64 {
    let inside = |place: &&TokenPosition| {
        (span.span.start_byte..=span.span.end_byte).contains(&(place.end_byte as usize)) && place.logprob.is_some()
    };
    places.iter().filter(inside).count().max(1) as f64
}

/// Consecutive tokens whose excess reaches the threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Run {
    start_byte: usize,
    end_byte: usize,
    tokens: u64,
    mean_logprob: f64,
}

/// The cumulative sum of the current run.
#[derive(Default)]
struct RunAccumulator {
    start_byte: usize,
    excess: f64,
    sum: f64,
    tokens: u64,
    peak: f64,
    at_peak: Option<Run>,
}

fn runs(places: &[TokenPosition], reference: f64, enough: f64) -> Vec<Run> {
    let mut found = Vec::new();
    let mut run = RunAccumulator::default();
    let mut start_byte = 0;
    let mut close = |run: &mut RunAccumulator| {
        if let Some(whole) = run.at_peak.filter(|_| run.peak >= enough) {
            found.push(whole);
        }
        *run = RunAccumulator::default();
    };
    for place in places {
        let end_byte = place.end_byte as usize;
        if let Some(logprob) = place.logprob.map(f64::from) {
            if run.tokens == 0 {
                run.start_byte = start_byte;
            }
            run.excess += -logprob - reference;
            run.sum += logprob;
            run.tokens += 1;
            if run.excess > run.peak {
                run.peak = run.excess;
                let mean_logprob = run.sum / run.tokens as f64;
                run.at_peak = Some(Run { start_byte: run.start_byte, end_byte, tokens: run.tokens, mean_logprob });
            }
            if run.excess <= 0.0 || run.excess < run.peak - enough {
                close(&mut run);
            }
        }
        start_byte = end_byte;
    }
    close(&mut run);
    found
}

/// The range from `start` to `end`, trimmed of white space and widened to whole words. `None` if empty.
fn words_around(text: &str, start: usize, end: usize) -> Option<(usize, usize)> {
    let (start, end) = (text.floor_char_boundary(start), text.ceil_char_boundary(end));
    let inside = text.get(start..end)?;
    let start = start + (inside.len() - inside.trim_start().len());
    let end = start + inside.trim().len();
    if start >= end {
        return None;
    }
    // A word that crosses a boundary lies between the nearest white space on both sides; only that range is split
    // into words, so that the cost does not depend on the length of the reply.
    let before = text.get(..start)?.rfind(char::is_whitespace).unwrap_or(0);
    let after = text.get(end..)?.find(char::is_whitespace).map_or(text.len(), |offset| end + offset);
    let mut bounds = (start, end);
    for (offset, word) in text.get(before..after)?.split_word_bound_indices() {
        let (from, to) = (before + offset, before + offset + word.len());
        if from < start && start < to {
            bounds.0 = from;
        }
        if from < end && end < to {
            bounds.1 = to;
        }
    }
    Some(bounds)
}

/// Converts increasing byte positions to character positions in one pass.
pub(super) struct Cursor<'a> {
    text: &'a str,
    byte: usize,
    chars: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, byte: 0, chars: 0 }
    }

    /// Characters before `byte`. A smaller position restarts the count.
    pub(super) fn chars_before(&mut self, byte: usize) -> usize {
        if byte < self.byte {
            *self = Self::new(self.text);
        }
        self.chars += self.text.get(self.byte..byte).map_or(0, |part| part.chars().count());
        self.byte = byte;
        self.chars
    }

    /// The span between two byte positions; the first is already known in characters.
    pub(super) fn span(&mut self, start_byte: usize, end_byte: usize, start_char: usize) -> TextSpan {
        TextSpan { start_byte, end_byte, start_char, end_char: self.chars_before(end_byte) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(tokens: &[(&str, f32)], expected: &[&str]) -> Vec<ConfidenceSpan> {
        let text: String = tokens.iter().map(|(text, _)| *text).collect();
        let mut end_byte = 0;
        let places: Vec<_> = tokens
            .iter()
            .map(|(text, logprob)| {
                end_byte += text.len() as u32;
                TokenPosition { end_byte, logprob: (!logprob.is_nan()).then_some(*logprob) }
            })
            .collect();
        let spans = low_confidence(&text, &places, Baseline::default(), &ConfidenceSettings::default());
        let found: Vec<_> = spans.iter().map(|span| span.text.as_str()).collect();
        assert_eq!(found, expected, "in {text:?}");
        for span in &spans {
            let by_chars: String =
                text.chars().skip(span.span.start_char).take(span.span.end_char - span.span.start_char).collect();
            assert_eq!(by_chars, span.text, "bytes and characters agree");
        }
        spans
    }

    #[test]
    fn an_unlikely_word_is_found_whole() {
        let spans = check(
            &[
                ("The", -0.1),
                (" capital", -0.1),
                (" is", -0.1),
                (" Zan", -6.0),
                ("zi", -5.0),
                ("bar", -0.2),
                (".", -0.1),
            ],
            &["Zanzibar"],
        );
        assert!((spans[0].mean_token_logprob + 5.5).abs() < 1e-6);
        assert!((spans[0].confidence - libm::exp(-5.5)).abs() < 1e-9);
    }

    #[test]
    fn ten_bad_tokens_among_four_hundred_good_ones_do_not_vanish_in_the_mean() {
        let mut tokens = vec![(" good", -0.05); 400];
        tokens[40..50].fill((" bad", -8.0));
        let spans = check(&tokens, &["bad bad bad bad bad bad bad bad bad bad"]);
        assert_eq!(spans[0].span, TextSpan { start_byte: 201, end_byte: 240, start_char: 201, end_char: 240 });
    }

    #[test]
    fn one_moderately_unlikely_token_is_no_span_and_missing_values_are_skipped() {
        check(&[("a", -0.1), (" b", -7.0), (" c", -0.1)], &[]);
        check(&[("a", -6.0), (" b", f32::NAN), (" c", -6.0), (" d", -0.1)], &["a b c"]);
        check(&[], &[]);
    }

    #[test]
    fn separate_runs_are_separate_spans_and_runs_in_one_word_are_one() {
        check(
            &[
                ("x", -12.0),
                (" fine", -0.1),
                (" fine", -0.1),
                (" fine", -0.1),
                (" fine", -0.1),
                (" fine", -0.1),
                (" y", -12.0),
            ],
            &["x", "y"],
        );
        check(&[("un", -12.0), ("be", -0.0), ("liev", -0.0), ("ab", -0.0), ("ly", -12.0)], &["unbelievably"]);
    }

    #[test]
    fn spans_end_at_word_boundaries_in_any_script() {
        check(&[("Привет", -0.1), (", ми", -9.0), ("р!", -0.5)], &[", мир"]);
        check(&[("首都是", -0.1), ("堪", -8.0), ("培拉", -5.0), ("。", -0.1)], &["堪培拉"]);
        check(&[("👩‍👩‍👧", -12.0), (" ok", -0.1)], &["👩‍👩‍👧"]);
    }

    #[test]
    fn a_uniformly_unlikely_reply_is_one_span_until_the_baseline_rises() {
        let spans = check(&[(" wild", -4.0); 20], &["wild ".repeat(20).trim_end()]);
        assert_eq!(spans.len(), 1);
        let mut level = Baseline::default();
        level.learn(400, Some(-3.9));
        let places: Vec<_> = (1..=20).map(|i| TokenPosition { end_byte: i * 5, logprob: Some(-4.0) }).collect();
        assert!(low_confidence(&" wild".repeat(20), &places, level, &ConfidenceSettings::default()).is_empty());
    }
}
