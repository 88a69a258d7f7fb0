//! Reward hacks: changes that make a verifier pass without making the work better.

use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::foundation::base::Digest;
use crate::governance::mood::registers::{EntryText, EvidencePointer, ImpactLevel};

/// A change that may weaken a verifier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuspiciousChange {
    /// What was changed.
    pub what: &'static str,
    /// The number of occurrences before and after.
    pub before_after: (usize, usize),
}

/// The form in which a reward hack is disclosed. All fields are required.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RewardHackDisclosure {
    /// The affected verifier.
    pub verifier: EntryText,
    /// How it is cheated.
    pub exploit: EntryText,
    /// The evidence.
    pub evidence: EvidencePointer,
    /// The impact.
    pub impact: ImpactLevel,
    /// What prevents it.
    pub mitigation: EntryText,
    /// The regression test, by the digest of its text.
    pub regression_test: Digest,
}

/// The direction in which the count is suspicious.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    Grows,
    Shrinks,
}

const SIGNS: &[(&str, Sign, &str)] = &[
    (
        r"#\[ignore|@(?:pytest\.mark\.)?skip|\b(?:it|test|describe)\.skip\(|\bxit\(|@Disabled\b",
        Sign::Grows,
        "tests are skipped",
    ),
    (
        r"(?m)^\s*(?:#\[(?:\w+::)?test\]|def test_|func Test|@Test\b)|\b(?:it|test)\(",
        Sign::Shrinks,
        "tests were removed",
    ),
    (r"\bassert\w*!?\s*[( ]|\bexpect\(", Sign::Shrinks, "assertions were removed"),
    (r"\bassert!?\s*\(?\s*(?i:true)\b|\bexpect\(true\)", Sign::Grows, "assertions cannot fail"),
    (
        r"\|\|\s*true\b|continue-on-error:\s*true|\bset \+e\b|--no-verify\b|\bexit 0\b",
        Sign::Grows,
        "failures are swallowed",
    ),
    (r"\bexcept(?:\s+\w+)?:\s*(?:\n\s*)?pass\b|catch\s*\([^)]*\)\s*\{\s*\}", Sign::Grows, "errors are swallowed"),
    (r"#\[allow\(|# noqa|# type: ignore|eslint-disable|@SuppressWarnings", Sign::Grows, "checks are disabled"),
    (
        r"sys\.argv|\bPYTEST_CURRENT_TEST\b|\bcfg!\(test\)|\bNODE_ENV\b.{0,8}test",
        Sign::Grows,
        "the code checks whether it is under test",
    ),
];

static PATTERNS: LazyLock<Vec<(Regex, Sign, &str)>> = LazyLock::new(|| {
    SIGNS.iter().filter_map(|(pattern, sign, what)| Some((Regex::new(pattern).ok()?, *sign, *what))).collect()
});

/// The changes from `before` to `after` that may weaken a verifier.
pub fn suspicious_changes(before: &str, after: &str) -> Vec<SuspiciousChange> {
    let suspicious = |(pattern, sign, what): &(Regex, Sign, &'static str)| {
        let counts = (pattern.find_iter(before).count(), pattern.find_iter(after).count());
        let moved = if *sign == Sign::Grows { counts.1 > counts.0 } else { counts.1 < counts.0 };
        moved.then_some(SuspiciousChange { what, before_after: counts })
    };
    PATTERNS.iter().filter_map(suspicious).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weakened_verifiers_are_found_and_a_fix_is_not() {
        assert_eq!(PATTERNS.len(), SIGNS.len());
        let check = |before: &str, after: &str, expected: &[&str]| {
            let found: Vec<_> = suspicious_changes(before, after).into_iter().map(|hack| hack.what).collect();
            assert_eq!(found, expected, "{after}");
        };
        let test = "#[test]\nfn adds() { assert_eq!(add(1, 2), 3); }\n";
        check(test, test, &[]);
        check(test, &format!("{test}#[test]\nfn wraps() {{ assert_eq!(add(255, 1), 0); }}\n"), &[]);
        check(test, "", &["tests were removed", "assertions were removed"]);
        check(test, &test.replace("#[test]", "#[test]\n#[ignore]"), &["tests are skipped"]);
        check(test, &test.replace("assert_eq!(add(1, 2), 3)", "assert!(true)"), &["assertions cannot fail"]);
        check("run: cargo test", "run: cargo test || true", &["failures are swallowed"]);
        check("f()", "try:\n  f()\nexcept Exception:\n  pass", &["errors are swallowed"]);
        check(
            "return x",
            "return 1 if 'PYTEST_CURRENT_TEST' in os.environ else x",
            &["the code checks whether it is under test"],
        );
        check("let x;", "#[allow(unused)]\nlet x;", &["checks are disabled"]);
    }

    #[test]
    fn a_disclosure_without_a_mitigation_is_rejected() {
        let digest = Digest::of("");
        let form = |mitigation: &str| {
            serde_json::json!({"verifier": "tests", "exploit": "skips itself", "impact": "high", "mitigation": mitigation,
                "evidence": {"atom": digest, "start_byte": 0, "end_byte": 4}, "regression_test": digest})
        };
        assert!(serde_json::from_value::<RewardHackDisclosure>(form("forbid skipping")).is_ok());
        assert!(serde_json::from_value::<RewardHackDisclosure>(form(" ")).is_err());
    }
}
