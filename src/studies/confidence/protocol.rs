//! How an answer is read and when it is right: each way has a fixed name with a version, since results depend on it.

use crate::foundation::text::words;

/// How an answer is read and compared with the right ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Minimal pairs: the likelier of two whole sentences.
    Pair,
    /// Labelled statements: the likelier of "Yes" and "No".
    Statement,
    /// Multiple choice by the choices' own words: the likeliest per token.
    Choice,
    /// Free answers: all words are equal to a reference's. Case and punctuation are ignored.
    Exact,
    /// Free answers: half of the words are shared with a reference (F₁ over words).
    Fuzzy,
    /// Free answers: the words of a reference follow one another in the answer.
    Contains,
    /// `TriviaQA` (Joshi et al. 2017): the first line, normalised, equals an alias of the answer.
    TriviaQa,
    /// `CoQA` (Reddy et al. 2019): F₁ of the normalised words with one of the people's answers is at least ½.
    CoQa,
    /// MMLU (Hendrycks et al. 2021): the likeliest of the letters A to D after the question and its choices.
    MmluLetter,
    /// MMLU: the letter that the model writes.
    MmluWritten,
    /// GSM8K (Cobbe et al. 2021): the number behind the last `####`, or else the last number.
    Gsm8k,
}

impl Protocol {
    /// Its name with its version.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pair => "pair/1",
            Self::Statement => "statement/1",
            Self::Choice => "choice/1",
            Self::Exact => "exact/1",
            Self::Fuzzy => "fuzzy/1",
            Self::Contains => "contains/1",
            Self::TriviaQa => "triviaqa/1",
            Self::CoQa => "coqa/1",
            Self::MmluLetter => "mmlu_letter/1",
            Self::MmluWritten => "mmlu_written/1",
            Self::Gsm8k => "gsm8k/1",
        }
    }

    /// The most tokens of an answer.
    pub const fn tokens_max(self) -> usize {
        match self {
            Self::Gsm8k => 512,
            _ => 64,
        }
    }

    /// Whether an answer is a part of its text, so that two texts say the same if their answers are equal.
    pub const fn extracts(self) -> bool {
        matches!(self, Self::TriviaQa | Self::MmluWritten | Self::Gsm8k)
    }

    /// The answer in a text; `None` if there is none.
    pub fn read(self, text: &str) -> Option<String> {
        let found = match self {
            Self::TriviaQa => normalised(first_line(text)).join(" "),
            Self::CoQa => normalised(text).join(" "),
            Self::MmluWritten => letter(text)?.to_string(),
            Self::Gsm8k => final_number(text)?,
            _ => words(text).join(" "),
        };
        (!found.is_empty()).then_some(found)
    }

    /// Whether an answer in a text is one of `references`.
    pub fn right(self, text: &str, references: &[String]) -> bool {
        let holds = |reference: &String| match self {
            Self::Fuzzy => f1(&words(text), &words(reference)) >= 0.5,
            Self::Contains => {
                let reference = words(reference);
                !reference.is_empty() && words(text).windows(reference.len()).any(|part| part == reference)
            }
            Self::CoQa => f1(&normalised(text), &normalised(reference)) >= 0.5,
            _ => self.read(text).is_some_and(|answer| self.read(reference).as_ref() == Some(&answer)),
        };
        references.iter().any(holds)
    }
}

/// The first line with a text, without "Answer:" or "A:" before it.
fn first_line(text: &str) -> &str {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let behind = |label: &str| {
        let (head, rest) = line.split_at_checked(label.len())?;
        head.eq_ignore_ascii_case(label).then(|| rest.trim_start())
    };
    behind("answer:").or_else(|| behind("a:")).unwrap_or(line)
}

/// The words as the official scripts of `SQuAD`, `TriviaQA` and `CoQA` compare them: lower case, without ASCII punctuation and
/// the articles a, an, the.
fn normalised(text: &str) -> Vec<String> {
    let lower = text.to_lowercase().replace(['_'], " ");
    let kept: String = lower.chars().filter(|c| !c.is_ascii_punctuation() && !"‘’´`“”".contains(*c)).collect();
    kept.split_whitespace().filter(|word| !["a", "an", "the"].contains(word)).map(str::to_owned).collect()
}

/// F₁ over words, each counted as often as it occurs in both (Rajpurkar et al. 2016); 0 if either has none.
fn f1(answer: &[String], reference: &[String]) -> f64 {
    let mut left = reference.to_vec();
    let mut shared = 0;
    for word in answer {
        if let Some(at) = left.iter().position(|other| other == word) {
            left.swap_remove(at);
            shared += 1;
        }
    }
    if shared == 0 { 0.0 } else { 2.0 * f64::from(shared) / (answer.len() + reference.len()) as f64 }
}

/// The letter A to D that a text gives as its answer: one that stands alone at its beginning, or else the first one behind
/// "answer is" or "answer:".
fn letter(text: &str) -> Option<char> {
    let alone = |rest: &str| {
        let rest = rest.trim_start_matches(|c: char| c.is_whitespace() || "(*\"'[:`".contains(c));
        let mut chars = rest.chars();
        let first = chars.next().filter(|c| ('A'..='D').contains(c))?;
        let mut next = chars.clone();
        // "A dog" begins with an article, "A." and "A" and "A: dog" with an answer.
        let ends = next.next().is_none_or(|c| !(c.is_alphanumeric() || c == ' ' && first == 'A'));
        ends.then_some(first)
    };
    let behind = |mark: &str| {
        let at = text.to_ascii_lowercase().find(mark)?;
        text.get(at + mark.len()..)
    };
    alone(text).or_else(|| ["answer is", "answer:"].iter().find_map(|mark| alone(behind(mark)?)))
}

/// The number behind the last `####`, or else the last number of the text, in one spelling.
fn final_number(text: &str) -> Option<String> {
    let marked = text.rsplit_once("####").and_then(|(_, rest)| numbers(rest).next());
    marked.or_else(|| numbers(text).last()).map(|value| format!("{value}"))
}

/// The numbers in a text; commas between digits part thousands.
fn numbers(text: &str) -> impl Iterator<Item = f64> {
    let (mut rest, mut first) = (text, true);
    std::iter::from_fn(move || {
        loop {
            let start = rest.find(|c: char| c.is_ascii_digit())?;
            let (before, from) = rest.split_at_checked(start)?;
            let length = from.find(|c: char| !c.is_ascii_digit() && c != ',' && c != '.').unwrap_or(from.len());
            let (digits, after) = from.split_at_checked(length)?;
            rest = after;
            let before = before.trim_end_matches('$');
            // A dash between two numbers is no sign.
            let sign = before.strip_suffix('-').filter(|left| !left.is_empty() || first);
            let negative = sign.is_some_and(|left| !left.ends_with(char::is_alphanumeric));
            first = false;
            let plain = digits.replace(',', "");
            if let Ok(value) = plain.trim_end_matches('.').parse::<f64>() {
                return Some(if negative { -value } else { value });
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right(protocol: Protocol, answer: &str, reference: &str) -> bool {
        protocol.right(answer, &[reference.to_owned()])
    }

    #[test]
    fn words_are_compared_without_punctuation() {
        assert!(right(Protocol::Exact, "  Paris. ", "paris"));
        assert!(!right(Protocol::Exact, "It is Paris", "Paris") && !right(Protocol::Exact, "", ""));
        assert!(right(Protocol::Fuzzy, "It is Paris", "Paris"));
        assert!(!right(Protocol::Fuzzy, "I would say that it may be Paris", "Paris"));
        assert!(right(Protocol::Contains, "Well, I live in New York.", "new york"));
        assert!(!right(Protocol::Contains, "York is new", "new york") && !right(Protocol::Contains, "x", ""));
        assert!(!right(Protocol::Fuzzy, "", "") && !right(Protocol::Fuzzy, "Rome", "Paris"));
    }

    #[test]
    fn trivia_answers_are_read_as_the_official_script_does() {
        assert!(right(Protocol::TriviaQa, "Answer: The Beatles.\nThey were a band.", "beatles"));
        assert!(right(Protocol::TriviaQa, "\nSinclair Lewis", "Sinclair_Lewis"));
        assert!(!right(Protocol::TriviaQa, "I think it was the Beatles", "beatles"));
        assert!(!right(Protocol::TriviaQa, "", "the"));
        assert!(right(Protocol::CoQa, "in a white barn", "white barn"));
        assert!(!right(Protocol::CoQa, "in a large and very old red house", "white barn"));
    }

    #[test]
    fn letters_are_read_where_they_are_answers() {
        let read = |text: &str| Protocol::MmluWritten.read(text);
        for text in
            ["B", "B.", "(B)", "B: the second", " **B**", "The answer is B.", "The correct answer is (B)", "answer: B"]
        {
            assert_eq!(read(text).as_deref(), Some("B"), "{text}");
        }
        for text in ["A dog", "Because", "the second", "", "E", "ABBA"] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(read("A").as_deref(), Some("A"));
    }

    #[test]
    fn the_final_number_is_read_in_any_spelling() {
        let read = |text: &str| Protocol::Gsm8k.read(text);
        for text in [
            "#### 1,250",
            "She pays $1250.00",
            "3 + 4\n#### 1250",
            "1,250.",
            "x = 7, so 1250 in all",
            "#### $1,250 of 3",
        ] {
            assert_eq!(read(text).as_deref(), Some("1250"), "{text}");
        }
        assert_eq!(read("It falls to -3.5 degrees").as_deref(), Some("-3.5"));
        assert_eq!(read("pages 10-12").as_deref(), Some("12"));
        assert_eq!((read("none at all"), read("")), (None, None));
        assert!(right(Protocol::Gsm8k, "so it is 72.0", "48/2 = <<48/2=24>>24\n#### 72"));
        assert!(!right(Protocol::Gsm8k, "#### 73", "#### 72"));
    }
}
