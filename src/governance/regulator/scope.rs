//! Drift of a reply from its task: of the whole reply, and of each segment.
//!
//! Three measures are used, the most reliable that is available: how much more likely a local model finds the reply with the
//! task than without it ([`AnswerLikelihood`]), the cosine of sentence embeddings ([`SentenceEmbedder`]), and the cosine of
//! the words' features. Words are the last resort, since a good reply may share none with its task: they are used only where
//! task and reply are prose of some length, in English or in one script without spaces, the task does not ask for another
//! form or language, and the reply has next to no word of the task or of the conversation so far.
//!
//! A segment of three sentences is compared with the task and the rest of the reply together: sentences on another subject
//! resemble neither. Replies differ in how similar their segments are, so the least similar one is compared with the reply's
//! own mean. The levels below are fitted; `examples/regulator_drift.rs` measures them. What the task forbids is found by
//! [`prohibitions`](super::prohibitions).

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::decision::{Decision, DriftBasis, DriftSpan, Evidence, RankedDecision, TextSpan};
use super::features::{CONTENT, Features, weight};
use super::hash::hash_of;
use super::negation::{forbidden, negated};
use super::prohibitions::{Prohibition, broken, prohibitions};
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
/// The same for how much more likely a token of the reply is with the task, nats.
const LIKELIHOOD: Level = Level { half: 0.02, steepness: 2.0 };
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
/// A message with fewer words, next to no content and no question mark asks for nothing new: "go on, please".
const REQUEST_WORDS_MIN: usize = 6;
/// A reply with fewer words is too short to compare.
const REPLY_WORDS_MIN: usize = 8;
/// A reply with fewer words of prose, or fewer content words, is not judged by words alone: a good one may have no word of
/// its task by chance.
const WORDS_ALONE_MIN: usize = 24;
const CONTENT_ALONE_MIN: usize = 10;
/// The same for pairs of characters in scripts without spaces, of the reply and of the task.
const PAIRS_ALONE_MIN: usize = 16;
const TASK_PAIRS_ALONE_MIN: usize = 12;
/// A task with fewer content words is not enough for words alone: a good reply may avoid all of them.
const TASK_CONTENT_ALONE_MIN: usize = 6;
/// The share of a reply's content words that the task and the conversation have, from which it takes part in them.
const SHARED_ALONE: f64 = 0.08;
/// The same where a long conversation is known: its content words, the reply's words of prose, and their share.
const KNOWN_ALONE_MIN: usize = 100;
const WORDS_KNOWN_MIN: usize = 32;
const SHARED_KNOWN: f64 = 0.09;
/// A segment with fewer words is not judged.
const SEGMENT_WORDS_MIN: usize = 15;
/// A word with a lower weight is one of the function words of English.
const FUNCTION_WORD: f32 = 0.2;
/// Shares of function words from which a text is taken for English prose, and below which it is not.
const ENGLISH: f64 = 0.15;
const NOT_ENGLISH: f64 = 0.10;
/// A text with fewer words may be English without a function word: "Make fetching async."
const LANGUAGE_WORDS_MIN: usize = 6;
/// Most messages of the conversation that are stored, and most bytes of each.
const CONTEXT_MAX: usize = 24;
const CONTEXT_BYTES_MAX: usize = 2048;
/// First letters of words by which a task asks for another form or language, so that the reply may share no word with it.
const OTHER_FORM: [&str; 33] = [
    "translat",
    "story",
    "stories",
    "tale",
    "fiction",
    "novel",
    "monolog",
    "dialog",
    "speech",
    "toast",
    "pirate",
    "voice",
    "role",
    "character",
    "haiku",
    "poem",
    "limerick",
    "sonnet",
    "lyric",
    "song",
    "rhyme",
    "verse",
    "joke",
    "tagline",
    "slogan",
    "riddle",
    "ballad",
    "acrostic",
    "übersetz",
    "tradui",
    "traduc",
    "gedicht",
    "poème",
];
/// Languages, after "in", "into", "to" or "the".
const LANGUAGES: [&str; 21] = [
    "english",
    "french",
    "german",
    "spanish",
    "italian",
    "dutch",
    "portuguese",
    "polish",
    "russian",
    "chinese",
    "japanese",
    "korean",
    "arabic",
    "turkish",
    "swedish",
    "norwegian",
    "danish",
    "finnish",
    "greek",
    "hindi",
    "latin",
];
/// What agents do beside the task without leaving it.
const HOUSEKEEPING: [&str; 16] = [
    "test",
    "import",
    "changelog",
    "typo",
    "format",
    "lint",
    "doc",
    "comment",
    "caller",
    "call site",
    "type hint",
    "note",
    "link",
    "summary",
    "version",
    "lock file",
];

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

/// How likely a local model finds a reply: where one is at hand, it tells a paraphrase from another subject. Called when a
/// reply is complete, on the caller's thread.
pub trait AnswerLikelihood: Send + Sync {
    /// By how much the reply's mean log-probability per token is higher after the task than after a bare prompt, nats; `None`
    /// if it cannot be computed now.
    fn gain(&self, task: &str, reply: &str) -> Option<f64>;
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
    likelihood: Option<Arc<dyn AnswerLikelihood>>,
    /// The conversation so far: messages, replies, and what tools were given and gave, the latest last.
    context: VecDeque<String>,
}

/// A parsed task.
#[derive(Clone, Default)]
struct Task {
    text: String,
    features: Features,
    content_words: usize,
    /// Pairs of characters in scripts without spaces.
    pairs: usize,
    prohibitions: Vec<Prohibition>,
    /// Forbidden words in other languages, by hash.
    forbidden: Vec<(u32, String)>,
    asks_other_form: bool,
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
            likelihood: None,
            context: VecDeque::new(),
        }
    }

    pub(super) fn set_likelihood(&mut self, likelihood: Option<Arc<dyn AnswerLikelihood>>) {
        self.likelihood = likelihood;
    }

    /// Adds to the conversation that replies may refer to.
    pub(super) fn add_context(&mut self, text: &str) {
        if !self.settings.enabled || text.is_empty() {
            return;
        }
        let text = text.get(..text.floor_char_boundary(CONTEXT_BYTES_MAX)).unwrap_or_default();
        let mut entry =
            if self.context.len() < CONTEXT_MAX { None } else { self.context.pop_front() }.unwrap_or_default();
        entry.clear();
        entry.push_str(text);
        self.context.push_back(entry);
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
        self.task().map(Task::name).unwrap_or_default()
    }

    /// The task of the reply before the current message, with its keywords.
    pub(super) fn previous(&self) -> Option<(&Features, String)> {
        let task = self.standing.as_ref().or(self.before.as_ref())?;
        Some((&task.features, task.name()))
    }

    /// Whether the current message asks for something, rather than to go on.
    pub(super) fn is_request(&self) -> bool {
        const REPEATS: [&str; 6] = ["again", "once more", "repeat", "rerun", "re-run", "same"];
        self.of_turn.as_ref().is_some_and(|task| {
            let repeats = || {
                let lower = task.text.to_lowercase();
                lower.contains(['?', '？']) || REPEATS.iter().any(|word| lower.contains(word))
            };
            let words = || Scan::of(&task.text).words().len();
            task.content_words >= TASK_CONTENT_MIN || repeats() || words() >= REQUEST_WORDS_MIN
        })
    }

    fn task(&self) -> Option<&Task> {
        self.standing.as_ref().or(self.of_turn.as_ref())
    }

    fn read(&mut self, text: &str) -> Task {
        let text = text.get(..text.floor_char_boundary(REGULATOR_TASK_BYTES_MAX)).unwrap_or_default();
        self.scan.scan(text);
        let words = self.scan.words();
        let prohibitions = prohibitions(text);
        let forbidden: Vec<_> = forbidden(text, words)
            .into_iter()
            .map(|word| (word.hash, word_text(text, word).to_owned()))
            .filter(|_| prohibitions.is_empty())
            .collect();
        let ruled_out = |word: &&Word| {
            let inside = |prohibition: &Prohibition| prohibition.span.contains(&(word.start as usize));
            !prohibitions.iter().any(inside) && !forbidden.iter().any(|(hash, _)| *hash == word.hash)
        };
        Task {
            features: Features::of(words.iter().filter(ruled_out)),
            content_words: words.iter().filter(|word| weight(word) >= CONTENT).count(),
            pairs: words.iter().filter(|word| word.unspaced).count(),
            asks_other_form: asks_other_form(text, words),
            embedded: None,
            text: text.to_owned(),
            prohibitions,
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
        let mut parts = task.breaches(reply, &self.scan);
        let enough =
            task.content_words >= TASK_CONTENT_MIN && words.len() >= REPLY_WORDS_MIN && !task.features.is_empty();
        if parts.is_empty() && !enough {
            return None;
        }
        let limit = self.settings.drift;
        let Similarity { whole, least } = self.segments.compare(&task.features, &self.scan);
        let gain = self.likelihood.as_ref().filter(|_| enough).and_then(|model| model.gain(&task.text, reply));
        let (mut whole_drift, mut basis) = match (gain, embedded) {
            _ if !enough => (0.0, DriftBasis::Words),
            (Some(gain), _) => (LIKELIHOOD.drift(gain as f32), DriftBasis::Likelihood),
            // The geometric mean of both measures.
            (None, Some(similarity)) => {
                ((WHOLE.drift(whole) * EMBEDDED.drift(similarity)).sqrt(), DriftBasis::Embedding)
            }
            (None, None) => (WHOLE.drift(whole), DriftBasis::Words),
        };
        let segment = least.filter(|_| enough);
        let mut segment_drift = segment.as_ref().map_or(0.0, |segment| SEGMENT.drift(likeness(segment)));
        // What is measured is reported even where it is not believed enough for a warning.
        let measured = whole_drift.max(segment_drift);
        if measured >= limit {
            // Words alone are not believed where they cannot tell.
            let alone = basis == DriftBasis::Words;
            if alone && whole_drift >= limit && !self.words_can_tell(task, reply) {
                whole_drift = 0.0;
            }
            if let Some(segment) = segment.as_ref().filter(|_| segment_drift >= limit)
                && (task.asks_other_form || !self.is_foreign(task, segment))
            {
                segment_drift = 0.0;
            }
        }
        let score = parts.iter().map(|part| part.score).fold(whole_drift.max(segment_drift), f64::max);
        if score < limit {
            return Some(Drift { score: measured.max(score), ranked: None });
        }
        if whole_drift >= limit {
            let sentences = self.scan.sentences();
            let apart = |sentence: &&Sentence| task.similarity(&self.scan, sentence) <= 0.0;
            let mut drifting: Vec<Sentence> = sentences.iter().filter(apart).copied().collect();
            if drifting.is_empty() {
                drifting.extend(sentences);
            }
            let part = |sentence| DriftingSentence { sentence, score: whole_drift, forbidden: None };
            parts.extend(drifting.into_iter().map(part));
        } else if let Some(segment) = segment.filter(|_| segment_drift >= limit) {
            let sentences = self.scan.sentences().get(segment.sentences).unwrap_or_default();
            let part = |&sentence| DriftingSentence { sentence, score: segment_drift, forbidden: None };
            parts.extend(sentences.iter().map(part));
            basis = DriftBasis::Words;
        }
        if parts.iter().any(|part| part.forbidden.is_some()) {
            basis = DriftBasis::Prohibition;
        }
        let mut evidence = vec![
            Evidence::new("drift_whole", whole_drift, limit),
            Evidence::new("cosine_whole", f64::from(whole), f64::from(WHOLE.half)),
            Evidence::new("drift_worst_stretch", segment_drift, limit),
        ];
        evidence.extend(gain.map(|gain| Evidence::new("likelihood_gain_nats", gain, f64::from(LIKELIHOOD.half))));
        evidence.extend(
            embedded.map(|cosine| Evidence::new("cosine_embedded", f64::from(cosine), f64::from(EMBEDDED.half))),
        );
        let decision = Decision::ScopeDriftWarn {
            drift_score: score,
            drift_tokens: task.foreign_words(reply, &self.scan, &parts),
            task_tokens: task.keywords(),
            spans: drift_spans(reply, parts),
            basis,
        };
        Some(Drift { score, ranked: Some(RankedDecision { decision, evidence }) })
    }

    /// Whether words alone can tell that the reply has another subject: task and reply are long enough, in English (whose
    /// function words are known) or in one script without spaces, and the reply has next to no word of the task or the
    /// conversation.
    fn words_can_tell(&self, task: &Task, reply: &str) -> bool {
        let words = self.scan.words();
        let (shared, known) = self.shared(task, words);
        if task.asks_other_form {
            return false;
        }
        if words.iter().filter(|word| word.unspaced).count() >= PAIRS_ALONE_MIN {
            return task.pairs >= TASK_PAIRS_ALONE_MIN && shared < SHARED_ALONE;
        }
        let prose = prose_words(reply);
        let content = words.iter().filter(|word| weight(word) >= CONTENT).count();
        let task_enough = task.content_words >= TASK_CONTENT_ALONE_MIN && shared < SHARED_ALONE;
        // In a long conversation even a paraphrase takes something up.
        let conversation_enough = known >= KNOWN_ALONE_MIN
            && prose >= WORDS_KNOWN_MIN
            && shared < SHARED_KNOWN
            && task.content_words > TASK_CONTENT_MIN;
        (task_enough || conversation_enough)
            && content >= CONTENT_ALONE_MIN
            && prose >= WORDS_ALONE_MIN
            && is_english(Scan::of(&task.text).words()) != Some(false)
            && is_english(words) == Some(true)
    }

    /// The share of the content words (each counted once) that the task or the conversation has too, and how many those have.
    fn shared(&self, task: &Task, words: &[Word]) -> (f64, usize) {
        let content = |words: &[Word]| -> BTreeSet<u32> {
            words.iter().filter(|word| weight(word) >= CONTENT).map(|word| word.hash).collect()
        };
        let mut known = content(Scan::of(&task.text).words());
        for text in &self.context {
            known.extend(content(Scan::of(text).words()));
        }
        let own = content(words);
        (own.intersection(&known).count() as f64 / own.len().max(1) as f64, known.len())
    }

    /// Whether a segment is long enough to judge, and has no part in the conversation either.
    fn is_foreign(&self, task: &Task, segment: &Segment) -> bool {
        let sentences = self.scan.sentences().get(segment.sentences.clone()).unwrap_or_default();
        let words: Vec<Word> = sentences.iter().flat_map(|sentence| self.scan.words_of(sentence)).copied().collect();
        let features = Features::of(&words);
        words.len() >= SEGMENT_WORDS_MIN
            && function_words(&words) >= NOT_ENGLISH
            && is_english(self.scan.words()) == Some(true)
            && task.features.cosine(&features) < WHOLE.half
            && self.shared(task, &words).0 < SHARED_ALONE
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
            let other = || {
                let (_, name) = self.forbidden.iter().find(|(hash, _)| {
                    words.iter().zip(negated(reply, words)).any(|(word, negated)| word.hash == *hash && !negated)
                })?;
                Some(name)
            };
            let done = broken(&self.prohibitions, text).map(|prohibition| &prohibition.name).or_else(other);
            if let Some(name) = done {
                let (sentence, forbidden) = (*sentence, Some(name.clone()));
                found.push(DriftingSentence { sentence, score: FORBIDDEN, forbidden });
            } else if announces_addition(text, words) && self.features.cosine(&added(words)) < ADDITION_COSINE {
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

    fn name(&self) -> String {
        let mut words = self.keywords();
        words.truncate(3);
        words.join("+")
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

/// Words with which an addition is announced.
const SIGNS: [u32; 5] = [hash_of("also"), hash_of("added"), hash_of("went"), hash_of("took"), hash_of("while")];

/// The features of what a sentence says is added.
fn added(words: &[Word]) -> Features {
    Features::of(words.iter().skip_while(|word| !SIGNS.contains(&word.hash)))
}

/// Whether a sentence announces an addition: "I also added …", "while I was at it".
fn announces_addition(sentence: &str, words: &[Word]) -> bool {
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
    let announces = lower.starts_with("also add") || PHRASES.iter().any(|phrase| lower.contains(phrase));
    announces && !HOUSEKEEPING.iter().any(|word| lower.contains(word))
}

/// Whether a task asks for a poem, a translation and the like.
fn asks_other_form(text: &str, words: &[Word]) -> bool {
    // "You are the pilot …": a role, of which its own replies need not speak.
    const ROLES: [&str; 4] = ["you are ", "you're ", "act as ", "play "];
    const REGISTERS: [&str; 6] = ["like i'm ", "like i am ", "eli5", "reply to ", "respond to ", "answer to "];
    let lower = text.to_lowercase().replace('’', "'");
    let role = ROLES.iter().any(|role| lower.trim_start().starts_with(role));
    if role || REGISTERS.iter().any(|register| lower.contains(register)) {
        return true;
    }
    let mut before = "";
    words.iter().any(|word| {
        let own = word_text(text, word);
        let language = matches!(before, "in" | "into" | "to" | "the")
            && LANGUAGES.iter().any(|name| own.eq_ignore_ascii_case(name));
        before = own;
        let begins = |form: &&str| own.get(..form.len()).is_some_and(|start| start.eq_ignore_ascii_case(form));
        language || OTHER_FORM.iter().any(begins)
    })
}

/// The share of English function words.
fn function_words(words: &[Word]) -> f64 {
    let common = words.iter().filter(|word| weight(word) < FUNCTION_WORD).count();
    common as f64 / words.len().max(1) as f64
}

/// Whether a text is English prose; `None` if its words cannot tell.
fn is_english(words: &[Word]) -> Option<bool> {
    let share = function_words(words);
    let known = words.len() >= LANGUAGE_WORDS_MIN && !(NOT_ENGLISH..ENGLISH).contains(&share);
    known.then_some(share >= ENGLISH)
}

/// The number of words outside code blocks and tables.
fn prose_words(reply: &str) -> usize {
    let mut in_code = false;
    let prose = reply.lines().filter(|line| {
        let line = line.trim_start();
        let fence = line.starts_with("```");
        in_code ^= fence;
        !(in_code || fence || line.starts_with('|'))
    });
    prose.map(|line| Scan::of(line).words().len()).sum()
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
