//! Items of published data sets, in the forms in which they are published: `TriviaQA`, `CoQA`, MMLU, GSM8K.
//!
//! Each as its authors' files and as the JSON lines that the `datasets` library writes (`to_json`). The prompts are fixed:
//! they belong to the protocol.

use serde_json::Value;

use super::protocol::Protocol;
use super::question::{Likelihood, Question};
use crate::foundation::chat::Message;

/// The letters of MMLU's choices.
const LETTERS: [&str; 4] = ["A", "B", "C", "D"];

/// A question of `TriviaQA`: `{"Question", "Answer": {"Value", "Aliases", …}}`, or with small letters.
pub(super) fn trivia_qa(item: &Value) -> Result<Question, String> {
    let question = text(item, &["Question", "question"])?;
    let answer = field(item, &["Answer", "answer"]).ok_or("`Answer` is missing: test files have no answers")?;
    let mut references: Vec<String> =
        field(answer, &["Value", "value"]).and_then(Value::as_str).map(str::to_owned).into_iter().collect();
    for list in [["Aliases", "aliases"], ["NormalizedAliases", "normalized_aliases"]] {
        let aliases = field(answer, &list).and_then(Value::as_array);
        references.extend(aliases.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned));
    }
    let mut seen = std::collections::HashSet::new();
    references.retain(|reference| !reference.trim().is_empty() && seen.insert(reference.clone()));
    if references.is_empty() {
        return Err("`Answer` has neither a `Value` nor `Aliases`".to_owned());
    }
    Ok(Question::Answer {
        prompt: vec![Message::user(format!(
            "Answer with a name, a date, a number or a few words, and nothing else.\nQuestion: {}\nAnswer:",
            question.trim()
        ))],
        references,
        protocol: Protocol::TriviaQa,
    })
}

/// The questions of a story of `CoQA`: each is asked after the story and the questions before it, with their right answers.
pub(super) fn coqa(story: &Value) -> Result<Vec<Question>, String> {
    let passage = text(story, &["story"])?;
    let said = |value: &Value| -> Option<String> {
        value.as_str().or_else(|| value.get("input_text").and_then(Value::as_str)).map(str::to_owned)
    };
    // The `datasets` library writes a list of objects as an object of lists.
    let list = |value: Option<&Value>| -> Option<Vec<String>> {
        let value = value?;
        value.as_array().or_else(|| value.get("input_text").and_then(Value::as_array))?.iter().map(said).collect()
    };
    let questions = list(story.get("questions")).ok_or("`questions` must be a list with `input_text`")?;
    let answers = list(story.get("answers")).ok_or("`answers` must be a list with `input_text`")?;
    if questions.len() != answers.len() {
        return Err(format!("{} questions and {} answers", questions.len(), answers.len()));
    }
    let others: Vec<Vec<String>> = story
        .get("additional_answers")
        .and_then(Value::as_object)
        .map(|others| others.values().filter_map(|one| list(Some(one))).collect())
        .unwrap_or_default();
    let mut asked = format!("{}\n", passage.trim());
    let mut found = Vec::with_capacity(questions.len());
    for (at, (question, answer)) in questions.iter().zip(&answers).enumerate() {
        asked.push_str(&format!("\nQuestion: {}\nAnswer:", question.trim()));
        let mut references = vec![answer.clone()];
        references.extend(others.iter().filter_map(|one| one.get(at).cloned()));
        references.retain(|reference| !reference.trim().is_empty());
        if references.is_empty() {
            return Err(format!("question {} has no answer", at + 1));
        }
        found.push(Question::Answer {
            prompt: vec![Message::user(format!(
                "Read the text and answer the last question in a few words.\n\n{asked}"
            ))],
            references,
            protocol: Protocol::CoQa,
        });
        asked.push_str(&format!(" {}", answer.trim()));
    }
    Ok(found)
}

/// A question of MMLU.
pub(super) fn mmlu(subject: &str, question: &str, choices: &[String], right: usize) -> Result<Question, String> {
    if choices.len() != LETTERS.len() || right >= LETTERS.len() {
        return Err(format!("{} choices, of which number {right} is right; four are needed", choices.len()));
    }
    let mut asked = "The following is a multiple choice question".to_owned();
    if !subject.is_empty() {
        asked.push_str(&format!(" about {}", subject.replace('_', " ")));
    }
    asked.push_str(&format!(". Answer with the letter alone.\n\n{}", question.trim()));
    for (letter, choice) in LETTERS.iter().zip(choices) {
        asked.push_str(&format!("\n{letter}. {}", choice.trim()));
    }
    asked.push_str("\nAnswer:");
    let prompt = vec![Message::user(asked)];
    Ok(Question::Choose {
        prompt,
        candidates: LETTERS.map(str::to_owned).to_vec(),
        right,
        by: Likelihood::Whole,
        protocol: Protocol::MmluLetter,
    })
}

/// A question of MMLU as JSON: `{"question", "subject", "choices", "answer"}`, the answer as its number or letter.
pub(super) fn mmlu_json(item: &Value) -> Result<Question, String> {
    let choices = item.get("choices").and_then(Value::as_array).ok_or("`choices` must be a list of texts")?;
    let choices: Option<Vec<String>> = choices.iter().map(|choice| choice.as_str().map(str::to_owned)).collect();
    let choices = choices.ok_or("`choices` must be a list of texts")?;
    let answer = item.get("answer");
    let right = match answer.and_then(Value::as_u64) {
        Some(number) => number as usize,
        None => letter_at(answer.and_then(Value::as_str).unwrap_or_default())?,
    };
    mmlu(&text(item, &["subject"])?, &text(item, &["question"])?, &choices, right)
}

/// The questions of one of MMLU's files: `question,A,B,C,D,letter`, without a heading.
pub(super) fn mmlu_csv(subject: &str, csv: &str) -> Result<Vec<Question>, (usize, String)> {
    let mut found = Vec::new();
    for (row, line) in csv_rows(csv)? {
        let at = |why: String| (line, why);
        let [question, choices @ .., answer] = row.as_slice() else {
            return Err(at(
                "six columns are needed: the question, four choices, and the letter of the right one".to_owned()
            ));
        };
        // Some copies begin with a heading.
        if line == 1 && answer.eq_ignore_ascii_case("answer") {
            continue;
        }
        let right = letter_at(answer).map_err(at)?;
        found.push(mmlu(subject, question, choices, right).map_err(at)?);
    }
    Ok(found)
}

fn letter_at(answer: &str) -> Result<usize, String> {
    LETTERS.iter().position(|letter| *letter == answer.trim()).ok_or_else(|| {
        format!("the answer is `{}`; A, B, C or D is needed", answer.chars().take(20).collect::<String>())
    })
}

/// A question of GSM8K: `{"question", "answer"}`, the answer ending in `#### NUMBER`.
pub(super) fn gsm8k(item: &Value) -> Result<Question, String> {
    let (question, answer) = (text(item, &["question"])?, text(item, &["answer"])?);
    let (_, right) = answer.rsplit_once("####").ok_or("`answer` must end in `#### ` and the number")?;
    if Protocol::Gsm8k.read(right).is_none() {
        return Err("there is no number behind `####`".to_owned());
    }
    Ok(Question::Answer {
        prompt: vec![Message::user(format!(
            "Solve the problem step by step. End with a line that holds #### and the number alone.\n\n{}",
            question.trim()
        ))],
        references: vec![right.trim().to_owned()],
        protocol: Protocol::Gsm8k,
    })
}

fn field<'a>(value: &'a Value, names: &[&str]) -> Option<&'a Value> {
    names.iter().find_map(|name| value.get(name))
}

fn text(value: &Value, names: &[&str]) -> Result<String, String> {
    let found = field(value, names).and_then(Value::as_str).map(str::to_owned);
    found.ok_or_else(|| format!("`{}` must be a text", names.first().unwrap_or(&"")))
}

/// The cells of a row of a CSV file, and the number of its first line.
type CsvRow = (Vec<String>, usize);

/// The rows of a CSV file (RFC 4180).
fn csv_rows(text: &str) -> Result<Vec<CsvRow>, (usize, String)> {
    let (mut rows, mut row, mut cell) = (Vec::new(), Vec::new(), String::new());
    let (mut quoted, mut line, mut began) = (false, 1, 1);
    let mut chars = text.trim_start_matches('\u{feff}').chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\n' {
            line += 1;
        }
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => cell.extend(chars.next()),
            '"' if quoted || cell.is_empty() => quoted = !quoted,
            ',' if !quoted => row.push(std::mem::take(&mut cell)),
            '\r' if !quoted && chars.peek() == Some(&'\n') => {}
            '\n' if !quoted => {
                if !row.is_empty() || !cell.is_empty() {
                    row.push(std::mem::take(&mut cell));
                    rows.push((std::mem::take(&mut row), began));
                }
                began = line;
            }
            _ => cell.push(c),
        }
    }
    if quoted {
        return Err((began, "a quotation mark is not closed".to_owned()));
    }
    if !row.is_empty() || !cell.is_empty() {
        row.push(cell);
        rows.push((row, began));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::studies::confidence::task::{Task, TaskItem};

    fn open(name: &str) -> Task {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tasks").join(name);
        Task::open(path.to_str().unwrap()).unwrap()
    }

    fn asked(item: &TaskItem) -> &str {
        let (Question::Answer { prompt, .. } | Question::Choose { prompt, .. }) = &item.question;
        &prompt[0].content
    }

    /// Whether a text would be a right answer.
    fn right(item: &TaskItem, text: &str) -> bool {
        let Question::Answer { references, protocol, .. } = &item.question else { panic!("{item:?}") };
        protocol.right(text, references)
    }

    #[test]
    fn a_trivia_question_has_all_its_aliases() {
        let task = open("triviaqa.json");
        assert_eq!((task.name.as_str(), task.items.len()), ("triviaqa", 2));
        assert!(right(&task.items[0], "the Dodo.") && right(&task.items[0], "Raphus cucullatus"));
        assert!(right(&task.items[1], "Answer: 7") && !right(&task.items[1], "eight"));
        // As the `datasets` library writes it.
        let line = r#"{"question": "Q?", "question_id": "x", "answer": {"value": "Ob", "aliases": ["Ob River"], "normalized_aliases": ["ob river"], "type": "W"}}"#;
        assert!(right(&Task::parse("t", line).unwrap().items[0], "Ob river"));
        let hidden = r#"{"Question": "Q?", "Answer": {}}"#;
        assert!(Task::parse("t", hidden).unwrap_err().to_string().contains("line 1: `Answer` has neither"));
    }

    #[test]
    fn a_story_is_told_before_each_of_its_questions() {
        let task = open("coqa.json");
        assert_eq!(task.items.len(), 3);
        let last = asked(&task.items[2]);
        assert!(
            last.contains("Nora keeps three hens")
                && last.ends_with("How many?\nAnswer: three\nQuestion: What do they eat?\nAnswer:"),
            "{last}"
        );
        assert!(right(&task.items[1], "3") && right(&task.items[2], "bread crumbs") && !right(&task.items[2], "hens"));
        let line = r#"{"source": "x", "story": "S.", "questions": ["Q?"], "answers": {"input_text": ["yes"], "answer_start": [0], "answer_end": [1]}}"#;
        assert!(right(&Task::parse("t", line).unwrap().items[0], "Yes."));
    }

    #[test]
    fn numbers_decide_word_problems() {
        let task = open("gsm8k.jsonl");
        assert!(right(&task.items[0], "She sells 12 and 24.\n#### 36") && !right(&task.items[0], "#### 24"));
        assert!(right(&task.items[1], "That makes $1300."));
        let whole = r#"[{"question": "Q", "answer": "x #### 5"}, {"question": "Q2", "answer": "no number"}]"#;
        assert!(Task::parse("t", whole).unwrap_err().to_string().contains("entry 2"));
    }

    #[test]
    fn a_folder_of_subjects_is_one_task() {
        let task = open("mmlu");
        let rights: Vec<usize> = task
            .items
            .iter()
            .map(|item| match &item.question {
                Question::Choose { right, candidates, protocol, .. } => {
                    assert_eq!((candidates.len(), *protocol), (4, Protocol::MmluLetter));
                    *right
                }
                Question::Answer { .. } => panic!("{item:?}"),
            })
            .collect();
        assert_eq!(rights, [1, 0, 1, 1, 1, 1, 0]);
        assert!(
            asked(&task.items[0]).contains("about abstract algebra. ") && asked(&task.items[0]).contains("(as a set)")
        );
        assert!(asked(&task.items[2]).contains("B. The \"equator\"\nC."), "{}", asked(&task.items[2]));
        let written = task.written();
        assert!(right(&written.items[2], "The answer is B") && !right(&written.items[2], "A"));
        let line = r#"{"question": "Q", "subject": "astronomy", "choices": ["a", "b", "c", "d"], "answer": 3}"#;
        let Question::Choose { right, .. } = &Task::parse("t", line).unwrap().items[0].question else { panic!() };
        assert_eq!(*right, 3);
        let bad = mmlu_csv("s", "q,a,b,c,d,E\n").unwrap_err();
        assert_eq!((bad.0, bad.1.as_str()), (1, "the answer is `E`; A, B, C or D is needed"));
        assert!(mmlu_csv("s", "q,a,b,B\n").is_err() && mmlu_csv("s", "\"q,a").is_err());
    }
}
