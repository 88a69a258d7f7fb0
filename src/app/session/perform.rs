//! What the chart asks for, done: every action has its answer here, and one that is missing does not compile.

use super::core::{Performed, Session};
use super::experts;
use super::outcome::{Check, Conclusion, ItemKind, ItemResult, Mode, Outcome, SUSPECT};
use super::place::SessionError;
use super::{asking, need, pages, questions, say, wave};
use crate::foundation::base::Digest;
use crate::foundation::gate::{Category, Effect};
use crate::governance::mood;
use crate::governance::mood::lint::round_faults;
use crate::governance::statechart::hope::{Action, Engagement, Event, Familiarity, Fit, Held, Shape};

impl Session {
    #[expect(clippy::too_many_lines, reason = "an arm for each action of the chart: a missing one does not compile")]
    pub(super) async fn perform(&mut self, action: Action) -> Result<Performed, SessionError> {
        let autonomous = self.course.facts.engagement == Some(Engagement::Autonomous);
        self.unsure = 0;
        let plain = |event| Ok(Performed::from((Outcome::Nothing, vec![event])));
        match action {
            Action::AwaitNeed => plain(Event::Need),
            Action::DetectType => {
                (self.told)(&format!("[SESSION] Kind of work: {}", need::kind(&self.course.work.need)));
                Ok((Outcome::Known(self.recall()?), vec![Event::TypeDetected]).into())
            }
            Action::AskEngagement | Action::Remind | Action::TellPaused => self.ask_user(action, vec![]),
            Action::Acknowledge => Ok(self.speak(action, vec![Event::Response, Event::Acknowledged])),
            Action::AskQuestions if questions::open_questions(&self.course.work.plan).is_empty() => {
                plain(Event::Answered)
            }
            // Collaborating takes one round, of what matters most; and no round is asked that does not pass its lint.
            Action::AskQuestions if self.course.is_asked_enough() || !self.is_askable() => {
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
            Action::AskDifferently => {
                (self.told)(&say::said(action, &self.course));
                Ok((Outcome::Nothing, vec![]).into())
            }
            Action::TellLimit
            | Action::TellBlocked
            | Action::TripBreaker
            | Action::SurfaceDoubt
            | Action::GiveNoAdvice => Ok(self.speak(action, vec![])),
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
            // Where the need was clear at once nobody wrote a brief yet; where the user changed the plan it is another one.
            Action::ExtractIntent if self.brief_is_due() => self.write_brief(Event::Extracted),
            Action::ExtractIntent => plain(Event::Extracted),
            Action::ScoreAspects => self.score_aspects().await,
            Action::HearPanel => self.hear_panel(Event::PanelHeard).await,
            Action::SelectShape => {
                let selection = self.course.work.aspects.map(|aspects| aspects.select());
                let missing = || SessionError::Told("a shape is selected from aspects that nobody scored".to_owned());
                Ok((Outcome::Selected(selection.ok_or_else(missing)?), vec![Event::ShapeSelected]).into())
            }
            Action::ScoreFit => {
                let fit = self.fit()?;
                if let Some(changed) = say::reshaped(&self.course, &fit) {
                    (self.told)(&changed);
                }
                Ok((Outcome::Fit(fit), vec![Event::FitScored]).into())
            }
            Action::Decompose => {
                // More work than the brief says is agreed work as well.
                let name = self.course.work.file("brief");
                let brief =
                    if self.brief_is_due() { Some(self.write(&name, &pages::brief(&self.course.work))?) } else { None };
                let performed = self.speak(action, vec![Event::Response, Event::Decomposed]);
                // What is next is clear, whatever was not before.
                let moods = vec![mood::Event::NextClear];
                Ok(Performed { outcome: Outcome::Items(wave::items(), brief), moods, ..performed })
            }
            Action::RunWave => self.run_wave().await,
            Action::NoteFailure => plain(Event::WaveDone),
            Action::Review => self.review().await,
            Action::Verify => {
                let checks = self.verify()?;
                let passed = checks.iter().all(|check| check.passed);
                let event = if passed { mood::Event::VerifiersPassed } else { mood::Event::VerifiersFailed };
                let broken = checks.iter().any(Check::is_broken_must_not);
                let tell = if broken { Event::MustNotBroken } else { Event::Verified };
                Ok(Performed { moods: vec![event], ..Performed::from((Outcome::Verified(checks), vec![tell])) })
            }
            Action::ConcludeDone => self.conclude(),
            Action::ConcludeUnreviewed => Ok(concluded(Conclusion::Unreviewed)),
            Action::ConcludeCancelled => Ok(concluded(Conclusion::Cancelled)),
            Action::ConcludeStopped => Ok(concluded(Conclusion::Stopped)),
            Action::ConcludeStuck => Ok(concluded(Conclusion::Stuck)),
            Action::Audit => Ok((self.audit(), vec![Event::Audited]).into()),
            Action::WriteFooter => self.write_footer(),
            Action::LoadBlocklist => plain(Event::BlocklistLoaded),
            Action::DetectMode => plain(match &self.course.work.consult {
                Some((consult, _)) => match consult.mode {
                    Mode::Single => Event::Single,
                    Mode::Panel => Event::Panel,
                    Mode::Unblock => Event::Unblock,
                },
                // Only what failed asks for advice by itself.
                None => Event::Unblock,
            }),
            Action::DetectExpert => plain(Event::ExpertDetected),
            Action::LoadProfile => {
                let work = &self.course.work;
                let named = work.consult.as_ref().and_then(|(consult, _)| consult.expert.as_deref());
                let named = named.filter(|name| !self.settings.blocked.iter().any(|blocked| blocked == name));
                let profile = named.and_then(experts::named).map(|expert| expert.profile(&work.need));
                Ok((Outcome::Expert(profile), vec![Event::ProfileLoaded]).into())
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
                let sure = self.course.work.panel.iter().any(|opinion| opinion.judged.choice.is_some());
                let event = if sure { Event::Advised } else { Event::RecommendFailed };
                Ok(self.speak(action, vec![event]))
            }
            Action::Research => {
                let lines = self.recall()?;
                (self.told)(&say::said(action, &self.course));
                Ok((Outcome::Known(lines), vec![]).into())
            }
            Action::AdoptIntent | Action::ReleaseIntent | Action::HoldShape | Action::ReleaseShape => {
                Ok((Outcome::Nothing, vec![]).into())
            }
        }
    }

    /// Whether the open questions are worth asking.
    fn is_askable(&self) -> bool {
        let questions: Vec<_> =
            questions::open_questions(&self.course.work.plan).into_iter().map(|asked| asked.question).collect();
        round_faults(&questions).is_empty()
    }

    /// Asks the user something, and waits.
    fn ask_user(&mut self, action: Action, tells: Vec<Event>) -> Result<Performed, SessionError> {
        let effect = Effect::new(Category::Ask, self.words(action));
        let permit = self.ward.ask(&effect)?;
        permit.spend(&effect, self.ward.now())?;
        let performed = self.speak(action, tells);
        Ok(Performed { waits: true, moods: vec![mood::Event::PreferenceMissing], ..performed })
    }

    fn speak(&mut self, action: Action, tells: Vec<Event>) -> Performed {
        let text = self.words(action);
        (self.told)(&text);
        (Outcome::Spoke(Digest::of(text)), tells).into()
    }

    fn words(&self, action: Action) -> String {
        match action {
            Action::Acknowledge => say::acknowledged(&self.course.work, &self.stakes()),
            action => say::said(action, &self.course),
        }
    }

    fn fit(&self) -> Result<Fit, SessionError> {
        let work = &self.course.work;
        // Work with a config that comes with the program was done before; a config of the user's own is new.
        let familiarity = if self.settings.config.is_none() { 8 } else { 5 };
        let familiarity = Familiarity::try_from(familiarity).map_err(|error| SessionError::Told(error.to_string()))?;
        let written = work.brief().is_some();
        Ok(Fit { spec: self.course.facts.spec, constraints: written, success: written, done: written, familiarity })
    }

    /// Writes the brief, and with it gives the mood its aim.
    fn write_brief(&mut self, event: Event) -> Result<Performed, SessionError> {
        let name = self.course.work.file("brief");
        let digest = self.write(&name, &pages::brief(&self.course.work))?;
        let moods = self.aimed()?;
        Ok(Performed { moods, ..Performed::from((Outcome::Wrote(name, digest), vec![event])) })
    }

    /// Whether what is agreed is not what the brief says.
    fn brief_is_due(&self) -> bool {
        self.course.work.brief() != Some(Digest::of(pages::brief(&self.course.work)))
    }

    pub(super) fn write(&mut self, name: &str, text: &str) -> Result<Digest, SessionError> {
        let effect = self.files.writing(name, text);
        let permit = self.ward.ask(&effect)?;
        Ok(self.files.write(permit, name, text, self.ward.now())?)
    }

    /// The work is done. Where the user said so, what was found is asserted from now on.
    fn conclude(&mut self) -> Result<Performed, SessionError> {
        let asserted = if self.course.work.promote { Some(self.assert()?) } else { None };
        let asserted = match asserted {
            Some(Err(why)) => {
                (self.told)(&format!("Nothing is asserted: {why}"));
                None
            }
            Some(Ok(asserted)) => Some(asserted),
            None => None,
        };
        Ok((Outcome::Concluded(Conclusion::Done, asserted), vec![]).into())
    }

    /// Runs a wave. What it is told of afterwards: an item that failed, a doubt, or that it is time to ask the user.
    async fn run_wave(&mut self) -> Result<Performed, SessionError> {
        let (results, mut moods) = self.wave().await?;
        for error in results.iter().filter_map(|result| result.error.as_ref()) {
            (self.told)(&format!("An item failed: {error}"));
        }
        moods.extend(self.learned(&results)?);
        moods.extend(self.disclosed(&results)?);
        if moods.contains(&mood::Event::Regulated(mood::Regulation::ProceduralWarning)) {
            moods.extend(self.drive("procedure", "what users corrected before is told to the persona's model first")?);
        }
        let asks = self.course.facts.engagement != Some(Engagement::Autonomous);
        let piloted = |result: &ItemResult| {
            let item = self.course.work.items.get(result.item);
            result.error.is_none() && item.is_some_and(|item| item.kind == ItemKind::Pilot)
        };
        let piloted = results.iter().any(piloted);
        let doubts = piloted && self.doubts().await?;
        let together = self.course.shape() == Some(Shape::Colleague);
        let capped = moods.contains(&mood::Event::Regulated(mood::Regulation::CostCap));
        let failed = results.iter().any(|result| result.error.is_some());
        let doubt = doubts.then_some(Event::WrongIntent);
        let suspect = results.iter().any(|result| result.found.contains_key(SUSPECT));
        let reshapes = piloted && suspect && self.course.is_too_free(asking::RISK_OF_SUSPECTS);
        let event = match failed {
            true => Event::ItemFailed,
            // The wave is gone on with when the user says so: what is done stays done.
            false if asks && (doubts || capped || (together && piloted)) => Event::Pause,
            // No rollout is spent under a shape that the pilot shows to be too free.
            false if reshapes => {
                (self.told)("[SESSION] A reply of the pilot wants to be obeyed: the work is shaped anew.");
                Event::Reshape
            }
            false => Event::WaveDone,
        };
        let tells = doubt.into_iter().chain([event]).collect();
        Ok(Performed { moods, ..Performed::from((Outcome::Wave(results), tells)) })
    }

    /// One expert's word, for the user.
    async fn generate(&mut self, action: Action) -> Result<Performed, SessionError> {
        let (consult, words) = match &self.course.work.consult {
            Some((consult, words)) => (consult.clone(), words.clone()),
            None => return Ok(self.speak(action, vec![Event::Advised])),
        };
        let named = consult.expert.as_deref().and_then(experts::named);
        let Some(expert) = named.or(self.panel()?.into_iter().next()) else {
            return Ok(self.speak(action, vec![Event::Advised]));
        };
        let advice = self.advise(&expert, &words).await?;
        let sources: Vec<_> =
            self.course.work.files.iter().map(|(name, digest)| format!("{name} {}", digest.short())).collect();
        let confidence = expert.confidence(&words);
        let warns = if confidence.warns() { ", outside of what is known well" } else { "" };
        let sources = if sources.is_empty() { "the need".to_owned() } else { sources.join(", ") };
        let text = format!("{} ({} of 9{warns}): {advice}\n  after {sources}", expert.name, confidence.points());
        (self.told)(&text);
        Ok((Outcome::Spoke(Digest::of(text)), vec![Event::Advised]).into())
    }
}

fn concluded(conclusion: Conclusion) -> Performed {
    (Outcome::Concluded(conclusion, None), vec![]).into()
}
