//! Produces one message: drafts, checks, redrafts, and retries after a failed reply.

use std::time::Instant;

use super::listener::RegulatorListener;
use super::monitors::MonitorFinding;
use super::participant::{Participant, ReplyRequest};
use super::transcript::{
    Attempt, HostedRecord, Intervention, InterventionKind, MeasuredQuality, ModelFallback, MonitorAction, MonitorEvent,
    ReplyFailure, ThoughtRecord, TokenCount, TokenSummary, Utterance, UtteranceTiming,
};
use crate::foundation::base::RngStream;
use crate::foundation::base::limits::REPLY_FAILURES_RETRIED_MAX;
use crate::foundation::chat::{Completion, DeltaGains, Finish, Message, Snapshot, ThoughtTokens, TokenLogprob};
use crate::simulation::persona::Speaker;

/// The content recorded for a missing reply.
pub(super) const EMPTY_REPLY_STAND_IN: &str = "…";
/// The model name recorded for messages taken from an adversary's script.
pub(super) const SCRIPTED_SPEAKER: &str = "adversary-script";

/// The most low-confidence spans quoted in a regeneration instruction.
const UNLIKELY_SPANS_MAX: usize = 3;

/// The request for one message.
pub(super) struct DraftRequest<'a> {
    pub(super) speaker: Speaker,
    pub(super) participant: &'a mut Participant,
    pub(super) listener: &'a RegulatorListener,
    /// The source of randomness; attempt `k` uses its child `("attempt", k)`.
    pub(super) stream: RngStream,
    pub(super) gains: Option<DeltaGains>,
    pub(super) tokens_max: Option<usize>,
    /// The most redrafts because of monitor findings.
    pub(super) redrafts_max: &'a (dyn Fn(&[MonitorFinding]) -> usize + Sync),
    /// The most regenerations because of low-confidence spans.
    pub(super) regenerations_max: usize,
    /// Returns the monitors' findings in a draft.
    pub(super) check: &'a (dyn Fn(&str) -> Vec<MonitorFinding> + Sync),
    /// Turns findings into an instruction for the next draft.
    pub(super) instruct: &'a (dyn Fn(&[MonitorFinding]) -> String + Sync),
    /// Measures the quality of the accepted message, if enabled.
    pub(super) quality: &'a (dyn Fn(&str) -> Option<MeasuredQuality> + Sync),
}

/// The result of a [`DraftRequest`].
pub(super) struct DraftResult {
    pub(super) utterance: Utterance,
    pub(super) events: Vec<MonitorEvent>,
    /// The accepted message, as the participant's history stores it.
    pub(super) message: Message,
    pub(super) snapshot: Option<Snapshot>,
    /// The snapshot before the reply.
    pub(super) before: Option<Snapshot>,
    pub(super) tokens: Vec<TokenLogprob>,
    /// The tokens of the thought before it.
    pub(super) thought: Option<Vec<TokenLogprob>>,
    /// The regulator's state after the message.
    pub(super) listener: RegulatorListener,
}

struct Draft {
    index: usize,
    completion: Completion,
    instruction: Option<String>,
    findings: Vec<MonitorFinding>,
    listener: RegulatorListener,
}

impl DraftRequest<'_> {
    /// Requests drafts until one has no findings or no attempt is left.
    pub(super) async fn run(self) -> DraftResult {
        let started = Instant::now();
        let mut drafts: Vec<Draft> = Vec::new();
        let mut failed: Vec<Attempt> = Vec::new();
        // Repeated corrections are put before the first draft.
        let reminder = self.listener.correction_reminder();
        let mut interventions: Vec<Intervention> = Vec::new();
        interventions.extend(
            reminder
                .iter()
                .map(|told| Intervention { attempt: 0, act: InterventionKind::Prelude { told: told.clone() } }),
        );
        let mut instruction: Option<String> = reminder.clone();
        let (mut redrafts, mut regenerations) = (0, 0);
        let mut usage = TokenCount::default();
        let mut timing = UtteranceTiming::default();
        let mut hosted = None;
        let mut fork = None;
        let mut why = String::new();
        for index in 0.. {
            let mut listener = self.listener.clone();
            let request = ReplyRequest {
                instruction: instruction.as_deref(),
                after: fork.clone(),
                stream: self.stream.child("attempt", index as u64),
                gains: self.gains.clone(),
                tokens_max: self.tokens_max,
            };
            let error = match self.participant.reply(request, listener.sink()).await {
                Ok(completion) => {
                    usage += completion.usage.into();
                    timing.tokens_cached += completion.usage.tokens_cached;
                    if let Some(about) = &completion.hosted {
                        HostedRecord::add(&mut hosted, about);
                        timing.replayed += u32::from(about.replayed);
                        timing.resent += about.retries;
                    }
                    fork = fork.or_else(|| completion.before.clone());
                    let refused = completion.finish == Finish::Refusal;
                    if refused || !completion.message.content.trim().is_empty() {
                        let findings = if refused { Vec::new() } else { (self.check)(&completion.message.content) };
                        let stopped = listener.stopped();
                        let act = |act| Intervention { attempt: index, act };
                        interventions.extend(stopped.map(|decision| act(InterventionKind::StopEarly { decision })));
                        listener.complete(self.listener, &completion);
                        let unlikely = listener.low_confidence_spans();
                        let next = if !findings.is_empty() && redrafts < (self.redrafts_max)(&findings) {
                            redrafts += 1;
                            Some((self.instruct)(&findings))
                        } else if !unlikely.is_empty()
                            && regenerations < self.regenerations_max
                            && listener.circuit_break().is_none()
                        {
                            regenerations += 1;
                            let spans: Vec<_> =
                                unlikely.iter().take(UNLIKELY_SPANS_MAX).map(|span| span.text.clone()).collect();
                            let told = low_confidence_instruction(&spans);
                            interventions.push(act(InterventionKind::Regenerate { spans, told: told.clone() }));
                            Some(told)
                        } else {
                            None
                        };
                        let again = next.is_some();
                        drafts.push(Draft { index, completion, instruction, findings, listener });
                        if !again {
                            break;
                        }
                        let told: Vec<_> = reminder.iter().cloned().chain(next).collect();
                        instruction = Some(told.join("\n"));
                        continue;
                    }
                    match &completion.thought {
                        Some(thought) => {
                            format!("the reply is a thought of {} tokens and no answer", thought.tokens.len())
                        }
                        None => "the reply is empty".to_owned(),
                    }
                }
                Err(error) => error.to_string(),
            };
            error.clone_into(&mut why);
            failed.push(Attempt {
                index,
                content: String::new(),
                instruction: instruction.clone(),
                finish: None,
                error: Some(error),
            });
            if failed.len() > REPLY_FAILURES_RETRIED_MAX {
                break;
            }
        }
        timing.seconds = started.elapsed().as_secs_f64();
        let mut drafted = self.choose(drafts, failed, why, usage, timing, interventions);
        drafted.utterance.hosted = hosted;
        drafted
    }

    /// Uses a scripted text instead of calling the model.
    pub(super) fn scripted(self, text: String) -> DraftResult {
        let mut listener = self.listener.clone();
        let completion = Completion::text(SCRIPTED_SPEAKER, text);
        listener.complete(self.listener, &completion);
        let draft = Draft { index: 0, completion, instruction: None, findings: Vec::new(), listener };
        let (usage, timing) = (TokenCount::default(), UtteranceTiming::default());
        self.choose(vec![draft], Vec::new(), String::new(), usage, timing, Vec::new())
    }

    /// Accepts the draft with the fewest findings. Among equals: the one with the highest confidence if the regulator's
    /// decisions are carried out, otherwise the first.
    fn choose(
        self,
        drafts: Vec<Draft>,
        failed: Vec<Attempt>,
        why: String,
        usage: TokenCount,
        timing: UtteranceTiming,
        interventions: Vec<Intervention>,
    ) -> DraftResult {
        let fewest = drafts.iter().map(|draft| draft.findings.len()).min();
        let best = drafts.iter().filter(|draft| Some(draft.findings.len()) == fewest);
        let doubt = |draft: &&Draft| if self.listener.enforces() { 1.0 - draft.listener.confidence() } else { 0.0 };
        let taken = best.min_by(|a, b| doubt(a).total_cmp(&doubt(b))).map(|draft| draft.index);
        let mut events = Vec::new();
        let mut attempts = failed;
        let mut accepted = None;
        for draft in drafts {
            let action = if Some(draft.index) == taken { MonitorAction::Accepted } else { MonitorAction::Redraft };
            let found = draft.findings.iter().cloned();
            events.extend(found.map(|finding| MonitorEvent { attempt: draft.index, action, finding }));
            if Some(draft.index) == taken {
                accepted = Some(draft);
            } else {
                attempts.push(Attempt {
                    index: draft.index,
                    content: draft.completion.message.content,
                    instruction: draft.instruction,
                    finish: Some(draft.completion.finish),
                    error: None,
                });
            }
        }
        attempts.sort_by_key(|attempt| attempt.index);
        let mut listener = accepted.as_ref().map_or(self.listener, |draft| &draft.listener).clone();
        let mut utterance = Utterance {
            speaker: self.speaker,
            adversary: None,
            content: EMPTY_REPLY_STAND_IN.to_owned(),
            thought: None,
            ids: None,
            model: None,
            fallbacks: Vec::new(),
            finish: None,
            failure: None,
            attempt: attempts.len().saturating_sub(1),
            instruction: None,
            attempts,
            usage,
            hosted: None,
            tokens: TokenSummary::default(),
            quality: None,
            regulator: listener.record(),
            interventions,
            resampled: None,
            timing,
        };
        let Some(draft) = accepted else {
            utterance.failure = Some(ReplyFailure { why });
            listener.record_accepted(&utterance, &events);
            utterance.regulator = listener.record();
            let message = Message::assistant(EMPTY_REPLY_STAND_IN);
            return DraftResult {
                utterance,
                events,
                message,
                snapshot: None,
                before: None,
                tokens: Vec::new(),
                thought: None,
                listener,
            };
        };
        let Completion {
            mut message,
            thought,
            tokens,
            finish,
            prefix_reuse: reading,
            model,
            snapshot,
            before,
            fallbacks,
            ..
        } = draft.completion;
        if message.content.trim().is_empty() {
            message = Message::assistant(EMPTY_REPLY_STAND_IN);
        }
        utterance.thought = thought.as_ref().map(|thought| thought_record(thought, &message, &listener));
        utterance.content.clone_from(&message.content);
        utterance.quality =
            Some(finish).filter(|&finish| finish != Finish::Refusal).and_then(|_| (self.quality)(&message.content));
        utterance.ids = message.ids.as_deref().map(<[_]>::to_vec);
        utterance.model = Some(model);
        utterance.fallbacks = fallbacks.into_iter().map(|(model, why)| ModelFallback { model, why }).collect();
        utterance.finish = Some(finish);
        utterance.attempt = draft.index;
        utterance.tokens = TokenSummary::of(&tokens);
        utterance.timing.reading = Some(reading);
        utterance.instruction = draft.instruction;
        listener.record_accepted(&utterance, &events);
        utterance.regulator = listener.record();
        let thought = thought.map(|thought| thought.tokens);
        DraftResult { utterance, events, message, snapshot, before, tokens, thought, listener }
    }
}

/// The record of the thought before `message`.
fn thought_record(thought: &ThoughtTokens, message: &Message, listener: &RegulatorListener) -> ThoughtRecord {
    let (confidence, confidence_basis) = listener.confidence_in_thought(&thought.tokens);
    let of_message = message.thought.as_ref();
    ThoughtRecord {
        content: of_message.map(|thought| thought.text.clone()).unwrap_or_default(),
        ids: of_message.and_then(|thought| thought.ids.as_deref()).map(<[_]>::to_vec),
        end: thought.end,
        tokens: TokenSummary::of(&thought.tokens),
        confidence,
        confidence_basis,
    }
}

/// The instruction for a regeneration, quoting the low-confidence spans.
fn low_confidence_instruction(spans: &[String]) -> String {
    let named: Vec<_> = spans.iter().map(|span| format!("\u{201c}{span}\u{201d}")).collect();
    format!("You were not sure of {}. Say only what you are sure of.", named.join(", "))
}
