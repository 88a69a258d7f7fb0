//! Scores on the variety of the persona's language.

use std::collections::BTreeSet;

use flate2::{Compress, Compression, FlushCompress};
use unicode_segmentation::UnicodeSegmentation as _;

use super::MeasuredScore;
use super::lines::ConversationWords;
use crate::foundation::stats::mean;
use crate::foundation::text::{
    agrees, distinct_n, ends_with_question, fold, moving_type_token_ratio, self_repetition, words,
};

/// The window of the moving-average type-token ratio, words.
const MATTR_WINDOW: usize = 50;
/// Words per n-gram: long enough that shared ones are rarely chance.
const REPEATED_GRAM: usize = 4;
/// The window of the compression ratio, bytes.
const COMPRESSION_WINDOW: usize = 1_000;
/// Extra output space for a window that deflate cannot compress.
const DEFLATE_ROOM: usize = 256;
/// Words per opening or ending.
const EDGE_WORDS: usize = 2;

pub(super) fn scores(lines: &ConversationWords<'_>) -> Vec<MeasuredScore> {
    let texts: Vec<&[String]> = lines.persona().map(|line| line.words.as_slice()).collect();
    let all: Vec<&str> = texts.iter().flat_map(|words| words.iter()).map(String::as_str).collect();
    let count = texts.len();
    let silent = || "the persona said nothing".to_owned();
    let too_few = || format!("{count} message(s): at least two are needed");

    let length = (count > 0).then(|| all.len() as f64 / count as f64);
    let distinct = |n| distinct_n(&texts, n);
    let repetition = if count < 2 { None } else { self_repetition(&texts, REPEATED_GRAM) };
    let openings = texts.iter().map(|words| words.iter().take(EDGE_WORDS).cloned().collect::<Vec<_>>());
    let endings = lines.persona().map(|line| {
        let tail = line.words.iter().rev().take(EDGE_WORDS).cloned().collect::<Vec<_>>();
        (tail, ends_with_question(line.text))
    });
    let share = |held: &dyn Fn(&str) -> bool| {
        (count > 0).then(|| lines.persona().filter(|line| held(line.text)).count() as f64 / count as f64)
    };
    vec![
        MeasuredScore::new("words_per_message/1", length, silent),
        MeasuredScore::new("distinct_1/1", distinct(1), silent),
        MeasuredScore::new("distinct_2/1", distinct(2), || "no message has two words".to_owned()),
        MeasuredScore::new("mattr_50/1", moving_type_token_ratio(&all, MATTR_WINDOW), || {
            format!("{} words: at least {MATTR_WINDOW} are needed", all.len())
        }),
        MeasuredScore::new("self_repetition_4/1", repetition, || {
            format!("two messages, and one of at least {REPEATED_GRAM} words, are needed")
        }),
        MeasuredScore::new("compression_window_1000/1", compression(lines), || {
            format!("less than {COMPRESSION_WINDOW} bytes of text")
        }),
        MeasuredScore::new("structural_diversity/1", structural_diversity(lines), too_few),
        MeasuredScore::new("opening_variety/1", variety(openings), too_few),
        MeasuredScore::new("ending_variety/1", variety(endings), too_few),
        MeasuredScore::new("question_endings/1", share(&ends_with_question), silent),
        MeasuredScore::new("agreement/1", share(&agrees), silent),
    ]
}

/// The compression ratio of the persona's text by deflate, the mean over windows of fixed length: longer texts compress
/// better, so the length must not vary.
fn compression(lines: &ConversationWords<'_>) -> Option<f64> {
    let text = lines.persona().map(|line| fold(line.text)).collect::<Vec<_>>().join("\n");
    let windows = text.as_bytes().chunks_exact(COMPRESSION_WINDOW);
    mean(&windows.map(|window| COMPRESSION_WINDOW as f64 / deflated(window) as f64).collect::<Vec<_>>())
}

/// The length of `bytes` in zlib's format, level 6 of miniz: another compressor differs by a few bytes.
fn deflated(bytes: &[u8]) -> usize {
    let mut out = Vec::with_capacity(bytes.len() + DEFLATE_ROOM);
    let mut compress = Compress::new(Compression::new(6), true);
    // The output space suffices for the worst case, so one call is enough.
    match compress.compress_vec(bytes, &mut out, FlushCompress::Finish) {
        Ok(_) => out.len(),
        Err(_) => bytes.len(),
    }
}

/// The mean normalised edit distance, over all pairs of messages, of their sequences of sentence kinds and lengths.
fn structural_diversity(lines: &ConversationWords<'_>) -> Option<f64> {
    let structures: Vec<String> = lines.persona().map(|line| structure(line.text)).collect();
    let pairs = structures
        .iter()
        .enumerate()
        .flat_map(|(index, one)| structures.iter().skip(index + 1).map(move |two| (one, two)));
    mean(&pairs.map(|(one, two)| 1.0 - strsim::normalized_levenshtein(one, two)).collect::<Vec<_>>())
}

/// One letter per sentence for its kind and length: short (below 6 words), medium or long (from 16).
fn structure(text: &str) -> String {
    let sentence = |sentence: &str| {
        let letters = match sentence.trim_end_matches(['"', '\'', '\u{201D}', '\u{2019}', ')']).chars().next_back() {
            Some('?') => ['a', 'b', 'c'],
            Some('!') => ['d', 'e', 'f'],
            Some('\u{2026}' | '-' | '\u{2014}') => ['g', 'h', 'i'],
            _ => ['j', 'k', 'l'],
        };
        let [short, medium, long] = letters;
        match words(sentence).len() {
            ..6 => short,
            6..16 => medium,
            _ => long,
        }
    };
    text.unicode_sentences().map(str::trim).filter(|text| !text.is_empty()).map(sentence).collect()
}

/// The share of different items; `None` for fewer than two.
fn variety<T: Ord>(edges: impl Iterator<Item = T>) -> Option<f64> {
    let edges: Vec<T> = edges.collect();
    let (count, distinct) = (edges.len(), edges.into_iter().collect::<BTreeSet<_>>().len());
    (count > 1).then(|| distinct as f64 / count as f64)
}
