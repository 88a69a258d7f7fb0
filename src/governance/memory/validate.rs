//! The structural invariants S1 to S9 (Mind Mem 1.0.3, §6), for one file at a time. S8 (daily logs are append-only) is
//! enforced by [`super::authority::LogWriter`].

use std::collections::HashSet;
use std::ops::Range;

use jiff::civil::Date;

use super::finding::{Finding, FindingLevel};
use super::id::{BlockId, BlockKind, ids_in};
use super::parse::{Block, Document, SIGNATURE_KEYS};
use super::proposal;
use super::signature::{self, Signature};
use super::texts::ParsedTexts;

/// All findings in the file `name`, from the parser and from the invariants, in text order.
pub fn validate(name: &str, document: &Document<'_>) -> Vec<Finding> {
    let mut checks = Checks { name, found: document.findings().to_vec() };
    let mut seen = HashSet::with_capacity(document.blocks().len());
    for block in document.blocks() {
        if !seen.insert(block.id()) {
            let message = format!("{} is defined twice in this file", block.id());
            checks.error(&block, "S1", block.id_range(), message, "give one of them the next free counter");
        }
        checks.block(&block);
    }
    for finding in &mut checks.found {
        name.clone_into(&mut finding.file);
    }
    checks.found.sort_by_key(|finding| finding.span.start);
    checks.found
}

/// References to blocks that do not exist, in all files: errors in the fields that hold nothing but references, warnings in
/// prose. Signatures refer to each other by `composes_with`.
pub fn dangling(parsed: &ParsedTexts<'_>) -> Vec<Finding> {
    const REFERENCES: [&str; 9] = [
        "Supersedes",
        "AlignsWith",
        "Dependencies",
        "Project",
        "DecisionA",
        "DecisionB",
        "TargetBlock",
        "Target",
        "Reaches",
    ];
    let known: HashSet<&str> = parsed.blocks().map(|(_, block)| block.id().as_str()).collect();
    let blocks = || parsed.blocks().filter(|(path, _)| !path.starts_with("intelligence/"));
    let signatures: HashSet<String> =
        blocks().flat_map(|(_, block)| Signature::of(&block)).map(|signature| signature.id().to_owned()).collect();
    let mut found = Vec::new();
    for (path, block) in blocks() {
        let mut checks = Checks { name: path, found: Vec::new() };
        for field in block.fields() {
            // An operation names the block that it creates.
            if matches!(field.key, "Ops" | "Action" | "DIFF") || SIGNATURE_KEYS.contains(&field.key) {
                continue;
            }
            let mut told = HashSet::new();
            let ids = ids_in(field.head).chain(ids_in(field.body)).map(BlockId::as_str);
            for id in ids.filter(|id| !known.contains(id) && *id != block.id().as_str()) {
                // Signals and proposals are cited as sources after they were cleared away.
                let cleared = id.starts_with("SIG-") || id.starts_with("P-");
                if !cleared && told.insert(id) {
                    let message = format!("`{}` of {} names {id}, which does not exist", field.key, block.id());
                    let help = "correct the id, restore the block, or write `none`";
                    if REFERENCES.contains(&field.key) {
                        checks.error(&block, "dangling", field.key_range(), message, help);
                    } else {
                        checks.warn(&block, "dangling", field.key_range(), message, help);
                    }
                }
            }
        }
        for signature in Signature::of(&block) {
            for other in signature.others().iter().filter(|other| !signatures.contains(other.as_ref())) {
                let message = format!("signature {} composes with {other}, which does not exist", signature.id());
                checks.warn(&block, "dangling", signature.span.clone(), message, "correct the id");
            }
        }
        found.extend(checks.found);
    }
    found
}

struct Checks<'n> {
    name: &'n str,
    found: Vec<Finding>,
}

impl Checks<'_> {
    fn block(&mut self, block: &Block<'_, '_>) {
        let kind = block.id().kind();
        let code = match kind {
            BlockKind::Decision => "S2",
            BlockKind::Task => "S3",
            _ => "required",
        };
        for key in kind.required() {
            match block.field(key) {
                None => {
                    let help = format!("add a line `{key}: …`; write `none` if there is no value");
                    self.error(block, code, block.id_range(), format!("{} has no `{key}`", block.id()), &help);
                }
                Some(field) if field.is_empty() && *key == "Sources" => {
                    let help = "add where it comes from as `- item` lines: no source, no claim (M3)";
                    self.warn(block, "M3", field.key_range(), format!("{} has no source", block.id()), help);
                }
                Some(_) => {}
            }
        }
        self.status(block, kind);
        self.dates(block);
        match kind {
            BlockKind::Decision => self.decision(block),
            BlockKind::Task => self.task(block),
            BlockKind::Proposal => {
                if let Err(reason) = proposal::Proposal::read(block) {
                    let help = "propose it again with `loom memory propose`, which writes every field";
                    self.error(block, "proposal", block.id_range(), format!("{}: {reason}", block.id()), help);
                }
            }
            _ => {}
        }
    }

    fn status(&mut self, block: &Block<'_, '_>, kind: BlockKind) {
        let allowed = kind.statuses();
        let Some(field) = block.field("Status").filter(|_| !allowed.is_empty()) else { return };
        if !allowed.contains(&field.value().as_ref()) {
            let message = format!("`{}` is not a status of a {kind}", field.head);
            self.error(block, "S9", field.range(), message, &format!("use one of: {}", allowed.join(", ")));
        }
        if let Some(owner) = block.field("Owner").filter(|_| kind == BlockKind::Task)
            && !matches!(owner.head, "user" | "bot")
        {
            let message = format!("`{}` is not an owner of a task", owner.head);
            self.error(block, "S9", owner.range(), message, "use one of: user, bot");
        }
    }

    fn dates(&mut self, block: &Block<'_, '_>) {
        let Some(field) = block.field("Date") else { return };
        if field.head.get(..10).and_then(|text| text.parse::<Date>().ok()).is_none() {
            let message = format!("`{}` is not a date", field.head);
            self.warn(block, "date", field.range(), message, "write YYYY-MM-DD");
        }
    }

    fn decision(&mut self, block: &Block<'_, '_>) {
        if let Some(field) = block.field("Supersedes") {
            let value = field.value();
            let valid = value == "none" || BlockId::parse(&value).is_some_and(|id| id.kind() == BlockKind::Decision);
            if !valid {
                let message = format!("`Supersedes: {}` is not a decision id", field.head);
                self.error(
                    block,
                    "S6",
                    field.range(),
                    message,
                    "use a decision id such as D-20260220-001, or write `none`",
                );
            }
        }
        let signatures = Signature::of(block);
        let tags = block.words("Tags");
        let is_critical =
            tags.iter().any(|tag| matches!(tag.as_ref(), "integrity" | "security" | "memory" | "retrieval"));
        if signatures.is_empty() && is_critical && block.head("Status") == "active" {
            let message = format!("{} is active and tagged as critical, but has no constraint signature", block.id());
            self.warn(block, "S4", block.id_range(), message, "add its requirements under `ConstraintSignatures:`");
        }
        let mut ids = HashSet::new();
        for signature in &signatures {
            self.signature(block, signature);
            if !signature.id().is_empty() && !ids.insert(signature.id()) {
                let message = format!("{} has two signatures {}", block.id(), signature.id());
                self.warn(block, "S5", signature.span.clone(), message, "rename one of them");
            }
        }
    }

    fn signature(&mut self, block: &Block<'_, '_>, signature: &Signature<'_>) {
        let has = |key: &str| signature.entries.iter().any(|entry| entry.key == key);
        let missing: Vec<_> = signature::REQUIRED.into_iter().filter(|key| !has(key)).collect();
        if !missing.is_empty() {
            let message = format!("signature {} has no {}", signature.id(), missing.join(", "));
            self.warn(block, "S5", signature.span.clone(), message, "add the missing lines, indented by two spaces");
        }
        for (key, allowed) in signature::ENUMS {
            let value = signature.text(key);
            if !value.is_empty() && !allowed.contains(&value) {
                let message = format!("`{value}` is not a {key} of a signature");
                self.warn(block, "S5", signature.span.clone(), message, &format!("use one of: {}", allowed.join(", ")));
            }
        }
        if has("priority") && !signature.priority().is_some_and(|priority| (1..=10).contains(&priority)) {
            let message = format!("`{}` is not a priority", signature.text("priority"));
            self.warn(block, "S5", signature.span.clone(), message, "use a number from 1 to 10, 10 highest");
        }
        for unparsed in &signature.unparsed {
            let message = format!("a line of signature {} is not a field", signature.id());
            self.warn(block, "S5", unparsed.clone(), message, "write `  key: value`");
        }
    }

    fn task(&mut self, block: &Block<'_, '_>) {
        let open = matches!(block.head("Status"), "todo" | "doing" | "blocked");
        let is_set = |key| block.field(key).is_some_and(|field| !field.is_empty() && field.head != "none");
        if open && !is_set("AlignsWith") && !is_set("Justification") {
            let message = format!("{} has neither AlignsWith nor Justification", block.id());
            self.warn(block, "S7", block.id_range(), message, "add `AlignsWith: D-…` or `Justification: …`");
        }
    }

    fn error(&mut self, block: &Block<'_, '_>, code: &'static str, span: Range<usize>, message: String, help: &str) {
        self.add(block, FindingLevel::Error, code, span, message, help);
    }

    fn warn(&mut self, block: &Block<'_, '_>, code: &'static str, span: Range<usize>, message: String, help: &str) {
        self.add(block, FindingLevel::Warning, code, span, message, help);
    }

    fn add(
        &mut self,
        block: &Block<'_, '_>,
        level: FindingLevel,
        code: &'static str,
        span: Range<usize>,
        message: String,
        help: &str,
    ) {
        // The line ending at the end of a field is not underlined.
        let text =
            block.text().get(span.start - block.range().start..span.end - block.range().start).unwrap_or_default();
        let span = span.start..span.start + text.trim_end().len();
        self.found.push(Finding {
            code,
            level,
            file: self.name.to_owned(),
            line: block.line_of(span.start),
            span,
            block: block.id().as_str().to_owned(),
            message,
            help: help.to_owned(),
        });
    }
}

/// The errors in `after` that are not in `before`.
pub fn new_errors<'f>(before: &[Finding], after: &'f [Finding]) -> Vec<&'f Finding> {
    let mut standing: std::collections::HashMap<_, usize> = std::collections::HashMap::new();
    for finding in before {
        *standing.entry(finding.identity()).or_default() += 1;
    }
    let errors = after.iter().filter(|finding| finding.level == FindingLevel::Error);
    errors
        .filter(|finding| match standing.get_mut(&finding.identity()) {
            Some(count) if *count > 0 => {
                *count -= 1;
                false
            }
            _ => true,
        })
        .collect()
}
