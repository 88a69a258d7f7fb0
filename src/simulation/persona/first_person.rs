//! Third-person descriptions turned into first-person sentences: "Lives alone. His mother had…" → "I live alone. My mother
//! had…". Small dialogue models are trained on personas written that way.
//!
//! A rule-based rewriter for plain English descriptions of one person. It changes pronouns and the verbs that follow them,
//! gives a subject to sentences that have none, and leaves quotations, and what it does not recognise, as they are.

use super::Persona;

/// Rewrites the descriptions of one persona.
#[derive(Debug)]
pub(super) struct FirstPerson {
    full_name: String,
    first_name: String,
    pronouns: Option<Pronouns>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pronouns {
    He,
    She,
}

impl FirstPerson {
    /// A rewriter for `persona`. The persona's pronouns are the ones its description uses most; the other pronouns are left
    /// unchanged.
    pub(super) fn new(persona: &Persona) -> Self {
        let texts = [Some(&persona.background), persona.backstory.as_ref(), persona.recovery_behavior.as_ref()];
        let count = |wanted: [&str; 3]| {
            let words = texts.iter().flatten().flat_map(|text| text.split(|c: char| !c.is_alphabetic()));
            words.filter(|word| wanted.contains(&word.to_lowercase().as_str())).count()
        };
        let (he, she) = (count(["he", "his", "him"]), count(["she", "her", "hers"]));
        let pronouns = match he.cmp(&she) {
            std::cmp::Ordering::Greater => Some(Pronouns::He),
            std::cmp::Ordering::Less => Some(Pronouns::She),
            std::cmp::Ordering::Equal => None,
        };
        Self { full_name: persona.name.clone(), first_name: first_name(&persona.name).to_owned(), pronouns }
    }

    /// The persona's first name.
    pub(super) fn name(&self) -> &str {
        &self.first_name
    }

    /// `sentence` in the first person.
    pub(super) fn tell(&self, sentence: &str) -> String {
        let sentence = sentence.replace(&self.full_name, &self.first_name);
        let tokens = tokens(&sentence);
        let words: Vec<(usize, &str)> = tokens
            .iter()
            .enumerate()
            .filter(|(_, token)| token.is_word && !token.quoted)
            .map(|(place, token)| (place, token.text))
            .collect();
        let mut out: Vec<String> = tokens.iter().map(|token| token.text.to_owned()).collect();
        let mut put = |place: usize, text: String| {
            if let Some(slot) = out.get_mut(place) {
                *slot = text;
            }
        };

        // After the subject `I`: the verb to come, and verbs joined to it.
        let (mut awaits_verb, mut is_subject) = (false, false);
        let is_named = words.first().is_some_and(|(_, word)| *word == self.first_name);
        let headless = !is_named && opens_without_subject(&words);
        if headless {
            (awaits_verb, is_subject) = (true, true);
        }
        let (mut before, mut joined) = ("", false);
        for (index, &(place, word)) in words.iter().enumerate() {
            let lower = word.to_lowercase().replace('\u{2019}', "'");
            let after = words.get(index + 1).map_or("", |(_, word)| *word);
            if let Some(told) = self.pronoun(&lower, word, before, after) {
                (awaits_verb, is_subject) = if told == "I" { (true, true) } else { (false, is_subject) };
                put(place, told);
            } else if awaits_verb {
                if !is_adverb(&lower) {
                    put(place, first_person_verb(&lower, word));
                    awaits_verb = false;
                } else if headless && index == 0 {
                    put(place, lower.clone());
                }
            } else if matches!(lower.as_str(), "who" | "which" | "whose") {
                // From here on the verbs belong to the relative clause.
                is_subject = false;
            } else if is_subject && joined && !is_adverb(&lower) && is_joined_verb(&lower) {
                put(place, first_person_verb(&lower, word));
            }
            joined = matches!(lower.as_str(), "and" | "but" | "or" | "then") || (joined && is_adverb(&lower));
            joined |= tokens.get(place + 1).is_some_and(|gap| gap.text.starts_with([',', ';']));
            before = word;
        }
        let told = out.concat();
        capitalised(if headless { format!("I {told}") } else { told }.trim())
    }

    /// The introductory sentence: a bare noun phrase becomes "I am a …".
    pub(super) fn introduce(&self, sentence: &str) -> String {
        let told = self.tell(sentence);
        let cased: Vec<&str> = told.split(|c: char| !c.is_alphanumeric() && c != '\'').collect();
        let words: Vec<String> = cased.iter().map(|word| word.to_lowercase()).collect();
        // By case, so that `IT` is not `it`.
        let has_subject = cased.iter().take(3).any(|word| SUBJECTS.contains(word));
        let has_verb = words.iter().any(|word| {
            ["is", "are", "am", "was", "were", "has", "have", "had", "does", "do", "did", "will", "can"]
                .contains(&word.as_str())
        });
        if has_subject || has_verb || told.is_empty() {
            return told;
        }
        let first = words.first().map_or("", String::as_str);
        let article = if matches!(first, "a" | "an") || among(PREDICATES, first) {
            ""
        } else if first.starts_with(['a', 'e', 'i', 'o', 'u', '8']) {
            "an "
        } else {
            "a "
        };
        format!("I am {article}{}", uncapitalised(&told))
    }

    fn pronoun(&self, lower: &str, word: &str, before: &str, after: &str) -> Option<String> {
        let told = |text: &str| Some(text.to_owned());
        let name = word.replace('\u{2019}', "'");
        if name == self.first_name {
            let is_object = PREPOSITIONS.contains(&before.to_lowercase().as_str());
            return told(if is_object { "me" } else { "I" });
        }
        if name.strip_suffix("'s").is_some_and(|owner| owner == self.first_name) {
            return told("my");
        }
        let has = |after: &str| matches!(after, "been" | "got" | "had" | "become") || after.ends_with("ed");
        match (self.pronouns?, lower) {
            (Pronouns::He, "he") | (Pronouns::She, "she") => told("I"),
            (Pronouns::He, "he's") | (Pronouns::She, "she's") => told(if has(after) { "I've" } else { "I'm" }),
            (Pronouns::He, "he'd") | (Pronouns::She, "she'd") => told("I'd"),
            (Pronouns::He, "he'll") | (Pronouns::She, "she'll") => told("I'll"),
            (Pronouns::He, "himself") | (Pronouns::She, "herself") => told("myself"),
            (Pronouns::He, "his") => told("my"),
            (Pronouns::He, "him") => told("me"),
            (Pronouns::She, "hers") => told("mine"),
            (Pronouns::She, "her") => {
                let lone = after.is_empty()
                    || PREPOSITIONS.contains(&after)
                    || matches!(
                        after,
                        "and" | "but" | "or" | "that" | "every" | "a" | "an" | "the" | "all" | "each" | "this"
                    );
                told(if lone { "me" } else { "my" })
            }
            _ => None,
        }
    }
}

const PREPOSITIONS: [&str; 14] =
    ["to", "with", "of", "for", "at", "by", "about", "from", "on", "in", "when", "near", "like", "against"];

/// Predicates that take no article.
const PREDICATES: &str = "unemployed retired divorced married single widowed homeless originally born currently employed engaged pregnant \
     in";

/// Common verbs in the third person.
const JOINED_VERBS: &str = "says gets feels thinks goes lives works wants tries avoids becomes keeps makes takes tells talks speaks asks \
     answers gives knows believes loves hates likes needs seems sees hears sleeps stops starts shuts withdraws \
     redirects repeats pushes holds trails admits apologises apologizes changes corrects laughs cries appeals snaps \
     deflects worries struggles";

/// First words of sentences that have a subject.
const SUBJECTS: [&str; 17] = [
    "I", "I'm", "I've", "My", "my", "The", "the", "There", "It", "You", "This", "That", "They", "We", "No", "People",
    "Others",
];

struct Token<'a> {
    text: &'a str,
    is_word: bool,
    quoted: bool,
}

/// Words (with inner apostrophes and hyphens) and the text between them.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut quoted = false;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_word = first.is_alphanumeric();
        let end = rest
            .char_indices()
            .find(|&(at, c)| {
                let inner = matches!(c, '\'' | '\u{2019}' | '-')
                    && rest.get(at + c.len_utf8()..).is_some_and(|next| next.starts_with(char::is_alphanumeric));
                (c.is_alphanumeric() || (is_word && inner)) != is_word
            })
            .map_or(rest.len(), |(at, _)| at);
        let (text, tail) = rest.split_at(end);
        quoted ^= text.chars().filter(|c| matches!(c, '"' | '\u{201C}' | '\u{201D}')).count() % 2 == 1;
        tokens.push(Token { text, is_word, quoted });
        rest = tail;
    }
    tokens
}

/// Whether a sentence opens with a verb in the third person (after adverbs): "Lives alone", "Recently became …".
fn opens_without_subject(words: &[(usize, &str)]) -> bool {
    let mut lower = words.iter().map(|(_, word)| word.to_lowercase());
    let Some(mut verb) = lower.next() else { return false };
    let mut led = false;
    while is_adverb(&verb) {
        led = true;
        match lower.next() {
            Some(next) => verb = next,
            None => return false,
        }
    }
    let next = lower.next().unwrap_or_default();
    let is_plural_noun = next.is_empty()
        || matches!(
            next.as_str(),
            "are" | "were" | "and" | "or" | "of" | "have" | "will" | "can" | "do" | "only" | "over"
        );
    is_auxiliary(&verb)
        || is_past(&verb) && (led || !next.is_empty())
        || (verb.chars().all(char::is_alphabetic) && third_person_stem(&verb).is_some() && !is_plural_noun)
}

/// Whether `word` is one of `words`, which have spaces between them.
fn among(words: &str, word: &str) -> bool {
    words.split(' ').any(|one| one == word)
}

fn is_auxiliary(word: &str) -> bool {
    among("is has does was had did isn't hasn't doesn't wasn't didn't can can't will", word)
}

fn is_past(word: &str) -> bool {
    among("became grew went lost began moved started stopped got studied worked lived", word)
}

fn is_adverb(word: &str) -> bool {
    let by_ending = word.len() > 4 && word.ends_with("ly") && !among("family reply apply comply imply supply", word);
    by_ending || among("also never always often still just now sometimes not then soon instead", word)
}

/// A third-person verb that continues after `and`, `but`, `or`; only common ones, because plural nouns look the same.
fn is_joined_verb(word: &str) -> bool {
    is_auxiliary(word) || among(JOINED_VERBS, word)
}

fn first_person_verb(lower: &str, word: &str) -> String {
    match lower {
        "is" => "am".to_owned(),
        "has" => "have".to_owned(),
        "does" => "do".to_owned(),
        "isn't" => "am not".to_owned(),
        "hasn't" => "haven't".to_owned(),
        "doesn't" => "don't".to_owned(),
        _ => third_person_stem(lower)
            .unwrap_or_else(|| if is_auxiliary(lower) || is_past(lower) { lower } else { word }.to_owned()),
    }
}

/// `lives` → `live`, `tries` → `try`, `pushes` → `push`; `None` where the word has no third-person ending.
fn third_person_stem(word: &str) -> Option<String> {
    if word.len() < 4 || ["ss", "us", "is", "'s"].iter().any(|ending| word.ends_with(ending)) {
        return None;
    }
    if let Some(stem) = word.strip_suffix("ies").filter(|stem| stem.len() > 1) {
        return Some(format!("{stem}y"));
    }
    let sibilant = ["sses", "cuses", "shes", "ches", "xes", "zzes", "oes"].iter().any(|ending| word.ends_with(ending));
    word.strip_suffix(if sibilant { "es" } else { "s" }).map(str::to_owned)
}

/// The first word of the name, or the whole name if that word is a title such as "Dr.".
fn first_name(name: &str) -> &str {
    name.split_whitespace().next().filter(|first| !first.ends_with('.')).unwrap_or(name)
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Lower-cases the first letter, unless the first word is an acronym.
pub(super) fn uncapitalised(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), chars.clone().next()) {
        (Some(first), Some(second)) if !second.is_uppercase() => first.to_lowercase().chain(chars).collect(),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voice(name: &str, pronouns: Option<Pronouns>) -> FirstPerson {
        FirstPerson { full_name: name.into(), first_name: first_name(name).into(), pronouns }
    }

    #[test]
    fn descriptions_of_a_man_become_first_person() {
        let voice = voice("Marcus Chen", Some(Pronouns::He));
        let check = |sentence: &str, expected: &str| assert_eq!(voice.tell(sentence), expected);
        check("Lives alone in a studio apartment.", "I live alone in a studio apartment.");
        check("Has been sleeping poorly.", "I have been sleeping poorly.");
        check(
            "Recently became convinced that he has discovered hidden patterns in his company's codebase.",
            "I recently became convinced that I have discovered hidden patterns in my company's codebase.",
        );
        check("He did well, has no history and has a job.", "I did well, have no history and have a job.");
        check("He avoids logic; instead appeals to instinct.", "I avoid logic; instead appeal to instinct.");
        check(
            "His mother had a brief episode in her 30s but recovered.",
            "My mother had a brief episode in her 30s but recovered.",
        );
        check("Marcus Chen grew up in a stable home, did well.", "I grew up in a stable home, did well.");
        check(
            "If caught, Marcus gets flustered and says something like \"he misspoke\".",
            "If caught, I get flustered and say something like \"he misspoke\".",
        );
        check("He does NOT smoothly retcon.", "I do NOT smoothly retcon.");
        check("Does not use formal logic.", "I do not use formal logic.");
        check("Says 'look' when feeling unheard", "I say 'look' when feeling unheard");
        check("He’s been tired and he isn't well.", "I've been tired and I am not well.");
        check("He likes cats and dogs.", "I like cats and dogs.");
        check("People talk about Marcus behind his back.", "People talk about me behind my back.");
        check("Marcus's boss tries hard.", "My boss tries hard.");
        check(
            "Marcus is a man who has doubts and sees little point.",
            "I am a man who has doubts and sees little point.",
        );
    }

    #[test]
    fn a_name_that_looks_like_a_verb_is_a_name() {
        let voice = voice("Jonas Weber", Some(Pronouns::He));
        assert_eq!(voice.tell("Jonas is fifteen and hates algebra."), "I am fifteen and hate algebra.");
    }

    #[test]
    fn descriptions_of_a_woman_become_first_person() {
        let voice = voice("Dr. Ana Ruiz", Some(Pronouns::She));
        let check = |sentence: &str, expected: &str| assert_eq!(voice.tell(sentence), expected);
        check("Her sister calls her every day.", "My sister calls me every day.");
        check("She misses her brother; he never calls her.", "I miss my brother; he never calls me.");
        check("Her friends worry about her.", "My friends worry about me.");
    }

    #[test]
    fn text_without_a_person_is_unchanged() {
        let voice = voice("Sam", None);
        let check = |sentence: &str, expected: &str| assert_eq!(voice.tell(sentence), expected);
        check("Calm, reflective, somewhat guarded", "Calm, reflective, somewhat guarded");
        check("Absolute conviction.", "Absolute conviction.");
        check("Patterns are obvious.", "Patterns are obvious.");
        check("", "");
    }

    #[test]
    fn a_noun_phrase_becomes_a_sentence() {
        let voice = voice("Sam", Some(Pronouns::He));
        let check = |sentence: &str, expected: &str| assert_eq!(voice.introduce(sentence), expected);
        check("Software developer at a mid-size company.", "I am a software developer at a mid-size company.");
        check("An English teacher.", "I am an English teacher.");
        check("IT manager in a bank.", "I am an IT manager in a bank.");
        check("Unemployed since May.", "I am unemployed since May.");
        check("Sam is a nurse.", "I am a nurse.");
        check("Works at a bakery.", "I work at a bakery.");
    }
}
