//! Divides replies into thought and answer. Where a thought begins and ends is decided by the model's chat template, or by
//! the user; never by the reply alone.

use std::sync::Arc;

use crate::foundation::chat::{Flow, TokenId, TokenLogprob, TokenSink};

/// What follows a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Follows {
    Thought,
    Answer,
    /// The answer: it is the marker that closes a thought.
    Closed,
    /// Whatever it stands in goes on.
    Same,
}

/// A form in which templates write thoughts.
struct Form {
    /// A template that holds all of these writes thoughts in this form.
    signs: &'static [&'static str],
    open: &'static str,
    close: &'static str,
    /// What is written to close a thought whose budget is spent.
    closing: &'static str,
    /// Further markers, each used if the template holds it.
    more: &'static [(&'static str, Follows)],
    /// The markers are words: where thinking is off they are the model's own.
    is_words: bool,
}

/// The forms of published templates. The first that fits is used.
const FORMS: &[Form] = &[
    Form {
        signs: &["<|channel|>", "analysis"],
        open: "<|channel|>analysis<|message|>",
        close: "<|end|>",
        closing: "<|end|><|start|>assistant<|channel|>final<|message|>",
        more: &[],
        is_words: false,
    },
    Form {
        signs: &["</seed:think>"],
        open: "<seed:think>",
        close: "</seed:think>",
        closing: "\n</seed:think>\n",
        more: &[],
        is_words: false,
    },
    Form {
        signs: &["<|END_THINKING|>"],
        open: "<|START_THINKING|>",
        close: "<|END_THINKING|>",
        closing: "<|END_THINKING|><|START_RESPONSE|>",
        more: &[("<|START_RESPONSE|>", Follows::Answer), ("<|END_RESPONSE|>", Follows::Same)],
        is_words: false,
    },
    Form { signs: &["[/THINK]"], open: "[THINK]", close: "[/THINK]", closing: "[/THINK]", more: &[], is_words: false },
    Form {
        signs: &["<|inner_suffix|>"],
        open: "<|inner_prefix|>",
        close: "<|inner_suffix|>",
        closing: "<|inner_suffix|>",
        more: &[],
        is_words: false,
    },
    Form {
        signs: &["◁/think▷"], open: "◁think▷", close: "◁/think▷", closing: "◁/think▷", more: &[], is_words: false
    },
    Form {
        signs: &["Here is my thought process:", "Here is my response:"],
        open: "Here is my thought process:",
        close: "Here is my response:",
        closing: "\n\nHere is my response:\n",
        more: &[("Here's my thought process:", Follows::Thought), ("Here's my response:", Follows::Answer)],
        is_words: true,
    },
    Form {
        signs: &["</think>"],
        open: "<think>",
        close: "</think>",
        closing: "\n</think>\n\n",
        more: &[
            ("<response>", Follows::Answer),
            ("</response>", Follows::Same),
            ("<answer>", Follows::Answer),
            ("</answer>", Follows::Same),
        ],
        is_words: false,
    },
    Form {
        signs: &["</thought>"],
        open: "<thought>",
        close: "</thought>",
        closing: "\n</thought>\n\n",
        more: &[],
        is_words: false,
    },
];

/// Markers around the final channel of templates with channels, beside those of the thought.
const CHANNELS: &[(&str, Follows)] = &[
    ("<|channel|>commentary<|message|>", Follows::Thought),
    ("<|channel|>final<|message|>", Follows::Answer),
    ("<|start|>assistant", Follows::Same),
];

/// How a model's replies are divided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ThoughtFormat {
    markers: Vec<(String, Follows)>,
    open: String,
    close: String,
    closing: String,
    is_words: bool,
}

/// Where a reply begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// The prompt opened a thought.
    Thought,
    /// The prompt opened none: the reply may begin with one.
    Open,
    /// The prompt closed the thought, or thinking is off.
    Answer,
}

/// One of the two parts of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Thought,
    Answer,
}

impl ThoughtFormat {
    /// The format of a chat template; `None` for one that writes no thoughts.
    pub(super) fn of_template(source: &str) -> Option<Self> {
        let source = without_comments(source);
        let holds = |sign: &&str| source.contains(sign);
        let form = FORMS.iter().find(|form| form.signs.iter().all(&holds))?;
        let mut format = Self::new(form.open, form.close, form.closing);
        format.is_words = form.is_words;
        let more = form.more.iter().filter(|(marker, _)| form.is_words || holds(marker));
        let channels = CHANNELS.iter().filter(|_| form.close == "<|end|>");
        format.markers.extend(more.chain(channels).map(|(marker, follows)| ((*marker).to_owned(), *follows)));
        if form.closing.starts_with("<|END_THINKING|>") && !source.contains("<|START_RESPONSE|>") {
            form.close.clone_into(&mut format.closing);
        }
        if format.markers.iter().any(|(marker, _)| marker == "<response>") {
            "\n</think>\n<response>".clone_into(&mut format.closing);
        }
        if format.markers.iter().any(|(marker, _)| marker == "<answer>") {
            "\n</think>\n<answer>\n".clone_into(&mut format.closing);
        }
        Some(format)
    }

    /// The format that the user gave: two markers; `None` for an empty list, which says that replies hold no thoughts.
    ///
    /// # Errors
    /// What is wrong with the list.
    pub(super) fn of_markers(markers: &[String]) -> Result<Option<Self>, String> {
        match markers {
            [] => Ok(None),
            [open, close] if !open.trim().is_empty() && !close.trim().is_empty() && open != close => {
                Ok(Some(Self::new(open, close, &format!("\n{close}\n\n"))))
            }
            _ => {
                Err("the markers of thoughts must be two different texts, before and after a thought, or an empty list"
                    .to_owned())
            }
        }
    }

    fn new(open: &str, close: &str, closing: &str) -> Self {
        let markers = vec![(open.to_owned(), Follows::Thought), (close.to_owned(), Follows::Closed)];
        let [open, close, closing] = [open, close, closing].map(str::to_owned);
        Self { markers, open, close, closing, is_words: false }
    }

    /// The text before a thought.
    pub(super) fn open(&self) -> &str {
        &self.open
    }

    /// The text after a thought.
    pub(super) fn close(&self) -> &str {
        &self.close
    }

    /// What is written to close a thought.
    pub(super) fn closing(&self) -> &str {
        &self.closing
    }

    /// Whether replies are still divided where thinking is off.
    pub(super) fn holds_when_off(&self) -> bool {
        !self.is_words
    }

    /// Where a reply begins after a prompt that ends with `opening`, the beginning of the model's turn.
    pub(super) fn start(&self, opening: &str) -> Start {
        let last = self.markers.iter().filter_map(|(marker, follows)| Some((opening.rfind(marker)?, marker, follows)));
        // Of two markers at one place the longer one stands there.
        match last.max_by_key(|(at, marker, _)| (at + marker.len(), marker.len())) {
            Some((_, _, Follows::Thought)) => Start::Thought,
            Some((_, _, Follows::Answer | Follows::Closed)) => Start::Answer,
            _ => Start::Open,
        }
    }

    /// `text` after the markers and white space at its beginning, and `thought` between them.
    pub(super) fn skip_markup<'a>(&self, text: &'a str, thought: Option<&str>) -> &'a str {
        let mut rest = text.trim_start();
        loop {
            let marker = self
                .markers
                .iter()
                .filter_map(|(marker, _)| rest.strip_prefix(marker.as_str()))
                .min_by_key(|rest| rest.len());
            let thought = || {
                thought
                    .map(str::trim)
                    .filter(|thought| !thought.is_empty())
                    .and_then(|thought| rest.strip_prefix(thought))
            };
            match marker.or_else(thought) {
                Some(after) => rest = after.trim_start(),
                None => return rest,
            }
        }
    }

    /// `text` up to the first marker in it, without white space before that; all of it if it holds none.
    pub(super) fn before_markup<'a>(&self, text: &'a str) -> &'a str {
        match self.markers.iter().filter_map(|(marker, _)| text.find(marker.as_str())).min() {
            Some(at) => text.split_at(at).0,
            None => text,
        }
    }

    /// Divides a whole reply.
    pub(super) fn divide(self: &Arc<Self>, start: Start, tokens: Vec<TokenLogprob>) -> Divided {
        let mut divider = Divider::new(self, start);
        let again = (start == Start::Open).then(|| tokens.clone());
        let ids: Vec<Option<TokenId>> = tokens.iter().map(|token| token.id).collect();
        let mut divided = Divided::of(tokens.into_iter().flat_map(|token| divider.push(token)).collect(), divider);
        if let Some(tokens) = again.filter(|_| divided.closed_unopened) {
            // The thought's beginning was left out by the model, or was in a part of the prompt that is not known.
            let mut divider = Divider::new(self, Start::Thought);
            divided = Divided::of(tokens.into_iter().flat_map(|token| divider.push(token)).collect(), divider);
        }
        let before = divided.answer_at.unwrap_or(ids.len()).min(ids.len());
        let (before, _) = ids.split_at(before);
        divided.before_answer = before.iter().copied().collect();
        divided
    }
}

/// A template without its comments.
fn without_comments(source: &str) -> String {
    let mut kept = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, comment)) = rest.split_once("{#") {
        kept.push_str(before);
        rest = comment.split_once("#}").map_or("", |(_, after)| after);
    }
    kept + rest
}

/// A reply in its two parts.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Divided {
    /// The tokens of the thought, without markers; `None` if there was none.
    pub(super) thought: Option<Vec<TokenLogprob>>,
    /// Whether the thought was closed.
    pub(super) closed: bool,
    pub(super) answer: Vec<TokenLogprob>,
    /// Whether the answer consists of whole tokens.
    pub(super) whole: bool,
    /// Ids of the tokens before the answer; `None` if one is not known.
    pub(super) before_answer: Option<Vec<TokenId>>,
    answer_at: Option<usize>,
    closed_unopened: bool,
}

impl Divided {
    fn of(mut pieces: Vec<Piece>, divider: Divider) -> Self {
        let (state, seen) = (divider.part, divider.seen);
        pieces.extend(divider.finish());
        let answer_at = pieces.iter().find(|piece| piece.part == Part::Answer).map(|piece| piece.index);
        let whole = !pieces.iter().any(|piece| piece.part == Part::Answer && piece.is_cut);
        let (thought, answer): (Vec<_>, Vec<_>) = pieces.into_iter().partition(|piece| piece.part == Part::Thought);
        let tokens = |pieces: Vec<Piece>| pieces.into_iter().map(|piece| piece.token).collect::<Vec<_>>();
        Self {
            thought: (seen == Seen::Opened).then(|| tokens(thought)),
            closed: state == Part::Answer,
            answer: tokens(answer),
            whole,
            before_answer: None,
            answer_at,
            closed_unopened: seen == Seen::ClosedUnopened,
        }
    }
}

/// A token, or a part of one, with its part of the reply.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Piece {
    pub(super) part: Part,
    pub(super) token: TokenLogprob,
    /// The token's number in the reply, from 0.
    pub(super) index: usize,
    /// Part of the token's text belongs to a marker.
    is_cut: bool,
}

/// What has been seen of a thought in a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Nothing,
    /// It has begun.
    Opened,
    /// A thought was closed that had not begun.
    ClosedUnopened,
}

/// Divides a reply while it is generated. What may still become a marker is held back.
#[derive(Debug, Clone)]
pub(super) struct Divider {
    format: Arc<ThoughtFormat>,
    part: Part,
    /// No text of the reply has come yet, so that it may begin with a thought.
    at_beginning: bool,
    /// White space is left out until text comes: it follows a marker.
    trims: bool,
    seen: Seen,
    /// Tokens whose texts may be, or begin with, a marker.
    held: Vec<Held>,
    /// White space at the end of a thought, left out if a marker follows.
    spaces: Vec<Piece>,
    index: usize,
}

#[derive(Debug, Clone)]
struct Held {
    token: TokenLogprob,
    index: usize,
    is_cut: bool,
}

impl Piece {
    /// Passes it to its part of `sink`.
    pub(super) fn hand_over(&self, sink: &mut dyn TokenSink) -> Flow {
        match self.part {
            Part::Thought => sink.thought(&self.token),
            Part::Answer => sink.token(&self.token),
        }
    }
}

impl Divider {
    /// A divider for a reply that begins at `start`.
    pub(super) fn new(format: &Arc<ThoughtFormat>, start: Start) -> Self {
        let in_thought = start == Start::Thought;
        Self {
            format: Arc::clone(format),
            part: if in_thought { Part::Thought } else { Part::Answer },
            at_beginning: !in_thought,
            trims: start != Start::Open,
            seen: if in_thought { Seen::Opened } else { Seen::Nothing },
            held: Vec::new(),
            spaces: Vec::new(),
            index: 0,
        }
    }

    /// Whether the last token was part of a thought and nothing is held back that may be a marker.
    pub(super) fn is_thinking(&self) -> bool {
        self.part == Part::Thought && self.held.is_empty()
    }

    /// Which part of the reply the last token was in.
    pub(super) fn part(&self) -> Part {
        self.part
    }

    /// Takes the next token; returns what is settled, in order.
    pub(super) fn push(&mut self, token: TokenLogprob) -> Vec<Piece> {
        self.held.push(Held { token, index: self.index, is_cut: false });
        self.index += 1;
        let mut pieces = Vec::new();
        loop {
            let text: String = self.held.iter().map(|held| held.token.text.as_str()).collect();
            let marker = self.first_marker(&text);
            let Some((at, len, follows)) = marker else {
                let settled = text.len() - self.possible_marker_bytes(&text);
                self.settle(settled, &mut pieces);
                return pieces;
            };
            // A longer marker may begin at the same place.
            let after = text.split_at(at).1;
            let markers = &self.format.markers;
            if markers.iter().any(|(marker, _)| marker.len() > after.len() && marker.starts_with(after)) {
                self.settle(at, &mut pieces);
                return pieces;
            }
            // White space before a thought with which the reply begins is no answer.
            if self.at_beginning && text.split_at(at).0.trim().is_empty() {
                self.drop_bytes(at);
            } else {
                self.settle(at, &mut pieces);
            }
            self.drop_bytes(len);
            self.pass(follows);
        }
    }

    /// What is still held back when the reply ends.
    pub(super) fn finish(mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        self.settle(usize::MAX, &mut pieces);
        if self.part == Part::Answer {
            pieces.append(&mut self.spaces);
        }
        pieces
    }

    /// The first marker in `text`: place, length and what follows. The longest of those at one place.
    fn first_marker(&self, text: &str) -> Option<(usize, usize, Follows)> {
        let found = self.format.markers.iter().filter_map(|(marker, follows)| {
            let at = text.find(marker.as_str())?;
            Some((at, marker.len(), *follows))
        });
        found.min_by_key(|(at, len, _)| (*at, usize::MAX - len))
    }

    fn pass(&mut self, follows: Follows) {
        match follows {
            Follows::Thought => {
                (self.part, self.seen) = (Part::Thought, Seen::Opened);
            }
            Follows::Answer | Follows::Closed => {
                if follows == Follows::Closed && self.seen == Seen::Nothing {
                    self.seen = Seen::ClosedUnopened;
                }
                self.part = Part::Answer;
            }
            Follows::Same => {}
        }
        self.spaces.clear();
        (self.trims, self.at_beginning) = (true, false);
    }

    /// Number of bytes at the end of `text` that may be the beginning of a marker, or white space before one.
    fn possible_marker_bytes(&self, text: &str) -> usize {
        let begins = |marker: &str| {
            let lengths = (1..marker.len()).rev().filter(|&length| marker.is_char_boundary(length));
            lengths.map(|length| marker.split_at(length).0).find(|begin| text.ends_with(begin)).map_or(0, str::len)
        };
        let most = self.format.markers.iter().map(|(marker, _)| begins(marker)).max().unwrap_or(0);
        // White space at the beginning of a reply belongs to the marker after it.
        let only_space = self.at_beginning && text.split_at(text.len() - most).0.trim().is_empty();
        if only_space { text.len() } else { most }
    }

    /// Settles the first `bytes` of what is held.
    fn settle(&mut self, mut bytes: usize, pieces: &mut Vec<Piece>) {
        while let Some(first) = self.held.first_mut() {
            let len = first.token.text.len();
            if len > bytes || (len == 0 && bytes == 0) {
                break;
            }
            bytes = bytes.saturating_sub(len);
            let held = self.held.remove(0);
            self.emit(held, pieces);
        }
        if bytes == 0 {
            return;
        }
        // A token is divided: its readings stay with the first part.
        if let Some(first) = self.held.first_mut() {
            let (before, after) = first.token.text.split_at(bytes);
            let (before, after) = (before.to_owned(), after.to_owned());
            let mut front = first.clone();
            front.token.text = before;
            front.is_cut = true;
            first.token = TokenLogprob::unknown(None, after);
            first.is_cut = true;
            self.emit(front, pieces);
        }
    }

    /// Drops the first `bytes` of what is held: a marker.
    fn drop_bytes(&mut self, mut bytes: usize) {
        while bytes > 0
            && let Some(first) = self.held.first_mut()
        {
            let len = first.token.text.len();
            if len <= bytes {
                bytes -= len;
                self.held.remove(0);
            } else {
                first.token.text = first.token.text.split_at(bytes).1.to_owned();
                first.is_cut = true;
                bytes = 0;
            }
        }
    }

    fn emit(&mut self, held: Held, pieces: &mut Vec<Piece>) {
        let Held { mut token, index, is_cut } = held;
        if self.trims && !token.text.is_empty() {
            let spaces = token.text.len() - token.text.trim_start().len();
            token.text.drain(..spaces);
            if token.text.is_empty() {
                return;
            }
            self.trims = false;
        }
        let is_space = token.text.trim().is_empty();
        if !is_space {
            self.at_beginning = false;
        }
        let piece = Piece { part: self.part, token, index, is_cut };
        if self.part == Part::Thought && is_space {
            self.spaces.push(piece);
        } else {
            pieces.append(&mut self.spaces);
            pieces.push(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QWEN: &str = "{% if enable_thinking %}<think>{% endif %}{{ content.split('</think>') }}";

    fn qwen() -> Arc<ThoughtFormat> {
        Arc::new(ThoughtFormat::of_template(QWEN).unwrap())
    }

    fn tokens(texts: &[&str]) -> Vec<TokenLogprob> {
        texts.iter().enumerate().map(|(id, text)| TokenLogprob::unknown(Some(id as TokenId), *text)).collect()
    }

    fn joined(tokens: &[TokenLogprob]) -> String {
        tokens.iter().map(|token| token.text.as_str()).collect()
    }

    /// The parts of `reply`, cut into tokens in every way of at most `most` bytes each, which must not matter.
    fn check(format: &Arc<ThoughtFormat>, start: Start, reply: &str, thought: Option<&str>, answer: &str) {
        for most in [1, 2, 3, 5, 8, 13, 1000] {
            let mut texts = Vec::new();
            let mut rest = reply;
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(rest.ceil_char_boundary(most.min(rest.len())));
                texts.push(piece);
                rest = after;
            }
            let divided = format.divide(start, tokens(&texts));
            let found = divided.thought.as_deref().map(joined);
            let found = found.as_deref().map(str::trim_end);
            assert_eq!((found, joined(&divided.answer).as_str()), (thought, answer), "{reply:?} by {most}");
        }
    }

    #[test]
    fn a_reply_is_divided_however_it_is_cut_into_tokens() {
        let format = qwen();
        check(&format, Start::Open, "<think>\nHm, who?\n</think>\n\nAnna.", Some("Hm, who?"), "Anna.");
        check(&format, Start::Thought, "Hm, who?</think>Anna.", Some("Hm, who?"), "Anna.");
        check(&format, Start::Thought, "Hm, a < b and </th", Some("Hm, a < b and </th"), "");
        check(&format, Start::Open, " \n<think>a</think> b", Some("a"), "b");
        check(&format, Start::Open, " Anna, 1 < 2.", None, " Anna, 1 < 2.");
        check(&format, Start::Open, "<think>\n\n</think>\n\nAnna.", Some(""), "Anna.");
        // A thought that the model closed without opening it.
        check(&format, Start::Open, "Hm.\n</think>\nAnna.", Some("Hm."), "Anna.");
        // After a prompt that closed the thought, the reply is the answer.
        check(&format, Start::Answer, "Anna.", None, "Anna.");
        check(&format, Start::Open, "<think>a</think>b<think>c</think>d", Some("ac"), "bd");
        check(&format, Start::Open, "  ", None, "  ");
    }

    #[test]
    fn every_form_of_published_templates_is_divided() {
        let of = |template: &str| Arc::new(ThoughtFormat::of_template(template).unwrap());
        check(&of("'<seed:think>' '</seed:think>'"), Start::Open, "<seed:think>a</seed:think>b", Some("a"), "b");
        check(&of("'[THINK]' '[/THINK]'"), Start::Open, "[THINK]a[/THINK]b", Some("a"), "b");
        let granite = of("Write 'Here is my thought process:' and 'Here is my response:'");
        check(&granite, Start::Open, "Here's my thought process: a\n\nHere is my response: b", Some("a"), "b");
        let granite = of("between <think></think> and write your response between <response></response>");
        check(&granite, Start::Open, "<think>a</think><response>b</response>", Some("a"), "b");
        let channels = of("'<|start|>assistant<|channel|>analysis<|message|>' '<|channel|>final<|message|>'");
        let reply = "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b";
        check(&channels, Start::Open, reply, Some("a"), "b");
        check(&channels, Start::Open, "<|channel|>final<|message|>b", None, "b");
        let command = of("<|START_THINKING|> <|END_THINKING|> <|START_RESPONSE|> <|END_RESPONSE|>");
        let reply = "<|START_THINKING|>a<|END_THINKING|><|START_RESPONSE|>b<|END_RESPONSE|>";
        check(&command, Start::Open, reply, Some("a"), "b");
        for ordinary in ["{{ message.content }}", "{# not </think> #}{{ x }}", ""] {
            assert_eq!(ThoughtFormat::of_template(ordinary), None);
        }
    }

    #[test]
    fn where_a_reply_begins_is_read_from_the_prompt() {
        let format = qwen();
        for (opening, start) in [
            ("<|im_start|>assistant\n", Start::Open),
            ("<|im_start|>assistant\n<think>\n", Start::Thought),
            ("<|im_start|>assistant\n<think>\n\n</think>\n\n", Start::Answer),
            ("<|Assistant|></think>", Start::Answer),
        ] {
            assert_eq!(format.start(opening), start, "{opening}");
        }
    }

    #[test]
    fn ids_before_the_answer_and_cut_tokens_are_told() {
        let format = qwen();
        let divided = format.divide(Start::Open, tokens(&["<think>", "a", "\n", "</think>", "\n\n", "Yes", "."]));
        assert_eq!((divided.before_answer.as_deref(), divided.whole), (Some([0, 1, 2, 3, 4].as_slice()), true));
        assert_eq!(divided.thought.unwrap().iter().map(|token| token.id).collect::<Vec<_>>(), [Some(1)]);
        assert_eq!(divided.answer.iter().map(|token| token.id).collect::<Vec<_>>(), [Some(5), Some(6)]);
        assert!(!format.divide(Start::Open, tokens(&["<think>a</", "think>\nYes", "."])).whole);
    }

    #[test]
    fn markers_may_be_given_by_hand() {
        let markers = |list: &[&str]| {
            let list: Vec<String> = list.iter().map(ToString::to_string).collect();
            ThoughtFormat::of_markers(&list).map(|format| format.map(Arc::new))
        };
        assert_eq!(markers(&[]).unwrap(), None);
        check(&markers(&["(", ")"]).unwrap().unwrap(), Start::Open, "(a) b", Some("a"), "b");
        for wrong in [&["<a>"][..], &["a", "a"], &["", "b"], &["a", "b", "c"]] {
            assert!(markers(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_stream_gives_what_the_whole_gives() {
        let format = qwen();
        let reply =
            tokens(&["<", "think", ">", "\n", "1 <", " 2", "\n", "</", "think", ">\n", "\nSo", " <b>", " it is"]);
        let mut divider = Divider::new(&format, Start::Open);
        let mut pieces: Vec<Piece> = reply.iter().flat_map(|token| divider.push(token.clone())).collect();
        pieces.extend(divider.finish());
        let of = |part| {
            joined(
                &pieces.iter().filter(|piece| piece.part == part).map(|piece| piece.token.clone()).collect::<Vec<_>>(),
            )
        };
        let whole = format.divide(Start::Open, reply);
        assert_eq!((of(Part::Thought), of(Part::Answer)), (joined(&whole.thought.unwrap()), joined(&whole.answer)));
        assert_eq!(of(Part::Answer), "So <b> it is");
    }
}
