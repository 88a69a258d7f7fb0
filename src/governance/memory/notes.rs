//! Notes: the Markdown files of a folder or an Obsidian vault that are not part of the memory. They are searched after the
//! blocks, and a note that names a decision, in a wikilink or in its text, is affected by a change of it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::id::{BlockId, ids_in};
use super::search::words_in;
use super::texts::WorkspaceTexts;

const K1: f32 = 1.2;
const B: f32 = 0.75;

/// A note that matches a search.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NoteHit {
    /// The file.
    pub file: String,
    /// The first line that contains a word of the query.
    pub line: usize,
    /// The note's first heading, or else its name.
    pub title: String,
    /// That line.
    pub excerpt: String,
    /// The BM25 score.
    pub score: f32,
}

/// The title of a note: its first heading, or else the file's name.
fn title(path: &str, text: &str) -> String {
    let heading = text.lines().find_map(|line| line.strip_prefix("# ")).map(str::trim);
    let stem = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".md");
    heading.filter(|heading| !heading.is_empty()).unwrap_or(stem).to_owned()
}

/// The words of a text, ids and the targets and names of wikilinks among them.
fn count(text: &str) -> (BTreeMap<String, f32>, f32) {
    let mut counts = BTreeMap::new();
    let mut length = 0.0;
    words_in(text, |word| {
        *counts.entry(word.to_owned()).or_insert(0.0) += 1.0;
        length += 1.0;
    });
    for id in ids_in(text) {
        *counts.entry(id.as_str().to_lowercase()).or_insert(0.0) += 1.0;
    }
    (counts, length)
}

/// The notes that match `query` by words, best first (Okapi BM25, as for blocks; a title's words count twice).
pub fn search(notes: &WorkspaceTexts, query: &str, limit: usize) -> Vec<NoteHit> {
    let wanted = match ids_in(query).next() {
        // A query that is an id finds what names it, not what shares a part of it.
        Some(id) if id.as_str() == query.trim() => BTreeMap::from([(id.as_str().to_lowercase(), 1.0)]),
        _ => count(query).0,
    };
    let counted: Vec<_> = notes
        .iter()
        .map(|(path, text)| {
            let title = title(path, text);
            let (counts, length) = count(&format!("{title}\n{text}"));
            (path, text, title, counts, length)
        })
        .collect();
    let mean = counted.iter().map(|(.., length)| length).sum::<f32>() / (counted.len().max(1) as f32);
    let mut hits: Vec<NoteHit> = Vec::new();
    for (path, text, title, counts, length) in &counted {
        let weight = |word: &String| {
            let count = counts.get(word)?;
            let holding = counted.iter().filter(|(.., counts, _)| counts.contains_key(word)).count() as f32;
            let idf = (1.0 + (counted.len() as f32 - holding + 0.5) / (holding + 0.5)).ln();
            Some(idf * count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length / mean.max(1.0))))
        };
        let score: f32 = wanted.keys().filter_map(weight).sum();
        if score <= 0.0 {
            continue;
        }
        let holds = |line: &str| {
            let (found, _) = count(line);
            wanted.keys().any(|word| found.contains_key(word))
        };
        let (line, excerpt) = (1..).zip(text.lines()).find(|(_, line)| holds(line)).unwrap_or((1, title));
        hits.push(NoteHit {
            file: (*path).to_owned(),
            line,
            title: title.clone(),
            excerpt: super::capture::one_line(excerpt, crate::foundation::base::limits::EXCERPT_CHARS_MAX),
            score,
        });
    }
    hits.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.file.cmp(&b.file)));
    hits.truncate(limit);
    hits
}

/// The notes that name the block `id`, with the line of each first mention. `[[D-…]]`, `[[DECISIONS#D-…|why]]` and plain
/// text all count.
pub fn naming(notes: &WorkspaceTexts, id: &str) -> Vec<(String, usize)> {
    let names = |line: &str| ids_in(line).map(BlockId::as_str).any(|found| found == id);
    let first = |text: &str| (1..).zip(text.lines()).find(|(_, line)| names(line)).map(|(line, _)| line);
    notes.iter().filter_map(|(path, text)| Some((path.to_owned(), first(text)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_found_by_their_words_and_by_what_they_link() {
        let mut notes = WorkspaceTexts::default();
        notes.set("Cache.md", "# Why we cache\n\nSee [[decisions/DECISIONS#D-20260201-001|the decision]] on SQLite.\n");
        notes.set("daily/2026-02-01.md", "Talked about [[Cache]] and lunch.\n");
        notes.set("Travel.md", "The train to Bern. D-2026 is no id.\n");
        let found = |query: &str| -> Vec<(String, usize)> {
            search(&notes, query, 9).into_iter().map(|hit| (hit.file, hit.line)).collect()
        };
        assert_eq!(found("sqlite"), [("Cache.md".to_owned(), 3)]);
        assert_eq!(found("cache"), [("Cache.md".to_owned(), 1), ("daily/2026-02-01.md".to_owned(), 1)]);
        assert_eq!(found("D-20260201-001"), [("Cache.md".to_owned(), 3)]);
        assert_eq!(found("nothing"), []);
        assert_eq!(naming(&notes, "D-20260201-001"), [("Cache.md".to_owned(), 3)]);
        assert_eq!(naming(&notes, "D-20260201-002"), []);
    }
}
