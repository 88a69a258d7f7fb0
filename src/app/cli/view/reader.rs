//! Where the reader is, and how keys move it. Pure: draws nothing, reads nothing.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::foundation::text::fold;
use crate::simulation::rollout::{Outcome, TokenLine, Transcript};

/// One transcript, ready to be read.
pub(super) struct Book {
    pub(super) file: String,
    pub(super) transcript: Transcript,
    pub(super) tokens: Vec<TokenLine>,
}

impl Book {
    /// One line on what it is.
    pub(super) fn title(&self) -> String {
        let transcript = &self.transcript;
        let outcome = match &transcript.outcome {
            Outcome::Complete => String::new(),
            Outcome::Unfinished => " · under way".to_owned(),
            Outcome::Stopped { reason, .. } => format!(" · given up: {reason}"),
        };
        format!("{} · {} · seed {}{outcome}", transcript.config.name, self.file, transcript.run.seed)
    }

    fn turns(&self) -> usize {
        self.transcript.turns.len()
    }

    /// Whether something said in turn number `index` holds `folded`.
    fn holds(&self, index: usize, folded: &str) -> bool {
        let turn = self.transcript.turns.get(index);
        turn.is_some_and(|turn| {
            [&turn.persona, &turn.interlocutor].iter().any(|utterance| fold(&utterance.content).contains(folded))
        })
    }
}

/// What the keys do now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mode {
    Reading,
    /// Typing what to look for.
    Searching(String),
    Help,
}

/// What comes after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Stay,
    Leave,
}

/// Where the reader is.
pub(super) struct Reader {
    books: Vec<Book>,
    book: usize,
    pub(super) turn: usize,
    /// The first line of the page that is shown; the screen keeps it within the page.
    pub(super) scroll: usize,
    /// Lines of the page that are shown at once; the screen says.
    pub(super) height: usize,
    pub(super) mode: Mode,
    sought: String,
    pub(super) notice: Option<String>,
}

impl Reader {
    pub(super) fn new(books: Vec<Book>) -> Self {
        Self { books, book: 0, turn: 0, scroll: 0, height: 1, mode: Mode::Reading, sought: String::new(), notice: None }
    }

    /// The book that is open.
    pub(super) fn book(&self) -> Option<&Book> {
        self.books.get(self.book)
    }

    /// Which book is open, from 1, and how many there are.
    pub(super) fn shelf(&self) -> (usize, usize) {
        (self.book + 1, self.books.len())
    }

    /// One key.
    pub(super) fn key(&mut self, key: KeyEvent) -> Next {
        self.notice = None;
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Next::Leave;
        }
        match &mut self.mode {
            Mode::Help => self.mode = Mode::Reading,
            Mode::Searching(text) => match key.code {
                KeyCode::Enter => {
                    self.sought = fold(text);
                    self.mode = Mode::Reading;
                    self.search(true);
                }
                KeyCode::Esc => self.mode = Mode::Reading,
                KeyCode::Backspace if text.is_empty() => self.mode = Mode::Reading,
                KeyCode::Backspace => drop(text.pop()),
                KeyCode::Char(c) => text.push(c),
                _ => {}
            },
            Mode::Reading => return self.reading(key.code),
        }
        Next::Stay
    }

    fn reading(&mut self, key: KeyCode) -> Next {
        let last = self.book().map_or(0, |book| book.turns().saturating_sub(1));
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return Next::Leave,
            KeyCode::Char('j') | KeyCode::Down => self.go(self.turn.saturating_add(1).min(last)),
            KeyCode::Char('k') | KeyCode::Up => self.go(self.turn.saturating_sub(1)),
            KeyCode::Char('g') | KeyCode::Home => self.go(0),
            KeyCode::Char('G') | KeyCode::End => self.go(last),
            KeyCode::Char(' ') | KeyCode::PageDown => self.scroll = self.scroll.saturating_add(self.height),
            KeyCode::Char('b') | KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(self.height),
            KeyCode::Char('l') | KeyCode::Right => self.open(self.book + 1),
            KeyCode::Char('h') | KeyCode::Left => self.open(self.book.saturating_sub(1)),
            KeyCode::Char('/') => self.mode = Mode::Searching(String::new()),
            KeyCode::Char('n') => self.search(true),
            KeyCode::Char('N') => self.search(false),
            KeyCode::Char('?') => self.mode = Mode::Help,
            _ => {}
        }
        Next::Stay
    }

    fn go(&mut self, turn: usize) {
        if turn != self.turn {
            self.turn = turn;
            self.scroll = 0;
        }
    }

    /// Another book, at the same turn where it has one.
    fn open(&mut self, book: usize) {
        if let Some(turns) = self.books.get(book).map(Book::turns) {
            self.book = book;
            self.turn = self.turn.min(turns.saturating_sub(1));
            self.scroll = 0;
        }
    }

    /// The next turn, or the one before, that holds what is sought; round the end if need be.
    fn search(&mut self, forward: bool) {
        let Some(book) = self.book().filter(|_| !self.sought.is_empty()) else { return };
        let (turns, turn) = (book.turns(), self.turn);
        let mut way = (1..=turns).map(|step| (turn + if forward { step } else { turns - step }) % turns);
        match way.find(|&index| book.holds(index, &self.sought)) {
            Some(found) => self.go(found),
            None => self.notice = Some(format!("“{}” is nowhere in this rollout", self.sought)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::judge::measured::tests::transcript;

    fn reader() -> Reader {
        let book = |pairs: &[(&str, &str)]| Book {
            file: "rollout_000.json".into(),
            transcript: transcript(pairs),
            tokens: Vec::new(),
        };
        Reader::new(vec![
            book(&[("One.", "a"), ("Two.", "it\u{2019}s b"), ("Three.", "c"), ("Four.", "It's d")]),
            book(&[("Five.", "e")]),
        ])
    }

    /// Presses `keys` one after another; ⏎ is Enter.
    fn press(reader: &mut Reader, keys: &str) -> Next {
        let press = |c| match c {
            '⏎' => KeyCode::Enter,
            c => KeyCode::Char(c),
        };
        keys.chars().map(|c| reader.key(KeyEvent::from(press(c)))).last().unwrap()
    }

    #[track_caller]
    fn check(keys: &str, shelf: usize, turn: usize) {
        let mut reader = reader();
        press(&mut reader, keys);
        assert_eq!((reader.shelf().0, reader.turn), (shelf, turn), "{keys}");
    }

    #[test]
    fn keys_move_and_stop_at_the_ends() {
        check("jj", 1, 2);
        check("jjjjjjj", 1, 3);
        check("k", 1, 0);
        check("G", 1, 3);
        check("Gg", 1, 0);
        check("jjl", 2, 0);
        check("lll", 2, 0);
        check("lhh", 1, 0);
    }

    #[test]
    fn a_search_folds_typography_and_goes_round() {
        check("/IT'S⏎", 1, 1);
        check("/it's⏎n", 1, 3);
        check("/it's⏎nn", 1, 1);
        check("/it's⏎N", 1, 3);
        check("/j⏎", 1, 0);
        let mut reader = reader();
        press(&mut reader, "/nowhere⏎");
        assert_eq!(reader.notice.as_deref(), Some("“nowhere” is nowhere in this rollout"));
    }

    #[test]
    fn letters_are_text_while_searching_and_any_key_closes_the_help() {
        let mut reader = reader();
        assert_eq!(press(&mut reader, "/q"), Next::Stay);
        assert_eq!(reader.mode, Mode::Searching("q".into()));
        reader.key(KeyEvent::from(KeyCode::Esc));
        assert_eq!(press(&mut reader, "?q"), Next::Stay);
        assert_eq!(press(&mut reader, "q"), Next::Leave);
        assert_eq!(reader.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Next::Leave);
    }

    #[test]
    fn a_rollout_without_turns_is_no_trap() {
        let mut reader =
            Reader::new(vec![Book { file: String::new(), transcript: transcript(&[]), tokens: Vec::new() }]);
        press(&mut reader, "jkGgnN/x⏎ b");
        assert_eq!(reader.turn, 0);
    }
}
