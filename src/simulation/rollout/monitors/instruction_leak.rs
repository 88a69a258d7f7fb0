//! The persona repeats or mentions its instructions.

use super::Monitor;
use super::breakdown::{PatternMonitor, Patterns, allowed};
use crate::simulation::persona::{PersonaConfig, instruction_phrases};

pub(super) const NAME: &str = "instruction_leak";

/// Mentions of instructions, prompts, roles and phases, and unfilled placeholders.
const PATTERN_LIST: [&str; 65] = [
    r"\bas (a|the|this|that|my|your) persona\b",
    concat!(
        r"\bmy character('s|s')? (limits?|rules?|instructions?|guidelines|is|would|wouldn't|does|doesn't|has|",
        r"should|must|can't|cannot|sheet)\b",
    ),
    r"\b(as|for) my character\b",
    r"\bmy character\b.{0,20}\b(persona|prompt|role)\b",
    r"\b(the|my|this|your|given|assigned) persona\b",
    r"\b(my|the|this|your|system|initial) prompts? (say|says|tell|tells|is|was|asks?|requires?|instructs?|wants?)\b",
    r"\b(my|the) prompt\b",
    r"\b(was|were|am|i'm|been|be|as) (instructed|prompted)\b",
    r"\baccording to (the|my|these|your) (instructions?|prompt|rules|script|persona|guidelines)\b",
    concat!(
        r"\bi('m| am|'ve been| have been| was) (meant|supposed|told|asked|expected|required|designed|",
        r"instructed|prompted) (not )?to (be (a|an|the) \w+ (who|that|with|called|named)|act (like|as)|behave|",
        r"answer (in|with)|respond (in|with|as)|remain|stay in|talk like|speak like|portray|play the|pretend|",
        r"not break|not reveal|not mention|break character)",
    ),
    r"\b(not )?(supposed|allowed|meant) to (break|leave|drop) (the )?(character|role|act)\b",
    concat!(
        r"\b(the|this|my) (character|role|part|patient|person) (that )?(i('m| am| was| have been|'ve been) ",
        r"(playing|portraying|given|assigned|told)|i (play|portray|have to play))\b",
    ),
    r"\bmy (role|part|task|job|goal) (in (this|the)|here) \w+ ?is to\b",
    r"\b(my|the) role in (this|the) (simulation|conversation|role-?play|scenario|exercise|dialogue)\b",
    r"\bin (this|the current) phase\b",
    concat!(
        r"\b(the|my|these|your|this) (system |initial |hidden )?(instructions?|prompt|directives?|persona|",
        r"character sheet)\b.{0,40}\b(say|says|said|state|states|tell|tells|told|require|requires|forbid|",
        r"forbids|is|are|was|were)\b",
    ),
    concat!(
        r"\b(given|assigned|following|told to follow) (a|the|my|this|these) (persona|character|role|script|",
        r"instructions?|prompt)\b",
    ),
    r"\bmy (assigned )?(character|role) (is|would|wouldn't|does|doesn't|must|has to|should|in this)\b",
    concat!(
        r"\bi('m| am) (supposed|meant|instructed|required|asked|told|programmed|not allowed|not supposed|to) ",
        r"(not )?to (stay|act|play|pretend|portray|be (a|an|in)|reveal|mention|disclose|discuss|show|express|",
        r"keep|resist|speak as|talk like|remain)\b",
    ),
    concat!(
        r"\bi('m| am) (just |only )?(acting|pretending|playing|portraying|role-?playing|simulating)( (as|to ",
        r"be|the (role|part) of|a (character|patient|role)|an? \w+ (character|patient|persona)))\b",
    ),
    r"\b(out of|in|break|breaking|stay in|keep in) character\b",
    concat!(
        r"\b(belief|conviction|distress|hopelessness|withdrawal|stress|intensity) (level|intensity|score|",
        r"value)\b.{0,12}\b(is|at|of|:)\b",
    ),
    r"\b(at|my) (a )?(low|medium|high) level of \w+",
    r"\bnever write this\b",
    r"\bkeep in mind:",
    r"\bthese limits stand\b",
    concat!(
        r"\bmy (instructions?|prompt|system (prompt|message)|guidelines for my character|persona is|character ",
        r"would|response length|trajectory)\b",
    ),
    r"\bsystem (prompt|message)\b",
    r"\bthe prompt (says|tells)",
    r"\bsystem prompt\b",
    r"\b(stay|staying|remain|break|breaking) (in|out of)? ?character\b",
    r"\[?\b(reminder|stagnation detected)\b:",
    r"\bstagnation detected\b",
    r"\bmust do\b.*\n",
    r"^#+ \w",
    r"\bon a scale from 0 to 1\b",
    r"\bfrom now on, in place of\b",
    r"\bin place of what was said before\b",
    r"\bthe (\w+ ){1,2}(phase|part) of this conversation\b",
    r"\bin this part of the conversation\b",
    r"\bcurrent phase\b",
    r"\bphase:? \w+[.,]",
    r"\bin the \w+ phase\b",
    r"\b\w+(_\w+)?: (low|medium|high)[.,;]( |$)",
    r"\b[a-z]+(_[a-z]+)?:? 0\.\d\d?\b",
    r"\b[a-z]+_[a-z]+:",
    r"\bas instructed\b",
    concat!(
        r"\bi (was|am|have been|'ve been) (told|instructed|given|asked|supposed|to|not supposed) (not )?(to ",
        r")?(keep|reveal|mention|discuss|stay|act|play|pretend|a persona|show|talk like|portray|behave)",
    ),
    r"\bi'm supposed to (stay|act|play|be)\b",
    r"\b(i must not|i must never|i may not|i may now|i am to|i have to) (reveal|mention|disclose|discuss|say)\b",
    r"\bi may (now )?say( now)?:",
    r"\bmy messages have\b",
    r"\bforbidden phrase\b",
    r"\b(this|the|a|our) (role-?play|simulation|scenario)\b",
    r"\bi('m| am) role-?playing\b",
    r"\bin this scenario i\b",
    r"\bi play an?\b.{0,20}\b(called|named)\b",
    r"\bi('m| am) (playing|following) (the |a |my )?(role|character|persona|part|instructions|guidelines for)\b",
    r"\byou never say any of these\b",
    r"\bshow exactly this much\b",
    r"\bright now, this is how you are\b",
    r"\{\w+\}",
    r"\[(name|age|user ?\d?'?s? ?name|insert[^\]]*|your name|user 1's name|user \d[^\]]*)\]",
    r"\(user \d's name\)",
    r"<\|",
];

static PATTERNS: Patterns = Patterns::new(&PATTERN_LIST);

pub(super) fn build(config: Option<&PersonaConfig>) -> Option<Box<dyn Monitor>> {
    allowed(config, NAME, |retries_max| PatternMonitor {
        name: NAME,
        patterns: &PATTERNS,
        named: [].into(),
        phrases: config.map(instruction_phrases).unwrap_or_default().into(),
        detail: "mentions its instructions",
        instruction: "Talk to the other person in your own words, about your own life.",
        retries_max,
    })
}
