//! Similarities for drift: a reply with its task, and each segment of it with the task and the rest of the reply.

use std::ops::Range;

use super::features::{Features, damped, weight};
use super::scanner::Scan;

/// Sentences per segment.
const SEGMENT_SENTENCES: usize = 3;

/// Similarities between a reply and its task.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Similarity {
    /// The cosine of the whole.
    pub(super) whole: f32,
    /// The segment least similar to the task and the rest; `None` if the reply is no longer than one segment.
    pub(super) least: Option<Segment>,
}

/// Consecutive sentences.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Segment {
    pub(super) sentences: Range<usize>,
    /// The cosine with the task and the rest together, each at unit length.
    pub(super) similarity: f32,
    /// The mean of `similarity` over all segments of the reply.
    pub(super) usual: f32,
}

/// One feature of the task or the reply.
#[derive(Debug, Clone, Copy, Default)]
struct Term {
    weight: f32,
    task: f32,
    /// How often it occurs in the reply, and in the current segment.
    count: u32,
    here: u32,
}

/// Buffers, reused from reply to reply.
#[derive(Debug, Clone, Default)]
pub(super) struct SegmentComparer {
    terms: Vec<Term>,
    /// The term of each word of the reply.
    term_of: Vec<u32>,
    /// From a feature's hash to its term: open addressing; a slot of an earlier round counts as empty.
    slots: Vec<Slot>,
    round: u32,
    seen: Vec<u32>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    round: u32,
    hash: u32,
    term: u32,
}

impl SegmentComparer {
    pub(super) fn compare(&mut self, task: &Features, reply: &Scan) -> Similarity {
        self.index(task, reply);
        let mut norm = 0.0;
        let mut with_task = 0.0;
        for term in &self.terms {
            let value = damped(term.count) * term.weight;
            norm += value * value;
            with_task += value * term.task;
        }
        let task_norm = task.norm();
        let whole = ratio(with_task, norm.sqrt() * task_norm);
        let sentences = reply.sentences().len();
        if sentences <= SEGMENT_SENTENCES {
            return Similarity { whole, least: None };
        }
        let mut least: Option<Segment> = None;
        let mut sum = 0.0;
        for first in 0..=sentences - SEGMENT_SENTENCES {
            let range = first..first + SEGMENT_SENTENCES;
            let similarity = self.segment(reply, range.clone(), norm, with_task, task_norm);
            sum += similarity;
            if least.as_ref().is_none_or(|least| similarity < least.similarity) {
                least = Some(Segment { sentences: range, similarity, usual: 0.0 });
            }
        }
        let usual = sum / (sentences - SEGMENT_SENTENCES + 1) as f32;
        Similarity { whole, least: least.map(|least| Segment { usual, ..least }) }
    }

    /// The cosine of a segment with the task and the rest. `norm` and `with_task` are the whole reply's; only the
    /// segment's terms change them.
    fn segment(&mut self, reply: &Scan, range: Range<usize>, norm: f32, with_task: f32, task_norm: f32) -> f32 {
        self.seen.clear();
        let sentences = reply.sentences().get(range).unwrap_or_default();
        let (Some(first), Some(last)) = (sentences.first(), sentences.last()) else { return 0.0 };
        let words = self.term_of.get(first.first_word as usize..last.last_word as usize).unwrap_or_default();
        for &id in words {
            if let Some(term) = self.terms.get_mut(id as usize) {
                if term.here == 0 {
                    self.seen.push(id);
                }
                term.here += 1;
            }
        }
        let (mut own, mut own_task, mut own_rest) = (0.0, 0.0, 0.0);
        let (mut rest, mut rest_task) = (norm, with_task);
        for &id in &self.seen {
            let Some(term) = self.terms.get_mut(id as usize) else { continue };
            let here = damped(term.here) * term.weight;
            let total = damped(term.count) * term.weight;
            let elsewhere = damped(term.count - term.here) * term.weight;
            own += here * here;
            own_task += here * term.task;
            own_rest += here * elsewhere;
            rest += elsewhere * elsewhere - total * total;
            rest_task += (elsewhere - total) * term.task;
            term.here = 0;
        }
        let rest_norm = rest.max(0.0).sqrt();
        let together = 2.0 + 2.0 * ratio(rest_task, rest_norm * task_norm);
        ratio(ratio(own_task, task_norm) + ratio(own_rest, rest_norm), own.sqrt() * together.max(0.0).sqrt())
    }

    fn index(&mut self, task: &Features, reply: &Scan) {
        self.terms.clear();
        self.term_of.clear();
        self.round = self.round.wrapping_add(1);
        let slots = (2 * (task.items().len() + reply.words().len())).next_power_of_two().max(64);
        if self.slots.len() < slots || self.round == 0 {
            self.slots.clear();
            self.slots.resize(slots, Slot::default());
            self.round = 1;
        }
        for &(hash, value) in task.items() {
            let id = self.term(hash);
            if let Some(term) = self.terms.get_mut(id as usize) {
                term.task = value;
            }
        }
        for word in reply.words() {
            let id = self.term(word.hash);
            if let Some(term) = self.terms.get_mut(id as usize) {
                term.weight = term.weight.max(weight(word));
                term.count += 1;
            }
            self.term_of.push(id);
        }
    }

    /// The term of a feature, created if new.
    fn term(&mut self, hash: u32) -> u32 {
        let mask = self.slots.len() - 1;
        let mut at = (hash ^ (hash >> 16)) as usize & mask;
        loop {
            let Some(slot) = self.slots.get_mut(at) else { return 0 };
            if slot.round != self.round {
                let term = self.terms.len() as u32;
                *slot = Slot { round: self.round, hash, term };
                self.terms.push(Term::default());
                return term;
            }
            if slot.hash == hash {
                return slot.term;
            }
            at = (at + 1) & mask;
        }
    }
}

/// The quotient; 0 for a divisor of 0.
fn ratio(value: f32, by: f32) -> f32 {
    if by > 0.0 { value / by } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference computation, directly from the definition.
    fn by_definition(task: &str, reply: &str) -> (f32, Option<f32>) {
        let task = Features::of(Scan::of(task).words());
        let scan = Scan::of(reply);
        let whole = task.cosine(&Features::of(scan.words()));
        let sentences = scan.sentences();
        let least = (0..sentences.len().saturating_sub(SEGMENT_SENTENCES - 1))
            .filter(|_| sentences.len() > SEGMENT_SENTENCES)
            .map(|first| {
                let inside =
                    sentences[first].first_word as usize..sentences[first + SEGMENT_SENTENCES - 1].last_word as usize;
                let own = Features::of(&scan.words()[inside.clone()]);
                let others =
                    scan.words().iter().enumerate().filter(|(at, _)| !inside.contains(at)).map(|(_, word)| word);
                let mut sum = Features::default();
                sum.add_unit(&task, usize::MAX);
                sum.add_unit(&Features::of(others), usize::MAX);
                own.cosine(&sum)
            });
        (whole, least.reduce(f32::min))
    }

    #[test]
    fn incremental_similarities_equal_the_definition() {
        let task = "Describe how a lighthouse keeper spends a stormy night on the island.";
        let on_topic = "The keeper climbs the stairs of the lighthouse as the storm begins. He lights the lamp and winds the \
            clockwork. The wind howls around the island all night. Waves break over the rocks below. He writes in the log \
            and waits for the morning.";
        let spliced = format!(
            "{on_topic} Mix the flour with two eggs and sugar. Knead the dough until it is smooth. Bake it for \
            forty minutes in a hot oven."
        );
        let mut segments = SegmentComparer::default();
        for reply in [on_topic, &spliced, "One sentence is all there is here.", ""] {
            let found = segments.compare(&Features::of(Scan::of(task).words()), &Scan::of(reply));
            let (whole, least) = by_definition(task, reply);
            assert!((found.whole - whole).abs() < 1e-5, "{} against {whole}", found.whole);
            match (found.least, least) {
                (Some(found), Some(least)) => {
                    assert!((found.similarity - least).abs() < 1e-4, "{found:?} against {least}");
                }
                (found, least) => assert_eq!(found.map(|found| found.similarity), least),
            }
        }
        let foreign = segments.compare(&Features::of(Scan::of(task).words()), &Scan::of(&spliced)).least.unwrap();
        assert_eq!(foreign.sentences, 5..8, "the spliced sentences");
    }
}
