//! The anti-stub check: placeholders for work that was not done.

use std::sync::LazyLock;

use regex::RegexSet;

/// A line with a placeholder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stub {
    /// The line, from 1.
    pub line: usize,
    /// The kind of placeholder.
    pub what: &'static str,
}

/// Patterns with their names. They end in character classes so that this file does not match itself.
const FORMS: &[(&str, &str)] = &[
    (r"\b(?:todo|unimplemented)!\s*[(\[{]", "a macro for missing code"),
    (r#"panic!\s*\(\s*"(?i:not (?:yet )?implemented)"#, "a panic for missing code"),
    (r"\braise\s+NotImplementedError\b", "an exception for missing code"),
    (
        r#"throw\s+new\s+\w*(?:Error|Exception)\s*\(\s*["'`](?i:not (?:yet )?implemented)"#,
        "an exception for missing code",
    ),
    (r"^\s*(?:pass|\.\.\.)\s*(?:#.*)?$", "an empty body"),
    (r"(?i)(?://|#|--|/\*)\s*(?:todo|fixme|xxx)\b", "a todo comment"),
    (
        r"(?i)(?://|#|--|/\*).*\b(?:placeholder|stub(?:bed)?|dummy|for now|in a real (?:implementation|system))\b",
        "a comment that calls it a placeholder",
    ),
    (
        r"(?i)(?://|#|/\*|\.\.\.)\s*(?:\.\.\.)?\s*(?:rest of (?:the )?(?:code|file|implementation)|(?:existing|remaining) (?:code|implementation))",
        "a gap in place of code",
    ),
    (r"\bfn\s+\w+[^;{]*\)\s*(?:->\s*[^;{]+)?\{\s*\}", "an empty function"),
    (r"\bassert!?\s*\(\s*(?:true|True)\s*\)|\bassert\s+True\b", "a check that cannot fail"),
];

static SET: LazyLock<Option<RegexSet>> = LazyLock::new(|| RegexSet::new(FORMS.iter().map(|(form, _)| form)).ok());

/// The stubs in a text, by line.
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
    fn stubs_are_found_and_real_code_is_not() {
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
