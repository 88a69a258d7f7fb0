//! A conversation as token ids, message by message.
//!
//! Each message is rendered and tokenised as a piece of its own: what the template adds when the message is appended.
//! So a conversation read as it grows and one read again from the beginning have the same ids. Where a message carries
//! the ids that the model generated, these stand in place of its text's: what the model wrote is what it remembers.
//!
//! Some templates rewrite what came before (they fold the system message into the first user turn, or cut out old
//! thinking). There the pieces join, or the ids differ from those read before; the engine sees that, because it
//! compares ids, and reads again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use super::template::ChatTemplate;
use super::tokenizer::Tokenizer;
use crate::foundation::base::Digest;
use crate::foundation::base::limits::KNOWN_HISTORIES_MAX;
use crate::foundation::chat::{Message, Role, TokenId};

/// A prompt ready to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reading {
    /// Everything, the beginning of the model's own turn included.
    pub(super) ids: Vec<TokenId>,
    /// How many of `ids` are history: other messages may follow these as well.
    pub(super) history: usize,
}

/// Conversations met before, so that one more message costs one more piece and not all pieces again. It changes no
/// result: a text that begins with a known one has the known one's pieces.
#[derive(Default)]
pub(super) struct Memory(Mutex<Known>);

#[derive(Default)]
struct Known {
    histories: HashMap<Digest, History>,
    /// Oldest first.
    order: VecDeque<Digest>,
}

/// A conversation's rendered text, by length and digest, and its ids.
#[derive(Clone)]
struct History {
    length: usize,
    text: Digest,
    ids: Arc<[TokenId]>,
}

impl Memory {
    /// The longest known beginning of `conversation` that `whole` begins with: how many messages, and their history.
    fn longest(&self, conversation: &[Digest], whole: &str) -> Option<(usize, History)> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = conversation
            .iter()
            .enumerate()
            .rev()
            .filter_map(|(index, digest)| known.histories.get(digest).map(|history| (index + 1, history)));
        let (count, history) =
            found.find(|(_, h)| whole.get(..h.length).is_some_and(|text| Digest::of(text) == h.text))?;
        Some((count, history.clone()))
    }

    fn keep(&self, conversation: Digest, history: History) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.histories.insert(conversation, history).is_none() {
            known.order.push_back(conversation);
        }
        if known.order.len() > KNOWN_HISTORIES_MAX
            && let Some(oldest) = known.order.pop_front()
        {
            known.histories.remove(&oldest);
        }
    }
}

/// One digest for each beginning of `messages`: of the first, of the first two, and so on.
fn digests(messages: &[Message]) -> Vec<Digest> {
    let mut chain = Digest::of("");
    let next = |message: &Message| {
        let ids = message.ids.iter().flat_map(|ids| ids.iter()).flat_map(|id| id.to_le_bytes()).collect::<Vec<_>>();
        let mut bytes = chain.as_bytes().to_vec();
        bytes.extend(format!("{} {} {}\n", message.role.as_str(), message.ids.is_some(), ids.len()).bytes());
        bytes.extend(ids);
        bytes.extend(message.content.bytes());
        chain = Digest::of(bytes);
        chain
    };
    messages.iter().map(next).collect()
}

/// The ids of `messages` and of the beginning of the model's next turn.
///
/// # Errors
/// What the template or the tokenizer objects to, in words.
pub(super) fn read(
    template: &ChatTemplate,
    tokenizer: &Tokenizer,
    memory: &Memory,
    messages: &[Message],
) -> Result<Reading, String> {
    let whole = template.render(messages, true)?;
    let conversation = digests(messages);
    let mut ids = Vec::new();
    // How much of `whole` is in `ids`, and whether that is exactly the messages so far.
    let (mut done, mut exact, mut known) = (0, true, 0);
    if let Some((count, history)) = memory.longest(&conversation, &whole) {
        ids.extend(history.ids.iter());
        (done, known) = (history.length, count);
    }
    for (index, message) in messages.iter().enumerate().skip(known) {
        let (before, with) = (messages.split_at(index).0, messages.split_at(index + 1).0);
        let end = prefix_of(&whole, template, with, false).filter(|&end| end >= done);
        let Some(end) = end else {
            exact = false;
            continue;
        };
        let spliced = exact.then_some(message).filter(|m| m.role == Role::Assistant).and_then(|message| {
            // Ids that another model made, the one before in a fallback chain, spell something else here or nothing.
            let own = message.ids.as_ref().filter(|own| spells(tokenizer, own, &message.content))?;
            let opened = prefix_of(&whole, template, before, true).filter(|opened| (done..=end).contains(opened))?;
            let text = whole.get(opened..end)?;
            // A template may trim what it is given, or put a space before it; the model still wrote what it wrote.
            let content = message.content.trim_start();
            let text = text.strip_prefix(&message.content).or_else(|| {
                let text = text.trim_start();
                text.strip_prefix(content).or_else(|| text.strip_prefix(content.trim_end()))
            });
            let rest = text?;
            Some((whole.get(done..opened)?, own, rest))
        });
        match spliced {
            Some((opening, own, closing)) => {
                ids.extend(tokenizer.encode(opening)?);
                ids.extend(own.iter());
                ids.extend(tokenizer.encode(closing)?);
            }
            None => ids.extend(tokenizer.encode(whole.get(done..end).unwrap_or_default())?),
        }
        (done, exact) = (end, true);
    }
    let history = ids.len();
    if let (Some(&conversation), true) = (conversation.last(), exact) {
        let text = Digest::of(whole.get(..done).unwrap_or_default());
        memory.keep(conversation, History { length: done, text, ids: ids.as_slice().into() });
    }
    ids.extend(tokenizer.encode(whole.get(done..).unwrap_or_default())?);
    Ok(Reading { ids, history })
}

/// Whether `ids` are `content` in this tokenizer's tokens. Some decoders drop a space at the beginning of a text, and a
/// reply that was cut inside its last character ends without it.
fn spells(tokenizer: &Tokenizer, ids: &[TokenId], content: &str) -> bool {
    let text = tokenizer.decode(ids);
    text.trim_start().trim_end_matches(char::REPLACEMENT_CHARACTER)
        == content.trim_start().trim_end_matches(char::REPLACEMENT_CHARACTER)
}

/// How long `messages` are by themselves, if `whole` begins with them.
fn prefix_of(whole: &str, template: &ChatTemplate, messages: &[Message], generate: bool) -> Option<usize> {
    let text = template.render(messages, generate).ok()?;
    whole.starts_with(&text).then_some(text.len())
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::bundled;
    use super::super::template::TokenizerConfig;
    use super::*;

    fn template(source: &str) -> ChatTemplate {
        ChatTemplate::new(Some(source), &TokenizerConfig::default(), Timestamp::UNIX_EPOCH).unwrap()
    }

    fn bundled_template() -> ChatTemplate {
        let config = TokenizerConfig::parse(bundled::TOKENIZER_CONFIG).unwrap();
        ChatTemplate::new(config.template(), &config, Timestamp::UNIX_EPOCH).unwrap()
    }

    fn tokenizer() -> Tokenizer {
        Tokenizer::parse(bundled::TOKENIZER).unwrap()
    }

    fn read(template: &ChatTemplate, tokenizer: &Tokenizer, messages: &[Message]) -> Result<Reading, String> {
        super::read(template, tokenizer, &Memory::default(), messages)
    }

    fn written(content: &str, ids: &[TokenId]) -> Message {
        Message { ids: Some(Arc::from(ids)), ..Message::assistant(content) }
    }

    /// One token a letter: a spelling that the tokenizer would not choose.
    fn spelled(text: &str) -> Vec<TokenId> {
        text.chars().flat_map(|c| tokenizer().encode(&c.to_string()).unwrap()).collect()
    }

    #[test]
    fn a_conversation_grows_at_its_end_only() {
        let (template, tokenizer) = (bundled_template(), tokenizer());
        let own = spelled("hello there");
        let talk =
            [Message::system("Be kind."), Message::user("Hi"), written("hello there", &own), Message::user("And?")];
        let mut before = Vec::new();
        for len in 0..=talk.len() {
            let Reading { ids, history } = read(&template, &tokenizer, &talk[..len]).unwrap();
            assert!(ids.starts_with(&before), "{len} messages");
            assert_eq!(ids[history..], [3], "the model's own turn begins");
            before = ids[..history].to_vec();
        }
        assert!(before.windows(own.len()).any(|window| window == own), "the model's own spelling stands");
        // And right after the generation prompt that it was written for.
        let prompt = read(&template, &tokenizer, &talk[..2]).unwrap().ids;
        assert!(before.starts_with(&[prompt, own].concat()));
    }

    #[test]
    fn a_template_that_trims_keeps_what_was_written() {
        let template = template(
            "{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}<|end|>{% endfor %}\
             {% if add_generation_prompt %}<|assistant|>{% endif %}",
        );
        let own = spelled(" yes ");
        let ids = read(&template, &tokenizer(), &[Message::user("Hi"), written(" yes ", &own)]).unwrap().ids;
        assert!(ids.windows(own.len()).any(|window| window == own));
    }

    #[test]
    fn pieces_that_do_not_concatenate_are_read_as_a_whole() {
        // The system message goes into the first user turn, and there must be one.
        let template = template(
            "{% if messages[0].role == 'system' %}{% set head = messages[0].content %}{% set rest = messages[1:] %}\
             {% else %}{% set head = '' %}{% set rest = messages %}{% endif %}\
             {% if not rest %}{{ raise_exception('no user') }}{% endif %}\
             {% for m in rest %}<|{{ m.role }}|>{% if loop.first %}{{ head }}{% endif %}{{ m.content }}<|end|>{% endfor %}\
             {% if add_generation_prompt %}<|assistant|>{% endif %}",
        );
        let talk = [Message::system("Be kind. "), Message::user("Hi"), written("no", &spelled("no"))];
        let Reading { ids, .. } = read(&template, &tokenizer(), &talk).unwrap();
        assert_eq!(tokenizer().decode(&ids), "<|user|>Be kind. Hi<|end|><|assistant|>no<|end|><|assistant|>");
        assert!(ids.windows(2).any(|window| window == spelled("no")));
        let alone = read(&template, &tokenizer(), &talk[..1]).unwrap_err();
        assert!(alone.contains("no user"), "{alone}");
    }

    #[test]
    fn without_ids_the_text_decides() {
        let (template, tokenizer) = (bundled_template(), tokenizer());
        let text = read(&template, &tokenizer, &[Message::assistant("hello")]).unwrap().ids;
        let own = read(&template, &tokenizer, &[written("hello", &spelled("hello"))]).unwrap().ids;
        assert_ne!(text, own);
        assert_eq!(tokenizer.decode(&text), tokenizer.decode(&own));
    }

    #[test]
    fn what_is_remembered_changes_nothing() {
        let (template, tokenizer, memory) = (bundled_template(), tokenizer(), Memory::default());
        let mut talk = vec![Message::system("Be kind.")];
        for turn in 0..6 {
            talk.push(Message::user(format!("Number {turn}?")));
            talk.push(written("yes", &spelled("yes")));
            let fresh = read(&template, &tokenizer, &talk).unwrap();
            assert_eq!(super::read(&template, &tokenizer, &memory, &talk).unwrap(), fresh);
            // A branch with the same text and another spelling is another conversation.
            let last = talk.len() - 1;
            let mut branch = talk.clone();
            branch[last].ids = None;
            let branched = super::read(&template, &tokenizer, &memory, &branch).unwrap();
            assert_eq!(branched, read(&template, &tokenizer, &branch).unwrap());
            assert_ne!(branched, fresh);
        }
        assert_eq!(memory.longest(&digests(&talk), &template.render(&talk, false).unwrap()).unwrap().0, talk.len());
        for turn in 0..2 * KNOWN_HISTORIES_MAX {
            super::read(&template, &tokenizer, &memory, &[Message::user(turn.to_string())]).unwrap();
        }
        assert_eq!(memory.0.lock().unwrap().histories.len(), KNOWN_HISTORIES_MAX);
    }
}
