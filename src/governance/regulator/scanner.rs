//! Splits a text into words and sentences in one pass, in any script.

use super::hash::{HASH_START, PREFIX_CHARS, hash_byte};
use crate::foundation::base::limits::REGULATOR_WORDS_MAX;

/// A word, or a pair of characters where words have no spaces between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word {
    /// Hash of its first characters in lower case, without a plural s.
    pub(super) hash: u32,
    /// First byte in the text.
    pub(super) start: u32,
    /// One past the last byte.
    pub(super) end: u32,
    /// How many characters it has.
    pub(super) chars: u32,
    /// A pair of characters of a script without spaces.
    pub(super) unspaced: bool,
}

/// Text up to the end of a sentence; sentences with few words are merged with the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sentence {
    /// First byte.
    pub(super) start: u32,
    /// One past the last byte.
    pub(super) end: u32,
    /// Index of its first word.
    pub(super) first_word: u32,
    /// One past the index of its last word.
    pub(super) last_word: u32,
}

/// A sentence with fewer words is merged with the next.
const SENTENCE_WORDS_MIN: u32 = 4;

/// In shorter words a final s is not a plural.
const PLURAL_CHARS_MIN: u32 = 4;

/// The words and sentences of a text. Scanning again reuses the buffers.
#[derive(Debug, Clone, Default)]
pub(super) struct Scan {
    words: Vec<Word>,
    sentences: Vec<Sentence>,
}

/// A word being read.
struct WordReader {
    word: Word,
    /// The word's hash before its last hashed character.
    before_last: u32,
    last_two: [char; 2],
    last_unspaced: Option<(u32, char)>,
}

impl WordReader {
    /// ASCII letters and digits.
    fn run(&mut self, at: u32, run: &[u8]) {
        self.begin(at);
        let room = PREFIX_CHARS.saturating_sub(self.word.chars) as usize;
        for byte in run.iter().take(room) {
            self.before_last = self.word.hash;
            self.word.hash = hash_byte(self.word.hash, byte.to_ascii_lowercase());
        }
        let [_, last] = self.last_two;
        self.last_two = match run {
            [.., a, b] => [*a as char, *b as char],
            [one] => [last, *one as char],
            [] => self.last_two,
        };
        self.word.chars += run.len() as u32;
        self.word.end = at + run.len() as u32;
    }

    /// Any other letter of a script with spaces.
    fn letter(&mut self, at: u32, c: char) {
        self.begin(at);
        let [_, last] = self.last_two;
        self.last_two = [last, c];
        if self.word.chars < PREFIX_CHARS {
            self.before_last = self.word.hash;
            self.word.hash = c.to_lowercase().fold(self.word.hash, hash_char);
        }
        self.word.chars += 1;
        self.word.end = at + c.len_utf8() as u32;
    }

    fn begin(&mut self, at: u32) {
        self.last_unspaced = None;
        if self.word.chars == 0 {
            self.word.start = at;
        }
    }
}

impl Scan {
    pub(super) fn of(text: &str) -> Self {
        let mut scan = Self::default();
        scan.scan(text);
        scan
    }

    pub(super) fn words(&self) -> &[Word] {
        &self.words
    }

    pub(super) fn sentences(&self) -> &[Sentence] {
        &self.sentences
    }

    /// The words of a sentence.
    pub(super) fn words_of(&self, sentence: &Sentence) -> &[Word] {
        self.words.get(sentence.first_word as usize..sentence.last_word as usize).unwrap_or_default()
    }

    /// Scans `text`; words past [`REGULATOR_WORDS_MAX`] are ignored.
    pub(super) fn scan(&mut self, text: &str) {
        self.words.clear();
        self.sentences.clear();
        let empty = |start| Word { hash: HASH_START, start, end: start, chars: 0, unspaced: false };
        let mut reading =
            WordReader { word: empty(0), before_last: HASH_START, last_two: ['\0'; 2], last_unspaced: None };
        let (mut start, mut first_word) = (0u32, 0u32);
        let mut next = 0;
        while let Some(c) = char_at(text, next) {
            if self.words.len() >= REGULATOR_WORDS_MAX {
                break;
            }
            let at = next as u32;
            if c.is_ascii_alphanumeric() {
                // Most text is ASCII letters and digits: process a run at once.
                let rest = text.as_bytes().get(next..).unwrap_or_default();
                let run = rest.iter().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(rest.len());
                reading.run(at, rest.get(..run).unwrap_or_default());
                next += run;
                if rest.get(run) == Some(&b' ') {
                    self.finish(&mut reading, empty(next as u32));
                    next += 1;
                }
                continue;
            }
            next += c.len_utf8();
            if !c.is_ascii() && c.is_alphanumeric() {
                if unspaced(c) {
                    self.finish(&mut reading, empty(at));
                    self.pair(&mut reading, at, c);
                } else {
                    reading.letter(at, c);
                }
                continue;
            }
            self.finish(&mut reading, empty(at));
            reading.last_unspaced = None;
            let ends = match c {
                '.' | '!' | '?' | '…' => {
                    char_at(text, next).is_none_or(|after| after.is_whitespace() || after == '"')
                }
                '\n' | '。' | '！' | '？' | '।' => true,
                _ => false,
            };
            let last_word = self.words.len() as u32;
            if ends && last_word - first_word >= SENTENCE_WORDS_MIN {
                let end = at + c.len_utf8() as u32;
                self.sentences.push(Sentence { start, end, first_word, last_word });
                (start, first_word) = (end, last_word);
            }
        }
        self.finish(&mut reading, empty(0));
        let (end, last_word) = (text.len() as u32, self.words.len() as u32);
        match self.sentences.last_mut() {
            _ if last_word == first_word => {}
            Some(before) if last_word - first_word < SENTENCE_WORDS_MIN => {
                (before.end, before.last_word) = (end, last_word);
            }
            _ => self.sentences.push(Sentence { start, end, first_word, last_word }),
        }
    }

    fn finish(&mut self, reading: &mut WordReader, next: Word) {
        if reading.word.chars > 0 {
            // In a longer word the s is past the hashed characters.
            if (PLURAL_CHARS_MIN..=PREFIX_CHARS).contains(&reading.word.chars) && ends_in_plural(reading.last_two) {
                reading.word.hash = reading.before_last;
            }
            self.words.push(reading.word);
        }
        reading.word = next;
    }

    /// Adds a character of a script without spaces: with the character before it, it forms a word.
    fn pair(&mut self, reading: &mut WordReader, at: u32, c: char) {
        let end = at + c.len_utf8() as u32;
        if let Some((start, before)) = reading.last_unspaced {
            let hash = hash_char(hash_char(HASH_START, before), c);
            self.words.push(Word { hash, start, end, chars: 2, unspaced: true });
        }
        reading.last_unspaced = Some((at, c));
    }
}

/// Whether the word ends in a plural s, not the s of "class", "bonus" or "basis" (after Harman's S stemmer, 1991).
fn ends_in_plural([before, last]: [char; 2]) -> bool {
    matches!(last, 's' | 'S') && !matches!(before.to_ascii_lowercase(), 's' | 'u' | 'i')
}

fn char_at(text: &str, byte: usize) -> Option<char> {
    text.get(byte..)?.chars().next()
}

fn hash_char(state: u32, c: char) -> u32 {
    let mut buffer = [0; 4];
    c.encode_utf8(&mut buffer).bytes().fold(state, hash_byte)
}

/// Scripts without spaces between words, and Hangul, whose words inflect at the end.
fn unspaced(c: char) -> bool {
    matches!(c,
        '\u{0E00}'..='\u{0EFF}' // Thai, Lao
        | '\u{1000}'..='\u{109F}' // Myanmar
        | '\u{1780}'..='\u{17FF}' // Khmer
        | '\u{3040}'..='\u{30FF}' // Hiragana, Katakana
        | '\u{3400}'..='\u{4DBF}' | '\u{4E00}'..='\u{9FFF}' | '\u{F900}'..='\u{FAFF}' | '\u{20000}'..='\u{3FFFF}' // Han
        | '\u{AC00}'..='\u{D7AF}' // Hangul
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, words: &[&str], sentences: &[&str]) {
        let scan = Scan::of(text);
        let cut = |start: u32, end: u32| text[start as usize..end as usize].trim().to_owned();
        let found: Vec<_> = scan.words().iter().map(|word| cut(word.start, word.end)).collect();
        assert_eq!(found, words, "words of {text:?}");
        let found: Vec<_> = scan.sentences().iter().map(|sentence| cut(sentence.start, sentence.end)).collect();
        assert_eq!(found, sentences, "sentences of {text:?}");
        let covered: usize = scan.sentences().iter().map(|sentence| scan.words_of(sentence).len()).sum();
        assert_eq!(covered, words.len(), "every word is in a sentence");
    }

    #[test]
    fn words_and_sentences_of_several_scripts() {
        check("", &[], &[]);
        check("  ...  ", &[], &[]);
        check("Don't log v1.2 here!", &["Don", "t", "log", "v1", "2", "here"], &["Don't log v1.2 here!"]);
        check(
            "Read the file now. Done. Then write it back again",
            &["Read", "the", "file", "now", "Done", "Then", "write", "it", "back", "again"],
            &["Read the file now.", "Done. Then write it back again"],
        );
        check("Read the whole file. Ok.", &["Read", "the", "whole", "file", "Ok"], &["Read the whole file. Ok."]);
        check("你好世界。再见", &["你好", "好世", "世界", "再见"], &["你好世界。再见"]);
        check("Ünïcödé straße", &["Ünïcödé", "straße"], &["Ünïcödé straße"]);
    }

    #[test]
    fn a_words_hash_ignores_case_plural_and_what_follows_six_letters() {
        let hash = |text: &str| Scan::of(text).words()[0].hash;
        assert_eq!(hash("Refactor"), hash("REFACTORED"));
        assert_eq!(hash("ÄRGERL"), hash("ärgerlich"));
        assert_ne!(hash("refactor"), hash("reform"));
        for (one, many) in [("robot", "robots"), ("Dog", "DOGS"), ("language", "languages"), ("ship,", "ships,")] {
            assert_eq!(hash(one), hash(many), "{one}");
        }
        for (one, other) in [("clas", "class"), ("bonu", "bonus"), ("thi", "this"), ("ga", "gas")] {
            assert_ne!(hash(one), hash(other), "{other}");
        }
    }
}
