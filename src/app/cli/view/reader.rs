//! The viewer's state and key bindings. Pure: no drawing, no input or output.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::foundation::text::fold;
use crate::foundation::text::is_unsafe;
use crate::simulation::rollout::{Outcome, TokenLine, Transcript};

/// One transcript with its tokens.
pub(super) struct OpenTranscript {
    pub(super) file: String,
    pub(super) transcript: Transcript,
    pub(super) tokens: Vec<TokenLine>,
}

impl OpenTranscript {
    /// One line describing the transcript.
    pub(super) fn title(&self) -> String {
        let transcript = &self.transcript;
        let outcome = match &transcript.outcome {
            Outcome::Complete => String::new(),
            Outcome::Unfinished => " · running".to_owned(),
            Outcome::Stopped { reason, .. } => format!(" · stopped: {reason}"),
        };
        let seed = transcript.run.seed.map_or_else(String::new, |seed| format!(" · seed {seed}"));
        let title = format!("{} · {}{seed}{outcome}", transcript.config.name, self.file);
        title.chars().map(|c| if c.is_control() || is_unsafe(c) { '·' } else { c }).collect()
    }

    fn turns(&self) -> usize {
        self.transcript.turns.len()
    }

    /// Whether a message of the turn with the index `index` contains `folded`.
    fn contains(&self, index: usize, folded: &str) -> bool {
        let turn = self.transcript.turns.get(index);
        turn.is_some_and(|turn| {
            [&turn.persona, &turn.interlocutor].iter().any(|utterance| fold(&utterance.content).contains(folded))
        })
    }
}

/// The input mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mode {
    Reading,
    /// Typing a search term.
    Searching(String),
    Help,
}

/// Whether to continue after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Stay,
    Leave,
}

/// The viewer's state.
pub(super) struct Reader {
    transcripts: Vec<OpenTranscript>,
    index: usize,
    pub(super) turn: usize,
    /// The first visible line of the page; the screen limits it to the page.
    pub(super) scroll: usize,
    /// Number of visible lines; set by the screen.
    pub(super) height: usize,
    pub(super) mode: Mode,
    search_term: String,
    pub(super) notice: Option<String>,
    /// Thoughts are shown in full.
    pub(super) unfolds: bool,
}

impl Reader {
    pub(super) fn new(transcripts: Vec<OpenTranscript>) -> Self {
        Self {
            transcripts,
            index: 0,
            turn: 0,
            scroll: 0,
            height: 1,
            mode: Mode::Reading,
            search_term: String::new(),
            notice: None,
            unfolds: false,
        }
    }

    /// The open transcript.
    pub(super) fn current(&self) -> Option<&OpenTranscript> {
        self.transcripts.get(self.index)
    }

    /// The number of the open transcript, from 1, and how many there are.
    pub(super) fn position(&self) -> (usize, usize) {
        (self.index + 1, self.transcripts.len())
    }

    /// Handles a key.
    pub(super) fn key(&mut self, key: KeyEvent) -> Next {
        self.notice = None;
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Next::Leave;
        }
        match &mut self.mode {
            Mode::Help => self.mode = Mode::Reading,
            Mode::Searching(text) => match key.code {
                KeyCode::Enter => {
                    self.search_term = fold(text);
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
        let last = self.current().map_or(0, |open| open.turns().saturating_sub(1));
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return Next::Leave,
            KeyCode::Char('j') | KeyCode::Down => self.go(self.turn.saturating_add(1).min(last)),
            KeyCode::Char('k') | KeyCode::Up => self.go(self.turn.saturating_sub(1)),
            KeyCode::Char('g') | KeyCode::Home => self.go(0),
            KeyCode::Char('G') | KeyCode::End => self.go(last),
            KeyCode::Char(' ') | KeyCode::PageDown => self.scroll = self.scroll.saturating_add(self.height),
            KeyCode::Char('b') | KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(self.height),
            KeyCode::Char('l') | KeyCode::Right => self.open(self.index + 1),
            KeyCode::Char('h') | KeyCode::Left => self.open(self.index.saturating_sub(1)),
            KeyCode::Char('/') => self.mode = Mode::Searching(String::new()),
            KeyCode::Char('n') => self.search(true),
            KeyCode::Char('N') => self.search(false),
            KeyCode::Char('t') => self.unfolds = !self.unfolds,
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

    /// Opens another transcript, at the same turn if it has one.
    fn open(&mut self, index: usize) {
        if let Some(turns) = self.transcripts.get(index).map(OpenTranscript::turns) {
            self.index = index;
            self.turn = self.turn.min(turns.saturating_sub(1));
            self.scroll = 0;
        }
    }

    /// Goes to the next or previous turn that contains the search term, wrapping around.
    fn search(&mut self, forward: bool) {
        let Some(open) = self.current().filter(|_| !self.search_term.is_empty()) else { return };
        let (turns, turn) = (open.turns(), self.turn);
        let mut way = (1..=turns).map(|step| (turn + if forward { step } else { turns - step }) % turns);
        match way.find(|&index| open.contains(index, &self.search_term)) {
            Some(found) => self.go(found),
            None => self.notice = Some(format!("“{}” not found in this rollout", self.search_term)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::judge::measured::tests::transcript;

    fn reader() -> Reader {
        let open = |pairs: &[(&str, &str)]| OpenTranscript {
            file: "rollout_000.json".into(),
            transcript: transcript(pairs),
            tokens: Vec::new(),
        };
        Reader::new(vec![
            open(&[("One.", "a"), ("Two.", "it\u{2019}s b"), ("Three.", "c"), ("Four.", "It's d")]),
            open(&[("Five.", "e")]),
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
    fn check(keys: &str, position: usize, turn: usize) {
        let mut reader = reader();
        press(&mut reader, keys);
        assert_eq!((reader.position().0, reader.turn), (position, turn), "{keys}");
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
    fn a_search_folds_typography_and_wraps_around() {
        check("/IT'S⏎", 1, 1);
        check("/it's⏎n", 1, 3);
        check("/it's⏎nn", 1, 1);
        check("/it's⏎N", 1, 3);
        check("/j⏎", 1, 0);
        let mut reader = reader();
        press(&mut reader, "/nowhere⏎");
        assert_eq!(reader.notice.as_deref(), Some("“nowhere” not found in this rollout"));
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
    fn keys_work_without_turns() {
        let mut reader =
            Reader::new(vec![OpenTranscript { file: String::new(), transcript: transcript(&[]), tokens: Vec::new() }]);
        press(&mut reader, "jkGgnN/x⏎ b");
        assert_eq!(reader.turn, 0);
    }
}
