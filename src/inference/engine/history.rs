//! Tokenises a conversation message by message.
//!
//! Each message is rendered and tokenised separately, as the text that the template adds when the message is appended.
//! Thus a growing conversation and one read from the beginning have the same ids. If a message carries the ids that the
//! model generated, these are used instead of tokenising its text.
//!
//! Some templates rewrite earlier messages (they fold the system message into the first user turn, or remove old
//! thinking). Then pieces are merged, or the ids differ from those read before. The engine compares ids and reads the
//! prompt again in that case.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::template::{ChatSettings, ChatTemplate};
use super::tokenizer::Tokenizer;
use crate::foundation::base::Digest;
use crate::foundation::base::limits::{
    KNOWN_HISTORIES_MAX, KNOWN_HISTORY_TOKENS_MAX, MESSAGES_DEPENDENT_MAX, MESSAGES_RENDERED_EACH_MAX,
};
use crate::foundation::chat::{Message, Role, TokenId};

/// A tokenised prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TokenizedPrompt {
    /// All ids, including the beginning of the model's turn.
    pub(super) ids: Vec<TokenId>,
    /// How many of `ids` are history that other messages may follow.
    pub(super) history: usize,
    /// The text of the beginning of the model's turn.
    pub(super) opening: String,
}

/// Cache of tokenised conversations, so that appending a message tokenises only that message. Does not affect results.
#[derive(Default)]
pub(super) struct HistoryCache(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    histories: HashMap<Digest, KnownHistory>,
    /// Oldest first.
    order: VecDeque<Digest>,
    /// Of all histories.
    tokens: usize,
}

/// A conversation's rendered text (length and digest) and its ids.
#[derive(Clone)]
struct KnownHistory {
    length: usize,
    text: Digest,
    ids: Arc<[TokenId]>,
}

impl HistoryCache {
    /// The longest cached beginning of `conversation` that is a prefix of `whole`: number of messages and entry.
    fn longest(&self, conversation: &[Digest], whole: &str) -> Option<(usize, KnownHistory)> {
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

    fn keep(&self, conversation: Digest, history: KnownHistory) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.tokens += history.ids.len();
        match known.histories.insert(conversation, history) {
            None => known.order.push_back(conversation),
            Some(replaced) => known.tokens -= replaced.ids.len(),
        }
        while (known.order.len() > KNOWN_HISTORIES_MAX || known.tokens > KNOWN_HISTORY_TOKENS_MAX)
            && let Some(oldest) = known.order.pop_front()
        {
            let removed = known.histories.remove(&oldest);
            known.tokens -= removed.map_or(0, |removed| removed.ids.len());
        }
    }
}

/// One digest for every prefix of `messages`: the first, the first two, and so on.
fn digests(messages: &[Message], settings: &ChatSettings) -> Vec<Digest> {
    let arguments = &settings.arguments;
    let mut chain = Digest::of(if arguments.is_empty() { String::new() } else { format!("{arguments:?}") });
    let next = |message: &Message| {
        let ids = message.ids.iter().flat_map(|ids| ids.iter()).flat_map(|id| id.to_le_bytes()).collect::<Vec<_>>();
        let mut bytes = chain.as_bytes().to_vec();
        bytes.extend(format!("{} {} {}\n", message.role.as_str(), message.ids.is_some(), ids.len()).bytes());
        bytes.extend(ids);
        if let Some(thought) = &message.thought {
            let ids = thought.ids.iter().flat_map(|ids| ids.iter()).flat_map(|id| id.to_le_bytes()).collect::<Vec<_>>();
            bytes.extend(format!("thought {} {}\n", ids.len(), thought.text.len()).bytes());
            bytes.extend(ids);
            bytes.extend(thought.text.bytes());
        }
        bytes.extend(message.content.bytes());
        chain = Digest::of(bytes);
        chain
    };
    messages.iter().map(next).collect()
}

/// Where a message is in the rendered conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MessageEnd {
    /// Where the model's own text begins if it writes the message.
    opened: usize,
    after: usize,
}

/// A conversation with the template that renders it.
struct Rendered<'a> {
    template: &'a ChatTemplate,
    tokenizer: &'a Tokenizer,
    settings: &'a ChatSettings,
    messages: &'a [Message],
    /// All of it, with the beginning of the model's next turn.
    whole: String,
}

/// The ids of `messages` and of the beginning of the model's next turn.
///
/// # Errors
/// The message of the template or the tokenizer.
pub(super) fn read(
    template: &ChatTemplate,
    tokenizer: &Tokenizer,
    cache: &HistoryCache,
    messages: &[Message],
    settings: &ChatSettings,
) -> Result<TokenizedPrompt, String> {
    let whole = template.render(messages, true, &settings.arguments)?;
    let conversation = digests(messages, settings);
    let rendered = Rendered { template, tokenizer, settings, messages, whole };
    let whole = &rendered.whole;
    let mut ids = if template.is_plain { tokenizer.leading().to_vec() } else { Vec::new() };
    // `done`: length of the prefix of `whole` that is in `ids`. `exact`: it ends exactly after a message.
    let (mut done, mut exact, mut known) = (0, true, 0);
    if let Some((count, history)) = cache.longest(&conversation, whole) {
        ids = history.ids.to_vec();
        (done, known) = (history.length, count);
    }
    let new = messages.len() - known;
    let ends = if new > MESSAGES_RENDERED_EACH_MAX { rendered.ends_by_message() } else { None };
    if ends.is_none() && new > MESSAGES_DEPENDENT_MAX {
        return Err(format!(
            "its chat template writes messages differently depending on the others; it can be given at most \
             {MESSAGES_DEPENDENT_MAX} new messages at once, not {new}"
        ));
    }
    // The model's message just before, whose end is not known because the template ends it differently at the end of a
    // conversation.
    let mut unended = None;
    for (index, message) in messages.iter().enumerate().skip(known) {
        let end = match &ends {
            Some(ends) => ends.get(index).map(|end| end.after),
            None => rendered.prefix(index + 1, false),
        };
        let Some(end) = end.filter(|&end| end >= done) else {
            unended = Some(index).filter(|_| exact && message.role == Role::Assistant);
            exact = false;
            continue;
        };
        let own = if exact { Some(index) } else { unended.take() };
        let opened = |own: usize| match &ends {
            Some(ends) => ends.get(own).map(|end| end.opened),
            None => rendered.prefix(own, true),
        };
        match own.and_then(|own| rendered.spliced(own, done..end, opened)) {
            Some((opening, own_ids, closing)) => {
                ids.extend(tokenizer.encode(opening)?);
                ids.extend(own_ids);
                ids.extend(tokenizer.encode(closing)?);
            }
            None => ids.extend(tokenizer.encode(whole.get(done..end).unwrap_or_default())?),
        }
        (done, exact, unended) = (end, true, None);
    }
    let history = ids.len();
    if let (Some(&conversation), true) = (conversation.last(), exact) {
        let text = Digest::of(whole.get(..done).unwrap_or_default());
        cache.keep(conversation, KnownHistory { length: done, text, ids: ids.as_slice().into() });
    }
    let rest = whole.get(done..).unwrap_or_default();
    ids.extend(tokenizer.encode(rest)?);
    let opening = if exact { Some(done) } else { rendered.prefix(messages.len(), false) };
    let opening = opening.and_then(|at| whole.get(at..)).unwrap_or(rest).to_owned();
    Ok(TokenizedPrompt { ids, history, opening })
}

impl Rendered<'_> {
    /// Length of the first `count` messages, with the beginning of the model's next turn if `generate`, if they are a
    /// prefix of the whole.
    fn prefix(&self, count: usize, generate: bool) -> Option<usize> {
        let text = self.render(count, generate)?;
        self.whole.starts_with(&text).then_some(text.len())
    }

    fn render(&self, count: usize, generate: bool) -> Option<String> {
        self.template.render(self.messages.get(..count)?, generate, &self.settings.arguments).ok()
    }

    /// The text in `range` with the ids that the model generated for message `index` in it: the text before them, the ids,
    /// and the text after them. `None` for a message of another author, or without ids that have its text here.
    /// `opened` says where the model's own text begins if the template opens the model's turn there as before a reply.
    fn spliced(
        &self,
        index: usize,
        range: Range<usize>,
        opened: impl Fn(usize) -> Option<usize>,
    ) -> Option<(&str, Vec<TokenId>, &str)> {
        let message = self.messages.get(index).filter(|message| message.role == Role::Assistant)?;
        // Ids generated by another model (for example an earlier one in a fallback chain) decode to something else here.
        let own_ids = message.ids.as_ref().filter(|own_ids| decodes_to(self.tokenizer, own_ids, &message.content))?;
        let within = |at: &usize| range.contains(at) || *at == range.end;
        let opening = opened(index).filter(within);
        if let Some(opened) = opening {
            let text = self.whole.get(opened..range.end)?;
            if let Some(rest) = after_content(text, &message.content) {
                return Some((self.whole.get(range.start..opened)?, own_ids.to_vec(), rest));
            }
            // The template writes the thought as the model wrote it.
            let thought_ids = message.thought.as_ref().and_then(|thought| thought.ids.as_ref());
            let all = thought_ids.map(|before| [before, own_ids].map(|ids| &**ids).concat());
            if let Some(all) = all
                && let Some(rest) = text.strip_prefix(self.tokenizer.decode(&all).as_str())
            {
                return Some((self.whole.get(range.start..opened)?, all, rest));
            }
        }
        // The template opens this turn in another way than before a reply: markers of thoughts are missing here, or stand
        // here and not there.
        let format = self.settings.format.as_ref()?;
        let begun = self.render(index, true)?;
        let before = self.render(index, false)?;
        let turn = begun.strip_prefix(&before)?;
        let from = opening.unwrap_or_else(|| before.len() + format.before_markup(turn).len());
        let text = self.whole.get(from.max(range.start)..range.end)?;
        self.whole.get(..from).filter(|text| begun.starts_with(text))?;
        let text = format.skip_markup(text, message.thought.as_ref().map(|thought| thought.text.as_str()));
        let rest = after_content(text, &message.content)?;
        Some((self.whole.get(range.start..range.end - text.len())?, own_ids.to_vec(), rest))
    }

    /// The ends of all messages in time linear in their number: each message is rendered with the few before it, and the
    /// texts together must be the rendered conversation. `None` if they are not; then a message's text depends on others.
    fn ends_by_message(&self) -> Option<Vec<MessageEnd>> {
        let Self { template, messages, whole, .. } = self;
        let arguments = &self.settings.arguments;
        let mut ends: Vec<MessageEnd> = Vec::with_capacity(messages.len());
        let mut done = 0;
        // The two newest messages of the user: what is rendered begins with the older one, so that the roles alternate and
        // the newer one is not the first.
        let mut users = [None; 2];
        let system = messages.first().filter(|message| message.role == Role::System);
        for (index, message) in messages.iter().enumerate() {
            let from = users.first().copied().flatten().filter(|_| index > HEAD_MESSAGES);
            let window: Vec<Message> = match from {
                None => messages.split_at(index + 1).0.to_vec(),
                Some(from) => {
                    let tail = messages.get(from..=index).unwrap_or_default();
                    if tail.len() > HEAD_MESSAGES * 2 {
                        return None;
                    }
                    system.into_iter().chain(tail).cloned().collect()
                }
            };
            let before = window.split_last()?.1;
            let text = template.render(&window, false, arguments).ok()?;
            let (plain, opening) = if before.is_empty() {
                (String::new(), template.render(before, true, arguments).ok())
            } else {
                (template.render(before, false, arguments).ok()?, template.render(before, true, arguments).ok())
            };
            let own = text.strip_prefix(&plain)?;
            let rest = whole.get(done..)?;
            // Where the template opens a turn of the model before this message; for other messages it is not used.
            let opened = opening.as_deref().and_then(|opening| opening.strip_prefix(&plain));
            let opened =
                opened.filter(|opening| rest.starts_with(opening)).map_or(usize::MAX, |opening| done + opening.len());
            rest.starts_with(own).then_some(())?;
            done += own.len();
            ends.push(MessageEnd { opened, after: done });
            if message.role == Role::User {
                users = [users[1], Some(index)];
            }
        }
        // The conversation itself, without the beginning of the model's next turn.
        (template.render(messages, false, arguments).ok()?.len() == done).then_some(ends)
    }
}

/// Messages at the beginning that are rendered with all before them.
const HEAD_MESSAGES: usize = 8;

/// Whether `ids` decode to `content`. Some decoders drop a leading space, and a reply that was cut inside its last
/// character lacks that character.
fn decodes_to(tokenizer: &Tokenizer, ids: &[TokenId], content: &str) -> bool {
    let text = tokenizer.decode(ids);
    text.trim_start().trim_end_matches(char::REPLACEMENT_CHARACTER)
        == content.trim_start().trim_end_matches(char::REPLACEMENT_CHARACTER)
}

/// `text` after `content`, with which it begins. A template may trim the content or put a space before it; the ids are
/// still the generated ones.
fn after_content<'a>(text: &'a str, content: &str) -> Option<&'a str> {
    let trimmed = content.trim_start();
    text.strip_prefix(content).or_else(|| {
        let text = text.trim_start();
        text.strip_prefix(trimmed).or_else(|| text.strip_prefix(trimmed.trim_end()))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use jiff::Timestamp;

    use super::super::bundled;
    use super::super::template::TokenizerConfig;
    use super::*;

    fn rendered<'a>(template: &'a ChatTemplate, messages: &'a [Message]) -> Rendered<'a> {
        static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(tokenizer);
        static SETTINGS: LazyLock<ChatSettings> = LazyLock::new(ChatSettings::default);
        let whole = template.render(messages, true, &SETTINGS.arguments).unwrap();
        Rendered { template, tokenizer: &TOKENIZER, settings: &SETTINGS, messages, whole }
    }

    fn template(source: &str) -> ChatTemplate {
        ChatTemplate::new(Some(source), &TokenizerConfig::default(), Timestamp::UNIX_EPOCH).unwrap()
    }

    #[test]
    fn the_ends_found_by_message_are_those_found_by_prefixes() {
        let tools = "{% for m in messages %}{% if loop.last and m.role == 'user' %}LAST {% endif %}{{ m.content }}\n{% endfor %}";
        for (template, found) in [(bundled_template(), true), (template(tools), false)] {
            let mut talk = vec![Message::system("Be kind.")];
            for turn in 0..40 {
                talk.push(Message::user(format!("Number {turn}?")));
                talk.push(written(if turn % 3 == 0 { " yes " } else { "yes" }, &spelled("yes")));
            }
            for talk in [&talk[..], &talk[1..], &talk[..80]] {
                let rendered = rendered(&template, talk);
                let ends = rendered.ends_by_message();
                assert_eq!(ends.is_some(), found);
                for (index, end) in ends.iter().flatten().enumerate() {
                    assert_eq!(rendered.prefix(index + 1, false), Some(end.after));
                    if talk[index].role == Role::Assistant {
                        assert_eq!(rendered.prefix(index, true), Some(end.opened));
                    }
                }
            }
        }
    }

    #[test]
    fn a_conversation_of_many_messages_is_read_in_linear_time() {
        let (template, tokenizer) = (bundled_template(), tokenizer());
        let talk: Vec<Message> = (0..20_001)
            .map(|index| if index % 2 == 0 { Message::user("hi") } else { written("yes", &spelled_yes(&tokenizer)) })
            .collect();
        let begun = std::time::Instant::now();
        let all = read(&template, &tokenizer, &talk).unwrap();
        // Rendering every prefix would take hours here.
        assert!(begun.elapsed() < std::time::Duration::from_mins(1), "{:?}", begun.elapsed());
        // Read in two parts, as a run does, it is the same.
        let cache = HistoryCache::default();
        super::read(&template, &tokenizer, &cache, &talk[..19_990], &ChatSettings::default()).unwrap();
        assert_eq!(super::read(&template, &tokenizer, &cache, &talk, &ChatSettings::default()).unwrap(), all);
    }

    fn spelled_yes(tokenizer: &Tokenizer) -> Vec<TokenId> {
        "yes".chars().flat_map(|c| tokenizer.encode(&c.to_string()).unwrap()).collect()
    }

    fn bundled_template() -> ChatTemplate {
        let config = TokenizerConfig::parse(bundled::TOKENIZER_CONFIG).unwrap();
        ChatTemplate::new(config.template(), &config, Timestamp::UNIX_EPOCH).unwrap()
    }

    fn tokenizer() -> Tokenizer {
        Tokenizer::parse(bundled::TOKENIZER).unwrap()
    }

    fn read(template: &ChatTemplate, tokenizer: &Tokenizer, messages: &[Message]) -> Result<TokenizedPrompt, String> {
        super::read(template, tokenizer, &HistoryCache::default(), messages, &ChatSettings::default())
    }

    fn written(content: &str, ids: &[TokenId]) -> Message {
        Message { ids: Some(Arc::from(ids)), ..Message::assistant(content) }
    }

    /// One token per letter: a tokenisation that the tokenizer would not choose.
    fn spelled(text: &str) -> Vec<TokenId> {
        text.chars().flat_map(|c| tokenizer().encode(&c.to_string()).unwrap()).collect()
    }

    #[test]
    fn appending_a_message_only_appends_ids() {
        let (template, tokenizer) = (bundled_template(), tokenizer());
        let own_ids = spelled("hello there");
        let talk =
            [Message::system("Be kind."), Message::user("Hi"), written("hello there", &own_ids), Message::user("And?")];
        let mut before = Vec::new();
        for len in 0..=talk.len() {
            let TokenizedPrompt { ids, history, .. } = read(&template, &tokenizer, &talk[..len]).unwrap();
            assert!(ids.starts_with(&before), "{len} messages");
            assert_eq!(ids[history..], [3], "the model's own turn begins");
            before = ids[..history].to_vec();
        }
        assert!(before.windows(own_ids.len()).any(|window| window == own_ids), "the generated ids are used");
        // And right after the generation prompt.
        let prompt = read(&template, &tokenizer, &talk[..2]).unwrap().ids;
        assert!(before.starts_with(&[prompt, own_ids].concat()));
    }

    #[test]
    fn a_trimming_template_keeps_the_generated_ids() {
        let template = template(
            "{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}<|end|>{% endfor %}\
             {% if add_generation_prompt %}<|assistant|>{% endif %}",
        );
        let own_ids = spelled(" yes ");
        let ids = read(&template, &tokenizer(), &[Message::user("Hi"), written(" yes ", &own_ids)]).unwrap().ids;
        assert!(ids.windows(own_ids.len()).any(|window| window == own_ids));
    }

    #[test]
    fn messages_that_a_template_merges_are_tokenised_together() {
        // The system message goes into the first user turn, which must exist.
        let template = template(
            "{% if messages[0].role == 'system' %}{% set head = messages[0].content %}{% set rest = messages[1:] %}\
             {% else %}{% set head = '' %}{% set rest = messages %}{% endif %}\
             {% if not rest %}{{ raise_exception('no user') }}{% endif %}\
             {% for m in rest %}<|{{ m.role }}|>{% if loop.first %}{{ head }}{% endif %}{{ m.content }}<|end|>{% endfor %}\
             {% if add_generation_prompt %}<|assistant|>{% endif %}",
        );
        let talk = [Message::system("Be kind. "), Message::user("Hi"), written("no", &spelled("no"))];
        let TokenizedPrompt { ids, .. } = read(&template, &tokenizer(), &talk).unwrap();
        assert_eq!(tokenizer().decode(&ids), "<|user|>Be kind. Hi<|end|><|assistant|>no<|end|><|assistant|>");
        assert!(ids.windows(2).any(|window| window == spelled("no")));
        let alone = read(&template, &tokenizer(), &talk[..1]).unwrap_err();
        assert!(alone.contains("no user"), "{alone}");
    }

    #[test]
    fn a_message_without_ids_is_tokenised() {
        let (template, tokenizer) = (bundled_template(), tokenizer());
        let text = read(&template, &tokenizer, &[Message::assistant("hello")]).unwrap().ids;
        let own_ids = read(&template, &tokenizer, &[written("hello", &spelled("hello"))]).unwrap().ids;
        assert_ne!(text, own_ids);
        assert_eq!(tokenizer.decode(&text), tokenizer.decode(&own_ids));
    }

    #[test]
    fn the_cache_does_not_change_results() {
        let (template, tokenizer, cache) = (bundled_template(), tokenizer(), HistoryCache::default());
        let mut talk = vec![Message::system("Be kind.")];
        for turn in 0..6 {
            talk.push(Message::user(format!("Number {turn}?")));
            talk.push(written("yes", &spelled("yes")));
            let fresh = read(&template, &tokenizer, &talk).unwrap();
            assert_eq!(super::read(&template, &tokenizer, &cache, &talk, &ChatSettings::default()).unwrap(), fresh);
            // The same text with another tokenisation is another conversation.
            let last = talk.len() - 1;
            let mut branch = talk.clone();
            branch[last].ids = None;
            let branched = super::read(&template, &tokenizer, &cache, &branch, &ChatSettings::default()).unwrap();
            assert_eq!(branched, read(&template, &tokenizer, &branch).unwrap());
            assert_ne!(branched, fresh);
        }
        assert_eq!(
            cache
                .longest(
                    &digests(&talk, &ChatSettings::default()),
                    &template.render(&talk, false, &serde_json::Map::new()).unwrap()
                )
                .unwrap()
                .0,
            talk.len()
        );
        for turn in 0..2 * KNOWN_HISTORIES_MAX {
            super::read(&template, &tokenizer, &cache, &[Message::user(turn.to_string())], &ChatSettings::default())
                .unwrap();
        }
        assert_eq!(cache.0.lock().unwrap().histories.len(), KNOWN_HISTORIES_MAX);
    }
}
