//! Problems in a config, with position, message and help.

use std::fmt;
use std::sync::Arc;

use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode};

use super::span::Span;

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Its position.
    pub span: Span,
    /// The message.
    pub message: String,
    /// A label at the underlined text.
    pub label: Option<String>,
    /// How to fix it.
    pub help: Option<String>,
}

impl Problem {
    /// A problem at `span`.
    pub fn new(span: Span, message: impl Into<String>) -> Self {
        Self { span, message: message.into(), label: None, help: None }
    }

    /// Adds a label at the underlined text.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Adds how to fix it.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// Collects problems while a config is parsed, so that all are reported together.
#[derive(Debug)]
pub struct Problems<'a> {
    text: &'a str,
    found: Vec<Problem>,
    failed: Vec<(Span, String)>,
}

impl<'a> Problems<'a> {
    /// An empty collection for a config with this source text.
    pub const fn new(text: &'a str) -> Self {
        Self { text, found: Vec::new(), failed: Vec::new() }
    }

    /// Adds a problem.
    pub fn add(&mut self, problem: Problem) {
        self.found.push(problem);
    }

    /// Records that the value of `key` in the mapping at `record` could not be parsed.
    pub(super) fn fail(&mut self, record: &Span, key: &str) {
        self.failed.push((record.clone(), key.to_owned()));
    }

    /// Whether `key` is present in the mapping at `record` but could not be parsed, and so must not be reported as missing.
    pub fn failed(&self, record: &Span, key: &str) -> bool {
        self.failed.iter().any(|(span, failed)| span == record && failed == key)
    }

    /// Whether there are no problems so far.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// The source text at `span`.
    pub fn source(&self, span: &Span) -> &'a str {
        self.text.get(span.clone()).unwrap_or_default()
    }

    /// The position of the first `needle` at or after the start of `span`, else `span`. Finds a word inside a block
    /// scalar, whose characters do not map one to one to the source.
    pub fn find(&self, span: &Span, needle: &str) -> Span {
        let rest = self.text.get(span.start..).unwrap_or_default();
        rest.find(needle).map_or(span.clone(), |offset| span.start + offset..span.start + offset + needle.len())
    }

    /// `value` if there are no problems, else all problems in the order of the text.
    ///
    /// # Errors
    /// If there are problems.
    pub fn finish<T>(self, source_name: &str, value: Option<T>) -> Result<T, ConfigErrors> {
        match value {
            Some(value) if self.found.is_empty() => Ok(value),
            _ => Err(ConfigErrors::new(source_name, self.text, self.found)),
        }
    }
}

/// All problems of one config. Rendered by miette, each problem underlines its source text.
#[derive(Debug)]
pub struct ConfigErrors {
    source_name: String,
    text: Arc<NamedSource<String>>,
    problems: Vec<SourceProblem>,
}

impl ConfigErrors {
    /// The problems of the config called `source_name`, sorted by position.
    pub fn new(source_name: &str, text: &str, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| problem.span.start);
        problems.dedup();
        let source = Arc::new(NamedSource::new(source_name, text.to_owned()).with_language("yaml"));
        let problems = problems
            .into_iter()
            .map(|mut problem| {
                problem.span = visible(text, &problem.span);
                SourceProblem { problem, source: (!text.is_empty()).then(|| Arc::clone(&source)) }
            })
            .collect();
        Self { source_name: source_name.to_owned(), text: source, problems }
    }

    /// The problems, in the order of the text.
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter().map(|located| &located.problem)
    }

    /// The name of the config.
    pub fn source_name(&self) -> &str {
        &self.source_name
    }

    /// Line and column of a byte offset, both from 1, columns in characters.
    pub fn line_column(&self, offset: usize) -> (usize, usize) {
        let before = self.text.inner().get(..offset).unwrap_or_default();
        let line = before.rsplit('\n').next().unwrap_or_default();
        (before.matches('\n').count() + 1, line.chars().count() + 1)
    }
}

/// The part of `span` on its first line; if the span is empty, the rest of that line.
fn visible(text: &str, span: &Span) -> Span {
    let start = span.start.min(text.len());
    let Some(rest) = text.get(start..) else { return 0..0 };
    let line = rest.lines().next().unwrap_or_default().trim_end().len();
    let wanted = span.end.saturating_sub(start);
    let length = if wanted == 0 { line } else { wanted.min(line.max(1)) };
    start..(start + length).min(text.len())
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.problems.len();
        write!(f, "{}: {count} problem{}", self.source_name, if count == 1 { "" } else { "s" })
    }
}

impl std::error::Error for ConfigErrors {}

impl Diagnostic for ConfigErrors {
    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn Diagnostic> + 'a>> {
        Some(Box::new(self.problems.iter().map(|problem| problem as &dyn Diagnostic)))
    }
}

/// A problem with its source text.
#[derive(Debug)]
struct SourceProblem {
    problem: Problem,
    source: Option<Arc<NamedSource<String>>>,
}

impl fmt::Display for SourceProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem.message)
    }
}

impl std::error::Error for SourceProblem {}

impl Diagnostic for SourceProblem {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.problem.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.source.as_deref().map(|source| source as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        self.source.as_ref()?;
        let Problem { span, label, .. } = &self.problem;
        let at = LabeledSpan::new(Some(label.clone().unwrap_or_else(|| "here".to_owned())), span.start, span.len());
        Some(Box::new(std::iter::once(at)))
    }
}
