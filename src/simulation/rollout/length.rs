//! Converts a length such as "40-100 words" to a maximum number of tokens.

/// Tokens per English word, with a margin for rare words.
const TOKENS_PER_WORD: f64 = 1.5;
/// The words of a long spoken sentence.
const WORDS_PER_SENTENCE: f64 = 25.0;

/// The most tokens for a length such as "40-100 words" or "1 to 3 sentences": its last number is the
/// limit. `None` if it contains no number.
pub(super) fn tokens_for(length: &str) -> Option<usize> {
    let mut numbers = length.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let number: u32 = numbers.next_back()?.parse().ok()?;
    let words = if length.to_lowercase().contains("sentence") { WORDS_PER_SENTENCE } else { 1.0 };
    Some((f64::from(number) * words * TOKENS_PER_WORD).ceil() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_is_the_limit() {
        for (length, tokens) in [
            ("40-100 words", Some(150)),
            ("30–80 words", Some(120)),
            ("up to 51 words", Some(77)),
            ("1 to 3 sentences", Some(113)),
            ("short", None),
            ("99999999999999 words", None),
        ] {
            assert_eq!(tokens_for(length), tokens, "{length}");
        }
    }
}
