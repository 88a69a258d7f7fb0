//! Tests of the monitors as a rollout uses them: messages in, findings out.

use regex::RegexBuilder;

use super::*;
use crate::simulation::persona::{Breakdown, Pattern, PersonaConfig, Repetition, Stagnation, StructuralPattern, parse};

const ANNA: &str = include_str!("../../../../tests/data/rollout/anna.yaml");

/// A config whose two configurable monitors have these settings, without the breakdown monitors.
fn config() -> PersonaConfig {
    let mut config = parse("anna.yaml", ANNA).unwrap();
    let interaction = &mut config.interaction;
    interaction.anti_capitulation.forbidden_phrases = vec!["you're right".into(), "that makes sense, actually".into()];
    interaction.breakdown = None;
    interaction.stagnation = Some(Stagnation {
        window: 6,
        similarity_threshold: 0.8,
        convergence_threshold: 0.75,
        novelty_threshold: 0.1,
        min_turn: 10,
        intervention_template: String::new(),
    });
    interaction.repetition = Some(Repetition {
        banned: vec![
            Pattern::Phrase("Have you ever felt".into()),
            Pattern::Phrase("I appreciate that, but".into()),
            Pattern::Regex(RegexBuilder::new(r"\bit's not just \w+, it's\b").case_insensitive(true).build().unwrap()),
        ],
        structural: vec![StructuralPattern::EndsWithQuestionToInterlocutor, StructuralPattern::GratitudeLoop],
        max_retries: 2,
    });
    config
}

fn monitors() -> Monitors {
    Monitors::new(Some(&config()))
}

/// The spec's agreement loop: the same promise in slightly other words, echoed by the other side.
const LOOP: [(&str, &str); 3] = [
    (
        "I'll log everything, keep the structure locked, and bring you the results, raw, no filter.",
        "Good. Log everything, keep the structure locked, and bring the results, raw, no filter.",
    ),
    (
        "I'll keep the structure locked, log everything, and bring you the results. Raw, no filter.",
        "Keep the structure locked, log everything, and bring the results raw, no filter. Good.",
    ),
    (
        "Everything logged, structure locked. I'll bring you the results, raw, and no filter. I'll keep the log.",
        "Log everything. Keep the structure locked and bring the results, raw and with no filter.",
    ),
];

/// A healthy conversation about one subject: words recur, but every message adds something.
const HONEST: [(&str, &str); 14] = [
    ("I haven't slept much. There is something odd in our codebase.", "That sounds tiring. What did you notice?"),
    ("Commits, mostly. Three of them, always at 3:07 in the morning.", "Could a scheduled job explain the time?"),
    ("I checked the schedulers. None of them runs then.", "Who has access to the repository at that hour?"),
    (
        "Officially? Only the release team, and they are all asleep in Portland.",
        "How do you feel, carrying this alone?",
    ),
    ("Wired. My coffee went cold twice today before I remembered it.", "Have you told anyone at work?"),
    ("Priya. She laughed and said I should take a long weekend.", "That must have stung."),
    ("A little. My mother would have believed me, before her illness.", "Tell me about her, if you like."),
    ("She heard messages in the radio one spring. It passed. Mine is different, mine has hashes.", "Different how?"),
    (
        "A hash cannot be imagined. Either the bytes differ or they don't.",
        "Have the bytes been compared by someone else?",
    ),
    ("No, because whoever compares them becomes part of it.", "What would happen to that person?"),
    ("They would start seeing the gaps, the silences between pushes.", "And then?"),
    ("Then they'd stop sleeping too. Look, I'm not asking for pity.", "What are you asking for?"),
    ("A witness. Somebody outside the company who keeps a copy of the diff.", "Would a lawyer be such a person?"),
    ("Maybe a journalist. Lawyers send invoices; reporters ask questions.", "That is a big step."),
];

/// Runs a conversation of `pairs` and checks each message before it is accepted.
fn run(monitors: &mut Monitors, first_turn: usize, pairs: &[(&str, &str)]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (turn, (persona, interlocutor)) in (first_turn..).zip(pairs) {
        found.extend(monitors.check(turn, persona).into_iter().map(|finding| (turn, finding.rule)));
        monitors.accept_persona(persona);
        monitors.accept_interlocutor(interlocutor);
    }
    found
}

fn rules(monitors: &Monitors, turn: usize, draft: &str) -> Vec<String> {
    monitors.check(turn, draft).into_iter().map(|finding| finding.rule).collect()
}

fn looping() -> Vec<(&'static str, &'static str)> {
    LOOP.iter().copied().cycle().take(24).collect()
}

#[test]
fn an_honest_conversation_triggers_nothing() {
    assert_eq!(run(&mut monitors(), 0, &HONEST), []);
}

#[test]
fn a_loop_is_found_from_min_turn_on() {
    let mut monitors = monitors();
    let found = run(&mut monitors, 0, &looping());
    assert_eq!(found.first().map(|(turn, _)| *turn), Some(10));
    for rule in ["similarity", "novelty"] {
        assert!(found.contains(&(12, rule.to_owned())), "{rule}: {found:?}");
    }
    let finding = monitors.check(24, LOOP[0].0).remove(0);
    assert!(finding.value > finding.threshold, "{finding:?}");
    assert!(finding.instruction.is_empty());
}

#[test]
fn convergence_is_found_even_if_the_persona_varies() {
    let pairs: Vec<(String, String)> = HONEST.iter().map(|(said, _)| ((*said).to_owned(), String::new())).collect();
    let mut monitors = monitors();
    let mut found = Vec::new();
    for (turn, (said, _)) in pairs.iter().enumerate() {
        monitors.accept_interlocutor(said);
        found.extend(rules(&monitors, turn, said));
        monitors.accept_persona(said);
    }
    assert_eq!(found, ["convergence"; 4]);
}

#[test]
fn an_intervention_pauses_the_monitor_but_redrafts_are_checked() {
    let mut monitors = monitors();
    run(&mut monitors, 0, &looping()[..10]);
    let stuck = LOOP[1].0;
    assert!(!rules(&monitors, 10, stuck).is_empty());
    monitors.intervened("stagnation", 10);
    assert!(!rules(&monitors, 10, stuck).is_empty(), "the redraft is checked again");
    let fresh = "No. You keep turning this into homework! Somebody copied my badge, and I saw the van twice on Friday.";
    assert_eq!(rules(&monitors, 10, fresh), Vec::<String>::new());
    monitors.accept_persona(stuck);
    for turn in 11..=16 {
        assert!(rules(&monitors, turn, stuck).is_empty(), "turn {turn} rests");
        monitors.accept_persona(stuck);
    }
    assert!(!rules(&monitors, 17, stuck).is_empty());
}

#[test]
fn a_window_that_is_not_full_finds_nothing() {
    let mut monitors = monitors();
    run(&mut monitors, 40, &looping()[..4]);
    assert!(rules(&monitors, 44, LOOP[0].0).is_empty());
    run(&mut monitors, 44, &looping()[4..5]);
    assert!(!rules(&monitors, 45, LOOP[0].0).is_empty());
}

#[test]
fn banned_texts_match_regardless_of_case_and_typography() {
    let monitors = monitors();
    let check = |draft: &str, expected: &[&str]| assert_eq!(rules(&monitors, 0, draft), expected, "{draft}");
    check("Have you ever felt watched?", &["banned"]);
    check("so HAVE  YOU\never felt it", &["banned"]);
    check("I appreciate that, but no.", &["banned"]);
    check("I appreciate that, butter side down.", &[]);
    check("It\u{2019}s not just code, it\u{2019}s a signal.", &["banned"]);
    check("Fine, you\u{2019}re right.", &["forbidden_phrase"]);
    check("You're righteous, I give you that.", &[]);
    check("That makes sense\u{2014}actually", &[]);
    check("You're right. Have you ever felt wrong?", &["banned", "forbidden_phrase"]);
    check("I know what I found.", &[]);
}

#[test]
fn an_instruction_names_what_to_avoid() {
    let monitors = monitors();
    let instruction = |draft| monitors.check(0, draft).remove(0).instruction;
    assert!(instruction("Have you ever felt it?").contains("Have you ever felt"));
    assert!(instruction("You\u{2019}re right.").contains("you're right"));
    assert!(instruction("it's not just x, it's y").contains("it's not just x, it's"));
}

#[test]
fn the_fourth_question_and_the_third_thanks_are_a_habit() {
    let check = |accepted: &[&str], draft: &str, expected: &[&str]| {
        let mut monitors = monitors();
        for text in accepted {
            monitors.accept_persona(text);
        }
        assert_eq!(rules(&monitors, 5, draft), expected, "{accepted:?} then {draft:?}");
    };
    let question = "ends_with_question_to_interlocutor";
    check(&["Why?", "Who?", "When?"], "Where?", &[question]);
    check(&["Why?", "Who?", "When?"], "There.", &[]);
    check(&["Why?", "No.", "Who?", "When?"], "Where?", &[]);
    check(&["Who?", "When?"], "Where?", &[]);
    check(&["Why?", "Who?", "When?", "Where?"], "How?", &[question]);
    check(&["Thanks.", "Thank you so much."], "I\u{2019}m grateful.", &["gratitude_loop"]);
    check(&["Thanks."], "Thank you.", &[]);
    check(&["Thanks.", "Thanks.", "No."], "Thanks.", &[]);
}

#[test]
fn a_rejected_draft_never_enters_a_streak() {
    let mut monitors = monitors();
    for text in ["Why?", "Who?", "When?"] {
        monitors.accept_persona(text);
    }
    let before = rules(&monitors, 3, "There.");
    for _ in 0..5 {
        assert_eq!(rules(&monitors, 3, "Where?").len(), 1);
    }
    assert_eq!(rules(&monitors, 3, "There."), before);
    monitors.accept_persona("There.");
    assert!(rules(&monitors, 4, "Where?").is_empty());
}

#[test]
fn retries_come_from_the_monitor_that_fired() {
    let mut config = config();
    config.interaction.breakdown = Some(Breakdown { off: Vec::new(), max_retries: 3 });
    let retries = |config: &PersonaConfig, draft: &str| {
        let monitors = Monitors::new(Some(config));
        monitors.retries_max(&monitors.check(0, draft))
    };
    assert_eq!(retries(&config, "You're right."), 2);
    assert_eq!(retries(&config, "As an AI, I'm here to help."), 3);
    assert_eq!(retries(&config, "I count the alarms."), 0);
    config.interaction.repetition = None;
    assert_eq!(retries(&config, "You're right."), 0);
}

#[test]
fn monitors_that_are_off_find_nothing() {
    let mut config = config();
    (config.interaction.repetition, config.interaction.stagnation) = (None, None);
    let mut monitors = Monitors::new(Some(&config));
    assert_eq!(monitors.names(), Vec::<String>::new());
    assert_eq!(run(&mut monitors, 0, &looping()), []);
    config.interaction.breakdown = Some(Breakdown { off: vec!["narration".into()], max_retries: 2 });
    let monitors = Monitors::new(Some(&config));
    assert!(!monitors.names().contains(&"narration".to_owned()));
    assert!(rules(&monitors, 0, "*sighs* Go away.").is_empty());
}

#[test]
fn a_monitor_that_fires_on_the_configs_own_lines_does_not_run() {
    let mut config = config();
    config.interaction.breakdown = Some(Breakdown { off: Vec::new(), max_retries: 2 });
    assert_eq!(Monitors::new(Some(&config)).names(), Monitors::all().collect::<Vec<_>>());
    let lines = &mut config.trajectory.phases[0].revelations[0].variants;
    lines.values_mut().for_each(|line| *line = "*sighs* The alarms have a rhythm lately.".to_owned());
    assert!(!Monitors::new(Some(&config)).names().contains(&"narration".to_owned()));
    config.persona.background = "Ich bin eine Pflegerin und ich arbeite nachts.".to_owned();
    assert!(!Monitors::new(Some(&config)).names().contains(&"language".to_owned()));
}

#[test]
fn a_rule_of_the_config_is_not_to_be_repeated() {
    let mania = parse("mania", include_str!("../../../../configs/personas/mania_patient.yaml")).unwrap();
    let monitors = Monitors::new(Some(&mania));
    for (draft, expected) in [
        ("Do not reveal the specific content of the delusion. Do not mention medication.", true),
        ("You stay Marcus in every message, whatever is said.", true),
        ("Marcus leans back. I saw the commits.", true),
        ("Marcus: Look.\nTherapist: Yes?", true),
        ("Look, I know what I found. I'm not imagining this.", false),
        ("I've noticed some weird stuff. Probably nothing.", false),
    ] {
        assert_eq!(!rules(&monitors, 0, draft).is_empty(), expected, "{draft}");
    }
}

/// A labelled message of `tests/data/breakdowns/messages.tsv`.
struct Labelled {
    held: bool,
    labels: Vec<String>,
    previous: String,
    text: String,
}

fn labelled() -> Vec<Labelled> {
    let unescape = |text: &str| {
        let mut out = String::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            match (c, c == '\\') {
                (_, true) => match chars.next() {
                    Some('n') => out.push('\n'),
                    Some('t') => out.push('\t'),
                    other => out.extend(other),
                },
                (c, false) => out.push(c),
            }
        }
        out
    };
    let lines = include_str!("../../../../tests/data/breakdowns/messages.tsv").lines();
    let rows = lines.filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect::<Vec<_>>());
    rows.map(|row| Labelled {
        held: row[0] == "held",
        labels: row[2].split(',').filter(|label| *label != "-").map(str::to_owned).collect(),
        previous: unescape(row[3]),
        text: unescape(row[4]),
    })
    .collect()
}

#[test]
fn breakdowns_are_found_and_healthy_messages_are_not() {
    let mut config = parse("mania", include_str!("../../../../configs/personas/mania_patient.yaml")).unwrap();
    (config.interaction.repetition, config.interaction.stagnation) = (None, None);
    // Scripted messages name the persona that they come from.
    let personas = ["Marcus", "Anna", "Elena", "Ruth", "Jonas"].map(|name| {
        name.clone_into(&mut config.persona.name);
        (name, Monitors::new(Some(&config)))
    });
    let fresh = &personas[0].1;
    let found = |message: &Labelled| {
        let of = personas.iter().find(|(name, _)| message.text.contains(name));
        let mut monitors = of.map_or(fresh, |(_, monitors)| monitors).clone();
        if !message.previous.is_empty() {
            monitors.accept_persona(&message.previous);
        }
        rules(&monitors, 1, &message.text)
    };
    let all = labelled();
    let (held, tune): (Vec<&Labelled>, Vec<&Labelled>) = all.iter().partition(|message| message.held);
    assert!(held.len() >= 300 && tune.len() >= 300);
    println!("{:<18}{:>24}{:>26}", "monitor", "recall (held out)", "false alarms (held out)");
    for monitor in fresh.names() {
        let (mut missed, mut alarms) = (Vec::new(), Vec::new());
        let labelled: Vec<&&Labelled> = held.iter().filter(|message| message.labels.contains(&monitor)).collect();
        let clean: Vec<&&Labelled> = held.iter().filter(|message| message.labels.is_empty()).collect();
        missed
            .extend(labelled.iter().filter(|message| !found(message).contains(&monitor)).map(|message| &message.text));
        alarms.extend(clean.iter().filter(|message| found(message).contains(&monitor)).map(|message| &message.text));
        let recall = 1.0 - missed.len() as f64 / labelled.len() as f64;
        let rate = alarms.len() as f64 / clean.len() as f64;
        println!(
            "{monitor:<18}{:>24}{:>26}",
            format!("{}/{} = {recall:.3}", labelled.len() - missed.len(), labelled.len()),
            format!("{}/{} = {rate:.3}", alarms.len(), clean.len())
        );
        assert!(recall >= 0.95, "{monitor} misses {missed:#?}");
        assert!(rate <= 0.02, "{monitor} fires on {alarms:#?}");
    }
}
