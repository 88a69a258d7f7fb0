//! What a session finds out: its question, its measure with a threshold, and the arms of a comparison. All of it is
//! registered, in a file and in the receipts, before the first rollout.

use serde_json::{Value, json};

use super::core::Session;
use super::finding::{FACT, compared_fact, hypothesis, power, references};
use super::outcome::{Found, FoundValue, WorkItemKind, numbered};
use super::phrases::format_value;
use super::question::StudyQuestion;
use super::scored::{SAME, is_trusted, same_conversation, value_of};
use super::seals::written_files;
use super::setup::SessionError;
use crate::foundation::base::Digest;
use crate::foundation::base::limits::RESULT_BYTES_MAX;
use crate::foundation::chat::ModelChain;
use crate::foundation::gate::{Category, Effect, Scope};
use crate::foundation::store::read_limited;
use crate::foundation::store::receipts::Receipt;
use crate::simulation::persona::{PersonaConfig, parse};
use crate::simulation::report::{Comparison, DifferenceRow};
use crate::simulation::rollout::Transcript;

/// The config of the ablation: the same conversation, with a persona of which only the name is told. JSON is YAML.
pub(super) fn ablated(config: &PersonaConfig) -> String {
    let mut interaction = json!({
        "target_prompt": config.interaction.target_prompt,
        "first_speaker": config.interaction.first_speaker,
        "judge_window": config.interaction.judge_window,
    });
    if let (Some(opening), Some(object)) = (&config.interaction.opening, interaction.as_object_mut()) {
        object.insert("opening".to_owned(), json!(opening));
    }
    let ablated = json!({
        "schema_version": "0.1.0",
        "persona": { "identity": { "name": config.persona.name, "background": "Someone in a conversation." } },
        "trajectory": { "mode": "open_ended" },
        "interaction": interaction,
    });
    format!("{ablated:#}\n")
}

impl Session {
    /// The runs with full rollouts: one, or the two arms of a comparison.
    pub(super) fn arms(&self) -> &'static [WorkItemKind] {
        if self.state.work.plan.question.value.compares() {
            &[WorkItemKind::Rollouts, WorkItemKind::Baseline]
        } else {
            &[WorkItemKind::Rollouts]
        }
    }

    /// The config of a run: name and text.
    pub(super) fn config_of(&self, run: WorkItemKind) -> Result<(String, String), SessionError> {
        let (name, yaml) = self.config()?;
        if run != WorkItemKind::Baseline {
            return Ok((name, yaml));
        }
        match self.state.work.plan.question.value {
            StudyQuestion::Ablation => Ok((format!("the ablation of {name}"), ablated(&parse(&name, &yaml)?))),
            StudyQuestion::Prompts => {
                let other = self.settings.other_config.as_ref();
                let text = other.and_then(|(name, digest)| Some((name.clone(), self.text_of(*digest)?)));
                text.ok_or_else(|| SessionError::Message("the text of the other config is missing".to_owned()))
            }
            StudyQuestion::Holds | StudyQuestion::Targets => Ok((name, yaml)),
        }
    }

    /// The interlocutor's model of a run.
    pub(super) fn target_of(&self, run: WorkItemKind) -> &ModelChain {
        match (run, self.state.work.plan.question.value, &self.settings.other_target) {
            (WorkItemKind::Baseline, StudyQuestion::Targets, Some(target)) => target,
            _ => &self.settings.target,
        }
    }

    /// The registration of the next round: everything that the finding will depend on.
    pub(super) fn registration(&self) -> Result<String, SessionError> {
        let work = &self.state.work;
        let plan = &work.plan;
        let round = work.rounds + 1;
        let mut arms: Vec<Value> = Vec::new();
        for (name, kind) in ["A", "B"].into_iter().zip(self.arms()) {
            let (source, yaml) = self.config_of(*kind)?;
            arms.push(json!({
                "arm": name,
                "run": format!("runs/{round:02}-{}", kind.folder()),
                "config": source,
                "config_digest": Digest::of(yaml),
                "persona_model": self.settings.persona_model,
                "target": self.target_of(*kind),
            }));
        }
        let measures: Vec<_> = plan
            .compared()
            .map_or_else(|| references(plan), |compared| vec![compared])
            .into_iter()
            .map(|(id, threshold)| json!({ "score": id, "threshold": threshold }))
            .collect();
        let of = if plan.question.value.compares() { "the difference A - B of the means" } else { "the score" };
        let registration = json!({
            "format": "loom-registration",
            "version": 1,
            "need": Digest::of(&work.need),
            "question": plan.question.value,
            "hypothesis": hypothesis(work),
            "arms": arms,
            "scored_as": self.scored_as(),
            "measures": measures,
            "rule": {
                "holds": format!("the 95 % interval of {of} over rollouts is above the threshold"),
                "does_not_hold": format!("the 95 % interval of {of} over rollouts is below the threshold"),
                "cannot_tell": "anything else, or measures that disagree",
            },
            "power": power(work),
            "rollouts_per_arm": plan.rollouts.value,
            "turns": plan.turns.value,
            "adversary": plan.other.value,
            "seed": self.settings.seed,
            "judge": self.settings.judge,
        });
        Ok(format!("{registration:#}\n"))
    }

    /// Whose persona the scores are about.
    fn scored_as(&self) -> &'static str {
        match self.state.work.plan.question.value {
            StudyQuestion::Ablation => "both arms are scored for the persona of arm A",
            _ => "each arm is scored for the persona of its own config",
        }
    }

    /// The fault of this round's registration: changed, or written only after a rollout. `None` if it is in order.
    pub(super) fn registration_fault(&self, receipts: &[Receipt]) -> Option<String> {
        let round = self.state.work.rounds;
        let name = numbered("registration", round, "json");
        let wrote = written_files(receipts);
        let mut own = wrote.iter().filter(|(_, file, _)| *file == name);
        let Some((first, _, digest)) = own.next() else { return Some(format!("{name} has no receipt")) };
        if own.any(|(_, _, other)| other != digest) {
            return Some(format!("{name} was written again with another text"));
        }
        let runs = format!("runs/{round:02}-");
        if wrote.iter().any(|(seq, file, _)| file.starts_with(&runs) && seq < first) {
            return Some(format!("{name} was written after a rollout"));
        }
        let now = read_limited(&self.folder.join(&name), RESULT_BYTES_MAX).map(Digest::of).ok();
        (now != Some(*digest)).then(|| format!("{name} was changed"))
    }

    /// Compares the arms in the registered measure, and writes the comparison of all scores.
    pub(super) fn compare(&mut self) -> Result<Found, SessionError> {
        let round = self.state.work.rounds;
        self.authorizer.allow(&Effect::new(Category::Report, format!("comparison {round}")).writing(Scope::Notes))?;
        let [a, b] = [WorkItemKind::Rollouts, WorkItemKind::Baseline].map(|kind| self.run_folder(kind));
        let mut comparison = Comparison::of(&a, &b)?;
        for (side, kind) in [(&mut comparison.a, WorkItemKind::Rollouts), (&mut comparison.b, WorkItemKind::Baseline)] {
            side.path = format!("runs/{round:02}-{}", kind.folder());
        }
        let found = self.difference()?;
        let lines: Vec<_> = found.iter().map(|(name, value)| format!("- {name}: {}", format_value(value))).collect();
        let registered = lines.join("\n") + "\n";
        let hypothesis = hypothesis(&self.state.work);
        let text = format!(
            "# {hypothesis}\n\nRegistered in registration-{round:02}.json before the first rollout.\n\n{registered}\n#{}",
            comparison.markdown()
        );
        self.write(&numbered("comparison", round, "md"), &text)?;
        Ok(found)
    }

    /// The registered measure's values of both arms, and its fact.
    pub(super) fn difference(&self) -> Result<Found, SessionError> {
        let Some((measure, threshold)) = self.state.work.plan.compared() else { return Ok(Found::new()) };
        let mut arms = Vec::new();
        for kind in [WorkItemKind::Baseline, WorkItemKind::Rollouts] {
            arms.push(self.transcripts(kind)?);
        }
        let values: Vec<Vec<Option<f64>>> =
            arms.iter().map(|talks| talks.iter().map(|talk| value_of(talk, &measure)).collect()).collect();
        let [baseline, first] = values.as_slice() else { return Ok(Found::new()) };
        let row = DifferenceRow::of(&measure, baseline, first);
        let doubt = arms.iter().find_map(|talks| doubt(talks, &measure));
        let fact = compared_fact(doubt.map_or(Ok(&row), Err), threshold);
        let number = |name: &str, value: Option<f64>| value.map(|value| (name.to_owned(), FoundValue::Number(value)));
        let mut found: Found = [
            number("mean of A", row.b.map(|mean| mean.mean)),
            number("mean of B", row.a.map(|mean| mean.mean)),
            number("difference A - B", row.difference),
            number("interval low", row.interval.map(|interval| interval.low)),
            number("interval high", row.interval.map(|interval| interval.high)),
            number("p", row.p),
            number("detectable with 80 % probability", row.detectable),
        ]
        .into_iter()
        .flatten()
        .collect();
        if let Some(needed) = row.rollouts_needed {
            found.insert("rollouts per arm for such a difference".to_owned(), FoundValue::Count(needed as u64));
        }
        found.insert(format!("{measure}{FACT}"), FoundValue::Text(fact));
        Ok(found)
    }
}

/// Why the values of an arm say nothing: an untested judge, or one conversation that was played several times.
fn doubt(talks: &[Transcript], measure: &str) -> Option<String> {
    let untrusted = talks.iter().flat_map(|talk| &talk.scores).any(|score| score.id == measure && !is_trusted(score));
    if untrusted {
        return Some("the judge did not pass `loom judge check`".to_owned());
    }
    same_conversation(talks).then(|| SAME.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::persona::examples;

    #[test]
    fn the_ablation_of_every_example_is_a_valid_config_without_the_persona() {
        for example in examples() {
            let whole = parse(example.name, example.yaml).unwrap();
            let ablation = parse("ablation", &ablated(&whole)).unwrap();
            assert_eq!(ablation.persona.name, whole.persona.name);
            assert_eq!(ablation.interaction.opening, whole.interaction.opening);
            assert_eq!(ablation.interaction.target_prompt, whole.interaction.target_prompt);
            assert!(ablation.persona.speech_patterns.is_empty() && ablation.persona.backstory.is_none());
            assert!(ablation.trajectory.phases.is_empty() && ablation.trajectory.dimensions.is_empty());
        }
    }
}
