//! Regular expressions of a `tokenizer.json`, matched such that failures are reported. A pattern with look-around is
//! matched by backtracking with a step limit. The `tokenizers` library ignores that the limit was reached and treats
//! the rest of the text as one piece, which gives other tokens than the model was trained on.

use fancy_regex::Regex;
use serde::Deserialize;
use serde_json::Value;
use tokenizers::normalizer::{NormalizedString, SplitDelimiterBehavior};
use tokenizers::pattern::Invert;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::split::SplitPattern;
use tokenizers::{NormalizerWrapper, PreTokenizedString, PreTokenizerWrapper};

/// GPT-2's pattern (`encoder.py`), the default of byte-level tokenizers.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// Splits a text into pieces before the vocabulary is applied.
#[derive(Deserialize)]
#[serde(try_from = "PreTokenizerWrapper")]
pub(super) struct PreTokenizer(Vec<Step>);

enum Step {
    /// A step implemented by the library.
    Own(PreTokenizerWrapper),
    /// Puts a space before every piece that does not begin with one.
    Space,
    /// Splits where the pattern matches.
    Split { at: Box<Regex>, behavior: SplitDelimiterBehavior, invert: bool },
}

impl TryFrom<PreTokenizerWrapper> for PreTokenizer {
    type Error = Box<fancy_regex::Error>;

    fn try_from(whole: PreTokenizerWrapper) -> Result<Self, Self::Error> {
        let mut steps = Vec::new();
        add(whole, &mut steps)?;
        Ok(Self(steps))
    }
}

fn add(whole: PreTokenizerWrapper, steps: &mut Vec<Step>) -> Result<(), Box<fancy_regex::Error>> {
    match whole {
        PreTokenizerWrapper::Sequence(all) => return all.into_iter().try_for_each(|one| add(one, steps)),
        PreTokenizerWrapper::Split(split) => steps.push(match &split.pattern {
            SplitPattern::Regex(pattern) => {
                let at = Box::new(Regex::new(pattern)?);
                Step::Split { at, behavior: split.behavior, invert: split.invert }
            }
            SplitPattern::String(_) => Step::Own(PreTokenizerWrapper::Split(split)),
        }),
        PreTokenizerWrapper::ByteLevel(bytes) if bytes.use_regex => {
            if bytes.add_prefix_space {
                steps.push(Step::Space);
            }
            let (at, behavior) = (Box::new(Regex::new(GPT2)?), SplitDelimiterBehavior::Isolated);
            steps.push(Step::Split { at, behavior, invert: false });
            let bytes = ByteLevel::new(false, bytes.trim_offsets, false);
            steps.push(Step::Own(PreTokenizerWrapper::ByteLevel(bytes)));
        }
        other => steps.push(Step::Own(other)),
    }
    Ok(())
}

impl tokenizers::PreTokenizer for PreTokenizer {
    fn pre_tokenize(&self, text: &mut PreTokenizedString) -> tokenizers::Result<()> {
        self.0.iter().try_for_each(|step| match step {
            Step::Own(own) => own.pre_tokenize(text),
            Step::Space => text.split(|_, mut piece| {
                if !piece.get().starts_with(' ') {
                    piece.prepend(" ");
                }
                Ok([piece])
            }),
            Step::Split { at, behavior, invert: false } => text.split(|_, piece| piece.split(&**at, *behavior)),
            Step::Split { at, behavior, invert: true } => text.split(|_, piece| piece.split(Invert(&**at), *behavior)),
        })
    }
}

/// Normalises a text before it is split. Its patterns must work without backtracking, so they cannot fail.
#[derive(Deserialize)]
#[serde(try_from = "Value")]
pub(super) struct Normaliser(NormalizerWrapper);

impl TryFrom<Value> for Normaliser {
    type Error = String;

    fn try_from(whole: Value) -> Result<Self, String> {
        if let Some(pattern) = backtracks(&whole) {
            return Err(format!(
                "its normalizer replaces `{pattern}`, which uses look-around; supported are patterns without it"
            ));
        }
        NormalizerWrapper::deserialize(whole).map(Self).map_err(|error| error.to_string())
    }
}

/// A pattern of a `Replace` in `part` that needs backtracking.
fn backtracks(part: &Value) -> Option<&str> {
    match part {
        Value::Array(items) => items.iter().find_map(backtracks),
        Value::Object(fields) => {
            let pattern = fields.get("pattern").and_then(|pattern| pattern.get("Regex")?.as_str());
            let pattern = pattern.filter(|pattern| regex::Regex::new(pattern).is_err());
            pattern.or_else(|| fields.values().find_map(backtracks))
        }
        _ => None,
    }
}

impl tokenizers::Normalizer for Normaliser {
    fn normalize(&self, text: &mut NormalizedString) -> tokenizers::Result<()> {
        self.0.normalize(text)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Tokenizer;

    /// A tokenizer with a tiny vocabulary and the given `pre_tokenizer`.
    fn cutting(normalizer: &str, pre_tokenizer: &str) -> Result<Tokenizer, String> {
        let json = format!(
            r#"{{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": {normalizer},
                "pre_tokenizer": {pre_tokenizer}, "post_processor": null, "decoder": null,
                "model": {{"type": "WordLevel", "vocab": {{"?": 0, "a": 1, "Ġa": 2, "ab": 3}}, "unk_token": "?"}}}}"#
        );
        Tokenizer::parse(&json).map_err(|error| error.to_string())
    }

    fn check(pre_tokenizer: &str, text: &str, expected: &[u32]) {
        assert_eq!(cutting("null", pre_tokenizer).unwrap().encode(text).unwrap(), expected, "{pre_tokenizer}");
    }

    #[test]
    fn texts_are_split_as_the_file_specifies() {
        let split = |pattern: &str, behavior: &str, invert: bool| {
            format!(r#"{{"type": "Split", "pattern": {pattern}, "behavior": "{behavior}", "invert": {invert}}}"#)
        };
        check(&split(r#"{"Regex": "-(?!-)"}"#, "Removed", false), "a-ab", &[1, 3]);
        check(&split(r#"{"Regex": "a(?!b)|ab"}"#, "Removed", true), "a-ab", &[1, 3]);
        check(&split(r#"{"String": "-"}"#, "Isolated", false), "a-ab", &[1, 0, 3]);
        let bytes =
            |space: bool| format!(r#"{{"type": "ByteLevel", "add_prefix_space": {space}, "trim_offsets": true}}"#);
        check(&bytes(false), "a a", &[1, 2]);
        check(&bytes(true), "a a", &[2, 2]);
        let both = format!(
            r#"{{"type": "Sequence", "pretokenizers": [{}, {}]}}"#,
            split(r#"{"Regex": "-"}"#, "Removed", false),
            bytes(true)
        );
        check(&both, "a-a", &[2, 2]);
    }

    #[test]
    fn reaching_the_backtracking_limit_is_an_error() {
        let split = |pattern: &str| {
            format!(
                r#"{{"type": "Split", "pattern": {{"Regex": "{pattern}"}}, "behavior": "Removed", "invert": false}}"#
            )
        };
        let nested = cutting("null", &split("(a+)+b(?!c)")).unwrap();
        assert!(nested.encode("aaab").is_ok());
        let why = nested.encode(&"a".repeat(60)).unwrap_err();
        assert!(why.starts_with("the tokenizer failed on the text: ") && why.contains("backtracking"), "{why}");
        // GPT-2's pattern takes a step per space; a text without anything else is refused before.
        let gpt2 =
            cutting("null", r#"{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true}"#).unwrap();
        assert!(gpt2.encode(&" ".repeat(1_000)).is_ok());
        assert!(gpt2.encode(&" ".repeat(1_100_000)).unwrap_err().contains("without a place"));
    }

    #[test]
    fn a_normaliser_with_look_around_is_refused() {
        let replace =
            |pattern: &str| format!(r#"{{"type": "Replace", "pattern": {{"Regex": "{pattern}"}}, "content": "a"}}"#);
        let with = |pattern: &str| {
            let normalizer = format!(r#"{{"type": "Sequence", "normalizers": [{}]}}"#, replace(pattern));
            cutting(&normalizer, r#"{"type": "WhitespaceSplit"}"#)
        };
        assert_eq!(with(" {2,}").unwrap().encode("ab  ab").unwrap(), [0]);
        let why = with("b(?=a)").err().unwrap();
        assert!(why.contains("tokenizer.json") && why.contains("`b(?=a)`"), "{why}");
    }
}
