//! Proposals and signals under review: propose, reject, defer, accept.

use std::collections::HashMap;

use jiff::ToSpan as _;
use serde::Serialize;

use super::{LoadedFiles, MemoryError, ReadScope, Result, Workspace};
use crate::foundation::base::Digest;
use crate::foundation::gate::{Category, Effect, Permit, Scope};
use crate::governance::memory::authority::{ApplyWriter, WriteSet};
use crate::governance::memory::capture::{self, SIGNALS_FILE};
use crate::governance::memory::edit;
use crate::governance::memory::id::{BlockId, BlockKind};
use crate::governance::memory::mode::MemoryCapability;
use crate::governance::memory::parse::Document;
use crate::governance::memory::plan;
use crate::governance::memory::proposal::{Proposal, ProposalOp, ProposalOpKind, TYPES};
use crate::governance::memory::signature;
use crate::governance::memory::staging;
use crate::governance::memory::texts::WorkspaceTexts;

/// A request for a proposal.
#[derive(Debug, Clone, Default)]
pub struct ProposalRequest {
    /// The operations, in order.
    pub ops: Vec<ProposalOp>,
    /// The risk; `medium` if empty.
    pub risk: String,
    /// The evidence.
    pub evidence: Vec<String>,
    /// The sources.
    pub sources: Vec<String>,
}

/// A decision in the words of a person.
#[derive(Debug, Clone, Default)]
pub struct DecisionDraft {
    /// What is decided.
    pub statement: String,
    /// Why.
    pub why: String,
    /// The decision that it supersedes; empty for none.
    pub supersedes: String,
    /// Tags.
    pub tags: Vec<String>,
    /// The source.
    pub source: String,
    /// Constraints such as `must use SQLite for cache`.
    pub signatures: Vec<String>,
}

/// A proposal as shown for review.
#[derive(Debug, Clone, Serialize)]
pub struct ProposalReview {
    /// The proposal.
    pub id: String,
    /// `decision`, `task` or `edit`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its target.
    pub target: String,
    /// Its risk.
    pub risk: String,
    /// Its status.
    pub status: String,
    /// The operations in short form.
    pub ops: Vec<String>,
    /// The evidence.
    pub evidence: Vec<String>,
    /// The change as a unified diff; empty if it no longer fits.
    pub diff: String,
    /// What prevents applying it now.
    pub against: Vec<String>,
}

impl Workspace {
    /// The pending proposals, or all of them, each with its change.
    ///
    /// # Errors
    /// If the workspace cannot be read.
    pub fn review(&self, all: bool) -> Result<Vec<ProposalReview>> {
        let texts = self.texts()?;
        let (state, config) = (Self::state(&texts), Self::config(&texts)?);
        let wanted =
            plan::proposals(&texts).into_iter().map(|(_, proposal)| proposal).filter(|p| all || p.is_pending());
        let review = |proposal: Proposal| {
            let files = plan::apply_ops(&texts, &proposal).unwrap_or_default();
            let against = match plan::plan(&texts, &proposal, &state, &config, self.today()) {
                Ok(plan) => plan.broken,
                Err(refusal) => vec![refusal.to_string()],
            };
            ProposalReview {
                diff: if proposal.is_pending() {
                    files.iter().map(|(path, text)| plan::diff(path, texts.text(path), text)).collect()
                } else {
                    String::new()
                },
                ops: proposal
                    .ops
                    .iter()
                    .map(|op| format!("{} {} {}", op.name(), op.target, op.status).trim_end().to_owned())
                    .collect(),
                against: if proposal.is_pending() { against } else { Vec::new() },
                id: proposal.id,
                kind: proposal.kind,
                target: proposal.target,
                risk: proposal.risk,
                status: proposal.status,
                evidence: proposal.evidence,
            }
        };
        Ok(wanted.map(review).collect())
    }

    /// The request for a new decision, with the next free id.
    ///
    /// # Errors
    /// If a constraint cannot be read, or all ids of the day are used.
    pub fn decision_request(&self, draft: &DecisionDraft) -> Result<ProposalRequest> {
        let texts = self.texts()?;
        let line = |text: &str| capture::one_line(text, usize::MAX);
        let (statement, why, source) = (line(&draft.statement), line(&draft.why), line(&draft.source));
        if statement.is_empty() || why.is_empty() {
            return Err(MemoryError::InvalidRequest("a decision needs a statement and a reason".to_owned()));
        }
        let taken: Vec<_> =
            texts.iter().map(|(path, _)| path).filter(|path| path.rsplit('.').next() != Some("json")).collect();
        let id = texts.next_id(BlockKind::Decision, self.today(), &taken);
        let id = id.ok_or_else(|| MemoryError::InvalidRequest("all ids of this day are used".to_owned()))?;
        let or_none = |text: String| if text.is_empty() { "none".to_owned() } else { text };
        let mut patch = format!(
            "[{id}]\nDate: {}\nStatus: active\nScope: global\nStatement: {statement}\nRationale: {why}\nSupersedes: {}\nTags: {}\nSources:\n- {source}\n",
            self.today(),
            or_none(line(&draft.supersedes)),
            or_none(draft.tags.iter().map(|tag| line(tag)).collect::<Vec<_>>().join(", ")),
        );
        for (number, sentence) in (1..).zip(&draft.signatures) {
            let lines = signature::draft(sentence, number).map_err(MemoryError::InvalidRequest)?;
            patch += if number == 1 { "ConstraintSignatures:\n" } else { "" };
            patch += &lines;
        }
        let supersedes = !draft.supersedes.is_empty();
        let kind = if supersedes { ProposalOpKind::SupersedeDecision } else { ProposalOpKind::AppendBlock };
        let target = if supersedes { line(&draft.supersedes) } else { String::new() };
        let op = ProposalOp { kind: Some(kind), target, patch: patch.trim_end().to_owned(), ..ProposalOp::default() };
        Ok(ProposalRequest { ops: vec![op], risk: String::new(), evidence: vec![why], sources: vec![source] })
    }

    /// Whether a decision with this statement exists or was proposed, whatever became of it.
    ///
    /// # Errors
    /// If the workspace cannot be read.
    pub fn is_offered(&self, statement: &str) -> Result<bool> {
        let texts = self.texts()?;
        let statement = capture::one_line(statement, usize::MAX);
        let same = |block: &super::super::parse::Block<'_, '_>| {
            block.id().kind() == BlockKind::Decision && block.value("Statement").is_some_and(|own| own == statement)
        };
        if texts.parse().blocks().any(|(_, block)| same(&block)) {
            return Ok(true);
        }
        let proposed = plan::proposals(&texts);
        let patches = proposed.iter().flat_map(|(_, proposal)| &proposal.ops).map(|op| Document::parse(&op.patch));
        Ok(patches.into_iter().any(|patch| patch.blocks().any(|block| same(&block))))
    }

    /// The effect of proposing `request`.
    pub fn propose_effect(request: &ProposalRequest) -> Effect {
        Effect::new(Category::MemoryPropose, format!("propose {}", Digest::of(format!("{request:?}"))))
            .reading(Scope::Knowledge)
    }

    /// Stages a proposal and returns its id.
    ///
    /// # Errors
    /// If the permit is not for it, the mode or a limit does not allow it, or it could not be applied.
    pub fn propose(&self, permit: Permit, request: ProposalRequest) -> Result<String> {
        permit.spend(&Self::propose_effect(&request), self.now.timestamp())?;
        let loaded = self.lock_and_read(ReadScope::All)?;
        let mut writes = WriteSet::default();
        let id = self.stage(&loaded, request, &mut writes)?;
        self.commit(&loaded, writes)?;
        Ok(id)
    }

    fn stage(
        &self,
        loaded: &LoadedFiles,
        request: ProposalRequest,
        writes: &mut WriteSet<ApplyWriter>,
    ) -> Result<String> {
        let texts = &loaded.texts;
        let (state, config) = (Self::state(texts), Self::config(texts)?);
        state.require(MemoryCapability::Propose)?;
        let mut proposal = self.draft(texts, request)?;
        let known = plan::proposals(texts);
        let cooldown = state.cooldown_days(&config);
        let prevents = |other: &Proposal| {
            other.status != "rejected" && staging::prevents_staging(other, &proposal, self.today(), cooldown)
        };
        if let Some((_, other)) = known.iter().find(|(_, other)| prevents(other)) {
            return Err(MemoryError::InvalidRequest(format!(
                "{} already proposes this and is {}",
                other.id, other.status
            )));
        }
        let pending = known.iter().filter(|(_, other)| other.is_pending()).count();
        let limit = config.proposal_budget.backlog_limit;
        if pending >= limit {
            return Err(plan::ApplyRefusal::Backlog { pending, limit }.into());
        }
        let files = TYPES.map(|(_, file)| file);
        let id = texts.next_id(BlockKind::Proposal, self.today(), &files);
        proposal.id =
            id.ok_or_else(|| MemoryError::InvalidRequest("all proposal ids of this day are used".to_owned()))?;
        proposal.fingerprint = proposal.compute_fingerprint();
        let printed = proposal.print();
        let read = Document::parse(&printed);
        let again = read.blocks().next().map(|block| Proposal::read(&block));
        match again {
            Some(Ok(read)) if read == proposal => {}
            Some(Err(reason)) => return Err(MemoryError::InvalidRequest(format!("this cannot be proposed: {reason}"))),
            _ => {
                return Err(MemoryError::InvalidRequest(
                    "this cannot be written as a proposal: a value has characters that cannot be read back".to_owned(),
                ));
            }
        }
        plan::apply_ops(texts, &proposal)?;
        let file = proposal.file();
        writes.write(file, texts.get(file), edit::append(writes.draft(file, texts.text(file)), &printed))?;
        self.audit(texts, writes, &format!("proposed {} {}", proposal.id, proposal.target))?;
        Ok(proposal.id)
    }

    /// Completes the request, and checks that every new block names its source (M3).
    fn draft(&self, texts: &WorkspaceTexts, request: ProposalRequest) -> Result<Proposal> {
        let mut ops = request.ops;
        let mut adds = None;
        for op in &mut ops {
            let patch = Document::parse(&op.patch);
            for block in patch.blocks() {
                let kind = block.id().kind();
                if kind.required().contains(&"Sources") && block.words("Sources").is_empty() {
                    return Err(MemoryError::InvalidRequest(format!(
                        "{} names no source: no source, no claim (M3)",
                        block.id()
                    )));
                }
                adds = adds.or(Some((block.id().as_str().to_owned(), kind)));
                if op.target.is_empty() {
                    block.id().as_str().clone_into(&mut op.target);
                }
            }
            if op.file.is_empty() {
                let parsed = texts.parse();
                let home = BlockId::parse(&op.target).map_or("", |id| home(id.kind()));
                op.file = parsed.find(&op.target).map_or(home, |(path, _)| path).to_owned();
            }
        }
        let target = ops.first().map(|op| op.target.clone()).unwrap_or_default();
        if target.is_empty() {
            return Err(MemoryError::InvalidRequest(
                "the proposal has no target: name the target block, or begin the patch with a header such as `[D-20260220-001]`"
                    .to_owned(),
            ));
        }
        let kind = match adds {
            Some((_, BlockKind::Decision)) => "decision",
            Some((_, BlockKind::Task)) => "task",
            _ => "edit",
        };
        Ok(Proposal {
            id: String::new(),
            kind: kind.to_owned(),
            target,
            risk: if request.risk.is_empty() { "medium".to_owned() } else { request.risk },
            evidence: request.evidence,
            rollback: "restore_snapshot".to_owned(),
            ops,
            fingerprint: String::new(),
            status: "staged".to_owned(),
            sources: request.sources,
            date: self.today().to_string(),
            deferred_until: String::new(),
        })
    }

    /// Rejects a staged proposal.
    ///
    /// # Errors
    /// If it is not staged.
    pub fn reject(&self, id: &str) -> Result<()> {
        self.set_aside(id, vec![("Status", "rejected".to_owned())], "rejected")
    }

    /// Defers a staged proposal; returns the first day on which it may be proposed again.
    ///
    /// # Errors
    /// If it is not staged.
    pub fn defer(&self, id: &str) -> Result<String> {
        let texts = self.texts()?;
        let days = Self::state(&texts).cooldown_days(&Self::config(&texts)?);
        let until = self.today().saturating_add(days.days()).to_string();
        let fields = vec![("Status", "deferred".to_owned()), ("DeferredUntil", until.clone())];
        self.set_aside(id, fields, &format!("deferred until {until}"))?;
        Ok(until)
    }

    fn set_aside(&self, id: &str, fields: Vec<(&str, String)>, what: &str) -> Result<()> {
        let loaded = self.lock_and_read(ReadScope::All)?;
        let (file, proposal) = plan::find(&loaded.texts, id)?;
        if !proposal.is_pending() {
            return Err(plan::ApplyRefusal::NotStaged { id: id.to_owned(), status: proposal.status }.into());
        }
        let mut writes = WriteSet::default();
        writes.write(
            file,
            loaded.texts.get(file),
            edit::set_fields(loaded.texts.text(file), &HashMap::from([(id, fields)])),
        )?;
        self.audit(&loaded.texts, &mut writes, &format!("{what} {id} {}", proposal.target))?;
        self.commit(&loaded, writes)?;
        Ok(())
    }

    /// The effect of accepting a signal.
    pub fn accept_effect(id: &str) -> Effect {
        Effect::new(Category::MemoryPropose, format!("accept {id}")).reading(Scope::Knowledge)
    }

    /// Accepts a signal: drafts a proposal from it (never a decision, M4) and returns its id.
    ///
    /// # Errors
    /// If the permit is not for it, the signal is not pending, or the proposal may not be staged.
    pub fn accept_signal(&self, permit: Permit, id: &str) -> Result<String> {
        permit.spend(&Self::accept_effect(id), self.now.timestamp())?;
        let loaded = self.lock_and_read(ReadScope::All)?;
        let texts = &loaded.texts;
        let (kind, excerpt, source) = pending_signal(texts, id)?;
        let today = self.today();
        let sources = format!("Sources:\n- {id}\n- {source}\n");
        let new_id = |kind| {
            let taken: Vec<_> = texts
                .iter()
                .map(|(path, _)| path)
                .filter(|path| path.starts_with("intelligence/proposed/"))
                .chain([home(kind)])
                .collect();
            texts
                .next_id(kind, today, &taken)
                .ok_or_else(|| MemoryError::InvalidRequest("all ids of this day are used".to_owned()))
        };
        let patch = match kind.as_str() {
            "commitment" | "deadline" => format!(
                "[{}]\nDate: {today}\nStatus: todo\nTitle: {excerpt}\nPriority: P2\nProject: none\nDue: none\nOwner: user\nContext: captured as {id}\nNext: none\nDependencies: none\nJustification: {id}\n{sources}History:\n- {today}: created from {id}\n",
                new_id(BlockKind::Task)?
            ),
            "incident" => {
                format!(
                    "[{}]\nDate: {today}\nStatus: open\nSummary: {excerpt}\n{sources}",
                    new_id(BlockKind::Incident)?
                )
            }
            _ => format!(
                "[{}]\nDate: {today}\nStatus: active\nScope: global\nStatement: {excerpt}\nRationale: captured as {id}\nSupersedes: none\nTags: captured\n{sources}",
                new_id(BlockKind::Decision)?
            ),
        };
        let op = ProposalOp {
            kind: Some(ProposalOpKind::AppendBlock),
            patch: patch.trim_end().to_owned(),
            ..ProposalOp::default()
        };
        let request = ProposalRequest {
            ops: vec![op],
            risk: String::new(),
            evidence: vec![format!("{id}: {excerpt}")],
            sources: vec![id.to_owned()],
        };
        let mut writes = WriteSet::default();
        let proposal = self.stage(&loaded, request, &mut writes)?;
        close_signal(texts, id, "accepted", &mut writes)?;
        self.commit(&loaded, writes)?;
        Ok(proposal)
    }

    /// Rejects a signal.
    ///
    /// # Errors
    /// If it is not pending.
    pub fn reject_signal(&self, id: &str) -> Result<()> {
        let loaded = self.lock_and_read(ReadScope::Files(&[SIGNALS_FILE, super::AUDIT_FILE]))?;
        pending_signal(&loaded.texts, id)?;
        let mut writes = WriteSet::default();
        close_signal(&loaded.texts, id, "rejected", &mut writes)?;
        self.audit(&loaded.texts, &mut writes, &format!("rejected {id}"))?;
        self.commit(&loaded, writes)?;
        Ok(())
    }
}

/// Type, excerpt and source of a pending signal.
fn pending_signal(texts: &WorkspaceTexts, id: &str) -> Result<(String, String, String)> {
    let document = Document::parse(texts.text(SIGNALS_FILE));
    let signal = document.block(id).ok_or_else(|| MemoryError::InvalidRequest(format!("there is no signal {id}")))?;
    match signal.head("Status") {
        "pending" => {
            let head = |key| signal.head(key).to_owned();
            Ok((head("Type"), head("Excerpt"), head("Source")))
        }
        status => Err(MemoryError::InvalidRequest(format!(
            "{id} is {status}: only a pending signal can be accepted or rejected"
        ))),
    }
}

fn close_signal(texts: &WorkspaceTexts, id: &str, status: &str, writes: &mut WriteSet<ApplyWriter>) -> Result<()> {
    let changes = HashMap::from([(id, vec![("Status", status.to_owned())])]);
    Ok(writes.write(SIGNALS_FILE, texts.get(SIGNALS_FILE), edit::set_fields(texts.text(SIGNALS_FILE), &changes))?)
}

/// The file for new blocks of a kind.
const fn home(kind: BlockKind) -> &'static str {
    match kind {
        BlockKind::Decision => "decisions/DECISIONS.md",
        BlockKind::Task => "tasks/TASKS.md",
        BlockKind::Project => "entities/projects.md",
        BlockKind::Person => "entities/people.md",
        BlockKind::Tool => "entities/tools.md",
        BlockKind::Incident => "entities/incidents.md",
        _ => "",
    }
}
