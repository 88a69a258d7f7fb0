//! Performs the chart's actions: one match arm per action, so that a missing one does not compile.

use super::core::{Performed, Session};
use super::experts;
use super::outcome::{
    ActionOutcome, Conclusion, ConsultMode, SUSPECT, VerifyCheck, WorkItemKind, WorkItemResult, all_hold, failed,
    numbered,
};
use super::setup::SessionError;
use super::{asking, documents, messages, need, questions, wave};
use crate::foundation::base::Digest;
use crate::foundation::gate::{Category, Effect};
use crate::governance::mood;
use crate::governance::mood::lint::question_round_faults;
use crate::governance::statechart::hope::{Action, Agreement, Engagement, Event, Familiarity, FitScore, Shape};

impl Session {
    #[expect(clippy::too_many_lines, reason = "one arm per action of the chart: a missing one does not compile")]
    pub(super) async fn perform(&mut self, action: Action) -> Result<Performed, SessionError> {
        let autonomous = self.state.facts.engagement == Some(Engagement::Autonomous);
        self.unsure = 0;
        let plain = |event| Ok(Performed::from((ActionOutcome::Nothing, vec![event])));
        match action {
            Action::AwaitNeed => match self.read_need().await? {
                None => plain(Event::Need),
                Some(reading) => {
                    for line in reading.disagreements(&self.state.work.need, &self.settings.stated_plan()) {
                        (self.on_message)(&format!("[SESSION] Read in two ways: {line}"));
                    }
                    Ok((ActionOutcome::Read(reading), vec![Event::Need]).into())
                }
            },
            Action::DetectType => {
                (self.on_message)(&format!("[SESSION] Kind of work: {}", need::kind(&self.state.work.need)));
                Ok((ActionOutcome::Known(self.recall()?), vec![Event::TypeDetected]).into())
            }
            Action::AskEngagement | Action::Remind | Action::TellPaused => self.ask_user(action, vec![]),
            Action::Acknowledge => Ok(self.speak(action, vec![Event::Response, Event::Acknowledged])),
            Action::AskQuestions if questions::open_questions(&self.state.work.plan).is_empty() => {
                plain(Event::Answered)
            }
            // Collaborative mode has one round of questions, about the most important parts; a round that fails the
            // lint is not asked.
            Action::AskQuestions if self.state.questions_are_answered() || !self.questions_pass_lint() => {
                let lines = self.state.work.plan.clone().assume();
                for line in &lines {
                    (self.on_message)(&format!("[ASSUMPTION] {line}"));
                }
                Ok((ActionOutcome::Assumed(lines), vec![Event::Answered]).into())
            }
            Action::AskQuestions
            | Action::Echo
            | Action::ShowBlueprint
            | Action::ShowRisks
            | Action::AskApproval
            | Action::ShowReview => {
                let held = action == Action::Echo && self.state.facts.held >= Agreement::Intent;
                // A need that was not understood is not run on a guess.
                let doubted = action == Action::Echo && !self.state.work.plan.doubts.is_empty();
                if autonomous && !held && !doubted && !matches!(action, Action::ShowBlueprint | Action::ShowRisks) {
                    return Ok(self.speak(action, vec![Event::Response, Event::NoAnswer]));
                }
                self.ask_user(action, vec![Event::Response])
            }
            Action::AskDifferently => {
                (self.on_message)(&messages::message(action, &self.state));
                Ok((ActionOutcome::Nothing, vec![]).into())
            }
            Action::TellLimit
            | Action::TellBlocked
            | Action::TripBreaker
            | Action::SurfaceDoubt
            | Action::GiveNoAdvice => Ok(self.speak(action, vec![])),
            Action::AnnounceShape => Ok(self.speak(action, vec![Event::Response, Event::Shaped])),
            Action::Close => Ok(self.speak(action, vec![Event::Response])),
            Action::Assume => {
                let lines = self.state.work.plan.clone().assume();
                for line in &lines {
                    (self.on_message)(&format!("[ASSUMPTION] {line}"));
                }
                Ok((ActionOutcome::Assumed(lines), vec![]).into())
            }
            Action::ScoreSpec => self.score_spec().await,
            Action::Refine => plain(Event::Refined),
            Action::WriteBrief => self.write_brief(Event::BriefWritten),
            // There is no brief yet if the need was clear at once; and it is outdated if the user changed the plan.
            Action::ExtractIntent if self.brief_is_due() => self.write_brief(Event::Extracted),
            Action::ExtractIntent => plain(Event::Extracted),
            Action::ScoreAspects => self.score_aspects().await,
            Action::HearPanel => self.hear_panel(Event::PanelHeard).await,
            Action::SelectShape => {
                let selection = self.state.work.aspects.map(|aspects| aspects.select());
                let missing =
                    || SessionError::Message("the shape cannot be selected: the aspects were not scored".to_owned());
                Ok((ActionOutcome::Selected(selection.ok_or_else(missing)?), vec![Event::ShapeSelected]).into())
            }
            Action::ScoreFit => {
                let fit = self.fit()?;
                if let Some(changed) = messages::shape_change(&self.state, &fit) {
                    (self.on_message)(&changed);
                }
                Ok((ActionOutcome::Fit(fit), vec![Event::FitScored]).into())
            }
            Action::Decompose => {
                // A brief that was extended is agreed as well.
                let name = self.state.work.file("brief");
                let brief = if self.brief_is_due() {
                    Some(self.write(&name, &documents::brief(&self.state.work))?)
                } else {
                    None
                };
                let (name, text) = (numbered("registration", self.state.work.rounds + 1, "json"), self.registration()?);
                self.write(&name, &text)?;
                let performed = self.speak(action, vec![Event::Response, Event::Decomposed]);
                // The next step is clear from here on.
                let moods = vec![mood::MoodEvent::NextClear];
                Ok(Performed {
                    outcome: ActionOutcome::Items(wave::items(self.state.work.plan.question.value), brief),
                    moods,
                    ..performed
                })
            }
            Action::RunWave => self.run_wave().await,
            Action::NoteFailure => plain(Event::WaveDone),
            Action::Review => self.review().await,
            Action::Verify => {
                let checks = self.verify();
                let passed = all_hold(&checks);
                let event = if passed { mood::MoodEvent::VerifiersPassed } else { mood::MoodEvent::VerifiersFailed };
                let broken = checks.iter().any(VerifyCheck::is_broken_must_not);
                let tell = if broken { Event::MustNotBroken } else { Event::Verification };
                Ok(Performed { moods: vec![event], ..Performed::from((ActionOutcome::Verified(checks), vec![tell])) })
            }
            Action::ConcludeDone => self.conclude(Conclusion::Done),
            Action::ConcludeUnreviewed => self.conclude(Conclusion::Unreviewed),
            Action::ConcludeCancelled => Ok(concluded(Conclusion::Cancelled)),
            Action::ConcludeStopped => Ok(concluded(Conclusion::Stopped)),
            Action::ConcludeStuck => Ok(concluded(Conclusion::Stuck)),
            Action::Audit => Ok((self.audit(), vec![Event::Audited]).into()),
            Action::WriteFooter => self.write_footer(),
            Action::LoadBlocklist => plain(Event::BlocklistLoaded),
            Action::DetectMode => plain(match &self.state.work.consult {
                Some((consult, _)) => match consult.mode {
                    ConsultMode::Single => Event::Single,
                    ConsultMode::Panel => Event::Panel,
                    ConsultMode::Unblock => Event::Unblock,
                },
                // Without a request by the user, only failures ask for advice.
                None => Event::Unblock,
            }),
            Action::DetectExpert => plain(Event::ExpertDetected),
            Action::LoadProfile => {
                let work = &self.state.work;
                let named = work.consult.as_ref().and_then(|(consult, _)| consult.expert.as_deref());
                let named = named.filter(|name| !self.settings.blocked.iter().any(|blocked| blocked == name));
                let profile = named.and_then(experts::named).map(|expert| expert.profile(&work.need));
                Ok((ActionOutcome::Expert(profile), vec![Event::ProfileLoaded]).into())
            }
            Action::ScoreConfidence => plain(Event::ConfidenceScored),
            Action::Generate => self.generate(action).await,
            Action::SelectExperts => plain(Event::ExpertsSelected),
            Action::Debate => self.hear_panel(Event::Debated).await,
            Action::SurfaceTensions => Ok(self.speak(action, vec![Event::TensionsSurfaced])),
            Action::Synthesize => Ok(self.speak(action, vec![Event::Advised])),
            Action::ParseBlocker => Ok(self.speak(action, vec![Event::BlockerParsed])),
            Action::Diagnose => self.hear_panel(Event::Diagnosed).await,
            Action::Recommend => {
                let sure = self.state.work.panel.iter().any(|opinion| opinion.judged.choice.is_some());
                let event = if sure { Event::Advised } else { Event::RecommendFailed };
                Ok(self.speak(action, vec![event]))
            }
            Action::Research => {
                let lines = self.recall()?;
                (self.on_message)(&messages::message(action, &self.state));
                Ok((ActionOutcome::Known(lines), vec![]).into())
            }
            Action::AdoptIntent | Action::ReleaseIntent | Action::HoldShape | Action::ReleaseShape => {
                Ok((ActionOutcome::Nothing, vec![]).into())
            }
        }
    }

    /// Whether the open questions pass the lint.
    fn questions_pass_lint(&self) -> bool {
        let questions: Vec<_> =
            questions::open_questions(&self.state.work.plan).into_iter().map(|asked| asked.question).collect();
        question_round_faults(&questions).is_empty()
    }

    /// Asks the user a question, and waits.
    fn ask_user(&mut self, action: Action, next_events: Vec<Event>) -> Result<Performed, SessionError> {
        let effect = Effect::new(Category::Ask, self.words(action));
        self.authorizer.allow(&effect)?;
        let performed = self.speak(action, next_events);
        Ok(Performed { waits: true, moods: vec![mood::MoodEvent::PreferenceMissing], ..performed })
    }

    fn speak(&mut self, action: Action, next_events: Vec<Event>) -> Performed {
        let text = self.words(action);
        (self.on_message)(&text);
        (ActionOutcome::Spoke(Digest::of(text)), next_events).into()
    }

    fn words(&self, action: Action) -> String {
        match action {
            Action::Acknowledge => messages::acknowledgement(&self.state.work, &self.stakes()),
            action => messages::message(action, &self.state),
        }
    }

    fn fit(&self) -> Result<FitScore, SessionError> {
        let work = &self.state.work;
        // Built-in configs count as familiar work, the user's own as new.
        let familiarity = if self.settings.config.is_none() { 8 } else { 5 };
        let familiarity =
            Familiarity::try_from(familiarity).map_err(|error| SessionError::Message(error.to_string()))?;
        let written = work.brief().is_some();
        Ok(FitScore { spec: self.state.facts.spec, constraints: written, success: written, done: written, familiarity })
    }

    /// Writes the brief and sets the mood's aim.
    fn write_brief(&mut self, event: Event) -> Result<Performed, SessionError> {
        let name = self.state.work.file("brief");
        let digest = self.write(&name, &documents::brief(&self.state.work))?;
        let moods = self.aimed()?;
        Ok(Performed { moods, ..Performed::from((ActionOutcome::Wrote(name, digest), vec![event])) })
    }

    /// Whether the brief on disk differs from what is agreed.
    fn brief_is_due(&self) -> bool {
        self.state.work.brief() != Some(Digest::of(documents::brief(&self.state.work)))
    }

    pub(super) fn write(&mut self, name: &str, text: &str) -> Result<Digest, SessionError> {
        let effect = self.files.writing(name, text);
        let permit = self.authorizer.permit(&effect)?;
        self.record_document(name, text)?;
        Ok(self.files.write(permit, name, text, self.authorizer.now())?)
    }

    /// Concludes the work, if the verification passes on the files as they are. If the user answered PROMOTE, the finding is
    /// asserted.
    fn conclude(&mut self, how: Conclusion) -> Result<Performed, SessionError> {
        let checks = self.verify();
        if !all_hold(&checks) {
            (self.on_message)(&format!("The verification does not pass: {}", failed(&checks)));
            let concluded = ActionOutcome::Concluded(Conclusion::Unverified, None, checks);
            return Ok(Performed {
                moods: vec![mood::MoodEvent::VerifiersFailed],
                ..Performed::from((concluded, vec![]))
            });
        }
        let asserted = if self.state.work.promote { Some(self.assert()?) } else { None };
        let asserted = match asserted {
            Some(Err(why)) => {
                (self.on_message)(&format!("The finding is not asserted: {why}"));
                None
            }
            Some(Ok(asserted)) => Some(asserted),
            None => None,
        };
        Ok((ActionOutcome::Concluded(how, asserted, checks), vec![]).into())
    }

    /// Runs a wave. Then one event follows: an item failed, the pilot is doubted, or the user is asked.
    async fn run_wave(&mut self) -> Result<Performed, SessionError> {
        let (results, mut moods) = self.wave().await?;
        for error in results.iter().filter_map(|result| result.error.as_ref()) {
            (self.on_message)(&format!("A work item failed: {error}"));
        }
        moods.extend(self.learned(&results)?);
        moods.extend(self.disclosed(&results)?);
        if moods.contains(&mood::MoodEvent::Regulated(mood::RegulatorSignal::ProceduralWarning)) {
            moods.extend(self.drive("procedure", "what users corrected before is told to the persona's model first")?);
        }
        let asks = self.state.facts.engagement != Some(Engagement::Autonomous);
        let piloted = |result: &WorkItemResult| {
            let item = self.state.work.items.get(result.item);
            result.error.is_none() && item.is_some_and(|item| item.kind == WorkItemKind::Pilot)
        };
        let piloted = results.iter().any(piloted);
        let doubts = piloted && self.doubts().await?;
        let together = self.state.shape() == Some(Shape::Colleague);
        let capped = moods.contains(&mood::MoodEvent::Regulated(mood::RegulatorSignal::CostCap));
        let failed = results.iter().any(|result| result.error.is_some());
        let doubt = doubts.then_some(Event::WrongIntent);
        let suspect = results.iter().any(|result| result.found.contains_key(SUSPECT));
        let reshapes = piloted && suspect && self.state.is_too_free(asking::RISK_OF_SUSPECTS);
        let event = match failed {
            true => Event::ItemFailed,
            // The wave continues when the user says so; finished items stay finished.
            false if asks && (doubts || capped || (together && piloted)) => Event::Pause,
            // No rollouts are run under a shape that the pilot shows to be too free.
            false if reshapes => {
                (self.on_message)(
                    "[SESSION] A reply of the pilot gives instructions to its reader: a new shape is selected.",
                );
                Event::Reshape
            }
            false => Event::WaveDone,
        };
        let next_events = doubt.into_iter().chain([event]).collect();
        Ok(Performed { moods, ..Performed::from((ActionOutcome::Wave(results), next_events)) })
    }

    /// One expert's advice for the user.
    async fn generate(&mut self, action: Action) -> Result<Performed, SessionError> {
        let (consult, words) = match &self.state.work.consult {
            Some((consult, words)) => (consult.clone(), words.clone()),
            None => return Ok(self.speak(action, vec![Event::Advised])),
        };
        let named = consult.expert.as_deref().and_then(experts::named);
        let Some(expert) = named.or(self.panel()?.into_iter().next()) else {
            return Ok(self.speak(action, vec![Event::Advised]));
        };
        let advice = self.advise(&expert, &words).await?;
        let sources: Vec<_> =
            self.state.work.files.iter().map(|(name, digest)| format!("{name} {}", digest.short())).collect();
        let confidence = expert.confidence(&words);
        let warns = if confidence.warns() { ", outside the expert's field" } else { "" };
        let sources = if sources.is_empty() { "the need".to_owned() } else { sources.join(", ") };
        let text = format!("{} ({} of 9{warns}): {advice}\n  based on {sources}", expert.name, confidence.points());
        (self.on_message)(&text);
        Ok((ActionOutcome::Spoke(Digest::of(text)), vec![Event::Advised]).into())
    }
}

fn concluded(conclusion: Conclusion) -> Performed {
    (ActionOutcome::Concluded(conclusion, None, Vec::new()), vec![]).into()
}
