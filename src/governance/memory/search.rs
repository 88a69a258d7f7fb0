//! Full-text search over blocks with BM25, filters, and an explanation for every hit. The index is derived from the
//! texts; `workspace::CachedSearch` keeps it between searches. [`semantic`] combines it with embeddings.
//!
//! The formula is Okapi BM25 (Robertson and Zaragoza, 2009) with k₁ = 1.2, b = 0.75 and the inverse document frequency
//! `ln(1 + (N − n + ½) / (n + ½))`, which is never negative. A word in a statement, title, name, summary or excerpt counts
//! twice, the block's id four times. Words are runs of letters and digits, lower-cased; a block id is also a word.

pub mod semantic;

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

use jiff::civil::Date;
use serde::Serialize;

use super::id::{BlockKind, ids_in};
use super::parse::Block;
use super::texts::ParsedTexts;

const K1: f32 = 1.2;
const B: f32 = 0.75;
/// Fields with the subject of a block.
const TITLES: [&str; 5] = ["Statement", "Title", "Name", "Summary", "Excerpt"];

/// A query. Empty filters match everything.
#[derive(Debug, Clone, Default)]
pub struct SearchQuery {
    /// The words; without any, all blocks that match the filters are returned, newest first.
    pub text: String,
    /// Only this kind.
    pub kind: Option<BlockKind>,
    /// Only this status.
    pub status: String,
    /// Only with this tag.
    pub tag: String,
    /// Only of this project.
    pub project: String,
    /// Not before this day.
    pub from: Option<Date>,
    /// Not after this day.
    pub to: Option<Date>,
    /// The maximum number of hits.
    pub limit: usize,
}

/// A block that matches.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SearchHit {
    /// Its id.
    pub id: String,
    /// Its kind.
    pub kind: BlockKind,
    /// The file that contains it.
    pub file: String,
    /// The line of its header.
    pub line: usize,
    /// Its status, if it has one.
    pub status: String,
    /// The subject.
    pub title: String,
    /// The score: BM25, or reciprocal rank fusion for a hybrid search; 0 without words.
    pub score: f32,
    /// The contribution of each query word to the BM25 score.
    pub why: BTreeMap<String, f32>,
    /// The positions in the two rankings of a hybrid search; absent for a search by words alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<semantic::HitRanks>,
}

#[derive(Debug)]
struct IndexedBlock {
    id: String,
    kind: BlockKind,
    file: String,
    line: usize,
    status: String,
    title: String,
    tags: Vec<String>,
    project: String,
    date: Option<Date>,
    length: f32,
}

/// An index over the blocks of a workspace.
#[derive(Debug, Default)]
pub struct SearchIndex {
    entries: Vec<IndexedBlock>,
    words: HashMap<String, u32>,
    /// By word number: the blocks in order, with the weighted count of the word in each.
    postings: Vec<Vec<(u32, f32)>>,
    mean_length: f32,
}

impl SearchIndex {
    /// Indexes every block.
    pub fn new(parsed: &ParsedTexts<'_>) -> Self {
        let mut index = Self::default();
        // Every word has a number; `counts` holds its weighted count in the current block under that number.
        let mut counts: Vec<f32> = Vec::new();
        let mut met: Vec<u32> = Vec::new();
        for (file, block) in parsed.blocks() {
            let block_number = index.entries.len() as u32;
            let mut length = 0.0;
            let mut count = |word: &str, weight: f32| {
                length += weight;
                let number = index.words.get(word).copied().unwrap_or_else(|| {
                    let number = counts.len() as u32;
                    index.words.insert(word.to_owned(), number);
                    counts.push(0.0);
                    number
                });
                if let Some(count) = counts.get_mut(number as usize) {
                    if *count == 0.0 {
                        met.push(number);
                    }
                    *count += weight;
                }
            };
            count(&block.id().as_str().to_lowercase(), 4.0);
            for field in block.fields() {
                let weight = if TITLES.contains(&field.key) { 2.0 } else { 1.0 };
                for text in [field.head, field.body] {
                    words_in(text, |word| count(word, weight));
                    ids_in(text).for_each(|id| count(&id.as_str().to_lowercase(), 1.0));
                }
            }
            index.postings.resize_with(counts.len(), Vec::new);
            for number in met.drain(..) {
                let count = counts.get_mut(number as usize).map(std::mem::take);
                if let (Some(postings), Some(count)) = (index.postings.get_mut(number as usize), count) {
                    postings.push((block_number, count));
                }
            }
            index.mean_length += length;
            index.entries.push(entry(file, &block, length));
        }
        index.mean_length /= (index.entries.len() as f32).max(1.0);
        index
    }

    /// The number of blocks.
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it is empty.
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The best hits, best first; ties in file order.
    pub fn search(&self, query: &SearchQuery) -> Vec<SearchHit> {
        let wanted = wanted(&query.text);
        self.ranked(query, &wanted).into_iter().filter_map(|(number, score)| self.hit(number, score, &wanted)).collect()
    }

    /// The numbers of the best blocks for `wanted` with their scores, best first.
    fn ranked(&self, query: &SearchQuery, wanted: &[String]) -> Vec<(u32, f32)> {
        let mut scores = vec![0f32; self.entries.len()];
        for word in wanted {
            let Some(postings) = self.postings(word) else { continue };
            let idf = self.idf(postings.len());
            for (number, count) in postings {
                if let (Some(score), Some(entry)) =
                    (scores.get_mut(*number as usize), self.entries.get(*number as usize))
                {
                    *score += idf * self.weight(*count, entry.length);
                }
            }
        }
        let numbered = (0u32..).zip(&self.entries).zip(scores).map(|((number, entry), score)| (number, entry, score));
        let passes =
            |(_, entry, score): &(u32, &IndexedBlock, f32)| (wanted.is_empty() || *score > 0.0) && entry.passes(query);
        let mut found: Vec<_> = numbered.filter(passes).collect();
        let better = |(n, a, one): &(u32, &IndexedBlock, f32), (m, b, other): &(u32, &IndexedBlock, f32)| {
            let newest = if wanted.is_empty() { b.date.cmp(&a.date) } else { Ordering::Equal };
            other.total_cmp(one).then(newest).then(n.cmp(m))
        };
        if query.limit > 0 && query.limit < found.len() {
            found.select_nth_unstable_by(query.limit - 1, better);
            found.truncate(query.limit);
        }
        found.sort_unstable_by(better);
        found.into_iter().take(query.limit).map(|(number, _, score)| (number, score)).collect()
    }

    fn hit(&self, number: u32, score: f32, wanted: &[String]) -> Option<SearchHit> {
        let entry = self.entries.get(number as usize)?;
        let part = |word: &String| {
            let postings = self.postings(word)?;
            let at = postings.binary_search_by_key(&number, |(number, _)| *number).ok()?;
            let (_, count) = postings.get(at)?;
            Some((word.clone(), self.idf(postings.len()) * self.weight(*count, entry.length)))
        };
        Some(SearchHit {
            id: entry.id.clone(),
            kind: entry.kind,
            file: entry.file.clone(),
            line: entry.line,
            status: entry.status.clone(),
            title: entry.title.clone(),
            score,
            why: wanted.iter().filter_map(part).collect(),
            ranks: None,
        })
    }

    fn postings(&self, word: &str) -> Option<&[(u32, f32)]> {
        self.postings.get(*self.words.get(word)? as usize).map(Vec::as_slice)
    }

    fn idf(&self, holding: usize) -> f32 {
        let (all, holding) = (self.entries.len() as f32, holding as f32);
        (1.0 + (all - holding + 0.5) / (holding + 0.5)).ln()
    }

    fn weight(&self, count: f32, length: f32) -> f32 {
        count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length / self.mean_length))
    }
}

impl IndexedBlock {
    fn passes(&self, query: &SearchQuery) -> bool {
        let same = |wanted: &str, is: &str| wanted.is_empty() || wanted.eq_ignore_ascii_case(is);
        query.kind.is_none_or(|kind| kind == self.kind)
            && same(&query.status, &self.status)
            && same(&query.project, &self.project)
            && (query.tag.is_empty() || self.tags.iter().any(|tag| tag.eq_ignore_ascii_case(&query.tag)))
            && query.from.is_none_or(|from| self.date.is_some_and(|date| date >= from))
            && query.to.is_none_or(|to| self.date.is_some_and(|date| date <= to))
    }
}

fn entry(file: &str, block: &Block<'_, '_>, length: f32) -> IndexedBlock {
    IndexedBlock {
        id: block.id().as_str().to_owned(),
        kind: block.id().kind(),
        file: file.to_owned(),
        line: block.line(),
        status: block.head("Status").to_owned(),
        title: TITLES
            .iter()
            .chain(&["Description", "TargetBlock"])
            .map(|key| block.head(key))
            .find(|head| !head.is_empty())
            .unwrap_or_default()
            .to_owned(),
        tags: block.words("Tags").into_iter().map(std::borrow::Cow::into_owned).collect(),
        project: block.head("Project").to_owned(),
        date: block.head("Date").get(..10).and_then(|date| date.parse().ok()),
        length,
    }
}

/// The distinct words and ids in `text`.
fn wanted(text: &str) -> Vec<String> {
    let mut wanted = Vec::new();
    let mut rest = text.to_owned();
    for id in ids_in(text) {
        rest = rest.replace(id.as_str(), " ");
        wanted.push(id.as_str().to_lowercase());
    }
    words_in(&rest, |word| wanted.push(word.to_owned()));
    wanted.sort_unstable();
    wanted.dedup();
    wanted
}

/// Calls `each` with every word of `text`.
pub(super) fn words_in(text: &str, mut each: impl FnMut(&str)) {
    let mut folded = String::new();
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        if word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()) {
            each(word);
        } else {
            folded.clear();
            folded.extend(word.chars().flat_map(char::to_lowercase));
            each(&folded);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::governance::memory::texts::WorkspaceTexts;

    fn texts() -> WorkspaceTexts {
        let mut texts = WorkspaceTexts::default();
        texts.set(
            "decisions/DECISIONS.md",
            "[D-20260201-001]\nDate: 2026-02-01\nStatus: active\nStatement: Use SQLite for the cache\nTags: storage\n\n[D-20260202-001]\nDate: 2026-02-02\nStatus: revoked\nStatement: Use a queue\nRationale: the cache was slow, the cache was large\nTags: x\n",
        );
        texts.set("tasks/TASKS.md", "[T-20260203-001]\nDate: 2026-02-03\nStatus: todo\nTitle: Measure the Größe of the queue\nAlignsWith: D-20260202-001\nProject: PRJ-001\n");
        texts
    }

    fn check(query: &SearchQuery, expected: &[&str]) {
        let texts = texts();
        let hits = SearchIndex::new(&texts.parse()).search(query);
        assert_eq!(hits.iter().map(|hit| hit.id.as_str()).collect::<Vec<_>>(), expected, "{query:?}");
        for hit in hits {
            assert!((hit.why.values().sum::<f32>() - hit.score).abs() < 1e-5, "the contributions sum to the score");
        }
    }

    fn text(text: &str) -> SearchQuery {
        SearchQuery { text: text.into(), limit: 10, ..SearchQuery::default() }
    }

    #[test]
    fn words_and_ids_are_found_and_titles_weigh_more() {
        check(&text("queue"), &["D-20260202-001", "T-20260203-001"]);
        check(&text("sqlite"), &["D-20260201-001"]);
        check(&text("GRÖSSE größe"), &["T-20260203-001"]);
        check(&text("D-20260202-001"), &["D-20260202-001", "T-20260203-001"]);
        check(&text("nothing"), &[]);
    }

    #[test]
    fn filters_narrow() {
        check(&SearchQuery { kind: Some(BlockKind::Task), ..text("queue") }, &["T-20260203-001"]);
        check(&SearchQuery { status: "active".into(), ..text("") }, &["D-20260201-001"]);
        check(&SearchQuery { tag: "storage".into(), ..text("cache") }, &["D-20260201-001"]);
        check(&SearchQuery { project: "PRJ-001".into(), ..text("") }, &["T-20260203-001"]);
        check(
            &SearchQuery { from: Some(jiff::civil::date(2026, 2, 2)), limit: 2, ..SearchQuery::default() },
            &["T-20260203-001", "D-20260202-001"],
        );
        check(&SearchQuery { to: Some(jiff::civil::date(2026, 2, 1)), ..text("the") }, &["D-20260201-001"]);
    }

    #[test]
    fn a_score_is_bm25() {
        // Computed by hand from the formula: three blocks, one contains "sqlite" twice (a title's word counts double).
        let texts = texts();
        let index = SearchIndex::new(&texts.parse());
        let hit = index.search(&text("sqlite")).remove(0);
        let lengths: Vec<_> = index.entries.iter().map(|entry| entry.length).collect();
        let mean = lengths.iter().sum::<f32>() / 3.0;
        let idf = (1.0 + (3.0 - 1.0 + 0.5) / (1.0 + 0.5f32)).ln();
        let expected = idf * (2.0 * 2.2) / (2.0 + 1.2 * (0.25 + 0.75 * lengths[0] / mean));
        assert!((hit.score - expected).abs() < 1e-5);
    }
}
