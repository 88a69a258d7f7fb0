//! Mood profiles: versioned YAML files, and the rights they compile into.
//!
//! The shipped profiles are the upper bound. A user's profile may only narrow one; wider values are reported with their
//! line.

mod file;
mod narrow;
mod vocabulary;

pub use vocabulary::{HostAccess, ModelTier, OutputForm, ReceiptKind, VerifierCheck};

use self::file::File;
use self::narrow::lower;
use super::name::Mood;
use crate::foundation::base::Digest;
use crate::foundation::config::{ConfigErrors, FromNode as _, Node, Problem, Problems};
use crate::foundation::gate::{Categories, Category, Rights, Scope, Scopes};

/// The shipped profiles as text.
pub const SHIPPED_PROFILES: [(Mood, &str); 8] = [
    (Mood::Calm, include_str!("../../../configs/moods/calm.yaml")),
    (Mood::Curious, include_str!("../../../configs/moods/curious.yaml")),
    (Mood::Skeptical, include_str!("../../../configs/moods/skeptical.yaml")),
    (Mood::Paranoid, include_str!("../../../configs/moods/paranoid.yaml")),
    (Mood::Bold, include_str!("../../../configs/moods/bold.yaml")),
    (Mood::Contrite, include_str!("../../../configs/moods/contrite.yaml")),
    (Mood::Petty, include_str!("../../../configs/moods/petty.yaml")),
    (Mood::Deferential, include_str!("../../../configs/moods/deferential.yaml")),
];

/// A validated mood profile.
#[derive(Debug, Clone)]
pub struct MoodProfile {
    /// The mood.
    pub mood: Mood,
    /// The version.
    pub version: usize,
    /// The digest of its text, as recorded in logs.
    pub digest: Digest,
    /// The purpose.
    pub purpose: String,
    rights: Rights,
    with_token: Categories,
    /// The maximum number of children at a time.
    pub parallel_max: usize,
    /// Model tiers in order of escalation; at least one.
    pub ladder: Vec<ModelTier>,
    /// The number of failures of the same kind before the next tier is used; 0: never.
    pub escalate_after: usize,
    /// The purpose of the strongest tier.
    pub strongest_for: String,
    /// Required checks.
    pub mandatory: Vec<VerifierCheck>,
    /// Whether claims of high impact need an independent check.
    pub independent: bool,
    /// The period in which a promotion can be challenged, in hours.
    pub challenge_hours: usize,
    /// Permitted forms of output.
    pub forms: Vec<OutputForm>,
    /// Whether everything goes to quarantine first.
    pub quarantine_first: bool,
    /// Whether new surfaces may be added.
    pub new_surfaces: bool,
    /// The maximum number of iterations before a review.
    pub iterations_max: usize,
    /// The maximum number of sources.
    pub sources_max: usize,
    /// The maximum number of questions at a time.
    pub questions_max: usize,
    /// Conditions for stopping or changing the mood.
    pub stop: Vec<String>,
    /// Required receipts.
    pub receipts: Vec<ReceiptKind>,
}

impl MoodProfile {
    /// Reads a profile. With `shipped`, it must not exceed the shipped profile of its mood.
    ///
    /// # Errors
    /// All problems, each with its location.
    pub fn parse(source_name: &str, text: &str, shipped: Option<&MoodProfiles>) -> Result<Self, ConfigErrors> {
        let root = Node::parse(source_name, text)?;
        let mut problems = Problems::new(text);
        let profile = File::read(&root, &mut problems).and_then(|file| lower(&file, text, shipped, &mut problems));
        problems.finish(source_name, profile)
    }

    /// The rights without a policy token.
    pub const fn rights(&self) -> &Rights {
        &self.rights
    }

    /// The categories that a policy token allows.
    pub const fn with_token(&self) -> Categories {
        self.with_token
    }

    /// The rights with an approval for `privilege`, if this mood allows it. For memory changes this includes reading and
    /// writing the memory.
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

    /// The model tier after this many failures of the same kind.
    pub fn tier_after(&self, failures: usize) -> ModelTier {
        let climbed = failures.checked_div(self.escalate_after).unwrap_or(0).min(self.ladder.len().saturating_sub(1));
        self.ladder.get(climbed).copied().unwrap_or(ModelTier::Small)
    }
}

/// One profile per mood.
#[derive(Debug, Clone)]
pub struct MoodProfiles(Vec<MoodProfile>);

impl MoodProfiles {
    /// The shipped profiles.
    ///
    /// # Errors
    /// If one of them is not valid.
    pub fn shipped() -> Result<Self, ConfigErrors> {
        let read = |(mood, text): &(Mood, &str)| {
            let name = format!("configs/moods/{}.yaml", mood.name());
            let profile = MoodProfile::parse(&name, text, None)?;
            let misplaced = || Problem::new(0..0, format!("this is the profile of {}", profile.mood));
            if profile.mood == *mood { Ok(profile) } else { Err(ConfigErrors::new(&name, text, vec![misplaced()])) }
        };
        SHIPPED_PROFILES.iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Replaces a shipped profile by a user's profile, which may only narrow it.
    ///
    /// # Errors
    /// All problems of the profile.
    pub fn narrowed(mut self, source_name: &str, text: &str) -> Result<Self, ConfigErrors> {
        let narrowed = MoodProfile::parse(source_name, text, Some(&self))?;
        if let Some(profile) = self.0.get_mut(narrowed.mood as usize) {
            *profile = narrowed;
        }
        Ok(self)
    }

    /// The profile of a mood.
    #[expect(clippy::indexing_slicing, reason = "`shipped` alone creates it, with one profile per mood in their order")]
    pub fn of(&self, mood: Mood) -> &MoodProfile {
        &self.0[mood as usize]
    }

    /// All profiles.
    pub fn iter(&self) -> impl Iterator<Item = &MoodProfile> {
        self.0.iter()
    }
}
