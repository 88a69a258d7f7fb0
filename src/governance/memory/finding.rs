//! Problems found in a text, with their location: used for the parser's diagnostics and for the validator's checks.

use std::ops::Range;

use serde::Serialize;

/// The severity of a [`Finding`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingLevel {
    /// A warning: nothing is rejected because of it.
    Warning,
    /// The workspace breaks the specification.
    Error,
}

/// A problem at a location in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A short stable name: `S1` to `S9` for the structural invariants, a word for the grammar.
    pub code: &'static str,
    /// Error or warning.
    pub level: FindingLevel,
    /// The file, relative to the workspace; empty for a text without a file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The bytes to underline.
    pub span: Range<usize>,
    /// The block it is about, if any.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub block: String,
    /// The problem.
    pub message: String,
    /// How to fix it.
    pub help: String,
}

impl Finding {
    /// The parts that do not depend on the position in the text; used to tell new findings from existing ones.
    pub fn identity(&self) -> (&'static str, &str, &str, &str) {
        (self.code, &self.file, &self.block, &self.message)
    }

    /// The finding as a diagnostic over `text`, the file's content.
    pub fn diagnostic(&self, text: &str) -> miette::Report {
        let label = miette::LabeledSpan::at(self.span.clone(), self.code);
        let severity =
            if self.level == FindingLevel::Error { miette::Severity::Error } else { miette::Severity::Warning };
        let diagnostic = miette::MietteDiagnostic::new(self.message.clone())
            .with_code(format!("memory::{}", self.code))
            .with_severity(severity)
            .with_label(label)
            .with_help(self.help.clone());
        miette::Report::new(diagnostic).with_source_code(miette::NamedSource::new(&self.file, text.to_owned()))
    }
}
