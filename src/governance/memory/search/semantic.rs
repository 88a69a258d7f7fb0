//! Hybrid search: vectors of blocks, and the rankings by words and by vectors combined by reciprocal rank
//! (Cormack, Clarke and Büttcher 2009, k = 60). The vectors are computed elsewhere.

use std::cmp::Ordering;
use std::collections::HashMap;

use serde::Serialize;

use super::super::parse::{Block, Field};
use super::super::texts::ParsedTexts;
use super::{SearchHit, SearchIndex, SearchQuery, wanted};
use crate::foundation::base::Digest;
use crate::foundation::base::limits::{FUSED_DEPTH, PASSAGE_CHARS_MAX};

/// The constant of reciprocal rank fusion.
const K: f32 = 60.0;
/// The first bytes of a file of vectors; the digit is the version.
const MAGIC: &[u8; 8] = b"loomvec1";

/// The position of a hit in the two rankings, from 1; absent if it is not among the best [`FUSED_DEPTH`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HitRanks {
    /// By words.
    pub words: Option<usize>,
    /// By vectors.
    pub meaning: Option<usize>,
    /// The cosine of the block's vector and the query's, in [−1, 1].
    pub similarity: Option<f32>,
}

/// The part of a block that is embedded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passage {
    /// The digest of the text: the key of its vector.
    pub digest: Digest,
    /// The text, at most [`PASSAGE_CHARS_MAX`] characters.
    pub text: String,
}

/// The passages of all blocks, in the order of [`SearchIndex`].
pub fn passages(parsed: &ParsedTexts<'_>) -> Vec<Passage> {
    parsed.blocks().map(|(_, block)| passage(&block)).collect()
}

/// The subject comes first, since an embedder may truncate its input. Ids, dates and references are left out: they carry
/// no meaning for it.
fn passage(block: &Block<'_, '_>) -> Passage {
    let is_embedded =
        |key: &str| !matches!(key, "Date" | "Status" | "Sources" | "Supersedes" | "AlignsWith" | "Dependencies");
    let (titles, others): (Vec<&Field<'_>>, Vec<&Field<'_>>) = block
        .fields()
        .iter()
        .filter(|field| is_embedded(field.key))
        .partition(|field| super::TITLES.contains(&field.key));
    let mut text = String::new();
    for field in titles.iter().chain(&others) {
        for part in [field.head, field.body].map(str::trim).into_iter().filter(|part| !part.is_empty()) {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(part);
        }
    }
    if let Some((end, _)) = text.char_indices().nth(PASSAGE_CHARS_MAX) {
        text.truncate(end);
    }
    Passage { digest: Digest::of(&text), text }
}

/// Vectors of passages by one model, all of the same length. A cache: missing ones are computed again.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PassageVectors {
    dims: usize,
    rows: HashMap<Digest, Vec<f32>>,
}

impl PassageVectors {
    /// Reads what [`print`](Self::print) wrote; `None` for anything else, including damaged files.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (content, sum) = bytes.split_at_checked(bytes.len().checked_sub(32)?)?;
        if Digest::of(content).as_bytes() != sum {
            return None;
        }
        let (dims, rows) = content.strip_prefix(MAGIC)?.split_first_chunk::<4>()?;
        let dims = u32::from_le_bytes(*dims) as usize;
        let row = |row: &[u8]| {
            let (digest, values) = row.split_first_chunk::<32>()?;
            let values = values.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
            Some((Digest::from_bytes(*digest), values))
        };
        Some(Self { dims, rows: rows.chunks_exact(32 + 4 * dims).filter_map(row).collect() })
    }

    /// The vectors as bytes, with a checksum.
    pub fn print(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend((self.dims as u32).to_le_bytes());
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_unstable_by_key(|(digest, _)| *digest);
        for (digest, values) in rows {
            bytes.extend(digest.as_bytes());
            bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
        let sum = Digest::of(&bytes);
        bytes.extend(sum.as_bytes());
        bytes
    }

    /// The vector of a passage.
    pub fn get(&self, digest: &Digest) -> Option<&[f32]> {
        self.rows.get(digest).map(Vec::as_slice)
    }

    /// Adds a vector. If its length differs from the others, all are dropped: another model made them.
    pub fn insert(&mut self, digest: Digest, vector: Vec<f32>) {
        if self.dims != vector.len() {
            self.rows.clear();
            self.dims = vector.len();
        }
        self.rows.insert(digest, vector);
    }

    /// Drops the vectors that belong to no passage.
    pub fn keep(&mut self, passages: &[Passage]) {
        let wanted: std::collections::HashSet<_> = passages.iter().map(|passage| passage.digest).collect();
        self.rows.retain(|digest, _| wanted.contains(digest));
    }
}

impl SearchIndex {
    /// The best hits by words and vectors: each ranking contributes 1 / (60 + rank). `passages` must be those of the texts
    /// that were indexed; a block without a vector is ranked by words alone.
    pub fn search_hybrid(
        &self,
        query: &SearchQuery,
        like: &[f32],
        passages: &[Passage],
        vectors: &PassageVectors,
    ) -> Vec<SearchHit> {
        let wanted = wanted(&query.text);
        let deep = SearchQuery { limit: FUSED_DEPTH, ..query.clone() };
        let by_words = if wanted.is_empty() { Vec::new() } else { self.ranked(&deep, &wanted) };
        let by_meaning = self.nearest(&deep, like, passages, vectors);

        let mut ranks: HashMap<u32, HitRanks> = HashMap::new();
        let nowhere = HitRanks { words: None, meaning: None, similarity: None };
        for (rank, (number, _)) in (1..).zip(by_words) {
            ranks.entry(number).or_insert(nowhere).words = Some(rank);
        }
        for (rank, (number, similarity)) in (1..).zip(by_meaning) {
            let ranks = ranks.entry(number).or_insert(nowhere);
            (ranks.meaning, ranks.similarity) = (Some(rank), Some(similarity));
        }
        let score =
            |ranks: &HitRanks| [ranks.words, ranks.meaning].iter().flatten().map(|&rank| 1.0 / (K + rank as f32)).sum();
        let mut fused: Vec<(u32, HitRanks, f32)> =
            ranks.into_iter().map(|(number, ranks)| (number, ranks, score(&ranks))).collect();
        fused.sort_unstable_by(|(n, _, one), (m, _, other)| other.total_cmp(one).then(n.cmp(m)));
        fused.truncate(query.limit);
        let hit = |(number, ranks, score)| Some(SearchHit { ranks: Some(ranks), ..self.hit(number, score, &wanted)? });
        fused.into_iter().filter_map(hit).collect()
    }

    /// The blocks with the highest cosine to `like`, best first.
    fn nearest(
        &self,
        query: &SearchQuery,
        like: &[f32],
        passages: &[Passage],
        vectors: &PassageVectors,
    ) -> Vec<(u32, f32)> {
        let length = |vector: &[f32]| vector.iter().map(|x| x * x).sum::<f32>().sqrt();
        let (own, numbered) = (length(like), (0u32..).zip(self.entries.iter().zip(passages)));
        let cosine = |vector: &[f32]| {
            let product: f32 = vector.iter().zip(like).map(|(x, y)| x * y).sum();
            product / (own * length(vector)).max(f32::MIN_POSITIVE)
        };
        let mut found: Vec<_> = numbered
            .filter(|(_, (entry, _))| entry.passes(query))
            .filter_map(|(number, (_, passage))| Some((number, cosine(vectors.get(&passage.digest)?))))
            .collect();
        let better =
            |(n, one): &(u32, f32), (m, other): &(u32, f32)| -> Ordering { other.total_cmp(one).then(n.cmp(m)) };
        if query.limit < found.len() {
            found.select_nth_unstable_by(query.limit, better);
            found.truncate(query.limit);
        }
        found.sort_unstable_by(better);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::governance::memory::texts::WorkspaceTexts;

    const BLOCKS: &str = "[D-20260201-001]\nDate: 2026-02-01\nStatus: active\nStatement: Use a car\n\n\
        [D-20260202-001]\nDate: 2026-02-02\nStatus: active\nStatement: Use an automobile\n\n\
        [D-20260203-001]\nDate: 2026-02-03\nStatus: revoked\nStatement: Plant a tree\n";

    fn check(text: &str, like: [f32; 2], expected: &[(&str, Option<usize>, Option<usize>)]) {
        let mut texts = WorkspaceTexts::default();
        texts.set("decisions/DECISIONS.md", BLOCKS);
        let parsed = texts.parse();
        let (index, passages) = (SearchIndex::new(&parsed), passages(&parsed));
        let mut vectors = PassageVectors::default();
        for (passage, vector) in passages.iter().zip([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]) {
            vectors.insert(passage.digest, vector.to_vec());
        }
        let query = SearchQuery { text: text.into(), status: "active".into(), limit: 10, ..SearchQuery::default() };
        let hits = index.search_hybrid(&query, &like, &passages, &vectors);
        let found: Vec<_> =
            hits.iter().map(|hit| (hit.id.as_str(), hit.ranks.unwrap().words, hit.ranks.unwrap().meaning)).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn a_block_with_the_same_meaning_is_found_without_its_words() {
        check("car", [1.0, 0.0], &[("D-20260201-001", Some(1), Some(1)), ("D-20260202-001", None, Some(2))]);
        check("automobile", [1.0, 0.0], &[("D-20260202-001", Some(1), Some(2)), ("D-20260201-001", None, Some(1))]);
    }

    #[test]
    fn vectors_survive_a_round_trip_and_damage_is_detected() {
        let mut vectors = PassageVectors::default();
        vectors.insert(Digest::of("a"), vec![0.5, -1.25, f32::MIN_POSITIVE]);
        vectors.insert(Digest::of("b"), vec![3.0, 0.0, 1e30]);
        let bytes = vectors.print();
        assert_eq!(PassageVectors::read(&bytes), Some(vectors.clone()));
        for cut in 0..bytes.len() {
            assert_eq!(PassageVectors::read(&bytes[..cut]), None, "cut at {cut}");
            let mut flipped = bytes.clone();
            flipped[cut] ^= 0x10;
            assert_eq!(PassageVectors::read(&flipped), None, "flipped at {cut}");
        }
        vectors.insert(Digest::of("c"), vec![1.0]);
        assert_eq!(vectors.get(&Digest::of("a")), None, "another length means another model");
    }
}
