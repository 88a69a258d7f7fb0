//! What is wrong with a text, and where: one type for the parser's diagnostics and for the validator's checks.

use std::ops::Range;

use serde::Serialize;

/// How much a [`Finding`] weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Worth a look; nothing is refused for it.
    Warning,
    /// The workspace breaks the specification.
    Error,
}

/// Something wrong at a place in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A short stable name: `S1` to `S9` for the structural invariants, a word for the grammar.
    pub code: &'static str,
    /// Error or warning.
    pub level: Level,
    /// The file, relative to the workspace; empty while only a text is known.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The bytes to underline.
    pub span: Range<usize>,
    /// The block it is about, if any.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub block: String,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: String,
}

impl Finding {
    /// What stays the same when the text around it moves: used to tell new findings from standing ones.
    pub fn identity(&self) -> (&'static str, &str, &str, &str) {
        (self.code, &self.file, &self.block, &self.message)
    }

    /// The finding as a diagnostic over `text`, the file's content.
    pub fn diagnostic(&self, text: &str) -> miette::Report {
        let label = miette::LabeledSpan::at(self.span.clone(), self.code);
        let severity = if self.level == Level::Error { miette::Severity::Error } else { miette::Severity::Warning };
        let diagnostic = miette::MietteDiagnostic::new(self.message.clone())
            .with_code(format!("memory::{}", self.code))
            .with_severity(severity)
            .with_label(label)
            .with_help(self.help.clone());
        miette::Report::new(diagnostic).with_source_code(miette::NamedSource::new(&self.file, text.to_owned()))
    }
}
