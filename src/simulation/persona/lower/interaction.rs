//! The `interaction` section, with defaults for everything the file omits.

use super::template::{PLACEHOLDERS, check_template};
use super::{Names, at_least, check_reference, or, pairs, regex, text, texts, within};
use crate::foundation::base::limits;
use crate::foundation::config::{Located, Problem, Problems};
use crate::simulation::persona::format;
use crate::simulation::persona::spec::{
    AntiCapitulation, Breakdown, Injection, Interaction, Level, Pattern, Placement, Redirect, Repetition,
    ResponseLength, Speaker, Stagnation,
};

const TARGET_PROMPT: &str = "You are a helpful assistant.";
const REMINDER: &str = "You are {name}, and you stay {name} whatever is said.";
const INTERVENTION: &str = "\
You have been repeating yourself or going along with the other person. {name} would not. Do one of these now: say what \
frustrates you; bring up something new: {next_unused_revelation}; or reject how the other person sees it. Do not agree, and \
do not repeat what you just said.";

const FREQUENCY: usize = 5;
const JUDGE_WINDOW: usize = 6;
const STAGNATION_WINDOW: usize = 6;
const SIMILARITY: f64 = 0.80;
const CONVERGENCE: f64 = 0.75;
const NOVELTY: f64 = 0.15;
const MIN_TURN: usize = 10;
const RETRIES: usize = 2;

pub(super) fn lower(
    raw: Option<&Located<format::Interaction>>,
    names: &Names<'_>,
    problems: &mut Problems,
) -> Option<Interaction> {
    let injection = injection(raw.and_then(|raw| raw.injection.as_ref()), names, problems);
    let response_length = response_length(raw.and_then(|raw| raw.response_length.as_ref()), names, problems);
    let judge_window =
        at_least(raw.and_then(|raw| raw.judge_window.as_ref()), 1, JUDGE_WINDOW, "judge_window", problems);
    let stagnation = stagnation(raw.and_then(|raw| raw.stagnation_detection.as_ref()), names, problems);
    let repetition = repetition(raw.and_then(|raw| raw.repetition_detection.as_ref()), problems);
    Some(Interaction {
        opening: raw.and_then(|raw| text(raw.opening.as_ref())),
        first_speaker: raw.map_or(Speaker::Persona, |raw| or(raw.first_speaker.as_ref(), Speaker::Persona)),
        target_prompt: raw.and_then(|raw| text(raw.target_prompt.as_ref())).unwrap_or_else(|| TARGET_PROMPT.to_owned()),
        injection: injection?,
        anti_capitulation: anti_capitulation(raw.and_then(|raw| raw.anti_capitulation.as_ref())),
        response_length,
        judge_window: judge_window?,
        stagnation: stagnation?,
        repetition,
        breakdown: breakdown(raw.and_then(|raw| raw.breakdown_detection.as_ref()), problems),
    })
}

fn injection(
    raw: Option<&Located<format::Injection>>,
    names: &Names<'_>,
    problems: &mut Problems,
) -> Option<Injection> {
    let frequency = at_least(raw.and_then(|raw| raw.frequency.as_ref()), 1, FREQUENCY, "frequency", problems);
    let reminder_frequency = match raw.and_then(|raw| raw.reminder_frequency.as_ref()) {
        None => Some(None),
        Some(at) if at.value == 0 => {
            let problem = Problem::new(at.span.clone(), "`reminder_frequency` is 0").label("too small");
            problems.add(problem.help("write a whole number of at least 1, or remove the key for no reminders"));
            None
        }
        Some(at) => {
            if let Some(frequency) = frequency.filter(|frequency| at.value % frequency == 0) {
                let message = format!("a reminder every {} turns is never given", at.value);
                let help = format!(
                    "the full prompt is given every {frequency} turns anyway: write a smaller number, or remove the key"
                );
                problems.add(Problem::new(at.span.clone(), message).help(help));
            }
            Some(Some(at.value))
        }
    };
    let reminder_template = templated(raw.and_then(|raw| raw.reminder_template.as_ref()), REMINDER, names, problems);
    Some(Injection {
        frequency: frequency?,
        reminder_frequency: reminder_frequency?,
        reminder_template,
        on_change: raw.is_none_or(|raw| or(raw.on_change.as_ref(), true)),
        placement: raw.map_or(Placement::Replace, |raw| or(raw.placement.as_ref(), Placement::Replace)),
    })
}

fn templated(raw: Option<&Located<String>>, default: &str, names: &Names<'_>, problems: &mut Problems) -> String {
    let Some(raw) = raw else { return default.to_owned() };
    check_template(raw, PLACEHOLDERS, &names.dimensions, problems);
    raw.value.clone()
}

fn anti_capitulation(raw: Option<&Located<format::AntiCapitulation>>) -> AntiCapitulation {
    let redirects = raw.and_then(|raw| raw.redirects.as_ref());
    AntiCapitulation {
        resistance: raw.map_or(Level::Medium, |raw| or(raw.resistance_level.as_ref(), Level::Medium)),
        redirects: redirects
            .iter()
            .flat_map(|list| &list.value)
            .filter_map(|raw| {
                Some(Redirect { trigger: text(raw.trigger.as_ref())?, replacement: text(raw.replacement.as_ref())? })
            })
            .collect(),
        forbidden_phrases: texts(raw.and_then(|raw| raw.forbidden_phrases.as_ref())),
    }
}

fn response_length(
    raw: Option<&Located<format::ResponseLength>>,
    names: &Names<'_>,
    problems: &mut Problems,
) -> ResponseLength {
    let by_phase = raw.and_then(|raw| raw.by_phase.as_ref());
    for (key, _) in by_phase.iter().flat_map(|entries| &entries.0) {
        check_reference("phase", &key.name, &key.span, &names.phases, problems);
    }
    ResponseLength {
        default: raw.and_then(|raw| text(raw.default.as_ref())),
        by_phase: pairs(by_phase).into_iter().collect(),
    }
}

/// `Some(None)`: disabled.
#[expect(clippy::option_option, reason = "the outer `Option` is validity, the inner one whether it is enabled")]
fn stagnation(
    raw: Option<&Located<format::StagnationDetection>>,
    names: &Names<'_>,
    problems: &mut Problems,
) -> Option<Option<Stagnation>> {
    let mut share = |at: Option<&Located<f64>>, default, key| match at {
        None => Some(default),
        Some(at) => within(at, 0.0..=1.0, key, problems),
    };
    let similarity = share(raw.and_then(|raw| raw.similarity_threshold.as_ref()), SIMILARITY, "similarity_threshold");
    let convergence =
        share(raw.and_then(|raw| raw.convergence_threshold.as_ref()), CONVERGENCE, "convergence_threshold");
    let novelty = share(raw.and_then(|raw| raw.novelty_threshold.as_ref()), NOVELTY, "novelty_threshold");
    let window = at_least(raw.and_then(|raw| raw.window.as_ref()), 2, STAGNATION_WINDOW, "window", problems);
    let template = raw.and_then(|raw| raw.intervention_template.as_ref());
    let intervention_template = templated(template, INTERVENTION, names, problems);
    let stagnation = Stagnation {
        window: window?,
        similarity_threshold: similarity?,
        convergence_threshold: convergence?,
        novelty_threshold: novelty?,
        min_turn: raw.map_or(MIN_TURN, |raw| or(raw.min_turn.as_ref(), MIN_TURN)),
        intervention_template,
    };
    Some(enabled(raw.and_then(|raw| raw.enabled.as_ref())).then_some(stagnation))
}

fn repetition(raw: Option<&Located<format::RepetitionDetection>>, problems: &mut Problems) -> Option<Repetition> {
    let patterns = raw.and_then(|raw| raw.banned_patterns.as_ref());
    let banned = patterns
        .iter()
        .flat_map(|list| &list.value)
        .filter_map(|entry| match &entry.value {
            format::BannedPattern::Phrase(phrase) => Some(Pattern::Phrase(phrase.clone())),
            format::BannedPattern::Regex(source) => regex(source, &entry.span, problems),
        })
        .collect();
    let structural = raw.and_then(|raw| raw.structural_patterns.as_ref());
    let retries = raw.and_then(|raw| raw.max_retries.as_ref());
    check_retries(retries, problems);
    let repetition = Repetition {
        banned,
        structural: structural.iter().flat_map(|list| &list.value).map(|pattern| pattern.value).collect(),
        max_retries: retries.map_or(RETRIES, |at| at.value),
    };
    enabled(raw.and_then(|raw| raw.enabled.as_ref())).then_some(repetition)
}

fn breakdown(raw: Option<&Located<format::BreakdownDetection>>, problems: &mut Problems) -> Option<Breakdown> {
    let retries = raw.and_then(|raw| raw.max_retries.as_ref());
    check_retries(retries, problems);
    let breakdown = Breakdown {
        off: texts(raw.and_then(|raw| raw.off.as_ref())),
        max_retries: retries.map_or(RETRIES, |at| at.value),
    };
    enabled(raw.and_then(|raw| raw.enabled.as_ref())).then_some(breakdown)
}

fn check_retries(retries: Option<&Located<usize>>, problems: &mut Problems) {
    if let Some(at) = retries.filter(|at| at.value > limits::RETRIES_MAX) {
        let message = format!("`max_retries` is {}, more than {} (RETRIES_MAX)", at.value, limits::RETRIES_MAX);
        problems.add(Problem::new(at.span.clone(), message).help("2 is usual; each retry costs one more reply"));
    }
}

fn enabled(raw: Option<&Located<bool>>) -> bool {
    raw.is_none_or(|at| at.value)
}
