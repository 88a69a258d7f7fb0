//! A conversation as token ids, message by message.
//!
//! Each message is rendered and tokenised as a piece of its own: what the template adds when the message is appended.
//! So a conversation read as it grows and one read again from the beginning have the same ids. Where a message carries
//! the ids that the model generated, these stand in place of its text's: what the model wrote is what it remembers.
//!
//! Some templates rewrite what came before (they fold the system message into the first user turn, or cut out old
//! thinking). There the pieces join, or the ids differ from those read before; the engine sees that, because it
//! compares ids, and reads again.

use super::template::ChatTemplate;
use super::tokenizer::Tokenizer;
use crate::foundation::chat::{Message, Role, TokenId};

/// A prompt ready to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reading {
    /// Everything, the beginning of the model's own turn included.
    pub(super) ids: Vec<TokenId>,
    /// How many of `ids` are history: other messages may follow these as well.
    pub(super) history: usize,
}

/// The ids of `messages` and of the beginning of the model's next turn.
///
/// # Errors
/// What the template or the tokenizer objects to, in words.
pub(super) fn read(template: &ChatTemplate, tokenizer: &Tokenizer, messages: &[Message]) -> Result<Reading, String> {
    let whole = template.render(messages, true)?;
    let mut ids = Vec::new();
    // How much of `whole` is in `ids`, and whether that is exactly the messages so far.
    let (mut done, mut exact) = (0, true);
    for (index, message) in messages.iter().enumerate() {
        let (before, with) = (messages.split_at(index).0, messages.split_at(index + 1).0);
        let end = prefix_of(&whole, template, with, false).filter(|&end| end >= done);
        let Some(end) = end else {
            exact = false;
            continue;
        };
        let spliced = exact.then_some(message).filter(|m| m.role == Role::Assistant).and_then(|message| {
            let own = message.ids.as_ref()?;
            let opened = prefix_of(&whole, template, before, true).filter(|opened| (done..=end).contains(opened))?;
            let text = whole.get(opened..end)?;
            // A template may trim what it is given; the model still wrote what it wrote.
            let rest = text.strip_prefix(&message.content).or_else(|| text.strip_prefix(message.content.trim()))?;
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
    ids.extend(tokenizer.encode(whole.get(done..).unwrap_or_default())?);
    Ok(Reading { ids, history })
}

/// How long `messages` are by themselves, if `whole` begins with them.
fn prefix_of(whole: &str, template: &ChatTemplate, messages: &[Message], generate: bool) -> Option<usize> {
    let text = template.render(messages, generate).ok()?;
    whole.starts_with(&text).then_some(text.len())
}
