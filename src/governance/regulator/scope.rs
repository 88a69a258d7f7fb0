//! Drift of a reply from its task: of the whole reply, and of each segment.
//!
//! A reply is compared with its task by the cosine of their features. A segment of three sentences is compared with the
//! task and the rest of the reply together: sentences on another subject resemble neither. Replies differ in how similar
//! their segments are, so the least similar one is compared with the reply's own mean. The levels below are fitted;
//! `examples/regulator_drift.rs` measures them.

use std::sync::Arc;

use super::decision::{Decision, DriftSpan, Evidence, RankedDecision, TextSpan};
use super::features::{CONTENT, Features, hash_of, weight};
use super::negation::{forbidden, negated};
use super::scanner::{Scan, Sentence, Word};
use super::segments::{Segment, SegmentComparer, Similarity};
use super::settings::ScopeSettings;
use super::spans::Cursor;
use crate::foundation::base::limits::REGULATOR_TASK_BYTES_MAX;

/// The cosine between reply and task at which the drift is one half, and the steepness around it.
const WHOLE: Level = Level { half: 0.07, steepness: 4.0 };
/// The same for the similarity of the least similar segment, relative to the reply's mean.
const SEGMENT: Level = Level { half: 0.06, steepness: 1.5 };
/// The same for cosines of sentence embeddings.
const EMBEDDED: Level = Level { half: 0.25, steepness: 6.0 };
/// Added to the cosines of the least similar segment and of the mean, either of which may be zero by chance.
const SEGMENT_FLOOR: (f32, f32) = (0.002, 0.01);
/// Drift of a sentence that does what the task forbids.
const FORBIDDEN: f64 = 0.95;
/// Drift of a sentence that announces an addition the task does not mention.
const ADDITION: f64 = 0.75;
/// Cosine with the task below which an announced addition counts as drift.
const ADDITION_COSINE: f32 = 0.12;
/// Longest text that is read.
pub(super) const TEXT_BYTES_MAX: usize = REGULATOR_TASK_BYTES_MAX;
/// A task with fewer content words is too short to compare with.
const TASK_CONTENT_MIN: usize = 2;
/// A reply with fewer words is too short to compare.
const REPLY_WORDS_MIN: usize = 8;
/// Most keywords reported.
const NAMED_MAX: usize = 8;

/// A logistic curve from similarity to drift.
struct Level {
    half: f32,
    steepness: f32,
}

impl Level {
    fn drift(&self, similarity: f32) -> f64 {
        let ratio = similarity.max(0.0) / self.half;
        f64::from(1.0 / (1.0 + ratio.powf(self.steepness)))
    }
}

/// Turns a text into a vector: a small embedding model. Called when a reply is complete, on the caller's thread.
pub trait SentenceEmbedder: Send + Sync {
    /// The vector of `text`; `None` if it cannot be computed now.
    fn embed(&self, text: &str) -> Option<Vec<f32>>;
}

/// The tasks that replies are compared with, and the comparison's buffers.
#[derive(Clone)]
pub(super) struct ScopeTracker {
    settings: ScopeSettings,
    standing: Option<Task>,
    of_turn: Option<Task>,
    before: Option<Task>,
    scan: Scan,
    segments: SegmentComparer,
    embedder: Option<Arc<dyn SentenceEmbedder>>,
}

/// A parsed task.
#[derive(Clone, Default)]
struct Task {
    text: String,
    features: Features,
    content_words: usize,
    forbidden: Vec<(u32, String)>,
    embedded: Option<Vec<f32>>,
}

/// The drift of a reply.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Drift {
    pub(super) score: f64,
    pub(super) ranked: Option<RankedDecision>,
}

impl std::fmt::Debug for ScopeTracker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScopeTracker").field("task", &self.task().map(|task| &task.text)).finish_non_exhaustive()
    }
}

impl ScopeTracker {
    pub(super) fn new(settings: ScopeSettings) -> Self {
        Self {
            settings,
            standing: None,
            of_turn: None,
            before: None,
            scan: Scan::default(),
            segments: SegmentComparer::default(),
            embedder: None,
        }
    }

    pub(super) fn set_embedder(&mut self, embedder: Option<Arc<dyn SentenceEmbedder>>) {
        self.embedder = embedder;
    }

    /// Sets the standing task; an empty text removes it.
    pub(super) fn set_standing(&mut self, text: &str) {
        self.standing = (!text.trim().is_empty()).then(|| self.read(text));
    }

    /// Sets the turn's task, the user's message. Returns its cosine with the previous message, if both are long enough.
    pub(super) fn set_of_turn(&mut self, text: &str) -> Option<f32> {
        let task = self.read(text);
        self.before = self.of_turn.replace(task);
        let (before, now) = (self.before.as_ref()?, self.of_turn.as_ref()?);
        let enough = before.content_words >= TASK_CONTENT_MIN && now.content_words >= TASK_CONTENT_MIN;
        enough.then(|| before.features.cosine(&now.features))
    }

    /// The current task, as text and features.
    pub(super) fn current(&self) -> Option<(&str, &Features)> {
        self.task().map(|task| (task.text.as_str(), &task.features))
    }

    /// The task that `correction` was made on: the previous message if the correction is the turn's own message.
    pub(super) fn corrected_by(&self, correction: &str) -> Option<(&str, &Features)> {
        let own = self.of_turn.as_ref().filter(|task| task.text != correction).or(self.before.as_ref());
        self.standing.as_ref().or(own).map(|task| (task.text.as_str(), &task.features))
    }

    /// The keywords of the current task.
    pub(super) fn topic_name(&self) -> String {
        let mut words = self.task().map(Task::keywords).unwrap_or_default();
        words.truncate(3);
        words.join("+")
    }

    fn task(&self) -> Option<&Task> {
        self.standing.as_ref().or(self.of_turn.as_ref())
    }

    fn read(&mut self, text: &str) -> Task {
        let text = text.get(..super::spans::floor_boundary(text, REGULATOR_TASK_BYTES_MAX)).unwrap_or_default();
        self.scan.scan(text);
        let words = self.scan.words();
        let marks = negated(text, words, true);
        let forbidden: Vec<_> = forbidden(text, words, &marks)
            .into_iter()
            .map(|word| (word.hash, word_text(text, word).to_owned()))
            .collect();
        let ruled_out = |word: &&Word| !forbidden.iter().any(|(hash, _)| *hash == word.hash);
        Task {
            features: Features::of(words.iter().filter(ruled_out)),
            content_words: words.iter().filter(|word| weight(word) >= CONTENT).count(),
            embedded: None,
            text: text.to_owned(),
            forbidden,
        }
    }

    /// Compares a complete reply with its task. `None` if either is too short.
    pub(super) fn judge(&mut self, reply: &str) -> Option<Drift> {
        if !self.settings.enabled {
            return None;
        }
        let embedded = self.similarity_by_embedding(reply);
        let task = self.standing.as_ref().or(self.of_turn.as_ref())?;
        self.scan.scan(reply);
        let words = self.scan.words();
        if task.content_words < TASK_CONTENT_MIN
            || words.len() < REPLY_WORDS_MIN
            || task.features.is_empty() && task.forbidden.is_empty()
        {
            return None;
        }
        let Similarity { whole, least } = self.segments.compare(&task.features, &self.scan);
        let mut whole_drift = WHOLE.drift(whole);
        if let Some(similarity) = embedded {
            // The geometric mean of both measures.
            whole_drift = (whole_drift * EMBEDDED.drift(similarity)).sqrt();
        }
        let segment_drift = least.as_ref().map_or(0.0, |least| SEGMENT.drift(likeness(least)));
        let mut parts = task.breaches(reply, &self.scan);
        let score = parts.iter().map(|part| part.score).fold(whole_drift.max(segment_drift), f64::max);
        if score < self.settings.drift {
            return Some(Drift { score, ranked: None });
        }
        let limit = self.settings.drift;
        if whole_drift >= limit {
            let words = self.scan.sentences().iter().filter(|sentence| task.similarity(&self.scan, sentence) <= 0.0);
            parts.extend(words.map(|&sentence| DriftingSentence { sentence, score: whole_drift, forbidden: None }));
        } else if let Some(least) = least.filter(|_| segment_drift >= limit) {
            let sentences = self.scan.sentences().get(least.sentences).unwrap_or_default();
            parts.extend(sentences.iter().map(|&sentence| DriftingSentence {
                sentence,
                score: segment_drift,
                forbidden: None,
            }));
        }
        let evidence = vec![
            Evidence::new("drift_whole", whole_drift, limit),
            Evidence::new("cosine_whole", f64::from(whole), f64::from(WHOLE.half)),
            Evidence::new("drift_worst_stretch", segment_drift, limit),
        ];
        let decision = Decision::ScopeDriftWarn {
            drift_score: score,
            drift_tokens: task.foreign_words(reply, &self.scan, &parts),
            task_tokens: task.keywords(),
            spans: drift_spans(reply, parts),
        };
        Some(Drift { score, ranked: Some(RankedDecision { decision, evidence }) })
    }

    /// The cosine of the reply's and the task's embeddings, if there is an embedder.
    fn similarity_by_embedding(&mut self, reply: &str) -> Option<f32> {
        let embedder = self.embedder.as_ref()?;
        let task = self.standing.as_mut().or(self.of_turn.as_mut())?;
        if task.embedded.is_none() {
            task.embedded = embedder.embed(&task.text);
        }
        let (a, b) = (task.embedded.as_ref()?, embedder.embed(reply)?);
        let dot: f32 = a.iter().zip(&b).map(|(x, y)| x * y).sum();
        let norm = |v: &[f32]| v.iter().map(|x| x * x).sum::<f32>().sqrt();
        let cosine = dot / (norm(a) * norm(&b));
        (a.len() == b.len() && cosine.is_finite()).then_some(cosine)
    }
}

/// The similarity of a segment relative to its reply's mean.
fn likeness(segment: &Segment) -> f32 {
    let (least, usual) = SEGMENT_FLOOR;
    (segment.similarity.max(0.0) + least) / (segment.usual.max(0.0) + usual)
}

/// A sentence that drifts.
#[derive(Debug, Clone)]
struct DriftingSentence {
    sentence: Sentence,
    score: f64,
    forbidden: Option<String>,
}

impl Task {
    fn similarity(&self, scan: &Scan, sentence: &Sentence) -> f32 {
        self.features.cosine(&Features::of(scan.words_of(sentence)))
    }

    /// Sentences that do what the task forbids, and sentences that announce an addition unrelated to the task.
    fn breaches(&self, reply: &str, scan: &Scan) -> Vec<DriftingSentence> {
        let mut found = Vec::new();
        for sentence in scan.sentences() {
            let words = scan.words_of(sentence);
            let text = reply.get(sentence.start as usize..sentence.end as usize).unwrap_or_default();
            let done = self.forbidden.iter().find(|(hash, _)| words.iter().any(|word| word.hash == *hash));
            if let Some((hash, name)) = done {
                let marks = negated(reply, words, false);
                if words.iter().zip(marks).any(|(word, negated)| word.hash == *hash && !negated) {
                    found.push(DriftingSentence {
                        sentence: *sentence,
                        score: FORBIDDEN,
                        forbidden: Some(name.clone()),
                    });
                    continue;
                }
            }
            if announces_addition(text, words) && self.similarity(scan, sentence) < ADDITION_COSINE {
                found.push(DriftingSentence { sentence: *sentence, score: ADDITION, forbidden: None });
            }
        }
        found
    }

    /// The highest-weighted words of the drifting sentences that the task does not contain.
    fn foreign_words(&self, reply: &str, scan: &Scan, parts: &[DriftingSentence]) -> Vec<String> {
        let drifting = parts.iter().flat_map(|part| scan.words_of(&part.sentence));
        let foreign = drifting.filter(|word| weight(word) >= CONTENT && self.features.get(word.hash) <= 0.0);
        let mut named = names(foreign.map(|word| (word, reply)));
        // Forbidden words first.
        named.sort_by_key(|name| {
            !parts.iter().any(|part| part.forbidden.as_deref().is_some_and(|f| f.eq_ignore_ascii_case(name)))
        });
        named
    }

    fn keywords(&self) -> Vec<String> {
        let scan = Scan::of(&self.text);
        let content = scan.words().iter().filter(|word| weight(word) >= CONTENT && self.features.get(word.hash) > 0.0);
        names(content.map(|word| (word, self.text.as_str())))
    }
}

fn word_text<'a>(text: &'a str, word: &Word) -> &'a str {
    text.get(word.start as usize..word.end as usize).unwrap_or_default()
}

/// Distinct words in lower case, the highest-weighted first.
pub(super) fn names<'a>(words: impl Iterator<Item = (&'a Word, &'a str)>) -> Vec<String> {
    let mut seen: Vec<(u32, f32, String)> = Vec::new();
    for (word, text) in words.take(4096) {
        if !seen.iter().any(|(hash, ..)| *hash == word.hash) {
            seen.push((word.hash, weight(word), word_text(text, word).to_lowercase()));
        }
    }
    seen.sort_by(|a, b| b.1.total_cmp(&a.1));
    seen.into_iter().take(NAMED_MAX).map(|(_, _, name)| name).collect()
}

/// Whether a sentence announces an addition: "I also added …", "while I was at it".
fn announces_addition(sentence: &str, words: &[Word]) -> bool {
    const SIGNS: [u32; 5] = [hash_of("also"), hash_of("added"), hash_of("went"), hash_of("took"), hash_of("while")];
    const PHRASES: [&str; 14] = [
        "i also add",
        "i've also add",
        "i have also add",
        "i also includ",
        "i also implement",
        "i also introduc",
        "i also creat",
        "i also wrote",
        "i also updat",
        "i added",
        "i've added",
        "i went ahead and",
        "took the liberty",
        "while i was at it",
    ];
    // Fast path: most sentences contain none of the words.
    if !words.iter().any(|word| SIGNS.contains(&word.hash)) {
        return false;
    }
    let lower: String =
        sentence.trim_start().chars().take(200).map(|c| if c == '’' { '\'' } else { c.to_ascii_lowercase() }).collect();
    lower.starts_with("also add") || PHRASES.iter().any(|phrase| lower.contains(phrase))
}

fn drift_spans(reply: &str, mut parts: Vec<DriftingSentence>) -> Vec<DriftSpan> {
    parts.sort_by(|a, b| a.sentence.start.cmp(&b.sentence.start).then(b.score.total_cmp(&a.score)));
    parts.dedup_by_key(|part| part.sentence.start);
    let mut cursor = Cursor::new(reply);
    let mut spans: Vec<DriftSpan> = Vec::new();
    for DriftingSentence { sentence, score, forbidden } in parts {
        let inside = reply.get(sentence.start as usize..sentence.end as usize).unwrap_or_default();
        let start_byte = sentence.start as usize + (inside.len() - inside.trim_start().len());
        let end_byte = start_byte + inside.trim().len();
        let start_char = cursor.chars_before(start_byte);
        let span = cursor.span(start_byte, end_byte, start_char);
        match spans.last_mut() {
            Some(last)
                if last.forbidden == forbidden
                    && last.drift_score.total_cmp(&score).is_eq()
                    && touches(reply, last.span, span) =>
            {
                last.span = TextSpan { end_byte: span.end_byte, end_char: span.end_char, ..last.span };
            }
            _ => spans.push(DriftSpan { span, drift_score: score, forbidden }),
        }
    }
    spans
}

fn touches(text: &str, left: TextSpan, right: TextSpan) -> bool {
    text.get(left.end_byte..right.start_byte).is_some_and(|between| between.trim().is_empty())
}

#[cfg(test)]
mod tests;
