//! A text's features as hashed character n-grams: the first six characters of each word, or pairs of characters in
//! scripts without spaces. The fewer dialogues of a background corpus contain a feature, the higher its weight.

use super::scanner::Word;

/// The background table: a notice of its origin, then one byte per bucket (`scripts/background_weights.py`).
const BACKGROUND: &[u8] = include_bytes!("background.weights");
const HEADER_BYTES: usize = 1024;
const BUCKETS: u32 = 1 << 17;
/// Weight at or above which a word is a content word.
pub(super) const CONTENT: f32 = 0.45;

/// A word's weight, in [0, 1]. Words unknown to the background are weighted by length: in every language the words that
/// carry little information are short (Zipf 1935).
pub(super) fn weight(word: &Word) -> f32 {
    let bucket = (word.hash ^ (word.hash >> 17)) & (BUCKETS - 1);
    let known = BACKGROUND.get(HEADER_BYTES + bucket as usize).copied().unwrap_or(u8::MAX);
    match (known, word.chars) {
        (u8::MAX, _) if word.unspaced => 1.0,
        (u8::MAX, ..4) => 0.5,
        (u8::MAX, ..6) => 0.6,
        (u8::MAX, ..8) => 0.8,
        (known, _) => f32::from(known) / 255.0,
    }
}

/// A sparse vector over features, in order of hash.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Features {
    items: Vec<(u32, f32)>,
}

impl Features {
    /// The features of words: background weight times the logarithm of their counts.
    pub(super) fn of<'a>(words: impl IntoIterator<Item = &'a Word>) -> Self {
        let mut all: Vec<(u32, f32)> = words.into_iter().map(|word| (word.hash, weight(word))).collect();
        all.sort_unstable_by_key(|&(hash, _)| hash);
        let items = all
            .chunk_by(|a, b| a.0 == b.0)
            .filter_map(|same| {
                let weight = same.iter().map(|&(_, weight)| weight).fold(0.0, f32::max);
                same.first().map(|&(hash, _)| (hash, weight * damped(same.len() as u32)))
            })
            .collect();
        Self { items }
    }

    pub(super) fn from_items(mut items: Vec<(u32, f32)>) -> Self {
        items.retain(|(_, weight)| weight.is_finite());
        items.sort_unstable_by_key(|&(hash, _)| hash);
        items.dedup_by_key(|&mut (hash, _)| hash);
        Self { items }
    }

    pub(super) fn items(&self) -> &[(u32, f32)] {
        &self.items
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn norm(&self) -> f32 {
        self.items.iter().map(|(_, weight)| weight * weight).sum::<f32>().sqrt()
    }

    /// In [0, 1]; 0 if either is empty.
    pub(super) fn cosine(&self, other: &Self) -> f32 {
        let (mut left, mut right) = (self.items.iter().peekable(), other.items.iter().peekable());
        let mut dot = 0.0;
        while let (Some(&&(a, x)), Some(&&(b, y))) = (left.peek(), right.peek()) {
            if a == b {
                dot += x * y;
            }
            if a <= b {
                left.next();
            }
            if b <= a {
                right.next();
            }
        }
        let norms = self.norm() * other.norm();
        if norms > 0.0 { (dot / norms).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// The weight of a feature; 0 if absent.
    pub(super) fn get(&self, hash: u32) -> f32 {
        self.items
            .binary_search_by_key(&hash, |&(hash, _)| hash)
            .ok()
            .and_then(|at| self.items.get(at))
            .map_or(0.0, |item| item.1)
    }

    /// The same features with new weights; features of weight zero are removed.
    #[must_use]
    pub(super) fn map(&self, weigh: impl Fn(u32, f32) -> f32) -> Self {
        let weighed = self.items.iter().map(|&(hash, weight)| (hash, weigh(hash, weight)));
        Self { items: weighed.filter(|&(_, weight)| weight > 0.0).collect() }
    }

    /// Adds `other`, scaled to unit length, and keeps the heaviest `max` features.
    pub(super) fn add_unit(&mut self, other: &Self, max: usize) {
        let norm = other.norm();
        if norm <= 0.0 {
            return;
        }
        let mut all: Vec<_> = self.items.clone();
        all.extend(other.items.iter().map(|&(hash, weight)| (hash, weight / norm)));
        all.sort_by_key(|&(hash, _)| hash);
        self.items = all
            .chunk_by(|a, b| a.0 == b.0)
            .filter_map(|same| same.first().map(|first| (first.0, same.iter().map(|item| item.1).sum())))
            .collect();
        if self.items.len() > max {
            self.items.sort_by(|a, b| b.1.total_cmp(&a.1));
            self.items.truncate(max);
            self.items.sort_unstable_by_key(|&(hash, _)| hash);
        }
    }
}

/// 1 + ln n, for n ≥ 1: sublinear term frequency.
pub(super) fn damped(count: u32) -> f32 {
    const FEW: [f32; 9] =
        [0.0, 1.0, 1.693_147_2, 2.098_612_3, 2.386_294_4, 2.609_438, 2.791_759_5, 2.945_91, 3.079_441_5];
    FEW.get(count as usize).copied().unwrap_or_else(|| 1.0 + (count as f32).ln())
}

#[cfg(test)]
mod tests {
    use super::super::hash::hash_of;
    use super::*;
    use crate::governance::regulator::scanner::Scan;

    fn features(text: &str) -> Features {
        Features::of(Scan::of(text).words())
    }

    #[test]
    fn the_table_names_its_origin_and_separates_common_from_rare_words() {
        let notice = std::str::from_utf8(&BACKGROUND[..HEADER_BYTES]).unwrap();
        assert!(notice.contains("BSD-3-Clause") && notice.contains("CC BY 4.0"));
        assert_eq!(BACKGROUND.len(), HEADER_BYTES + BUCKETS as usize);
        let weigh = |text: &str| weight(&Scan::of(text).words()[0]);
        assert!(weigh("the") < 0.1 && weigh("movie") < 0.3 && weigh("add") > CONTENT && weigh("telemetry") > 0.99);
        assert!(weigh("qzx") < weigh("qzxwv") && weigh("qzxwv") < weigh("qzxwvqzx"));
    }

    #[test]
    fn the_constant_hash_equals_the_scanned_one() {
        for word in ["also", "without", "avoids", "sans", "jamais", "class", "cars", "gas", "no", "unrequested"] {
            assert_eq!(hash_of(word), Scan::of(word).words()[0].hash, "{word}");
        }
    }

    #[test]
    fn cosines_follow_the_subject() {
        let task = features("Refactor the parser module");
        assert!((task.cosine(&task) - 1.0).abs() < 1e-6);
        assert!(task.cosine(&features("The parser was refactored.")) > 0.6);
        assert!(task.cosine(&features("Bake the bread slowly.")) < 0.05);
        assert!(task.cosine(&features("")).abs() < f32::EPSILON);
        assert!(features("把解析器重构成异步").cosine(&features("解析器已经重构")) > 0.4);
    }

    #[test]
    fn logarithms_from_the_table_are_logarithms() {
        for count in 1..20 {
            assert!((damped(count) - (1.0 + (count as f32).ln())).abs() < 1e-6, "{count}");
        }
    }

    #[test]
    fn sums_stay_small() {
        let mut sum = Features::default();
        for i in 0..100 {
            sum.add_unit(&features(&format!("parser {i}word {i}thing")), 16);
        }
        assert_eq!(sum.items().len(), 16);
        assert!(sum.cosine(&features("parser")) > 0.5);
    }
}
