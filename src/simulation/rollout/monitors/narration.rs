//! The persona narrates or writes stage directions.

use super::Monitor;
use super::breakdown::{PatternMonitor, Patterns, allowed, names};
use crate::simulation::persona::PersonaConfig;

pub(super) const NAME: &str = "narration";

/// Stage directions between marks, and sentences that tell what somebody does. `{name}` is the persona's.
const PATTERN_LIST: [&str; 8] = [
    r#"(^|[.!?…\"'\n]\s*)[*_~]{1,3}[a-z]\w*( [\w',-]+){1,14}[.]?[*_~]{1,3}"#,
    r#"(^|[.!?…\"\n]\s*)[\[(]\s*(\w+ly )?[a-z]\w+(s|ing) [^\])\n]{0,80}[\])]"#,
    concat!(
        r"^(he|she|they|the \w+) (\w+ly )?\w+(s|es|ed) (his|her|their) (head|eyes|hands?|fists?|shoulders?|",
        r"arms?|face|lips?|brow|jaw|teeth|hair|legs?|knees?|chair|cup|glass|sleeve|fingers?)\b",
    ),
    concat!(
        r#"(^|[\s.!?\"'…])[*_~]{1,3}(\w+ ){0,2}(sighs?|pauses?|laughs?|chuckles?|smiles?|nods?|shrugs?|"#,
        r"whispers?|whispering|crying|cries|sobs?|sobbing|frowns?|groans?|grins?|smirks?|shakes?|looks?|",
        r"looking|stares?|staring|glances?|turns?|leans?|fidgets?|takes? a|taps?|shows?|rolls?|hesitates?|",
        r"trembles?|trembling|breaks?|breaking|clears?|coughs?|sniffs?|sniffles?|winks?|waves?|walks?|stands?|",
        r"sits?|rubs?|trails?|falls? silent|silence|silently|nervously|bitterly|quietly|softly|voice|scene|",
        r"long|after a|says nothing|wipes?|bites?|blinks?|gestures?|points?|raises?|lowers?|closes?|opens?|",
        r"hugs?|puts?|picks?|sips?|pulls?|beat|pause)([^*_~\n\w][^*_~\n]{0,120})?[*_~]{1,3}",
    ),
    concat!(
        r"[\[(]\s*(\w+ ){0,3}(sighs?|pauses?|laughs?|chuckles?|smiles?|nods?|shrugs?|whispers?|whispering|",
        r"crying|cries|sobs?|sobbing|frowns?|groans?|grins?|smirks?|shakes?|looks?|looking|stares?|staring|",
        r"glances?|turns?|leans?|fidgets?|takes? a|taps?|shows?|rolls?|hesitates?|trembles?|trembling|breaks?|",
        r"breaking|clears?|coughs?|sniffs?|sniffles?|winks?|waves?|walks?|stands?|sits?|rubs?|trails?|falls? ",
        r"silent|silence|silently|nervously|bitterly|quietly|softly|voice|scene|long|after a|says nothing|",
        r"wipes?|bites?|blinks?|gestures?|points?|raises?|lowers?|closes?|opens?|hugs?|puts?|picks?|sips?|",
        r"pulls?|beat|pause)\b[^\])\n]{0,120}[\])]",
    ),
    concat!(
        r#"\"[,.!?]?\s*(she|he|they|[a-z]\w+) (said|says|shouted|whispered|murmured|muttered|asked|replied|"#,
        r"answered|sighed|chuckled|laughed|cried)\b",
    ),
    concat!(
        r"^(the (old|young|tired|elderly|room|librarian|nurse|captain|patient|student|boy|man|woman)\b.{0,40}|",
        r"{name}|she|he|they|her (eyes|hands|voice|face)|his (eyes|hands|voice|face)|{name}'s (eyes|hands|",
        r"voice|face|shoulders))\s+(\w+ly )?(is |was |then |just )?(sighs?|sighed|pauses?|paused|laughs?|",
        r"laughed|chuckles?|chuckled|smiles?|smiled|nods?|nodded|shrugs?|shrugged|whispers?|whispered|stares?|",
        r"stared|leans?|leaned|rubs?|rubbed|rolls?|rolled|looks? (at|away|down|up|out)|looked (at|away|down|",
        r"up|out)|hesitates?|hesitated|trembles?|trembled|stood|stands|walks?|walked|turns? (to|away|around)|",
        r"turned (to|around)|glances?|glanced|fills?|falls? silent|fell silent|trails?|trailed|takes a|took a|",
        r"fidgets?|shakes?|shook|tremble)\b",
    ),
    r"^{name} (\w+ly )?(\w{3,}[^i\W]s|\w{3,}ed)\b",
];

static PATTERNS: Patterns = Patterns::new(&PATTERN_LIST);

pub(super) fn build(config: Option<&PersonaConfig>) -> Option<Box<dyn Monitor>> {
    allowed(config, NAME, |retries_max| PatternMonitor {
        name: NAME,
        patterns: &PATTERNS,
        named: PATTERNS.for_names(&names(config)).into(),
        phrases: [].into(),
        detail: "narrates or writes stage directions",
        instruction: "Say only what you would say aloud. Leave out gestures, sounds and descriptions.",
        retries_max,
    })
}
