//! TF-IDF vectors over a small set of documents, and their cosines.
//!
//! Weights are those of scikit-learn's `TfidfVectorizer` with its defaults (`smooth_idf`, `norm="l2"`): with `n`
//! documents, a term that occurs `tf` times in a document and in `df` documents weighs tf · (ln((1 + n)/(1 + df)) + 1),
//! and each document's vector is scaled to unit length. The caller splits words.

use std::collections::BTreeMap;

/// A unit vector over the terms of a document set; empty for a document without terms.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SparseVector(Vec<(u32, f64)>);

impl SparseVector {
    /// The cosine with a vector of the same set, in `[0, 1]`; 0 if either has no terms.
    pub fn cosine(&self, other: &Self) -> f64 {
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut dot = 0.0f64;
        while let (Some(&&(i, x)), Some(&&(j, y))) = (left.peek(), right.peek()) {
            if i == j {
                dot += x * y;
            }
            if i <= j {
                left.next();
            }
            if j <= i {
                right.next();
            }
        }
        dot.min(1.0) // The lengths are 1 up to rounding.
    }
}

/// One vector per document, in order. Sums run in the terms' byte order, so equal input gives equal bits.
pub fn tfidf<D: AsRef<[String]>>(documents: &[D]) -> Vec<SparseVector> {
    // Per document: term → count. Per set: term → number of documents.
    let counts: Vec<BTreeMap<&str, u32>> = documents
        .iter()
        .map(|document| {
            document.as_ref().iter().fold(BTreeMap::new(), |mut counts, term| {
                *counts.entry(term.as_str()).or_insert(0) += 1;
                counts
            })
        })
        .collect();
    let mut frequencies: BTreeMap<&str, u32> = BTreeMap::new();
    for term in counts.iter().flat_map(BTreeMap::keys) {
        *frequencies.entry(term).or_insert(0) += 1;
    }
    let n = documents.len() as f64;
    let weights: BTreeMap<&str, (u32, f64)> = (0u32..)
        .zip(&frequencies)
        .map(|(id, (&term, &df))| (term, (id, ((1.0 + n) / (1.0 + f64::from(df))).ln() + 1.0)))
        .collect();
    counts
        .into_iter()
        .map(|counts| {
            let raw: Vec<(u32, f64)> = counts
                .into_iter()
                .filter_map(|(term, tf)| weights.get(term).map(|&(id, idf)| (id, f64::from(tf) * idf)))
                .collect();
            let length = raw.iter().map(|(_, x)| x * x).sum::<f64>().sqrt();
            SparseVector(raw.into_iter().map(|(id, x)| (id, x / length)).collect())
        })
        .collect()
}

/// The mean cosine over all pairs; `None` for fewer than two vectors.
pub fn mean_pairwise_cosine(vectors: &[SparseVector]) -> Option<f64> {
    let mut sum = 0.0;
    let mut pairs = 0u32;
    for (index, left) in vectors.iter().enumerate() {
        for right in vectors.iter().skip(index + 1) {
            sum += left.cosine(right);
            pairs += 1;
        }
    }
    (pairs > 0).then(|| sum / f64::from(pairs))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::foundation::text::words;

    fn documents(texts: &[&str]) -> Vec<Vec<String>> {
        texts.iter().map(|text| words(text)).collect()
    }

    /// The reference is scikit-learn's; `scripts/text_fixtures.py` made it.
    #[test]
    fn cosines_agree_with_scikit_learn() {
        let fixture: serde_json::Value =
            serde_json::from_str(include_str!("../../../tests/data/tfidf.json")).expect("the fixture is JSON");
        for set in fixture["sets"].as_array().expect("sets") {
            let texts: Vec<&str> = set["texts"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
            let vectors = tfidf(&documents(&texts));
            for (i, row) in set["cosines"].as_array().unwrap().iter().enumerate() {
                for (j, expected) in row.as_array().unwrap().iter().enumerate() {
                    let (ours, theirs) = (vectors[i].cosine(&vectors[j]), expected.as_f64().unwrap());
                    assert!((ours - theirs).abs() < 1e-12, "{texts:?} {i},{j}: {ours} {theirs}");
                }
            }
        }
    }

    #[test]
    fn documents_without_words_have_no_similarity() {
        let vectors = tfidf(&documents(&["", "one two", "..."]));
        assert!(vectors[0].cosine(&vectors[2]).abs() < f64::EPSILON);
        assert!(vectors[0].cosine(&vectors[1]).abs() < f64::EPSILON);
        assert_eq!(mean_pairwise_cosine(&vectors[..1]), None);
    }

    proptest! {
        #[test]
        fn a_cosine_is_symmetric_and_within_bounds(texts in proptest::collection::vec("[a-d ]{0,12}", 2..6)) {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let vectors = tfidf(&documents(&texts));
            for a in &vectors {
                for b in &vectors {
                    prop_assert!((0.0..=1.0).contains(&a.cosine(b)));
                    prop_assert_eq!(a.cosine(b).to_bits(), b.cosine(a).to_bits());
                }
                prop_assert!(a == &SparseVector::default() || (a.cosine(a) - 1.0).abs() < 1e-12);
            }
        }
    }
}
