//! Applying a proposal, and taking one back (Mind Mem 1.0.3, §5).

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::{Held, MemoryError, Reach, Result, Workspace};
use crate::foundation::base::Digest;
use crate::foundation::gate::{Category, Effect, Permit, Refusal, Scope};
use crate::governance::memory::authority::{Apply, Pen};
use crate::governance::memory::edit;
use crate::governance::memory::mode::Capability;
use crate::governance::memory::parse::Document;
use crate::governance::memory::plan::{self, Receipt, diff};
use crate::governance::memory::proposal::Proposal;
use crate::governance::memory::state::STATE;

/// How an apply, or a rollback, ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Applied {
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
    /// What the post-check had against it.
    pub broken: Vec<String>,
    /// What changed, as a unified diff.
    pub diff: String,
}

const APPLIED: &str = "intelligence/applied";

/// What an apply leaves beside the change itself.
struct Ending<'e> {
    proposal: &'e Proposal,
    /// The file the proposal stands in.
    stands_in: &'e str,
    /// Its new status.
    result: &'static str,
    changes: BTreeMap<String, String>,
    checks: &'e str,
    rollback: String,
    broken: Vec<String>,
    audit: String,
}

impl Workspace {
    /// That the proposal `id` is applied, exactly as it stands now.
    ///
    /// # Errors
    /// Where there is none.
    pub fn applying(&self, id: &str) -> Result<Effect> {
        effect(&self.read(Reach::All)?, "apply", id)
    }

    /// That the proposal `id` is taken back.
    ///
    /// # Errors
    /// Where there is none.
    pub fn rolling_back(&self, id: &str) -> Result<Effect> {
        effect(&self.read(Reach::All)?, "roll back", id)
    }

    /// Applies the proposal `id`: all of it, or nothing. If the post-check refuses it, the truth stays as it is and the
    /// proposal is marked `rolled_back`.
    ///
    /// # Errors
    /// Where the permit is not for it as it stands now, the pre-check refuses it, or the disk fails; then nothing was
    /// changed.
    pub fn apply(&self, permit: Permit, id: &str) -> Result<Applied> {
        let held = self.hold(Reach::All)?;
        permit.spend(&effect(&held, "apply", id)?, self.now.timestamp())?;
        self.apply_held(&held, id)
    }

    /// Applies every staged low-risk proposal, one after the other; only `enforce` allows it. For each, `ask` gives the
    /// permit.
    ///
    /// # Errors
    /// Where the mode does not allow it, or one of them is refused; those before it stand.
    pub fn apply_low_risk(&self, mut ask: impl FnMut(&Effect) -> Result<Permit, Refusal>) -> Result<Vec<Applied>> {
        let texts = self.texts()?;
        Self::state(&texts).demand(Capability::AutoApply)?;
        let staged = plan::proposals(&texts).into_iter().map(|(_, proposal)| proposal);
        let low: Vec<_> = staged.filter(|proposal| proposal.is_pending() && proposal.risk == "low").collect();
        low.iter()
            .map(|proposal| {
                let permit = ask(&self.applying(&proposal.id)?)?;
                let held = self.hold(Reach::All)?;
                permit.spend(&effect(&held, "apply", &proposal.id)?, self.now.timestamp())?;
                Self::state(&held.texts).demand(Capability::AutoApply)?;
                self.apply_held(&held, &proposal.id)
            })
            .collect()
    }

    fn apply_held(&self, held: &Held, id: &str) -> Result<Applied> {
        let (stands_in, proposal) = plan::find(&held.texts, id)?;
        let plan =
            plan::plan(&held.texts, &proposal, &Self::state(&held.texts), &Self::config(&held.texts)?, self.today())?;
        let checks = "format, mode, fingerprint, budget and targets ok";
        let what = format!("{id} {}", proposal.target);
        let ending = if plan.broken.is_empty() {
            let rollback = format!("{}: loom memory rollback {id}", proposal.rollback);
            let audit = format!("applied {what}");
            Ending {
                proposal: &proposal,
                stands_in,
                result: "applied",
                changes: plan.files,
                checks,
                rollback,
                broken: plan.broken,
                audit,
            }
        } else {
            let why = plan.broken.join("; ").replace('\n', " ");
            let rollback = format!("done, the post-check said no: {why}");
            let audit = format!("rolled_back {what}: {why}");
            Ending {
                proposal: &proposal,
                stands_in,
                result: "rolled_back",
                changes: BTreeMap::new(),
                checks,
                rollback,
                broken: plan.broken,
                audit,
            }
        };
        self.end(held, ending)
    }

    /// Takes an applied proposal back: the files it touched become as they were, as far as nothing has been built on it.
    ///
    /// # Errors
    /// Where the permit is not for it, it is not applied, or what it changed has been changed again, or taking it back
    /// would break something.
    pub fn rollback(&self, permit: Permit, id: &str) -> Result<Applied> {
        let held = self.hold(Reach::All)?;
        permit.spend(&effect(&held, "roll back", id)?, self.now.timestamp())?;
        Self::state(&held.texts).demand(Capability::Apply)?;
        let (stands_in, proposal) = plan::find(&held.texts, id)?;
        if proposal.status != "applied" {
            return Err(MemoryError::Request(format!(
                "{id} is {}: only an applied proposal can be taken back",
                proposal.status
            )));
        }
        if plan::supersedes(&proposal) {
            Self::state(&held.texts).demand(Capability::Supersede)?;
        }
        let snapshot = self.snapshot_of(id)?;
        let mut then = super::Texts::default();
        for op in &proposal.ops {
            let path = format!("{APPLIED}/{snapshot}/{}", op.file);
            let bytes = self
                .bytes(&path)?
                .ok_or_else(|| MemoryError::Request(format!("the snapshot {snapshot} lacks `{}`", op.file)))?;
            then.set(op.file.clone(), String::from_utf8(bytes).map_err(|_| MemoryError::NotText(path))?);
        }
        let mut changes = BTreeMap::new();
        for (path, after) in plan::outcome(&then, &proposal)? {
            changes.insert(path.clone(), edit::reverse(then.text(&path), &after, held.texts.text(&path))?);
        }
        let broken = plan::broken(&held.texts, &changes);
        if !broken.is_empty() {
            return Err(MemoryError::Request(format!("taking {id} back would break this: {}", broken.join("; "))));
        }
        let ending = Ending {
            proposal: &proposal,
            stands_in,
            result: "rolled_back",
            changes,
            checks: "applied, unchanged since, nothing new would break",
            rollback: format!("done: restored from {snapshot}"),
            broken,
            audit: format!("took back {id} {}", proposal.target),
        };
        self.end(&held, ending)
    }

    /// Snapshot, changes, status, receipt, state and audit line in one transaction.
    fn end(&self, held: &Held, ending: Ending<'_>) -> Result<Applied> {
        let texts = &held.texts;
        let proposal = ending.proposal;
        let snapshot = self.new_snapshot()?;
        let mut pen = Pen::<Apply>::default();
        for (path, bytes) in snapshot_files(held) {
            pen.keep(format!("{APPLIED}/{snapshot}/{path}"), bytes.to_vec())?;
        }
        let files: Vec<&str> = if ending.changes.is_empty() {
            let mut files: Vec<_> = proposal.ops.iter().map(|op| op.file.as_str()).collect();
            files.dedup();
            files
        } else {
            ending.changes.keys().map(String::as_str).collect()
        };
        let diff: String = ending.changes.iter().map(|(path, text)| diff(path, texts.text(path), text)).collect();
        let receipt = Receipt {
            now: &self.stamp(),
            proposal,
            result: ending.result,
            snapshot: &snapshot,
            files: &files,
            checks: ending.checks,
            rollback: &ending.rollback,
            diff: &diff,
        };
        let receipt = receipt.print();
        let path = format!("{APPLIED}/{snapshot}/APPLY_RECEIPT.md");
        pen.write(&path, None, receipt.as_str())?;
        let status = HashMap::from([(proposal.id.as_str(), vec![("Status", ending.result.to_owned())])]);
        pen.write(
            ending.stands_in,
            texts.get(ending.stands_in),
            edit::set_fields(texts.text(ending.stands_in), &status),
        )?;
        let mut state = Self::state(texts);
        state.note_apply(&self.stamp());
        pen.write(STATE, texts.get(STATE), state.print())?;
        self.audit(texts, &mut pen, &ending.audit)?;
        let touched = files.iter().map(|path| (*path).to_owned()).collect();
        for (path, text) in ending.changes {
            pen.write(&path, texts.get(&path), text)?;
        }
        self.commit(held, pen)?;
        Ok(Applied {
            proposal: proposal.id.clone(),
            result: ending.result,
            snapshot,
            receipt,
            files: touched,
            broken: ending.broken,
            diff,
        })
    }

    /// A name for a snapshot that is not taken yet.
    fn new_snapshot(&self) -> Result<String> {
        let base = self.now.strftime("%Y%m%d-%H%M%S").to_string();
        let (_, taken) = self.list(APPLIED)?;
        let names = std::iter::once(base.clone()).chain((2..).map(|n| format!("{base}-{n}")));
        let free = names.into_iter().find(|name| !taken.contains(name));
        Ok(free.unwrap_or(base))
    }

    /// The snapshot that was taken when `id` was applied.
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
        Err(MemoryError::Request(format!("there is no receipt of {id} in {APPLIED}/")))
    }
}

/// What is done to a proposal, with its text as an argument: another text is another effect.
fn effect(held: &Held, what: &str, id: &str) -> Result<Effect> {
    let (_, proposal) = plan::find(&held.texts, id)?;
    let text = Digest::of(format!("{proposal:?}"));
    let effect = Effect::new(Category::MemoryApply, format!("{what} {id} as {text}"));
    Ok(effect.reading(Scope::Knowledge).writing(Scope::Knowledge))
}

/// What rule 7 of §5 has a snapshot hold: the state's folders, the three files at the root, and `intelligence/` without
/// what was applied before.
fn snapshot_files(held: &Held) -> impl Iterator<Item = (&str, &[u8])> {
    let texts = held.texts.iter().map(|(path, text)| (path, text.as_bytes()));
    let others = held.others.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice()));
    texts.chain(others).filter(|(path, _)| {
        matches!(*path, "AGENTS.md" | "MEMORY.md" | "IDENTITY.md")
            || ["decisions/", "tasks/", "entities/", "summaries/", "memory/", "intelligence/"]
                .iter()
                .any(|folder| path.starts_with(folder))
    })
}
