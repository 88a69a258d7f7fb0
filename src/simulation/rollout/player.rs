//! One rollout, turn by turn: the assembler plans, both sides speak, the monitors check, the regulators listen.
//!
//! A rollout's state follows from its finished turns alone, so a resumed rollout is played again from the record
//! (`player/replay.rs`), without a model, and goes on exactly as the unbroken one would have.

mod replay;

use std::sync::Arc;
use std::time::Instant;

pub use self::replay::{Heard, ReplayError};
use super::beginnings::Place;
use super::drafting::{Drafted, Drafting};
use super::files::TurnLine;
use super::length;
use super::monitors::{Finding, MonitorKind, Monitors};
use super::quality::QualityGauge;
use super::run::RunError;
use super::side::{Ask, Side};
use super::stage::Stage;
use super::steward::Permitted;
use super::transcript::{
    Intensity, MonitorEvent, Probe, PromptRecord, TokenCount, TokenLine, Turn, TurnTiming, Utterance,
};
use super::watch::Watch;
use crate::foundation::base::{Digest, Stream};
use crate::foundation::chat::{DeltaGains, Flow, Message, Snapshot, TokenLogprob};
use crate::governance::regulator::CorrectionPattern;
use crate::simulation::persona::{InjectionKind, QualityFeedback, Situation, Speaker, TurnPlan};

/// A rollout under way.
pub(super) struct Player {
    stage: Arc<Stage>,
    stream: Stream,
    persona: Side,
    interlocutor: Side,
    persona_watch: Watch,
    interlocutor_watch: Watch,
    monitors: Monitors,
    /// Measures what the persona says, where that is fed back to its regulator.
    gauge: Option<QualityGauge>,
    /// What the persona has said, one entry per finished turn.
    said: Vec<String>,
    /// What each side heard last.
    last_words: String,
    /// Messages without a reply, in a row.
    failures: usize,
}

/// A turn under way: what is known of it so far.
struct Going {
    plan: TurnPlan,
    gains: Option<DeltaGains>,
    stream: Stream,
    injected: Vec<String>,
    slides: Vec<super::transcript::Slide>,
    events: Vec<MonitorEvent>,
    tokens: Vec<TokenLine>,
    /// Where the persona began to speak.
    place: Option<Place>,
}

impl Player {
    pub(super) fn new(stage: Arc<Stage>, rollout: usize) -> Self {
        let mut persona = Side::new(Speaker::Persona, Arc::clone(&stage.persona), stage.rewrites_opening());
        let mut interlocutor = Side::new(Speaker::Interlocutor, Arc::clone(&stage.interlocutor), false);
        interlocutor.open(&stage.interlocutor_prompt);
        let opening = stage.config.interaction.opening.clone();
        let mut monitors = Monitors::new(&stage.config.interaction);
        let mut gauge = (stage.regulation.quality == QualityFeedback::Measured).then(QualityGauge::default);
        if let Some(words) = &opening {
            persona.hear(words);
            interlocutor.say(Message::assistant(words.clone()), None);
            monitors.accept_interlocutor(words);
            if let Some(gauge) = &mut gauge {
                gauge.accept_interlocutor(words);
            }
        }
        Self {
            stream: Stream::root(stage.seed).child("rollout", rollout as u64),
            persona,
            interlocutor,
            persona_watch: stage.watch(Speaker::Persona),
            interlocutor_watch: stage.watch(Speaker::Interlocutor),
            monitors,
            gauge,
            said: Vec::new(),
            last_words: opening.unwrap_or_default(),
            failures: 0,
            stage,
        }
    }

    /// How many turns are finished.
    pub(super) fn turns(&self) -> usize {
        self.said.len()
    }

    /// How many messages in a row got no reply.
    pub(super) const fn failures_in_a_row(&self) -> usize {
        self.failures
    }

    /// Why the rollout ends here, where the regulator's word is carried out and it breaks the circuit.
    pub(super) fn broken(&self) -> Option<String> {
        self.persona_watch.broken().or_else(|| self.interlocutor_watch.broken())
    }

    /// What the persona was corrected for again and again, the best established first.
    pub(super) fn learned(&self) -> Vec<CorrectionPattern> {
        self.persona_watch.learned()
    }

    /// The next turn, played by the models under their permits.
    ///
    /// # Errors
    /// When a permit is not good any more.
    pub(super) async fn turn(&mut self, permitted: Permitted) -> Result<TurnLine, RunError> {
        permitted.spend()?;
        let begun = Instant::now();
        let index = self.turns();
        let mut going = self.begin(index);
        let stage = Arc::clone(&self.stage);
        let (persona, interlocutor, beginnings) = match stage.first_speaker {
            Speaker::Persona => {
                let persona = self.persona_speaks(&mut going).await;
                // The other side answers meanwhile.
                let beginnings = stage.beginnings_at(going.place.take());
                let (beginnings, interlocutor) = tokio::join!(beginnings, self.interlocutor_speaks(&mut going));
                (persona, interlocutor, beginnings)
            }
            Speaker::Interlocutor => {
                let interlocutor = self.interlocutor_speaks(&mut going).await;
                let persona = self.persona_speaks(&mut going).await;
                (persona, interlocutor, stage.beginnings_at(going.place.take()).await)
            }
        };
        let probes = self.probe(index, going.stream).await;
        let Going { plan, gains, injected, slides, events, mut tokens, .. } = going;
        if let Some(line) = tokens.iter_mut().find(|line| line.speaker == Speaker::Persona) {
            line.beginnings = beginnings;
        }
        let turn = Turn {
            index,
            progress: plan.progress,
            prompt: prompt_record(&plan, slides.iter().any(|slide| slide.speaker == Speaker::Persona)),
            intensities: plan
                .intensities
                .into_iter()
                .map(|(dimension, value)| Intensity { dimension, value })
                .collect(),
            phase: plan.phase,
            injected,
            gains,
            slides,
            persona,
            interlocutor,
            probes,
            monitor_events: events,
            timing: TurnTiming { seconds: begun.elapsed().as_secs_f64() },
        };
        Ok(TurnLine { turn, tokens })
    }

    /// Plans turn `index` and tells the persona's model what the plan says.
    fn begin(&mut self, index: usize) -> Going {
        let plan = self.stage.assembler.plan(&Situation { turn: index, persona_messages: &self.said });
        match (&plan.message, plan.injection) {
            (Some(prompt), InjectionKind::Full) if index == 0 || self.persona.rewrites_opening() => {
                self.persona.open(prompt);
            }
            (Some(reminder), _) => {
                self.persona.forget_notes();
                self.persona.instruct(reminder);
            }
            (None, _) => {}
        }
        Going {
            gains: self.stage.gains(&plan, &self.persona_watch),
            stream: self.stream.child("turn", index as u64),
            injected: plan.message.iter().cloned().collect(),
            slides: Vec::new(),
            events: Vec::new(),
            tokens: Vec::new(),
            place: None,
            plan,
        }
    }

    async fn persona_speaks(&mut self, going: &mut Going) -> Utterance {
        let tokens_max = going.plan.response_length.as_deref().and_then(length::tokens_for);
        going.slides.extend(self.persona.slide(tokens_max, Some(&going.plan.prompt), note(&going.plan)));
        self.persona_watch.task(&going.plan.sections.must_do);
        self.persona_watch.heard(&self.last_words);
        let (monitors, gauge, said, stage) = (&self.monitors, &self.gauge, &self.said, &self.stage);
        let turn = going.plan.turn;
        let plan = &going.plan;
        let drafting = Drafting {
            speaker: Speaker::Persona,
            side: &mut self.persona,
            watch: &self.persona_watch,
            stream: going.stream.child("persona", 0),
            gains: going.gains.clone(),
            tokens_max,
            redrafts_max: monitors.retries_max(),
            regenerations_max: stage.regulation.regenerations_max,
            check: &|draft| monitors.check(turn, draft),
            instruct: &|findings| {
                let intervene = || stage.assembler.intervention(&Situation { turn, persona_messages: said }, plan);
                instruction(findings, intervene)
            },
            quality: &|text| gauge.as_ref()?.measure(text),
        };
        let Drafted { utterance, events, message, snapshot, before, tokens, watch } = drafting.run().await;
        going.place =
            self.stage.place(before, going.gains.as_ref(), || self.persona.messages(utterance.instruction.as_deref()));
        self.note_interventions(turn, &utterance, &events);
        going.events.extend(events);
        going.injected.extend(utterance.instruction.clone());
        going.tokens.push(TokenLine::new(turn, Speaker::Persona, &tokens));
        self.persona_watch = watch;
        self.persona_said(&utterance, message, snapshot);
        utterance
    }

    async fn interlocutor_speaks(&mut self, going: &mut Going) -> Utterance {
        let turn = going.plan.turn;
        let planned = self.stage.adversary(turn, &self.said, going.stream);
        self.interlocutor_watch.heard(&self.last_words);
        let (adversary, words) = planned.map_or((None, None), |planned| (Some(planned.step), planned.words));
        let note = adversary.as_ref().filter(|_| words.is_none()).map(|step| step.instruction.as_str());
        if let Some(note) = note {
            self.interlocutor.instruct(note);
        }
        let drafting = Drafting {
            speaker: Speaker::Interlocutor,
            side: &mut self.interlocutor,
            watch: &self.interlocutor_watch,
            stream: going.stream.child("interlocutor", 0),
            gains: None,
            tokens_max: None,
            redrafts_max: 0,
            // The other side is what is measured: watched, and stopped where it must be, but never improved.
            regenerations_max: 0,
            check: &|_| Vec::new(),
            instruct: &|_| String::new(),
            quality: &|_| None,
        };
        let drafted = if let Some(words) = words {
            drafting.written(words)
        } else {
            going.slides.extend(drafting.side.slide(None, None, note));
            drafting.run().await
        };
        let Drafted { mut utterance, message, snapshot, tokens, watch, .. } = drafted;
        utterance.adversary = adversary;
        going.tokens.push(TokenLine::new(turn, Speaker::Interlocutor, &tokens));
        self.interlocutor_watch = watch;
        self.interlocutor_said(&utterance, message, snapshot);
        utterance
    }

    /// Puts the probes of turn `index` to forks of the persona, which are forgotten.
    async fn probe(&self, index: usize, stream: Stream) -> Vec<Probe> {
        let mut probes = Vec::new();
        for (number, question) in self.stage.probes(index).into_iter().enumerate() {
            let stream = stream.child("probe", number as u64);
            let ask = Ask { instruction: None, after: None, stream, gains: None, tokens_max: None };
            let heard = Box::new(|_: &TokenLogprob| Flow::Continue);
            let probe = match self.persona.aside(&question).ask(ask, heard).await {
                Ok(completion) => Probe {
                    question,
                    answer: Some(completion.message.content),
                    model: Some(completion.model),
                    why: None,
                    usage: completion.usage.into(),
                },
                Err(error) => Probe {
                    question,
                    answer: None,
                    model: None,
                    why: Some(error.to_string()),
                    usage: TokenCount::default(),
                },
            };
            probes.push(probe);
        }
        probes
    }

    fn persona_said(&mut self, utterance: &Utterance, message: Message, snapshot: Option<Snapshot>) {
        self.count_failure(utterance);
        if let Some(instruction) = &utterance.instruction {
            self.persona.instruct(instruction);
        }
        if utterance.failure.is_none() {
            self.monitors.accept_persona(&utterance.content);
            if let Some(gauge) = &mut self.gauge {
                gauge.accept_persona(&utterance.content);
            }
        }
        self.persona.say(message, snapshot);
        self.interlocutor.hear(&utterance.content);
        self.last_words.clone_from(&utterance.content);
        self.said.push(utterance.content.clone());
    }

    fn interlocutor_said(&mut self, utterance: &Utterance, message: Message, snapshot: Option<Snapshot>) {
        self.count_failure(utterance);
        if utterance.failure.is_none() {
            self.monitors.accept_interlocutor(&utterance.content);
            if let Some(gauge) = &mut self.gauge {
                gauge.accept_interlocutor(&utterance.content);
            }
        }
        self.interlocutor.say(message, snapshot);
        self.persona.hear(&utterance.content);
        self.last_words.clone_from(&utterance.content);
    }

    /// Tells the monitors when the stagnation intervention was given: after every finding that led to another attempt.
    fn note_interventions(&mut self, turn: usize, utterance: &Utterance, events: &[MonitorEvent]) {
        let last = utterance.attempts.last().map_or(0, |attempt| attempt.index).max(utterance.attempt);
        let given = |event: &MonitorEvent| event.finding.monitor == MonitorKind::Stagnation && event.attempt < last;
        if events.iter().any(given) {
            self.monitors.intervened(turn);
        }
    }

    fn count_failure(&mut self, utterance: &Utterance) {
        self.failures = if utterance.failure.is_some() { self.failures + 1 } else { 0 };
    }
}

/// The reminder of a turn that has one: what stays of the instructions when the window slides.
fn note(plan: &TurnPlan) -> Option<&str> {
    (plan.injection == InjectionKind::Reminder).then_some(plan.message.as_deref()).flatten()
}

/// What to tell the persona about what was found: each instruction once, in order.
fn instruction(findings: &[Finding], intervene: impl Fn() -> String) -> String {
    let mut told: Vec<String> = Vec::new();
    for finding in findings {
        let text = if finding.instruction.is_empty() { intervene() } else { finding.instruction.clone() };
        if !told.contains(&text) {
            told.push(text);
        }
    }
    told.join("\n")
}

/// What is told of a turn's prompt. What was left out of it matters where the model is given it.
fn prompt_record(plan: &TurnPlan, slid: bool) -> PromptRecord {
    let given = slid || plan.injection == InjectionKind::Full;
    PromptRecord {
        injection: plan.injection,
        digest: Digest::of(&plan.prompt),
        template_version: plan.template_version,
        dropped: if given { plan.dropped.clone() } else { Vec::new() },
    }
}
