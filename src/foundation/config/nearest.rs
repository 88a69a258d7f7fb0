//! Suggestions for misspelt names ("did you mean").

/// Lowest similarity, from 0 to 1, of a suggestion.
const SIMILARITY_MIN: f64 = 0.6;

/// The name among `known` that is most similar to `name`, if its similarity suffices for a suggestion.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = fold(name);
    known
        .into_iter()
        .map(|candidate| (similarity(&name, &fold(candidate)), candidate))
        .filter(|(similarity, _)| *similarity >= SIMILARITY_MIN)
        // On a tie the first in the order of `known` wins.
        .reduce(|best, next| if next.0 > best.0 { next } else { best })
        .map(|(_, candidate)| candidate)
}

/// Ignores case, hyphens and spaces.
fn fold(name: &str) -> String {
    name.trim().to_lowercase().replace(['-', ' '], "_")
}

/// One minus the normalised edit distance; at least the minimum if one name is a whole word of the other.
fn similarity(a: &str, b: &str) -> f64 {
    let word_of = |long: &str, short: &str| short.len() >= 3 && long.split('_').any(|word| word == short);
    let edits = strsim::normalized_damerau_levenshtein(a, b);
    if word_of(a, b) || word_of(b, a) { edits.max(SIMILARITY_MIN) } else { edits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_get_suggestions_and_other_names_do_not() {
        let known = ["midpoint_pct", "start_value", "end_value", "delay_pct"];
        for (typed, meant) in [
            ("midpont_pct", Some("midpoint_pct")),
            ("midpoint-pct", Some("midpoint_pct")),
            ("Start_Value", Some("start_value")),
            ("midpoint", Some("midpoint_pct")),
            ("edn_value", Some("end_value")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, known), meant, "{typed}");
        }
    }
}
