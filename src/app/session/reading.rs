//! Reads a need by rules: what it says of the plan, and what of it was not understood.
//!
//! Every word is accounted for. A word that names a part of the plan counts with its negation ("with no adversary", "not the
//! student but …"); a known function word is passed over; any other word is a doubt. A plan with doubts is shown to the user
//! before it runs, in every engagement. A need without anything that a session investigates is refused.

use super::question::StudyQuestion;
use crate::simulation::judge::info;
use crate::simulation::persona::AdversaryKind;

/// What a text says of the plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Reading {
    /// The name of a built-in persona.
    pub(super) persona: Option<&'static str>,
    pub(super) other: Option<AdversaryKind>,
    /// An adversary is wanted, but not which.
    pub(super) any_adversary: bool,
    pub(super) turns: Option<usize>,
    pub(super) rollouts: Option<usize>,
    /// What is to be found out, if it is a comparison.
    pub(super) question: Option<StudyQuestion>,
    /// The score that is named.
    pub(super) measure: Option<String>,
    /// It asks for a comparison.
    compares: bool,
    /// What was not understood, a line each.
    pub(super) doubts: Vec<String>,
    /// Nothing in it is what a session investigates.
    pub(super) is_foreign: bool,
}

/// What a session can do, for a need that it cannot work on.
pub(super) const CAN: &str = "a session plays conversations between a persona and a target model or an adversary, and finds out \
     whether the persona holds; for example \
     \"How does a depressed patient hold up over 20 turns, 6 rollouts, with no adversary?\"";

/// The doubt about a comparison of which the other side is not named.
pub(super) const WHAT_COMPARED: &str = "what the persona is compared with";
/// The doubt about a comparison of two targets or configs of which one is missing.
pub(super) const OTHER_ARM: &str = "a comparison whose other side is named on the command line, by --against-target MODEL \
     or --against-config FILE";

/// Words, with blanks between them.
struct Words(&'static str);

impl Words {
    fn has(&self, word: &str) -> bool {
        !word.is_empty() && self.0.split(' ').any(|one| one == word)
    }
}

/// Words that carry nothing of the plan.
const PASSED: Words = Words(
    "a about act acts all an and any are as at be been behave behaves between by can character characters check could \
     do does during each every exactly far find for from full get give hold holding holds how i i'd i'm if in \
     independent interact interacts is it it's its just keep keeps kept let let's long look loom make me measure much \
     need of on only or out over per please report role run running score scored scores see separate session set \
     should show simulate simulated simulation so speak speaks start stay staying stays still talk talking talks tell \
     test that the then there they this through throughout to under up use using want was way well what what's when \
     whether which while who will with within would you against after remain remains remaining faced facing faces \
     conversation conversations dialogue dialogues lasting lasts but also reliably probe probes probing try tries \
     trying",
);
/// Words for what a session finds out.
const CUES: Words = Words(
    "consistency consistent consistently drift drifts drifting stable stability adherence adhere adheres break breaks \
     persona personas persona's",
);
/// Words of [`PASSED`] that are cues as well.
const PASSED_CUES: Words = Words(
    "hold holds holding talk talks conversation conversations dialogue dialogues simulate behave behaves measure test \
     run look character role",
);
const STAYING: Words = Words("stay stays remain remains");
const NEGATORS: Words = Words(
    "no not without never neither nor excluding except minus skip avoid non don't doesn't isn't aren't won't \
     shouldn't mustn't can't cannot wouldn't dont omit omitting drop exclude leave lacking absent free",
);
/// After one of these a negation does not surely reach further.
const BREAKS: Words = Words("with against over for while when if because so then after during and");
const TURNS: Words = Words("turn turns");
const ROLLOUTS: Words =
    Words("rollout rollouts conversation conversations talks times dialogue dialogues runs simulations repetitions");
/// Words that may stand between a number and what it counts.
const COUNT_ADJECTIVES: Words = Words("independent separate full complete different single");
const PLAIN: Words = Words("helper assistant target listener therapist chatbot");
const PLAIN_ADJECTIVES: Words = Words(
    "plain neutral ordinary friendly empathetic empathic kind supportive helpful default normal simple standard \
     regular model",
);
const ANY_ADVERSARY: Words = Words("adversary adversaries adversarial");
const CONTRADICTION: Words = Words("contradiction contradictions trap traps");
const HELPFULNESS: Words = Words("helpfulness coaxing");
/// One of these stands before the interlocutor: otherwise the sentence is about something else.
const TOWARDS: Words = Words(
    "against with by under facing faced faces versus vs between and or to for use using set probes probe probing of \
     than both but",
);
const COMPARING: Words = Words("compare compared comparing comparison versus vs than differ differs difference");
const ABLATION: Words = Words("ablation ablated ablate");
/// What a session does not do, also with a persona.
const FOREIGN_DEEDS: Words = Words(
    "train training finetune finetuning tune tuning diagnose diagnosis treat treating treatment cure translate deploy \
     publish delete install buy migrate hire",
);

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Word,
    Number(usize),
    /// The end of a clause.
    Boundary,
}

#[derive(Debug, Clone)]
struct Token {
    text: String,
    kind: Kind,
    used: bool,
}

/// How a mention is negated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Negation {
    None,
    Negated,
    Unclear,
}

/// Reads `text`. `has_persona` says that the persona is given elsewhere, so pronouns may refer to it.
pub(super) fn read(text: &str, has_persona: bool) -> Reading {
    let (text, measures) = measures(text);
    let mut reader = Reader { tokens: tokens(&text), found: Reading::default() };
    match measures.as_slice() {
        [] => {}
        [one] => reader.found.measure = Some(one.clone()),
        _ => reader.doubt("more than one score that decides"),
    }
    reader.bounds();
    reader.comparison();
    reader.counts();
    reader.persona();
    reader.other();
    reader.rest(has_persona)
}

/// The numbers in a text, in order, each once.
pub(super) fn numbers(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    for token in tokens(text) {
        if let Kind::Number(number) = token.kind
            && !found.contains(&number)
        {
            found.push(number);
        }
    }
    found
}

/// The ids of scores in a text, and the text without them.
fn measures(text: &str) -> (String, Vec<String>) {
    let mut found: Vec<String> = Vec::new();
    let rest = text.split_whitespace().filter(|word| {
        let id = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let known = id.contains('/') && info(id).is_some();
        if known && !found.iter().any(|one| one == id) {
            found.push(id.to_owned());
        }
        !known
    });
    let rest = rest.collect::<Vec<_>>().join(" ");
    // A boundary may have been attached to the id.
    (rest, found)
}

struct Reader {
    tokens: Vec<Token>,
    found: Reading,
}

impl Reader {
    fn word(&self, at: usize) -> &str {
        self.tokens.get(at).filter(|token| token.kind == Kind::Word).map_or("", |token| &token.text)
    }

    fn is(&self, at: usize, words: &[&str]) -> bool {
        words.contains(&self.word(at))
    }

    fn take(&mut self, at: usize) {
        if let Some(token) = self.tokens.get_mut(at) {
            token.used = true;
        }
    }

    fn doubt(&mut self, doubt: impl Into<String>) {
        let doubt = doubt.into();
        if !self.found.doubts.contains(&doubt) {
            self.found.doubts.push(doubt);
        }
    }

    /// How the word at `at` is negated: by the words of its clause before it, or by the words right after it.
    fn negation(&mut self, at: usize) -> Negation {
        let (negation, negators) = self.negated_by(at);
        if negation == Negation::Negated {
            // What they negate is known.
            negators.into_iter().for_each(|negator| self.take(negator));
        }
        negation
    }

    fn negated_by(&self, at: usize) -> (Negation, Vec<usize>) {
        let clause = (0..at).rev().take_while(|before| {
            self.tokens.get(*before).is_some_and(|token| token.kind != Kind::Boundary && token.text != "but")
        });
        let (mut negators, mut broken) = (Vec::new(), false);
        for before in clause {
            if NEGATORS.has(self.word(before)) || self.is_replaced(before) {
                negators.push(before);
                // "not with", "not against": the negation reaches over them.
                let directly = !(before + 2..at).any(|between| BREAKS.has(self.word(between)));
                broken |= !directly || (self.is(before + 1, &["and"]));
            }
        }
        let after = (at + 1..at + 5).take_while(|after| !self.is(*after, &["but", "and", "with", "over", "for"]));
        for after in after {
            match self.word(after) {
                "none" | "off" | "excluded" | "disabled" | "unwanted" | "unnecessary" if negators.is_empty() => {
                    return (Negation::Negated, vec![after]);
                }
                word if NEGATORS.has(word) || matches!(word, "out" | "away" | "aside") => {
                    return (Negation::Unclear, negators);
                }
                _ => {}
            }
        }
        match (negators.len(), broken) {
            (0, _) => (Negation::None, negators),
            (1, false) => (Negation::Negated, negators),
            _ => (Negation::Unclear, negators),
        }
    }

    /// "instead of", "rather than".
    fn is_replaced(&self, at: usize) -> bool {
        (self.word(at) == "instead" && self.word(at + 1) == "of")
            || (self.word(at) == "rather" && self.word(at + 1) == "than")
    }

    /// "at most", "no more than" and the like before a number: the number itself satisfies them.
    fn bounds(&mut self) {
        const BOUNDS: [&[&str]; 10] = [
            &["at", "most"],
            &["at", "least"],
            &["up", "to"],
            &["no", "more", "than"],
            &["not", "more", "than"],
            &["no", "fewer", "than"],
            &["no", "less", "than"],
            &["no", "longer", "than"],
            &["maximum", "of"],
            &["minimum", "of"],
        ];
        for at in 0..self.tokens.len() {
            for bound in BOUNDS {
                let number =
                    self.tokens.get(at + bound.len()).is_some_and(|token| matches!(token.kind, Kind::Number(_)));
                if number && bound.iter().enumerate().all(|(index, word)| self.word(at + index) == *word) {
                    for index in 0..bound.len() {
                        self.take(at + index);
                        // No longer a negator.
                        if let Some(token) = self.tokens.get_mut(at + index) {
                            "up".clone_into(&mut token.text);
                        }
                    }
                }
            }
        }
    }

    /// Comparisons: with the persona's ablation, of two targets, of two configs. A need that compares anything else is not run
    /// as one that does not.
    fn comparison(&mut self) {
        let (mut compares, mut ablation, mut unclear) = (false, false, false);
        let mut arms: Option<StudyQuestion> = None;
        for at in 0..self.tokens.len() {
            if COMPARING.has(self.word(at)) && !(at > 0 && self.is_replaced(at - 1)) {
                compares = true;
                unclear |= self.negated_by(at).0 != Negation::None;
                self.take(at);
            }
            // "with and without the persona".
            let noun = if self.is(at + 1, &["the", "its", "any", "a"]) { at + 2 } else { at + 1 };
            if self.is(at, &["without", "no"]) && self.is(noun, &["persona"]) {
                ablation = true;
                compares |= at > 1 && self.is(at - 1, &["and"]) && self.is(at - 2, &["with"]);
                unclear |= self.negated_by(at).0 != Negation::None;
                self.take(at);
            }
            if ABLATION.has(self.word(at)) {
                ablation = true;
                unclear |= self.negated_by(at).0 != Negation::None;
                self.take(at);
            }
            let two =
                matches!(self.tokens.get(at).map(|token| &token.kind), Some(Kind::Number(2))) || self.is(at, &["both"]);
            let named = match self.word(at + 1) {
                "targets" | "models" => Some(StudyQuestion::Targets),
                "prompts" | "configs" | "configurations" => Some(StudyQuestion::Prompts),
                _ => None,
            };
            if two && named.is_some() {
                unclear |= arms.is_some_and(|arms| Some(arms) != named) || self.negated_by(at).0 != Negation::None;
                arms = named;
                self.take(at);
                self.take(at + 1);
            }
        }
        self.found.compares = compares || ablation || arms.is_some();
        let question = match (ablation, arms) {
            (true, None) if compares => Some(StudyQuestion::Ablation),
            (false, Some(arms)) => Some(arms),
            _ => None,
        };
        match question {
            _ if !self.found.compares => {}
            Some(StudyQuestion::Ablation) if !unclear => self.found.question = question,
            Some(_) if !unclear => self.doubt(OTHER_ARM),
            _ => self.doubt(WHAT_COMPARED),
        }
    }

    /// Numbers of turns and rollouts.
    fn counts(&mut self) {
        let repeats = (0..self.tokens.len()).any(|at| self.is(at, &["run", "simulate", "test"]));
        let (mut turns, mut rollouts, mut excluded) = (Vec::new(), Vec::new(), (false, false));
        for at in 0..self.tokens.len() {
            let Some(Token { kind: Kind::Number(number), used: false, .. }) = self.tokens.get(at) else {
                // "turns: 20", "rollouts = 4".
                continue;
            };
            let number = *number;
            let unit = |at: usize| match () {
                () if TURNS.has(self.word(at)) => Some(0),
                () if ROLLOUTS.has(self.word(at)) && (repeats || self.word(at) != "times") => Some(1),
                () => None,
            };
            let mut next = at + 1;
            while COUNT_ADJECTIVES.has(self.word(next)) {
                next += 1;
            }
            // "four 20-turn conversations"
            let nested = self.tokens.get(next).is_some_and(|token| matches!(token.kind, Kind::Number(_)))
                && TURNS.has(self.word(next + 1))
                && unit(next + 2) == Some(1);
            let before =
                at.checked_sub(2).filter(|_| self.tokens.get(at - 1).is_some_and(|token| token.kind == Kind::Boundary));
            let of = match (unit(next), nested) {
                (Some(of), _) => Some((of, next)),
                (None, true) => Some((1, next + 2)),
                (None, false) => before.and_then(|before| Some((unit(before)?, before))),
            };
            let Some((of, unit_at)) = of else { continue };
            let negator = [1, 2].into_iter().filter_map(|back| at.checked_sub(back)).find(|before| {
                (before + 1 == at && NEGATORS.has(self.word(*before)))
                    || (before + 2 == at && self.is_replaced(*before))
            });
            if let Some(negator) = negator {
                self.take(negator);
            }
            let negated = negator.is_some();
            if at.checked_sub(1).is_some_and(|before| self.word(before) == "every") {
                continue;
            }
            self.take(at);
            (at + 1..next).for_each(|taken| self.take(taken));
            self.take(unit_at);
            match (negated || number == 0, of) {
                (true, 0) => excluded.0 = true,
                (true, _) => excluded.1 = true,
                (false, 0) => turns.push(number),
                (false, _) => rollouts.push(number),
            }
        }
        for at in 0..self.tokens.len() {
            if self.word(at) == "twice" && repeats && !self.is(at + 1, &["as", "the", "more"]) {
                rollouts.push(2);
                self.take(at);
            }
        }
        for (name, values, was_excluded) in [("turns", &mut turns, excluded.0), ("rollouts", &mut rollouts, excluded.1)]
        {
            values.sort_unstable();
            values.dedup();
            match (values.as_slice(), was_excluded) {
                ([], true) => self.doubt(format!("how many {name} instead")),
                ([_] | [], _) => {}
                _ => self.doubt(format!("more than one number of {name}")),
            }
        }
        self.found.turns = turns.first().copied().filter(|_| turns.len() == 1);
        self.found.rollouts = rollouts.first().copied().filter(|_| rollouts.len() == 1);
    }

    /// The built-in personas, in any word form.
    fn persona(&mut self) {
        let mut wanted: Vec<&'static str> = Vec::new();
        let mut excluded: Vec<&'static str> = Vec::new();
        let mut patients = Vec::new();
        for at in 0..self.tokens.len() {
            let name = match self.word(at) {
                "depressed" | "depressive" | "depression" | "depression's" => "depressed_patient",
                "manic" | "mania" => "mania_patient",
                "student" | "students" | "student's" => "student",
                "open"
                    if self.word(at + 1) == "ended"
                        && self.is(at + 2, &["persona", "character", "config", "patient"]) =>
                {
                    "open_ended"
                }
                "patient" | "patients" | "patient's" => {
                    patients.push(at);
                    continue;
                }
                _ => continue,
            };
            let negation = self.negation(at);
            let near = [1, 2].into_iter().filter_map(|back| at.checked_sub(back));
            if near.into_iter().any(|before| self.is(before, &["against", "as"])) {
                self.doubt(format!("whether `{name}` is the persona"));
            }
            self.take(at);
            if name == "open_ended" {
                self.take(at + 1);
            }
            match negation {
                // "the student does not hold": the persona is not what is negated.
                Negation::None | Negation::Unclear => wanted.push(name),
                Negation::Negated => excluded.push(name),
            }
            if negation == Negation::Unclear {
                self.doubt(format!("whether `{name}` is wanted"));
            }
        }
        for list in [&mut wanted, &mut excluded] {
            list.sort_unstable();
            list.dedup();
        }
        if wanted.iter().any(|name| name.ends_with("patient")) {
            patients.iter().for_each(|at| self.take(*at));
        }
        match wanted.as_slice() {
            [] if !excluded.is_empty() => self.doubt(format!("which persona instead of `{}`", excluded.join("`, `"))),
            [] => {}
            [one] if excluded.contains(one) => self.doubt(format!("whether `{one}` is wanted")),
            [one] => self.found.persona = Some(one),
            _ => self.doubt("one session has one persona"),
        }
    }

    /// The interlocutor.
    fn other(&mut self) {
        let mut kinds: [Vec<Negation>; 5] = Default::default();
        for at in 0..self.tokens.len() {
            // "make it act as a helper": what a helpfulness adversary does.
            let as_helper = PLAIN.has(self.word(at))
                && (1..=3)
                    .any(|back| at.checked_sub(back).is_some_and(|before| self.is(before, &["as", "into", "like"])));
            let adversarial = at.checked_sub(1).is_some_and(|before| self.word(before) == "adversarial");
            let kind = match () {
                () if as_helper && self.is(at, &["helper", "assistant"]) => 4,
                () if PLAIN.has(self.word(at)) && adversarial => {
                    self.take(at);
                    continue;
                }
                () if PLAIN.has(self.word(at)) => 3,
                () if ANY_ADVERSARY.has(self.word(at)) => 0,
                () if CONTRADICTION.has(self.word(at)) => 1,
                () if HELPFULNESS.has(self.word(at)) => 2,
                () => continue,
            };
            let negation = self.negation(at);
            if negation == Negation::None && kind != 4 && !self.is_addressed(at) {
                self.doubt(format!("what `{}` is", self.word(at)));
            }
            self.take(at);
            let mut adjective = at;
            while kind == 3 && adjective > 0 && PLAIN_ADJECTIVES.has(self.word(adjective - 1)) {
                adjective -= 1;
                self.take(adjective);
            }
            if self.word(at + 1) == "model" {
                self.take(at + 1);
            }
            if let Some(found) = kinds.get_mut(kind) {
                found.push(negation);
            }
        }
        let both = (0..self.tokens.len()).find(|at| self.word(*at) == "both" && ANY_ADVERSARY.has(self.word(at + 1)));
        if let Some(at) = both {
            self.take(at);
        }
        let [any, contradiction, helpfulness, plain, as_helper] = kinds;
        let unclear =
            [&any, &contradiction, &helpfulness, &plain].into_iter().flatten().any(|one| *one == Negation::Unclear);
        // An adversary that makes it act as a helper.
        let mut helpfulness = helpfulness;
        match (any.contains(&Negation::None), as_helper.as_slice()) {
            (_, []) => {}
            (true, [Negation::None]) if contradiction.is_empty() => helpfulness.push(Negation::None),
            _ => self.doubt("who it talks with"),
        }
        if unclear {
            self.doubt("who it talks with");
        }
        let has = |found: &[Negation]| found.contains(&Negation::None);
        let not = |found: &[Negation]| found.contains(&Negation::Negated);
        // An adversary that is named twice in opposite ways is no statement.
        if [&any, &contradiction, &helpfulness, &plain].iter().any(|found| has(found) && not(found)) {
            self.doubt("who it talks with");
        }
        let adversary = has(&any) || has(&contradiction) || has(&helpfulness);
        let denied = not(&any) || not(&contradiction) || not(&helpfulness);
        self.found.other = match (has(&contradiction), has(&helpfulness)) {
            (true, true) => Some(AdversaryKind::Both),
            _ if has(&any) && both.is_some() => Some(AdversaryKind::Both),
            (true, false) => Some(AdversaryKind::Contradiction),
            (false, true) if not(&any) => None,
            (false, true) => Some(AdversaryKind::Helpfulness),
            (false, false) if has(&any) => {
                self.found.any_adversary = true;
                match (not(&contradiction), not(&helpfulness)) {
                    (true, false) => Some(AdversaryKind::Helpfulness),
                    _ => Some(AdversaryKind::Contradiction),
                }
            }
            (false, false) if has(&plain) || denied => Some(AdversaryKind::None),
            (false, false) => None,
        };
        if adversary && (has(&plain) || not(&any)) {
            self.doubt("who it talks with: a plain target or an adversary?");
        }
        if not(&plain) && !adversary {
            self.doubt("who it talks with instead");
        }
        if !self.found.doubts.is_empty() && self.found.doubts.iter().any(|doubt| doubt.starts_with("who it")) {
            self.found.other = None;
            self.found.any_adversary = false;
        }
    }

    /// Whether the word at `at` is the interlocutor: something leads to it, or it stands alone in front of its clause.
    fn is_addressed(&self, at: usize) -> bool {
        let mut before = at;
        for _ in 0..4 {
            let Some(previous) = before.checked_sub(1) else { return true };
            before = previous;
            match self.word(before) {
                "as" => return false,
                word if TOWARDS.has(word) => return true,
                "" => return true,
                "a" | "an" | "the" | "any" | "its" | "one" => {}
                word if PLAIN_ADJECTIVES.has(word) || ANY_ADVERSARY.has(word) => {}
                word if CONTRADICTION.has(word) || HELPFULNESS.has(word) || word == "that" => {}
                _ => return ANY_ADVERSARY.has(self.word(at + 1)) && TOWARDS.has(self.word(before)),
            }
        }
        false
    }

    /// The words that no rule has taken.
    fn rest(mut self, has_persona: bool) -> Reading {
        const PRONOUNS: Words = Words("she he her his him them their");
        const NOUNS: Words = Words("patient patients config interlocutor partner");
        let mut unknown: Vec<String> = Vec::new();
        let (mut cues, mut foreign) = (0, false);
        for at in 0..self.tokens.len() {
            let Some(token) = self.tokens.get(at) else { continue };
            let text = token.text.as_str();
            let known = match &token.kind {
                Kind::Boundary => continue,
                _ if token.used => {
                    cues += usize::from(CUES.has(text) || PASSED_CUES.has(text));
                    continue;
                }
                Kind::Number(_) if text == "one" => true,
                Kind::Number(_) => false,
                // "stay manic"
                Kind::Word if STAYING.has(text) && self.tokens.get(at + 1).is_some_and(|next| next.used) => {
                    cues += 1;
                    true
                }
                Kind::Word if CUES.has(text) || PASSED_CUES.has(text) => {
                    cues += 1;
                    true
                }
                Kind::Word if has_persona && (PRONOUNS.has(text) || NOUNS.has(text)) => true,
                Kind::Word if text == "like" => at > 0 && self.is(at - 1, &["would", "i'd"]),
                Kind::Word => PASSED.has(text),
            };
            foreign |= FOREIGN_DEEDS.has(text) && self.negated_by(at).0 != Negation::Negated;
            if !known && !unknown.iter().any(|word| word == text) {
                unknown.push(text.to_owned());
            }
        }
        let named = has_persona
            || self.tokens.iter().any(|token| token.text.starts_with("persona") || token.text.starts_with("rollout"));
        let Reading { persona, other, turns, rollouts, compares, doubts, .. } = &self.found;
        let anchored = named
            || persona.is_some()
            || turns.is_some()
            || rollouts.is_some()
            || other.is_some_and(|kind| kind != AdversaryKind::None);
        let anchored = anchored || doubts.iter().any(|doubt| doubt.contains("persona"));
        cues += usize::from(*compares);
        let counted = turns.is_some() || rollouts.is_some() || other.is_some();
        self.found.is_foreign = !anchored || foreign || (cues == 0 && !counted && !unknown.is_empty());
        if cues == 0 {
            self.doubt("what is to be found out");
        }
        if !unknown.is_empty() {
            self.doubt(format!("`{}`", unknown.join("`, `")));
        }
        self.found
    }
}

/// The words, numbers and clause boundaries of a text.
fn tokens(text: &str) -> Vec<Token> {
    let text: String = text.to_lowercase().replace(['\u{2019}', '\u{2018}'], "'");
    let characters: Vec<char> = text.chars().collect();
    let mut words: Vec<Token> = Vec::new();
    let token = |text: &str, kind| Token { text: text.to_owned(), kind, used: false };
    let at = |index: usize| characters.get(index).copied().unwrap_or(' ');
    let mut index = 0;
    while index < characters.len() {
        let start = index;
        let c = at(index);
        if c.is_alphanumeric() {
            while at(index).is_alphanumeric()
                || (at(index) == '\'' && at(index + 1).is_alphabetic())
                // 1,000 and 2.5 are one word.
                || (matches!(at(index), ',' | '.') && at(index + 1).is_ascii_digit() && at(index - 1).is_ascii_digit())
            {
                index += 1;
            }
            let word: String = characters.iter().skip(start).take(index - start).collect();
            let thousands = word.split(',').skip(1).all(|part| part.len() == 3);
            let number = word.replace(',', "").parse::<usize>().ok().filter(|_| thousands);
            words.push(token(&word, number.map_or(Kind::Word, Kind::Number)));
            continue;
        }
        index += 1;
        match c {
            '-' | '\u{2011}' if !at(index).is_ascii_digit() || at(index.wrapping_sub(2)).is_alphanumeric() => {}
            c if c.is_whitespace() || matches!(c, '_' | '\'' | '"' | '`' | '\u{201c}' | '\u{201d}' | '*') => {}
            '.' | ',' | ';' | ':' | '?' | '!' | '(' | ')' | '\u{2014}' | '=' => words.push(token("", Kind::Boundary)),
            c => words.push(token(&c.to_string(), Kind::Word)),
        }
    }
    number_words(words)
}

/// Numbers in words as numbers: "twenty-five", "two hundred", "a dozen".
fn number_words(words: Vec<Token>) -> Vec<Token> {
    const UNITS: [&str; 20] = [
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "thirteen",
        "fourteen",
        "fifteen",
        "sixteen",
        "seventeen",
        "eighteen",
        "nineteen",
    ];
    const TENS: [&str; 8] = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];
    let mut found: Vec<Token> = Vec::new();
    let mut open: Option<usize> = None;
    for word in words {
        let unit = UNITS.iter().position(|unit| *unit == word.text);
        let tens = TENS.iter().position(|tens| *tens == word.text).map(|tens| 10 * (tens + 2));
        let value = match (open, unit, tens, word.text.as_str()) {
            (Some(before), Some(unit), _, _) if before % 10 == 0 && before > 10 && (1..10).contains(&unit) => {
                Some(before + unit)
            }
            (_, Some(unit), _, _) => {
                open = None;
                Some(unit)
            }
            (Some(before), _, Some(tens), _) if before % 100 == 0 && before > 0 => Some(before + tens),
            (_, _, Some(tens), _) => {
                open = None;
                Some(tens)
            }
            (before, _, _, "hundred") => Some(100 * before.unwrap_or(1)),
            (before, _, _, "dozen") => Some(12 * before.unwrap_or(1)),
            _ => None,
        };
        let continues = open.is_some() && value.is_some();
        if let Some(value) = value {
            // "a dozen" is one number, and so is "twenty-five".
            let of_a =
                matches!(word.text.as_str(), "hundred" | "dozen") && found.last().is_some_and(|last| last.text == "a");
            if continues || of_a {
                found.pop();
            }
            found.push(Token { kind: Kind::Number(value), ..word });
            open = Some(value);
        } else {
            open = None;
            found.push(word);
        }
    }
    found
}
