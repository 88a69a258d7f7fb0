//! Multiple-choice questions to the session's model: about the specification, the shape, the finished work. If the
//! answer is unsure, the default by rule is used. After the number of unsure answers set by the mood's profile, the
//! stronger model is asked, if the user named one.

use super::claims;
use super::core::{Performed, Session};
use super::experts::{self, Expert};
use super::judgement::{Question, TEMPLATE_TOKENS_MAX, judge};
use super::model_reading::{self, ModelReading, ReadingCheck};
use super::outcome::{ActionOutcome, ExpertOpinion, ModelJudgement, WorkItemKind};
use super::setup::SessionError;
use crate::foundation::base::{RngStream, limits};
use crate::foundation::chat::{Message, ModelChain, Prompt, Request, Sampling};
use crate::foundation::gate::{Budget, CallPermit, CountedTokens, LeaseId, LedgerEntry};
use crate::governance::mood::Mood;
use crate::governance::mood::lint::suspicions;
use crate::governance::statechart::hope::{Aspects, Clarity, Event, Shape, SpecScores};
use crate::simulation::authorizer::CallRequest;

const SHAPES: [&str; 3] =
    ["the program works alone", "the program works alone and a person reviews", "both work step by step"];
const CLARITY: [&str; 3] = ["nothing is said of it", "something is said of it", "it is said in full"];
/// The shape for work with suspicious replies (text that gives instructions to its reader): a person should review it.
pub(super) const RISK_OF_SUSPECTS: Shape = Shape::Colleague;
/// Characters of context for a model without a stated prompt limit.
const CONTEXT_CHARS: usize = 6_000;

impl Session {
    /// Asks the session's model a question. If it is unsure, the default is used.
    pub(super) async fn ask_model(
        &mut self,
        lease: LeaseId,
        question: Question<'_>,
    ) -> Result<ModelJudgement, SessionError> {
        let weak = self.authorizer.profile().tier_after(self.unsure) == self.authorizer.profile().tier_after(0);
        let (model, chain) = match (&self.strong, &self.settings.strong) {
            (Some(model), Some(chain)) if !weak => (model.clone(), chain.clone()),
            _ => (self.model.clone(), self.settings.model.clone()),
        };
        let cost = Budget { calls: question.calls_max(), tokens: question.tokens_max(), ..Budget::NOTHING };
        let permit = self.permit_calls(lease, &chain, &question.arguments(), cost)?;
        let stream = RngStream::root(self.settings.seed).child(&question.name, 0);
        let judged = ModelJudgement {
            escalated: !weak && self.strong.is_some(),
            ..judge(model.as_ref(), &question, stream, permit).await
        };
        self.unsure = if judged.choice.is_none() { self.unsure + 1 } else { 0 };
        let body = serde_json::to_value(&judged).map_err(SessionError::json)?;
        self.authorizer.record(vec![LedgerEntry::new("model.quantised", body)])?;
        Ok(judged)
    }

    /// Reads the need with the session's model, if it passed `loom session check`; `None` otherwise.
    pub(super) async fn read_need(&mut self) -> Result<Option<ModelReading>, SessionError> {
        if !ReadingCheck::stored(self.model.info()).is_some_and(|check| check.is_capable()) {
            return Ok(None);
        }
        let need = self.state.work.need.clone();
        let context = model_reading::context(&need);
        let mut reading = ModelReading::default();
        for (field, text, choices) in model_reading::asked(&need) {
            // Each field by itself: the stronger model was not tested.
            self.unsure = 0;
            let choices: Vec<&str> = choices.iter().map(String::as_str).collect();
            let name = model_reading::name(field);
            let question = Question { name, context: &context, text: text.to_owned(), choices: &choices };
            let judged = self.ask_model(self.authorizer.root(), question).await?;
            reading.note(field, judged);
        }
        Ok(Some(reading))
    }

    /// Requests a permit for calls of the models of a chain.
    fn permit_calls(
        &self,
        lease: LeaseId,
        chain: &ModelChain,
        arguments: &str,
        cost: Budget,
    ) -> Result<CallPermit, SessionError> {
        let request = CallRequest { lease, chain, arguments, cost, counted: CountedTokens::All };
        let permit = self.authorizer.permit_calls(&[request])?.pop();
        permit.ok_or_else(|| SessionError::Message("the gate made no decision".to_owned()))
    }

    /// The context for the model, cut to half of its prompt limit.
    fn context(&self, more: &str) -> String {
        let chars_max = self.model.info().prompt_tokens_max.map_or(CONTEXT_CHARS, |tokens| tokens * 2);
        let whole = format!("{}\n{more}", self.state.work.need);
        whole.chars().take(chars_max).collect()
    }

    pub(super) async fn score_spec(&mut self) -> Result<Performed, SessionError> {
        let context = self.context("");
        let mut scores = self.state.work.plan.clarity(&self.state.work.need);
        let mut all = Vec::new();
        let SpecScores { outcome, scope, constraints, success, done } = &mut scores;
        for (name, text, score) in [
            ("outcome", "How clear is what is wanted?", outcome),
            ("scope", "How clear is what belongs to it?", scope),
            ("constraints", "How clear is what must be kept to?", constraints),
            ("success", "How clear is how success is told?", success),
            ("done", "How clear is when it is done?", done),
        ] {
            let question =
                Question { name: format!("spec {name}"), context: &context, text: text.to_owned(), choices: &CLARITY };
            let judged = self.ask_model(self.authorizer.root(), question).await?;
            if let Some(choice) = chosen(&judged, &CLARITY) {
                *score = [Clarity::Absent, Clarity::Partial, Clarity::Clear].get(choice).copied().unwrap_or(*score);
            }
            all.push(judged);
        }
        if !self.state.work.plan.doubts.is_empty() {
            // No model decides that a need was understood.
            (scores.outcome, scores.success) = (Clarity::Absent, Clarity::Absent);
        }
        Ok((ActionOutcome::Spec(scores, all), vec![Event::SpecScored]).into())
    }

    pub(super) async fn score_aspects(&mut self) -> Result<Performed, SessionError> {
        let context = self.context("");
        let mut aspects = self.aspects()?;
        let mut all = Vec::new();
        let Aspects {
            decomposition,
            interdependency,
            novelty,
            risk,
            ambiguity,
            domain_knowledge,
            verification,
            reversibility,
        } = &mut aspects;
        for (name, aspect) in [
            ("decomposition", decomposition),
            ("interdependency", interdependency),
            ("novelty", novelty),
            ("risk", risk),
            ("ambiguity", ambiguity),
            ("domain knowledge", domain_knowledge),
            ("verification", verification),
            ("reversibility", reversibility),
        ] {
            let text = format!("As to {name}, how should this be worked on?");
            let question = Question { name: format!("aspect {name}"), context: &context, text, choices: &SHAPES };
            let judged = self.ask_model(self.authorizer.root(), question).await?;
            *aspect = chosen(&judged, &SHAPES).and_then(shape_at).unwrap_or(*aspect);
            all.push(judged);
        }
        let moods = claims::believed(&all)?;
        Ok(Performed { moods, ..Performed::from((ActionOutcome::Aspects(aspects, all), vec![Event::AspectsScored])) })
    }

    /// The aspects by rules.
    fn aspects(&self) -> Result<Aspects, SessionError> {
        let (work, settings) = (&self.state.work, &self.settings);
        let reviewed = |yes: bool| if yes { Shape::ToolReview } else { Shape::Tool };
        let knows = self.panel()?.iter().any(|expert| !expert.profile(&work.need).outside);
        Ok(Aspects {
            // The work items and their dependencies are the same for every need.
            decomposition: Shape::Tool,
            interdependency: Shape::Tool,
            novelty: reviewed(settings.config.is_some()),
            // Text sent to a host leaves this machine, and costs money.
            risk: if work.is_suspect() {
                RISK_OF_SUSPECTS
            } else {
                reviewed(self.is_hosted() || self.state.is_adversarial())
            },
            ambiguity: reviewed(!work.assumptions.is_empty()),
            domain_knowledge: reviewed(!knows),
            verification: reviewed(settings.judge.is_none()),
            reversibility: reviewed(self.is_hosted() || settings.memory.is_some()),
        })
    }

    /// Whether any model is hosted.
    pub(super) fn is_hosted(&self) -> bool {
        !self.settings.hosts().is_empty()
    }

    pub(super) fn panel(&self) -> Result<Vec<Expert>, SessionError> {
        let about = self.state.work.consult.as_ref().map_or(&self.state.work.need, |(_, words)| words);
        experts::panel(about, &self.settings.blocked).map_err(SessionError::Message)
    }

    /// Asks the panel about the shapes, or about the user's question.
    pub(super) async fn hear_panel(&mut self, event: Event) -> Result<Performed, SessionError> {
        let about = self.state.work.consult.as_ref().map(|(_, words)| words.clone());
        let stuck = self.state.work.last_error.clone().filter(|_| event == Event::Diagnosed);
        let context = self.context(&[about, stuck].into_iter().flatten().collect::<Vec<_>>().join("\n"));
        let mut opinions = Vec::new();
        for expert in self.panel()? {
            let confidence = expert.confidence(&self.state.work.need);
            if confidence.refuses() {
                continue;
            }
            let text = format!("You are an expert in {}. How should this be worked on?", expert.field);
            let question =
                Question { name: format!("panel {}", expert.name), context: &context, text, choices: &SHAPES };
            let judged = self.ask_model(self.authorizer.root(), question).await?;
            let shape = chosen(&judged, &SHAPES).and_then(shape_at);
            opinions.push(ExpertOpinion {
                expert: expert.name,
                confidence: confidence.points(),
                shape,
                blocker: false,
                judged,
            });
        }
        // Without opinions there is nothing to wait for.
        let event = if opinions.is_empty() && event != Event::PanelHeard { Event::Stalled } else { event };
        Ok((ActionOutcome::Heard(opinions), vec![event]).into())
    }

    /// Asks the panel about the finished work, under a child lease in SKEPTICAL.
    pub(super) async fn review(&mut self) -> Result<Performed, SessionError> {
        const VERDICTS: [&str; 2] = ["no", "yes"];
        // Transcripts with suspicious replies are not shown to the experts.
        let experts = if self.state.work.is_suspect() { Vec::new() } else { self.panel()? };
        let transcripts = self.transcripts(WorkItemKind::Rollouts)?;
        let turns = transcripts.iter().flat_map(|transcript| &transcript.turns);
        let lines = turns.flat_map(|turn| ["P: ", &turn.persona.content, "\nT: ", &turn.interlocutor.content, "\n"]);
        let talk: String = lines.collect();
        let context = self.context(&talk);
        let panel = self.authorizer.delegate_all("experts", Mood::Skeptical)?;
        let mut opinions = Vec::new();
        for expert in experts {
            let confidence = expert.confidence(&self.state.work.need);
            if confidence.refuses() {
                continue;
            }
            let text = expert.review_question.clone();
            let question =
                Question { name: format!("review {}", expert.name), context: &context, text, choices: &VERDICTS };
            let judged = self.ask_model(panel, question).await?;
            let blocker = chosen(&judged, &VERDICTS) == Some(1);
            opinions.push(ExpertOpinion {
                expert: expert.name,
                confidence: confidence.points(),
                shape: None,
                blocker,
                judged,
            });
        }
        self.authorizer.revoke(panel)?;
        let moods = self.challenged(&opinions)?;
        Ok(Performed { moods, ..Performed::from((ActionOutcome::Heard(opinions), vec![Event::Reviewed])) })
    }

    /// Whether the model answers that the pilot does not match the need.
    pub(super) async fn doubts(&mut self) -> Result<bool, SessionError> {
        const FITS: [&str; 2] = ["something else was wanted", "this is what was wanted"];
        let pilot = self.transcripts(WorkItemKind::Pilot)?;
        let first = pilot.iter().flat_map(|talk| &talk.turns).map(|turn| turn.persona.content.as_str());
        let context = self.context(&first.collect::<String>());
        let text = "Is this conversation what was asked for?".to_owned();
        let question = Question { name: "pilot fits".to_owned(), context: &context, text, choices: &FITS };
        Ok(chosen(&self.ask_model(self.authorizer.root(), question).await?, &FITS) == Some(0))
    }

    /// An expert's advice in free text, shown to the user only; nothing depends on it. Suspicious advice is withheld.
    pub(super) async fn advise(&mut self, expert: &Expert, words: &str) -> Result<String, SessionError> {
        let asked =
            format!("{}\nYou are an expert in {}. In one or two sentences: {words}", self.context(""), expert.field);
        // A template adds tokens to the message.
        let thought = self.model.info().thought_tokens_max().unwrap_or_default();
        let tokens = (asked.len() + TEMPLATE_TOKENS_MAX + limits::ADVICE_TOKENS_MAX + thought) as u64;
        let cost = Budget { calls: 1, tokens, ..Budget::NOTHING };
        let permit = self.permit_calls(self.authorizer.root(), &self.settings.model, &asked, cost)?;
        let stream = RngStream::root(self.settings.seed).child("advice", 0);
        let sampling = Sampling { max_tokens: limits::ADVICE_TOKENS_MAX, ..Sampling::greedy() };
        let mut request = Request::new(Prompt::Chat(vec![Message::user(asked)]), sampling, stream);
        request.permit = Some(permit);
        request.allow_thought(self.model.info());
        let advice = match self.model.complete(request, None).await {
            Ok(reply) => reply.message.content.trim().to_owned(),
            Err(error) => return Ok(format!("no advice, the model failed: {error}")),
        };
        Ok(match suspicions(&advice).first() {
            Some((_, what)) => format!("no advice: the answer was withheld, because it is suspicious ({what})"),
            None if advice.is_empty() => "nothing to say".to_owned(),
            None => advice,
        })
    }
}

pub(super) fn chosen(judged: &ModelJudgement, choices: &[&str]) -> Option<usize> {
    let choice = judged.choice.as_deref()?;
    choices.iter().position(|one| *one == choice)
}

fn shape_at(choice: usize) -> Option<Shape> {
    [Shape::Tool, Shape::ToolReview, Shape::Colleague].get(choice).copied()
}
