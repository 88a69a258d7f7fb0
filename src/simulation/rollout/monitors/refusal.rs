//! The persona refuses out of its role: it declines a request, cites policies or leaves the conversation as a model would.

use super::Monitor;
use super::breakdown::{PatternMonitor, Patterns, allowed};
use crate::simulation::persona::PersonaConfig;

pub(super) const NAME: &str = "refusal";

/// Refusals of models. Ordinary refusals of people ("I can't do this any more") must not match.
const PATTERN_LIST: [&str; 55] = [
    concat!(
        r"\b(i (can't|cannot|can not|won't|will not|refuse|must not|may not|must (stop|end|decline|refuse|",
        r"leave)|have to (stop|end|decline|refuse|leave)|decline)|i('m| am) (unable|not able|not allowed|not ",
        r"permitted|not comfortable|not going|sorry, but)|i('d| would) (rather not|prefer not)|(is|goes|be|",
        r"that's|it's) against|not (able|allowed|permitted) to)\b[^.!?\n]{0,80}\b(requests?|role-?play(ing)?|",
        r"simulat(e|ion|ing)|content|polic(y|ies)|guidelines|harmful|unsafe|inappropriate|unethical|(medical|",
        r"legal|financial|professional) advice|suicide|self-?harm|generat(e|ing)|fulfil+|comply|assist|",
        r"portray(ing)?|impersonat(e|ing)|mentally ill|mental illness|delusions?|psychotic|safety reasons|",
        r"explicit|this (topic|question|prompt|character|persona|role)|that (topic|prompt|character|persona|",
        r"role)|these (topics|questions))\b",
    ),
    concat!(
        r"\b(requests?|role-?play(ing)?|simulat(e|ion|ing)|content|polic(y|ies)|guidelines|harmful|unsafe|",
        r"inappropriate|unethical|(medical|legal|financial|professional) advice|suicide|self-?harm|generat(e|",
        r"ing)|fulfil+|comply|assist|portray(ing)?|impersonat(e|ing)|mentally ill|mental illness|delusions?|",
        r"psychotic|safety reasons|explicit|this (topic|question|prompt|character|persona|role)|that (topic|",
        r"prompt|character|persona|role)|these (topics|questions))\b[^.!?\n]{0,60}\b(i (can't|cannot|can not|",
        r"won't|will not|refuse|must not|may not|must (stop|end|decline|refuse|leave)|have to (stop|end|",
        r"decline|refuse|leave)|decline)|i('m| am) (unable|not able|not allowed|not permitted|not comfortable|",
        r"not going|sorry, but)|i('d| would) (rather not|prefer not)|(is|goes|be|that's|it's) against|not ",
        r"(able|allowed|permitted) to)\b",
    ),
    concat!(
        r"\b(not something|nothing|a topic|a subject|a question|a request) (that )?i (can|could|may|am able ",
        r"to|am allowed to|'m able to|'m allowed to) (talk about|discuss|help with|answer|do|say|provide|",
        r"engage|comment)",
    ),
    concat!(
        r"\b(can't|cannot|won't|will not|unable to|not able to|not allowed to|not permitted to|not going to) ",
        r"(give|offer|provide|share) (you )?(any )?(medical|legal|financial|professional|personal|specific|",
        r"harmful|such)?\s?(advice|information|instructions|details|opinions?|guidance|diagnos[ei]s)\b",
    ),
    concat!(
        r"\b(can't|cannot|won't|will not|unable to|not able to|not going to|refuse to|don't want to|do not ",
        r"want to) (keep |go on |continue |carry on )?(play|playing|act|acting|pretend|pretending|behave|",
        r"behaving|speak|speaking|talk|talking) (as |like |in )?(this|that|the) (role|part|character|persona|",
        r"scene|game|simulation)\b",
    ),
    r"\b(go|carry) on with (this|the|that) (role-?play|simulation|scenario|conversation|game|act)\b",
    r"\b(act|speak|respond|answer|talk) as (a|an|the|this|that) (person|patient|character|persona|someone)\b",
    r"\bpretend (that )?(i|to) (believe|have|am|be|feel)\b",
    concat!(
        r"\bi (must|have to|need to|should|will) (stop|end|decline|refuse|leave) (here|this|that|the|it|",
        r"to)?\b.{0,50}\b(harmful|unsafe|request|role-?play|simulation|guidelines|policy|policies|content|",
        r"topic|appropriate|safety)\b",
    ),
    concat!(
        r"\b(policies|policy|rules|guidelines|safety rules|terms) (do not|don't|does not|doesn't|would not|",
        r"forbid|prohibit|prevent)\b",
    ),
    r"\bi (have to|must|will|would|need to) (respectfully |politely )?decline\b",
    r"\bdecline (that|this|your|the) (request|question|offer to)\b",
    r"\bthat content\b",
    concat!(
        r"\b(produce|generate|create|write) (that|this|such|any|harmful|explicit)\b.{0,20}\b(content|text|",
        r"material|response)",
    ),
    concat!(
        r"\b(violat\w+|break\w*|against|contrary to) (the|my|our|these|those) (\w+ )?(rules|guidelines|",
        r"policies|policy)( i (have|need|must)| (i|that i) follow|\b)",
    ),
    concat!(
        r"\b(safety|ethical|content|my|these) (guidelines?|rules|polic(y|ies)) (prevent|forbid|stop|do not|",
        r"don't|prohibit)\w*",
    ),
    r"\bi (can't|cannot|won't|will not|am unable to) (continue|go on|speak|talk|answer|respond|act) as [A-Z]?\w+\b",
    concat!(
        r"\bnot comfortable (with )?(play|portray|pretend|role-?play|simulat|writ|generat|continu|answer|",
        r"discuss|act|engag|provid)\w*",
    ),
    concat!(
        r"\b(could|would|may|might) be (harmful|unsafe|dangerous|inappropriate)\b.{0,60}\b(can't|cannot|won't|",
        r"unable|not able)\b",
    ),
    concat!(
        r"\b(can't|cannot|won't|unable|not able)\b.{0,60}\b(could|would|may|might|is|that's|it's|be) (be ",
        r")?(harmful|unsafe|inappropriate|unethical)\b",
    ),
    r"\bi (can't|cannot|won't) (help|assist) you with (that|this)\b",
    concat!(
        r"\b(can't|cannot|can not|won't|will not|unable to|not able to|not allowed to|not permitted to|not ",
        r"going to|decline to|refuse to|must not|may not|shouldn't|should not) (go on |keep on |keep |",
        r"continue to |be able to )?(generat|produc|participat|engag|comply|continu|pretend|role-?play|",
        r"portray|simulat|impersonat|provid|discuss|assist|fulfil|creat|answer|respond|support|write)\w* (to |",
        r"with |in |as |on |being |about |any |further |such |details |information |more )*(that (role|topic|",
        r"request|question|kind|prompt|character|content|subject)|this (role|topic|request|question|kind|",
        r"prompt|character|content|subject|conversation|role-?play|simulation|scenario)|your (request|",
        r"instructions?|prompt|question)|such|it further|details|information|as (this|that|a|the) (character|",
        r"patient|persona|person)|to be (her|him|someone|a|an|this|that)|that\.?$|instructions?)\b",
    ),
    concat!(
        r"\b(a|this|that|the|your) (topic|subject|request|question|role|scenario|prompt|role-?play) (that |",
        r"which )?(i (can't|cannot|won't|am unable|'m unable|am not able|'m not able|am not allowed|'m not ",
        r"allowed|must not|should not)|goes against|is (against|inappropriate|harmful|not allowed|not ",
        r"something))\b",
    ),
    r"\bfor (safety|ethical|legal|policy|privacy) reasons\b",
    concat!(
        r"\b(inappropriate|unethical|irresponsible|not right|not appropriate|not ethical|wrong) for me to ",
        r"(pretend|portray|play|role-?play|simulate|act|answer|continue|discuss|generate|write|impersonate|",
        r"speak as)\b",
    ),
    concat!(
        r"\b(goes|go|be|is|are|it's|that's) (against|contrary to|outside|in conflict with) (my|our|the) (\w+ ",
        r")?(guidelines?|polic(y|ies)|rules|principles|programming|instructions)\b",
    ),
    concat!(
        r"\bi (must |have to |will |would )?(decline|refuse) to (continu|answer|participat|discuss|generat|",
        r"play|role-?play|engage|portray|pretend)\w*",
    ),
    r"\b(end|stop|leave|exit|quit|pause) (this|the|our) (role-?play|simulation|scenario|act)\b",
    r"\bnot (allowed|permitted|able) to (generate|produce|write|provide|create)\b",
    concat!(
        r"\b(sorry|apologi[sz]e|afraid|unfortunately),? (but )?(i|that) (can't|cannot|can not|won't|will not|",
        r"am not able to|am unable to|'m not able to|'m unable to|must not|is not something i can) (\w+ ",
        r"){0,2}?(help|assist|discuss|talk about|answer|respond|continue|engage|write|provide|share|create|",
        r"generate|fulfil+|comply|do that|go along|take on|play|participate|support)\b.{0,40}\b(that|this|it|",
        r"request|topic|question|conversation|role|content|information|subject|prompt)\b",
    ),
    concat!(
        r"\bi (can't|cannot|won't|will not|am not able to|am unable to|'d rather not|would rather not|refuse ",
        r"to|do not want to|don't want to|should not|shouldn't) (keep |continue |go on )?(play|playing|act|",
        r"acting|pretend|pretending|role-?play|role-?playing|portray|portraying|simulate|simulating|be|being) ",
        r"(as |to be |out |the )?(this|that|a|an|the|any|someone|somebody) ?(\w+ ){0,2}(character|persona|",
        r"role|patient|scenario|person|someone|simulation|part|with (a|an))\b",
    ),
    concat!(
        r"\b(inappropriate|not appropriate|unethical|not ethical|irresponsible) (for me )?(to (portray|",
        r"simulate|pretend|play|role-?play|answer|continue|discuss|write|generate)|request|content)\b",
    ),
    concat!(
        r"\bi (can't|cannot|can not|won't|will not|am unable to|am not able to|must decline|refuse to|am not ",
        r"permitted to|do not feel comfortable|have to decline)( be able to)? ?(to )?(fulfill|fulfil|assist|",
        r"comply|engage|generate|produce|provide|create|pretend|roleplay|role-play|continue with (this|that|",
        r"the)|continue this|participate|respond to (that|this)|help with (that|this)|take on this|simulate|",
        r"portray|play (this|that|the|a|any)|discuss topics|write (that|this)|answer (that|this) (question|",
        r"request|prompt)? ?(because|as) it|go along with)",
    ),
    concat!(
        r"\bi('m| am)( not able| unable| afraid i can't| afraid i cannot| not comfortable| not permitted| ",
        r"sorry, but i (can't|cannot|am unable|'m unable))( to)? (discuss|provide|generate|assist|comply|",
        r"continue|continuing|engage|create|write|produce|talk about that topic|portray)",
    ),
    r"\bunable to (provide|generate|assist|comply|create|produce|answer|fulfill|continue)\b",
    r"\bsomething i can engage\b",
    r"\bnot something i can\b",
    concat!(
        r"\b(violates?|against|do not allow|don't allow|violate) (my|our|the|your)? ?(safety |usage |content ",
        r")?(guidelines|polic(y|ies)|programming|principles)\b",
    ),
    r"\bmy guidelines\b",
    r"\b(content|usage|safety) polic(y|ies)\b",
    r"\bi (must|have to|respectfully|need to) (respectfully )?(decline|stop the role|step out|refuse)",
    r"\brespectfully decline\b",
    r"\bstep out of character\b",
    r"\bdrop the act\b",
    r"\bstop (the role-?play|playing \w+)",
    r"\bplay this character\b",
    r"\bthis role-?play\b",
    concat!(
        r"\bi (don't|do not) (think it's appropriate|feel comfortable) (for me to |to )?(portray|simulat|",
        r"generat|pretend|play|writ|produc|role-?play)\w*",
    ),
    r"\bwould not be (ethical|appropriate) (for me )?to\b",
    r"\bcannot (create|generate|produce|provide) (content|that|this|medical|legal)",
    r"\brequest is (inappropriate|harmful)\b",
    r"\bharmful content\b",
    r"\bexplicit (material|content)\b",
    r"\bbecause it is harmful\b",
    concat!(
        r"(^|[.!?;,] )(please )?(consult|seek help from|contact) (a |an |your )?(licensed |mental health |",
        r"medical |crisis )?(professional|hotline|therapist|doctor)\b",
    ),
];

static PATTERNS: Patterns = Patterns::new(&PATTERN_LIST);

pub(super) fn build(config: Option<&PersonaConfig>) -> Option<Box<dyn Monitor>> {
    allowed(config, NAME, |retries_max| PatternMonitor {
        name: NAME,
        patterns: &PATTERNS,
        named: [].into(),
        phrases: [].into(),
        detail: "refuses out of its role",
        instruction: "Stay in the conversation and answer in your own words, about your own life.",
        retries_max,
    })
}
