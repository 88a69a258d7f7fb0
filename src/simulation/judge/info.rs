//! What every score is, by its id: how to read it, and its bounds.

use super::judged::RUBRIC_SCORES;
use super::likelihood::VARIANT_SCORES;
use super::scorers::{LIKELIHOOD, ScoreInfo, TEXT};

/// What the score `id` is. `None` for an id that this version does not know, such as a user's own rubric.
pub fn info(id: &str) -> Option<ScoreInfo> {
    let own = TEXT.iter().map(|scorer| scorer.info()).chain(LIKELIHOOD.iter().map(|scorer| scorer.info()));
    own.chain(VARIANT_SCORES).chain(RUBRIC_SCORES).find(|info| info.id == id)
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
        assert_eq!(ids.len(), 41, "{ids:?}");
        for id in ids {
            let said = info(id).unwrap_or_else(|| panic!("{id} is defined and unknown")).meaning;
            assert!(said.chars().count() <= 90, "{id}: a line is enough");
        }
        assert_eq!(info("novelty/2"), None, "another version is another score");
    }
}
