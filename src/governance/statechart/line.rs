//! Lexer for one line of a chart: words, quoted texts and signs.

use crate::foundation::config::{Problem, Span};

/// A word and its position.
#[derive(Debug, Clone)]
pub(super) struct Word<'t> {
    pub(super) text: &'t str,
    pub(super) span: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'t> {
    Word(&'t str),
    Text(&'t str),
    Sign(&'static str),
}

pub(super) struct Line<'t> {
    pub(super) tokens: Vec<(Token<'t>, Span)>,
    next: usize,
    end: usize,
}

const SIGNS: [&str; 9] = ["->", "~>", "[", "]", "(", ")", ",", "/", "@"];

impl<'t> Line<'t> {
    pub(super) fn lex(line: &'t str, start: usize) -> Result<Self, Problem> {
        let mut tokens = Vec::new();
        let mut rest = line;
        loop {
            rest = rest.trim_start_matches([' ', '\n', '\r']);
            let at = start + line.len() - rest.len();
            if rest.is_empty() || rest.starts_with('#') {
                return Ok(Self { tokens, next: 0, end: at });
            }
            let word = rest.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.')).next().unwrap_or_default();
            let (token, length) = if !word.is_empty() {
                (Token::Word(word), word.len())
            } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
                (Token::Sign(sign), sign.len())
            } else if let Some(quoted) = rest.strip_prefix('"') {
                let Some((text, _)) = quoted.split_once('"') else {
                    let problem = Problem::new(at..at + 1, "this text has no closing quote");
                    return Err(problem.help("end it on the same line with `\"`"));
                };
                (Token::Text(text), text.len() + 2)
            } else {
                let strange = rest.chars().next().unwrap_or_default();
                let message = format!("{strange:?} is not allowed in a chart");
                let help = "names are letters, digits and `_`; indent with spaces; texts are quoted";
                return Err(Problem::new(at..at + strange.len_utf8(), message).help(help));
            };
            tokens.push((token, at..at + length));
            rest = rest.get(length..).unwrap_or_default();
        }
    }

    pub(super) fn all(&self) -> Span {
        self.tokens.first().map_or(self.end, |(_, span)| span.start)
            ..self.tokens.last().map_or(self.end, |(_, span)| span.end)
    }

    pub(super) fn peek(&self) -> Option<Token<'t>> {
        self.tokens.get(self.next).map(|(token, _)| *token)
    }

    /// Consumes the next token if `read` accepts it.
    fn take<T>(&mut self, read: impl FnOnce(Token<'t>) -> Option<T>) -> Option<(T, Span)> {
        let (token, span) = self.tokens.get(self.next)?;
        let found = read(*token)?;
        self.next += 1;
        Some((found, span.clone()))
    }

    pub(super) fn sign(&mut self, wanted: &str) -> bool {
        self.take(|token| (token == Token::Sign(SIGNS.iter().find(|sign| **sign == wanted)?)).then_some(())).is_some()
    }

    pub(super) fn keyword(&mut self, wanted: &str) -> bool {
        self.take(|token| (token == Token::Word(wanted)).then_some(())).is_some()
    }

    fn missing(&self, wanted: &str) -> Problem {
        match self.tokens.get(self.next) {
            Some((_, span)) => Problem::new(span.clone(), format!("{wanted} is needed here")),
            None => Problem::new(self.all(), format!("{wanted} is missing at the end of this line")),
        }
    }

    pub(super) fn need(&mut self, wanted: &str) -> Result<(), Problem> {
        if self.sign(wanted) { Ok(()) } else { Err(self.missing(&format!("`{wanted}`"))) }
    }

    pub(super) fn maybe_word(&mut self) -> Option<Word<'t>> {
        let (text, span) = self.take(|token| if let Token::Word(word) = token { Some(word) } else { None })?;
        Some(Word { text, span })
    }

    pub(super) fn word(&mut self, what: &str) -> Result<Word<'t>, Problem> {
        self.maybe_word().ok_or_else(|| self.missing(what))
    }

    pub(super) fn maybe_text(&mut self) -> Option<&'t str> {
        self.take(|token| if let Token::Text(text) = token { Some(text) } else { None }).map(|(text, _)| text)
    }

    pub(super) fn text(&mut self, what: &str) -> Result<&'t str, Problem> {
        self.maybe_text().ok_or_else(|| self.missing(what))
    }

    pub(super) fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Result<T, Problem>) -> Result<Vec<T>, Problem> {
        let mut items = vec![one(self)?];
        while self.sign(",") {
            items.push(one(self)?);
        }
        Ok(items)
    }

    pub(super) fn words(&mut self, what: &str) -> Result<Vec<Word<'t>>, Problem> {
        self.list(|line| line.word(what))
    }

    pub(super) fn end(&self) -> Result<(), Problem> {
        match self.tokens.get(self.next) {
            None => Ok(()),
            Some((_, span)) => {
                let problem = Problem::new(span.clone(), "the line should end before this");
                Err(problem.help(
                    "the order is: on EVENTS [CONDITIONS] spend … refill … / ACTS -> TARGETS \"LABEL\" @AMENDMENT",
                ))
            }
        }
    }
}
