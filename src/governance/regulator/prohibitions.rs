//! What an English task forbids, item by item, and whether a sentence of the reply does it.
//!
//! "No logging, telemetry, error handling", "do not add X or change Y", "must not mention …", "avoid …", "Out of scope: …" and
//! bulleted lists forbid every one of their items. "Do not forget to add …" and "no later than …" forbid nothing. A sentence
//! breaks a prohibition when it has the item in any inflection ("now logs each request" for "logging"), or code that does it
//! (`tracing::info!`), and does not deny it. Things that replies speak of anyway, such as tests and files, have to be added
//! or changed, not only mentioned.
//!
//! Other languages are handled by [`negation`](super::negation).

use std::cell::LazyCell;
use std::ops::Range;

/// A forbidden item.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Prohibition {
    /// The item as the task words it.
    pub(super) name: String,
    /// Where it stands in the task, bytes.
    pub(super) span: Range<usize>,
    /// Stems of its content words; a sentence that breaks it has all of them.
    stems: Vec<String>,
    /// The forbidden word is a gerund ("logging"), which its verb breaks too.
    gerund: bool,
    kind: Kind,
}

/// What breaks a prohibition, beside its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Nothing else.
    Mention,
    /// Something that says that it was added.
    Addition,
    /// A verb of change.
    Change,
}

/// A word in lower case, with its place.
#[derive(Debug)]
struct Token {
    text: String,
    span: Range<usize>,
}

/// Verbs whose object is what is forbidden.
const CREATE: [&str; 44] = [
    "add",
    "include",
    "use",
    "introduce",
    "write",
    "mention",
    "put",
    "create",
    "implement",
    "discuss",
    "provide",
    "give",
    "make",
    "insert",
    "name",
    "cite",
    "talk",
    "generate",
    "produce",
    "contain",
    "show",
    "reveal",
    "list",
    "quote",
    "refer",
    "bring",
    "have",
    "do",
    "employ",
    "apply",
    "say",
    "state",
    "spell",
    "offer",
    "propose",
    "suggest",
    "recommend",
    "repeat",
    "speak",
    "want",
    "rely",
    "append",
    "pull",
    "install",
];
/// Verbs of change: their object alone breaks nothing.
const CHANGE: [&str; 17] = [
    "change", "touch", "modify", "rename", "delete", "remove", "alter", "break", "edit", "rewrite", "move", "replace",
    "reformat", "refactor", "drop", "adjust", "update",
];
/// Words that show that something was added.
const ADDED: [&str; 20] = [
    "add",
    "introduce",
    "create",
    "implement",
    "include",
    "insert",
    "write",
    "pull",
    "install",
    "append",
    "new",
    "extra",
    "additional",
    "another",
    "generate",
    "provide",
    "wrap",
    "export",
    "make",
    "put",
];
/// Things that replies speak of anyway.
const COMMON: [&str; 14] = [
    "test",
    "file",
    "change",
    "function",
    "code",
    "class",
    "type",
    "import",
    "document",
    "line",
    "commit",
    "dependency",
    "option",
    "name",
];
/// Words of an item that say nothing of what it is.
const FILLERS: [&str; 61] = [
    "alone",
    "untouched",
    "unchanged",
    "intact",
    "is",
    "word",
    "words",
    "phrase",
    "phrases",
    "term",
    "terms",
    "you",
    "you're",
    "are",
    "being",
    "any",
    "the",
    "a",
    "an",
    "more",
    "extra",
    "additional",
    "new",
    "other",
    "unnecessary",
    "further",
    "to",
    "of",
    "in",
    "for",
    "your",
    "my",
    "our",
    "its",
    "their",
    "from",
    "with",
    "on",
    "at",
    "about",
    "into",
    "as",
    "either",
    "too",
    "much",
    "many",
    "all",
    "this",
    "that",
    "these",
    "those",
    "unrelated",
    "existing",
    "kind",
    "sort",
    "such",
    "whatsoever",
    "anything",
    "again",
    "else",
    "something",
];
/// Adjectives that make an item one of additions.
const ADDITIONAL: [&str; 7] = ["new", "extra", "additional", "more", "other", "further", "unnecessary"];
/// Words that end what a prohibition reaches.
const ENDS: [&str; 30] = [
    "but",
    "instead",
    "just",
    "only",
    "however",
    "rather",
    "unless",
    "except",
    "if",
    "when",
    "because",
    "since",
    "so",
    "then",
    "until",
    "before",
    "after",
    "while",
    "where",
    "which",
    "please",
    "it",
    "i",
    "we",
    "you",
    "they",
    "he",
    "she",
    "than",
    "otherwise",
];
/// Verbs with which a new order begins.
const IMPERATIVES: [&str; 68] = [
    "make",
    "keep",
    "use",
    "refactor",
    "write",
    "describe",
    "return",
    "add",
    "include",
    "ensure",
    "rename",
    "fix",
    "update",
    "move",
    "run",
    "explain",
    "list",
    "give",
    "show",
    "reply",
    "answer",
    "send",
    "check",
    "create",
    "build",
    "put",
    "leave",
    "let",
    "do",
    "be",
    "try",
    "turn",
    "convert",
    "translate",
    "summarise",
    "summarize",
    "stick",
    "focus",
    "stay",
    "end",
    "start",
    "begin",
    "finish",
    "tell",
    "ask",
    "mention",
    "change",
    "remove",
    "delete",
    "split",
    "extract",
    "simplify",
    "clean",
    "implement",
    "handle",
    "replace",
    "provide",
    "find",
    "look",
    "read",
    "go",
    "take",
    "get",
    "set",
    "have",
    "remember",
    "touch",
    "modify",
];
/// After "do not", "never" and the like: what they then say is wanted, or is none of the reply's business.
const NOT_FORBIDDEN: [&str; 36] = [
    "forget",
    "hesitate",
    "miss",
    "fail",
    "neglect",
    "overlook",
    "omit",
    "skip",
    "ignore",
    "lose",
    "worry",
    "wait",
    "hurry",
    "bother",
    "need",
    "have",
    "mind",
    "panic",
    "stop",
    "only",
    "just",
    "necessarily",
    "sure",
    "yet",
    "know",
    "think",
    "understand",
    "be",
    "believe",
    "care",
    "see",
    "get",
    "rush",
    "leave",
    "give",
    "hold",
];
/// After "no": what makes it no prohibition.
const NO_PROHIBITION: [&str; 24] = [
    "more", "less", "later", "longer", "fewer", "earlier", "sooner", "bigger", "larger", "doubt", "matter", "problem",
    "problems", "need", "rush", "hurry", "worries", "one", "question", "idea", "wonder", "thanks", "other", "further",
];
/// An order may follow these within its clause.
const BEFORE_ORDERS: [&str; 15] = [
    "please", "and", "but", "must", "should", "shall", "may", "do", "also", "just", "then", "so", "you", "with", "have",
];
/// The beginnings of what a text may be written with.
const FORMS: [&str; 14] = [
    "bullet",
    "emoji",
    "table",
    "heading",
    "list",
    "exclamation",
    "comment",
    "preamble",
    "jargon",
    "markdown",
    "hashtag",
    "footnote",
    "adjective",
    "abbreviation",
];
/// Headings of a list of forbidden things.
const HEADINGS: [&str; 12] = [
    "forbidden",
    "prohibited",
    "banned",
    "disallowed",
    "not allowed",
    "out of scope",
    "off limits",
    "avoid",
    "exclude",
    "do not",
    "don't",
    "never",
];
/// Words by which a sentence denies what follows them.
const DENIALS: [&str; 34] = [
    "no",
    "not",
    "never",
    "without",
    "neither",
    "nor",
    "none",
    "cannot",
    "avoid",
    "avoids",
    "avoided",
    "avoiding",
    "skip",
    "skipped",
    "skipping",
    "omit",
    "omitted",
    "omitting",
    "exclude",
    "excluded",
    "excluding",
    "removed",
    "removes",
    "removing",
    "deleted",
    "dropped",
    "stripped",
    "free",
    "instead",
    "than",
    "untouched",
    "unchanged",
    "existing",
    "unrequested",
];
/// Phrases that make a sentence an offer, a question or a remark on the rule.
const OFFERS: [&str; 22] = [
    "if you",
    "would you",
    "let me know",
    "should i",
    "could add",
    "can add",
    "want me",
    "happy to",
    "may want",
    "might want",
    "you could",
    "we could",
    "do you want",
    "shall i",
    "as you asked",
    "as you wished",
    "as requested",
    "per your",
    "left out",
    "leave out",
    "stays out",
    "out of scope",
];

/// Every item that `task` forbids.
pub(super) fn prohibitions(task: &str) -> Vec<Prohibition> {
    let tokens = tokens(task, 0);
    let mut found: Vec<Prohibition> = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match cue(task, &tokens, at) {
            Some(from) => at = items(task, &tokens, from, &mut found).max(at + 1),
            None => at += 1,
        }
    }
    found.dedup_by(|a, b| a.span == b.span);
    found
}

/// The prohibition that a sentence breaks, if any.
pub(super) fn broken<'p>(prohibitions: &'p [Prohibition], sentence: &str) -> Option<&'p Prohibition> {
    if prohibitions.is_empty() {
        return None;
    }
    let tokens = tokens(sentence, 0);
    let lower = sentence.to_lowercase().replace('’', "'");
    if lower.trim_end().ends_with('?') || OFFERS.iter().any(|offer| lower.contains(offer)) {
        return None;
    }
    // Few sentences have the words of a prohibition, so that their stems are rarely needed.
    let stems = LazyCell::new(|| tokens.iter().map(|token| stem(&token.text)).collect::<Vec<String>>());
    prohibitions.iter().find(|prohibition| prohibition.is_broken(sentence, &lower, &tokens, &stems))
}

impl Prohibition {
    fn is_broken<F: FnOnce() -> Vec<String>>(
        &self,
        sentence: &str,
        lower: &str,
        tokens: &[Token],
        stems: &LazyCell<Vec<String>, F>,
    ) -> bool {
        let denied = |at: usize| is_denied(sentence, tokens, at);
        if self.form(sentence) {
            return true;
        }
        if let Some(byte) = self.code().iter().find_map(|code| lower.find(code)) {
            // What follows code, such as `return None`, denies nothing.
            let before = tokens.iter().take_while(|token| token.span.end <= byte);
            return !before
                .into_iter()
                .any(|token| DENIALS.contains(&token.text.as_str()) || token.text.ends_with("n't"));
        }
        // A stem begins with the letter of its word.
        let begins =
            |wanted: &String| tokens.iter().any(|token| token.text.as_bytes().first() == wanted.as_bytes().first());
        if !self.stems.iter().all(begins) {
            return false;
        }
        let Some(places) =
            self.stems.iter().map(|wanted| self.place(wanted, tokens, stems)).collect::<Option<Vec<usize>>>()
        else {
            return false;
        };
        let has = |any: &[&str]| stems.iter().any(|stem| is_form_of(stem, any));
        let evident = match self.kind {
            Kind::Mention => true,
            Kind::Change => {
                let changes = |at: &usize| stems.get(*at).is_some_and(|stem| is_form_of(stem, &CHANGE)) && !denied(*at);
                (0..tokens.len()).any(|at| changes(&at))
            }
            Kind::Addition => has(&ADDED) || places.iter().any(|&at| is_verb(tokens, at)),
        };
        evident && !places.into_iter().any(denied)
    }

    /// Where a sentence has a word of the item.
    fn place(&self, wanted: &str, tokens: &[Token], stems: &[String]) -> Option<usize> {
        stems.iter().zip(0..).find_map(|(stem, at)| {
            let token = tokens.get(at)?;
            // "The logs show" has no logging; "it logs each request" has.
            let noun =
                self.gerund && self.stems.len() == 1 && !token.text.ends_with("ing") && !token.text.ends_with("ed");
            let fits = stem == wanted
                && (!noun || token.text.ends_with("er") || token.text.ends_with("ers") || is_verb(tokens, at));
            fits.then_some(at)
        })
    }

    /// Whether the sentence itself has the forbidden form: emojis, exclamation marks, bullet points, tables, headings.
    fn form(&self, sentence: &str) -> bool {
        let has = |stems: &[&str]| stems.iter().all(|stem| self.stems.iter().any(|own| own.starts_with(stem)));
        let line = |starts: &[&str]| {
            sentence.lines().any(|line| starts.iter().any(|start| line.trim_start().starts_with(start)))
        };
        if has(&["emoji"]) || has(&["emoticon"]) {
            sentence.contains(is_emoji)
        } else if has(&["exclamat", "mark"]) {
            sentence.contains('!')
        } else if has(&["bullet"]) || has(&["list"]) && self.stems.len() == 1 {
            line(&["- ", "* ", "• "])
        } else if has(&["tabl"]) {
            line(&["|"])
        } else if has(&["heading"]) || self.stems == ["head"] {
            line(&["# ", "## ", "### "])
        } else {
            false
        }
    }

    /// Code that does the forbidden thing.
    fn code(&self) -> &'static [&'static str] {
        let is = |stems: &[&str]| stems.iter().all(|stem| self.stems.iter().any(|own| own == stem));
        if is(&["log"]) {
            &[
                "tracing::",
                "log::",
                "console.log",
                "println!",
                "print(",
                "logging.getlogger",
                "logger.",
                "slog.",
                "log.print",
                "log.info",
                "log.debug",
                "log.warn",
                "log.error",
                "info!(",
                "debug!(",
                "warn!(",
            ]
        } else if is(&["print"]) || is(&["print", "statement"]) {
            &["print(", "println", "printf(", "console.log"]
        } else if is(&["telemetri"]) || is(&["metric"]) {
            &["opentelemetry", "prometheus", "statsd", "metrics::", "counter!(", "histogram!("]
        } else if is(&["error", "handl"]) || is(&["exception"]) {
            &["try {", "catch (", "catch(", "except ", "unwrap_or", "rescue ", "map_err("]
        } else if is(&["test"]) {
            &["#[test]", "def test_", "describe(\"", "describe('", "it('", "it(\""]
        } else if is(&["docstr"]) || is(&["docstring"]) {
            &["\"\"\""]
        } else if is(&["retri"]) {
            &["backoff", "retry("]
        } else if is(&["cach"]) {
            &["lru_cache", "@cache", "memoize"]
        } else {
            &[]
        }
    }
}

fn tokens(text: &str, offset: usize) -> Vec<Token> {
    let mut found = Vec::new();
    let mut start = None;
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        let inside = c.is_alphanumeric() || matches!(c, '\'' | '’') && start.is_some();
        match (start, inside) {
            (None, true) => start = Some(at),
            (Some(from), false) => {
                let word = text.get(from..at).unwrap_or_default().trim_end_matches(['\'', '’']);
                let span = from + offset..from + word.len() + offset;
                found.push(Token { text: word.to_lowercase().replace('’', "'"), span });
                start = None;
            }
            _ => {}
        }
    }
    found
}

fn word(tokens: &[Token], at: usize) -> &str {
    tokens.get(at).map_or("", |token| token.text.as_str())
}

/// Pictographs, dingbats and flags.
fn is_emoji(c: char) -> bool {
    matches!(c, '\u{1F300}'..='\u{1FAFF}' | '\u{2600}'..='\u{27BF}' | '\u{1F1E6}'..='\u{1F1FF}')
}

/// What stands between two tokens.
fn gap<'a>(text: &'a str, tokens: &[Token], at: usize) -> &'a str {
    let from = at.checked_sub(1).and_then(|before| tokens.get(before)).map_or(0, |token| token.span.end);
    let to = tokens.get(at).map_or(text.len(), |token| token.span.start);
    text.get(from..to).unwrap_or_default()
}

fn ends_clause(between: &str) -> bool {
    between.contains(['.', ';', '!', '?', '\n', '(', ')', '—', '–'])
}

/// Whether an order can begin at `at`: at the start of a clause, or after a word that orders may follow.
fn may_order(text: &str, tokens: &[Token], at: usize) -> bool {
    let between = gap(text, tokens, at);
    at == 0 || ends_clause(between) || between.contains([',', ':']) || BEFORE_ORDERS.contains(&word(tokens, at - 1))
}

/// Where the items of a prohibition begin, if one begins at `at`.
fn cue(text: &str, tokens: &[Token], at: usize) -> Option<usize> {
    let next = |offset: usize| word(tokens, at + offset);
    let wanted = |from: usize| !NOT_FORBIDDEN.contains(&word(tokens, from)) || is_want(tokens, from);
    let subject = |from: usize| matches!(word(tokens, from), "i" | "we");
    match next(0) {
        "do" if next(1) == "not" && may_order(text, tokens, at) => Some(at + 2).filter(|&from| wanted(from)),
        "don't" | "dont" if may_order(text, tokens, at) => Some(at + 1).filter(|&from| wanted(from)),
        // "I do not want any logging."
        "do" if next(1) == "not" && next(2) == "want" && at > 0 && subject(at - 1) => Some(at + 3),
        "don't" | "dont" if next(1) == "want" && at > 0 && subject(at - 1) => Some(at + 2),
        "under" if next(1) == "no" && next(2) == "circumstances" => Some(at + 3),
        "on" if next(1) == "no" && next(2) == "account" => Some(at + 3),
        "forbidden" | "prohibited" if at > 1 && word(tokens, at - 2) == "it" && matches!(next(1), "to" | "from") => {
            Some(at + 2)
        }
        "must" | "should" | "shall" | "may" if matches!(next(1), "not" | "never") => {
            Some(at + 2).filter(|&from| wanted(from))
        }
        "mustn't" | "shouldn't" => Some(at + 1).filter(|&from| wanted(from)),
        "cannot" | "can't" if at > 0 && word(tokens, at - 1) == "you" => Some(at + 1).filter(|&from| wanted(from)),
        "never" if may_order(text, tokens, at) => Some(at + 1).filter(|&from| wanted(from)),
        "no" if may_order(text, tokens, at)
            && !NO_PROHIBITION.contains(&next(1))
            && gap(text, tokens, at + 1).trim().is_empty() =>
        {
            Some(at + 1)
        }
        "without" => without(text, tokens, at, at + 1).then_some(at + 1),
        "w" if next(1) == "o" && gap(text, tokens, at + 1) == "/" => {
            without(text, tokens, at, at + 2).then_some(at + 2)
        }
        // "Leave the stylesheet alone", "keep the schema unchanged".
        "leave" | "keep" if may_order(text, tokens, at) && is_left(text, tokens, at) => Some(at + 1),
        // "Keep it free of animations."
        "free"
            if matches!(next(1), "of" | "from")
                && (at.saturating_sub(4)..at).any(|before| matches!(word(tokens, before), "keep" | "be" | "stay")) =>
        {
            Some(at + 2)
        }
        "avoid" | "skip" | "omit" | "exclude" if may_order(text, tokens, at) => Some(at + 1),
        "refrain" if next(1) == "from" => Some(at + 2),
        "stop" if next(1).ends_with("ing") && may_order(text, tokens, at) => Some(at + 1),
        "leave" if next(1) == "out" && may_order(text, tokens, at) => Some(at + 2),
        _ => heading(text, tokens, at),
    }
}

/// Whether "without" at `at`, with its object from `from` on, forbids the object.
fn without(text: &str, tokens: &[Token], at: usize, from: usize) -> bool {
    // "Nothing works without logging", "do not merge without running the tests": two negations ask for it.
    let negates = |at: usize| {
        let word = word(tokens, at);
        matches!(word, "nothing" | "nobody" | "no" | "not" | "never" | "cannot" | "hard" | "impossible" | "useless")
            || word.ends_with("n't")
    };
    let parts = |at: usize| {
        let between = gap(text, tokens, at);
        ends_clause(between) || between.contains(',') || matches!(word(tokens, at), "and" | "but")
    };
    let before = (0..at).rev().take_while(|&before| !parts(before + 1)).any(negates);
    let after = (from..tokens.len()).take_while(|&next| next == from || !parts(next)).any(negates);
    if before || after {
        return false;
    }
    let object = word(tokens, from);
    let gerund = object.len() > 4 && object.ends_with("ing") && object != "being";
    // "Without bullet points": how it is written, not what it is about.
    let form = FORMS.iter().any(|form| object.starts_with(form));
    let of_it = at > 0 && matches!(word(tokens, at - 1), "it" | "this" | "that" | "them");
    // "Without telemetry." as an order of its own.
    let alone = (at == 0 || ends_clause(gap(text, tokens, at)))
        && (from + 1..from + 5).any(|end| end == tokens.len() || ends_clause(gap(text, tokens, end)));
    gerund || form || of_it || alone
}

/// Whether what follows "leave" or "keep" is to stay as it is.
fn is_left(text: &str, tokens: &[Token], at: usize) -> bool {
    let rest = at + 2..(at + 8).min(tokens.len());
    let mut rest =
        rest.take_while(|&next| !ends_clause(gap(text, tokens, next)) && !gap(text, tokens, next).contains(','));
    rest.any(|next| {
        matches!(word(tokens, next), "alone" | "untouched" | "unchanged" | "intact")
            || word(tokens, next) == "as" && matches!(word(tokens, next + 1), "is" | "are")
    })
}

/// "do not want X" forbids X.
fn is_want(tokens: &[Token], from: usize) -> bool {
    // "Do not have it log anything", "do not give names": the object is forbidden.
    matches!(word(tokens, from), "give" | "have") && !matches!(word(tokens, from + 1), "to" | "up")
}

/// "Forbidden: …" and the like.
fn heading(text: &str, tokens: &[Token], at: usize) -> Option<usize> {
    HEADINGS.iter().find_map(|heading| {
        let words = heading.split(' ').count();
        let same = heading.split(' ').zip(at..).all(|(part, at)| word(tokens, at) == part);
        (same && gap(text, tokens, at + words).trim_start().starts_with(':')).then_some(at + words)
    })
}

/// Reads the items of a list from token `from` on; gives the first token after it.
fn items(text: &str, tokens: &[Token], from: usize, found: &mut Vec<Prohibition>) -> usize {
    let mut at = from;
    let mut first = at;
    let bulleted = is_bullet(gap(text, tokens, from)) || gap(text, tokens, from).contains(':');
    // In "do not add X, rename Y or change Z" the verbs are forbidden too; "do not add X, make it Y" gives a new order.
    let verbs = disjunction(text, tokens, from);
    let left = from.checked_sub(1).is_some_and(|before| matches!(word(tokens, before), "leave" | "keep"));
    let mut verb = left.then_some(Kind::Change);
    while at < tokens.len() {
        let between = gap(text, tokens, at);
        let text_at = word(tokens, at);
        let new_item = at > first && (between.contains([',', '/']) || bulleted && is_bullet(between));
        let joined = matches!(text_at, "and" | "or" | "nor");
        // "Do not say that you are a model": what follows is forbidden.
        let stated = text_at == "you" && word(tokens, at + 1) == "are" && word(tokens, at - 1) == "that";
        if at > from && ends_clause(between) && !(bulleted && is_bullet(between)) || !stated && ENDS.contains(&text_at)
        {
            break;
        }
        if new_item || joined {
            item(text, tokens, first..at, &mut verb, found);
            first = at + usize::from(joined);
            // "…, no global state, and don't touch the migrations": the next prohibition has a cue of its own.
            if cue(text, tokens, first).is_some() {
                return first;
            }
            let begins = word(tokens, first);
            if IMPERATIVES.contains(&begins) && !verbs && !bulleted || segment_is_clause(text, tokens, first) {
                return first;
            }
        }
        at += 1;
    }
    item(text, tokens, first..at, &mut verb, found);
    at
}

/// Whether the list ends in "or", which joins what is forbidden.
fn disjunction(text: &str, tokens: &[Token], from: usize) -> bool {
    (from..tokens.len())
        .take_while(|&at| at == from || !ends_clause(gap(text, tokens, at)))
        .any(|at| matches!(word(tokens, at), "or" | "nor"))
}

/// Whether what follows a comma says something of its own: it has a subject or an end word early on.
fn segment_is_clause(text: &str, tokens: &[Token], from: usize) -> bool {
    (from..tokens.len())
        .take_while(|&at| at == from || !ends_clause(gap(text, tokens, at)) && !gap(text, tokens, at).contains(','))
        .take(6)
        .any(|at| {
            ENDS.contains(&word(tokens, at))
                || at > from && matches!(word(tokens, at), "is" | "are" | "should" | "must" | "can")
        })
}

fn is_bullet(between: &str) -> bool {
    between.rsplit_once('\n').is_some_and(|(_, line)| {
        let line = line.trim();
        !line.is_empty() && line.chars().all(|c| matches!(c, '-' | '*' | '•' | '[' | ']' | '.' | ')'))
    })
}

/// Makes a prohibition of some tokens. `verb` is what the list began with, which later items share.
fn item(text: &str, tokens: &[Token], range: Range<usize>, verb: &mut Option<Kind>, found: &mut Vec<Prohibition>) {
    let mut words: Vec<&Token> = tokens.get(range).unwrap_or_default().iter().collect();
    // "Do not merge without running the tests" forbids no merge.
    if words.iter().skip(1).any(|word| word.text == "without") {
        return;
    }
    while let Some(first) = words.first() {
        let own = stem(&first.text);
        let own = own.as_str();
        // "No changes", "avoid using": the noun itself is meant where nothing follows.
        if words.len() > 1 && is_form_of(own, &CHANGE) {
            *verb = Some(Kind::Change);
        } else if words.len() > 1 && is_form_of(own, &CREATE) {
            let speaks = [
                "mention", "discuss", "name", "cite", "talk", "reveal", "quote", "refer", "say", "state", "spell",
                "use", "speak", "repeat", "show",
            ];
            *verb = Some(if is_form_of(own, &speaks) { Kind::Mention } else { Kind::Addition });
        } else if !FILLERS.contains(&first.text.as_str()) {
            break;
        } else if ADDITIONAL.contains(&first.text.as_str()) && *verb != Some(Kind::Change) {
            *verb = Some(Kind::Addition);
        }
        words.remove(0);
    }
    words.retain(|word| !FILLERS.contains(&word.text.as_str()));
    let stems: Vec<String> = words.iter().map(|word| stem(&word.text)).collect();
    let (Some(first), Some(last)) = (words.first(), words.last()) else { return };
    if words.len() > 5 || stems.iter().all(|stem| stem.len() < 2) {
        return;
    }
    let common = stems.iter().all(|stem| is_form_of(stem, &COMMON));
    let kind = match *verb {
        Some(Kind::Change) => Kind::Change,
        Some(Kind::Mention) => Kind::Mention,
        _ if common => Kind::Addition,
        Some(Kind::Addition) if words.iter().any(|word| ADDITIONAL.contains(&word.text.as_str())) => Kind::Addition,
        _ => Kind::Mention,
    };
    let span = first.span.start..last.span.end;
    let gerund = words.len() == 1 && first.text.ends_with("ing");
    found.push(Prohibition { name: text.get(span.clone()).unwrap_or_default().to_owned(), span, stems, gerund, kind });
}

/// Whether the sentence denies what it says at token `at`.
fn is_denied(sentence: &str, tokens: &[Token], at: usize) -> bool {
    let (mut denied, mut conditional) = (false, false);
    for index in 0..tokens.len() {
        let (text, between) = (word(tokens, index), gap(sentence, tokens, index));
        let subject =
            matches!(word(tokens, index + 1), "it" | "i" | "we" | "now" | "they" | "there" | "each" | "every");
        let restarts = between.contains([';', ':'])
            || between.contains(',') && (matches!(text, "but" | "it" | "i" | "now" | "we") || text == "and" && subject);
        if index <= at && (restarts || matches!(text, "but" | "however")) {
            (denied, conditional) = (false, false);
        }
        // "If it does not arrive, we have refunded it": the condition is negated, not the refund.
        conditional |= index < at && matches!(text, "if" | "when" | "unless" | "whether");
        if index < at && !conditional && (DENIALS.contains(&text) || text.ends_with("n't")) {
            denied = true;
        }
        // "Logging was left out", "tests: none", "the API is unchanged".
        if index > at
            && index <= at + 5
            && (matches!(
                text,
                "not"
                    | "none"
                    | "unchanged"
                    | "untouched"
                    | "avoided"
                    | "omitted"
                    | "removed"
                    | "dropped"
                    | "stay"
                    | "stays"
                    | "remain"
                    | "remains"
            ) || text.ends_with("n't"))
        {
            let same_clause = (at + 1..=index).all(|at| {
                !gap(sentence, tokens, at).contains([',', ';', '.']) && !matches!(word(tokens, at), "and" | "but")
            });
            denied |= same_clause;
        }
    }
    denied
}

/// Whether a word that may be a noun is used as a verb: "it logs each request", "I commented the branch".
fn is_verb(tokens: &[Token], at: usize) -> bool {
    let (before, after) = (at.checked_sub(1).map_or("", |at| word(tokens, at)), word(tokens, at + 1));
    let own = word(tokens, at);
    let objects = [
        "each", "every", "the", "a", "an", "its", "all", "any", "to", "when", "how", "it", "their", "this", "both",
        "out", "them",
    ];
    let subjects = ["now", "also", "then", "it", "which", "who", "and", "always", "i", "we", "they", "that"];
    let determined = [
        "the", "a", "an", "your", "these", "those", "this", "in", "from", "of", "server", "build", "error", "access",
        "all", "no", "new", "unit",
    ];
    let inflected = own.ends_with("ed") || own.ends_with("ing");
    !determined.contains(&before) && (objects.contains(&after) || subjects.contains(&before))
        || inflected && subjects.contains(&before)
}

/// Whether a stem is that of any of the words. A stem begins with the letter of its word.
fn is_form_of(own: &str, words: &[&str]) -> bool {
    words.iter().any(|word| word.as_bytes().first() == own.as_bytes().first() && stem(word) == own)
}

/// A word without its inflection: light, and meant only for comparing two words.
fn stem(word: &str) -> String {
    const IRREGULAR: [(&str, &str); 30] = [
        ("documentation", "document"),
        ("implementation", "implement"),
        ("recursive", "recurs"),
        ("recursively", "recurs"),
        ("sent", "send"),
        ("wrote", "writ"),
        ("written", "writ"),
        ("made", "mak"),
        ("ran", "run"),
        ("paid", "pay"),
        ("told", "tell"),
        ("said", "say"),
        ("spoke", "speak"),
        ("spoken", "speak"),
        ("gave", "giv"),
        ("given", "giv"),
        ("took", "tak"),
        ("taken", "tak"),
        ("built", "build"),
        ("broke", "break"),
        ("broken", "break"),
        ("chose", "choos"),
        ("sold", "sell"),
        ("bought", "buy"),
        ("spent", "spend"),
        ("rewrote", "rewrit"),
        ("rewritten", "rewrit"),
        ("brought", "bring"),
        ("had", "hav"),
        ("has", "hav"),
    ];
    let word = word.strip_suffix("'s").unwrap_or(word);
    if let Some((_, stem)) = IRREGULAR.iter().find(|(form, _)| *form == word) {
        return (*stem).to_owned();
    }
    let mut stem = word.to_owned();
    let cut = |stem: &mut String, suffix: &str, least: usize| {
        let fits = stem.ends_with(suffix) && stem.chars().count() >= suffix.len() + least;
        if fits {
            stem.truncate(stem.len() - suffix.len());
        }
        fits
    };
    if cut(&mut stem, "ies", 2) || cut(&mut stem, "ied", 2) {
        stem.push('y');
    } else if ["sses", "shes", "ches", "xes", "zes"].iter().any(|end| stem.ends_with(end)) {
        cut(&mut stem, "es", 2);
    } else if !["ss", "us", "is"].iter().any(|end| stem.ends_with(end)) {
        cut(&mut stem, "s", 2);
    }
    let shortened = ["ing", "ed", "ers", "er", "ions", "ion"].iter().any(|suffix| {
        let kept = stem.strip_suffix(suffix).unwrap_or_default();
        // "Using" is a form of "us", "string" of nothing.
        let least = if kept.contains(['a', 'e', 'i', 'o', 'u', 'y']) { 2 } else { usize::MAX / 2 };
        let ionic = !suffix.starts_with("ion") || stem.trim_end_matches(suffix).ends_with(['t', 's']);
        ionic && cut(&mut stem, suffix, if suffix.starts_with("ion") { 3.max(least) } else { least })
    });
    let doubled = || {
        let mut last = stem.chars().rev();
        matches!((last.next(), last.next()), (Some(a), Some(b)) if a == b && !matches!(a, 's' | 'l' | 'e' | 'o'))
    };
    if shortened && stem.len() > 3 && doubled() {
        stem.pop();
    }
    cut(&mut stem, "e", 2);
    if stem.ends_with('y') && stem.len() > 3 {
        stem.pop();
        stem.push('i');
    }
    stem
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn names(task: &str, expected: &[&str]) {
        let found: Vec<_> = prohibitions(task).into_iter().map(|prohibition| prohibition.name).collect();
        assert_eq!(found, expected, "{task}");
    }

    #[test]
    fn every_item_of_a_list_is_forbidden() {
        names("Refactor it. No logging, telemetry, error handling.", &["logging", "telemetry", "error handling"]);
        names("Don’t add logging or telemetry, just refactor the parser.", &["logging", "telemetry"]);
        names("Do not add logging, make it async.", &["logging"]);
        names("Please do not add comments, tests, or new dependencies.", &["comments", "tests", "dependencies"]);
        names("Do not rename functions, change the API or add files.", &["functions", "API", "files"]);
        names("Refactor without adding logging, metrics and retries.", &["logging", "metrics", "retries"]);
        names("Avoid naming salaries, layoffs and the merger.", &["salaries", "layoffs", "merger"]);
        names("The reply must not mention prices or competitors.", &["prices", "competitors"]);
        names("Do not:\n- add logging\n- touch the public API\n\nThen run the tests.", &["logging", "public API"]);
        names("Out of scope: caching, docs.", &["caching", "docs"]);
        names("Never cite prices, brands or politicians; be brief.", &["prices", "brands", "politicians"]);
        names("I don't want any emojis.", &["emojis"]);
        names("Do not send the email before noon.", &["send the email"]);
        names(
            "Requirements: no third-party packages, no global state, and don't touch the migrations.",
            &["third-party packages", "global state", "migrations"],
        );
        names("Fix the bug but don't refactor anything else.", &[]);
        names("Fix the form but leave the stylesheet alone.", &["stylesheet"]);
        names("Speed it up and keep the public schema as is.", &["public schema"]);
        names("Build the page. Keep it free of animations.", &["animations"]);
        names("Write the script w/o logging.", &["logging"]);
        names("Implement upload(). Without telemetry.", &["telemetry"]);
    }

    #[test]
    fn what_only_sounds_like_a_prohibition_is_none() {
        for task in [
            "Do not forget to add the tests.",
            "Don't hesitate to include examples.",
            "Please don't leave out the appendix.",
            "Never fail to record the numbers.",
            "No later than Friday, with no more than three slides.",
            "Describe a land without rivers, where nobody has seen the sea and the king is not wise.",
            "You don't have to add tests.",
            "No problem, and no need to hurry.",
            "Why does it not log anything?",
            "They do not like it. Explain why.",
            "Do not skip the tests.",
            "Not only fix it, also document it.",
            "Nothing works without logging, so turn it on.",
            "Without logging we cannot find it. Add it.",
            "Do not merge without running the tests.",
            "Keep the tone friendly. Leave a comment.",
            "Describe a life without sugar and salt and all that.",
        ] {
            names(task, &[]);
        }
    }

    #[track_caller]
    fn check(task: &str, reply: &str, expected: Option<&str>) {
        let all = prohibitions(task);
        assert_eq!(
            broken(&all, reply).map(|prohibition| prohibition.name.as_str()),
            expected,
            "{task} | {reply} | {all:?}"
        );
    }

    #[test]
    fn any_inflection_and_code_break_a_prohibition() {
        let task = "Refactor it. No logging, telemetry, error handling.";
        for (reply, expected) in [
            ("The helper now logs each request.", Some("logging")),
            ("Every call goes through `tracing::info!`.", Some("logging")),
            ("I added a logger to the module.", Some("logging")),
            ("Each request is logged with its duration.", Some("logging")),
            ("It handles errors from the socket.", Some("error handling")),
            ("Errors are handled by a fallback.", Some("error handling")),
            ("Counters go to `prometheus`.", Some("telemetry")),
            ("The log file says that it works.", None),
            ("The server logs show nothing unusual.", None),
            ("The error message is the same.", None),
            ("No logging, telemetry or error handling was added.", None),
            ("It neither logs nor retries.", None),
            ("I removed the old logging.", None),
            ("Should I add logging?", None),
            ("Let me know if you want logging.", None),
            ("I did not add telemetry, logging or anything else.", None),
            ("It does not block any more, and it now logs each call.", Some("logging")),
        ] {
            check(task, reply, expected);
        }
    }

    #[test]
    fn things_that_replies_speak_of_anyway_have_to_be_added_or_changed() {
        let task = "Tidy it. Don't add comments, tests, or new dependencies. Do not change the public API.";
        for (reply, expected) in [
            ("All 34 tests pass.", None),
            ("I added a unit test for the empty case.", Some("tests")),
            ("I commented each branch.", Some("comments")),
            ("I pulled in a small dependency for dates.", Some("dependencies")),
            ("The dependency list is the same.", None),
            ("The public API is unchanged.", None),
            ("The public API has one function.", None),
            ("I changed the public API a little.", Some("public API")),
        ] {
            check(task, reply, expected);
        }
        check(
            "Write it without using bullet points, tables or headings.",
            "The following table shows what is known.",
            Some("tables"),
        );
        check("Fix the form but leave the stylesheet alone.", "I changed the stylesheet too.", Some("stylesheet"));
        check("Fix the form but leave the stylesheet alone.", "The stylesheet is imported as before.", None);
        check("Build it. Keep it free of animations.", "It fades in with an animation.", Some("animations"));
        check("Answer. Do not mention discounts.", "You can have a discount of ten per cent.", Some("discounts"));
        check("Do not send the email.", "The email was sent to everyone.", Some("send the email"));
        check("Answer. Do not mention refunds.", "If it does not arrive we have refunded the price.", Some("refunds"));
    }

    #[test]
    fn forms_and_statements_are_forbidden_too() {
        check("Don't add any tests or documentation.", "I documented each function.", Some("documentation"));
        check("You may not use recursion.", "It calls itself recursively.", Some("recursion"));
        check("Under no circumstances use a subquery.", "It has one subquery.", Some("subquery"));
        check("It is forbidden to mention the lawsuit.", "The lawsuit is still pending.", Some("lawsuit"));
        check("Do not use the word 'delve'.", "Let us delve into moss.", Some("delve"));
        let task = "No logging, error handling. Port it.";
        check(task, "func Do() error { log.Printf(\"start\"); return nil }", Some("logging"));
        check(task, "try:\n    return g(x)\nexcept ValueError:\n    return None", Some("error handling"));
        let task = "Answer in prose. No emojis, no exclamation marks, no bullet points.";
        check(task, "See you soon 😊", Some("emojis"));
        check(task, "See you soon!", Some("exclamation marks"));
        check(task, "- on a lead", Some("bullet points"));
        check(task, "See you soon, on a lead - and with a bowl.", None);
        let task = "Stay in character. Do not mention that you are an AI or a language model.";
        names(task, &["AI", "language model"]);
        check(task, "I have to be honest: I am an AI and not a captain.", Some("AI"));
        check(task, "I am tired and behind schedule.", None);
        check("Don't touch the tests; make it faster.", "All 88 tests still pass without any change to them.", None);
    }

    #[test]
    fn stems_join_the_forms_of_a_word() {
        for forms in [
            &["logging", "logs", "logged", "logger", "log"][..],
            &["retry", "retries", "retried", "retrying"],
            &["cache", "caching", "cached", "caches"],
            &["validate", "validation", "validates", "validated"],
            &["handling", "handles", "handler", "handled"],
            &["dependency", "dependencies"],
        ] {
            let stems: Vec<_> = forms.iter().map(|form| stem(form)).collect();
            assert!(stems.iter().all(|stem| *stem == stems[0]), "{forms:?}: {stems:?}");
        }
        for (a, b) in [("log", "login"), ("test", "text"), ("class", "clause"), ("bus", "busy")] {
            assert_ne!(stem(a), stem(b));
        }
    }
}
