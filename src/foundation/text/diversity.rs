//! Lexical diversity. The caller splits words; every share is `None` if there is nothing to count.

use std::collections::{BTreeMap, BTreeSet};

/// Distinct-n (Li et al., NAACL 2016): the number of different n-grams over the number of all n-grams, in `(0, 1]`.
/// N-grams do not span texts. `None` if there is no n-gram (`n` of 0 included).
pub fn distinct_n<D: AsRef<[String]>>(texts: &[D], n: usize) -> Option<f64> {
    let mut all = 0usize;
    let mut distinct: BTreeSet<&[String]> = BTreeSet::new();
    for gram in texts.iter().flat_map(|text| ngrams(text.as_ref(), n)) {
        all += 1;
        distinct.insert(gram);
    }
    (all > 0).then(|| distinct.len() as f64 / all as f64)
}

/// Moving-average type-token ratio (Covington and `McFall`, J. Quant. Linguist. 2010): the mean, over every window of
/// `window` words, of the share of different words in it. Unlike the plain ratio it does not fall with length.
/// `None` if there are fewer words than `window`, or `window` is 0.
pub fn moving_type_token_ratio<W: AsRef<str>>(words: &[W], window: usize) -> Option<f64> {
    if window == 0 || words.len() < window {
        return None;
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut types = 0usize;
    let leaving = std::iter::repeat_n(None, window).chain(words.iter().map(Some));
    for (at, (entering, leaving)) in words.iter().zip(leaving).enumerate() {
        if let Some(count) = leaving.and_then(|word| counts.get_mut(word.as_ref())) {
            *count -= 1;
        }
        *counts.entry(entering.as_ref()).or_insert(0) += 1;
        if at + 1 >= window {
            types += counts.values().filter(|&&count| count > 0).count();
            counts.retain(|_, count| *count > 0);
        }
    }
    Some(types as f64 / (window * (words.len() - window + 1)) as f64)
}

/// The share of all n-grams that also occur in another of the texts, in `[0, 1]`: self-repetition across the messages
/// of one speaker (after Salkar et al., AACL 2022, as a share rather than a logarithm). `None` if no text has an n-gram.
pub fn self_repetition<D: AsRef<[String]>>(texts: &[D], n: usize) -> Option<f64> {
    // The first text in which a gram was seen, and whether it was seen in another.
    let mut seen: BTreeMap<&[String], (usize, bool)> = BTreeMap::new();
    for (index, text) in texts.iter().enumerate() {
        for gram in ngrams(text.as_ref(), n) {
            let (first, elsewhere) = seen.entry(gram).or_insert((index, false));
            *elsewhere |= *first != index;
        }
    }
    let (mut all, mut repeated) = (0usize, 0usize);
    for gram in texts.iter().flat_map(|text| ngrams(text.as_ref(), n)) {
        all += 1;
        repeated += usize::from(seen.get(gram).is_some_and(|&(_, elsewhere)| elsewhere));
    }
    (all > 0).then(|| repeated as f64 / all as f64)
}

fn ngrams(words: &[String], n: usize) -> impl Iterator<Item = &[String]> {
    // `windows` refuses 0; there is no 0-gram.
    words.windows(n.max(1)).take(if n == 0 { 0 } else { usize::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foundation::text::words;

    fn texts(texts: &[&str]) -> Vec<Vec<String>> {
        texts.iter().map(|text| words(text)).collect()
    }

    fn close(actual: Option<f64>, expected: Option<f64>) {
        match (actual, expected) {
            (Some(a), Some(b)) => assert!((a - b).abs() < 1e-12, "{a} {b}"),
            (a, b) => assert_eq!(a, b),
        }
    }

    // Counted by hand.
    #[test]
    fn distinct_n_counts_different_grams() {
        close(distinct_n(&texts(&["the cat saw the dog"]), 1), Some(4.0 / 5.0));
        close(distinct_n(&texts(&["a b a b"]), 2), Some(2.0 / 3.0));
        close(distinct_n(&texts(&["a b", "b a", "a b"]), 2), Some(2.0 / 3.0));
        close(distinct_n(&texts(&["a"]), 2), None);
        close(distinct_n(&texts(&["a"]), 0), None);
    }

    #[test]
    fn the_moving_ratio_is_the_mean_over_windows() {
        // Windows of "a b a c" by 3: {a b} 2/3, {b a c} 3/3.
        close(moving_type_token_ratio(&words("a b a c"), 3), Some(5.0 / 6.0));
        close(moving_type_token_ratio(&words("a a a a a"), 2), Some(0.5));
        close(moving_type_token_ratio(&words("a b"), 2), Some(1.0));
        close(moving_type_token_ratio(&words("a b"), 3), None);
        close(moving_type_token_ratio(&words("a b"), 0), None);
    }

    #[test]
    fn repetition_counts_across_texts_only() {
        close(self_repetition(&texts(&["a b a b", "c d"]), 2), Some(0.0));
        // Bigrams: ab, bc | ab, bd: two of four are shared.
        close(self_repetition(&texts(&["a b c", "a b d"]), 2), Some(0.5));
        close(self_repetition(&texts(&["a b c", "a b c"]), 3), Some(1.0));
        close(self_repetition(&texts(&["a", ""]), 2), None);
    }
}
