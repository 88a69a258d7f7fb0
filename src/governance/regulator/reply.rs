//! The reply while it is generated: its text and each token's end in it.

use crate::foundation::base::limits::{REGULATOR_TEXT_BYTES_MAX, REGULATOR_TOKENS_MAX};

/// One token's position in the reply.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TokenPosition {
    /// One past its last byte in the reply.
    pub(super) end_byte: u32,
    /// Its log-probability, nats, if usable.
    pub(super) logprob: Option<f32>,
}

/// The reply so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Reply {
    text: String,
    places: Vec<TokenPosition>,
    truncated: bool,
}

impl Reply {
    /// Clears the reply and keeps the buffers.
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.places.clear();
        self.truncated = false;
    }

    /// Appends a token.
    #[inline]
    pub(super) fn push_token(&mut self, text: &str, logprob: Option<f32>) {
        let fits = self.text.len() + text.len() <= REGULATOR_TEXT_BYTES_MAX && self.places.len() < REGULATOR_TOKENS_MAX;
        if fits && !self.truncated {
            self.text.push_str(text);
            self.places.push(TokenPosition { end_byte: self.text.len() as u32, logprob });
        } else {
            self.overflow(text);
        }
    }

    /// Appends the part of a token that still fits, and marks the reply as truncated.
    #[cold]
    fn overflow(&mut self, text: &str) {
        self.push_text(text);
        self.truncated = true;
    }

    /// Appends text whose tokens are unknown.
    pub(super) fn push_text(&mut self, text: &str) {
        if self.truncated {
            return;
        }
        let room = REGULATOR_TEXT_BYTES_MAX.saturating_sub(self.text.len());
        if text.len() <= room {
            self.text.push_str(text);
        } else {
            self.text.push_str(text.get(..text.floor_char_boundary(room)).unwrap_or_default());
            self.truncated = true;
        }
    }

    /// Sets the complete text. It may differ from the concatenated tokens at the ends (a stop sequence, white space): then
    /// positions are shifted. If it differs elsewhere, positions are invalid and dropped.
    pub(super) fn complete(&mut self, full: &str) {
        if full.is_empty() || self.text == full || self.truncated {
            return;
        }
        match self.text.find(full) {
            Some(skipped) => {
                for place in &mut self.places {
                    place.end_byte = (place.end_byte as usize).saturating_sub(skipped).min(full.len()) as u32;
                }
            }
            None => self.places.clear(),
        }
        self.text.clear();
        self.push_text(full);
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn places(&self) -> &[TokenPosition] {
        &self.places
    }

    #[cfg(test)]
    pub(super) fn retained_bytes(&self) -> usize {
        self.text.capacity() + self.places.capacity() * size_of::<TokenPosition>()
    }

    pub(super) fn truncated(&self) -> bool {
        self.truncated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(tokens: &[&str], full: &str) -> (String, Vec<u32>) {
        let mut reply = Reply::default();
        for token in tokens {
            reply.push_token(token, Some(-1.0));
        }
        reply.complete(full);
        (reply.text().to_owned(), reply.places().iter().map(|place| place.end_byte).collect())
    }

    #[test]
    fn positions_are_shifted_with_the_final_text() {
        let tokens = [" Good", " day", "!", "\nUser:"];
        for (full, text, places) in [
            ("", " Good day!\nUser:", &[5, 9, 10, 16][..]),
            (" Good day!\nUser:", " Good day!\nUser:", &[5, 9, 10, 16]),
            ("Good day!", "Good day!", &[4, 8, 9, 9]),
            ("Good night!", "Good night!", &[]),
        ] {
            assert_eq!(ends(&tokens, full), (text.to_owned(), places.to_vec()), "{full:?}");
        }
    }

    #[test]
    fn a_reply_without_tokens_is_its_text() {
        assert_eq!(ends(&[], "Só"), ("Só".to_owned(), vec![]));
    }

    #[test]
    fn stored_text_is_bounded_and_ends_at_a_character_boundary() {
        let mut reply = Reply::default();
        let long = "é".repeat(REGULATOR_TEXT_BYTES_MAX / 4 + 1);
        for _ in 0..3 {
            reply.push_token(&long, None);
        }
        assert!(reply.truncated() && reply.text().len() <= REGULATOR_TEXT_BYTES_MAX && reply.places().len() == 1);
        reply.clear();
        assert!(!reply.truncated());
    }
}
