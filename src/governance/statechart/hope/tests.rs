//! The chart against its original diagram, the rules against their table, and properties of every run.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::foundation::config::Choice;
use crate::governance::statechart::{Configuration, StateId, StateKind, start, step};

/// A state's name in the original diagram, if it is shown there.
fn drawn_name(chart: &Chart<HopeVocabulary>, id: StateId) -> Option<String> {
    let state = chart.state(id);
    if state.amendment.is_some() || state.kind != StateKind::Atomic {
        return None;
    }
    let cluster =
        state.path.rsplit('.').skip(1).find(|part| ["intent", "shape", "loop", "consult", "soul"].contains(part));
    Some(cluster.map_or(state.name.clone(), |cluster| format!("{cluster}_{}", state.name)))
}

#[test]
fn the_chart_without_its_amendments_is_the_original_diagram() {
    let drawing = include_str!("../../../../tests/data/hope_diagram.txt");
    let lines: Vec<_> = drawing.lines().filter(|line| !line.starts_with('#')).collect();
    let mut drawn: BTreeSet<(String, String, String)> = BTreeSet::new();
    for line in &lines {
        let (edge, label) = line.split_once(" : ").unwrap_or((line, ""));
        let (from, to) = edge.split_once(" -> ").unwrap();
        // One edge appears twice, the second time with a longer label.
        drawn.insert((from.to_owned(), to.to_owned(), label.trim_end_matches(" (back to clarify)").to_owned()));
    }
    assert_eq!((lines.len(), drawn.len()), (47, 46));

    let chart = chart().unwrap();
    let first_layer = chart.transitions().filter(|(_, transition)| transition.amendment.is_none());
    let ours: BTreeSet<_> = first_layer
        .map(|(_, transition)| {
            let name = |id| drawn_name(&chart, id).unwrap_or_else(|| chart.state(id).path.clone());
            (name(transition.source), name(transition.targets[0]), transition.label.clone().unwrap_or_default())
        })
        .collect();
    assert_eq!(ours, drawn);
    assert_eq!(chart.states().filter_map(|(id, _)| drawn_name(&chart, id)).count(), 37);
}

#[test]
fn every_name_of_the_vocabulary_is_used() {
    let uses = |word: &str| TEXT.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|used| used == word);
    let unused: Vec<_> = Event::NAMES
        .iter()
        .map(|(word, _)| *word)
        .chain(Guard::NAMES.iter().map(|(word, _)| *word))
        .chain(Action::NAMES.iter().map(|(word, _)| *word))
        .filter(|word| !uses(word))
        .collect();
    assert_eq!(unused, Vec::<&str>::new());
}

#[test]
fn the_diagrams_in_the_docs_are_those_of_the_chart() {
    let chart = chart().unwrap();
    for (name, drawn) in [("hope.dot", chart.to_dot()), ("hope.mmd", chart.to_mermaid())] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/charts").join(name);
        let language = if name.ends_with("dot") { "dot" } else { "mermaid" };
        let help = format!("renew it with `loom chart show hope --format {language} > docs/charts/{name}`");
        assert!(fs::read_to_string(path).is_ok_and(|text| text == drawn), "{help}");
    }
}

fn shape(word: &str) -> Shape {
    match word {
        "T" => Shape::Tool,
        "R" => Shape::ToolReview,
        "C" => Shape::Colleague,
        other => panic!("{other}"),
    }
}

fn scores(words: &[&str]) -> SpecScores {
    let clarity = |word: &str| [Clarity::Absent, Clarity::Partial, Clarity::Clear][word.parse::<usize>().unwrap()];
    SpecScores {
        outcome: clarity(words[0]),
        scope: clarity(words[1]),
        constraints: clarity(words[2]),
        success: clarity(words[3]),
        done: clarity(words[4]),
    }
}

fn footer(words: &[&str]) -> Footer {
    Footer {
        verified: match words[0] {
            "execution" => Verification::ExecutionOutput,
            "observation" => Verification::Observation,
            "measurement" => Verification::Measurement,
            "review" => Verification::Review,
            "assumption" => Verification::Assumption,
            other => panic!("{other}"),
        },
        finding: match words[1] {
            "holds" => FooterFinding::Holds,
            "fails" => FooterFinding::Fails,
            "untold" => FooterFinding::CannotTell,
            other => panic!("{other}"),
        },
        reversible: match words[2] {
            "2A" => Reversibility::InOneMinute,
            "2B" => Reversibility::InFiveMinutes,
            "1" => Reversibility::Hardly,
            other => panic!("{other}"),
        },
        points: 3,
        planned: words[3] == "planned",
        alternative: "ask first".to_owned(),
        risk: "the sample is small".to_owned(),
    }
}

/// The result of a rule of the table.
fn result_of(rule: &str, words: &[&str]) -> String {
    let yes = |word: &str| word == "yes";
    match rule {
        "spec" => {
            let scores = scores(words);
            format!("{} {:?}", scores.points(), scores.route())
        }
        "fit" => {
            let [constraints, success, done] = [words[5], words[6], words[7]].map(yes);
            let familiarity = words[8].parse::<u8>().unwrap().try_into().unwrap();
            let fit = FitScore { spec: scores(words), constraints, success, done, familiarity };
            format!("{} {}", fit.points(), fit.shape().map_or("blocked".to_owned(), |shape| format!("{shape:?}")))
        }
        "shape" => {
            let columns: Vec<_> = words.iter().map(|word| shape(word)).collect();
            let [
                decomposition,
                interdependency,
                novelty,
                risk,
                ambiguity,
                domain_knowledge,
                verification,
                reversibility,
            ] = columns[..].try_into().unwrap();
            let aspects = Aspects {
                decomposition,
                interdependency,
                novelty,
                risk,
                ambiguity,
                domain_knowledge,
                verification,
                reversibility,
            };
            let ShapeSelection { shape, reason } = aspects.select();
            format!("{shape:?} {reason:?}")
        }
        "expert" => {
            let [curated, extensive_work, core_topic, outside, recent] =
                ["curated", "extensive", "core", "outside", "recent"].map(|word| words.contains(&word));
            let confidence =
                ExpertConfidence::of(&ExpertProfile { curated, extensive_work, core_topic, outside, recent });
            let verb = if confidence.refuses() {
                "refuse"
            } else if confidence.warns() {
                "warn"
            } else {
                "speak"
            };
            format!("{} {verb}", confidence.points())
        }
        "verdict" => format!("{:?}", footer(words).verdict()),
        "footer" => footer(words).to_string(),
        "echo" => {
            let parts: Vec<_> = words.join(" ").split(" + ").map(str::to_owned).collect();
            let part = |index: usize| parts.get(index).map(|part| part.trim()).filter(|part| *part != "-");
            Echo { deliverable: &parts[0], must_include: part(1), constraint: part(2) }.to_string()
        }
        other => panic!("the table has no rule `{other}`"),
    }
}

#[test]
fn the_rules_agree_with_their_table() {
    let table = include_str!("../../../../tests/data/hope_rules.txt");
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (given, expected) = line.split_once(" => ").unwrap();
        let words: Vec<_> = given.split_whitespace().collect();
        assert_eq!(result_of(words[0], &words[1..]), expected, "{line}");
    }
}

#[test]
fn out_of_range_values_are_refused() {
    assert!(Familiarity::try_from(11).is_err() && Familiarity::try_from(10).is_ok());
}

#[test]
fn unknown_facts_have_cautious_defaults() {
    let facts = Facts::default();
    let holding: Vec<_> = Guard::NAMES.iter().filter(|(_, guard)| facts.holds(*guard)).map(|(word, _)| *word).collect();
    assert_eq!(holding, ["spec_low", "fit_blocked", "confidence_too_low"]);
}

#[test]
fn the_plain_way_from_a_need_to_a_result() {
    let chart = chart().unwrap();
    let clear = SpecScores {
        outcome: Clarity::Clear,
        scope: Clarity::Clear,
        constraints: Clarity::Clear,
        success: Clarity::Partial,
        done: Clarity::Partial,
    };
    let fit = FitScore { spec: clear, ..FitScore::default() };
    let mut facts = Facts { spec: clear, fit, gate_passed: true, ..Facts::default() };
    let mut log_text = String::new();
    let mut now = start(&chart, |guard| facts.holds(guard)).configuration;
    for event in [
        Event::Need,
        Event::TypeDetected,
        Event::EngagementChosen,
        Event::Extracted,
        Event::AspectsScored,
        Event::PanelHeard,
        Event::ShapeSelected,
        Event::Shaped,
        Event::FitScored,
        Event::Yes,
        Event::Decomposed,
        Event::Consult,
        Event::BlocklistLoaded,
        Event::Panel,
        Event::ExpertsSelected,
        Event::Debated,
        Event::Pause,
        Event::Resume,
        Event::TensionsSurfaced,
        Event::Advised,
        Event::WaveDone,
        Event::Response,
        Event::Audited,
        Event::FooterWritten,
        Event::Reviewed,
        Event::Verification,
        Event::Satisfied,
    ] {
        let taken = step(&chart, &now, event, |guard| facts.holds(guard));
        assert_eq!(taken.denial, None, "{event:?}");
        taken.effects.iter().for_each(|action| facts.note(*action));
        now = taken.configuration;
        let leaves: Vec<_> = now.leaves(&chart).iter().map(|path| path.trim_start_matches("session.")).collect();
        writeln!(log_text, "{event:?}: {:?} -> {}", taken.effects, leaves.join(", ")).unwrap();
    }
    assert_eq!(facts.held, Agreement::Shape);
    insta::assert_snapshot!(log_text);
}

/// Runs events, all of which must be accepted; returns the active leaf of the work after each.
fn play(facts: &Facts, events: &[Event]) -> Vec<String> {
    let chart = chart().unwrap();
    let mut now = start(&chart, |guard| facts.holds(guard)).configuration;
    let mut leaves = Vec::new();
    for event in events {
        let taken = step(&chart, &now, *event, |guard| facts.holds(guard));
        assert_eq!(taken.denial, None, "{event:?}");
        now = taken.configuration;
        leaves.push(now.leaves(&chart)[0].rsplit('.').next().unwrap().to_owned());
    }
    leaves
}

#[test]
fn there_are_at_most_three_rounds_of_clarifying() {
    let rounds = [Event::Answered, Event::SpecScored].repeat(3);
    let leaves = play(&Facts::default(), &[&[Event::Need, Event::Acknowledged], rounds.as_slice()].concat());
    assert_eq!(leaves.iter().filter(|leaf| *leaf == "clarify").count(), 3);
    assert_eq!(leaves.last().unwrap(), "echo_check");
}

#[test]
fn three_failed_recommendations_end_the_consult_and_the_next_one_has_three_again() {
    let consult = [Event::Consult, Event::BlocklistLoaded, Event::Unblock, Event::BlockerParsed, Event::Diagnosed];
    let failures = [Event::RecommendFailed; 3];
    let twice = [consult.as_slice(), &failures].concat().repeat(2);
    let leaves = play(&Facts::default(), &[&[Event::Need], twice.as_slice()].concat());
    let back: Vec<_> = (0..leaves.len()).filter(|index| leaves[*index] == "acknowledge").collect();
    assert_eq!(back, [0, 8, 16]);
    // With a shape in hand the user decides.
    let facts = Facts { held: Agreement::Shape, ..Facts::default() };
    let leaves = play(&facts, &[&[Event::Need], consult.as_slice(), &failures].concat());
    assert_eq!(leaves.last().unwrap(), "review_feedback");
}

#[test]
fn an_audit_that_blocks_pauses_the_work() {
    let facts = Facts { audit_blocks: true, ..Facts::default() };
    let leaves = play(&facts, &[Event::Need, Event::Response, Event::Audited, Event::FooterWritten, Event::Resume]);
    assert_eq!(leaves, ["acknowledge", "acknowledge", "paused", "paused", "acknowledge"]);
}

fn legal(chart: &Chart<HopeVocabulary>, configuration: &Configuration) -> bool {
    let active = configuration.active();
    chart.states().filter(|(id, _)| active.contains(*id)).all(|(_, state)| {
        let inside = state.children.and(active).len();
        let parent = state.parent.is_some_and(|parent| parent == StateId::ROOT || active.contains(parent));
        parent
            && match state.kind {
                StateKind::Compound => inside == 1,
                StateKind::Parallel => inside == state.children.len(),
                _ => inside == 0,
            }
    })
}

proptest! {
    #[test]
    fn every_event_gives_a_result_and_the_log_replays(
        // Mostly events with an enabled transition, so that runs go deep; sometimes any event.
        run in proptest::collection::vec((any::<prop::sample::Index>(), any::<u16>(), 0..8u8), 0..100),
    ) {
        let chart = chart().unwrap();
        let mut now = start(&chart, |_| false).configuration;
        let mut log = Vec::new();
        for (index, bits, any_event) in run {
            let heard: Vec<Event> = Event::NAMES
                .iter()
                .map(|(_, event)| *event)
                .filter(|event| any_event == 0 || step(&chart, &now, *event, |_| false).denial.is_none())
                .collect();
            let event = *index.get(&heard);
            let tested = RefCell::new(Vec::new());
            let taken = step(&chart, &now, event, |guard| {
                let answer = bits >> (guard as u16) & 1 == 1;
                tested.borrow_mut().push((guard, answer));
                answer
            });
            prop_assert!(legal(&chart, &taken.configuration));
            prop_assert_eq!(taken.denial.is_some(), taken.trace.is_empty());
            if taken.denial.is_some() {
                prop_assert_eq!(&taken.configuration, &now);
                prop_assert!(taken.effects.is_empty());
            }
            now = taken.configuration.clone();
            log.push((event, tested.into_inner(), taken));
        }
        let mut again = start(&chart, |_| false).configuration;
        for (event, answers, live) in log {
            let answer = |guard| answers.iter().find(|(tested, _)| *tested == guard).is_some_and(|(_, answer)| *answer);
            let replayed = step(&chart, &again, event, answer);
            prop_assert_eq!(&replayed, &live);
            again = replayed.configuration;
        }
    }

    #[test]
    fn any_text_is_a_chart_or_a_list_of_problems(text in "(chart x\n)?([ ]{0,4}(state|on|history|initial|always|[a-z\"@/>,-]{1,3})?( [a-z.]{1,3}| deep| ->| \\[| \\]| @1| \"t\"){0,5}\n){0,12}") {
        if let Err(errors) = Chart::<HopeVocabulary>::load("any", &text) {
            prop_assert!(errors.problems().count() > 0);
        }
    }
}
