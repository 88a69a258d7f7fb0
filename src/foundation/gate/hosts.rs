//! Allowlists of host names. Names are compared whole and case-insensitively; patterns are not supported.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// An allowlist of host names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hosts {
    /// No host.
    #[default]
    None,
    /// These hosts; sorted, lower case.
    Only(Arc<[String]>),
    /// No restriction. In a mood's rights this leaves the decision to the lease.
    Granted,
}

impl Hosts {
    /// These hosts.
    pub fn only<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Self {
        let mut names: Vec<_> = names.into_iter().map(|name| name.as_ref().to_ascii_lowercase()).collect();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() { Self::None } else { Self::Only(names.into()) }
    }

    /// Whether `host` is allowed.
    pub fn contains(&self, host: &str) -> bool {
        match self {
            Self::None => false,
            Self::Only(names) => names.iter().any(|name| name.eq_ignore_ascii_case(host)),
            Self::Granted => true,
        }
    }

    /// Whether it is a subset of `other`.
    pub fn within(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None, _) | (_, Self::Granted) => true,
            (Self::Only(names), other) => names.iter().all(|name| other.contains(name)),
            (Self::Granted, _) => false,
        }
    }

    /// The intersection.
    #[must_use]
    pub fn meet(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::None, _) | (_, Self::None) => Self::None,
            (Self::Granted, hosts) | (hosts, Self::Granted) => hosts.clone(),
            (Self::Only(names), other) => Self::only(names.iter().filter(|name| other.contains(name))),
        }
    }
}
