//! Tool categories and data scopes, each as one bit of a machine word.

use serde::{Deserialize, Serialize};

/// An enum whose every variant is a bit, and the set of them.
macro_rules! bit_set {
    ($(#[$meta:meta])* $one:ident, $(#[$set_meta:meta])* $set:ident { $($variant:ident $word:literal $meaning:literal,)* }) => {
        $(#[$meta])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
        )]
        #[serde(rename_all = "snake_case")]
        #[schemars(rename_all = "snake_case")]
        pub enum $one {
            $(#[doc = $meaning] $variant,)*
        }

        crate::config_choices! { $one { $($word => $variant),* } }

        impl $one {
            /// All of them, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Its name in files and messages.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }

            /// What it stands for.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning),* }
            }
        }

        $(#[$set_meta])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $set(u32);
    };
}

/// The operations of a set of bits.
macro_rules! bit_set_operations {
    ($one:ident, $set:ident) => {
        impl $set {
            /// None of them.
            pub const NONE: Self = Self(0);

            /// Those given.
            pub const fn of(members: &[$one]) -> Self {
                let (mut bits, mut rest) = (0, members);
                while let [first, others @ ..] = rest {
                    bits |= 1 << *first as u32;
                    rest = others;
                }
                Self(bits)
            }

            /// Whether `member` is in it.
            pub const fn contains(self, member: $one) -> bool {
                self.0 & (1 << member as u32) != 0
            }

            /// Whether all of it is in `other`.
            pub const fn within(self, other: Self) -> bool {
                self.0 & !other.0 == 0
            }

            /// Whether nothing is in both.
            pub const fn is_disjoint(self, other: Self) -> bool {
                self.0 & other.0 == 0
            }

            /// What is in both.
            #[must_use]
            pub const fn meet(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }

            /// What is in either.
            #[must_use]
            pub const fn join(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// What is in it and not in `other`.
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }

            /// Whether nothing is in it.
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// How many are in it.
            pub const fn len(self) -> u32 {
                self.0.count_ones()
            }

            /// What is in it, in order.
            pub fn iter(self) -> impl Iterator<Item = $one> {
                $one::ALL.iter().copied().filter(move |member| self.contains(*member))
            }
        }

        impl From<$one> for $set {
            fn from(member: $one) -> Self {
                Self::of(&[member])
            }
        }

        impl FromIterator<$one> for $set {
            fn from_iter<I: IntoIterator<Item = $one>>(members: I) -> Self {
                members.into_iter().fold(Self::NONE, |set, member| set.join(member.into()))
            }
        }

        impl Serialize for $set {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_seq(self.iter())
            }
        }

        impl<'de> Deserialize<'de> for $set {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Vec::<$one>::deserialize(deserializer).map(Self::from_iter)
            }
        }

        impl std::fmt::Display for $set {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                if self.is_empty() {
                    return f.write_str("nothing");
                }
                for (index, member) in self.iter().enumerate() {
                    write!(f, "{}{}", if index == 0 { "" } else { ", " }, member.name())?;
                }
                Ok(())
            }
        }

        impl std::fmt::Display for $one {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

bit_set! {
    /// A kind of effect.
    Category,
    /// A set of kinds of effects.
    Categories {
        Read "read" "Reading files.",
        Write "write" "Writing files.",
        Exec "exec" "Running a command.",
        Network "network" "Reaching a host.",
        Model "model" "Calling a model.",
        MemoryRead "memory_read" "Searching the memory.",
        MemoryPropose "memory_propose" "Proposing a change of the memory.",
        MemoryApply "memory_apply" "Applying a proposal to the memory.",
        Rollout "rollout" "Letting personas talk.",
        Score "score" "Scoring what was said.",
        Report "report" "Writing a report.",
        Ask "ask" "Asking the user.",
        Secret "secret" "Using a secret.",
        Promote "promote" "Making an atom one that assertions may cite.",
        Publish "publish" "Giving something out of the house.",
        Sign "sign" "Signing in the user's name.",
    }
}
bit_set_operations!(Category, Categories);

impl Categories {
    /// What needs an approval of the exact arguments, whatever the rights say.
    pub const PRIVILEGED: Self =
        Self::of(&[Category::MemoryApply, Category::Promote, Category::Publish, Category::Sign]);
    /// What changes something or lets something out; the rest only looks. For writing, the store tells.
    pub const ACTING: Self = Self::of(&[
        Category::Exec,
        Category::Network,
        Category::MemoryApply,
        Category::Secret,
        Category::Promote,
        Category::Publish,
        Category::Sign,
    ]);
}

bit_set! {
    /// A store of data.
    Scope,
    /// A set of stores.
    Scopes {
        Workspace "workspace" "The files that are worked on.",
        Tests "tests" "The workspace's tests.",
        Notes "notes" "Notes and artifacts beside the work.",
        Receipts "receipts" "The event log and its receipts.",
        State "state" "The projection of the control state.",
        WorkItem "work_item" "The item of work.",
        Knowledge "knowledge" "The project's own memory.",
        Promoted "promoted" "Promoted atoms.",
        Quarantined "quarantined" "Quarantined candidates.",
        Attacks "attacks" "Signatures of known attacks.",
        Web "web" "The public web.",
        Connectors "connectors" "Other people's systems that the user opened.",
        Secrets "secrets" "Secrets.",
    }
}
bit_set_operations!(Scope, Scopes);

impl Scopes {
    /// A run's account of itself: writing there changes nothing but that.
    pub const OWN: Self = Self::of(&[Scope::Notes, Scope::State]);
}
