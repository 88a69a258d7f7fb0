//! Streaming conversion of token ids to text: the pieces concatenate to the text of all tokens, and no piece ends
//! inside a character.

use std::sync::Arc;

use super::tokenizer::Tokenizer;
use crate::foundation::chat::TokenId;

/// Maximum number of tokens per character: UTF-8 has at most four bytes per character, and a token has at least one.
const TOKENS_PER_CHARACTER_MAX: usize = 4;

/// A streaming decoder.
pub(super) struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    /// The tokens decoded last: some tokenizers decode a token differently at the beginning of a text.
    context: Vec<TokenId>,
    /// Tokens whose text is not complete yet.
    pending: Vec<TokenId>,
}

impl Detokenizer {
    pub(super) fn new(tokenizer: Arc<Tokenizer>) -> Self {
        Self { tokenizer, context: Vec::new(), pending: Vec::new() }
    }

    /// A decoder that continues after `before`: a character that is open at its end is returned with the token that
    /// completes it, and a token that begins with a space keeps it.
    pub(super) fn after(tokenizer: Arc<Tokenizer>, before: &[TokenId]) -> Self {
        let mut detokenizer = Self::new(tokenizer);
        let (_, last) = before.split_at(before.len().saturating_sub(2 * TOKENS_PER_CHARACTER_MAX));
        for &id in last {
            detokenizer.push(id);
        }
        detokenizer
    }

    /// The text completed by `id`; empty if it ends inside a character.
    pub(super) fn push(&mut self, id: TokenId) -> String {
        let before = self.tokenizer.decode(&self.context);
        self.pending.push(id);
        let together: Vec<_> = self.context.iter().chain(&self.pending).copied().collect();
        let text = self.tokenizer.decode(&together);
        if !text.ends_with(char::REPLACEMENT_CHARACTER) {
            let pending = std::mem::take(&mut self.pending);
            let piece = text.strip_prefix(&before).map_or_else(|| self.tokenizer.decode(&pending), str::to_owned);
            self.context = pending;
            return piece;
        }
        if self.pending.len() < TOKENS_PER_CHARACTER_MAX {
            return String::new();
        }
        // Whatever the unfinished character is, the oldest token is not part of it.
        self.context.push(self.pending.remove(0));
        self.tokenizer.decode(&self.context).strip_prefix(&before).unwrap_or_default().to_owned()
    }
}

/// Each of `ids` with the text that it completes, after `before`.
pub(super) fn pieces(tokenizer: &Arc<Tokenizer>, before: &[TokenId], ids: Vec<TokenId>) -> Vec<(TokenId, String)> {
    let mut detokenizer = Detokenizer::after(Arc::clone(tokenizer), before);
    ids.into_iter().map(|id| (id, detokenizer.push(id))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::bundled;
    use super::*;

    fn texts(ids: &[TokenId]) -> Vec<String> {
        let tokenizer = Arc::new(Tokenizer::parse(bundled::TOKENIZER).unwrap());
        pieces(&tokenizer, &[], ids.to_vec()).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn a_character_open_at_the_end_of_the_prompt_is_completed() {
        let tokenizer = Arc::new(Tokenizer::parse(bundled::TOKENIZER).unwrap());
        let ids = tokenizer.encode("a 🦀! naïve").unwrap();
        let whole = pieces(&tokenizer, &[], ids.clone());
        for border in 0..ids.len() {
            let (before, after) = ids.split_at(border);
            assert_eq!(pieces(&tokenizer, before, after.to_vec()), whole[border..], "from token {border} on");
        }
    }

    #[test]
    fn a_character_is_returned_with_its_last_token() {
        let tokenizer = Tokenizer::parse(bundled::TOKENIZER).unwrap();
        let ids = tokenizer.encode("a 🦀!").unwrap();
        let pieces = texts(&ids);
        assert_eq!(pieces.concat(), "a 🦀!");
        assert!(pieces.iter().any(String::is_empty), "{pieces:?}");
        assert!(pieces.contains(&"🦀".to_owned()), "{pieces:?}");
    }

    #[test]
    fn invalid_bytes_do_not_block_the_output() {
        let tokenizer = Tokenizer::parse(bundled::TOKENIZER).unwrap();
        let first_byte = tokenizer.encode("🦀").unwrap()[0];
        let pieces = texts(&[first_byte; 9]);
        assert_eq!(pieces.concat(), "\u{FFFD}".repeat(6), "{pieces:?}");
    }

    /// A tokenizer with byte fallback; `prefix`: as Mistral's, which puts a space before a text, else as Gemma's.
    fn with_bytes(prefix: bool) -> Arc<Tokenizer> {
        let replace = r#"{"type": "Replace", "pattern": {"String": " "}, "content": "▁"}"#;
        let (prepend, strip) = if prefix {
            (r#"{"type": "Prepend", "prepend": "▁"},"#, r#", {"type": "Strip", "content": " ", "start": 1, "stop": 0}"#)
        } else {
            ("", "")
        };
        let pieces = ["<unk>", "▁", "a", "▁a", "b", "▁b", "<0xC3>", "<0xA9>", "<0xF0>", "<0x9F>", "<0xA6>", "<0x80>"];
        let vocabulary: serde_json::Map<String, serde_json::Value> =
            pieces.iter().enumerate().map(|(id, piece)| ((*piece).to_owned(), id.into())).collect();
        let json = format!(
            r#"{{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "pre_tokenizer": null,
            "normalizer": {{"type": "Sequence", "normalizers": [{prepend} {replace}]}}, "post_processor": null,
            "decoder": {{"type": "Sequence", "decoders": [
                {{"type": "Replace", "pattern": {{"String": "▁"}}, "content": " "}}, {{"type": "ByteFallback"}},
                {{"type": "Fuse"}}{strip}]}},
            "model": {{"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
                "vocab": {}, "merges": [["▁", "a"], ["▁", "b"]]}}}}"#,
            serde_json::Value::Object(vocabulary)
        );
        Arc::new(Tokenizer::parse(&json).unwrap())
    }

    #[test]
    fn tokenizers_of_mistrals_and_gemmas_kind_give_every_byte_once() {
        for (prefix, first) in [(true, vec![3]), (false, vec![2])] {
            let tokenizer = with_bytes(prefix);
            assert_eq!(tokenizer.encode("a").unwrap(), first);
            for text in ["a b", "aé b", "é", "a 🦀 b", "b  a", " a"] {
                let ids = tokenizer.encode(text).unwrap();
                let pieces = |before: &[TokenId], ids: &[TokenId]| {
                    pieces(&tokenizer, before, ids.to_vec()).into_iter().map(|(_, text)| text).collect::<Vec<_>>()
                };
                assert_eq!(pieces(&[], &ids).concat(), text, "{prefix}");
                // After a prompt, every piece keeps its space, so that bytes are counted in full.
                for border in 1..ids.len() {
                    let (before, after) = ids.split_at(border);
                    let whole = [pieces(&[], before), pieces(before, after)].concat().concat();
                    assert_eq!(whole, text, "{prefix} from token {border} on");
                }
            }
        }
    }

    #[test]
    fn a_sentencepiece_token_keeps_its_space_after_a_prompt() {
        let json = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
            "normalizer": {"type": "Prepend", "prepend": "▁"}, "pre_tokenizer": null, "post_processor": null,
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
            "model": {"type": "BPE", "vocab": {"▁once": 0, "▁upon": 1, "s": 2}, "merges": []}}"#;
        let tokenizer = Arc::new(Tokenizer::parse(json).unwrap());
        let text = |before: &[TokenId], ids: &[TokenId]| {
            pieces(&tokenizer, before, ids.to_vec()).into_iter().map(|(_, text)| text).collect::<Vec<_>>()
        };
        assert_eq!(text(&[0], &[1, 2]), [" upon", "s"]);
        assert_eq!(text(&[0], &[2, 1]), ["s", " upon"]);
        // At the beginning of a text there is no space to keep.
        assert_eq!(text(&[], &[1, 2]), ["upon", "s"]);
    }

    proptest! {
        #[test]
        fn joined_pieces_are_the_text(text in "\\PC{0,40}") {
            // At the end of the text it cannot be distinguished from an incomplete character.
            prop_assume!(!text.ends_with(char::REPLACEMENT_CHARACTER));
            let ids = Tokenizer::parse(bundled::TOKENIZER).unwrap().encode(&text).unwrap();
            prop_assert_eq!(texts(&ids).concat(), text);
        }
    }
}
