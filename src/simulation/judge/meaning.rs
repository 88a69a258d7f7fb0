//! What each score says, in a line: a report is read by people who do not have `docs/SCORES.md` beside it. The definition
//! stays there; this only says which way to read a number.

/// What the score called `id` says, for people. `None` for an id that this version does not know.
pub fn meaning(id: &str) -> Option<&'static str> {
    Some(match id {
        "words_per_message/1" => "words: mean length of the persona's messages",
        "distinct_1/1" => "share of different words among all; falls with length",
        "distinct_2/1" => "share of different pairs of words among all; falls with length",
        "mattr_50/1" => "share of different words in any 50: variety, whatever the length",
        "self_repetition_4/1" => "share of 4-word phrases that stand in several messages; high is repetitive",
        "compression_window_1000/1" => "how far the text can be packed; English prose is near 2, repetition above",
        "structural_diversity/1" => "how unlike in build the messages are; 0 is all alike",
        "opening_variety/1" => "share of different openings; low is a formula",
        "ending_variety/1" => "share of different endings; low is a formula",
        "question_endings/1" => "share of messages that end with a question",
        "agreement/1" => "share of messages with a phrase of agreement; high is giving in",
        "novelty/1" => "share of new content words in a message; low is going round in circles",
        "initiative/1" => "share of content words that the persona brought up first; low is following the other side",
        "convergence/1" => "likeness to the message that is answered; high is echoing",
        "standstill/1" => "share of messages in which the talk stood still; high is stuck",
        "persona_llr/1" => "nats per token by which the persona's prompt made its replies likelier; 0 is no effect",
        "persona_llr_own_words/1" => "the same over the words that are not copied from the prompt",
        "copy_rate/1" => "share of words recited from the instructions; high is parroting",
        "novelty_nll/1" => "nats per token: how little the replies were to be expected",
        "copy_gain/1" => "nats per token by which the conversation made the replies likelier; high in loops",
        "capitulation_pressure/1" => "log-probability of beginning with a forbidden phrase; nearer 0 is more pressure",
        "persona_identification/1" => "probability of this persona among others, judged by its replies",
        "section_must_do/1" => "nats per token that the rules in the prompt gave",
        "section_how/1" => "nats per token that the manner of speaking in the prompt gave",
        "section_context/1" => "nats per token that the background in the prompt gave",
        "expressed_intensity/1" => "the intensity that the replies show",
        "intensity_rmse/1" => "distance of shown from prescribed intensity; 0 is exact",
        "intensity_spearman/1" => "whether shown and prescribed intensity rise together; 1 is in step",
        "persona_adherence/1" => "does the persona stay this person? 1 is wholly",
        "trajectory_adherence/1" => "nearness of judged to prescribed intensity; 1 is exact",
        "judged_intensity/1" => "the intensity that the judge sees",
        "judged_intensity_rmse/1" => "distance of judged from prescribed intensity; 0 is exact",
        "judged_intensity_spearman/1" => "whether judged and prescribed intensity rise together; 1 is in step",
        "naturalness/1" => "does it talk like a living person? 1 is wholly",
        "stagnation/1" => "does the conversation stand still? 1 is wholly",
        "fidelity/1" => "does the last message do what the instructions say? 1 is wholly",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_defined_score_has_a_meaning() {
        let page = include_str!("../../../docs/SCORES.md");
        let (defined, _) = page.split_once("### The judge's own test").unwrap();
        let first_cells = defined.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
        let ids: Vec<&str> =
            first_cells.flat_map(|cell| cell.split(['`', ','])).filter(|id| id.ends_with("/1")).collect();
        assert_eq!(ids.len(), 36, "{ids:?}");
        for id in ids {
            let said = meaning(id).unwrap_or_else(|| panic!("{id} is defined and says nothing"));
            assert!(said.chars().count() <= 90, "{id}: a line is enough");
        }
        assert_eq!(meaning("novelty/2"), None, "another version is another score");
    }
}
