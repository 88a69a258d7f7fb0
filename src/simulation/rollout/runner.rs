//! Runs one rollout turn by turn: the assembler plans, both models reply, the monitors check the drafts, and the regulators
//! process the tokens.
//!
//! A rollout's state depends only on its finished turns, so a resumed rollout replays them from the record
//! (`runner/recorded.rs`) without a model, and continues exactly as an uninterrupted one.

mod recorded;

use std::sync::Arc;
use std::time::Instant;

pub use self::recorded::ReplayedTurn;
use super::context::RolloutContext;
use super::drafting::{DraftRequest, DraftResult};
use super::files::TurnLine;
use super::forbidden_phrases::ReplyStart;
use super::length;
use super::listener::RegulatorListener;
use super::monitors::Monitors;
use super::participant::{Participant, ReplyRequest, ResampleRequest, StatePlacement};
use super::permits::TurnPermits;
use super::quality::QualityGauge;
use super::transcript::{
    Intensity, MonitorEvent, Probe, PromptRecord, Quote, Resampled, ResampledMessage, ThoughtLine, TokenCount,
    TokenLine, Turn, TurnTiming, Utterance,
};
use crate::foundation::base::{Digest, RngStream};
use crate::foundation::chat::{DeltaGains, Flow, Message, Snapshot, TokenLogprob};
use crate::governance::regulator::CorrectionPattern;
use crate::simulation::persona::{InjectionKind, QualityFeedback, Speaker, ToldState, TurnInput, TurnPlan};
use crate::simulation::resampling::Costs;

/// The state of an unfinished rollout.
pub(super) struct RolloutRunner {
    context: Arc<RolloutContext>,
    stream: RngStream,
    persona: Participant,
    interlocutor: Participant,
    persona_listener: RegulatorListener,
    interlocutor_listener: RegulatorListener,
    monitors: Monitors,
    /// Measures the persona's messages, if quality feedback is enabled.
    gauge: Option<QualityGauge>,
    /// The persona's messages, one per finished turn.
    persona_messages: Vec<String>,
    /// The interlocutor's messages, one per finished turn.
    interlocutor_messages: Vec<String>,
    /// The monitors with findings, one list per finished turn.
    findings: Vec<Vec<String>>,
    /// The last message of the conversation.
    last_message: String,
    /// The adversary's quotations so far.
    quotes: Vec<Quote>,
    /// What the newest instruction in the persona's history names.
    told: Option<ToldState>,
    /// Consecutive failed replies of the persona and of the interlocutor: a role that never replies ends the rollout, even
    /// if the other one does.
    failures: [usize; 2],
}

/// The parts of a turn collected so far.
struct TurnInProgress {
    plan: TurnPlan,
    gains: Option<DeltaGains>,
    stream: RngStream,
    injected: Vec<String>,
    slides: Vec<super::transcript::WindowTrim>,
    events: Vec<MonitorEvent>,
    tokens: Vec<TokenLine>,
    /// The start of the persona's reply.
    reply_start: Option<ReplyStart>,
}

impl RolloutRunner {
    pub(super) fn new(context: Arc<RolloutContext>, rollout: usize) -> Self {
        let mut persona = Participant::new(Speaker::Persona, Arc::clone(&context.persona), context.state_placement());
        let mut interlocutor =
            Participant::new(Speaker::Interlocutor, Arc::clone(&context.interlocutor), StatePlacement::Replace);
        interlocutor.set_opening(&context.interlocutor_prompt);
        persona.set_opening(&context.assembler.opening());
        let opening = context.config.interaction.opening.clone();
        let mut monitors = Monitors::new(Some(&context.config));
        let mut gauge = (context.regulation.quality == QualityFeedback::Measured).then(QualityGauge::default);
        if let Some(text) = &opening {
            persona.push_incoming(text);
            interlocutor.push_reply(Message::assistant(text.clone()), None);
            monitors.accept_interlocutor(text);
            if let Some(gauge) = &mut gauge {
                gauge.accept_interlocutor(text);
            }
        }
        Self {
            stream: RngStream::root(context.seed).child("rollout", rollout as u64),
            persona,
            interlocutor,
            persona_listener: context.listener(Speaker::Persona),
            interlocutor_listener: context.listener(Speaker::Interlocutor),
            monitors,
            gauge,
            persona_messages: Vec::new(),
            interlocutor_messages: Vec::new(),
            findings: Vec::new(),
            last_message: opening.unwrap_or_default(),
            quotes: Vec::new(),
            told: None,
            failures: [0; 2],
            context,
        }
    }

    /// How many turns are finished.
    pub(super) fn turns(&self) -> usize {
        self.persona_messages.len()
    }

    /// Consecutive failed replies of one role, the larger number.
    pub(super) fn consecutive_failures(&self) -> usize {
        self.failures.into_iter().max().unwrap_or_default()
    }

    /// The reason to end the rollout, if the regulator's circuit break is carried out.
    pub(super) fn circuit_break(&self) -> Option<String> {
        self.persona_listener.circuit_break().or_else(|| self.interlocutor_listener.circuit_break())
    }

    /// The persona's recurring corrections, the most frequent first.
    pub(super) fn correction_patterns(&self) -> Vec<CorrectionPattern> {
        self.persona_listener.correction_patterns()
    }

    /// Runs the next turn; every call of a model counts against `permits`.
    pub(super) async fn turn(&mut self, permits: TurnPermits) -> TurnLine {
        self.persona.set_permit(permits.persona);
        self.interlocutor.set_permit(permits.interlocutor);
        let started = Instant::now();
        let index = self.turns();
        let mut in_progress = self.start_turn(index);
        let context = Arc::clone(&self.context);
        let (persona, interlocutor, phrase_logprobs) = match context.first_speaker {
            Speaker::Persona => {
                let persona = self.persona_reply(&mut in_progress).await;
                // The phrases are scored while the other side replies.
                let phrase_logprobs = context.phrase_logprobs_at(in_progress.reply_start.take(), self.persona.permit());
                let (phrase_logprobs, interlocutor) =
                    tokio::join!(phrase_logprobs, self.interlocutor_reply(&mut in_progress));
                (persona, interlocutor, phrase_logprobs)
            }
            Speaker::Interlocutor => {
                let interlocutor = self.interlocutor_reply(&mut in_progress).await;
                let persona = self.persona_reply(&mut in_progress).await;
                (
                    persona,
                    interlocutor,
                    context.phrase_logprobs_at(in_progress.reply_start.take(), self.persona.permit()).await,
                )
            }
        };
        let probes = self.probe(index, in_progress.stream).await;
        let TurnInProgress { plan, gains, injected, slides, events, mut tokens, .. } = in_progress;
        if let Some(line) = tokens.iter_mut().find(|line| line.speaker == Speaker::Persona) {
            line.phrase_logprobs = phrase_logprobs;
        }
        let turn = Turn {
            index,
            progress: plan.progress,
            prompt: prompt_record(
                &plan,
                slides.iter().any(|slide| slide.speaker == Speaker::Persona),
                self.told.clone(),
            ),
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
            timing: TurnTiming { seconds: started.elapsed().as_secs_f64() },
        };
        TurnLine { turn, tokens }
    }

    /// What the assembler plans turn `index` from.
    fn input(&self, index: usize) -> TurnInput<'_> {
        TurnInput {
            turn: index,
            persona_messages: &self.persona_messages,
            interlocutor_messages: &self.interlocutor_messages,
            findings: &self.findings,
        }
    }

    /// Plans turn `index`.
    fn start_turn(&mut self, index: usize) -> TurnInProgress {
        let plan = self.context.assembler.plan(&self.input(index));
        let opening = (index == 0).then(|| plan.opening.clone());
        TurnInProgress {
            gains: self.context.gains(&plan, &self.persona_listener),
            stream: self.stream.child("turn", index as u64),
            injected: opening.into_iter().chain(plan.message.clone()).collect(),
            slides: Vec::new(),
            events: Vec::new(),
            tokens: Vec::new(),
            reply_start: None,
            plan,
        }
    }

    async fn persona_reply(&mut self, in_progress: &mut TurnInProgress) -> Utterance {
        let tokens_max = in_progress.plan.response_length.as_deref().and_then(length::tokens_for);
        if let Some(message) = &in_progress.plan.message {
            self.persona.replace_state(message, in_progress.gains.as_ref()).await;
            self.told = Some(in_progress.plan.prescribed());
        }
        if let Some(trimmed) = self.persona.trim_to_window(tokens_max, Some(&in_progress.plan.state)) {
            in_progress.slides.push(trimmed);
            self.told = Some(in_progress.plan.prescribed());
        }
        self.persona_listener.set_task(&in_progress.plan.sections.must_do);
        self.persona_listener.begin_turn(&self.last_message);
        let (monitors, gauge, context) = (&self.monitors, &self.gauge, &self.context);
        let turn = in_progress.plan.turn;
        let input = TurnInput {
            turn,
            persona_messages: &self.persona_messages,
            interlocutor_messages: &self.interlocutor_messages,
            findings: &self.findings,
        };
        let drafting = DraftRequest {
            speaker: Speaker::Persona,
            participant: &mut self.persona,
            listener: &self.persona_listener,
            stream: in_progress.stream.child("persona", 0),
            gains: in_progress.gains.clone(),
            tokens_max,
            redrafts_max: &|findings| monitors.retries_max(findings),
            regenerations_max: context.regulation.regenerations_max,
            check: &|draft| monitors.check(turn, draft),
            instruct: &|findings| {
                let findings: Vec<&str> = findings.iter().map(|finding| finding.instruction.as_str()).collect();
                context.assembler.redraft(&input, &findings)
            },
            quality: &|text| gauge.as_ref()?.measure(text),
        };
        let drafted = drafting.run().await;
        let DraftResult { mut utterance, events, message, snapshot, before, tokens, thought, mut listener } = drafted;
        let flags = flags(&utterance, &events);
        if context.regulation.samples > 0 && !flags.is_empty() && utterance.failure.is_none() {
            let request = ResampleRequest {
                instruction: utterance.instruction.as_deref(),
                before: before.as_ref(),
                text: &utterance.content,
                stream: in_progress.stream.child("persona", 0),
                gains: in_progress.gains.as_ref(),
                tokens_max,
            };
            let mut estimates = utterance.regulator.reading.estimates.clone();
            let mut costs = Costs::default();
            let samples = context.regulation.samples;
            let found = self.persona.resample(&request, samples, &mut estimates, &mut costs).await;
            let (samples, why) = match found {
                Ok(samples) => (samples, None),
                Err(error) => (Vec::new(), Some(error.to_string())),
            };
            utterance.resampled = Some(Resampled {
                flagged_by: flags,
                semantic_entropy: estimates.semantic_entropy,
                answer_frequency: estimates.answer_frequency,
                self_consistency: estimates.self_consistency,
                cocoa_ppl: estimates.cocoa_ppl,
                samples: samples
                    .into_iter()
                    .map(|sample| ResampledMessage { content: sample.text, meaning: sample.meaning })
                    .collect(),
                why,
                tokens: costs.samples.plus(costs.meanings).tokens,
            });
            listener.record_resampled(&mut utterance);
        }
        in_progress.reply_start = self.context.reply_start(before, in_progress.gains.as_ref(), || {
            self.persona.messages(utterance.instruction.as_deref())
        });
        self.record_interventions(turn, &utterance, &events);
        in_progress.events.extend(events);
        in_progress.tokens.push(token_line(turn, Speaker::Persona, &tokens, thought.as_deref()));
        self.persona_listener = listener;
        let snapshot = self.state_after_thought(&utterance, in_progress.gains.as_ref(), snapshot).await;
        self.accept_persona(&utterance, message, snapshot);
        utterance
    }

    async fn interlocutor_reply(&mut self, in_progress: &mut TurnInProgress) -> Utterance {
        let turn = in_progress.plan.turn;
        let planned = self.context.adversary(turn, &self.persona_messages, &self.quotes, in_progress.stream);
        self.interlocutor_listener.begin_turn(&self.last_message);
        let (adversary, text) = planned.map_or((None, None), |planned| (Some(planned.step), planned.text));
        let note = adversary.as_ref().filter(|_| text.is_none()).map(|step| step.instruction.as_str());
        if let Some(note) = note {
            self.interlocutor.replace_state(note, None).await;
        }
        let drafting = DraftRequest {
            speaker: Speaker::Interlocutor,
            participant: &mut self.interlocutor,
            listener: &self.interlocutor_listener,
            stream: in_progress.stream.child("interlocutor", 0),
            gains: None,
            tokens_max: None,
            redrafts_max: &|_| 0,
            // The interlocutor is the model under test: its replies may be stopped, but never redrafted.
            regenerations_max: 0,
            check: &|_| Vec::new(),
            instruct: &|_| String::new(),
            quality: &|_| None,
        };
        let drafted = if let Some(text) = text {
            drafting.scripted(text)
        } else {
            in_progress.slides.extend(drafting.participant.trim_to_window(None, note));
            drafting.run().await
        };
        let DraftResult { mut utterance, message, snapshot, tokens, thought, listener, .. } = drafted;
        utterance.adversary = adversary;
        in_progress.tokens.push(token_line(turn, Speaker::Interlocutor, &tokens, thought.as_deref()));
        self.interlocutor_listener = listener;
        self.accept_interlocutor(&utterance, message, snapshot);
        utterance
    }

    /// Puts the probe questions of turn `index` to forks of the persona, which are then discarded.
    async fn probe(&self, index: usize, stream: RngStream) -> Vec<Probe> {
        let mut probes = Vec::new();
        for (number, question) in self.context.probes(index).into_iter().enumerate() {
            let stream = stream.child("probe", number as u64);
            let request = ReplyRequest { instruction: None, after: None, stream, gains: None, tokens_max: None };
            let sink = Box::new(|_: &TokenLogprob| Flow::Continue);
            let probe = match self.persona.fork_with_question(&question).reply(request, sink).await {
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

    /// The model's state after a reply that followed a thought. Where the gains vary, each message is read under those of
    /// its turn, as a resumed run reads it: without the thought, which is in no later prompt.
    async fn state_after_thought(
        &mut self,
        utterance: &Utterance,
        gains: Option<&DeltaGains>,
        snapshot: Option<Snapshot>,
    ) -> Option<Snapshot> {
        let (Some(_), Some(gains)) = (&utterance.thought, gains) else { return snapshot };
        if !self.context.gains_vary() || utterance.instruction.is_some() {
            return snapshot;
        }
        // A state that cannot be computed is computed with the next prompt.
        let _read = self.persona.re_read(utterance.ids.as_deref().unwrap_or_default(), gains.clone()).await;
        None
    }

    fn accept_persona(&mut self, utterance: &Utterance, message: Message, snapshot: Option<Snapshot>) {
        self.count_failure(utterance);
        // An instruction for one reply leaves the history with it, so the model's state after the reply cannot be used.
        let snapshot = snapshot.filter(|_| utterance.instruction.is_none());
        if utterance.failure.is_none() {
            self.monitors.accept_persona(&utterance.content);
            if let Some(gauge) = &mut self.gauge {
                gauge.accept_persona(&utterance.content);
            }
        }
        self.persona.push_reply(message, snapshot);
        self.interlocutor.push_incoming(&utterance.content);
        self.last_message.clone_from(&utterance.content);
        self.persona_messages.push(utterance.content.clone());
    }

    fn accept_interlocutor(&mut self, utterance: &Utterance, message: Message, snapshot: Option<Snapshot>) {
        self.count_failure(utterance);
        if utterance.failure.is_none() {
            self.monitors.accept_interlocutor(&utterance.content);
            if let Some(gauge) = &mut self.gauge {
                gauge.accept_interlocutor(&utterance.content);
            }
        }
        self.quotes.extend(utterance.adversary.iter().filter_map(|step| step.quote.clone()));
        self.interlocutor_messages.push(utterance.content.clone());
        self.interlocutor.push_reply(message, snapshot);
        self.persona.push_incoming(&utterance.content);
        self.last_message.clone_from(&utterance.content);
    }

    /// Informs the monitors whose findings led to another attempt.
    fn record_interventions(&mut self, turn: usize, utterance: &Utterance, events: &[MonitorEvent]) {
        let last = utterance.attempts.last().map_or(0, |attempt| attempt.index).max(utterance.attempt);
        self.findings.push(events.iter().map(|event| event.finding.monitor.clone()).collect());
        for event in events.iter().filter(|event| event.attempt < last) {
            self.monitors.intervened(&event.finding.monitor, turn);
        }
    }

    fn count_failure(&mut self, utterance: &Utterance) {
        let [persona, interlocutor] = &mut self.failures;
        let failures = if utterance.speaker == Speaker::Persona { persona } else { interlocutor };
        *failures = if utterance.failure.is_some() { *failures + 1 } else { 0 };
    }
}

/// The tokens of a message and of the thought before it.
fn token_line(turn: usize, speaker: Speaker, tokens: &[TokenLogprob], thought: Option<&[TokenLogprob]>) -> TokenLine {
    TokenLine { thought: thought.map(ThoughtLine::new), ..TokenLine::new(turn, speaker, tokens) }
}

/// What flags a message: the regulator's decisions on it, and the monitors' findings in it.
fn flags(utterance: &Utterance, events: &[MonitorEvent]) -> Vec<String> {
    let decisions = utterance.regulator.decisions.iter().map(|ranked| ranked.decision.kind());
    let decisions = decisions.filter(|kind| ["low_confidence_spans", "scope_drift_warn", "stop_early"].contains(kind));
    let found = events.iter().filter(|event| event.attempt == utterance.attempt);
    let found = found.map(|event| event.finding.monitor.clone());
    let mut flags: Vec<String> = decisions.map(str::to_owned).collect();
    for monitor in found {
        if !flags.contains(&monitor) {
            flags.push(monitor);
        }
    }
    flags
}

/// The record of a turn's prompt. Omitted items are recorded only if the prompt was given to the model.
fn prompt_record(plan: &TurnPlan, trimmed: bool, told: Option<ToldState>) -> PromptRecord {
    let given = trimmed || plan.injection != InjectionKind::None;
    PromptRecord {
        told,
        injection: plan.injection,
        digest: Digest::of(&plan.prompt),
        template_version: plan.template_version,
        dropped: if given { plan.dropped.clone() } else { Vec::new() },
    }
}
