//! The anti-stub gate: what stands for work that was not done.

use std::sync::LazyLock;

use regex::RegexSet;

/// A line that stands for work that was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stub {
    /// The line, from 1.
    pub line: usize,
    /// What it is.
    pub what: &'static str,
}

/// What a stub looks like, and what it is called. Patterns end in classes, so that this file is none.
const FORMS: &[(&str, &str)] = &[
    (r"\b(?:todo|unimplemented)!\s*[(\[{]", "a macro for what is not written"),
    (r#"panic!\s*\(\s*"(?i:not (?:yet )?implemented)"#, "a panic for what is not written"),
    (r"\braise\s+NotImplementedError\b", "an exception for what is not written"),
    (
        r#"throw\s+new\s+\w*(?:Error|Exception)\s*\(\s*["'`](?i:not (?:yet )?implemented)"#,
        "an exception for what is not written",
    ),
    (r"^\s*(?:pass|\.\.\.)\s*(?:#.*)?$", "an empty body"),
    (r"(?i)(?://|#|--|/\*)\s*(?:todo|fixme|xxx)\b", "a note that something is to be done"),
    (
        r"(?i)(?://|#|--|/\*).*\b(?:placeholder|stub(?:bed)?|dummy|for now|in a real (?:implementation|system))\b",
        "a comment that calls it a stand-in",
    ),
    (
        r"(?i)(?://|#|/\*|\.\.\.)\s*(?:\.\.\.)?\s*(?:rest of (?:the )?(?:code|file|implementation)|(?:existing|remaining) (?:code|implementation))",
        "a gap where code should be",
    ),
    (r"\bfn\s+\w+[^;{]*\)\s*(?:->\s*[^;{]+)?\{\s*\}", "an empty function"),
    (r"\bassert!?\s*\(\s*(?:true|True)\s*\)|\bassert\s+True\b", "a check that cannot fail"),
];

static SET: LazyLock<Option<RegexSet>> = LazyLock::new(|| RegexSet::new(FORMS.iter().map(|(form, _)| form)).ok());

/// The stubs in a touched file, by line.
pub fn stubs(text: &str) -> Vec<Stub> {
    let Some(set) = SET.as_ref() else { return Vec::new() };
    let lines = (1..).zip(text.lines());
    lines
        .filter_map(|(line, text)| {
            let (_, what) = FORMS.get(set.matches(text).iter().next()?)?;
            Some(Stub { line, what })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_compiles_and_work_is_no_stub() {
        assert!(SET.is_some());
        let check = |text: &str, expected: &[usize]| {
            let found: Vec<_> = stubs(text).into_iter().map(|stub| stub.line).collect();
            assert_eq!(found, expected, "{text}");
        };
        check(&format!("fn a() {{\n    {}!()\n}}", "todo"), &[2]);
        check("def a():\n    pass\n\ndef b():\n    raise NotImplementedError\n", &[2, 5]);
        check("fn a() -> u8 { 7 }\n// The placeholder {name} is filled in.\n", &[2]);
        check("fn a() {}\n", &[1]);
        check("throw new Error('Not implemented')\n// ... rest of the code\nassert True\n", &[1, 2, 3]);
        check("# TODO: later\n", &[1]);
        check("struct Unit {}\nimpl Lock for File {}\nlet pass = 3;\n/// A todo list for people.\n", &[]);
    }
}
