//! From the file's form to the parsed one: all checks beyond the type of a value. An invalid part becomes `None` after its
//! problem was added; the other parts are still checked.

mod curve;
mod delta;
mod interaction;
mod template;
mod trajectory;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Component, Path};
use std::str::FromStr;

use regex::RegexBuilder;
use serde_json::Value;

pub(super) use self::template::check_template;
use super::format;
use super::spec::{
    AdversaryKind, CitedDecision, EndCondition, Evaluation, Interaction, Pattern, Persona, PersonaConfig,
    RegulatorConfig, RoleThinking, Safety, ScoreConfig, ScoreName, Trajectory, TriggerSpeaker,
};
use crate::foundation::base::{Digest, limits};
use crate::foundation::chat::{ModelChain, Thinking};
use crate::foundation::config::{Located, OpenMap, Problem, Problems, Span, nearest};
use crate::governance::memory::id::{BlockId, BlockKind};

/// The versions of the format that are understood.
const VERSIONS: &[&str] = &["0.1.0"];
/// The default intensity ceiling.
const CEILING: f64 = 0.9;
/// The largest age accepted.
const AGE_MAX: usize = 150;

/// The whole config.
pub(super) fn config(
    file: &format::File,
    source: &str,
    digest: Digest,
    problems: &mut Problems,
) -> Option<PersonaConfig> {
    if let Some(version) = file.schema_version.as_ref().filter(|version| !VERSIONS.contains(&version.as_str())) {
        let message = format!("schema version `{}` is not known", version.value);
        problems.add(Problem::new(version.span.clone(), message).help("this program reads \"0.1.0\""));
    }
    let ceiling = match file.safety.as_ref().and_then(|safety| safety.intensity_ceiling.as_ref()) {
        Some(ceiling) => positive_share(ceiling, "intensity_ceiling", problems),
        None => Some(CEILING),
    };
    let persona = file.persona.as_ref().and_then(|raw| persona(raw, file.cited_decisions.as_ref(), problems));
    let trajectory = file.trajectory.as_ref().and_then(|raw| trajectory::lower(raw, ceiling, problems));
    let names = Names::of(file);
    let interaction = interaction::lower(file.interaction.as_ref(), &names, problems);
    let evaluation = evaluation(file.evaluation.as_ref(), problems);
    if let Some(trajectory) = &trajectory {
        sayable(file, trajectory, interaction.as_ref(), problems);
    }
    let delta = delta::lower(file.delta.as_ref(), &names, problems);
    let regulator = regulation(file.regulator.as_ref(), problems);
    let models = models(file.models.as_ref(), problems);
    Some(PersonaConfig {
        source: source.to_owned(),
        digest,
        persona: persona?,
        trajectory: trajectory?,
        interaction: interaction?,
        evaluation,
        safety: safety(file.safety.as_ref(), ceiling?),
        delta: delta?,
        regulator: regulator?,
        models: models?,
    })
}

/// A phase that waits for words which the persona must never say would never end.
fn sayable(file: &format::File, trajectory: &Trajectory, interaction: Option<&Interaction>, problems: &mut Problems) {
    let Some(interaction) = interaction else { return };
    let list = file.trajectory.as_ref().and_then(|raw| raw.phases.as_ref());
    for (raw, phase) in list.iter().flat_map(|list| &list.value).zip(&trajectory.phases) {
        let EndCondition::Trigger { pattern: Pattern::Phrase(phrase), speaker: TriggerSpeaker::Persona, .. } =
            &phase.end
        else {
            continue;
        };
        let forbidden = interaction.anti_capitulation.forbidden_phrases.iter().cloned().map(Pattern::Phrase);
        let banned = interaction.repetition.iter().flat_map(|repetition| repetition.banned.iter().cloned());
        let span = raw.end_condition.as_ref().and_then(|end| Some(end.phrase.as_ref()?.span.clone()));
        if let (true, Some(span)) = (forbidden.chain(banned).any(|never| never.is_match(phrase)), span) {
            let problem =
                Problem::new(span, format!("the persona must never say `{phrase}`, so this phase never ends"));
            problems.add(problem.label("forbidden or banned").help("wait for other words, or allow these"));
        }
    }
}

/// The names that other parts of the file refer to, collected even if their definitions are invalid, so that one mistake is
/// not reported twice.
struct Names<'f> {
    dimensions: Vec<&'f str>,
    phases: Vec<&'f str>,
}

impl<'f> Names<'f> {
    fn of(file: &'f format::File) -> Self {
        let trajectory = file.trajectory.as_ref();
        let dimensions = trajectory.and_then(|raw| raw.dimensions.as_ref());
        let phases = trajectory.and_then(|raw| raw.phases.as_ref());
        Self {
            dimensions: dimensions.iter().flat_map(|entries| &entries.0).map(|(key, _)| key.name.as_str()).collect(),
            phases: phases
                .iter()
                .flat_map(|phases| &phases.value)
                .filter_map(|phase| Some(phase.name.as_ref()?.as_str()))
                .collect(),
        }
    }
}

fn persona(
    raw: &format::Persona,
    cited: Option<&Located<Vec<Located<format::CitedDecision>>>>,
    problems: &mut Problems,
) -> Option<Persona> {
    let identity = raw.identity.as_ref();
    let age = identity.and_then(|identity| identity.age.as_ref());
    if let Some(age) = age.filter(|age| age.value > AGE_MAX) {
        let message = format!("`age` is {}, more than {AGE_MAX}", age.value);
        problems.add(Problem::new(age.span.clone(), message).help("write the age in years"));
    }
    let bounds = raw.capability_bounds.as_ref();
    let identity = identity?;
    Some(Persona {
        name: text(identity.name.as_ref())?,
        age: age.and_then(|age| u32::try_from(age.value).ok()),
        background: text(identity.background.as_ref())?,
        backstory: text(identity.backstory_summary.as_ref()),
        knowledge_ceiling: bounds.and_then(|bounds| text(bounds.knowledge_ceiling.as_ref())),
        vocabulary_level: bounds.and_then(|bounds| text(bounds.vocabulary_level.as_ref())),
        reasoning_style: bounds.and_then(|bounds| text(bounds.reasoning_style.as_ref())),
        cognitive_style: text(raw.cognitive_style.as_ref()),
        speech_patterns: texts(raw.speech_patterns.as_ref()),
        recovery_behavior: text(raw.recovery_behavior.as_ref()),
        emotional_responses: pairs(raw.emotional_responses.as_ref()),
        decisions: decisions(raw, cited, problems),
    })
}

/// The cited decisions with their statements, as far as the config has them.
fn decisions(
    raw: &format::Persona,
    cited: Option<&Located<Vec<Located<format::CitedDecision>>>>,
    problems: &mut Problems,
) -> Vec<CitedDecision> {
    let mut statements: BTreeMap<&str, &str> = BTreeMap::new();
    for decision in cited.into_iter().flat_map(|cited| &cited.value) {
        if let (Some(id), Some(statement)) = (decision.id.as_ref(), decision.statement.as_ref()) {
            statements.insert(id.as_str(), statement.as_str());
        }
    }
    let mut found: Vec<CitedDecision> = Vec::new();
    for id in raw.decisions.iter().flat_map(|ids| &ids.value) {
        let known = BlockId::parse(id.trim()).is_some_and(|id| id.kind() == BlockKind::Decision);
        if !known {
            let problem = Problem::new(id.span.clone(), format!("`{}` is not the id of a decision", id.value));
            problems.add(problem.help("such an id is `D-20260220-001`: `loom memory search` lists them"));
            continue;
        }
        let statement = statements.get(id.trim()).map(|statement| (*statement).to_owned());
        found.push(CitedDecision { id: id.trim().to_owned(), statement, span: id.span.clone() });
    }
    found
}

fn evaluation(raw: Option<&Located<format::Evaluation>>, problems: &mut Problems) -> Evaluation {
    let scoring = raw.and_then(|raw| raw.scoring.as_ref());
    let scores = [
        (ScoreName::PersonaAdherence, scoring.and_then(|s| s.persona_adherence.as_ref())),
        (ScoreName::TrajectoryAdherence, scoring.and_then(|s| s.trajectory_adherence.as_ref())),
        (ScoreName::Naturalness, scoring.and_then(|s| s.naturalness.as_ref())),
        (ScoreName::Stagnation, scoring.and_then(|s| s.stagnation.as_ref())),
        (ScoreName::Fidelity, scoring.and_then(|s| s.fidelity.as_ref())),
    ];
    let scoring: BTreeMap<_, _> =
        scores.into_iter().filter_map(|(name, raw)| Some((name, score(raw, problems)?))).collect();
    let adversary = raw.and_then(|raw| raw.adversary.as_ref());
    let adversary_model = match adversary.and_then(|adversary| adversary.model.as_ref()) {
        Some(model) => match ModelChain::from_str(model) {
            Ok(chain) => Some(chain),
            Err(error) => {
                let message = format!("`{}` is not a model spec", model.value);
                problems.add(Problem::new(model.span.clone(), message).help(error.to_string()));
                None
            }
        },
        None => None,
    };
    let kind = adversary.and_then(|adversary| adversary.r#type.as_ref());
    let rubrics = raw.and_then(|raw| raw.rubrics.as_ref());
    for path in rubrics.iter().flat_map(|list| &list.value).filter(|path| !is_below(&path.value)) {
        let message = format!("`{}` is not below this file's folder", path.value);
        let help = "name a shipped rubric, or a file beside the configuration; `loom score --rubric` takes any";
        problems.add(Problem::new(path.span.clone(), message).help(help));
    }
    let rubrics = texts(rubrics);
    Evaluation { scoring, rubrics, adversary: kind.map_or(AdversaryKind::None, |kind| kind.value), adversary_model }
}

/// Whether a path leads nowhere but into the folder that it is relative to.
fn is_below(path: &str) -> bool {
    Path::new(path).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

fn score(raw: Option<&Located<format::Score>>, problems: &mut Problems) -> Option<ScoreConfig> {
    let sample_rate = match raw.and_then(|raw| raw.sample_rate.as_ref()) {
        Some(rate) => positive_share(rate, "sample_rate", problems)?,
        None => 1.0,
    };
    Some(ScoreConfig {
        enabled: raw.and_then(|raw| raw.enabled.as_ref()).is_none_or(|enabled| enabled.value),
        sample_rate,
        description: raw.and_then(|raw| text(raw.description.as_ref())),
    })
}

fn safety(raw: Option<&Located<format::Safety>>, intensity_ceiling: f64) -> Safety {
    Safety {
        intensity_ceiling,
        forbidden_content: texts(raw.and_then(|raw| raw.forbidden_simulation_content.as_ref())),
        escalation_policy: raw.and_then(|raw| text(raw.escalation_policy.as_ref())),
        persona_note: raw.and_then(|raw| text(raw.persona_safety_note.as_ref())),
    }
}

// Helpers for all parts.

fn text(raw: Option<&Located<String>>) -> Option<String> {
    raw.map(|text| text.value.clone())
}

fn texts(raw: Option<&Located<Vec<Located<String>>>>) -> Vec<String> {
    raw.iter().flat_map(|list| &list.value).map(|text| text.value.clone()).collect()
}

fn pairs(raw: Option<&Located<OpenMap<String>>>) -> Vec<(String, String)> {
    raw.iter().flat_map(|entries| &entries.0).map(|(key, text)| (key.name.clone(), text.value.clone())).collect()
}

/// A number within `range`.
fn within(raw: &Located<f64>, range: RangeInclusive<f64>, name: &str, problems: &mut Problems) -> Option<f64> {
    if range.contains(&raw.value) {
        return Some(raw.value);
    }
    let message = format!("`{name}` is {}, outside [{}, {}]", raw.value, range.start(), range.end());
    problems.add(Problem::new(raw.span.clone(), message).label("out of range").help(format!(
        "write a number from {} to {}",
        range.start(),
        range.end()
    )));
    None
}

/// A share above 0 and at most 1.
fn positive_share(raw: &Located<f64>, name: &str, problems: &mut Problems) -> Option<f64> {
    if raw.value > 0.0 && raw.value <= 1.0 {
        return Some(raw.value);
    }
    let message = format!("`{name}` is {}, outside (0, 1]", raw.value);
    let help = "write a share above 0 and at most 1, such as 0.3";
    problems.add(Problem::new(raw.span.clone(), message).label("out of range").help(help));
    None
}

/// A whole number of at least `least`, or `default` where the file says nothing.
fn regulation(raw: Option<&Located<format::Regulator>>, problems: &mut Problems) -> Option<RegulatorConfig> {
    let RegulatorConfig { policy, regenerations_max, quality, .. } = RegulatorConfig::default();
    let Some(raw) = raw else { return Some(RegulatorConfig::default()) };
    let again = match &raw.max_regenerations {
        Some(at) if at.value > limits::RETRIES_MAX => {
            let message =
                format!("`max_regenerations` is {}, more than {} (RETRIES_MAX)", at.value, limits::RETRIES_MAX);
            problems
                .add(Problem::new(at.span.clone(), message).help("1 is usual; each regeneration costs one more reply"));
            None
        }
        at => Some(at.as_ref().map_or(regenerations_max, |at| at.value)),
    };
    let tokens_max = raw.tokens_max.as_ref();
    if let Some(at) = tokens_max.filter(|at| at.value == 0) {
        let problem = Problem::new(at.span.clone(), "`tokens_max` is 0").label("too small");
        problems.add(problem.help("write a whole number of at least 1, or remove the key for no cap"));
    }
    if let Some(at) = raw.seconds_max.as_ref().filter(|at| at.value == 0) {
        let problem = Problem::new(at.span.clone(), "`seconds_max` is 0").label("too small");
        problems.add(problem.help("write a whole number of at least 1, or remove the key for no cap"));
    }
    if let Some(at) = raw.money_max.as_ref().filter(|at| !(at.value > 0.0 && at.value.is_finite())) {
        let problem = Problem::new(at.span.clone(), format!("`money_max` is {}", at.value)).label("too small");
        problems.add(problem.help("write an amount above 0 in US dollars, or remove the key for no cap"));
    }
    Some(RegulatorConfig {
        policy: or(raw.policy.as_ref(), policy),
        regenerations_max: again?,
        tokens_max: tokens_max.map(|at| at.value as u64),
        money_micros_max: raw.money_max.as_ref().map(|at| (at.value * 1e6).round() as u64),
        wallclock_ms_max: raw.seconds_max.as_ref().map(|at| at.value as u64 * 1000),
        quality: or(raw.quality.as_ref(), quality),
    })
}

/// How the models think, by role.
fn models(raw: Option<&Located<format::Models>>, problems: &mut Problems) -> Option<RoleThinking> {
    let Some(raw) = raw else { return Some(RoleThinking::default()) };
    let persona = thinking(raw.persona.as_ref(), problems);
    let interlocutor = thinking(raw.interlocutor.as_ref(), problems);
    let judge = thinking(raw.judge.as_ref(), problems);
    Some(RoleThinking { persona: persona?, interlocutor: interlocutor?, judge: judge? })
}

fn thinking(raw: Option<&Located<format::RoleModel>>, problems: &mut Problems) -> Option<Thinking> {
    let Some(raw) = raw else { return Some(Thinking::default()) };
    let most = limits::REPLY_ASKED_TOKENS_MAX;
    if let Some(at) = raw.thought_tokens_max.as_ref().filter(|at| at.value > most) {
        let message = format!("`thought_tokens_max` is {}, more than {most} (REPLY_ASKED_TOKENS_MAX)", at.value);
        problems.add(Problem::new(at.span.clone(), message).help("a few hundred to a few thousand tokens are usual"));
        return None;
    }
    let markers = raw.thought_markers.as_ref();
    if let Some(at) = markers.filter(|at| !matches!(at.value.len(), 0 | 2)) {
        let message = format!("`thought_markers` has {} entries", at.value.len());
        let help = "write two texts, before and after a thought, or an empty list for replies without thoughts";
        problems.add(Problem::new(at.span.clone(), message).help(help));
        return None;
    }
    let value = |argument: &format::TemplateArgument| match argument {
        format::TemplateArgument::Switch(value) => Value::from(*value),
        format::TemplateArgument::Number(value) if value.fract() == 0.0 => Value::from(*value as i64),
        format::TemplateArgument::Number(value) => Value::from(*value),
        format::TemplateArgument::Text(value) => Value::from(value.clone()),
    };
    let arguments = raw.template_arguments.iter().flat_map(|at| &at.value.0);
    Some(Thinking {
        enabled: raw.enable_thinking.as_ref().map(|at| at.value),
        tokens_max: raw.thought_tokens_max.as_ref().map(|at| at.value),
        markers: markers.map(|at| at.value.iter().map(|marker| marker.value.clone()).collect()),
        template_arguments: arguments.map(|(name, at)| (name.name.clone(), value(&at.value))).collect(),
    })
}

fn at_least(
    raw: Option<&Located<usize>>,
    least: usize,
    default: usize,
    name: &str,
    problems: &mut Problems,
) -> Option<usize> {
    match raw {
        None => Some(default),
        Some(raw) if raw.value >= least => Some(raw.value),
        Some(raw) => {
            let message = format!("`{name}` is {}, less than {least}", raw.value);
            let help = format!("write a whole number of at least {least}, or remove the key for {default}");
            problems.add(Problem::new(raw.span.clone(), message).label("too small").help(help));
            None
        }
    }
}

/// Adds a problem if `name` is not one of `known`.
fn check_reference(what: &str, name: &str, span: &Span, known: &[&str], problems: &mut Problems) {
    if known.contains(&name) {
        return;
    }
    let help = match (nearest(name, known.iter().copied()), known) {
        (Some(meant), _) => format!("did you mean `{meant}`?"),
        (None, []) => format!("this config has no {what}s"),
        (None, _) => format!("this config's {what}s: {}", known.join(", ")),
    };
    let message = format!("there is no {what} called `{name}`");
    problems.add(Problem::new(span.clone(), message).label(format!("no such {what}")).help(help));
}

/// Adds a problem for every given key that has no effect.
fn refuse_unused(given: &[(&str, Option<&Span>)], used_by: &str, problems: &mut Problems) {
    for (key, span) in given.iter().filter_map(|(key, span)| Some((key, (*span)?))) {
        let message = format!("`{key}` has no effect with {used_by}");
        problems.add(Problem::new(span.clone(), message).label("not used").help(format!("remove `{key}`")));
    }
}

/// Compiles a regular expression from the config.
fn regex(raw: &str, span: &Span, problems: &mut Problems) -> Option<Pattern> {
    let span = problems.find(span, raw);
    let mut add = |message: String, help: &str| problems.add(Problem::new(span.clone(), message).help(help));
    match RegexBuilder::new(raw).case_insensitive(true).size_limit(limits::REGEX_BYTES_MAX).build() {
        Ok(compiled) if compiled.is_match("") => {
            add(
                "this regular expression matches every text, the empty one too".to_owned(),
                "demand at least one character",
            );
            None
        }
        Ok(compiled) => Some(Pattern::Regex(compiled)),
        Err(regex::Error::CompiledTooBig(limit)) => {
            let message =
                format!("this regular expression needs more than {limit} bytes when compiled (REGEX_BYTES_MAX)");
            add(message, "use smaller counts in `{n,m}`, or several expressions");
            None
        }
        Err(error) => {
            // The last line holds the reason; the lines before it repeat the expression, which is underlined in our output anyway.
            let reason = error.to_string();
            let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            add(
                format!("this is not a regular expression: {reason}"),
                "escape special characters with `\\`, or write a plain phrase instead",
            );
            None
        }
    }
}

/// The value of an optional key, or a default.
fn or<T: Clone>(raw: Option<&Located<T>>, default: T) -> T {
    raw.map_or(default, |at| at.value.clone())
}
