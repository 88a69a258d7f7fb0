//! Models that think before they answer: the thought is apart, its budget holds, and later prompts leave it out.

use std::fs;
use std::sync::Arc;

use loom_agent::foundation::base::RngStream;
use loom_agent::foundation::chat::{
    Completion, Continuation, Finish, Flow, LanguageModel, Message, ModelError, PrefixReuse, Prompt, Request, Sampling,
    Thinking, ThoughtEnd, TokenLogprob, TokenSink,
};
use loom_agent::inference::engine::{EngineOptions, LocalModel};
use tempfile::TempDir;

use super::{bits, block_on, fixture, folder};

/// As in published templates: the thought of the last message is written, those before are not, and a switch closes the
/// thought in the prompt.
const TEMPLATE: &str = "\
{%- for m in messages -%}
{{- '<' ~ m.role ~ '> ' -}}
{%- set content = m.content.split('</think>')[-1].strip() -%}
{%- if m.role == 'assistant' and loop.last -%}
{{- '<think> ' ~ (m.reasoning_content or '').strip() ~ ' </think> ' -}}
{%- endif -%}
{{- content ~ ' <end> ' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<assistant> ' -}}
{%- if enable_thinking is defined and enable_thinking is false -%}{{- '<think> </think> ' -}}
{%- elif opened -%}{{- '<think> ' -}}{%- endif -%}
{%- endif -%}";

/// A fixture with words for markers: `<think>` is 4, `</think>` 5, `<end>` 3.
pub(crate) fn thinker(name: &str, template: &str) -> (TempDir, LocalModel) {
    let copy = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(fixture(name).join(file), copy.path().join(file)).unwrap();
    }
    let mut tokenizer = fs::read_to_string(fixture(name).join("tokenizer.json")).unwrap();
    for (word, marker) in
        [("w1", "<user>"), ("w2", "<assistant>"), ("w3", "<end>"), ("w4", "<think>"), ("w5", "</think>")]
    {
        tokenizer = tokenizer.replace(&format!("\"{word}\""), &format!("\"{marker}\""));
    }
    fs::write(copy.path().join("tokenizer.json"), tokenizer).unwrap();
    fs::write(copy.path().join("generation_config.json"), r#"{"eos_token_id": [3]}"#).unwrap();
    fs::write(copy.path().join("chat_template.jinja"), template).unwrap();
    let model = folder(copy.path(), 1);
    (copy, model)
}

/// The template that opens the thought in the prompt.
fn opened() -> Thinking {
    arguments(r#"{"opened": true}"#)
}

fn arguments(json: &str) -> Thinking {
    Thinking { template_arguments: serde_json::from_str(json).unwrap(), ..Thinking::default() }
}

fn ask(messages: &[Message], seed: u64, thinking: &Thinking) -> Request {
    let sampling = Sampling { temperature: 1.0, top_p: 1.0, max_tokens: 40, ..Sampling::default() };
    let mut request = Request::new(Prompt::Chat(messages.to_vec()), sampling, RngStream::root(seed));
    request.thinking = thinking.clone();
    request
}

fn complete(model: &dyn LanguageModel, request: Request) -> Completion {
    block_on(model.complete(request, None)).unwrap()
}

fn joined(tokens: &[TokenLogprob]) -> String {
    tokens.iter().map(|token| token.text.as_str()).collect()
}

/// A reply whose thought the model closed itself and that has an answer.
fn thoughtful(model: &LocalModel, messages: &[Message]) -> (u64, Completion) {
    let mut replies = (0..200).map(|seed| (seed, complete(model, ask(messages, seed, &opened()))));
    let good = |reply: &Completion| {
        let thought = reply.thought.as_ref().unwrap();
        let whole = reply.message.ids.is_some();
        thought.end == ThoughtEnd::Closed && thought.tokens.len() > 2 && reply.tokens.len() > 2 && whole
    };
    replies.find(|(_, reply)| good(reply)).expect("no reply with thought and answer in 200")
}

struct Parts<'a>(&'a mut Vec<TokenLogprob>, &'a mut Vec<TokenLogprob>);

impl TokenSink for Parts<'_> {
    fn token(&mut self, token: &TokenLogprob) -> Flow {
        self.1.push(token.clone());
        Flow::Continue
    }

    fn thought(&mut self, token: &TokenLogprob) -> Flow {
        self.0.push(token.clone());
        Flow::Continue
    }
}

#[test]
fn a_thought_is_apart_from_the_answer() {
    let (_keep, model) = thinker("qwen3", TEMPLATE);
    let info = model.info().thinking.clone().unwrap();
    assert_eq!((info.open.as_str(), info.close.as_str(), info.on), ("<think>", "</think>", true));
    assert_eq!(info.switch.as_deref(), Some("enable_thinking"));
    let talk = [Message::user("w7 w8")];
    let (seed, reply) = thoughtful(&model, &talk);
    let thought = reply.thought.as_ref().unwrap();
    let of_message = reply.message.thought.as_ref().unwrap();
    assert_eq!(
        (joined(&thought.tokens), joined(&reply.tokens)),
        (of_message.text.clone(), reply.message.content.clone())
    );
    assert!(!reply.message.content.contains("think>") && !of_message.text.contains("think>"), "{reply:?}");
    // Every generated token is in one of the two parts, or a marker.
    let ids = [of_message.ids.as_deref().unwrap(), reply.message.ids.as_deref().unwrap()].concat();
    assert_eq!(ids.len() + usize::from(reply.end.is_some()), reply.usage.tokens_out as usize);
    assert_eq!(ids.iter().filter(|id| **id == 5).count(), 1);
    // A listener gets the two parts as the reply has them.
    let (mut thoughts, mut answers) = (Vec::new(), Vec::new());
    let sink = Box::new(Parts(&mut thoughts, &mut answers));
    let again = block_on(model.complete(ask(&talk, seed, &opened()), Some(sink))).unwrap();
    assert_eq!((&thoughts, &answers), (&thought.tokens, &reply.tokens));
    assert_eq!(again.message, reply.message);
}

#[test]
fn a_spent_budget_closes_the_thought_and_the_answer_follows() {
    for family in ["qwen3", "mamba2"] {
        let (_keep, model) = thinker(family, TEMPLATE);
        let talk = [Message::user("w7 w8")];
        let free = (0..50).map(|seed| (seed, complete(&model, ask(&talk, seed, &opened()))));
        let (seed, free) =
            free.into_iter().find(|(_, reply)| reply.thought.as_ref().unwrap().tokens.len() > 6).unwrap();
        for budget in [0, 1, 4] {
            let thinking = Thinking { tokens_max: Some(budget), ..opened() };
            let reply = complete(&model, ask(&talk, seed, &thinking));
            let thought = reply.thought.as_ref().unwrap();
            assert_eq!((thought.end, thought.tokens.len()), (ThoughtEnd::Budget, budget), "{family}");
            assert_eq!(bits(&thought.tokens), bits(&free.thought.as_ref().unwrap().tokens[..budget]));
            let before = reply.message.thought.as_ref().unwrap().ids.as_deref().unwrap();
            assert_eq!(before.get(budget), Some(&5));
            assert!(!reply.tokens.is_empty() || reply.finish == Finish::Stop || before.len() == 40, "{reply:?}");
            // The answer is what the model says after that thought: it is scored as it was generated.
            let mut ids = model.vocabulary().unwrap().chat(&talk).unwrap();
            ids.push(4);
            ids.extend(reply.message.thought.as_ref().unwrap().ids.as_deref().unwrap());
            let request = Request::new(Prompt::Ids(ids), Sampling::greedy(), RngStream::root(0));
            let own = reply.message.ids.as_deref().unwrap_or_default().to_vec();
            if !own.is_empty() && !own.contains(&4) && !own.contains(&5) {
                let scored = block_on(model.score(request, Continuation::Ids(own))).unwrap();
                assert_eq!(bits(&scored.tokens), bits(&reply.tokens), "{family}");
            }
        }
    }
}

#[test]
fn later_prompts_leave_the_thought_out_and_read_no_state_that_holds_it() {
    for family in ["qwen3", "mamba2"] {
        let (keep, model) = thinker(family, TEMPLATE);
        let mut talk = vec![Message::user("w7 w8 w9"), Message::assistant("w6 w7"), Message::user("w10")];
        let (_, mut reply) = thoughtful(&model, &talk);
        for turn in 0..3 {
            talk.extend([reply.message.clone(), Message::user(format!("w{} w12", 11 + turn))]);
            let ids = model.vocabulary().unwrap().chat(&talk).unwrap();
            assert!(!ids.contains(&4) && !ids.contains(&5), "the prompt holds a thought: {ids:?}");
            let own = reply.message.ids.as_deref().unwrap_or_default();
            let holds = own.is_empty() || ids.windows(own.len()).any(|ids| ids == own);
            assert!(holds, "the generated ids are read");
            // By an engine that has read nothing before.
            let fresh = complete(&folder(keep.path(), 1), ask(&talk, turn, &opened()));
            let mut request = ask(&talk, turn, &opened());
            request.after.clone_from(&reply.snapshot);
            let continued = complete(&model, request);
            assert_eq!(continued.prefix_reuse, PrefixReuse::Continued, "{family}");
            assert!(continued.usage.tokens_cached > 0 && fresh.usage.tokens_cached == 0);
            assert_eq!(bits(&continued.tokens), bits(&fresh.tokens));
            assert_eq!(continued.message, fresh.message);
            // A fork of the state before the reply as well.
            let mut request = ask(&talk[..talk.len() - 2], 3, &opened());
            request.after.clone_from(&reply.before);
            let retry = complete(&model, request);
            assert_eq!(retry.message, complete(&model, ask(&talk[..talk.len() - 2], 3, &opened())).message);
            reply = continued;
        }
    }
}

#[test]
fn thinking_is_switched_off_by_the_templates_own_switch() {
    let (_keep, model) = thinker("qwen3", TEMPLATE);
    let off = model.with_thinking(&Thinking { enabled: Some(false), ..Thinking::default() }).unwrap();
    assert!(!off.info().thinking.as_ref().unwrap().on);
    let talk = [Message::user("w7"), Message::assistant("w8 w9"), Message::user("w10")];
    let ids = off.vocabulary().unwrap().chat(&talk).unwrap();
    assert_eq!(ids, [1, 7, 3, 2, 8, 9, 3, 1, 10, 3, 2, 4, 5]);
    assert_eq!(off.count(&talk), Some(13));
    assert_eq!(model.vocabulary().unwrap().chat(&talk).unwrap(), ids[..11]);
    let reply = complete(&*off, ask(&talk, 1, &Thinking::default()));
    // After a prompt that closed the thought, what comes is the answer.
    let words = |reply: &Completion| reply.message.ids.as_deref().unwrap_or_default().to_vec();
    let by_argument = complete(&model, ask(&talk, 1, &arguments(r#"{"enable_thinking": false}"#)));
    assert_eq!(words(&reply), words(&by_argument));
    // The next prompt has no empty thought before the earlier answer, and is read from the state before it.
    let mut next = talk.to_vec();
    next.extend([reply.message.clone(), Message::user("w11")]);
    let mut request = ask(&next, 2, &Thinking::default());
    request.after.clone_from(&reply.snapshot);
    let continued = complete(&*off, request);
    assert_eq!(continued.prefix_reuse, PrefixReuse::Continued);
    assert_eq!(continued.message, complete(&*off, ask(&next, 2, &Thinking::default())).message);
}

#[test]
fn an_answer_is_scored_after_a_closed_thought() {
    let (_keep, model) = thinker("qwen3", TEMPLATE);
    let talk = [Message::user("w7 w8")];
    let mut request = ask(&talk, 0, &opened());
    let scored = block_on(model.score(request.clone(), Continuation::Ids(vec![9, 10]))).unwrap();
    request.prompt = Prompt::Ids(vec![1, 7, 8, 3, 2, 4, 5]);
    request.thinking = Thinking::default();
    let plain = block_on(model.score(request, Continuation::Ids(vec![9, 10]))).unwrap();
    assert_eq!(bits(&scored.tokens), bits(&plain.tokens));
}

#[test]
fn an_ordinary_model_may_write_markers() {
    let template = "{% for m in messages %}{{ '<' ~ m.role ~ '> ' ~ m.content ~ ' <end> ' }}{% endfor %}\
        {% if add_generation_prompt %}{{ '<assistant> <think> ' }}{% endif %}{# </think> #}";
    let (_keep, model) = thinker("qwen3", template);
    assert_eq!(model.info().thinking, None);
    let writes = |thinking: &Thinking| {
        let reply = |seed| complete(&model, ask(&[Message::user("w7")], seed, thinking));
        (0..100).map(reply).find(|reply| reply.message.content.contains("think>") || reply.thought.is_some()).unwrap()
    };
    let reply = writes(&Thinking::default());
    assert_eq!((reply.thought, reply.message.thought.clone()), (None, None));
    assert_eq!(reply.message.content, joined(&reply.tokens));
    // The user may say that its replies hold thoughts, and that those of a thinking model hold none.
    let markers = |list: &[&str]| Thinking {
        markers: Some(list.iter().map(ToString::to_string).collect()),
        ..Thinking::default()
    };
    assert!(writes(&markers(&["<think>", "</think>"])).thought.is_some());
    let (_keep, thinking) = thinker("qwen3", TEMPLATE);
    let reply = complete(&thinking, ask(&[Message::user("w7")], 0, &Thinking { ..markers(&[]) }));
    assert_eq!(reply.thought, None);
}

#[test]
fn what_a_template_cannot_be_told_is_an_error() {
    let (_keep, model) = thinker("qwen3", TEMPLATE);
    let refused = |model: &LocalModel, thinking: &Thinking| match model.with_thinking(thinking) {
        Err(ModelError::Unsupported { why, .. }) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("accepted {thinking:?}"),
    };
    assert!(refused(&model, &arguments(r#"{"effort": "low"}"#)).contains("it has: enable_thinking, opened"));
    assert!(refused(&model, &arguments(r#"{"messages": []}"#)).contains("not free"));
    assert!(refused(&model, &arguments(r#"{"bos_token": "x"}"#)).contains("not free"));
    let wrong = Thinking { markers: Some(vec!["<a>".to_owned()]), ..Thinking::default() };
    assert!(refused(&model, &wrong).contains("two different texts"));
    let (_keep, fixed) =
        thinker("qwen3", "{{ '<think>' if add_generation_prompt }}{{ messages[0].content.split('</think>') }}");
    let off = Thinking { enabled: Some(false), ..Thinking::default() };
    assert!(refused(&fixed, &off).contains("cannot switch thinking off"));
    let (_keep, ordinary) = thinker("qwen3", "{{ messages[0].content }}");
    for thinking in [
        Thinking { enabled: Some(true), ..Thinking::default() },
        Thinking { tokens_max: Some(3), ..Thinking::default() },
    ] {
        assert!(refused(&ordinary, &thinking).contains("thoughts"));
    }
    // A switch for thinking that is off changes nothing.
    ordinary.with_thinking(&arguments(r#"{"enable_thinking": false}"#)).unwrap();
    ordinary.with_thinking(&off).unwrap();
}

#[test]
fn stop_texts_end_the_answer_and_not_the_thought() {
    let (_keep, model) = thinker("qwen3", TEMPLATE);
    let talk = [Message::user("w7 w8")];
    let (seed, reply) = thoughtful(&model, &talk);
    let thought = reply.thought.as_ref().unwrap();
    let word = thought.tokens[1].text.trim().to_owned();
    let mut request = ask(&talk, seed, &opened());
    request.sampling.stop = vec![format!(" {word} ")];
    let stopped = complete(&model, request);
    assert_eq!(bits(&stopped.thought.unwrap().tokens), bits(&thought.tokens));
    let last = reply.tokens.last().unwrap().text.trim().to_owned();
    let mut request = ask(&talk, seed, &opened());
    request.sampling.stop = vec![last.clone()];
    let stopped = complete(&model, request);
    assert_eq!(stopped.finish, Finish::Stop);
    assert!(!stopped.message.content.contains(&last) && reply.message.content.starts_with(&stopped.message.content));
}

#[test]
fn two_settings_of_one_model_share_its_engine() {
    let options = EngineOptions { threads: Some(1), ..EngineOptions::default() };
    let (keep, _) = thinker("qwen3", TEMPLATE);
    let model = LocalModel::from_dir(keep.path(), &options).unwrap();
    let off: Arc<dyn LanguageModel> =
        model.with_thinking(&Thinking { enabled: Some(false), ..Thinking::default() }).unwrap();
    assert_eq!(off.info().digest, model.info().digest);
    assert_ne!(off.info(), model.info());
}
