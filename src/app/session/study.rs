//! What a session finds out: its question, its measure with a threshold, and the arms of a comparison. All of it is
//! registered, in a file and in the receipts, before the first rollout.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::core::Session;
use super::finding::{FACT, ROLLOUTS_MIN, Reference, references};
use super::outcome::{Found, FoundValue, Work, WorkItemKind, counted};
use super::phrases::format_value;
use super::scored::{is_trusted, value_of};
use super::seals::written_files;
use super::setup::SessionError;
use super::wave::transcript_digest;
use crate::foundation::base::Digest;
use crate::foundation::chat::ModelChain;
use crate::foundation::gate::{Category, Effect, Scope};
use crate::foundation::stats::small_sample::detectable_difference;
use crate::foundation::store::receipts::Receipt;
use crate::simulation::persona::{AdversaryKind, PersonaConfig, parse};
use crate::simulation::report::{Comparison, DifferenceRow};
use crate::simulation::rollout::Transcript;

/// The fewest rollouts per arm whose 95 % interval of the difference exists.
pub(super) const COMPARED_MIN: usize = 4;
/// The measure of a comparison with a judge.
const JUDGED_MEASURE: &str = "persona_adherence/1";
/// The measure of a comparison without one.
const LIKELIHOOD_MEASURE: &str = "persona_llr/1";

/// What a session finds out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StudyQuestion {
    /// Whether the persona holds.
    #[default]
    Holds,
    /// Whether it is kept better than by the same model without the persona's description.
    Ablation,
    /// Whether it is kept better with the target than with another one.
    Targets,
    /// Whether it is kept better under its config than under another one.
    Prompts,
}

impl StudyQuestion {
    /// Whether it has two arms.
    pub(super) const fn compares(self) -> bool {
        !matches!(self, Self::Holds)
    }

    /// Which arm is the second, in words.
    pub(super) const fn baseline(self) -> &'static str {
        match self {
            Self::Holds => "none",
            Self::Ablation => "its ablation (the same model with the persona's name alone)",
            Self::Targets => "the same with the other target",
            Self::Prompts => "the same with the other config",
        }
    }
}

/// The default measure of a comparison.
pub(super) const fn default_measure(judged: bool) -> &'static str {
    if judged { JUDGED_MEASURE } else { LIKELIHOOD_MEASURE }
}

/// The name of a file of this round, such as `registration-01.json`.
pub(super) fn numbered(name: &str, round: u32, ending: &str) -> String {
    format!("{name}-{round:02}.{ending}")
}

/// The hypothesis that the work tests.
pub(super) fn hypothesis(work: &Work) -> String {
    let plan = &work.plan;
    let persona = &plan.persona.value;
    let Some((measure, threshold)) = plan.compared() else {
        return format!("the persona `{persona}` holds: {}", measures(&references(plan)));
    };
    let arms = match plan.question.value {
        StudyQuestion::Targets => format!("of `{persona}` with the target exceeds that with the other target"),
        StudyQuestion::Prompts => format!("of `{persona}` exceeds that of the other config"),
        _ => format!("of `{persona}` exceeds that of its ablation"),
    };
    format!("{measure} {arms} by more than {threshold}")
}

fn measures(references: &[Reference]) -> String {
    let each: Vec<_> = references.iter().map(|(id, reference)| format!("{id} above {reference}")).collect();
    each.join(" or ")
}

/// What so many rollouts can tell, in a sentence.
pub(super) fn power(work: &Work) -> String {
    let rollouts = work.plan.rollouts.value;
    let planned = counted(rollouts, "rollout");
    if !work.plan.question.value.compares() {
        return format!(
            "{planned} planned; {ROLLOUTS_MIN} are the fewest whose interval can exclude a reference value, if all agree"
        );
    }
    match detectable_difference(1.0, rollouts, rollouts, 1) {
        Some(detectable) => format!(
            "{planned} per arm show a difference of {detectable:.2} standard deviations with 80 % probability; smaller ones need more"
        ),
        None => format!("{planned} per arm can tell nothing: at least {COMPARED_MIN} are needed"),
    }
}

/// The fact of a comparison: whether the 95 % interval of the difference is above the threshold, below it, or neither.
pub(super) fn compared_fact(row: Result<&DifferenceRow, String>, threshold: f64) -> String {
    let undecided = |why: &str| format!("not distinguishable from {threshold}: {why}");
    let row = match row {
        Ok(row) => row,
        Err(why) => return undecided(&why),
    };
    let counts = [row.a, row.b].map(|side| side.map_or(0, |side| side.n));
    let fewest = counts.into_iter().min().unwrap_or_default();
    if fewest < COMPARED_MIN {
        return undecided(&format!(
            "{} per arm with a value, at least {COMPARED_MIN} are needed",
            counted(fewest, "rollout")
        ));
    }
    let (Some(difference), Some(interval)) = (row.difference, row.interval) else {
        return undecided("there is no interval of the difference");
    };
    let of = format!(
        "difference {difference:.3}, 95 % interval {:.3} to {:.3}, {} and {} rollouts",
        interval.low, interval.high, counts[1], counts[0]
    );
    match () {
        () if interval.low > threshold => format!("above {threshold}: {of}"),
        () if interval.high < threshold => format!("below {threshold}: {of}"),
        () => undecided(&of),
    }
}

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
        let now = std::fs::read(self.folder.join(&name)).map(Digest::of).ok();
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
        let registered: String =
            found.iter().map(|(name, value)| format!("- {name}: {}\n", format_value(value))).collect();
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

/// The reason of [`same_conversation`].
pub(super) const SAME: &str = "all rollouts are the same conversation, which is one observation";

/// Whether all rollouts, more than one, are the same conversation: the models draw nothing at random.
pub(super) fn same_conversation(talks: &[Transcript]) -> bool {
    let digest = |talk: &Transcript| transcript_digest(std::slice::from_ref(talk));
    let mut digests = talks.iter().map(digest);
    let Some(first) = digests.next() else { return false };
    talks.len() > 1 && digests.all(|digest| digest == first)
}

/// The interlocutor in words, with what replaces it in the other arm.
pub(super) fn versus(question: StudyQuestion, other: AdversaryKind) -> String {
    let other = super::need::other_name(other);
    if question.compares() { format!("{other}, against {}", question.baseline()) } else { other.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::persona::examples;

    #[test]
    fn the_fact_of_a_comparison_needs_an_interval_beyond_the_threshold() {
        let check = |a: &[f64], b: &[f64], threshold: f64, expected: &str| {
            let some = |values: &[f64]| values.iter().copied().map(Some).collect::<Vec<_>>();
            let row = DifferenceRow::of("mattr/1", &some(b), &some(a));
            let fact = compared_fact(Ok(&row), threshold);
            assert!(fact.starts_with(expected), "{fact}");
        };
        let (high, low) = ([3.0, 3.1, 3.2, 3.3, 3.4, 3.5], [1.0, 1.1, 1.2, 1.3, 1.4, 1.5]);
        check(&high, &low, 0.0, "above 0: difference 2.000, 95 % interval ");
        check(&low, &high, 0.0, "below 0: difference -2.000, 95 % interval ");
        // A difference that is smaller than what was registered does not hold.
        check(&high, &low, 5.0, "below 5: difference 2.000");
        check(&high, &low, 2.0, "not distinguishable from 2: difference 2.000");
        check(&high, &high, 0.0, "not distinguishable from 0: difference 0.000");
        check(&high[..3], &low[..3], 0.0, "not distinguishable from 0: 3 rollouts per arm with a value, at least 4");
        check(&high[..4], &low[..4], 0.0, "above 0");
        assert_eq!(compared_fact(Err("no judge".to_owned()), 0.5), "not distinguishable from 0.5: no judge");
    }

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
