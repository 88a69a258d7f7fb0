//! The reply as it comes: its text and where each token ends in it.

use super::spans::floor_boundary;
use crate::foundation::base::limits::{REGULATOR_TEXT_BYTES_MAX, REGULATOR_TOKENS_MAX};

/// One token's place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Place {
    /// One past its last byte in the reply.
    pub(super) end_byte: u32,
    /// Its log-probability, nats, if usable.
    pub(super) logprob: Option<f32>,
}

/// The reply so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Reply {
    text: String,
    places: Vec<Place>,
    truncated: bool,
}

impl Reply {
    /// Forgets the reply, keeps the buffers.
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.places.clear();
        self.truncated = false;
    }

    /// A token with its text.
    #[inline]
    pub(super) fn push_token(&mut self, text: &str, logprob: Option<f32>) {
        let fits = self.text.len() + text.len() <= REGULATOR_TEXT_BYTES_MAX && self.places.len() < REGULATOR_TOKENS_MAX;
        if fits && !self.truncated {
            self.text.push_str(text);
            self.places.push(Place { end_byte: self.text.len() as u32, logprob });
        } else {
            self.overflow(text);
        }
    }

    /// What still fits of a token, the last that is kept.
    #[cold]
    fn overflow(&mut self, text: &str) {
        self.push_text(text);
        self.truncated = true;
    }

    /// Text of unknown tokens.
    pub(super) fn push_text(&mut self, text: &str) {
        if self.truncated {
            return;
        }
        let room = REGULATOR_TEXT_BYTES_MAX.saturating_sub(self.text.len());
        if text.len() <= room {
            self.text.push_str(text);
        } else {
            self.text.push_str(text.get(..floor_boundary(text, room)).unwrap_or_default());
            self.truncated = true;
        }
    }

    /// The reply is complete and reads `full`. What the tokens spelled may differ from it at the ends (a stop text, white
    /// space): then the places move along. If it differs elsewhere, the places mean nothing and are dropped.
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

    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }

    #[cfg(test)]
    pub(super) fn kept_bytes(&self) -> usize {
        self.text.capacity() + self.places.capacity() * size_of::<Place>()
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
    fn places_follow_the_text_that_was_kept() {
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
    fn what_is_kept_is_bounded_and_ends_between_characters() {
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
