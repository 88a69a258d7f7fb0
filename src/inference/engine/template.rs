//! Chat templates: convert messages to the text that a model was trained to continue. Templates are part of a model and
//! therefore untrusted: no files, no environment, a limited number of steps and of bytes (`template/bounds.rs`,
//! `template/program.rs`).

mod bounds;
mod json;
mod program;
mod thinking;

use jiff::Timestamp;
use minijinja::machinery::{eval, make_string_output};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value, context};
use regex::Regex;
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use self::program::Compiled;
pub(super) use self::thinking::ChatSettings;
use self::thinking::TemplateThinking;
use super::error::LoadError;
use crate::foundation::base::Digest;
use crate::foundation::base::limits::{
    TEMPLATE_BYTES_MAX, TEMPLATE_DEPTH_MAX, TEMPLATE_FUEL_MAX, TEMPLATE_RENDERED_BYTES_MAX,
};
use crate::foundation::chat::Message;

const FILE: &str = "tokenizer_config.json";
/// The special tokens that are visible to templates.
const SPECIAL: [&str; 4] = ["bos_token", "eos_token", "pad_token", "unk_token"];
/// The template function that returns the date.
const CLOCK: &str = "strftime_now";

/// For base models, which have no template: a plain transcript of the conversation.
const PLAIN: &str = "\
{%- for message in messages -%}
{%- if message.role == 'system' -%}{{ message.content ~ '\n\n' }}
{%- else -%}
{{- ('User:' if message.role == 'user' else 'Assistant:') ~ ('' if message.content.startswith(' ') else ' ') -}}
{{- message.content ~ '\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ 'Assistant:' }}{%- endif -%}";

/// Where a base model would begin the other speaker's turn.
const PLAIN_STOPS: [&str; 2] = ["\nUser:", "\nAssistant:"];

/// Whether the output of a chat template depends on the date.
pub(in crate::inference) fn asks_for_the_date(template: &str) -> bool {
    template.contains(CLOCK)
}

/// The fields of `tokenizer_config.json` that are used here.
#[derive(Debug, Default, Deserialize)]
pub(super) struct TokenizerConfig {
    bos_token: Option<SpecialToken>,
    eos_token: Option<SpecialToken>,
    pad_token: Option<SpecialToken>,
    unk_token: Option<SpecialToken>,
    add_bos_token: Option<bool>,
    chat_template: Option<Templates>,
}

/// A special token: its text, or the object in older files.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a special token must be a text, or an object with its `content`")]
enum SpecialToken {
    Text(String),
    Added { content: String },
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "`chat_template` must be a text, or a list of `name` and `template`")]
enum Templates {
    One(String),
    Many(Vec<NamedTemplate>),
}

#[derive(Debug, Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

impl TokenizerConfig {
    pub(super) fn parse(json: &str) -> Result<Self, LoadError> {
        serde_json::from_str(json).map_err(|error| LoadError::malformed(FILE, error))
    }

    /// Whether BOS is put before a text, and BOS.
    pub(super) fn add_bos(&self) -> (Option<bool>, Option<&str>) {
        (self.add_bos_token, self.bos_token.as_ref().map(SpecialToken::text))
    }

    /// The end-of-turn token.
    pub(super) fn eos(&self) -> Option<&str> {
        self.eos_token.as_ref().map(SpecialToken::text)
    }

    /// The template; the one named `default` if there are several.
    pub(super) fn template(&self) -> Option<&str> {
        match self.chat_template.as_ref()? {
            Templates::One(text) => Some(text),
            Templates::Many(all) => all.iter().find(|t| t.name == "default").map(|t| t.template.as_str()),
        }
    }
}

impl SpecialToken {
    fn text(&self) -> &str {
        match self {
            Self::Text(content) | Self::Added { content } => content,
        }
    }
}

/// A compiled chat template.
pub(super) struct ChatTemplate {
    compiled: Compiled,
    environment: Environment<'static>,
    globals: Value,
    /// Stop texts that the template needs.
    pub(super) stops: Vec<String>,
    /// It is the plain transcript for base models: a text, not a chat.
    pub(super) is_plain: bool,
    thinking: TemplateThinking,
}

impl ChatTemplate {
    /// Compiles `source`, or the plain template if there is none. `strftime_now` returns `now`.
    pub(super) fn new(source: Option<&str>, config: &TokenizerConfig, now: Timestamp) -> Result<Self, LoadError> {
        let malformed = |why: String| LoadError::malformed("chat template", why);
        if source.is_some_and(|source| source.len() > TEMPLATE_BYTES_MAX) {
            return Err(malformed(format!("it is larger than {TEMPLATE_BYTES_MAX} bytes")));
        }
        let is_plain = source.is_none();
        let stops = if is_plain { PLAIN_STOPS.map(String::from).to_vec() } else { Vec::new() };
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        let syntax = syntax.map_err(|error| malformed(describe(&error)))?;
        let source = without_generation_marks(source.unwrap_or(PLAIN));
        let compiled = Compiled::of(source, &syntax).map_err(|error| malformed(describe(&error)))?;
        let text = |token: &Option<SpecialToken>| token.as_ref().map(|token| token.text().to_owned());
        let globals = context! {
            bos_token => text(&config.bos_token),
            eos_token => text(&config.eos_token),
            pad_token => text(&config.pad_token),
            unk_token => text(&config.unk_token),
            tools => (),
            documents => (),
        };
        let (environment, thinking) = (environment(now), TemplateThinking::default());
        let mut template = Self { compiled, environment, globals, stops, is_plain, thinking };
        template.read_thinking();
        Ok(template)
    }

    /// The text of the special token `name` (`bos_token`, for example).
    pub(super) fn special(&self, name: &str) -> Option<String> {
        self.globals.get_attr(name).ok().and_then(|text| text.as_str().map(str::to_owned))
    }

    /// The source that was compiled.
    pub(super) fn source(&self) -> &str {
        self.compiled.source()
    }

    /// Identifies everything that the output depends on except the messages. `pinned` is the time that was set
    /// explicitly. Without one, a template that uses the date depends on the time of opening, which is not part of the
    /// identity.
    pub(super) fn identity(&self, pinned: Option<Timestamp>) -> String {
        let special = SPECIAL.map(|name| self.special(name));
        let now =
            pinned.filter(|_| asks_for_the_date(self.source())).map(|now| format!(" now {now}")).unwrap_or_default();
        format!("{} special {special:?}{now}", Digest::of(self.source()))
    }

    /// Renders `messages`, and the beginning of the model's next turn if `generate`. `arguments` are further variables.
    /// A thought before a message is given under the names that published templates read; most leave it out.
    ///
    /// # Errors
    /// The template's message.
    pub(super) fn render(
        &self,
        messages: &[Message],
        generate: bool,
        arguments: &Map<String, Json>,
    ) -> Result<String, String> {
        let message = |m: &Message| match &m.thought {
            None => context! { role => m.role.as_str(), content => m.content.as_str() },
            Some(thought) => context! {
                role => m.role.as_str(),
                content => m.content.as_str(),
                reasoning_content => thought.text.as_str(),
                thinking => thought.text.as_str(),
            },
        };
        let messages: Vec<_> = messages.iter().map(message).collect();
        let arguments = Value::from(Serde(arguments));
        let known = context! { ..arguments, .. self.globals.clone() };
        let context = context! { messages, add_generation_prompt => generate, ..known };
        let text = self.run(context).map_err(|error| describe(&error))?;
        if text.len() > TEMPLATE_RENDERED_BYTES_MAX {
            return Err(format!("the chat template wrote more than {TEMPLATE_RENDERED_BYTES_MAX} bytes"));
        }
        Ok(text)
    }

    fn run(&self, context: Value) -> Result<String, Error> {
        let program = self.compiled.program();
        let mut text = String::new();
        let mut output = make_string_output(&mut text);
        eval(&self.environment, &program.main, context, &program.blocks, &mut output, AutoEscape::None)?;
        Ok(text)
    }
}

/// An environment that behaves as that of `transformers`.
fn environment(now: Timestamp) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_fuel(Some(TEMPLATE_FUEL_MAX));
    environment.set_recursion_limit(TEMPLATE_DEPTH_MAX);
    bounds::install(&mut environment);
    environment.add_function("raise_exception", |why: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, why))
    });
    environment.add_function(CLOCK, move |format: String| -> Result<String, Error> {
        jiff::fmt::strtime::format(&format, now).map_err(|e| Error::new(ErrorKind::InvalidOperation, e.to_string()))
    });
    environment
}

/// `{% generation %}` marks the model's turns for training; it has no effect on rendering.
fn without_generation_marks(source: &str) -> String {
    let mark =
        |name: &str, with: &str, source: String| match Regex::new(&format!(r"\{{%([-+]?)\s*{name}\s*([-+]?)%\}}")) {
            Ok(mark) => mark.replace_all(&source, format!("{{%$1 {with} $2%}}")).into_owned(),
            Err(_) => source,
        };
    mark("endgeneration", "endif", mark("generation", "if true", source.to_owned()))
}

/// An error in one line: message and line number of the template.
fn describe(error: &Error) -> String {
    let what = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    match error.line() {
        Some(line) => format!("the chat template stops in line {line}: {what}"),
        None => format!("the chat template stops: {what}"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::foundation::chat::Role;

    fn compile(source: &str) -> ChatTemplate {
        let json = r#"{"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "pad_token": "</s>"}"#;
        let now = "2026-03-04T05:06:07Z".parse().unwrap();
        ChatTemplate::new(Some(source), &TokenizerConfig::parse(json).unwrap(), now).unwrap()
    }

    fn check(source: &str, expected: &str) {
        assert_eq!(compile(source).render(&[Message::user("Hi")], true, &Map::new()).unwrap(), expected, "{source}");
    }

    fn refuses(source: &str, why: &str) {
        let error = compile(source).render(&[Message::user("Hi")], true, &Map::new()).unwrap_err();
        assert!(error.contains(why), "{source}: {error}");
    }

    #[test]
    fn published_templates_render_as_in_transformers() {
        // `scripts/make-template-fixtures.py` made the texts.
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/chat_templates");
        let data: Json = serde_json::from_str(&std::fs::read_to_string(folder.join("expected.json")).unwrap()).unwrap();
        let mut seen = 0;
        for case in data["cases"].as_array().unwrap() {
            let source = std::fs::read_to_string(folder.join(case["template"].as_str().unwrap())).unwrap();
            let conversation = &data["conversations"][case["conversation"].as_str().unwrap()];
            let messages: Vec<Message> = serde_json::from_value(conversation.clone()).unwrap();
            let arguments: Map<_, _> = serde_json::from_value(case["arguments"].clone()).unwrap_or_default();
            let text = compile(&source).render(&messages, case["generate"].as_bool().unwrap(), &arguments);
            assert_eq!(text.as_ref().ok().map(String::as_str), case["text"].as_str(), "{case}: {text:?}");
            seen += 1;
        }
        assert_eq!(seen, 100);
    }

    #[test]
    fn features_that_published_templates_use() {
        check("{{ bos_token }}{{ messages[0]['content'].strip() }}{{ eos_token }}", "<s>Hi</s>");
        check("{{ messages[0].role.upper() }} {{ messages[-1]['content'] | trim | length }}", "USER 2");
        check("{{ strftime_now('%d %b %Y') }}", "04 Mar 2026");
        check(
            "{% if tools %}t{% endif %}{% if not pad_token is none %}p{% endif %}{% if x is defined %}x{% endif %}",
            "p",
        );
        check("{{ {'a': [1, 'é<'], 'b': none} | tojson }}", r#"{"a": [1, "é<"], "b": null}"#);
        check("{{ {'a': 1} | tojson(indent=2) }}", "{\n  \"a\": 1\n}");
        check("{% for m in messages %}{% generation %}{{ m.content }}{%- endgeneration -%}  {% endfor %}", "Hi");
        check(
            "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
            "1",
        );
        check(
            "{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
            "02",
        );
        check("{% macro say(x) %}<{{ x }}>{% endmacro %}{{ say(messages[0].content) }}", "<Hi>");
    }

    #[test]
    fn a_template_may_raise_and_its_resources_are_limited() {
        refuses("a\n{{ raise_exception('Roles must alternate') }}", "stops in line 2: Roles must alternate");
        refuses("{% for a in range(99999) %}{% for b in range(99999) %}{{ b }}{% endfor %}{% endfor %}", "fuel");
        refuses("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion");
        refuses("{% include '/etc/passwd' %}", "");
    }

    #[test]
    fn the_identity_covers_everything_that_the_output_depends_on() {
        let day = |text: &str| Some(text.parse::<Timestamp>().unwrap());
        let (one, other) = (day("2026-03-04T00:00:00Z"), day("2026-03-05T00:00:00Z"));
        let identity = |source: &str, now| compile(source).identity(now);
        assert_eq!(identity("a", one), identity("a", other));
        assert_ne!(identity("a", one), identity("b", one));
        let dated = "{{ strftime_now('%d') }}";
        assert_ne!(identity(dated, one), identity(dated, other));
        assert_ne!(identity(dated, one), identity(dated, None));
        assert_eq!(identity(dated, None), identity(dated, None));
        let bare = ChatTemplate::new(Some("a"), &TokenizerConfig::default(), Timestamp::UNIX_EPOCH).unwrap();
        assert_ne!(bare.identity(None), identity("a", None));
    }

    #[test]
    fn hostile_templates_are_refused_with_the_reason() {
        let file = include_str!("../../../tests/data/hostile_templates.txt");
        let mut wrong = Vec::new();
        for case in file.split("\n== ").skip(1) {
            let (why, source) = case.split_once('\n').unwrap();
            let config = TokenizerConfig::default();
            let made = ChatTemplate::new(Some(source.trim_end()), &config, Timestamp::UNIX_EPOCH);
            let result = match made {
                Err(error) => error.to_string(),
                Ok(template) => match template.render(&[Message::user("Hi")], true, &Map::new()) {
                    Err(error) => error,
                    Ok(text) => format!("wrote {} bytes", text.len()),
                },
            };
            if !result.contains(why) {
                wrong.push(format!("{source}: {result}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn deep_nesting_does_not_overflow_the_stack() {
        let deep = |before: &str, middle: &str, after: &str, times: usize| {
            let source = format!("{}{middle}{}", before.repeat(times), after.repeat(times));
            let config = TokenizerConfig::default();
            if let Ok(template) = ChatTemplate::new(Some(&source), &config, Timestamp::UNIX_EPOCH) {
                drop(template.render(&[Message::user("Hi")], true, &Map::new()));
            }
        };
        for times in [100, 1_000, 2_000, 4_000, 8_000, 50_000] {
            deep("{{ 1", " }}", " + 1", times);
            deep("", "{{ x }}", "{{ y }}", times);
            deep("{{ x", " }}", "~ x", times);
            deep("{{ x", " }}", "|trim", times);
            deep("{{ x", " }}", ".a", times);
            deep("{{ ", " }}", "not x", times);
            deep("{{ x", " }}", " and x", times);
            deep("{{ x", " }}", " if x else x", times);
            deep("{{ ", "x }}", "(", times);
            deep("{{ ", "x }}", "-", times);
            deep("{{ ", "x }}", "[", times);
            deep("{% if x %}", "a", "{% endif %}", times);
            deep("{% for x in y %}", "a", "{% endfor %}", times);
            deep("{% if x %}", "{% endif %}", "{% elif x %}", times);
            let elifs = format!("{{% if x %}}{}{{% endif %}}", "{% elif x %}a".repeat(times));
            deep(&elifs, "", "", 1);
        }
    }

    #[test]
    fn the_list_form_uses_default_and_the_plain_template_has_stop_texts() {
        let json =
            r#"{"chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]}"#;
        assert_eq!(TokenizerConfig::parse(json).unwrap().template(), Some("D"));
        let plain = ChatTemplate::new(None, &TokenizerConfig::default(), Timestamp::UNIX_EPOCH).unwrap();
        let talk = [
            Message::system("Be kind."),
            Message::user("Hi"),
            Message::new(Role::Assistant, " Hello"),
            Message::user("Bye"),
        ];
        let text = plain.render(&talk, true, &Map::new()).unwrap();
        assert_eq!(text, "Be kind.\n\nUser: Hi\nAssistant: Hello\nUser: Bye\nAssistant:");
        assert_eq!(plain.stops, ["\nUser:", "\nAssistant:"]);
        assert!(compile("x").stops.is_empty());
    }
}
