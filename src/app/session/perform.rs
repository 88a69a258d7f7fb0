//! What the chart asks for, done: every action has its answer here, and one that is missing does not compile.

use super::drive::{Session, SessionError};
use super::experts::{self, Expert};
use super::judgement::{Question, judge};
use super::outcome::{Conclusion, ItemKind, Judged, Opinion, Outcome};
use super::{say, wave};
use crate::foundation::base::{Digest, Stream};
use crate::foundation::gate::{Budget, Category, Effect, Entry, LeaseId};
use crate::governance::mood::{self, Change, Conjecture, Mood, Text};
use crate::governance::statechart::hope::{
    Action, Aspects, Clarity, Engagement, Event, Familiarity, Fit, Footer, Held, Percent, Reversible, Shape,
    SpecScores, Verified,
};

/// What came of an action: what is remembered, what the chart is told, whether the user is waited for, what it means for the
/// mood.
pub(super) struct Performed {
    pub(super) outcome: Outcome,
    pub(super) tells: Vec<Event>,
    pub(super) waits: bool,
    pub(super) moods: Vec<mood::Event>,
}

impl From<(Outcome, Vec<Event>)> for Performed {
    fn from((outcome, tells): (Outcome, Vec<Event>)) -> Self {
        Self { outcome, tells, waits: false, moods: Vec::new() }
    }
}

const SHAPES: [&str; 3] =
    ["the program works alone", "the program works alone and a person reviews", "both work step by step"];
const CLARITY: [&str; 3] = ["nothing is said of it", "something is said of it", "it is said in full"];
/// Characters of context for a model that states no bound.
const CONTEXT_CHARS: usize = 6_000;

impl Session {
    #[expect(clippy::too_many_lines, reason = "an arm for each action of the chart: a missing one does not compile")]
    pub(super) async fn perform(&mut self, action: Action) -> Result<Performed, SessionError> {
        let autonomous = self.course.facts.engagement == Some(Engagement::Autonomous);
        let plain = |event| Ok(Performed::from((Outcome::Nothing, vec![event])));
        match action {
            Action::AwaitNeed => plain(Event::Need),
            Action::DetectType if self.settings.memory.is_some() => {
                Ok((Outcome::Known(self.recall()?), vec![Event::TypeDetected]).into())
            }
            Action::DetectType => plain(Event::TypeDetected),
            Action::AskEngagement | Action::Remind | Action::TellPaused => self.ask_user(action, vec![]),
            Action::Acknowledge => Ok(self.speak(action, vec![Event::Response, Event::Acknowledged])),
            Action::AskQuestions if say::open_questions(&self.course.work.plan).is_empty() => plain(Event::Answered),
            // Collaborating takes one round, of what matters most; who wants to be guided is asked everything.
            Action::AskQuestions if self.course.is_asked_enough() => {
                let lines = self.course.work.plan.clone().assume();
                for line in &lines {
                    (self.told)(&format!("[ASSUMPTION] {line}"));
                }
                Ok((Outcome::Assumed(lines), vec![Event::Answered]).into())
            }
            Action::AskQuestions
            | Action::Echo
            | Action::ShowBlueprint
            | Action::ShowRisks
            | Action::AskApproval
            | Action::ShowReview => {
                let held = action == Action::Echo && self.course.facts.held >= Held::Intent;
                if autonomous && !held && !matches!(action, Action::ShowBlueprint | Action::ShowRisks) {
                    return Ok(self.speak(action, vec![Event::Response, Event::NoAnswer]));
                }
                self.ask_user(action, vec![Event::Response])
            }
            Action::TellLimit
            | Action::TellBlocked
            | Action::TripBreaker
            | Action::SurfaceDoubt
            | Action::GiveNoAdvice
            | Action::AskDifferently => Ok(self.speak(action, vec![])),
            Action::AnnounceShape => Ok(self.speak(action, vec![Event::Response, Event::Shaped])),
            Action::Close => Ok(self.speak(action, vec![Event::Response])),
            Action::Assume => {
                let lines = self.course.work.plan.clone().assume();
                for line in &lines {
                    (self.told)(&format!("[ASSUMPTION] {line}"));
                }
                Ok((Outcome::Assumed(lines), vec![]).into())
            }
            Action::ScoreSpec => self.score_spec().await,
            Action::Refine => plain(Event::Refined),
            Action::WriteBrief => self.write_brief(Event::BriefWritten),
            // Where the need was clear at once nobody wrote a brief yet.
            Action::ExtractIntent if !self.course.work.files.contains_key("brief.md") => {
                self.write_brief(Event::Extracted)
            }
            Action::ExtractIntent => plain(Event::Extracted),
            Action::ScoreAspects => self.score_aspects().await,
            Action::HearPanel => self.hear_panel(Event::PanelHeard).await,
            Action::SelectShape => {
                let selection = self.course.work.aspects.map(|aspects| aspects.select());
                let missing = || SessionError::Told("a shape is selected from aspects that nobody scored".to_owned());
                Ok((Outcome::Selected(selection.ok_or_else(missing)?), vec![Event::ShapeSelected]).into())
            }
            Action::ScoreFit => Ok((Outcome::Fit(self.fit()?), vec![Event::FitScored]).into()),
            Action::Decompose => {
                let performed = self.speak(action, vec![Event::Response, Event::Decomposed]);
                Ok(Performed { outcome: Outcome::Items(wave::items()), ..performed })
            }
            Action::RunWave => {
                let (results, moods) = self.wave().await?;
                let failed = results.iter().any(|result| result.error.is_some());
                for error in results.iter().filter_map(|result| result.error.as_ref()) {
                    (self.told)(&format!("An item failed: {error}"));
                }
                let event = if failed { Event::ItemFailed } else { Event::WaveDone };
                Ok(Performed { moods, ..Performed::from((Outcome::Wave(results), vec![event])) })
            }
            Action::NoteFailure => plain(Event::WaveDone),
            Action::Review => self.review().await,
            Action::Verify => {
                let checks = self.verify()?;
                let passed = checks.iter().all(|check| check.passed);
                let event = if passed { mood::Event::VerifiersPassed } else { mood::Event::VerifiersFailed };
                Ok(Performed {
                    moods: vec![event],
                    ..Performed::from((Outcome::Verified(checks), vec![Event::Verified]))
                })
            }
            Action::ConcludeDone => Ok(concluded(Conclusion::Done)),
            Action::ConcludeUnreviewed => Ok(concluded(Conclusion::Unreviewed)),
            Action::ConcludeCancelled => Ok(concluded(Conclusion::Cancelled)),
            Action::ConcludeStopped => Ok(concluded(Conclusion::Stopped)),
            Action::ConcludeStuck => Ok(concluded(Conclusion::Stuck)),
            Action::Audit => Ok((Outcome::Audit(self.audit()), vec![Event::Audited]).into()),
            Action::WriteFooter => self.write_footer(),
            Action::LoadBlocklist => plain(Event::BlocklistLoaded),
            Action::DetectMode if self.course.facts.failures > 0 => plain(Event::Unblock),
            Action::DetectMode => plain(Event::Panel),
            Action::DetectExpert => plain(Event::ExpertDetected),
            Action::LoadProfile => {
                let profile = self.panel()?.first().map(|expert| expert.profile(&self.course.work.need));
                Ok((Outcome::Expert(profile.unwrap_or_default()), vec![Event::ProfileLoaded]).into())
            }
            Action::ScoreConfidence => plain(Event::ConfidenceScored),
            Action::Generate | Action::Synthesize | Action::Recommend => plain(Event::Advised),
            Action::SelectExperts => plain(Event::ExpertsSelected),
            Action::Debate => self.hear_panel(Event::Debated).await,
            Action::SurfaceTensions => plain(Event::TensionsSurfaced),
            Action::ParseBlocker => plain(Event::BlockerParsed),
            Action::Diagnose => self.hear_panel(Event::Diagnosed).await,
            Action::AdoptIntent
            | Action::ReleaseIntent
            | Action::HoldShape
            | Action::ReleaseShape
            | Action::Research => Ok((Outcome::Nothing, vec![]).into()),
        }
    }

    /// Asks the user something, and waits.
    fn ask_user(&mut self, action: Action, tells: Vec<Event>) -> Result<Performed, SessionError> {
        let effect = Effect::new(Category::Ask, say::said(action, &self.course));
        let permit = self.ward.ask(&effect)?;
        permit.spend(&effect, self.ward.now())?;
        let performed = self.speak(action, tells);
        Ok(Performed { waits: true, moods: vec![mood::Event::PreferenceMissing], ..performed })
    }

    fn speak(&mut self, action: Action, tells: Vec<Event>) -> Performed {
        let text = say::said(action, &self.course);
        (self.told)(&text);
        (Outcome::Spoke(Digest::of(text)), tells).into()
    }

    /// Puts questions to the session's model; where it is not sure, the default holds.
    async fn ask_model(&mut self, lease: LeaseId, question: Question<'_>) -> Result<Judged, SessionError> {
        let cost =
            Budget { calls: 2 * question.choices.len() as u64, tokens: question.tokens_max(), ..Budget::NOTHING };
        for effect in wave::model_effects(&self.settings.model, &question.arguments(), cost) {
            let permit = self.ward.ask_for(lease, &effect)?;
            permit.spend(&effect, self.ward.now())?;
        }
        let stream = Stream::root(self.settings.seed).child(&question.name, 0);
        let judged = judge(self.model.as_ref(), &question, stream).await;
        let body = serde_json::to_value(&judged).map_err(SessionError::json)?;
        self.ward.record(&[], vec![Entry::new("model.quantised", body)])?;
        Ok(judged)
    }

    /// What the model is told of the work, within what it reads well.
    fn context(&self, more: &str) -> String {
        let room = self.model.info().prompt_tokens_max.map_or(CONTEXT_CHARS, |tokens| tokens * 2);
        let whole = format!("{}\n{more}", self.course.work.need);
        whole.chars().take(room).collect()
    }

    async fn score_spec(&mut self) -> Result<Performed, SessionError> {
        let context = self.context("");
        let mut scores = self.course.work.plan.clarity(&self.course.work.need);
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
            let judged = self.ask_model(self.ward.lease, question).await?;
            if let Some(choice) = chosen(&judged, &CLARITY) {
                *score = [Clarity::Absent, Clarity::Partial, Clarity::Clear].get(choice).copied().unwrap_or(*score);
            }
            all.push(judged);
        }
        Ok((Outcome::Spec(scores, all), vec![Event::SpecScored]).into())
    }

    async fn score_aspects(&mut self) -> Result<Performed, SessionError> {
        let context = self.context("");
        let open = if self.course.work.assumptions.is_empty() { Shape::Tool } else { Shape::ToolReview };
        let mut aspects = Aspects {
            decomposition: Shape::Tool,
            interdependency: Shape::Tool,
            novelty: Shape::ToolReview,
            risk: Shape::Tool,
            ambiguity: open,
            domain_knowledge: Shape::ToolReview,
            verification: Shape::Tool,
            reversibility: Shape::Tool,
        };
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
            let judged = self.ask_model(self.ward.lease, question).await?;
            *aspect = chosen(&judged, &SHAPES).and_then(shape_at).unwrap_or(*aspect);
            all.push(judged);
        }
        Ok((Outcome::Aspects(aspects, all), vec![Event::AspectsScored]).into())
    }

    fn panel(&self) -> Result<Vec<Expert>, SessionError> {
        experts::panel(&self.course.work.need).map_err(SessionError::Told)
    }

    /// The panel on the trade-offs of the shapes.
    async fn hear_panel(&mut self, event: Event) -> Result<Performed, SessionError> {
        let context = self.context("");
        let mut opinions = Vec::new();
        for expert in self.panel()? {
            let confidence = expert.confidence(&self.course.work.need);
            if confidence.refuses() {
                continue;
            }
            let text = format!("You are an expert in {}. How should this be worked on?", expert.field);
            let question =
                Question { name: format!("panel {}", expert.name), context: &context, text, choices: &SHAPES };
            let judged = self.ask_model(self.ward.lease, question).await?;
            let shape = chosen(&judged, &SHAPES).and_then(shape_at);
            opinions.push(Opinion {
                expert: expert.name,
                confidence: confidence.points(),
                shape,
                blocker: false,
                judged,
            });
        }
        Ok((Outcome::Heard(opinions), vec![event]).into())
    }

    /// The panel on the finished work, each as a child in SKEPTICAL.
    async fn review(&mut self) -> Result<Performed, SessionError> {
        const VERDICTS: [&str; 2] = ["no", "yes"];
        let transcripts = self.transcripts(ItemKind::Rollouts)?;
        let turns = transcripts.iter().flat_map(|transcript| &transcript.turns);
        let lines = turns.flat_map(|turn| ["P: ", &turn.persona.content, "\nT: ", &turn.interlocutor.content, "\n"]);
        let talk: String = lines.collect();
        let context = self.context(&talk);
        let panel = self.ward.child("experts", Mood::Skeptical)?;
        let mut opinions = Vec::new();
        for expert in self.panel()? {
            let confidence = expert.confidence(&self.course.work.need);
            if confidence.refuses() {
                continue;
            }
            let text = expert.asks.clone();
            let question =
                Question { name: format!("review {}", expert.name), context: &context, text, choices: &VERDICTS };
            let judged = self.ask_model(panel, question).await?;
            let blocker = chosen(&judged, &VERDICTS) == Some(1);
            opinions.push(Opinion {
                expert: expert.name,
                confidence: confidence.points(),
                shape: None,
                blocker,
                judged,
            });
        }
        self.ward.dismiss(panel)?;
        Ok((Outcome::Heard(opinions), vec![Event::Reviewed]).into())
    }

    fn fit(&self) -> Result<Fit, SessionError> {
        let work = &self.course.work;
        // Work with a config that comes with the program was done before; a config of the user's own is new.
        let familiarity = if self.settings.config.is_none() { 8 } else { 5 };
        let familiarity = Familiarity::try_from(familiarity).map_err(|error| SessionError::Told(error.to_string()))?;
        let written = work.files.contains_key("brief.md");
        Ok(Fit { spec: self.course.facts.spec, constraints: written, success: written, done: written, familiarity })
    }

    /// Writes the brief, and with it gives the mood its aim.
    fn write_brief(&mut self, event: Event) -> Result<Performed, SessionError> {
        let work = &self.course.work;
        let (brief, aim) = (say::brief(work), say::echo(work));
        let digest = self.write("brief.md", &brief)?;
        let text = |text: &str| {
            let short: String = text.chars().take(1_000).collect();
            Text::try_from(short).map_err(SessionError::Told)
        };
        let conjecture = Conjecture {
            claim: text("the persona holds for as long as was asked")?,
            test: text(
                "the scores over all turns: measured from words, and how likely they are with and without the persona",
            )?,
            edge: text("words can agree with the persona while the state behind them does not")?,
            observer_upgrade: text("a judge that passed its test, or people")?,
            scope: text(&aim)?,
        };
        let moods = vec![
            mood::Event::Changed(Change::Demo(text(&aim)?)),
            mood::Event::Changed(Change::Conjecture(text("holds")?, conjecture)),
            mood::Event::NextClear,
        ];
        Ok(Performed { moods, ..Performed::from((Outcome::Wrote("brief.md".to_owned(), digest), vec![event])) })
    }

    fn write(&mut self, name: &str, text: &str) -> Result<Digest, SessionError> {
        let effect = self.files.writing(name, text);
        let permit = self.ward.ask(&effect)?;
        Ok(self.files.write(permit, name, text, self.ward.now())?)
    }

    /// The silent audit: twelve items, of which those that do not hold are told.
    fn audit(&self) -> Vec<String> {
        let (work, facts) = (&self.course.work, &self.course.facts);
        let begun = !work.items.is_empty();
        let items = [
            (true, "inversion: what would make this fail is among the risks"),
            (true, "the library of personas was searched"),
            (!work.need.is_empty(), "the context was read"),
            (true, "an estimate is given"),
            (true, "an alternative is named"),
            (true, "the size is given in points"),
            (facts.spec.points() >= 8 || facts.held >= Held::Intent, "the intent is sure by 85 %"),
            (facts.failures == 0, "nothing failed on the way"),
            (!begun || !work.checks.is_empty(), "what was done is verified"),
            (true, "it can be undone: one folder"),
            (work.objections.is_empty(), "no expert objects"),
            (work.assumptions.is_empty(), "nothing is assumed"),
        ];
        items.iter().filter(|(holds, _)| !holds).map(|(_, item)| (*item).to_owned()).collect()
    }

    /// The footer of a response; the last one stands in the report as well.
    fn write_footer(&mut self) -> Result<Performed, SessionError> {
        let (work, facts) = (&self.course.work, &self.course.facts);
        let passed = work.checks.iter().filter(|check| check.passed).count();
        let verified = match (work.checks.is_empty(), facts.gate_passed) {
            (true, _) => Verified::Assumption,
            (false, true) => Verified::Measurement,
            (false, false) => Verified::Review,
        };
        let share = if facts.gate_passed { 95 } else { 60 * passed / work.checks.len().max(1) };
        let silent = work.review.iter().filter(|opinion| opinion.judged.choice.is_none()).count();
        let doubts = 5 * work.assumptions.len().min(4) + 10 * work.objections.len().min(3) + 5 * silent.min(3);
        let confidence = Percent::try_from(share.saturating_sub(doubts) as u8)
            .map_err(|error| SessionError::Told(error.to_string()))?;
        let footer = Footer {
            verified,
            confidence,
            reversible: Reversible::InOneMinute,
            points: work.items.len() as u32,
            planned: facts.held >= Held::Shape,
            alternative: "more rollouts with other seeds".to_owned(),
            risk: say::risks(work, facts).into_iter().next().unwrap_or_default(),
        };
        (self.told)(&footer.to_string());
        if work.conclusion.is_some() {
            let mut work = work.clone();
            work.footer = Some(footer.clone());
            let report = say::report(&work, facts);
            match self.write("report.md", &report) {
                // The work is over all the same; what was found is in the log.
                Err(SessionError::Refused(refusal)) => (self.told)(&format!("The report is not written: {refusal}")),
                written => {
                    let report = written?.short();
                    self.propose(&footer, &report)?;
                }
            }
        }
        Ok((Outcome::Footer(footer), vec![Event::FooterWritten]).into())
    }
}

fn concluded(conclusion: Conclusion) -> Performed {
    (Outcome::Concluded(conclusion), vec![]).into()
}

fn chosen(judged: &Judged, choices: &[&str]) -> Option<usize> {
    let choice = judged.choice.as_deref()?;
    choices.iter().position(|one| *one == choice)
}

fn shape_at(choice: usize) -> Option<Shape> {
    [Shape::Tool, Shape::ToolReview, Shape::Colleague].get(choice).copied()
}
