//! Refuses a `tokenizer.json` whose steps would lengthen a text without bound: the library performs them without limits.

use regex::Regex;
use serde::Deserialize;
use serde_json::Value;

use crate::foundation::base::limits::{
    TOKENIZER_FRAME_TOKENS_MAX, TOKENIZER_GROWTH_MAX, TOKENIZER_STEPS_MAX, TOKENIZER_WORD_CHARS_MAX,
};

/// The parts of a `tokenizer.json` that are checked.
#[derive(Deserialize)]
struct Parts {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
    model: Option<Model>,
}

#[derive(Deserialize)]
struct Model {
    max_input_chars_per_word: Option<u64>,
}

/// Checks a `tokenizer.json`.
///
/// # Errors
/// What is wrong with it.
pub(super) fn screen(json: &str) -> Result<(), String> {
    let parts: Parts = serde_json::from_str(json).map_err(|error| error.to_string())?;
    for (name, part) in
        [("normalizer", &parts.normalizer), ("pre_tokenizer", &parts.pre_tokenizer), ("decoder", &parts.decoder)]
    {
        let mut steps = Vec::new();
        flatten(part, &mut steps);
        if steps.len() > TOKENIZER_STEPS_MAX {
            return Err(format!("its {name} has more than {TOKENIZER_STEPS_MAX} steps"));
        }
        if steps.iter().fold(1usize, |product, step| product.saturating_mul(growth(step))) > TOKENIZER_GROWTH_MAX {
            return Err(format!("its {name} can make a text more than {TOKENIZER_GROWTH_MAX} times longer"));
        }
    }
    let mut steps = Vec::new();
    flatten(&parts.post_processor, &mut steps);
    let framing = steps.iter().fold(0usize, |sum, step| sum.saturating_add(frame(step)));
    if framing > TOKENIZER_FRAME_TOKENS_MAX {
        return Err(format!("its post_processor adds more than {TOKENIZER_FRAME_TOKENS_MAX} tokens to a text"));
    }
    match parts.model.and_then(|model| model.max_input_chars_per_word) {
        Some(chars) if chars > TOKENIZER_WORD_CHARS_MAX => {
            Err(format!("its model reads words of {chars} characters; the maximum is {TOKENIZER_WORD_CHARS_MAX}"))
        }
        _ => Ok(()),
    }
}

/// The steps of a part, sequences resolved. The JSON parser limits their depth.
fn flatten<'a>(part: &'a Value, steps: &mut Vec<&'a Value>) {
    let lists = ["normalizers", "pretokenizers", "decoders", "processors"];
    match lists.iter().find_map(|name| part.get(*name)?.as_array()) {
        Some(list) => list.iter().for_each(|step| flatten(step, steps)),
        None if part.is_null() => {}
        None => steps.push(part),
    }
}

/// How many times longer a step can make a text, rounded up; steps that at most add a few bytes per character count as 1.
fn growth(step: &Value) -> usize {
    let text = |name: &str| step.get(name).and_then(Value::as_str);
    match text("type") {
        // Each byte beyond ASCII becomes a character of two bytes.
        Some("ByteLevel") => return 2,
        Some("Metaspace") => return 4,
        _ => {}
    }
    if let Some(prepended) = text("prepend") {
        return 1 + prepended.len();
    }
    let (Some(pattern), Some(content)) = (step.get("pattern"), text("content")) else { return 1 };
    let shortest = match (pattern.get("String").and_then(Value::as_str), pattern.get("Regex").and_then(Value::as_str)) {
        (Some(string), _) => string.len(),
        (None, Some(regex)) => {
            // Another engine may accept what this one does not: then its matches count as empty.
            let matches_nothing = Regex::new(regex).map_or(true, |regex| regex.is_match(""));
            usize::from(!matches_nothing)
        }
        _ => 0,
    };
    match shortest {
        0 => content.len() + 1,
        shortest => content.len().div_ceil(shortest).max(1),
    }
}

/// How many tokens a post-processor adds to a text.
fn frame(step: &Value) -> usize {
    let ids = |name: &str| {
        let token = step.get("special_tokens").and_then(|tokens| tokens.get(name));
        token.and_then(|token| token.get("ids")?.as_array()).map_or(1, Vec::len)
    };
    let pieces = step.get("single").and_then(Value::as_array).into_iter().flatten();
    let of_piece = |piece: &Value| match piece.get("SpecialToken").and_then(|token| token.get("id")?.as_str()) {
        Some(name) => ids(name),
        // The text itself; more than once it is repeated.
        None => 1,
    };
    pieces.map(of_piece).fold(0, usize::saturating_add)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(part: &str, value: &Value, refused: Option<&str>) {
        let result = screen(&json!({ part: value, "model": {"vocab": {}} }).to_string());
        match refused {
            None => assert_eq!(result, Ok(()), "{value}"),
            Some(why) => assert!(result.as_ref().is_err_and(|error| error.contains(why)), "{value}: {result:?}"),
        }
    }

    #[test]
    fn steps_that_multiply_a_text_are_refused() {
        let double = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"});
        let nested = |depth: usize| {
            (0..depth).fold(double.clone(), |inner, _| json!({"type": "Sequence", "normalizers": [inner, double]}))
        };
        check("normalizer", &nested(2), None);
        check("normalizer", &nested(20), Some("times longer"));
        check("decoder", &json!({"type": "Sequence", "decoders": vec![double.clone(); 20]}), Some("times longer"));
        let long = "x".repeat(1 << 20);
        for pattern in [json!({"String": "a"}), json!({"Regex": "a"}), json!({"Regex": "a*"}), json!({"String": ""})] {
            check("normalizer", &json!({"type": "Replace", "pattern": pattern, "content": long}), Some("times longer"));
        }
        let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true});
        check("pre_tokenizer", &json!({"type": "Sequence", "pretokenizers": vec![bytes; 12]}), Some("times longer"));
        check(
            "normalizer",
            &json!({"type": "Sequence", "normalizers": vec![json!({"type": "NFC"}); 1000]}),
            Some("steps"),
        );
        let ids = vec![0; 1000];
        let frame = json!({"type": "TemplateProcessing", "single": vec![json!({"SpecialToken": {"id": "x", "type_id": 0}}); 1000],
            "special_tokens": {"x": {"id": "x", "ids": ids, "tokens": []}}});
        check("post_processor", &frame, Some("adds more than"));
        check("model", &json!({"max_input_chars_per_word": 1_000_000_000}), None);
        let whole = json!({"model": {"max_input_chars_per_word": 1_000_000_000}}).to_string();
        assert!(screen(&whole).unwrap_err().contains("reads words of"));
    }

    #[test]
    fn the_steps_of_ordinary_tokenizers_pass() {
        let llama = json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]});
        check("normalizer", &llama, None);
        let clip = json!({"type": "Sequence", "normalizers": [{"type": "NFC"},
            {"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "}, {"type": "Lowercase"}]});
        check("normalizer", &clip, None);
        let albert = json!({"type": "Sequence", "normalizers": [
            {"type": "Replace", "pattern": {"String": "``"}, "content": "\""},
            {"type": "Replace", "pattern": {"String": "''"}, "content": "\""},
            {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]});
        check("normalizer", &albert, None);
        let decoder = json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]});
        check("decoder", &decoder, None);
    }
}
