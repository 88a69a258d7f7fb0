//! How well a score separates two classes.

/// Area under the ROC curve: the chance that a positive scores above a negative, ties counting half (Mann and Whitney
/// 1947). `None` unless both classes are present and no score is NaN.
pub fn auroc(scored: impl IntoIterator<Item = (f64, bool)>) -> Option<f64> {
    // Adding zero makes −0 the same as 0.
    let mut scored: Vec<_> = scored.into_iter().map(|(score, positive)| (score + 0.0, positive)).collect();
    if scored.iter().any(|(score, _)| score.is_nan()) {
        return None;
    }
    scored.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut below, mut wins) = (0.0, 0.0);
    for tied in scored.chunk_by(|a, b| a.0.total_cmp(&b.0).is_eq()) {
        let positives = tied.iter().filter(|(_, positive)| *positive).count() as f64;
        let negatives = tied.len() as f64 - positives;
        wins += positives * (below + negatives / 2.0);
        below += negatives;
    }
    let positives = scored.len() as f64 - below;
    (positives > 0.0 && below > 0.0).then(|| wins / (positives * below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auroc_needs_both_classes() {
        assert_eq!(auroc([(1.0, true), (2.0, true)]), None);
        assert_eq!(auroc([(1.0, false), (2.0, true)]), Some(1.0));
        assert_eq!(auroc([(1.0, false), (1.0, true)]), Some(0.5));
        assert_eq!(auroc([(f64::NAN, false), (1.0, true)]), None);
    }
}
