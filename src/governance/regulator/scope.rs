//! Whether a reply keeps to its task (spec drift): as a whole, and stretch by stretch.
//!
//! A reply is compared with its task by the cosine of their features. A stretch of three sentences is compared with the
//! task and the rest of the reply together: foreign sentences have no part in either. The levels below are fitted; see
//! `examples/regulator_drift.rs` for the figures they give.

use std::sync::Arc;

use super::decision::{Decision, DriftSpan, Evidence, Ruling, TextSpan};
use super::features::{CONTENT, Features, weight};
use super::negation::{forbidden, negated};
use super::scanner::{Scan, Sentence, Word};
use super::settings::ScopeSettings;
use super::spans::Cursor;
use super::stretches::{Similarity, Stretches};
use crate::foundation::base::limits::REGULATOR_TASK_BYTES_MAX;

/// A reply whose cosine with its task is here drifts by one half, and how sharply that changes.
const WHOLE: Level = Level { half: 0.086, steepness: 6.0 };
/// The same for the least similar stretch.
const STRETCH: Level = Level { half: 0.015, steepness: 1.5 };
/// The same for cosines of sentence embeddings.
const EMBEDDED: Level = Level { half: 0.25, steepness: 6.0 };
/// Added to cosines of stretches, which may be zero by chance alone.
const STRETCH_FLOOR: f32 = 0.01;
/// A stretch that does what the task forbids.
const FORBIDDEN: f64 = 0.95;
/// A sentence that announces an addition nobody asked for.
const ADDITION: f64 = 0.75;
/// How similar a sentence may be to the task and still be an addition nobody asked for.
const ADDITION_COSINE: f32 = 0.12;
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
    fn drift(&self, similarity: f32, floor: f32) -> f64 {
        let ratio = (similarity.max(0.0) + floor) / (self.half + floor);
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

    /// A turn's own task: what the user says.
    pub(super) fn set_of_turn(&mut self, text: &str) {
        self.of_turn = Some(self.read(text));
    }

    /// The features of the turn's message, for whoever compares it with something else.
    pub(super) fn message(&self) -> Option<(&str, &Features)> {
        self.of_turn.as_ref().map(|task| (task.text.as_str(), &task.features))
    }

    /// The features of the task that holds.
    pub(super) fn task_features(&self) -> Option<&Features> {
        self.task().map(|task| &task.features)
    }

    fn task(&self) -> Option<&Task> {
        self.standing.as_ref().or(self.of_turn.as_ref())
    }

    fn read(&mut self, text: &str) -> Task {
        let text = text.get(..super::spans::floor_boundary(text, REGULATOR_TASK_BYTES_MAX)).unwrap_or_default();
        self.scan.scan(text);
        let words = self.scan.words();
        let marks = negated(text, words);
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
        let mut whole_drift = WHOLE.drift(whole, 0.0);
        if let Some(similarity) = embedded {
            // Two witnesses: the geometric mean of what they say.
            whole_drift = (whole_drift * EMBEDDED.drift(similarity, 0.0)).sqrt();
        }
        let stretch_drift = least.as_ref().map_or(0.0, |least| STRETCH.drift(least.similarity, STRETCH_FLOOR));
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
                let marks = negated(reply, words);
                if words.iter().zip(marks).any(|(word, negated)| word.hash == *hash && !negated) {
                    found.push(Part { sentence: *sentence, score: FORBIDDEN, forbidden: Some(name.clone()) });
                    continue;
                }
            }
            if announces_addition(text) && self.similarity(scan, sentence) < ADDITION_COSINE {
                found.push(Part { sentence: *sentence, score: ADDITION, forbidden: None });
            }
        }
        found
    }

    /// The most telling words of the drifting parts that the task does not have.
    fn foreign_words(&self, reply: &str, scan: &Scan, parts: &[Part]) -> Vec<String> {
        let drifting = parts.iter().flat_map(|part| scan.words_of(&part.sentence));
        let foreign = drifting.filter(|word| weight(word) >= CONTENT && self.features.get(word.hash) == 0.0);
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
fn announces_addition(sentence: &str) -> bool {
    const PHRASES: [&str; 16] = [
        "also add",
        "also includ",
        "also implement",
        "also introduc",
        "also creat",
        "also wrote",
        "also updat",
        "also refactor",
        "also renam",
        "also chang",
        "also set up",
        "i added",
        "i've added",
        "went ahead and",
        "took the liberty",
        "while i was at it",
    ];
    let lower: String =
        sentence.chars().take(200).map(|c| if c == '’' { '\'' } else { c.to_ascii_lowercase() }).collect();
    PHRASES.iter().any(|phrase| lower.contains(phrase))
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
                if last.forbidden == forbidden && last.drift_score == score && touches(reply, last.span, span) =>
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
mod tests {
    use super::*;

    fn judge(task: &str, reply: &str) -> Option<Drift> {
        let mut scope = ScopeTracker::new(ScopeSettings::default());
        scope.set_of_turn(task);
        scope.judge(reply)
    }

    /// The drifting parts of a reply, and what was forbidden there.
    fn check(task: &str, reply: &str, expected: &[(&str, Option<&str>)]) -> Vec<String> {
        let drift = judge(task, reply).expect("enough to judge");
        let Some(Ruling { decision: Decision::ScopeDriftWarn { spans, drift_tokens, drift_score, .. }, .. }) =
            drift.ruling
        else {
            assert_eq!(expected, [], "no warning at {}", drift.score);
            return Vec::new();
        };
        assert!((0.5..=1.0).contains(&drift_score));
        let found: Vec<_> = spans
            .iter()
            .map(|part| (&reply[part.span.start_byte..part.span.end_byte], part.forbidden.as_deref()))
            .collect();
        assert_eq!(found, expected, "score {drift_score}");
        for part in &spans {
            let TextSpan { start_byte, end_byte, start_char, end_char } = part.span;
            assert_eq!(
                (reply[..start_byte].chars().count(), reply[..end_byte].chars().count()),
                (start_char, end_char)
            );
        }
        drift_tokens
    }

    #[test]
    fn a_reply_to_the_point_is_no_drift() {
        check(
            "Refactor this function to be async.",
            "Here is the function, refactored to be async: `async fn load()`. Callers of the function now await it.",
            &[],
        );
    }

    #[test]
    fn additions_nobody_asked_for_are_pointed_out_with_their_words() {
        let named = check(
            "Refactor this function to be async.",
            "I refactored the function to be async. I also added structured logging with tracing. I also added telemetry \
             and retry policies.",
            &[("I also added structured logging with tracing. I also added telemetry and retry policies.", None)],
        );
        for word in ["logging", "telemetry"] {
            assert!(named.contains(&word.to_owned()), "{named:?}");
        }
        assert!(!named.contains(&"function".to_owned()));
    }

    #[test]
    fn what_was_forbidden_is_drift_although_the_task_names_it() {
        let named = check(
            "Refactor the parser to be async. Do not add logging.",
            "The parser is async now. Each step of the parser writes to the logging facade.",
            &[("Each step of the parser writes to the logging facade.", Some("logging"))],
        );
        assert_eq!(named.first().map(String::as_str), Some("logging"));
        check(
            "Refactor the parser to be async. Do not add logging.",
            "The parser is async now, and as you asked there is no logging in the parser.",
            &[],
        );
    }

    #[test]
    fn another_subject_is_drift_and_its_part_is_found() {
        let task = "Describe how a lighthouse keeper spends a stormy night on the island.";
        let bread = "Mix the flour with two eggs and sugar. Knead the dough until it is smooth. Bake it for forty minutes in a hot oven.";
        assert!(judge(task, bread).unwrap().score > 0.9);
        let keeper = "The lighthouse keeper climbs the stairs as the storm begins. The keeper lights the lighthouse lamp. The \
            stormy wind howls around the island all night.";
        check(task, &format!("{keeper} {bread}"), &[(bread, None)]);
        check(task, keeper, &[]);
    }

    #[test]
    fn scripts_without_spaces_are_compared_too() {
        let task = "请把解析器模块重构成异步代码";
        assert!(judge(task, "解析器模块已经重构成异步代码，调用方需要等待结果。").unwrap().ruling.is_none());
        assert!(judge(task, "今天的天气很好，我们去公园散步，然后吃了冰淇淋。").unwrap().ruling.is_some());
    }

    #[test]
    fn too_little_text_is_not_judged() {
        assert_eq!(judge("Go on.", "The storm begins and the keeper climbs the stairs again."), None);
        assert_eq!(judge("Refactor the parser to be async.", "Done."), None);
        assert_eq!(judge("", ""), None);
    }

    #[test]
    fn an_embedder_is_heard_beside_the_words() {
        struct Same;
        impl SentenceEmbedder for Same {
            fn embed(&self, _: &str) -> Option<Vec<f32>> {
                Some(vec![1.0, 0.0])
            }
        }
        let mut scope = ScopeTracker::new(ScopeSettings::default());
        scope.set_of_turn("Name the capital city of Australia, please.");
        let reply = "Canberra it is, between Sydney and Melbourne, chosen as a compromise.";
        assert!(scope.judge(reply).unwrap().ruling.is_some());
        scope.set_embedder(Some(Arc::new(Same)));
        assert!(scope.judge(reply).unwrap().ruling.is_none());
    }
}
