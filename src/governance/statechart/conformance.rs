//! Conformance with the charts of `@scion-scxml/test-framework` that need no data model and no `send`, converted to this
//! interpreter's text and executed event by event. `scripts/check-scion.sh` fetches them.
//!
//! Event descriptors (`foo.*`, `*`) are expanded to the events that a test uses: the interpreter does not support them,
//! since its events are the variants of an enum.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use roxmltree::{Document, Node};
use serde_json::Value;

use super::chart::{Chart, Vocabulary};
use super::step::{start, step};
use crate::foundation::config::Choice;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Numbered;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Event(usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Guard {
    True,
    False,
}

/// The tests use no actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Action {}

crate::config_choices! {
    Guard { "true" => True, "false" => False }
    Action {}
}

macro_rules! numbered {
    ($($number:literal)*) => { &[$((concat!("e", $number), Event($number))),*] };
}

impl Choice for Event {
    const NAMES: &'static [(&'static str, Self)] =
        numbered!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23);
}

impl Vocabulary for Numbered {
    type Event = Event;
    type Guard = Guard;
    type Action = Action;
}

#[test]
#[ignore = "needs the charts that scripts/check-scion.sh fetches"]
fn scion_charts_reach_the_expected_configurations() {
    let folder =
        PathBuf::from(std::env::var_os("LOOM_SCION_TESTS").expect("LOOM_SCION_TESTS names the folder of the tests"));
    let mut tallies: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    let mut failed = Vec::new();
    for script in scripts(&folder) {
        let name = script.strip_prefix(&folder).unwrap().with_extension("").display().to_string();
        let tally = tallies.entry(name.split('/').next().unwrap().to_owned()).or_default();
        tally[2] += 1;
        match play(&script) {
            Outcome::NotForUs => continue,
            Outcome::Passed => tally[0] += 1,
            Outcome::Failed(why) => failed.push(format!("{name}: {why}")),
        }
        tally[1] += 1;
    }
    println!("{:<36} {:>6} {:>6} {:>6}", "folder", "passed", "of", "total");
    let mut sum = [0; 3];
    for (folder, tally) in &tallies {
        println!("{folder:<36} {:>6} {:>6} {:>6}", tally[0], tally[1], tally[2]);
        sum.iter_mut().zip(tally).for_each(|(sum, count)| *sum += count);
    }
    println!("{:<36} {:>6} {:>6} {:>6}", "all", sum[0], sum[1], sum[2]);
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
    assert!(sum[1] >= 100, "the charts are there");
}

fn scripts(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(scripts(&path));
        } else if path.extension().is_some_and(|extension| extension == "json") {
            found.push(path);
        }
    }
    found.sort();
    found
}

enum Outcome {
    NotForUs,
    Passed,
    Failed(String),
}

fn play(script: &Path) -> Outcome {
    let xml = fs::read_to_string(script.with_extension("scxml")).unwrap();
    let script: Value = serde_json::from_str(&fs::read_to_string(script).unwrap()).unwrap();
    let document = Document::parse(&xml).unwrap();
    let events: Vec<&Value> = script["events"].as_array().unwrap().iter().collect();
    let names = events.iter().filter_map(|event| event["event"]["name"].as_str()).map(str::to_owned).collect();
    let Some(mut converter) = Converter::new(document.root_element(), names) else { return Outcome::NotForUs };
    let Some(text) = converter.chart() else { return Outcome::NotForUs };
    let chart = match Chart::<Numbered>::read("scion", &text) {
        Ok(chart) => chart,
        Err(errors) => return Outcome::Failed(format!("{:?}\n{text}", errors.problems().collect::<Vec<_>>())),
    };
    let holds = |guard| guard == Guard::True;
    let ids = |list: &Value| -> BTreeSet<String> {
        list.as_array().unwrap().iter().map(|id| converter.paths[id.as_str().unwrap()].clone()).collect()
    };
    let mut now = start(&chart, holds).configuration;
    let mut expected = ids(&script["initialConfiguration"]);
    for (index, event) in events.iter().map(Some).chain([None]).enumerate() {
        let active: BTreeSet<String> = now.leaves(&chart).into_iter().map(str::to_owned).collect();
        if active != expected {
            return Outcome::Failed(format!("after {index} events {active:?}, not {expected:?}\n{text}"));
        }
        let Some(event) = event else { break };
        let number = converter.event(event["event"]["name"].as_str().unwrap()).unwrap();
        now = step(&chart, &now, Event(number), holds).configuration;
        expected = ids(&event["nextConfiguration"]);
    }
    Outcome::Passed
}

struct Converter<'x> {
    root: Node<'x, 'x>,
    /// The test's events; an event's index is its number.
    events: Vec<String>,
    /// Each id's path in the chart.
    paths: BTreeMap<String, String>,
    /// Each state's name in the chart, by its node in the document.
    names: BTreeMap<usize, String>,
}

const STATES: [&str; 4] = ["state", "parallel", "final", "history"];
const CONTENT: [&str; 7] = ["scxml", "transition", "onentry", "onexit", "initial", "raise", "log"];

impl<'x> Converter<'x> {
    /// `None` if the chart needs an unsupported feature.
    fn new(root: Node<'x, 'x>, events: BTreeSet<String>) -> Option<Self> {
        let mut converter =
            Self { root, events: events.into_iter().collect(), paths: BTreeMap::new(), names: BTreeMap::new() };
        for (index, node) in root.descendants().filter(Node::is_element).enumerate() {
            let tag = node.tag_name().name();
            if STATES.contains(&tag) {
                let id = node.attribute("id").map_or_else(|| format!("anonymous_{index}"), str::to_owned);
                let name = id.replace(|c: char| !c.is_alphanumeric(), "_");
                let outer = node.ancestors().skip(1).find_map(|outer| converter.names.get(&outer.id().get_usize()));
                let outer = outer.map(|outer| converter.paths[outer].clone());
                let path = outer.map_or(name.clone(), |outer| format!("{outer}.{name}"));
                converter.names.insert(node.id().get_usize(), id.clone());
                converter.paths.insert(id, path);
            } else if !CONTENT.contains(&tag) {
                return None;
            }
            for word in node.attribute("event").into_iter().flat_map(str::split_whitespace) {
                let plain = !word.ends_with('*') && !word.starts_with("done.state.");
                if plain && !converter.events.iter().any(|known| known == word) {
                    converter.events.push(word.to_owned());
                }
            }
        }
        Some(converter)
    }

    fn event(&self, name: &str) -> Option<usize> {
        self.events.iter().position(|known| known == name)
    }

    fn chart(&mut self) -> Option<String> {
        let mut text = "chart scion\n".to_owned();
        self.inside(self.root, 0, &mut text)?;
        Some(text)
    }

    fn inside(&self, node: Node<'x, 'x>, depth: usize, text: &mut String) -> Option<()> {
        let pad = "  ".repeat(depth);
        if let Some(targets) = node.attribute("initial") {
            writeln!(text, "{pad}initial {}", self.targets(targets)).unwrap();
        }
        for child in node.children().filter(Node::is_element) {
            let tag = child.tag_name().name();
            match tag {
                "initial" => {
                    let transition = child.children().find(Node::is_element)?;
                    let targets = self.targets(transition.attribute("target")?);
                    writeln!(text, "{pad}initial {targets}{}", self.acts(transition, " / ")?).unwrap();
                }
                "onentry" | "onexit" => {
                    let acts = self.acts(child, "")?;
                    let keyword = if tag == "onentry" { "entry" } else { "exit" };
                    if !acts.is_empty() {
                        writeln!(text, "{pad}{keyword} {acts}").unwrap();
                    }
                }
                "transition" => writeln!(text, "{pad}{}", self.transition(child)?).unwrap(),
                "history" => {
                    let default = child.children().find(Node::is_element)?;
                    let targets = self.targets(default.attribute("target")?);
                    let depth = child.attribute("type").unwrap_or("shallow");
                    let name = self.name(child);
                    writeln!(text, "{pad}history {name} {depth} -> {targets}{}", self.acts(default, " / ")?).unwrap();
                }
                "state" | "parallel" | "final" => {
                    writeln!(text, "{pad}{tag} {}", self.name(child)).unwrap();
                    self.inside(child, depth + 1, text)?;
                }
                _ => {}
            }
        }
        Some(())
    }

    fn name(&self, node: Node<'x, 'x>) -> &str {
        self.paths[&self.names[&node.id().get_usize()]].rsplit('.').next().unwrap()
    }

    fn targets(&self, ids: &str) -> String {
        ids.split_whitespace().map(|id| self.paths[id].clone()).collect::<Vec<_>>().join(", ")
    }

    fn acts(&self, node: Node<'x, 'x>, before: &str) -> Option<String> {
        let mut acts = Vec::new();
        for raise in node.children().filter(|child| child.tag_name().name() == "raise") {
            acts.push(format!("raise e{}", self.event(raise.attribute("event")?)?));
        }
        Some(if acts.is_empty() { String::new() } else { format!("{before}{}", acts.join(", ")) })
    }

    fn transition(&self, node: Node<'x, 'x>) -> Option<String> {
        let mut line = match node.attribute("event") {
            None => "always".to_owned(),
            Some(words) => {
                let triggers: BTreeSet<_> = words.split_whitespace().flat_map(|word| self.triggers(word)).collect();
                format!("on {}", triggers.into_iter().collect::<Vec<_>>().join(", "))
            }
        };
        if let Some(condition) = node.attribute("cond") {
            let (not, plain) = condition.trim().strip_prefix('!').map_or(("", condition.trim()), |rest| ("not ", rest));
            let condition = match plain.strip_prefix("In('").and_then(|rest| rest.strip_suffix("')")) {
                Some(id) => format!("in {}", self.paths[id]),
                None if plain == "true" || plain == "false" => plain.to_owned(),
                None => return None,
            };
            write!(line, " [{not}{condition}]").unwrap();
        }
        line.push_str(&self.acts(node, " / ")?);
        if let Some(targets) = node.attribute("target") {
            let arrow = if node.attribute("type") == Some("internal") { "~>" } else { "->" };
            write!(line, " {arrow} {}", self.targets(targets)).unwrap();
        }
        Some(line)
    }

    /// The events that a descriptor stands for.
    fn triggers(&self, descriptor: &str) -> Vec<String> {
        let prefix = descriptor.trim_end_matches('*').trim_end_matches('.');
        let all = self.paths.iter().map(|(id, path)| (format!("done.state.{id}"), format!("done({path})")));
        let events = self.events.iter().enumerate().map(|(number, name)| (name.clone(), format!("e{number}")));
        let is_meant = |name: &str| prefix.is_empty() || name == prefix || name.starts_with(&format!("{prefix}."));
        events.chain(all).filter(|(name, _)| is_meant(name)).map(|(_, word)| word).collect()
    }
}
