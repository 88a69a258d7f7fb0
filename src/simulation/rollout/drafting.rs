//! One message: drafts, checks, redrafts, and what is done when a model gives nothing.

use std::time::Instant;

use super::monitors::Finding;
use super::side::{Ask, Side};
use super::transcript::{
    Attempt, Failure, Fallback, HostedRecord, MonitorAction, MonitorEvent, TokenCount, TokenSummary, Utterance,
    UtteranceTiming,
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
    /// What is wrong with a draft.
    pub(super) check: &'a (dyn Fn(&str) -> Vec<Finding> + Sync),
    /// What to tell the model about it.
    pub(super) instruct: &'a (dyn Fn(&[Finding]) -> String + Sync),
}

/// What came of it.
pub(super) struct Drafted {
    pub(super) utterance: Utterance,
    pub(super) events: Vec<MonitorEvent>,
    /// What was said, as the side that said it remembers it.
    pub(super) message: Message,
    pub(super) snapshot: Option<Snapshot>,
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
        let mut instruction: Option<String> = None;
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
                        watch.complete(self.watch, &completion);
                        let again = !findings.is_empty() && drafts.len() < self.redrafts_max;
                        let next = again.then(|| (self.instruct)(&findings));
                        drafts.push(Draft { index, completion, instruction, findings, watch });
                        if !again {
                            break;
                        }
                        instruction = next;
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
        let mut drafted = self.choose(drafts, failed, why, usage, timing);
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
        self.choose(vec![draft], Vec::new(), String::new(), usage, timing)
    }

    /// Takes the draft with the fewest findings, the first among equals.
    fn choose(
        self,
        drafts: Vec<Draft>,
        failed: Vec<Attempt>,
        why: String,
        usage: TokenCount,
        timing: UtteranceTiming,
    ) -> Drafted {
        let taken = drafts.iter().min_by_key(|draft| draft.findings.len()).map(|draft| draft.index);
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
        watch.cost(usage);
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
            regulator: watch.record(),
            timing,
        };
        let Some(draft) = accepted else {
            utterance.failure = Some(Failure { why });
            let message = Message::assistant(MISSING_REPLY);
            return Drafted { utterance, events, message, snapshot: None, tokens: Vec::new(), watch };
        };
        let Completion { mut message, tokens, finish, reading, model, snapshot, fallbacks, .. } = draft.completion;
        if message.content.trim().is_empty() {
            message = Message::assistant(MISSING_REPLY);
        }
        utterance.content.clone_from(&message.content);
        utterance.ids = message.ids.as_deref().map(<[_]>::to_vec);
        utterance.model = Some(model);
        utterance.fallbacks = fallbacks.into_iter().map(|(model, why)| Fallback { model, why }).collect();
        utterance.finish = Some(finish);
        utterance.attempt = draft.index;
        utterance.tokens = TokenSummary::of(&tokens);
        utterance.timing.reading = Some(reading);
        utterance.instruction = draft.instruction;
        Drafted { utterance, events, message, snapshot, tokens, watch }
    }
}
