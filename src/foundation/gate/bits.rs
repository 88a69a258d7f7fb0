//! Categories of effects and scopes of data, as bit sets.

use serde::{Deserialize, Serialize};

/// Declares an enum with one bit per variant, and the set type over it.
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
            /// All variants, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Its name in files and messages.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }

            /// Its description.
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
            /// The empty set.
            pub const NONE: Self = Self(0);

            /// The set of `members`.
            pub const fn of(members: &[$one]) -> Self {
                let (mut bits, mut rest) = (0, members);
                while let [first, others @ ..] = rest {
                    bits |= 1 << *first as u32;
                    rest = others;
                }
                Self(bits)
            }

            /// Whether the set contains `member`.
            pub const fn contains(self, member: $one) -> bool {
                self.0 & (1 << member as u32) != 0
            }

            /// Whether it is a subset of `other`.
            pub const fn within(self, other: Self) -> bool {
                self.0 & !other.0 == 0
            }

            /// Whether the intersection is empty.
            pub const fn is_disjoint(self, other: Self) -> bool {
                self.0 & other.0 == 0
            }

            /// The intersection.
            #[must_use]
            pub const fn meet(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }

            /// The union.
            #[must_use]
            pub const fn join(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// The difference.
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }

            /// Whether it is empty.
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// The number of members.
            pub const fn len(self) -> u32 {
                self.0.count_ones()
            }

            /// The members, in order.
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
        Rollout "rollout" "Running a rollout.",
        Score "score" "Scoring a transcript.",
        Report "report" "Writing a report.",
        Ask "ask" "Asking the user.",
        Secret "secret" "Using a secret.",
        Promote "promote" "Promoting an atom, so that assertions may cite it.",
        Publish "publish" "Publishing data outside this machine.",
        Sign "sign" "Signing on behalf of the user.",
    }
}
bit_set_operations!(Category, Categories);

impl Categories {
    /// Categories that need an approval of the exact arguments, whatever the rights.
    pub const PRIVILEGED: Self =
        Self::of(&[Category::MemoryApply, Category::Promote, Category::Publish, Category::Sign]);
    /// Categories that change something or send data out; the others only read. For writes the scope decides.
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
    /// A kind of data store.
    Scope,
    /// A set of data stores.
    Scopes {
        Workspace "workspace" "The files of the workspace.",
        Tests "tests" "The workspace's tests.",
        Notes "notes" "Notes and artifacts of the work.",
        Receipts "receipts" "The event log and its receipts.",
        State "state" "The stored control state.",
        WorkItem "work_item" "The work item.",
        Knowledge "knowledge" "The project's memory.",
        Promoted "promoted" "Promoted atoms.",
        Quarantined "quarantined" "Quarantined candidates.",
        Attacks "attacks" "Signatures of known attacks.",
        Web "web" "The public web.",
        Connectors "connectors" "External systems that the user connected.",
        Secrets "secrets" "Secrets.",
    }
}
bit_set_operations!(Scope, Scopes);

impl Scopes {
    /// A run's own notes and state; writing there affects nothing else.
    pub const OWN: Self = Self::of(&[Scope::Notes, Scope::State]);
}
