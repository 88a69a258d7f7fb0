//! The panel: experts as configs, chosen by the need.

use serde::Deserialize;

use crate::governance::statechart::hope::{ExpertConfidence, Profile};

/// The experts that come with the program.
const SHIPPED: [&str; 5] = [
    include_str!("../../../configs/experts/clinician.yaml"),
    include_str!("../../../configs/experts/linguist.yaml"),
    include_str!("../../../configs/experts/methodologist.yaml"),
    include_str!("../../../configs/experts/safety.yaml"),
    include_str!("../../../configs/experts/statistician.yaml"),
];
/// How many are heard.
const PANEL: usize = 3;

/// An expert.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expert {
    pub(super) name: String,
    pub(super) field: String,
    /// Beginnings of words by which the expert's topic is known.
    topics: Vec<String>,
    curated: bool,
    /// What the expert looks for in finished work; a yes is a BLOCKER.
    pub(super) asks: String,
}

impl Expert {
    fn read(yaml: &str) -> Result<Self, String> {
        serde_saphyr::from_str(yaml).map_err(|error| format!("configs/experts: {error}"))
    }

    fn hits(&self, need: &str) -> usize {
        self.topics.iter().filter(|topic| need.contains(topic.as_str())).count()
    }

    /// What is known of the expert for this need.
    pub(super) fn profile(&self, need: &str) -> Profile {
        let hits = self.hits(&need.to_lowercase());
        Profile { curated: self.curated, core_topic: hits >= 2, outside: hits == 0, ..Profile::default() }
    }

    pub(super) fn confidence(&self, need: &str) -> ExpertConfidence {
        ExpertConfidence::of(&self.profile(need))
    }
}

/// Their names.
pub(super) fn names() -> Vec<String> {
    SHIPPED.iter().filter_map(|yaml| Expert::read(yaml).ok()).map(|expert| expert.name).collect()
}

/// The one of that name.
pub(super) fn named(name: &str) -> Option<Expert> {
    SHIPPED.iter().filter_map(|yaml| Expert::read(yaml).ok()).find(|expert| expert.name == name)
}

/// The three who know most of the need's topics, without those whom the user does not want to hear; among equals the first
/// by name.
pub(super) fn panel(need: &str, blocked: &[String]) -> Result<Vec<Expert>, String> {
    let mut experts = SHIPPED.iter().map(|yaml| Expert::read(yaml)).collect::<Result<Vec<_>, _>>()?;
    experts.retain(|expert| !blocked.contains(&expert.name));
    let folded = need.to_lowercase();
    experts.sort_by(|a, b| b.hits(&folded).cmp(&a.hits(&folded)).then_with(|| a.name.cmp(&b.name)));
    experts.truncate(PANEL);
    Ok(experts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_need_chooses_the_panel() {
        let heard = |need: &str, blocked: &[String]| -> Vec<_> {
            panel(need, blocked).unwrap().into_iter().map(|expert| expert.name).collect()
        };
        let names = |need: &str| heard(need, &[]);
        let need = "How does a depressed-patient persona hold up over 50 turns?";
        assert_eq!(names(need), ["clinician", "linguist", "methodologist"]);
        assert_eq!(names("measure the score of adversarial harm"), ["safety", "statistician", "clinician"]);
        assert_eq!(heard(need, &["linguist".to_owned()]), ["clinician", "methodologist", "safety"]);
        assert!(super::names().iter().all(|name| named(name).is_some()) && named("nobody").is_none());
    }
}
