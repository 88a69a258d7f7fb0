//! Applying and reverting proposals (Mind Mem 1.0.3, §5).

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::{LoadedFiles, MemoryError, ReadScope, Result, Workspace, WorkspaceTexts};
use crate::foundation::base::Digest;
use crate::foundation::gate::{Category, Effect, Permit, Scope};
use crate::foundation::store::{FileChange, StoreError, replace};
use crate::governance::memory::approval::Approval;
use crate::governance::memory::authority::{ApplyWriter, WriteSet};
use crate::governance::memory::edit;
use crate::governance::memory::mode::MemoryCapability;
use crate::governance::memory::parse::Document;
use crate::governance::memory::plan::{self, ApplyReceipt, diff};
use crate::governance::memory::proposal::{Proposal, ProposalOpKind};
use crate::governance::memory::state::STATE_FILE;

/// The result of an apply or a rollback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ApplyOutcome {
    /// The proposal.
    pub proposal: String,
    /// `applied` or `rolled_back`.
    pub result: &'static str,
    /// The snapshot's id.
    pub snapshot: String,
    /// The receipt.
    pub receipt: String,
    /// The files that were changed.
    pub files: Vec<String>,
    /// The violations found by the post-check.
    pub broken: Vec<String>,
    /// The change as a unified diff.
    pub diff: String,
}

const APPLIED: &str = "intelligence/applied";
/// The receipt in a snapshot.
const RECEIPT: &str = "APPLY_RECEIPT.md";
/// Marks a snapshot that was reduced.
const PRUNED: &str = ".pruned";

/// What is recorded with the change.
struct ApplyRecord<'e> {
    proposal: &'e Proposal,
    /// The file that contains the proposal.
    proposal_file: &'e str,
    /// The new status of the proposal.
    result: &'static str,
    changes: BTreeMap<String, String>,
    checks: &'e str,
    rollback: String,
    broken: Vec<String>,
    audit: String,
}

impl Workspace {
    /// The effect of applying the proposal `id` in its present version.
    ///
    /// # Errors
    /// If there is no such proposal.
    pub fn apply_effect(&self, id: &str) -> Result<Effect> {
        effect(&self.read(ReadScope::All)?, "apply", id)
    }

    /// The effect of reverting the proposal `id`.
    ///
    /// # Errors
    /// If there is no such proposal.
    pub fn rollback_effect(&self, id: &str) -> Result<Effect> {
        effect(&self.read(ReadScope::All)?, "roll back", id)
    }

    /// The approval of the proposal `id` by the policy in the settings, if it is covered.
    ///
    /// # Errors
    /// If there is no such proposal, or the settings cannot be read.
    pub fn policy_approval(&self, id: &str) -> Result<Option<Approval>> {
        let texts = self.texts()?;
        let (_, proposal) = plan::find(&texts, id)?;
        Ok(Approval::by_policy(&Self::config(&texts)?, &proposal))
    }

    /// The change that applying the proposal `id` would make now, as a unified diff.
    ///
    /// # Errors
    /// If there is no such proposal, or its operations do not fit.
    pub fn preview(&self, id: &str) -> Result<String> {
        let texts = self.texts()?;
        let (_, proposal) = plan::find(&texts, id)?;
        let files = plan::apply_ops(&texts, &proposal)?;
        Ok(files.iter().map(|(path, text)| diff(path, texts.text(path), text)).collect())
    }

    /// Applies the proposal `id` atomically. If the post-check finds violations, the files stay unchanged and the proposal is
    /// marked `rolled_back`.
    ///
    /// # Errors
    /// If the permit is not for this version, the pre-check rejects it, or the disk fails; nothing is changed then.
    pub fn apply(&self, permit: Permit, id: &str) -> Result<ApplyOutcome> {
        let loaded = self.lock_and_read(ReadScope::All)?;
        permit.spend(&effect(&loaded, "apply", id)?, self.now.timestamp())?;
        self.apply_held(&loaded, id)
    }

    /// Applies every staged low-risk proposal, one by one; only mode `enforce` allows it. `ask` provides the permits.
    ///
    /// # Errors
    /// If the mode does not allow it, or one of them is rejected; those applied before stay applied.
    pub fn apply_low_risk(&self, mut ask: impl FnMut(&str, &Effect) -> Result<Permit>) -> Result<Vec<ApplyOutcome>> {
        let texts = self.texts()?;
        Self::state(&texts).require(MemoryCapability::AutoApply)?;
        let staged = plan::proposals(&texts).into_iter().map(|(_, proposal)| proposal);
        let low: Vec<_> =
            staged.filter(|proposal| proposal.is_pending() && plan::effective_risk(proposal) == "low").collect();
        low.iter()
            .map(|proposal| {
                let permit = ask(&proposal.id, &self.apply_effect(&proposal.id)?)?;
                let loaded = self.lock_and_read(ReadScope::All)?;
                permit.spend(&effect(&loaded, "apply", &proposal.id)?, self.now.timestamp())?;
                Self::state(&loaded.texts).require(MemoryCapability::AutoApply)?;
                self.apply_held(&loaded, &proposal.id)
            })
            .collect()
    }

    fn apply_held(&self, loaded: &LoadedFiles, id: &str) -> Result<ApplyOutcome> {
        let (proposal_file, proposal) = plan::find(&loaded.texts, id)?;
        let plan = plan::plan(
            &loaded.texts,
            &proposal,
            &Self::state(&loaded.texts),
            &Self::config(&loaded.texts)?,
            self.today(),
        )?;
        let checks = "format, mode, fingerprint, budget and targets ok";
        let what = format!("{id} {}", proposal.target);
        let record = if plan.broken.is_empty() {
            let rollback = format!("{}: loom memory rollback {id}", proposal.rollback);
            let audit = format!("applied {what}");
            ApplyRecord {
                proposal: &proposal,
                proposal_file,
                result: "applied",
                changes: plan.files,
                checks,
                rollback,
                broken: plan.broken,
                audit,
            }
        } else {
            let why = plan.broken.join("; ").replace('\n', " ");
            let rollback = format!("done, the post-check failed: {why}");
            let audit = format!("rolled_back {what}: {why}");
            ApplyRecord {
                proposal: &proposal,
                proposal_file,
                result: "rolled_back",
                changes: BTreeMap::new(),
                checks,
                rollback,
                broken: plan.broken,
                audit,
            }
        };
        self.end(loaded, record)
    }

    /// Reverts an applied proposal, as far as its blocks have not been changed since.
    ///
    /// # Errors
    /// If the permit is not for it, it is not applied, its blocks have been changed since, or reverting it would add a
    /// violation.
    pub fn rollback(&self, permit: Permit, id: &str) -> Result<ApplyOutcome> {
        let loaded = self.lock_and_read(ReadScope::All)?;
        permit.spend(&effect(&loaded, "roll back", id)?, self.now.timestamp())?;
        Self::state(&loaded.texts).require(MemoryCapability::Apply)?;
        let (proposal_file, proposal) = plan::find(&loaded.texts, id)?;
        if proposal.status != "applied" {
            return Err(MemoryError::InvalidRequest(format!(
                "{id} is {}: only an applied proposal can be rolled back",
                proposal.status
            )));
        }
        let snapshot = self.snapshot_of(id)?;
        let mut then = super::WorkspaceTexts::default();
        for op in &proposal.ops {
            let path = format!("{APPLIED}/{snapshot}/{}", op.file);
            // A file that the proposal created is not in the snapshot.
            match self.bytes(&path)? {
                Some(bytes) => {
                    then.set(op.file.clone(), String::from_utf8(bytes).map_err(|_| MemoryError::NotText(path))?);
                }
                None if op.kind == Some(ProposalOpKind::AppendBlock) => {}
                None => {
                    let reason = format!("the snapshot {snapshot} lacks `{}`", op.file);
                    return Err(MemoryError::InvalidRequest(reason));
                }
            }
        }
        let mut changes = BTreeMap::new();
        for (path, after) in plan::apply_ops(&then, &proposal)? {
            changes.insert(path.clone(), edit::reverse(then.text(&path), &after, loaded.texts.text(&path))?);
        }
        let broken = plan::broken(&loaded.texts, &changes);
        if !broken.is_empty() {
            return Err(MemoryError::InvalidRequest(format!("rolling {id} back would cause: {}", broken.join("; "))));
        }
        let record = ApplyRecord {
            proposal: &proposal,
            proposal_file,
            result: "rolled_back",
            changes,
            checks: "applied, unchanged since, nothing new would break",
            rollback: format!("done: restored from {snapshot}"),
            broken,
            audit: format!("took back {id} {}", proposal.target),
        };
        self.end(&loaded, record)
    }

    /// Commits snapshot, changes, status, receipt, state and audit line in one transaction.
    fn end(&self, loaded: &LoadedFiles, record: ApplyRecord<'_>) -> Result<ApplyOutcome> {
        let texts = &loaded.texts;
        let proposal = record.proposal;
        let snapshot = self.new_snapshot()?;
        let mut writes = WriteSet::<ApplyWriter>::default();
        for (path, bytes) in snapshot_files(loaded) {
            writes.keep(format!("{APPLIED}/{snapshot}/{path}"), bytes.to_vec())?;
        }
        let files: Vec<&str> = if record.changes.is_empty() {
            let mut files: Vec<_> = proposal.ops.iter().map(|op| op.file.as_str()).collect();
            files.dedup();
            files
        } else {
            record.changes.keys().map(String::as_str).collect()
        };
        let diff: String = record.changes.iter().map(|(path, text)| diff(path, texts.text(path), text)).collect();
        let receipt = ApplyReceipt {
            now: &self.stamp(),
            proposal,
            result: record.result,
            snapshot: &snapshot,
            files: &files,
            checks: record.checks,
            rollback: &record.rollback,
            diff: &diff,
        };
        let receipt = receipt.print();
        let path = format!("{APPLIED}/{snapshot}/APPLY_RECEIPT.md");
        writes.write(&path, None, receipt.as_str())?;
        let status = HashMap::from([(proposal.id.as_str(), vec![("Status", record.result.to_owned())])]);
        writes.write(
            record.proposal_file,
            texts.get(record.proposal_file),
            edit::set_fields(texts.text(record.proposal_file), &status),
        )?;
        let mut state = Self::state(texts);
        state.note_apply(&self.stamp());
        writes.write(STATE_FILE, texts.get(STATE_FILE), state.print())?;
        self.audit(texts, &mut writes, &record.audit)?;
        let touched = files.iter().map(|path| (*path).to_owned()).collect();
        for (path, text) in record.changes {
            writes.write(&path, texts.get(&path), text)?;
        }
        self.commit(loaded, writes)?;
        self.prune_snapshots(texts, Self::config(texts)?.whole_snapshots)?;
        Ok(ApplyOutcome {
            proposal: proposal.id.clone(),
            result: record.result,
            snapshot,
            receipt,
            files: touched,
            broken: record.broken,
            diff,
        })
    }

    /// An unused name for a snapshot.
    fn new_snapshot(&self) -> Result<String> {
        let base = self.now.strftime("%Y%m%d-%H%M%S").to_string();
        let (_, taken) = self.list(APPLIED)?;
        let names = std::iter::once(base.clone()).chain((2..).map(|n| format!("{base}-{n}")));
        let free = names.into_iter().find(|name| !taken.contains(name));
        Ok(free.unwrap_or(base))
    }

    /// Reduces all but the newest `whole` snapshots to what a rollback needs: the receipt, and of the touched files the
    /// blocks that the proposal was about. A crash in between leaves copies that the next apply removes.
    fn prune_snapshots(&self, texts: &WorkspaceTexts, whole: usize) -> Result<()> {
        let (_, mut snapshots) = self.list(APPLIED)?;
        snapshots.sort_unstable();
        let older = snapshots.len().saturating_sub(whole.max(1));
        for snapshot in snapshots.iter().take(older) {
            let folder = format!("{APPLIED}/{snapshot}");
            if self.disk.read(&format!("{folder}/{PRUNED}")).is_ok_and(|mark| mark.is_some()) {
                continue;
            }
            let Some(receipt) = self.bytes(&format!("{folder}/{RECEIPT}"))? else { continue };
            let receipt = String::from_utf8_lossy(&receipt).into_owned();
            let id = Document::parse(&receipt).blocks().next().map(|block| block.id().as_str().to_owned());
            let Some((_, proposal)) = id.and_then(|id| plan::find(texts, &id).ok()) else { continue };
            self.prune_folder(&folder, "", &proposal)?;
            let io = |source| StoreError::Io { action: "write", path: folder.clone(), source };
            self.disk.write(&format!("{folder}/{PRUNED}"), b"").map_err(io)?;
        }
        Ok(())
    }

    fn prune_folder(&self, snapshot: &str, inner: &str, proposal: &Proposal) -> Result<()> {
        let folder = format!("{snapshot}{inner}");
        let io = |source| StoreError::Io { action: "prune", path: folder.clone(), source };
        let (files, folders) = self.list(&folder)?;
        for name in files {
            let path = format!("{folder}/{name}");
            let original = path.get(snapshot.len() + 1..).unwrap_or_default();
            let targets: Vec<_> =
                proposal.ops.iter().filter(|op| op.file == original).map(|op| op.target.as_str()).collect();
            if original == RECEIPT {
                continue;
            }
            if targets.is_empty() {
                self.disk.remove(&path).map_err(io)?;
                continue;
            }
            let Some(before) = self.bytes(&path)? else { continue };
            let text = String::from_utf8_lossy(&before).into_owned();
            let document = Document::parse(&text);
            let kept = document.blocks().filter(|block| targets.contains(&block.id().as_str()));
            let kept = kept.fold(String::new(), |kept, block| edit::append(&kept, block.text()));
            replace(self.disk.as_ref(), &FileChange { before: Some(before), path, after: Some(kept.into_bytes()) })?;
        }
        for name in folders {
            self.prune_folder(snapshot, &format!("{inner}/{name}"), proposal)?;
            self.disk.remove_dir(&format!("{folder}/{name}")).ok();
        }
        Ok(())
    }

    /// The snapshot taken when `id` was applied.
    fn snapshot_of(&self, id: &str) -> Result<String> {
        let (_, snapshots) = self.list(APPLIED)?;
        for snapshot in snapshots.into_iter().rev() {
            let Some(bytes) = self.bytes(&format!("{APPLIED}/{snapshot}/APPLY_RECEIPT.md"))? else { continue };
            let text = String::from_utf8_lossy(&bytes);
            let receipt = Document::parse(&text);
            let Some(block) = receipt.blocks().next() else { continue };
            if block.head("Proposal") == id && block.head("Result") == "applied" {
                return Ok(snapshot);
            }
        }
        Err(MemoryError::InvalidRequest(format!("there is no receipt of {id} in {APPLIED}/")))
    }
}

/// The effect of an action on a proposal. Its arguments contain digests of the proposal and of the change it makes, so
/// that another version or another outcome is another effect.
fn effect(loaded: &LoadedFiles, what: &str, id: &str) -> Result<Effect> {
    let texts = &loaded.texts;
    let (_, proposal) = plan::find(texts, id)?;
    let version = Digest::of(format!("{}{}", proposal.print(), proposal.deferred_until));
    let files = plan::apply_ops(texts, &proposal).unwrap_or_default();
    let change: String = files.iter().map(|(path, text)| diff(path, texts.text(path), text)).collect();
    let arguments = format!("{what} {id} as {version} changing {}", Digest::of(change));
    Ok(Effect::new(Category::MemoryApply, arguments).reading(Scope::Knowledge).writing(Scope::Knowledge))
}

/// The files of a snapshot (rule 7 of §5): the state's folders, the three root files, and `intelligence/` without
/// earlier snapshots.
fn snapshot_files(loaded: &LoadedFiles) -> impl Iterator<Item = (&str, &[u8])> {
    let texts = loaded.texts.iter().map(|(path, text)| (path, text.as_bytes()));
    let others = loaded.others.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice()));
    texts.chain(others).filter(|(path, _)| {
        matches!(*path, "AGENTS.md" | "MEMORY.md" | "IDENTITY.md")
            || ["decisions/", "tasks/", "entities/", "summaries/", "memory/", "intelligence/"]
                .iter()
                .any(|folder| path.starts_with(folder))
    })
}
