//! What a chat template says about thinking: where thoughts stand in replies, the argument that switches them on, and what
//! else it can be told.

use std::collections::BTreeSet;
use std::sync::Arc;

use minijinja::Environment;
use serde_json::{Map, Value};

use super::{ChatTemplate, SPECIAL};
use crate::foundation::chat::{Message, Thinking, ThinkingInfo};
use crate::inference::thought::{Start, ThoughtFormat};

/// The arguments that switch thinking on and off in published templates.
const SWITCHES: [&str; 2] = ["enable_thinking", "thinking"];
/// What a template is told by Loom itself, and functions.
const OWN: [&str; 12] = [
    "messages",
    "add_generation_prompt",
    "continue_final_message",
    "tools",
    "documents",
    "strftime_now",
    "raise_exception",
    "namespace",
    "range",
    "dict",
    "debug",
    "loop",
];

/// What the source of a template says about thinking.
#[derive(Default)]
pub(super) struct TemplateThinking {
    /// Where thoughts stand; `None` for a template without them.
    format: Option<Arc<ThoughtFormat>>,
    /// The names that the template reads and does not set itself.
    names: BTreeSet<String>,
    switch: Option<&'static str>,
    /// Whether thinking is on where the switch is not set.
    default_on: bool,
}

/// Settings of one request, checked against the template.
#[derive(Clone, Default)]
pub(in crate::inference::engine) struct ChatSettings {
    /// Arguments of the template.
    pub(in crate::inference::engine) arguments: Map<String, Value>,
    /// How replies are divided; `None`: they are not.
    pub(in crate::inference::engine) format: Option<Arc<ThoughtFormat>>,
    /// Whether thinking is on.
    pub(in crate::inference::engine) on: bool,
    /// Most tokens of a thought.
    pub(in crate::inference::engine) tokens_max: Option<usize>,
}

impl ChatSettings {
    /// Where a reply after `opening`, the beginning of the model's turn, begins; `None` if replies are not divided.
    pub(in crate::inference::engine) fn start(&self, opening: &str) -> Option<(&Arc<ThoughtFormat>, Start)> {
        self.format.as_ref().map(|format| (format, format.start(opening)))
    }
}

impl ChatTemplate {
    /// Reads what the template's source says about thinking; `source` is the model's own or the user's, not Loom's.
    pub(super) fn read_thinking(&mut self) {
        if self.is_plain {
            return;
        }
        let plain = Environment::new();
        let names = plain.template_from_str(self.source()).map(|template| template.undeclared_variables(false));
        let names: BTreeSet<String> = names.unwrap_or_default().into_iter().collect();
        let format = ThoughtFormat::of_template(self.source()).map(Arc::new);
        let switch = SWITCHES.into_iter().find(|name| format.is_some() && names.contains(*name));
        self.thinking = TemplateThinking { format, names, switch, default_on: true };
        self.thinking.default_on = switch.is_none_or(|switch| self.is_on_by_default(switch));
    }

    /// Whether the template writes the same without the switch as with the switch on.
    fn is_on_by_default(&self, switch: &str) -> bool {
        let question = [Message::user("a")];
        let rendered = |value: Option<bool>| {
            let arguments = value.map(|value| (switch.to_owned(), Value::from(value))).into_iter().collect();
            self.render(&question, true, &arguments).ok()
        };
        let (default, on, off) = (rendered(None), rendered(Some(true)), rendered(Some(false)));
        default == on || default != off
    }

    /// The settings of a request.
    ///
    /// # Errors
    /// What the template cannot be told.
    pub(in crate::inference::engine) fn settings(&self, thinking: &Thinking) -> Result<ChatSettings, String> {
        let TemplateThinking { format, names, switch, default_on } = &self.thinking;
        let mut arguments = thinking.template_arguments.clone();
        for name in arguments.keys() {
            if OWN.contains(&name.as_str()) || SPECIAL.contains(&name.as_str()) {
                return Err(format!("the argument `{name}` of its chat template is not free to be set"));
            }
            // A switch that would change nothing may be given to every model.
            let is_off = SWITCHES.contains(&name.as_str()) && arguments.get(name) == Some(&Value::Bool(false));
            let is_taken = names.contains(name) || (is_off && format.is_none());
            if !is_taken {
                let known: Vec<_> = names.iter().map(String::as_str).filter(|name| !OWN.contains(name)).collect();
                let known: Vec<_> = known.into_iter().filter(|name| !SPECIAL.contains(name)).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return Err(format!("its chat template has no argument `{name}`; it has: {known}"));
            }
        }
        match (thinking.enabled, switch) {
            (Some(value), Some(switch)) => drop(arguments.insert((*switch).to_owned(), Value::from(value))),
            (Some(false), None) if format.is_some() => {
                return Err("its chat template cannot switch thinking off; leave `enabled` out, or limit `tokens_max`"
                    .to_owned());
            }
            (Some(true), None) if format.is_none() && thinking.markers.as_deref().is_none_or(<[_]>::is_empty) => {
                return Err("its chat template has no thoughts, so thinking cannot be switched on".to_owned());
            }
            _ => {}
        }
        let set = switch.and_then(|switch| arguments.get(switch)).and_then(Value::as_bool);
        let on = set.unwrap_or(*default_on);
        let format = match &thinking.markers {
            Some(markers) => ThoughtFormat::of_markers(markers)?.map(Arc::new),
            None => format.clone(),
        };
        let format = format.filter(|format| on || format.holds_when_off());
        if format.is_none() && thinking.tokens_max.is_some() && self.thinking.format.is_none() {
            return Err("its replies hold no thoughts, so a budget for them has no effect; leave it out".to_owned());
        }
        Ok(ChatSettings { arguments, on: on && format.is_some(), format, tokens_max: thinking.tokens_max })
    }

    /// How the model thinks under `settings`, for its description; `None` for a model that does not think.
    pub(in crate::inference::engine) fn thinking_info(&self, settings: &ChatSettings) -> Option<ThinkingInfo> {
        let format = settings.format.as_ref().or(self.thinking.format.as_ref())?;
        let switch = self.thinking.switch.map(str::to_owned);
        Some(ThinkingInfo::new(format.open().to_owned(), format.close().to_owned(), switch, settings.on))
    }
}
