use proptest::prelude::*;

use super::*;

fn check(text: &str, expected: &[(&str, &[(&str, &str)])]) {
    let document = Document::parse(text);
    let found: Vec<_> = document
        .blocks()
        .map(|block| {
            let fields = block.fields().iter().map(|field| (field.key, field.value().into_owned())).collect::<Vec<_>>();
            (block.id().as_str(), fields)
        })
        .collect();
    let expected: Vec<_> = expected
        .iter()
        .map(|(id, fields)| (*id, fields.iter().map(|(key, value)| (*key, (*value).to_owned())).collect::<Vec<_>>()))
        .collect();
    assert_eq!(found, expected);
    assert_eq!(document.to_string(), text);
}

fn findings(text: &str) -> Vec<(usize, &'static str)> {
    Document::parse(text).findings().iter().map(|finding| (finding.line, finding.code)).collect()
}

#[test]
fn a_block_is_a_header_with_fields() {
    check(
        "prose: ignored\n\n[D-001]\nDate: 2026-02-13\nStatement: a: b: c\nmy_key: x\nEmpty:\n\n[T-20260213-001]\nTitle: Überprüfe 🚀",
        &[
            ("D-001", &[("Date", "2026-02-13"), ("Statement", "a: b: c"), ("my_key", "x"), ("Empty", "")]),
            ("T-20260213-001", &[("Title", "Überprüfe 🚀")]),
        ],
    );
}

#[test]
fn continuations_lose_two_spaces() {
    check(
        "[D-001]\nStatement: one\n  two\n    three\nTags: x\n",
        &[("D-001", &[("Statement", "one\ntwo\n  three"), ("Tags", "x")])],
    );
}

#[test]
fn a_byte_order_mark_and_crlf_are_preserved() {
    check(
        "\u{feff}[D-001]\r\nDate: x\r\n  y\r\nSources:\r\n- a\r\n",
        &[("D-001", &[("Date", "x\ny"), ("Sources", "")])],
    );
    let text = "\u{feff}[D-001]\r\nSources:\r\n- a\r\n- b";
    let document = Document::parse(text);
    assert_eq!(document.line_end(), "\r\n");
    assert_eq!(document.block("D-001").unwrap().words("Sources"), ["a", "b"]);
}

#[test]
fn items_keep_their_nested_lines() {
    let document = Document::parse("[D-001]\nSources:\n- one\n  wrapped\n  - nested\n- two\nTags: a, [b], none\n");
    let block = document.block("D-001").unwrap();
    assert_eq!(block.words("Sources"), ["one\nwrapped\n- nested", "two"]);
    assert_eq!(block.words("Tags"), ["a", "[b]"]);
}

#[test]
fn a_nested_text_continues_after_a_blank_line() {
    let document = Document::parse("[P-001]\nOps:\n- op: x\n  patch: |\n    [D-001]\n\n    [D-002]\nStatus: staged\n");
    assert!(document.findings().is_empty(), "{:?}", document.findings());
    let block = document.block("P-001").unwrap();
    assert_eq!(block.words("Ops"), ["op: x\npatch: |\n  [D-001]\n\n  [D-002]"]);
    assert_eq!(block.head("Status"), "staged");
}

#[test]
fn fields_are_not_attached_to_the_previous_block() {
    check(
        "[D-001]\nA: x\n[D-1000]\nB: y\n---\nC: z\n[T-001]\nD: v\n---\nE: w\n",
        &[("D-001", &[("A", "x")]), ("T-001", &[("D", "v")])],
    );
}

#[test]
fn a_malformed_line_is_reported_with_its_number() {
    let text = "[D-001]\nA: x\n\n  late\n\ttab\nB:no space\nprose\nC: v\n- item\nC: again\n[X-001]\nD: d\n [D-002]\n[D-003] more\n[text](link)\n[D-004]\n---\nDate: e\n";
    assert_eq!(
        findings(text),
        [
            (4, "line"),
            (5, "line"),
            (6, "key"),
            (7, "line"),
            (9, "line"),
            (10, "duplicate-field"),
            (11, "header"),
            (13, "header"),
            (14, "header"),
            (18, "orphan"),
        ]
    );
}

#[test]
fn a_diagnostic_underlines_its_line() {
    let text = "# Decisions\n\n[D-001]\nDate: 2026-02-13\nStatus:active\n[D-2]\nTags: x\n";
    let document = Document::parse(text);
    let shown: Vec<_> = document
        .findings()
        .iter()
        .map(|finding| (&text[finding.span.clone()], finding.block.as_str(), finding.message.as_str()))
        .collect();
    assert_eq!(
        shown,
        [("Status:active", "D-001", "no space after `Status:`"), ("[D-2]", "", "`[D-2]` is not a block header")]
    );
}

#[test]
fn prose_after_a_block_is_no_error() {
    let text = "[D-001]\nDate: x\nSources:\n- a\n\nSome prose, and a list:\n\n- one\n  two\nNote: not a field\n\n[D-002]\nTags: t\n";
    check(text, &[("D-001", &[("Date", "x"), ("Sources", "")]), ("D-002", &[("Tags", "t")])]);
    assert_eq!(findings(text), []);
    // A field below the prose is not part of the block, and that is reported.
    assert_eq!(findings("[D-001]\nDate: x\n\nSome prose.\n\nStatus: active\n"), [(6, "orphan")]);
    assert_eq!(findings("[D-001]\nDate: x\n\nSome prose.\n\n- id: CS-1\n"), [(6, "orphan")]);
    assert_eq!(findings("ConstraintSignatures:\n- id: CS-1\n"), [(1, "orphan"), (2, "orphan")]);
}

#[test]
fn a_list_may_be_loose_and_a_key_may_be_part_of_its_last_item() {
    let text = "[D-001]\nSources:\n\n- a\n\n- b\n  c\n  Tags: t\n  Status: active\n";
    let document = Document::parse(text);
    let block = document.block("D-001").unwrap();
    assert_eq!(document.findings(), []);
    assert_eq!(block.words("Sources"), ["a\n", "b\nc"]);
    assert_eq!((block.head("Tags"), block.head("Status")), ("t", "active"));
    // A key that the block has already is text of the item.
    let document = Document::parse("[D-001]\nStatus: active\nHistory:\n- moved\n  Status: done\n");
    assert_eq!(document.block("D-001").unwrap().words("History"), ["moved\nStatus: done"]);
}

#[test]
fn a_header_that_a_formatter_hid_is_reported() {
    for header in ["## [D-002] Date: x", "\\[D-002\\]", "> [D-002]", "**[D-002]**", "[D-002] Date: x"] {
        let text = format!("[D-001]\nDate: x\n\n{header}\n");
        assert_eq!(findings(&text), [(4, "header")], "{header}");
    }
    for harmless in
        ["## About D-002", "> quoted", "**bold**", "\\* star", "[[D-002]] is linked", "[D-002](x) is linked"]
    {
        assert_eq!(findings(&format!("[D-001]\nDate: x\n\n{harmless}\n")), [], "{harmless}");
    }
    for separator in ["---", "***", "_____", "- - -"] {
        let text = format!("[D-001]\nDate: x\n\n{separator}\nprose\n");
        assert_eq!(findings(&text), [], "{separator}");
    }
}

proptest! {
    #[test]
    fn every_text_prints_as_it_was_read(text in r"(\[?(D-001|T-1|-{3})?\]?|[A-C]:?|  |- |\r?\n|\PC|\u{feff}){0,80}") {
        let document = Document::parse(&text);
        prop_assert_eq!(document.to_string(), text.clone());
        for block in document.blocks() {
            prop_assert!(block.text().starts_with('['));
            for field in block.fields() {
                prop_assert_eq!(&text[field.key_range()], field.key);
                prop_assert_eq!(&text[field.body_start..field.range().end], field.body);
                for item in field.items() {
                    prop_assert_eq!(&text[item.start..item.start + item.text.len()], item.text);
                }
            }
        }
    }
}
