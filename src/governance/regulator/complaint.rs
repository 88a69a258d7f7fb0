//! Whether a user's message complains about the last reply. Only then is a repeated request a correction: "run the tests
//! again" is none.
//!
//! The phrases are those of a few languages. In any other, corrections have to be sent as events.

use std::collections::HashMap;
use std::sync::LazyLock;

/// How clearly a message complains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Complaint {
    /// Not at all.
    None,
    /// It begins with "no": enough when the message also repeats the request.
    Refusal,
    /// It may: enough when the message also repeats the request, or the one before it complained.
    Possible,
    /// It says that the reply was wrong.
    Clear,
}

/// The beginning of a message that is read, characters.
const READ_CHARS: usize = 240;

/// Phrases that say that the last reply was wrong.
const CLEAR: [&str; 196] = [
    "for the second time",
    "for the fourth time",
    "for the fifth time",
    "for the last time",
    "this is ridiculous",
    "are you kidding",
    "what part of",
    "that's ridiculous",
    "you keep giving",
    "you keep doing",
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
    "i already said",
    "i already told",
    "i already asked",
    "i've told you",
    "i have told you",
    "i said no",
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
    "i told you before",
    "i told you already",
    "i told you not",
    "i told you that",
    "i told you to",
    "that's not it",
    "this is not it",
    "this isn't it",
    "that isn't it",
    "that wasn't it",
    "did you test",
    "have you tested",
    "did you read",
    "did you check",
    "that broke",
    "this broke",
    "now it's broken",
    "as bad as before",
    "worse than before",
    "even worse",
    "made it worse",
    "not what we",
    "not fixed",
    "isn't fixed",
    "nothing changed",
    "nothing has changed",
    "no change at all",
    "that's the opposite",
    "the exact opposite",
    "you removed the wrong",
    "not even close",
    "try reading",
    "useless",
    "still getting the same",
    "doesn't compile",
    "does not compile",
    "won't compile",
    "das ist die falsche",
    "das ist der falsche",
    "das ist das falsche",
    "das sind die falschen",
    "stimmt immer noch nicht",
    "stimmt so nicht",
    "habe ich nicht gesagt",
    "habe ich so nicht gesagt",
    "habe ich nicht gemeint",
    "nicht das was ich",
    "nicht das, was ich",
    "nicht, was ich",
    "nicht was ich",
    "falsch verstanden",
    "nicht verstanden",
    "hast du vergessen",
    "haben sie vergessen",
    "du hast vergessen",
    "schon wieder falsch",
    "wieder falsch",
    "immer noch nicht richtig",
    "wie oft noch",
    "hatte ich gesagt",
    "pas ce que j'ai",
    "pas compris ma",
    "tu n'as pas compris",
    "vous n'avez pas compris",
    "c'est encore faux",
    "encore faux",
    "toujours faux",
    "ce n'est pas correct",
    "ce n'est pas bon",
    "j'ai déjà dit",
    "está mal",
    "sigue mal",
    "no es lo que",
    "otra vez lo mismo",
    "te has equivocado",
    "se ha equivocado",
    "te equivocaste",
    "no es correcto",
    "no entendiste",
    "no me has entendido",
    "ya te dije",
    "te dije que",
    "está errado",
    "não é o que",
    "continua errado",
    "è sbagliato",
    "non è quello che",
    "ancora sbagliato",
    "hai sbagliato",
    "dat is fout",
    "nog steeds fout",
    "niet wat ik",
    "read it again",
    "same result as before",
];
/// The same in scripts without spaces between words.
const CLEAR_UNSPACED: [&str; 6] = ["不对", "不是我要的", "错了", "違います", "間違って", "틀렸"];
/// Words that are a complaint when they stand alone at the beginning of a message: "Wrong. Try …", not "Wrong totals, fix them".
const CLEAR_OPENERS: [&str; 10] =
    ["nope", "nah", "ugh", "argh", "wrong", "incorrect", "falsch", "faux", "incorrecto", "sbagliato"];
/// Words that may begin a complaint.
const REFUSALS: [&str; 4] = ["no", "nein", "non", "não"];
/// What a user says who is content.
const CONTENT_USER: [&str; 14] = [
    "thanks",
    "thank you",
    "all good",
    "that's all",
    "that is all",
    "i'm good",
    "great",
    "perfect",
    "good job",
    "well done",
    "works now",
    "danke",
    "merci",
    "gracias",
];
/// Phrases that may be a complaint.
const POSSIBLE: [&str; 77] = [
    "you again",
    "you've again",
    "still no",
    "again gave",
    "i said",
    "i asked for",
    "i wanted",
    "is wrong",
    "are wrong",
    "looks wrong",
    "look wrong",
    "this is still",
    "it is still",
    "it's still",
    "are still",
    "is still",
    "why do you",
    "why did you",
    "that's not",
    "this is not",
    "it's not",
    "that isn't",
    "this isn't",
    "you booked",
    "you sent",
    "you used",
    "you wrote",
    "is not what",
    "aren't what",
    "as i said",
    "like i said",
    "i told you",
    "you still",
    "i asked you",
    "i've asked",
    "i have asked",
    "still the",
    "still has",
    "still have",
    "and still",
    "still scroll",
    "still wrong",
    "again wrong",
    "not better",
    "no better",
    "immer noch",
    "schon wieder",
    "noch immer",
    "toujours pas",
    "c'est toujours",
    "toujours trop",
    "encore une fois",
    "sigue",
    "otra vez",
    "te pedí",
    "le pedí",
    "ancora",
    "nog steeds",
    "you removed",
    "you changed",
    "you added",
    "i meant",
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
/// Words after which a message speaks of what somebody else says.
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
    let mut text = own_words(message);
    if let Some(reported) = REPORTED.iter().filter_map(|word| text.find(word)).min() {
        text.truncate(reported);
    }
    let text = ["you didn't ", "you did not ", "no ", "no, "].iter().fold(text, |text, before| {
        if !text.contains(before) {
            return text;
        }
        HARMLESS.iter().fold(text, |text, word| text.replace(&format!("{before}{word}"), ""))
    });
    let begun = text.trim_start();
    let opener: String = begun.chars().take_while(|c| c.is_alphabetic()).collect();
    let rest = begun.get(opener.len()..).unwrap_or_default();
    let alone = rest.trim_start().is_empty() || !rest.starts_with([' ', '\'']);
    let content = CONTENT_USER_PHRASES.is_in(&text);
    let clear = CLEAR_PHRASES.is_in(&text)
        || CLEAR_UNSPACED.iter().any(|phrase| text.contains(phrase))
        || alone && !content && CLEAR_OPENERS.contains(&opener.as_str());
    if clear {
        Complaint::Clear
    } else if !content
        && (opener == "still" || opener == "wrong" && text.contains(" again") || POSSIBLE_PHRASES.is_in(&text))
    {
        Complaint::Possible
    } else if !content && REFUSALS.contains(&opener.as_str()) {
        Complaint::Refusal
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

/// Phrases by their first letter, to be found at the beginnings of words.
struct Phrases(HashMap<char, Vec<&'static str>>);

static CLEAR_PHRASES: LazyLock<Phrases> = LazyLock::new(|| Phrases::new(&CLEAR));
static POSSIBLE_PHRASES: LazyLock<Phrases> = LazyLock::new(|| Phrases::new(&POSSIBLE));
static CONTENT_USER_PHRASES: LazyLock<Phrases> = LazyLock::new(|| Phrases::new(&CONTENT_USER));

impl Phrases {
    fn new(phrases: &[&'static str]) -> Self {
        let mut by_letter: HashMap<char, Vec<&'static str>> = HashMap::new();
        for phrase in phrases {
            by_letter.entry(phrase.chars().next().unwrap_or_default()).or_default().push(phrase);
        }
        Self(by_letter)
    }

    /// Whether one of them is in `text`, from the beginning of a word to the end of one.
    fn is_in(&self, text: &str) -> bool {
        let mut inside = false;
        text.char_indices().any(|(at, c)| {
            let starts = c.is_alphanumeric() && !inside;
            inside = c.is_alphanumeric() || c == '\'' && inside;
            let rest = text.get(at..).unwrap_or_default();
            let ends = |phrase: &&str| {
                rest.strip_prefix(*phrase).is_some_and(|after| !after.starts_with(char::is_alphanumeric))
            };
            starts && self.0.get(&c).is_some_and(|phrases| phrases.iter().any(ends))
        })
    }
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
            "Nah, that's not it.",
            "Ugh. It's exactly as bad as before.",
            "That broke the menu.",
            "No, that's still wrong. The customer asks whether it is waterproof.",
            "Das ist die falsche Adresse.",
            "Tu n'as pas compris : une seule page.",
            "No es lo que pedí.",
        ] {
            assert_eq!(complaint(clear), Complaint::Clear, "{clear}");
        }
        assert_eq!(complaint("No, use the other table."), Complaint::Refusal);
        for possible in [
            "The login still doesn't work on mobile.",
            "Try again.",
            "And it's still not sticky.",
            "Toujours pas.",
            "Wrong axis again, plot it by month.",
            "You again gave me JSON.",
        ] {
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
            "Wrong number formats in column C, please fix.",
            "Nope, that's all, thanks.",
            "Nah, I'm good.",
        ] {
            assert_eq!(complaint(none), Complaint::None, "{none}");
        }
    }
}
