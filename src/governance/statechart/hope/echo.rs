//! The intent in one sentence, for the user to confirm.

use std::fmt;

/// The contents of the echo: the deliverable, the most important thing that it must include, and the hardest constraint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echo<'a> {
    /// What will be delivered.
    pub deliverable: &'a str,
    /// What it must include above all, if the user said so.
    pub must_include: Option<&'a str>,
    /// The hardest constraint, if any.
    pub constraint: Option<&'a str>,
}

impl fmt::Display for Echo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Drop final punctuation, so that the result is one sentence.
        let part = |text: &'_ str| text.trim().trim_end_matches(['.', '!', ';', ',']).to_owned();
        write!(f, "You want {}", part(self.deliverable))?;
        if let Some(must) = self.must_include {
            write!(f, ", with {} above all", part(must))?;
        }
        if let Some(constraint) = self.constraint {
            write!(f, ", within this constraint: {}", part(constraint))?;
        }
        f.write_str(".")
    }
}
