//! Repeated-mistake learning: one user's corrections are clustered by similarity, and a cluster that is large enough is
//! a rule, which is reported before the next reply to a similar task.

use std::collections::VecDeque;

use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use super::decision::{CorrectionPattern, Decision, Evidence, RankedDecision};
use super::features::{CONTENT, Features, weight};
use super::scanner::{Scan, Word};
use super::scope::names;
use super::settings::CorrectionSettings;

/// Most clusters per user; the smallest and oldest is dropped.
const CLUSTERS_MAX: usize = 64;
/// Most features stored per cluster, for its corrections and for their tasks.
const FEATURES_MAX: usize = 64;
/// Most corrections stored verbatim per cluster, and most bytes of each.
const EXAMPLES_MAX: usize = 5;
const EXAMPLE_BYTES_MAX: usize = 400;
/// Weight of a correction's features that also occur in its task.
const FROM_TASK: f32 = 0.3;
/// This many corrections on dissimilar tasks make a rule general.
const ELSEWHERE: u32 = 2;
/// A word of a kind of task weighs at least this share of the heaviest one.
const SHARED: f32 = 0.6;
/// How many words the name of a cluster has.
const NAME_WORDS: usize = 3;

/// Similar corrections.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
struct Cluster {
    count: u32,
    /// Sum of the corrections' unit vectors.
    rule: StoredFeatures,
    /// Sum of the tasks' unit vectors.
    topic: StoredFeatures,
    /// The same without names of files and identifiers: the kind of task.
    kinds: StoredFeatures,
    /// Corrections made on a task dissimilar to the earlier ones.
    elsewhere: u32,
    /// Corrections made without a task.
    anywhere: u32,
    rule_words: Vec<String>,
    topic_words: Vec<String>,
    examples: VecDeque<String>,
    /// Sequence number of the latest correction.
    latest: u64,
}

/// Features in serialised form: pairs of hash and weight.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(from = "Vec<(u32, f32)>", into = "Vec<(u32, f32)>")]
struct StoredFeatures(Features);

impl From<Vec<(u32, f32)>> for StoredFeatures {
    fn from(items: Vec<(u32, f32)>) -> Self {
        Self(Features::from_items(items))
    }
}

impl From<StoredFeatures> for Vec<(u32, f32)> {
    fn from(features: StoredFeatures) -> Self {
        features.0.items().to_vec()
    }
}

impl Cluster {
    /// Whether a task is of the kind of those that the rule was learned on: alike without its names of files, and sharing
    /// one of the words that most of them share.
    fn is_kind(&self, least: f64, kind: &Features) -> bool {
        let kinds = &self.kinds.0;
        let most = kinds.items().iter().map(|&(_, weight)| weight).fold(0.0, f32::max);
        let shares = kinds.items().iter().any(|&(hash, weight)| weight >= SHARED * most && kind.get(hash) > 0.0);
        kinds.is_empty() || shares && f64::from(kinds.cosine(kind)) >= least
    }

    fn general(&self) -> bool {
        self.anywhere > 0 || self.elsewhere >= ELSEWHERE
    }

    fn topic_name(&self) -> String {
        if self.general() || self.topic_words.is_empty() { "any".to_owned() } else { self.topic_words.join("+") }
    }

    fn rule_name(&self) -> String {
        format!(
            "corrections_on_{}",
            if self.rule_words.is_empty() { "style".to_owned() } else { self.rule_words.join("_") }
        )
    }

    fn pattern(&self, user: &str) -> CorrectionPattern {
        CorrectionPattern {
            user_id: user.to_owned(),
            topic_cluster: self.topic_name(),
            pattern_name: self.rule_name(),
            learned_from_turns: self.count as usize,
            confidence: f64::from(self.count) / (f64::from(self.count) + 2.0),
            example_corrections: self.examples.iter().cloned().collect(),
        }
    }
}

/// One user's corrections. Part of the exported state.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Corrections {
    clusters: Vec<Cluster>,
    seen: u64,
}

impl Corrections {
    /// Adds a correction that was made on `task`.
    pub(super) fn learn(&mut self, settings: &CorrectionSettings, correction: &str, task: Option<(&str, &Features)>) {
        let correction =
            correction.get(..correction.floor_char_boundary(super::scope::TEXT_BYTES_MAX)).unwrap_or_default();
        let scan = Scan::of(correction);
        let about = |hash: u32| task.map_or(0.0, |(_, task)| task.get(hash));
        // Cubed, so that rare words, which carry the rule, outweigh common ones.
        let rule = Features::of(scan.words()).map(|hash, weight| {
            let weight = if about(hash) > 0.0 { FROM_TASK * weight } else { weight };
            weight.powi(3)
        });
        if rule.is_empty() {
            return;
        }
        self.seen += 1;
        let nearest = self
            .clusters
            .iter_mut()
            .map(|cluster| (cluster.rule.0.cosine(&rule), cluster))
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .filter(|(cosine, _)| f64::from(*cosine) >= settings.same_rule);
        let cluster = if let Some((_, cluster)) = nearest {
            cluster
        } else {
            if self.clusters.len() >= CLUSTERS_MAX {
                let weakest =
                    self.clusters.iter().enumerate().min_by_key(|(_, cluster)| (cluster.count, cluster.latest));
                if let Some(at) = weakest.map(|(at, _)| at) {
                    self.clusters.remove(at);
                }
            }
            self.clusters.push(Cluster::default());
            let Some(cluster) = self.clusters.last_mut() else { return };
            cluster
        };
        cluster.count = cluster.count.saturating_add(1);
        cluster.latest = self.seen;
        cluster.rule.0.add_unit(&rule, FEATURES_MAX);
        let heavy = |word: &&Word| weight(word) >= CONTENT && about(word.hash) <= 0.0;
        merge_names(&mut cluster.rule_words, &cluster.rule.0, scan.words().iter().filter(heavy), correction);
        match task.filter(|(_, task)| !task.is_empty()) {
            None => cluster.anywhere = cluster.anywhere.saturating_add(1),
            Some((text, task)) => {
                let known = !cluster.topic.0.is_empty();
                if known && f64::from(cluster.topic.0.cosine(task)) < settings.same_topic {
                    cluster.elsewhere = cluster.elsewhere.saturating_add(1);
                }
                cluster.topic.0.add_unit(task, FEATURES_MAX);
                let scan = Scan::of(text);
                cluster.kinds.0.add_unit(&kind_of(text, &scan), FEATURES_MAX);
                let heavy = |word: &&Word| weight(word) >= CONTENT;
                merge_names(&mut cluster.topic_words, &cluster.topic.0, scan.words().iter().filter(heavy), text);
            }
        }
        let example = correction.get(..correction.floor_char_boundary(EXAMPLE_BYTES_MAX)).unwrap_or_default().trim();
        if !cluster.examples.iter().any(|stored| stored == example) {
            if cluster.examples.len() == EXAMPLES_MAX {
                cluster.examples.pop_front();
            }
            cluster.examples.push_back(example.to_owned());
        }
    }

    /// Recomputes features from the stored texts, for states written by a version that computed them differently. Each
    /// cluster has up to five corrections and its topic's keywords, which is enough to match it again.
    pub(super) fn rebuild_features(&mut self) {
        for cluster in &mut self.clusters {
            cluster.rule = StoredFeatures::default();
            for example in &cluster.examples {
                let rule = Features::of(Scan::of(example).words()).map(|_, weight| weight.powi(3));
                cluster.rule.0.add_unit(&rule, FEATURES_MAX);
            }
            let topic = Features::of(Scan::of(&cluster.topic_words.join(" ")).words());
            cluster.topic = StoredFeatures::default();
            cluster.topic.0.add_unit(&topic, FEATURES_MAX);
        }
    }

    /// The rules that apply to `task`, the most frequent first.
    fn relevant(&self, settings: &CorrectionSettings, text: &str, task: &Features) -> Vec<&Cluster> {
        let kind = kind_of(text, &Scan::of(text));
        let mut found: Vec<_> = self
            .clusters
            .iter()
            .filter(|cluster| cluster.count as usize >= settings.agree.max(1))
            .filter(|cluster| {
                let alike = f64::from(cluster.topic.0.cosine(task)) >= settings.same_topic;
                cluster.general() || alike && cluster.is_kind(settings.same_topic, &kind)
            })
            .collect();
        found.sort_by_key(|cluster| std::cmp::Reverse((cluster.count, cluster.latest)));
        found
    }

    /// The warning to give before a reply to `task`.
    pub(super) fn warning(
        &self,
        settings: &CorrectionSettings,
        user: &str,
        (text, task): (&str, &Features),
    ) -> Option<RankedDecision> {
        // Most sessions have no rule: return before any comparison.
        if self.clusters.iter().all(|cluster| (cluster.count as usize) < settings.agree.max(1)) {
            return None;
        }
        let patterns: Vec<_> =
            self.relevant(settings, text, task).into_iter().map(|cluster| cluster.pattern(user)).collect();
        let most = patterns.first()?.learned_from_turns;
        Some(RankedDecision {
            decision: Decision::ProceduralWarning { patterns },
            evidence: vec![Evidence::new("agreeing_corrections", most as f64, settings.agree as f64)],
        })
    }

    /// All rules, the most frequent first.
    pub(super) fn patterns(&self, settings: &CorrectionSettings, user: &str) -> Vec<CorrectionPattern> {
        let mut clusters: Vec<_> =
            self.clusters.iter().filter(|cluster| cluster.count as usize >= settings.agree.max(1)).collect();
        clusters.sort_by_key(|cluster| std::cmp::Reverse((cluster.count, cluster.latest)));
        clusters.into_iter().map(|cluster| cluster.pattern(user)).collect()
    }
}

/// Formats rules as pending signal blocks for the governed memory (memory specification, §1), for a person to accept.
/// Numbered from `first`; block numbers end at 999, and further rules are omitted.
pub fn signal_blocks(patterns: &[CorrectionPattern], date: Date, first: u16) -> String {
    let line = |value: &str| value.split_whitespace().collect::<Vec<_>>().join(" ");
    let block = |(pattern, number): (&CorrectionPattern, u16)| {
        let user = if pattern.user_id.is_empty() { "anonymous" } else { &pattern.user_id };
        let examples: Vec<_> =
            pattern.example_corrections.iter().map(|example| format!("\"{}\"", line(example))).collect();
        format!(
            "[SIG-{}-{number:03}]\nDate: {date}\nType: correction\nSource: regulator/{}\nStatus: pending\nExcerpt: {} ({} \
             corrections on {}): {}\n\n",
            date.strftime("%Y%m%d"),
            line(user),
            line(&pattern.pattern_name),
            pattern.learned_from_turns,
            line(&pattern.topic_cluster),
            examples.join("; "),
        )
    };
    patterns.iter().zip(first.max(1)..1000).map(block).collect()
}

/// The features of a task without names of files and identifiers.
fn kind_of(text: &str, scan: &Scan) -> Features {
    let named = |word: &&Word| {
        let (start, end) = (word.start as usize, word.end as usize);
        let own = text.get(start..end).unwrap_or_default();
        let before = text.get(..start).and_then(|text| text.chars().next_back());
        let mut after = text.get(end..).unwrap_or_default().chars();
        let (next, beyond) = (after.next(), after.next());
        let joined = |c: Option<char>| matches!(c, Some('/' | '_' | '\\' | '.' | ':' | '`'));
        let dotted = next == Some('.') && !beyond.is_some_and(char::is_alphanumeric);
        let camel = own.char_indices().any(|(at, c)| at > 0 && c.is_uppercase()) && own.contains(char::is_lowercase);
        joined(before)
            || joined(next) && !dotted && next != Some(':')
            || camel
            || own.contains(|c: char| c.is_ascii_digit())
    };
    Features::of(scan.words().iter().filter(|word| !named(word)))
}

/// The hash of a word.
fn feature(word: &str) -> Option<u32> {
    Scan::of(word).words().first().map(|word| word.hash)
}

/// Merges `words` into `stored` and keeps those with the largest weights in the cluster.
fn merge_names<'a>(
    stored: &mut Vec<String>,
    centroid: &Features,
    words: impl Iterator<Item = &'a Word>,
    text: &'a str,
) {
    let mut all: Vec<String> = std::mem::take(stored);
    for name in names(words.map(|word| (word, text))) {
        if !all.iter().any(|known| feature(known) == feature(&name)) {
            all.push(name);
        }
    }
    let heft = |name: &String| feature(name).map_or(0.0, |hash| centroid.get(hash));
    all.sort_by(|a, b| heft(b).total_cmp(&heft(a)));
    all.truncate(NAME_WORDS);
    *stored = all;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(text: &str) -> Features {
        Features::of(Scan::of(text).words())
    }

    fn taught(corrections: &[(&str, &str)]) -> Corrections {
        let mut memory = Corrections::default();
        for (task, correction) in corrections {
            let about = features(task);
            memory.learn(&CorrectionSettings::default(), correction, Some((task, &about)));
        }
        memory
    }

    fn counts(memory: &Corrections) -> Vec<u32> {
        memory.clusters.iter().map(|cluster| cluster.count).collect()
    }

    const DOCSTRINGS: [(&str, &str); 3] = [
        ("Refactor the loader function.", "Don't add docstrings to refactored output."),
        ("Please refactor this class.", "Stop adding docstrings when you refactor!"),
        ("Refactor the retry helper.", "I told you before: no docstrings."),
    ];

    #[test]
    fn paraphrases_are_one_rule_and_another_rule_is_another() {
        assert_eq!(counts(&taught(&DOCSTRINGS)), [3]);
        let other = ("Refactor the cache.", "Don't add logging to refactored output.");
        assert_eq!(counts(&taught(&[DOCSTRINGS.as_slice(), &[other]].concat())), [3, 1]);
        let german = [
            ("Schreib eine Zusammenfassung.", "Bitte keine Aufzählungszeichen verwenden."),
            ("Fasse das Kapitel zusammen.", "Schon wieder Aufzählungszeichen, lass das."),
        ];
        assert_eq!(counts(&taught(&german)), [2]);
        assert_eq!(counts(&taught(&[("x", "?!")])), [] as [u32; 0]);
    }

    #[test]
    fn three_similar_corrections_warn_on_a_similar_task() {
        let warning = |memory: &Corrections, task: &str| {
            memory.warning(&CorrectionSettings::default(), "u", (task, &features(task)))
        };
        let memory = taught(&DOCSTRINGS);
        assert_eq!(warning(&taught(&DOCSTRINGS[..2]), "Refactor the parser."), None, "two are not enough");
        assert_eq!(warning(&memory, "Book a table for two at the Italian restaurant."), None);
        let Some(RankedDecision { decision: Decision::ProceduralWarning { patterns }, .. }) =
            warning(&memory, "Refactor the parser.")
        else {
            panic!("a warning")
        };
        assert_eq!(patterns[0].learned_from_turns, 3);
        assert_eq!((patterns[0].user_id.as_str(), patterns[0].confidence), ("u", 0.6));
        assert!(patterns[0].topic_cluster.contains("refactor"), "{patterns:?}");
        assert!(patterns[0].pattern_name.starts_with("corrections_on_docstrings"), "{patterns:?}");
        assert_eq!(patterns[0].example_corrections.len(), 3);
    }

    #[test]
    fn state_of_an_older_version_still_matches() {
        let mut memory = taught(&DOCSTRINGS);
        for cluster in &mut memory.clusters {
            (cluster.rule, cluster.topic) = (vec![(1, 1.0)].into(), vec![(1, 1.0)].into());
        }
        memory.rebuild_features();
        let about = features("Refactor the cache.");
        let settings = CorrectionSettings::default();
        assert!(memory.warning(&settings, "u", ("Refactor the cache.", &about)).is_some());
        memory.learn(&settings, "No docstrings when you refactor!", Some(("Refactor the cache.", &about)));
        assert_eq!(counts(&memory), [4]);
    }

    #[test]
    fn a_rule_learned_on_dissimilar_tasks_applies_to_all() {
        let memory = taught(&[
            ("Translate this menu.", "Use metric units please."),
            ("How tall is the tower?", "Metric units, not feet!"),
            ("Write a bread recipe.", "Again: metric units."),
        ]);
        assert!(
            memory
                .warning(
                    &CorrectionSettings::default(),
                    "u",
                    ("Plan a bicycle tour.", &features("Plan a bicycle tour."))
                )
                .is_some()
        );
    }

    #[test]
    fn a_shared_file_name_does_not_make_tasks_of_one_kind() {
        let memory = taught(&[
            ("Refactor src/loader.py.", "No docstrings, please."),
            ("Refactor the class in src/loader.py.", "Docstrings again! Leave them out."),
            ("Refactor load_all in src/loader.py.", "I said no docstrings."),
        ]);
        let warns = |task: &str| memory.warning(&CorrectionSettings::default(), "u", (task, &features(task))).is_some();
        assert!(warns("Refactor src/cache.py.") && warns("Please refactor src/loader.py once more."));
        assert!(
            !warns("Delete src/loader.py.")
                && !warns("Who wrote src/loader.py?")
                && !warns("Translate src/loader.py to Go.")
        );
    }

    #[test]
    fn memory_is_bounded_and_frequent_rules_are_retained() {
        let mut memory = taught(&DOCSTRINGS);
        let long = "schlecht ".repeat(1000);
        for i in 0..500u32 {
            let word: String = (0..5).map(|d| char::from(b'a' + (i >> (2 * d) & 3) as u8 * 5 + d as u8)).collect();
            memory.learn(&CorrectionSettings::default(), &format!("{word}{word} {word} {long}{i}"), None);
        }
        assert!(memory.clusters.len() <= CLUSTERS_MAX);
        assert!(memory.clusters.iter().any(|cluster| cluster.count == 3), "the rule survives");
        assert!(memory.clusters.iter().all(|cluster| cluster.examples.iter().all(|e| e.len() <= EXAMPLE_BYTES_MAX)));
        assert!(memory.clusters.iter().all(|cluster| cluster.rule.0.items().len() <= FEATURES_MAX));
    }

    #[test]
    fn rules_become_pending_signals_one_line_each() {
        let patterns = taught(&DOCSTRINGS).patterns(&CorrectionSettings::default(), "user_123");
        let text = signal_blocks(&patterns, jiff::civil::date(2026, 2, 13), 7);
        assert!(text.starts_with("[SIG-20260213-007]\nDate: 2026-02-13\nType: correction\nSource: regulator/user_123\nStatus: pending\nExcerpt: corrections_on_docstrings"), "{text}");
        assert_eq!(text.lines().count(), 7);
        assert_eq!(signal_blocks(&patterns, jiff::civil::date(2026, 2, 13), 1000), "");
    }
}
