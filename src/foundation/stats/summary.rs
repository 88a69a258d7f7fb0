//! Mean, standard deviation and quantiles of one series.

/// The arithmetic mean; `None` for no values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The sample standard deviation (n − 1 in the denominator); `None` for fewer than two values.
pub fn sd(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (values.len() - 1) as f64).sqrt())
}

/// The `p`-quantile, by type 7 of Hyndman and Fan (Am. Stat. 1996): linear interpolation between order statistics, the
/// default of `NumPy` and R. `None` for no values, or `p` outside `[0, 1]`.
pub fn quantile(values: &[f64], p: f64) -> Option<f64> {
    if !(0.0..=1.0).contains(&p) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = p * sorted.len().checked_sub(1)? as f64;
    let below = sorted.get(at.floor() as usize)?;
    let above = sorted.get(at.ceil() as usize)?;
    Some(below + (above - below) * at.fract())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foundation::stats::tests::{close, fixture, numbers};

    /// The references are `NumPy`'s; `scripts/text_fixtures.py` made them.
    #[test]
    fn agrees_with_numpy() {
        for case in fixture()["single"].as_array().unwrap() {
            let x = numbers(&case["x"]);
            close(mean(&x), case["mean"].as_f64());
            close(sd(&x), case["sd"].as_f64());
            for pair in case["quantiles"].as_array().unwrap() {
                close(quantile(&x, pair[0].as_f64().unwrap()), pair[1].as_f64());
            }
        }
    }

    #[test]
    fn statistics_of_nothing_are_none() {
        assert_eq!((mean(&[]), sd(&[]), quantile(&[], 0.5)), (None, None, None));
        assert_eq!(quantile(&[1.0], 1.5), None);
        assert_eq!(quantile(&[1.0], f64::NAN), None);
    }
}
