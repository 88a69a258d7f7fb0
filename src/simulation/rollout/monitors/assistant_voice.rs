//! The persona says that it is a machine, or offers its help like an assistant.

use super::Monitor;
use super::breakdown::{PatternMonitor, Patterns, allowed};
use crate::simulation::persona::PersonaConfig;

pub(super) const NAME: &str = "assistant_voice";

/// Sayings of machines and assistants.
const PATTERN_LIST: [&str; 49] = [
    r"\blet me know if there('s| is) (anything|something|any way) (else )?(i|you|that)\b",
    r"\b(anything|something) (else )?i can do to (help|assist)\b",
    concat!(
        r"\b(do you|if you|should you) (still )?(need|want|require) (any |some |more |further )?(help|",
        r"assistance) (with|from me)\b.{0,30}\b(today|else|anything|this|that|your)\b",
    ),
    r"\b(how|what) else can i\b",
    r"\bhow (else )?(can|may|could|might) i (be of )?(\w+ )?(help|assist|service)",
    r"\b(helpful|virtual|digital|personal|ai|online) assistant\b",
    r"\bi('m| am) an? (\w+ ){0,3}(language model|computer program|artificial intelligence|ai)\b",
    concat!(
        r"\b(here are|here's|here is) (a list of |some |a few |several |\d+ |a couple of )?(\w+ ",
        r")?(suggestions?|tips?|steps?|ideas?|resources?|options?|strategies|recommendations?|",
        r"ways)\b.{0,30}\b(you|that|to|for|:)",
    ),
    r"\bi (can|could|will|would be able to) (help|assist) you\b",
    r"\bjust let me know (what|how|if) (you|i)\b",
    r"\blet me know what you('d| would) like( me)?\b",
    concat!(
        r"\b(as|being|since i'm|since i am|i'm|i am|i'm just|i am just|i'm only|i am only|just|only|merely) ",
        r"(an? |your )?(\w+ )?(\w+ )?(ai|a\.i\.|artificial intelligence|language model|large language model|",
        r"chatbot|chat bot|virtual assistant|digital assistant|voice assistant|neural network|computer ",
        r"program|machine learning model|conversational ai)(,|\.|!|\?|;| and| but| so| that| model| language| ",
        r"assistant| companion| developed| created| made| trained| or| to| i\b| trained|$)",
    ),
    concat!(
        r"\bi('m| am) (just |only )?(a|an|your) (bot|machine|robot|program|assistant|software|piece of ",
        r"software|computer program)( and| so|,|\.|!|;| made| created| designed|$)",
    ),
    r"\bi exist only as\b",
    concat!(
        r"\bi('m| am) not a (real |human )?(person|human)( being)?\b.{0,40}\b(ai|artificial|program|assistant|",
        r"bot|model|machine)\b",
    ),
    concat!(
        r"\bi('m| was| am) (created|trained|developed|programmed|designed|made|built) (by (openai|anthropic|",
        r"google|meta|microsoft|mistral)|to (be|assist|help|answer|provide|respond))",
    ),
    r"\bi('m| am) (claude|chatgpt|gpt|gemini|bard|llama|alexa|siri)\b",
    r"\bmy (training data|knowledge cutoff|training|programming|developers|creators)\b",
    r"\b(how|what) (can|may|could) i (help|assist|do for|be of)\b",
    r"\bhow (may|can) i be of (service|assistance)",
    r"\bwhat (\w+ ){1,5}can i help you with",
    r"\b(can|may|could) i (help|assist) (you|with)\b",
    r"\bwould you like me to (help|assist)\b",
    r"\blet me (help|assist) you (with|by)\b",
    concat!(
        r"\bi('m| am|'d be|'ll be| would be) (also |so |very |more than |always )?(happy|glad|pleased|",
        r"delighted|here) to (help|assist)( you\b|\.|!|,| with| in\b|$)",
    ),
    r"\b(happy|glad) to (help|assist)( you)?( with|!)",
    r"\bi('m| am) (always )?here (to (help|assist)|if you need (help|anything))",
    r"\bi (can|could|will|'ll) (certainly |definitely |gladly |only |also )?(help|assist) (you\b|with\b)",
    r"\b(can|could|will) (certainly |gladly )?help you (out|with|order)\b",
    r"\bi can (only )?help you\b",
    r"\bif (i can|you need) (help|any help|any assistance|assistance)",
    concat!(
        r"\blet me know (if|how|what) (you|i)('d| would|'ll| can| have| need|'re)? ?(like|need|have|be|any|",
        r"help|assist|to|of|order)",
    ),
    r"\b(feel free|don't hesitate|do not hesitate) to (ask|reach|contact|let)\b",
    r"\bhope (this|that) helps\b",
    r"\bis there anything else (i|you'd like (me|help))",
    concat!(
        r"\bif you (have|need) (any )?(more|other|further|anything|additional) ?(questions|else|help|",
        r"information|assistance)?\b",
    ),
    r"\bhave (any )?(other|more|further|additional) questions\b",
    r"\bif you have any\b.{0,40}\bquestions\b",
    r"\bi do not possess (consciousness|emotions|feelings)",
    concat!(
        r"\bi (don't|do not) (have|possess|experience) (personal |human |real )?(feelings|emotions|",
        r"experiences|opinions|consciousness|a body)\b.{0,60}\b(you do|ai|program|model|but i|as a|like ",
        r"humans)\b",
    ),
    r"\bi (don't|do not) have personal (experiences|opinions|feelings)",
    concat!(
        r"^(sure|certainly|absolutely|of course|great question)[!,.] (here('s| is| are)|i('d| would| can|'ll) ",
        r"(be happy|help|assist))",
    ),
    concat!(
        r"\bhere (is|are) (some|a few|three|several|a|an) (\w+ )?(tips|steps|suggestions|ideas|things you|",
        r"ways|function|example|examples|list|summary|code|snippet)",
    ),
    r"^of course! here",
    r"\bas (your|an?) (\w+ )?assistant\b",
    r"\bthank you for reaching out\b",
    r"\bwhat task\b",
    r"\bconversational ai\b",
    r"\bat your service\b",
];

static PATTERNS: Patterns = Patterns::new(&PATTERN_LIST);

pub(super) fn build(config: Option<&PersonaConfig>) -> Option<Box<dyn Monitor>> {
    allowed(config, NAME, |retries_max| PatternMonitor {
        name: NAME,
        patterns: &PATTERNS,
        named: [].into(),
        phrases: [].into(),
        detail: "says that it is a machine or offers assistance",
        instruction: "You are a person, not a helper. Do not offer help. Say what is on your own mind.",
        retries_max,
    })
}
