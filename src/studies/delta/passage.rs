//! The texts of a study as passages of tokens: from files, transcripts, or the built-in recall task.

use std::path::Path;

use super::DeltaStudyError;
use crate::foundation::base::RngStream;
use crate::foundation::base::limits::TASK_BYTES_MAX;
use crate::foundation::chat::{LanguageModel, Message, TokenId, Vocabulary};
use crate::foundation::store::read_text;
use crate::simulation::rollout::{Transcript, read_transcript};

/// The name of the built-in long-range recall task: a fact, filler, and a question for the fact; only the answer is scored.
pub const RECALL: &str = "recall";

/// A passage of text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passage {
    /// Its source.
    pub name: String,
    /// Its tokens.
    pub ids: Vec<TokenId>,
    /// Index of the first scored token, at least 1.
    pub from: usize,
}

/// At most `most` passages of at most `length` tokens from each of `texts`.
///
/// # Errors
/// If a text cannot be read or is too short.
pub fn passages(
    model: &dyn LanguageModel,
    texts: &[String],
    length: usize,
    most: usize,
) -> Result<Vec<Passage>, DeltaStudyError> {
    let vocabulary = model.vocabulary().ok_or_else(|| DeltaStudyError::NoDelta(model.info().name.clone()))?;
    let mut all = Vec::new();
    for name in texts {
        let before = all.len();
        if name == RECALL {
            for index in 0..most {
                all.push(recall(vocabulary, length, index)?);
            }
        } else {
            let ids = text_ids(vocabulary, name)?;
            let pieces = ids.chunks(length.max(2)).filter(|piece| piece.len() > 1).take(most).enumerate();
            all.extend(pieces.map(|(at, piece)| Passage {
                name: format!("{name}#{at}"),
                ids: piece.to_vec(),
                from: 1,
            }));
        }
        if all.len() == before {
            let why = "it has fewer than two tokens: give more text, and at least one passage".to_owned();
            return Err(DeltaStudyError::Text { name: name.clone(), why });
        }
    }
    Ok(all)
}

/// A transcript rendered by the persona's chat template, without the opening; any other file verbatim.
fn text_ids(vocabulary: &dyn Vocabulary, name: &str) -> Result<Vec<TokenId>, DeltaStudyError> {
    let wrong = |why: String| DeltaStudyError::Text { name: name.to_owned(), why };
    let path = Path::new(name);
    if path.extension().is_some_and(|extension| extension == "json") {
        let Transcript { turns, .. } = read_transcript(path).map_err(|error| wrong(error.to_string()))?;
        let messages: Vec<Message> = turns
            .iter()
            .flat_map(|turn| [Message::user(&turn.interlocutor.content), Message::assistant(&turn.persona.content)])
            .filter(|message| !message.content.is_empty())
            .collect();
        return Ok(vocabulary.chat(&messages)?);
    }
    let text = read_text(path, TASK_BYTES_MAX).map_err(|error| wrong(error.to_string()))?;
    Ok(vocabulary.encode(&text)?)
}

const OWNERS: [&str; 6] = ["My dog", "My cat", "My sister", "My brother", "My best friend", "My neighbour"];
const NAMES: [&str; 12] =
    ["Max", "Bella", "Charlie", "Lucy", "Rocky", "Daisy", "Oscar", "Molly", "Sam", "Rose", "Jack", "Ruby"];
const TALK: [&str; 12] = [
    "I like to walk in the park when the sun is out.",
    "Work was busy today, so I went to bed early.",
    "We had pasta for dinner and watched a movie.",
    "I am thinking about learning to play the guitar.",
    "The weather has been nice this week.",
    "I went to the store to buy some bread and milk.",
    "On weekends I read books or go for a swim.",
    "My favorite season is fall because of the colors.",
    "I used to live in a small town near the coast.",
    "Do you have any plans for the summer?",
    "I am trying to eat more vegetables these days.",
    "Last year we drove all the way to the mountains.",
];

/// Passage `index` of the recall task, with filler up to about `length` tokens.
fn recall(vocabulary: &dyn Vocabulary, length: usize, index: usize) -> Result<Passage, DeltaStudyError> {
    let stream = RngStream::root(0).child(RECALL, index as u64);
    let pick = |from: &[&'static str], at: u64| from.get(stream.index(at, from.len())).copied().unwrap_or_default();
    let (owner, name) = (pick(&OWNERS, 0), pick(&NAMES, 1));
    let mut text = format!("{owner} is called {name}.");
    let question = format!(" {owner} is called");
    let answer = format!(" {name}");
    for at in 2.. {
        let longer = format!("{text} {}", pick(&TALK, at));
        if vocabulary.encode(&format!("{longer}{question}{answer}"))?.len() > length {
            break;
        }
        text = longer;
    }
    let prefix = vocabulary.encode(&format!("{text}{question}"))?;
    let ids = vocabulary.encode(&format!("{text}{question}{answer}"))?;
    let from = ids.iter().zip(&prefix).take_while(|(a, b)| a == b).count().max(1);
    Ok(Passage { name: format!("{RECALL}#{index}"), ids, from })
}
