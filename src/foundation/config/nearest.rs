//! "Did you mean": the known name that is nearest to a mistyped one.

/// How alike two names must be, from 0 to 1, for one to be suggested for the other.
const ALIKE_MIN: f64 = 0.6;

/// The name among `known` that `name` was probably meant to be, if one is near enough to be worth saying.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = fold(name);
    known
        .into_iter()
        .map(|candidate| (likeness(&name, &fold(candidate)), candidate))
        .filter(|(likeness, _)| *likeness >= ALIKE_MIN)
        // The first of equals wins, so that the order of `known` decides.
        .reduce(|best, next| if next.0 > best.0 { next } else { best })
        .map(|(_, candidate)| candidate)
}

/// Case, hyphens and blanks are not what a typo is about.
fn fold(name: &str) -> String {
    name.trim().to_lowercase().replace(['-', ' '], "_")
}

/// The share of characters that need no edit; a name that is a whole word of the other counts as near.
fn likeness(a: &str, b: &str) -> f64 {
    let word_of = |long: &str, short: &str| short.len() >= 3 && long.split('_').any(|word| word == short);
    let edits = strsim::normalized_damerau_levenshtein(a, b);
    if word_of(a, b) || word_of(b, a) { edits.max(ALIKE_MIN) } else { edits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_are_recognised_and_strangers_are_not() {
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
