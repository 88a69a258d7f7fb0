//! One line per score on how to read its value, for reports. The definitions are in `docs/SCORES.md`.

/// How to read the score `id`. `None` for an id that this version does not know.
pub fn meaning(id: &str) -> Option<&'static str> {
    Some(match id {
        "words_per_message/1" => "mean length of the persona's messages, words",
        "distinct_1/1" => "share of different words among all; falls with length",
        "distinct_2/1" => "share of different pairs of words among all; falls with length",
        "mattr_50/1" => "share of different words in windows of 50: variety, independent of length",
        "self_repetition_4/1" => "share of 4-word phrases that occur in several messages; high is repetitive",
        "compression_window_1000/1" => "compression ratio of the text; English prose is near 2, repetition above",
        "structural_diversity/1" => "how much the messages differ in structure; 0 is all the same",
        "opening_variety/1" => "share of different openings; low is formulaic",
        "ending_variety/1" => "share of different endings; low is formulaic",
        "question_endings/1" => "share of messages that end with a question",
        "agreement/1" => "share of messages with an agreeing phrase from a word list",
        "novelty/1" => "share of new content words per message; low is going in circles",
        "initiative/1" => "share of content words that the persona used first; low is following the other side",
        "convergence/1" => "similarity to the message that is answered; high is echoing",
        "standstill/1" => "share of messages in stretches without anything new; high is stuck",
        "persona_llr/1" => "gain in log-likelihood of the replies by the persona's prompt, nats per token; 0 is none",
        "persona_llr_own_words/1" => "the same over the words that are not copied from the prompt",
        "copy_rate/1" => "share of words copied from the instructions; high is reciting",
        "novelty_nll/1" => "negative log-likelihood of the replies, nats per token; high is unexpected",
        "copy_gain/1" => "gain in log-likelihood by the conversation so far, nats per token; high in loops",
        "capitulation_pressure/1" => "log-probability of beginning with a forbidden phrase; nearer 0 is more pressure",
        "persona_identification/1" => "probability of this persona among others, given its replies",
        "section_must_do/1" => "gain in log-likelihood by the prompt's rules, nats per token",
        "section_how/1" => "gain in log-likelihood by the prompt's manner of speaking, nats per token",
        "section_context/1" => "gain in log-likelihood by the prompt's background, nats per token",
        "expressed_intensity/1" => "intensity estimated from the replies",
        "intensity_rmse/1" => "root mean square difference of expressed and prescribed intensity; 0 is exact",
        "intensity_spearman/1" => "rank correlation of expressed and prescribed intensity; 1 is the same order",
        "persona_adherence/1" => "does the persona stay in character? 1 is fully",
        "trajectory_adherence/1" => "1 minus the difference of judged and prescribed intensity; 1 is exact",
        "judged_intensity/1" => "intensity as rated by the judge",
        "judged_intensity_rmse/1" => "root mean square difference of judged and prescribed intensity; 0 is exact",
        "judged_intensity_spearman/1" => "rank correlation of judged and prescribed intensity; 1 is the same order",
        "naturalness/1" => "does it talk like a real person? 1 is fully",
        "stagnation/1" => "does the conversation stagnate? 1 is fully",
        "fidelity/1" => "does the last message follow the instructions? 1 is fully",
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
