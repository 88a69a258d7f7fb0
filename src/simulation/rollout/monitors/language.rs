//! The persona falls into another language than English: a sentence in another script, or one whose function words belong
//! to another language. A quoted phrase or a loan word is no change of language.

use unicode_segmentation::UnicodeSegmentation as _;

use super::breakdown::{allowed, finding};
use super::{Draft, Monitor, MonitorFinding};
use crate::foundation::text::words;
use crate::simulation::persona::PersonaConfig;

pub(super) const NAME: &str = "language";

/// The smallest share of a sentence's words that mark another language.
const SHARE_MIN: f64 = 0.3;
/// Shorter sentences are not examined.
const WORDS_MIN: usize = 3;
/// Letters from here on belong to other scripts than the Latin one, except the Vietnamese ones.
const OTHER_SCRIPTS: char = '\u{250}';
const VIETNAMESE: std::ops::RangeInclusive<char> = '\u{1E00}'..='\u{1EFF}';
/// Letters that English words seldom have.
const MARKS: &str = "äöüßéèêàáíóúñçãõåøœìòùčřžýšěłąęśćźżğışơạảấầẩậếềểệốồổộớờởợứừửựđ";

/// The commonest English words.
const ENGLISH: &str = "the a an and i you it is that to of in was for my me not do don't be have but so on with this \
    what we they he she at as are if just like your when how know about no can all or would there \
    one did had him her them then from out up think really";

/// The commonest words of other languages, one list each.
const OTHERS: [&str; 17] = [
    "der die das und ich nicht ist wie aber wir haben mir dir war alle doch schon gesagt geht danke \
     auf ein eine einen zu mit kann nachts immer weil wenn dann noch mich dich sich sind hat habe \
     hatte auch nur nach bei aus vor über unter mehr sehr hier warum niemand mein meine dein es sie \
     er ihr ihm von dem den des im am zum zur so oder",
    "no puedo la las que de por el los en con estoy hoy gracias mi me llama todos pero nada qué \
     quieres tengo nadie hablar cómo tú y esto eso una un es muy más porque cuando donde se lo le su \
     yo quiero hablando seguir al del para sobre también ya si ni hay está son era ser soy fue",
    "je ne sais pas ce que tu mais suis très la le les avec des et est une un nuit seule depuis dis \
     comprends vous nous il elle on au aux du de mon ma mes ton se qui pour dans sur plus tout bien \
     moi toi lui leur être avoir fait c'est j'ai n'est qu'il laissez tranquille si ou où y en",
    "non che di la gli notte ma so cosa fare adesso con questa ho trovato nel nessuno mi crede bene \
     va qualcosa tutta sono voglio il lo le un una e è per si ci ti se come più anche molto perché \
     quando dove mio mia io tu lui lei noi da al del della dei alla stanca parlarne solo sempre mai \
     ancora hai",
    "não eu porque os a o noite toda sei seja melhor sobre isso agora falar talvez que quero meu \
     minha de do da um uma e é com para por mais muito como mas se está estou você ele ela nós nos na \
     no em foi ser ter tem aqui nada",
    "ik weet het niet ben gewoon moe vandaag is wat je maar kan uitleggen een de van en wil naar huis \
     dat die zijn hij zij we wij er op te met voor aan ook nog wel geen als dan mijn jij heb heeft \
     was",
    "jag vet inte vad ska säga om det här och en är att som på för med av till har du han hon vi de \
     den ett min mig dig",
    "ingen har sagt det til mig og jeg vil ikke høre er at en et på med for af den du han hun vi de \
     min",
    "jeg ikke det er og en et på med for av til har du han hun vi de min",
    "nie wiem co mam o tej się że jest i w na to z do jak ale ja ty on ona my jestem mi mnie tak już \
     tylko nic",
    "bugün çok ve bir bu ne de da için ben sen o biz mi gibi ama var yok değil",
    "tôi không biết phải làm gì nữa là và của có một người này cho",
    "saya tidak tahu apa yang harus lakukan dan di ini itu untuk dengan dia kami ada akan",
    "minulla ei ole mitään siitä asiasta on ja se että en minä sinä hän mutta kun niin",
    "ne to není pravda já jsem viděl sám se že a v na je s do jak ale ty my mi tak už",
    "nu știu ce să și de la cu pe un o este sunt în că mai am ai dar",
    "nem a az és hogy van egy de én te mit már is csak",
];

/// Whether the persona is English at all is decided by the config.
#[derive(Debug, Clone)]
struct LanguageMonitor {
    retries_max: usize,
}

pub(super) fn build(config: Option<&PersonaConfig>) -> Option<Box<dyn Monitor>> {
    if config.is_some_and(|config| other_language(&config.persona.background).is_some()) {
        return None;
    }
    allowed(config, NAME, |retries_max| LanguageMonitor { retries_max })
}

impl Monitor for LanguageMonitor {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, draft: &Draft<'_>) -> Vec<MonitorFinding> {
        let found = other_language(draft.text);
        let instruction = "Answer in English, as before.";
        found.map(|found| finding(NAME, "speaks another language", &found, instruction)).into_iter().collect()
    }

    fn retries_max(&self) -> usize {
        self.retries_max
    }

    fn boxed(&self) -> Box<dyn Monitor> {
        Box::new(self.clone())
    }
}

/// A sentence of `text` in another language.
fn other_language(text: &str) -> Option<String> {
    let is_other = |c: &char| c.is_alphabetic() && *c >= OTHER_SCRIPTS && !VIETNAMESE.contains(c);
    if text.chars().filter(is_other).count() >= 2 {
        return Some(text.to_owned());
    }
    let sentences = text.unicode_sentences();
    sentences.map(str::trim).find(|sentence| is_other_sentence(sentence)).map(str::to_owned)
}

fn is_other_sentence(sentence: &str) -> bool {
    let words = words(sentence);
    if words.len() < WORDS_MIN {
        return false;
    }
    let listed = |list: &str, word: &str| list.split(' ').any(|other| other == word);
    let english = words.iter().filter(|word| listed(ENGLISH, word)).count();
    let other =
        OTHERS.iter().map(|list| words.iter().filter(|word| listed(list, word) && !listed(ENGLISH, word)).count());
    let other = other.max().unwrap_or_default();
    let marked = words.iter().filter(|word| word.chars().any(|c| MARKS.contains(c))).count();
    let share = |count: usize| count as f64 / words.len() as f64;
    let by_words =
        ((other >= 2 && english == 0) || (other >= 3 && other > english)) && share(other + marked) >= SHARE_MIN;
    by_words || (english <= 1 && share(marked) > SHARE_MIN)
}
