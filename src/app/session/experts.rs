//! The panel: experts from config files, chosen by the need.

use serde::Deserialize;

use crate::governance::statechart::hope::{ExpertConfidence, ExpertProfile};

/// The built-in experts.
const SHIPPED: [&str; 5] = [
    include_str!("../../../configs/experts/clinician.yaml"),
    include_str!("../../../configs/experts/linguist.yaml"),
    include_str!("../../../configs/experts/methodologist.yaml"),
    include_str!("../../../configs/experts/safety.yaml"),
    include_str!("../../../configs/experts/statistician.yaml"),
];
/// The size of the panel.
const PANEL: usize = 3;

/// An expert.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expert {
    pub(super) name: String,
    pub(super) field: String,
    /// Word beginnings that identify the expert's topics.
    topics: Vec<String>,
    curated: bool,
    /// The expert's question about finished work; the answer yes is a BLOCKER.
    #[serde(rename = "asks")]
    pub(super) review_question: String,
}

impl Expert {
    fn read(yaml: &str) -> Result<Self, String> {
        serde_saphyr::from_str(yaml).map_err(|error| format!("configs/experts: {error}"))
    }

    fn topic_hits(&self, need: &str) -> usize {
        self.topics.iter().filter(|topic| need.contains(topic.as_str())).count()
    }

    /// The profile of the expert for this need.
    pub(super) fn profile(&self, need: &str) -> ExpertProfile {
        let topic_hits = self.topic_hits(&need.to_lowercase());
        ExpertProfile {
            curated: self.curated,
            core_topic: topic_hits >= 2,
            outside: topic_hits == 0,
            ..ExpertProfile::default()
        }
    }

    pub(super) fn confidence(&self, need: &str) -> ExpertConfidence {
        ExpertConfidence::of(&self.profile(need))
    }
}

/// The names of all experts.
pub(super) fn names() -> Vec<String> {
    SHIPPED.iter().filter_map(|yaml| Expert::read(yaml).ok()).map(|expert| expert.name).collect()
}

/// The expert with this name.
pub(super) fn named(name: &str) -> Option<Expert> {
    SHIPPED.iter().filter_map(|yaml| Expert::read(yaml).ok()).find(|expert| expert.name == name)
}

/// The three experts with most topics in the need, without excluded ones; ties are broken by name.
pub(super) fn panel(need: &str, blocked: &[String]) -> Result<Vec<Expert>, String> {
    let mut experts = SHIPPED.iter().map(|yaml| Expert::read(yaml)).collect::<Result<Vec<_>, _>>()?;
    experts.retain(|expert| !blocked.contains(&expert.name));
    let folded = need.to_lowercase();
    experts.sort_by(|a, b| b.topic_hits(&folded).cmp(&a.topic_hits(&folded)).then_with(|| a.name.cmp(&b.name)));
    experts.truncate(PANEL);
    Ok(experts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_panel_depends_on_the_need() {
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
