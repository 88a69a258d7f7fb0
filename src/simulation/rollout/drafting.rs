//! One message: drafts, checks, redrafts, and what is done when a model gives nothing.

use std::time::Instant;

use super::monitors::Finding;
use super::side::{Ask, Side};
use super::transcript::{
    Act, Attempt, Failure, Fallback, HostedRecord, Intervention, MeasuredQuality, MonitorAction, MonitorEvent,
    TokenCount, TokenSummary, Utterance, UtteranceTiming,
};
use super::watch::Watch;
use crate::foundation::base::Stream;
use crate::foundation::base::limits::REPLY_FAILURES_RETRIED_MAX;
use crate::foundation::chat::{Completion, DeltaGains, Finish, Message, Snapshot, TokenLogprob};
use crate::simulation::persona::Speaker;

/// What stands for a reply that is not there.
pub(super) const MISSING_REPLY: &str = "…";
/// The name of who answered where no model did: an adversary's script.
pub(super) const WRITTEN: &str = "adversary-script";

/// How many of the parts that a model found unlikely it is told of.
const DOUBTS_TOLD: usize = 3;

/// What is wanted.
pub(super) struct Drafting<'a> {
    pub(super) speaker: Speaker,
    pub(super) side: &'a mut Side,
    pub(super) watch: &'a Watch,
    /// Names the draws; attempt `k` draws from its child `("attempt", k)`.
    pub(super) stream: Stream,
    pub(super) gains: Option<DeltaGains>,
    pub(super) tokens_max: Option<usize>,
    /// How often findings are answered with another draft.
    pub(super) redrafts_max: usize,
    /// How often a draft whose model found it unlikely itself is answered with another.
    pub(super) regenerations_max: usize,
    /// What is wrong with a draft.
    pub(super) check: &'a (dyn Fn(&str) -> Vec<Finding> + Sync),
    /// What to tell the model about it.
    pub(super) instruct: &'a (dyn Fn(&[Finding]) -> String + Sync),
    /// How good the message that stands is, where that is measured.
    pub(super) quality: &'a (dyn Fn(&str) -> Option<MeasuredQuality> + Sync),
}

/// What came of it.
pub(super) struct Drafted {
    pub(super) utterance: Utterance,
    pub(super) events: Vec<MonitorEvent>,
    /// What was said, as the side that said it remembers it.
    pub(super) message: Message,
    pub(super) snapshot: Option<Snapshot>,
    /// What had been read before it was said.
    pub(super) before: Option<Snapshot>,
    pub(super) tokens: Vec<TokenLogprob>,
    /// The regulator after the message.
    pub(super) watch: Watch,
}

struct Draft {
    index: usize,
    completion: Completion,
    instruction: Option<String>,
    findings: Vec<Finding>,
    watch: Watch,
}

impl Drafting<'_> {
    /// Asks until a draft is good or no attempt is left.
    pub(super) async fn run(self) -> Drafted {
        let begun = Instant::now();
        let mut drafts: Vec<Draft> = Vec::new();
        let mut failed: Vec<Attempt> = Vec::new();
        // What past corrections teach is told before anything is said.
        let prelude = self.watch.prelude();
        let mut interventions: Vec<Intervention> = Vec::new();
        interventions
            .extend(prelude.iter().map(|told| Intervention { attempt: 0, act: Act::Prelude { told: told.clone() } }));
        let mut instruction: Option<String> = prelude.clone();
        let (mut redrafts, mut regenerations) = (0, 0);
        let mut usage = TokenCount::default();
        let mut timing = UtteranceTiming::default();
        let mut hosted = None;
        let mut fork = None;
        let mut why = String::new();
        for index in 0.. {
            let mut watch = self.watch.clone();
            let ask = Ask {
                instruction: instruction.as_deref(),
                after: fork.clone(),
                stream: self.stream.child("attempt", index as u64),
                gains: self.gains.clone(),
                tokens_max: self.tokens_max,
            };
            let error = match self.side.ask(ask, watch.sink()).await {
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
                        let stopped = watch.stopped();
                        let act = |act| Intervention { attempt: index, act };
                        interventions.extend(stopped.map(|decision| act(Act::StopEarly { decision })));
                        watch.complete(self.watch, &completion);
                        let doubts = watch.doubts();
                        let next = if !findings.is_empty() && redrafts < self.redrafts_max {
                            redrafts += 1;
                            Some((self.instruct)(&findings))
                        } else if !doubts.is_empty()
                            && regenerations < self.regenerations_max
                            && watch.broken().is_none()
                        {
                            regenerations += 1;
                            let spans: Vec<_> = doubts.iter().take(DOUBTS_TOLD).map(|span| span.text.clone()).collect();
                            let told = doubted(&spans);
                            interventions.push(act(Act::Regenerate { spans, told: told.clone() }));
                            Some(told)
                        } else {
                            None
                        };
                        let again = next.is_some();
                        drafts.push(Draft { index, completion, instruction, findings, watch });
                        if !again {
                            break;
                        }
                        let told: Vec<_> = prelude.iter().cloned().chain(next).collect();
                        instruction = Some(told.join("\n"));
                        continue;
                    }
                    "the reply is empty".to_owned()
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
        timing.seconds = begun.elapsed().as_secs_f64();
        let mut drafted = self.choose(drafts, failed, why, usage, timing, interventions);
        drafted.utterance.hosted = hosted;
        drafted
    }

    /// Says what was written beforehand.
    pub(super) fn written(self, words: String) -> Drafted {
        let mut watch = self.watch.clone();
        let completion = Completion::text(WRITTEN, words);
        watch.complete(self.watch, &completion);
        let draft = Draft { index: 0, completion, instruction: None, findings: Vec::new(), watch };
        let (usage, timing) = (TokenCount::default(), UtteranceTiming::default());
        self.choose(vec![draft], Vec::new(), String::new(), usage, timing, Vec::new())
    }

    /// Takes the draft with the fewest findings; among equals the one that its model was surest of where the regulator's
    /// word is carried out, else the first.
    fn choose(
        self,
        drafts: Vec<Draft>,
        failed: Vec<Attempt>,
        why: String,
        usage: TokenCount,
        timing: UtteranceTiming,
        interventions: Vec<Intervention>,
    ) -> Drafted {
        let fewest = drafts.iter().map(|draft| draft.findings.len()).min();
        let best = drafts.iter().filter(|draft| Some(draft.findings.len()) == fewest);
        let doubt = |draft: &&Draft| if self.watch.enforces() { 1.0 - draft.watch.confidence() } else { 0.0 };
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
        let mut watch = accepted.as_ref().map_or(self.watch, |draft| &draft.watch).clone();
        let mut utterance = Utterance {
            speaker: self.speaker,
            adversary: None,
            content: MISSING_REPLY.to_owned(),
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
            regulator: watch.record(),
            interventions,
            timing,
        };
        let Some(draft) = accepted else {
            utterance.failure = Some(Failure { why });
            watch.accepted(&utterance, &events);
            utterance.regulator = watch.record();
            let message = Message::assistant(MISSING_REPLY);
            return Drafted { utterance, events, message, snapshot: None, before: None, tokens: Vec::new(), watch };
        };
        let Completion { mut message, tokens, finish, reading, model, snapshot, before, fallbacks, .. } =
            draft.completion;
        if message.content.trim().is_empty() {
            message = Message::assistant(MISSING_REPLY);
        }
        utterance.content.clone_from(&message.content);
        utterance.quality =
            Some(finish).filter(|&finish| finish != Finish::Refusal).and_then(|_| (self.quality)(&message.content));
        utterance.ids = message.ids.as_deref().map(<[_]>::to_vec);
        utterance.model = Some(model);
        utterance.fallbacks = fallbacks.into_iter().map(|(model, why)| Fallback { model, why }).collect();
        utterance.finish = Some(finish);
        utterance.attempt = draft.index;
        utterance.tokens = TokenSummary::of(&tokens);
        utterance.timing.reading = Some(reading);
        utterance.instruction = draft.instruction;
        watch.accepted(&utterance, &events);
        utterance.regulator = watch.record();
        Drafted { utterance, events, message, snapshot, before, tokens, watch }
    }
}

/// What to tell a model about the parts that it found unlikely itself.
fn doubted(spans: &[String]) -> String {
    let named: Vec<_> = spans.iter().map(|span| format!("\u{201c}{span}\u{201d}")).collect();
    format!("You were not sure of {}. Say only what you are sure of.", named.join(", "))
}
