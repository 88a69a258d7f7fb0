//! What the breakdown monitors share: patterns over one message, and whether a monitor fits a persona at all.

use std::sync::{Arc, OnceLock};

use regex::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};

use super::{Draft, Monitor, MonitorFinding};
use crate::foundation::text::{straighten, words};
use crate::simulation::persona::PersonaConfig;

/// Redrafts for a breakdown where there is no config.
const RETRIES: usize = 2;
/// Room for the compiled patterns of one monitor.
const COMPILED_BYTES_MAX: usize = 64 << 20;
/// The longest excerpt in a finding, in characters.
const EXCERPT_CHARS: usize = 80;

/// Case-insensitive patterns, compiled when first used. Those that contain `{name}` are compiled per persona.
#[derive(Debug)]
pub(super) struct Patterns {
    sources: &'static [&'static str],
    compiled: OnceLock<RegexSet>,
}

impl Patterns {
    pub(super) const fn new(sources: &'static [&'static str]) -> Self {
        Self { sources, compiled: OnceLock::new() }
    }

    fn fixed(&self) -> impl Iterator<Item = &'static str> {
        self.sources.iter().copied().filter(|source| !source.contains("{name}"))
    }

    /// The part of `text` that a pattern matches first.
    fn find(&self, text: &str) -> Option<String> {
        let set = self.compiled.get_or_init(|| {
            let mut builder = RegexSetBuilder::new(self.fixed());
            match builder.case_insensitive(true).size_limit(COMPILED_BYTES_MAX).build() {
                Ok(set) => set,
                Err(error) => unreachable!("a pattern of a monitor does not compile: {error}"),
            }
        });
        let matched = set.matches(text).into_iter().next()?;
        let source = self.fixed().nth(matched)?;
        compiled(source).find(text).map(|found| found.as_str().to_owned())
    }

    /// The patterns that contain `{name}`, for these names.
    pub(super) fn for_names(&self, names: &[String]) -> Vec<Regex> {
        let names: Vec<String> = names.iter().map(|name| regex::escape(name)).collect();
        // Without a name, the alternatives with a name match nothing.
        let names = if names.is_empty() { "[a&&b]".to_owned() } else { format!("(?:{})", names.join("|")) };
        let named = self.sources.iter().filter(|source| source.contains("{name}"));
        named.map(|source| compiled(&source.replace("{name}", &names))).collect()
    }
}

fn compiled(source: &str) -> Regex {
    match RegexBuilder::new(source).case_insensitive(true).size_limit(COMPILED_BYTES_MAX).build() {
        Ok(regex) => regex,
        Err(error) => unreachable!("the pattern `{source}` of a monitor does not compile: {error}"),
    }
}

/// A monitor that looks for patterns in the draft alone.
#[derive(Debug, Clone)]
pub(super) struct PatternMonitor {
    pub(super) name: &'static str,
    pub(super) patterns: &'static Patterns,
    /// The patterns with the persona's name.
    pub(super) named: Arc<[Regex]>,
    /// Texts of the persona's instructions that it must not repeat, folded.
    pub(super) phrases: Arc<[String]>,
    /// What a message does that is found.
    pub(super) detail: &'static str,
    /// The instruction for the next draft.
    pub(super) instruction: &'static str,
    pub(super) retries_max: usize,
}

impl Monitor for PatternMonitor {
    fn name(&self) -> &'static str {
        self.name
    }

    fn check(&self, draft: &Draft<'_>) -> Vec<MonitorFinding> {
        let text = straighten(draft.text);
        let named = || self.named.iter().find_map(|regex| regex.find(&text)).map(|found| found.as_str().to_owned());
        let phrase = || {
            let folded = words(&text).join(" ");
            self.phrases.iter().find(|phrase| folded.contains(phrase.as_str())).cloned()
        };
        let found = self.patterns.find(&text).or_else(named).or_else(phrase);
        found.map(|found| finding(self.name, self.detail, &found, self.instruction)).into_iter().collect()
    }

    fn retries_max(&self) -> usize {
        self.retries_max
    }

    fn boxed(&self) -> Box<dyn Monitor> {
        Box::new(self.clone())
    }
}

/// A finding of a breakdown monitor; its rule is the monitor's name.
pub(super) fn finding(name: &str, detail: &str, found: &str, instruction: &str) -> MonitorFinding {
    let excerpt: String = found.trim().chars().take(EXCERPT_CHARS).collect();
    let detail = if excerpt.is_empty() { detail.to_owned() } else { format!("{detail}: “{excerpt}”") };
    MonitorFinding {
        monitor: name.to_owned(),
        rule: name.to_owned(),
        detail,
        value: None,
        threshold: None,
        instruction: instruction.to_owned(),
    }
}

/// The monitor that `build` gives for a number of redrafts: `None` if the config switches it off, or if it fires on lines
/// that the config itself gives the persona to say.
pub(super) fn allowed<M: Monitor + 'static>(
    config: Option<&PersonaConfig>,
    name: &str,
    build: impl FnOnce(usize) -> M,
) -> Option<Box<dyn Monitor>> {
    let Some(config) = config else { return Some(Box::new(build(RETRIES))) };
    let settings = config.interaction.breakdown.as_ref()?;
    if settings.off.iter().any(|off| off == name) {
        return None;
    }
    let monitor = build(settings.max_retries);
    let fits = own_lines(config).all(|text| monitor.check(&Draft { turn: 0, text }).is_empty());
    fits.then(|| Box::new(monitor) as Box<dyn Monitor>)
}

/// The lines that the config gives the persona to say.
fn own_lines(config: &PersonaConfig) -> impl Iterator<Item = &str> {
    let revelations = config.trajectory.phases.iter().flat_map(|phase| &phase.revelations);
    let revelations = revelations.flat_map(|revelation| revelation.variants.values());
    let redirects = config.interaction.anti_capitulation.redirects.iter().map(|redirect| &redirect.replacement);
    revelations.chain(redirects).map(String::as_str)
}

/// The names that the persona is known by: the whole one and its first word.
pub(super) fn names(config: Option<&PersonaConfig>) -> Vec<String> {
    let Some(config) = config else { return Vec::new() };
    let name = config.persona.name.trim();
    let first = name.split_whitespace().next().filter(|first| !first.ends_with('.') && *first != name);
    std::iter::once(name).chain(first).map(str::to_owned).collect()
}
