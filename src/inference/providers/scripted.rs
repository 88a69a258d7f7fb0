//! `scripted:FILE`: replies read from a file. For tests and demonstrations.
//!
//! The reply depends only on how many assistant messages the conversation holds, so the same conversation always gets
//! the same reply: in any order, in parallel, after a resume. Past its end the script starts again.
//!
//! The file is either text, with replies separated by lines that hold only `---`, or a JSON array. An item of the array
//! is a string, an object (`content`; `thought` before it; `error` instead, to fail; `finish`, for example `"refusal"`; `delay_ms`), or an
//! array of these, from which the request's random stream picks one.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::fixed_reply;
use crate::foundation::base::limits::SCRIPT_BYTES_MAX;
use crate::foundation::base::{Digest, RngStream};
use crate::foundation::chat::{
    BoxFuture, Completion, Continuation, Finish, LanguageModel, Message, ModelError, ModelInfo, Request, Role, Scored,
    Thinking, TokenSink,
};
use crate::foundation::store::read_text;

pub(super) struct Scripted {
    info: ModelInfo,
    script: Vec<Item>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
enum Item {
    Text(String),
    // Before `Reply`, because serde reads a struct from an array as well.
    Choice(Vec<Item>),
    Reply(Reply),
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Reply {
    content: String,
    thought: Option<String>,
    error: Option<String>,
    finish: Option<Finish>,
    delay_ms: u64,
}

impl Scripted {
    pub(super) fn open(path: &Path) -> Result<Self, ModelError> {
        let name = format!("scripted:{}", path.display());
        let unavailable = |why: String| ModelError::Unavailable { model: name.clone(), why };
        let text = read_text(path, SCRIPT_BYTES_MAX)
            .map_err(|error| unavailable(format!("{error}; name a file with replies")))?;
        let script = parse(&text).map_err(unavailable)?;
        let info = ModelInfo { name, digest: Some(Digest::of(&text)), ..ModelInfo::default() };
        Ok(Self { info, script })
    }

    fn reply(&self, conversation: &[Message], stream: RngStream) -> Reply {
        let spoken = conversation.iter().filter(|message| message.role == Role::Assistant).count();
        let mut item = self.script.iter().cycle().nth(spoken % self.script.len().max(1));
        for depth in 0.. {
            match item {
                Some(Item::Choice(items)) => item = items.get(stream.index(depth, items.len())),
                Some(Item::Reply(reply)) => return reply.clone(),
                Some(Item::Text(content)) => return Reply { content: content.clone(), ..Reply::default() },
                None => break,
            }
        }
        Reply::default()
    }
}

fn parse(text: &str) -> Result<Vec<Item>, String> {
    let script: Vec<Item> = if text.trim_start().starts_with('[') {
        serde_json::from_str(text).map_err(|error| {
            format!(
                "{error}; each item is a string, an object with `content`, `thought`, `error`, `finish` and `delay_ms`, or an array"
            )
        })?
    } else {
        let mut replies = vec![String::new()];
        for line in text.lines() {
            match replies.last_mut() {
                Some(reply) if line.trim_end() != "---" => {
                    reply.push_str(line);
                    reply.push('\n');
                }
                _ => replies.push(String::new()),
            }
        }
        replies.iter().map(|reply| Item::Text(reply.trim().to_owned())).collect()
    };
    match script.as_slice() {
        [] => Err("the script holds no reply; write at least one".to_owned()),
        [Item::Text(only)] if only.is_empty() => Err("the script is empty; write at least one reply".to_owned()),
        _ => Ok(script),
    }
}

impl LanguageModel for Scripted {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Its replies are fixed, so the settings change nothing but what it says of itself.
    fn with_thinking(&self, thinking: &Thinking) -> Result<Arc<dyn LanguageModel>, ModelError> {
        let info = ModelInfo { thinking_settings: thinking.clone(), ..self.info.clone() };
        Ok(Arc::new(Self { info, script: self.script.clone() }))
    }

    fn complete<'a>(
        &'a self,
        request: Request,
        sink: Option<Box<dyn TokenSink + 'a>>,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        Box::pin(async move {
            let conversation = fixed_reply::conversation(&self.info.name, &request.prompt)?;
            let reply = self.reply(&conversation, request.stream);
            if reply.delay_ms > 0 {
                tokio::time::sleep(Duration::from_millis(reply.delay_ms)).await;
            }
            if let Some(why) = reply.error {
                return Err(ModelError::Failed { model: self.info.name.clone(), why });
            }
            let finish = reply.finish.unwrap_or(Finish::Stop);
            Ok(fixed_reply::deliver(
                &self.info.name,
                &request,
                (reply.thought.as_deref(), &reply.content),
                finish,
                sink,
            ))
        })
    }

    fn score(&self, _: Request, continuation: Continuation) -> BoxFuture<'_, Result<Scored, ModelError>> {
        Box::pin(async move { Err(fixed_reply::no_score(&self.info.name, &continuation)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scripted(text: &str) -> Scripted {
        Scripted { info: ModelInfo::default(), script: parse(text).unwrap() }
    }

    #[test]
    fn the_reply_depends_on_the_number_of_assistant_messages() {
        let model = scripted("first\nstill first\n---\nsecond\n");
        let mut conversation = vec![Message::system("be someone")];
        let mut replies = Vec::new();
        for _ in 0..3 {
            let reply = model.reply(&conversation, RngStream::root(0)).content;
            conversation.extend([Message::assistant(reply.clone()), Message::user("go on")]);
            replies.push(reply);
        }
        assert_eq!(replies, ["first\nstill first", "second", "first\nstill first"]);
    }

    #[test]
    fn a_choice_is_drawn_from_the_stream_and_nothing_else() {
        let model = scripted(r#"[["a", {"error": "overloaded"}, {"content": "c", "finish": "refusal"}]]"#);
        let draw = |seed| model.reply(&[], RngStream::root(seed));
        assert!((0..20).all(|seed| draw(seed) == draw(seed)));
        assert!((0..20).any(|seed| draw(seed).content == "a"));
        assert!((0..20).any(|seed| draw(seed).error.is_some()));
        assert!((0..20).any(|seed| draw(seed).finish == Some(Finish::Refusal)));
    }

    #[test]
    fn an_empty_script_is_an_error() {
        for text in ["", "  \n", "[]", r#"[{"contents": "typo"}]"#] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
