//! Whether a reply keeps to its task (spec drift): as a whole, and stretch by stretch.
//!
//! A reply is compared with its task by the cosine of their features. A stretch of three sentences is compared with the
//! task and the rest of the reply together: foreign sentences have no part in either. Replies differ in how alike their
//! stretches are, so the least alike is held against the reply's own mean. The levels below are fitted; see
//! `examples/regulator_drift.rs` for the figures they give.

use std::sync::Arc;

use super::decision::{Decision, DriftSpan, Evidence, Ruling, TextSpan};
use super::features::{CONTENT, Features, hash_of, weight};
use super::negation::{forbidden, negated};
use super::scanner::{Scan, Sentence, Word};
use super::settings::ScopeSettings;
use super::spans::Cursor;
use super::stretches::{Similarity, Stretch, Stretches};
use crate::foundation::base::limits::REGULATOR_TASK_BYTES_MAX;

/// A reply whose cosine with its task is here drifts by one half, and how sharply that changes.
const WHOLE: Level = Level { half: 0.07, steepness: 4.0 };
/// The same for how alike the least similar stretch is, as a share of what is usual in the reply.
const STRETCH: Level = Level { half: 0.06, steepness: 1.5 };
/// The same for cosines of sentence embeddings.
const EMBEDDED: Level = Level { half: 0.25, steepness: 6.0 };
/// Added to the cosines of the least similar stretch and of the usual one, which may be zero by chance alone.
const STRETCH_FLOOR: (f32, f32) = (0.002, 0.01);
/// A stretch that does what the task forbids.
const FORBIDDEN: f64 = 0.95;
/// A sentence that announces an addition nobody asked for.
const ADDITION: f64 = 0.75;
/// How similar a sentence may be to the task and still be an addition nobody asked for.
const ADDITION_COSINE: f32 = 0.12;
/// Longest text that is read.
pub(super) const TEXT_BYTES_MAX: usize = REGULATOR_TASK_BYTES_MAX;
/// A task with fewer content words says too little to drift from.
const TASK_CONTENT_MIN: usize = 2;
/// A reply with fewer words says too little to drift.
const REPLY_WORDS_MIN: usize = 8;
/// How many words are named.
const NAMED_MAX: usize = 8;

/// Where a similarity means a drift of one half.
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

/// Something that turns a sentence into a vector: a small embedding model, where one is at hand. It is asked when a reply
/// is complete, on the caller's thread.
pub trait SentenceEmbedder: Send + Sync {
    /// The vector of `text`; `None` when there is none to be had now.
    fn embed(&self, text: &str) -> Option<Vec<f32>>;
}

/// What the reply is held against, and the buffers for doing so.
#[derive(Clone)]
pub(super) struct ScopeTracker {
    settings: ScopeSettings,
    standing: Option<Task>,
    of_turn: Option<Task>,
    before: Option<Task>,
    scan: Scan,
    stretches: Stretches,
    embedder: Option<Arc<dyn SentenceEmbedder>>,
}

/// A task, read once.
#[derive(Clone, Default)]
struct Task {
    text: String,
    features: Features,
    content_words: usize,
    forbidden: Vec<(u32, String)>,
    embedded: Option<Vec<f32>>,
}

/// What was found in a reply.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Drift {
    pub(super) score: f64,
    pub(super) ruling: Option<Ruling>,
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
            stretches: Stretches::default(),
            embedder: None,
        }
    }

    pub(super) fn set_embedder(&mut self, embedder: Option<Arc<dyn SentenceEmbedder>>) {
        self.embedder = embedder;
    }

    /// The task until the next one; empty for none.
    pub(super) fn set_standing(&mut self, text: &str) {
        self.standing = (!text.trim().is_empty()).then(|| self.read(text));
    }

    /// A turn's own task: what the user says. Gives how alike it is to the message before, if both say enough.
    pub(super) fn set_of_turn(&mut self, text: &str) -> Option<f32> {
        let task = self.read(text);
        self.before = self.of_turn.replace(task);
        let (before, now) = (self.before.as_ref()?, self.of_turn.as_ref()?);
        let enough = before.content_words >= TASK_CONTENT_MIN && now.content_words >= TASK_CONTENT_MIN;
        enough.then(|| before.features.cosine(&now.features))
    }

    /// The task that holds, as text and features.
    pub(super) fn current(&self) -> Option<(&str, &Features)> {
        self.task().map(|task| (task.text.as_str(), &task.features))
    }

    /// The task that `correction` was made on: when it is the turn's own message, the one before.
    pub(super) fn corrected_by(&self, correction: &str) -> Option<(&str, &Features)> {
        let own = self.of_turn.as_ref().filter(|task| task.text != correction).or(self.before.as_ref());
        self.standing.as_ref().or(own).map(|task| (task.text.as_str(), &task.features))
    }

    /// The task that holds, named by its keywords.
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
        let forbidden: Vec<_> =
            forbidden(text, words, &marks).into_iter().map(|word| (word.hash, said(text, word).to_owned())).collect();
        let ruled_out = |word: &&Word| !forbidden.iter().any(|(hash, _)| *hash == word.hash);
        Task {
            features: Features::of(words.iter().filter(ruled_out)),
            content_words: words.iter().filter(|word| weight(word) >= CONTENT).count(),
            embedded: None,
            text: text.to_owned(),
            forbidden,
        }
    }

    /// Holds a complete reply against its task. `None` when either says too little.
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
        let Similarity { whole, least } = self.stretches.compare(&task.features, &self.scan);
        let mut whole_drift = WHOLE.drift(whole);
        if let Some(similarity) = embedded {
            // Two witnesses: the geometric mean of what they say.
            whole_drift = (whole_drift * EMBEDDED.drift(similarity)).sqrt();
        }
        let stretch_drift = least.as_ref().map_or(0.0, |least| STRETCH.drift(likeness(least)));
        let mut parts = task.breaches(reply, &self.scan);
        let score = parts.iter().map(|part| part.score).fold(whole_drift.max(stretch_drift), f64::max);
        if score < self.settings.drift {
            return Some(Drift { score, ruling: None });
        }
        let limit = self.settings.drift;
        if whole_drift >= limit {
            let words = self.scan.sentences().iter().filter(|sentence| task.similarity(&self.scan, sentence) <= 0.0);
            parts.extend(words.map(|&sentence| Part { sentence, score: whole_drift, forbidden: None }));
        } else if let Some(least) = least.filter(|_| stretch_drift >= limit) {
            let sentences = self.scan.sentences().get(least.sentences).unwrap_or_default();
            parts.extend(sentences.iter().map(|&sentence| Part { sentence, score: stretch_drift, forbidden: None }));
        }
        let evidence = vec![
            Evidence::new("drift_whole", whole_drift, limit),
            Evidence::new("cosine_whole", f64::from(whole), f64::from(WHOLE.half)),
            Evidence::new("drift_worst_stretch", stretch_drift, limit),
        ];
        let decision = Decision::ScopeDriftWarn {
            drift_score: score,
            drift_tokens: task.foreign_words(reply, &self.scan, &parts),
            task_tokens: task.keywords(),
            spans: drift_spans(reply, parts),
        };
        Some(Drift { score, ruling: Some(Ruling { decision, evidence }) })
    }

    /// The cosine of the reply's and the task's embeddings, where there is an embedder.
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

/// How alike a stretch is, as a share of what is usual in its reply.
fn likeness(stretch: &Stretch) -> f32 {
    let (least, usual) = STRETCH_FLOOR;
    (stretch.similarity.max(0.0) + least) / (stretch.usual.max(0.0) + usual)
}

/// A sentence that drifts.
#[derive(Debug, Clone)]
struct Part {
    sentence: Sentence,
    score: f64,
    forbidden: Option<String>,
}

impl Task {
    fn similarity(&self, scan: &Scan, sentence: &Sentence) -> f32 {
        self.features.cosine(&Features::of(scan.words_of(sentence)))
    }

    /// Sentences that do what is forbidden, and those that announce an addition which has nothing to do with the task.
    fn breaches(&self, reply: &str, scan: &Scan) -> Vec<Part> {
        let mut found = Vec::new();
        for sentence in scan.sentences() {
            let words = scan.words_of(sentence);
            let text = reply.get(sentence.start as usize..sentence.end as usize).unwrap_or_default();
            let done = self.forbidden.iter().find(|(hash, _)| words.iter().any(|word| word.hash == *hash));
            if let Some((hash, name)) = done {
                let marks = negated(reply, words, false);
                if words.iter().zip(marks).any(|(word, negated)| word.hash == *hash && !negated) {
                    found.push(Part { sentence: *sentence, score: FORBIDDEN, forbidden: Some(name.clone()) });
                    continue;
                }
            }
            if announces_addition(text, words) && self.similarity(scan, sentence) < ADDITION_COSINE {
                found.push(Part { sentence: *sentence, score: ADDITION, forbidden: None });
            }
        }
        found
    }

    /// The most telling words of the drifting parts that the task does not have.
    fn foreign_words(&self, reply: &str, scan: &Scan, parts: &[Part]) -> Vec<String> {
        let drifting = parts.iter().flat_map(|part| scan.words_of(&part.sentence));
        let foreign = drifting.filter(|word| weight(word) >= CONTENT && self.features.get(word.hash) <= 0.0);
        let mut named = names(foreign.map(|word| (word, reply)));
        // What was forbidden comes first.
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

fn said<'a>(text: &'a str, word: &Word) -> &'a str {
    text.get(word.start as usize..word.end as usize).unwrap_or_default()
}

/// Words in lower case, each once, the most telling first.
pub(super) fn names<'a>(words: impl Iterator<Item = (&'a Word, &'a str)>) -> Vec<String> {
    let mut seen: Vec<(u32, f32, String)> = Vec::new();
    for (word, text) in words.take(4096) {
        if !seen.iter().any(|(hash, ..)| *hash == word.hash) {
            seen.push((word.hash, weight(word), said(text, word).to_lowercase()));
        }
    }
    seen.sort_by(|a, b| b.1.total_cmp(&a.1));
    seen.into_iter().take(NAMED_MAX).map(|(_, _, name)| name).collect()
}

/// "I also added …", "while I was at it": an agent that tells of something it was not asked for.
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
    // Few sentences have even one of the words.
    if !words.iter().any(|word| SIGNS.contains(&word.hash)) {
        return false;
    }
    let lower: String =
        sentence.trim_start().chars().take(200).map(|c| if c == '’' { '\'' } else { c.to_ascii_lowercase() }).collect();
    lower.starts_with("also add") || PHRASES.iter().any(|phrase| lower.contains(phrase))
}

fn drift_spans(reply: &str, mut parts: Vec<Part>) -> Vec<DriftSpan> {
    parts.sort_by(|a, b| a.sentence.start.cmp(&b.sentence.start).then(b.score.total_cmp(&a.score)));
    parts.dedup_by_key(|part| part.sentence.start);
    let mut cursor = Cursor::new(reply);
    let mut spans: Vec<DriftSpan> = Vec::new();
    for Part { sentence, score, forbidden } in parts {
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
