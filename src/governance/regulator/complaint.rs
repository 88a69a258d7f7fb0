//! Whether a user's message complains about the last reply. Only then is a repeated request a correction: "run the tests
//! again" is none.
//!
//! The phrases are those of a few languages. In any other, corrections have to be sent as events.

/// How clearly a message complains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Complaint {
    /// Not at all.
    None,
    /// It may: enough when the message also repeats the request.
    Possible,
    /// It says that the reply was wrong.
    Clear,
}

/// The beginning of a message that is read, characters.
const READ_CHARS: usize = 240;

/// Phrases that say that the last reply was wrong.
const CLEAR: [&str; 101] = [
    "that's wrong",
    "that is wrong",
    "this is wrong",
    "it's wrong",
    "it is wrong",
    "all wrong",
    "still wrong",
    "wrong again",
    "that's not right",
    "that is not right",
    "this isn't right",
    "this is not right",
    "still not right",
    "not right yet",
    "not what i",
    "isn't what i",
    "wasn't what i",
    "nothing like what i",
    "what i asked for",
    "what i said",
    "what i actually asked",
    "as i said",
    "like i said",
    "i already said",
    "i already told",
    "i already asked",
    "i told you",
    "i've told you",
    "i have told you",
    "i said no",
    "i asked you",
    "i've asked",
    "i have asked",
    "how many times",
    "how often do i have to",
    "you did it wrong",
    "you got it wrong",
    "you got this wrong",
    "you got that wrong",
    "you have it wrong",
    "getting it wrong",
    "getting this wrong",
    "getting that wrong",
    "you misunderstood",
    "you misread",
    "you ignored",
    "you're ignoring",
    "you are ignoring",
    "you forgot",
    "you missed",
    "you skipped",
    "you broke",
    "you keep",
    "you did not",
    "you didn't",
    "you haven't",
    "you still",
    "did you even",
    "same mistake",
    "same problem",
    "same error",
    "same wrong",
    "still the same",
    "again the wrong",
    "once more wrong",
    "doesn't do what",
    "does not do what",
    "didn't help",
    "did not help",
    "didn't work",
    "did not work",
    "not helpful",
    "misses the point",
    "missed the point",
    "missing the point",
    "makes no sense",
    "you're not listening",
    "you are not listening",
    "immer noch falsch",
    "das ist falsch",
    "das stimmt nicht",
    "c'est faux",
    "ce n'est pas ce que",
    "eso no es",
    "not quite what",
    "not quite right",
    "not exactly what",
    "had in mind",
    "third time",
    "second time i",
    "you messed",
    "messed up",
    "isn't correct",
    "is not correct",
    "that's incorrect",
    "you're wrong",
    "you are wrong",
    "doesn't make sense",
    "does not make sense",
    "read it again",
    "same result as before",
];
/// The same in scripts without spaces between words.
const CLEAR_UNSPACED: [&str; 6] = ["不对", "不是我要的", "错了", "違います", "間違って", "틀렸"];
/// Words that are a complaint when a message begins with them.
const CLEAR_OPENERS: [&str; 6] = ["nope", "wrong", "incorrect", "falsch", "faux", "incorrecto"];
/// Phrases that may be a complaint.
const POSSIBLE: [&str; 16] = [
    "still not",
    "still doesn't",
    "still does not",
    "still fails",
    "still broken",
    "still isn't",
    "still missing",
    "doesn't work",
    "does not work",
    "not working",
    "try again",
    "properly this time",
    "correctly this time",
    "redo",
    "for the last time",
    "actually do",
];
/// What follows "you didn't" and "no" where nothing is wrong.
const HARMLESS: [&str; 14] = [
    "need",
    "have",
    "miss",
    "forget",
    "break",
    "disappoint",
    "thanks",
    "thank",
    "worries",
    "problem",
    "rush",
    "hurry",
    "matter",
    "more",
];
/// Words that say that somebody else complains.
const REPORTED: [&str; 16] = [
    "customer",
    "client",
    "review",
    "they say",
    "they said",
    "he says",
    "she says",
    "user reports",
    "guest",
    "the ticket says",
    "reply to",
    "answer to",
    "respond to",
    "write an answer",
    "translate",
    "summarise",
];

/// How clearly `message` complains about the last reply.
pub(super) fn complaint(message: &str) -> Complaint {
    let text = own_words(message);
    if REPORTED.iter().any(|word| text.contains(word)) {
        return Complaint::None;
    }
    let text = HARMLESS.iter().fold(text, |text, word| {
        ["you didn't ", "you did not ", "no ", "no, "]
            .iter()
            .fold(text, |text, before| text.replace(&format!("{before}{word}"), ""))
    });
    let opener: String = text.trim_start().chars().take_while(|c| c.is_alphabetic()).collect();
    let clear = has_any(&text, &CLEAR)
        || CLEAR_UNSPACED.iter().any(|phrase| text.contains(phrase))
        || CLEAR_OPENERS.contains(&opener.as_str());
    if clear {
        Complaint::Clear
    } else if opener == "no" || has_any(&text, &POSSIBLE) {
        Complaint::Possible
    } else {
        Complaint::None
    }
}

/// The beginning of a message in lower case, without what it quotes.
fn own_words(message: &str) -> String {
    let mut quoted = false;
    let mut text = String::new();
    for c in message.chars().take(READ_CHARS) {
        match c {
            '"' | '“' | '”' | '«' | '»' | '`' => quoted = !quoted,
            _ if quoted => {}
            '’' => text.push('\''),
            _ => text.extend(c.to_lowercase()),
        }
    }
    text
}

/// Whether any phrase occurs at the bounds of words.
fn has_any(text: &str, phrases: &[&str]) -> bool {
    let mut inside = false;
    text.char_indices().any(|(at, c)| {
        let starts = c.is_alphanumeric() && !inside;
        inside = c.is_alphanumeric() || c == '\'' && inside;
        let rest = text.get(at..).unwrap_or_default();
        let ends =
            |phrase: &&str| rest.strip_prefix(*phrase).is_some_and(|after| !after.starts_with(char::is_alphanumeric));
        starts && phrases.iter().any(ends)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_told_from_requests() {
        for clear in [
            "No, that's still wrong. Parse the invoice.",
            "That’s not what I asked for!",
            "Nope. Parse it again.",
            "You forgot the second page.",
            "That's not quite what I had in mind.",
            "Hm, not what I expected.",
            "This is the third time I'm asking.",
            "How many times do I have to say it?",
            "Das ist falsch, bitte noch einmal.",
            "不对，再来一次",
        ] {
            assert_eq!(complaint(clear), Complaint::Clear, "{clear}");
        }
        for possible in ["No, use the other table.", "The login still doesn't work on mobile.", "Try again."] {
            assert_eq!(complaint(possible), Complaint::Possible, "{possible}");
        }
        for none in [
            "Run the tests again.",
            "Check the inbox for new invoices and file them.",
            "Nothing wrong there, good.",
            "Once more, please.",
            "Not urgent.",
            "No thanks, that's all.",
            "Great, you didn't break anything.",
            "Fix the wrong total in the invoice.",
            "Reply to this review: 'You forgot my order and it didn't work.'",
            "The customer says that you didn't ship it.",
            "Explain \"that's wrong\" in French.",
            "Notice the typo in line 3?",
        ] {
            assert_eq!(complaint(none), Complaint::None, "{none}");
        }
    }
}
