//! A mood's profile: everything that the spec says a mood is, as a versioned YAML file, and the rights that it compiles into.
//!
//! The shipped profiles are the widest. A user's own may narrow one; what widens it is refused with its line underlined.

mod file;
mod narrow;
mod words;

pub use words::{Check, ModelTier, OutputForm, Reach, ReceiptKind};

use self::file::File;
use self::narrow::lower;
use super::name::Mood;
use crate::foundation::base::Digest;
use crate::foundation::config::{ConfigErrors, Node, Problem, Problems, Read as _};
use crate::foundation::gate::{Categories, Category, Rights, Scope, Scopes};

/// The profiles that come with the program: name and text.
pub const SHIPPED: [(Mood, &str); 8] = [
    (Mood::Calm, include_str!("../../../configs/moods/calm.yaml")),
    (Mood::Curious, include_str!("../../../configs/moods/curious.yaml")),
    (Mood::Skeptical, include_str!("../../../configs/moods/skeptical.yaml")),
    (Mood::Paranoid, include_str!("../../../configs/moods/paranoid.yaml")),
    (Mood::Bold, include_str!("../../../configs/moods/bold.yaml")),
    (Mood::Contrite, include_str!("../../../configs/moods/contrite.yaml")),
    (Mood::Petty, include_str!("../../../configs/moods/petty.yaml")),
    (Mood::Deferential, include_str!("../../../configs/moods/deferential.yaml")),
];

/// A mood's profile, checked.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Which mood.
    pub mood: Mood,
    /// Its version.
    pub version: usize,
    /// The digest of its text: what a log names.
    pub digest: Digest,
    /// What it is for.
    pub purpose: String,
    rights: Rights,
    with_token: Categories,
    /// Children at the same time.
    pub parallel_max: usize,
    /// Models, from the first to the last resort; at least one.
    pub ladder: Vec<ModelTier>,
    /// The next model after so many failures of the same kind; 0: never.
    pub escalate_after: usize,
    /// What the strongest is for.
    pub strongest_for: String,
    /// Checks that are not optional.
    pub mandatory: Vec<Check>,
    /// Whether claims of high impact need an independent check.
    pub independent: bool,
    /// How long a promotion can be challenged, hours.
    pub challenge_hours: usize,
    /// What may come out.
    pub forms: Vec<OutputForm>,
    /// Whether everything goes to quarantine first.
    pub quarantine_first: bool,
    /// Whether new surfaces may be added.
    pub new_surfaces: bool,
    /// Iterations before whoever leads looks again.
    pub iterations_max: usize,
    /// Sources read.
    pub sources_max: usize,
    /// Questions to the user at a time.
    pub questions_max: usize,
    /// When to stop or to hand over.
    pub stop: Vec<String>,
    /// Receipts that must be left.
    pub receipts: Vec<ReceiptKind>,
}

impl Profile {
    /// Reads a profile. `shipped`, when given, has the one that it must not widen.
    ///
    /// # Errors
    /// All that is wrong, each with its place in the text.
    pub fn parse(source_name: &str, text: &str, shipped: Option<&Profiles>) -> Result<Self, ConfigErrors> {
        let root = Node::parse(source_name, text)?;
        let mut problems = Problems::new(text);
        let profile = File::read(&root, &mut problems).and_then(|file| lower(&file, text, shipped, &mut problems));
        problems.finish(source_name, profile)
    }

    /// What it allows, without any policy token.
    pub const fn rights(&self) -> &Rights {
        &self.rights
    }

    /// The kinds of effects that a policy token opens.
    pub const fn with_token(&self) -> Categories {
        self.with_token
    }

    /// What it allows once a person's word opened `privilege`, if it is one that a word opens here. What is applied to the
    /// memory is written there.
    #[must_use]
    pub fn opened(&self, privilege: Category) -> Rights {
        let mut rights = self.rights.clone();
        if self.with_token.contains(privilege) {
            rights.uses = rights.uses.join(privilege.into());
            if privilege == Category::MemoryApply {
                let memory = Scopes::from(Scope::Knowledge);
                (rights.reads, rights.writes) = (rights.reads.join(memory), rights.writes.join(memory));
            }
        }
        rights
    }

    /// The model to use after so many failures of the same kind.
    pub fn tier_after(&self, failures: usize) -> ModelTier {
        let climbed = failures.checked_div(self.escalate_after).unwrap_or(0).min(self.ladder.len().saturating_sub(1));
        self.ladder.get(climbed).copied().unwrap_or(ModelTier::Small)
    }
}

/// Eight profiles, one for each mood.
#[derive(Debug, Clone)]
pub struct Profiles(Vec<Profile>);

impl Profiles {
    /// Those that come with the program.
    ///
    /// # Errors
    /// When one of them is not sound.
    pub fn shipped() -> Result<Self, ConfigErrors> {
        let read = |(mood, text): &(Mood, &str)| {
            let name = format!("configs/moods/{}.yaml", mood.name());
            let profile = Profile::parse(&name, text, None)?;
            let misplaced = || Problem::new(0..0, format!("this is the profile of {}", profile.mood));
            if profile.mood == *mood { Ok(profile) } else { Err(ConfigErrors::new(&name, text, vec![misplaced()])) }
        };
        SHIPPED.iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// With a user's own profile in the place of the shipped one, which it may only narrow.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn narrowed(mut self, source_name: &str, text: &str) -> Result<Self, ConfigErrors> {
        let narrowed = Profile::parse(source_name, text, Some(&self))?;
        if let Some(profile) = self.0.get_mut(narrowed.mood as usize) {
            *profile = narrowed;
        }
        Ok(self)
    }

    /// The profile of a mood.
    #[expect(
        clippy::indexing_slicing,
        reason = "`shipped` alone makes one, with a profile for each mood in their order"
    )]
    pub fn of(&self, mood: Mood) -> &Profile {
        &self.0[mood as usize]
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Profile> {
        self.0.iter()
    }
}
