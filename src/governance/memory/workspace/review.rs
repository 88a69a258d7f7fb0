//! A person's word: proposing, rejecting, deferring, and taking signals in.

use std::collections::HashMap;

use jiff::ToSpan as _;
use serde::Serialize;

use super::{Held, MemoryError, Reach, Result, Workspace};
use crate::foundation::base::Digest;
use crate::foundation::gate::{Category, Effect, Permit, Scope};
use crate::governance::memory::authority::{Apply, Pen};
use crate::governance::memory::capture::SIGNALS;
use crate::governance::memory::edit;
use crate::governance::memory::id::{BlockId, Kind};
use crate::governance::memory::mode::Capability;
use crate::governance::memory::parse::Document;
use crate::governance::memory::plan;
use crate::governance::memory::proposal::{Op, OpKind, Proposal, TYPES};
use crate::governance::memory::stage;
use crate::governance::memory::texts::Texts;

/// What somebody wants proposed.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// What to do, in order.
    pub ops: Vec<Op>,
    /// How much can go wrong; `medium` where empty.
    pub risk: String,
    /// Why.
    pub evidence: Vec<String>,
    /// Where it comes from.
    pub sources: Vec<String>,
}

/// What waits for a person.
#[derive(Debug, Clone, Serialize)]
pub struct Review {
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
    /// The operations, in short.
    pub ops: Vec<String>,
    /// Why.
    pub evidence: Vec<String>,
    /// What it would change, as a unified diff; empty where it does not fit any more.
    pub diff: String,
    /// What stands against applying it now.
    pub against: Vec<String>,
}

impl Workspace {
    /// The proposals, the pending ones alone unless `all`, each with what it would change.
    ///
    /// # Errors
    /// Where the workspace cannot be read.
    pub fn review(&self, all: bool) -> Result<Vec<Review>> {
        let texts = self.texts()?;
        let (state, config) = (Self::state(&texts), Self::config(&texts)?);
        let wanted =
            plan::proposals(&texts).into_iter().map(|(_, proposal)| proposal).filter(|p| all || p.is_pending());
        let review = |proposal: Proposal| {
            let files = plan::outcome(&texts, &proposal).unwrap_or_default();
            let against = match plan::plan(&texts, &proposal, &state, &config, self.today()) {
                Ok(plan) => plan.broken,
                Err(refusal) => vec![refusal.to_string()],
            };
            Review {
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

    /// That this is proposed.
    pub fn proposing(request: &Request) -> Effect {
        Effect::new(Category::MemoryPropose, format!("propose {}", Digest::of(format!("{request:?}"))))
            .reading(Scope::Knowledge)
    }

    /// Stages a proposal and gives its id.
    ///
    /// # Errors
    /// Where the permit is not for it, the mode or a limit is against it, or it could not be applied.
    pub fn propose(&self, permit: Permit, request: Request) -> Result<String> {
        permit.spend(&Self::proposing(&request), self.now.timestamp())?;
        let held = self.hold(Reach::All)?;
        let mut pen = Pen::default();
        let id = self.stage(&held, request, &mut pen)?;
        self.commit(&held, pen)?;
        Ok(id)
    }

    fn stage(&self, held: &Held, request: Request, pen: &mut Pen<Apply>) -> Result<String> {
        let texts = &held.texts;
        let (state, config) = (Self::state(texts), Self::config(texts)?);
        state.demand(Capability::Propose)?;
        let mut proposal = self.draft(texts, request)?;
        let known = plan::proposals(texts);
        let cooldown = state.cooldown_days(&config);
        let bars =
            |other: &Proposal| other.status != "rejected" && stage::bars(other, &proposal, self.today(), cooldown);
        if let Some((_, other)) = known.iter().find(|(_, other)| bars(other)) {
            return Err(MemoryError::Request(format!("{} already proposes this, and is {}", other.id, other.status)));
        }
        let pending = known.iter().filter(|(_, other)| other.is_pending()).count();
        let limit = config.proposal_budget.backlog_limit;
        if pending >= limit {
            return Err(plan::Refusal::Backlog { pending, limit }.into());
        }
        let files = TYPES.map(|(_, file)| file);
        let id = texts.next_id(Kind::Proposal, self.today(), &files);
        proposal.id = id.ok_or_else(|| MemoryError::Request("the day has no proposal ids left".to_owned()))?;
        proposal.fingerprint = proposal.compute_fingerprint();
        let printed = proposal.print();
        let read = Document::parse(&printed);
        let again = read.blocks().next().map(|block| Proposal::read(&block));
        match again {
            Some(Ok(read)) if read == proposal => {}
            Some(Err(reason)) => return Err(MemoryError::Request(format!("this cannot be proposed: {reason}"))),
            _ => {
                return Err(MemoryError::Request(
                    "this cannot be written as a proposal: a value has characters that do not read back".to_owned(),
                ));
            }
        }
        plan::outcome(texts, &proposal)?;
        let file = proposal.file();
        pen.write(file, texts.get(file), edit::append(pen.draft(file, texts.text(file)), &printed))?;
        self.audit(texts, pen, &format!("proposed {} {}", proposal.id, proposal.target))?;
        Ok(proposal.id)
    }

    /// Fills in what the request leaves open, and checks that every new block names its source (M3).
    fn draft(&self, texts: &Texts, request: Request) -> Result<Proposal> {
        let mut ops = request.ops;
        let mut adds = None;
        for op in &mut ops {
            let patch = Document::parse(&op.patch);
            for block in patch.blocks() {
                let kind = block.id().kind();
                if kind.required().contains(&"Sources") && block.words("Sources").is_empty() {
                    return Err(MemoryError::Request(format!(
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
            return Err(MemoryError::Request(
                "nothing says which block this is about: name the target, or begin the patch with a header such as `[D-20260220-001]`"
                    .to_owned(),
            ));
        }
        let kind = match adds {
            Some((_, Kind::Decision)) => "decision",
            Some((_, Kind::Task)) => "task",
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

    /// Says no to a staged proposal.
    ///
    /// # Errors
    /// Where it is not staged.
    pub fn reject(&self, id: &str) -> Result<()> {
        self.set_aside(id, vec![("Status", "rejected".to_owned())], "rejected")
    }

    /// Puts a staged proposal off; gives the first day on which it may be proposed again.
    ///
    /// # Errors
    /// Where it is not staged.
    pub fn defer(&self, id: &str) -> Result<String> {
        let texts = self.texts()?;
        let days = Self::state(&texts).cooldown_days(&Self::config(&texts)?);
        let until = self.today().saturating_add(days.days()).to_string();
        let fields = vec![("Status", "deferred".to_owned()), ("DeferredUntil", until.clone())];
        self.set_aside(id, fields, &format!("deferred until {until}"))?;
        Ok(until)
    }

    fn set_aside(&self, id: &str, fields: Vec<(&str, String)>, what: &str) -> Result<()> {
        let held = self.hold(Reach::All)?;
        let (file, proposal) = plan::find(&held.texts, id)?;
        if !proposal.is_pending() {
            return Err(plan::Refusal::NotStaged { id: id.to_owned(), status: proposal.status }.into());
        }
        let mut pen = Pen::default();
        pen.write(file, held.texts.get(file), edit::set_fields(held.texts.text(file), &HashMap::from([(id, fields)])))?;
        self.audit(&held.texts, &mut pen, &format!("{what} {id} {}", proposal.target))?;
        self.commit(&held, pen)?;
        Ok(())
    }

    /// That a signal is taken in.
    pub fn accepting(id: &str) -> Effect {
        Effect::new(Category::MemoryPropose, format!("accept {id}")).reading(Scope::Knowledge)
    }

    /// Takes a signal in: drafts a proposal from it (never a decision, M4) and gives its id.
    ///
    /// # Errors
    /// Where the permit is not for it, the signal does not wait, or the proposal may not be staged.
    pub fn accept_signal(&self, permit: Permit, id: &str) -> Result<String> {
        permit.spend(&Self::accepting(id), self.now.timestamp())?;
        let held = self.hold(Reach::All)?;
        let texts = &held.texts;
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
            texts.next_id(kind, today, &taken).ok_or_else(|| MemoryError::Request("the day has no ids left".to_owned()))
        };
        let patch = match kind.as_str() {
            "commitment" | "deadline" => format!(
                "[{}]\nDate: {today}\nStatus: todo\nTitle: {excerpt}\nPriority: P2\nProject: none\nDue: none\nOwner: user\nContext: captured as {id}\nNext: none\nDependencies: none\nJustification: {id}\n{sources}History:\n- {today}: created from {id}\n",
                new_id(Kind::Task)?
            ),
            "incident" => {
                format!("[{}]\nDate: {today}\nStatus: open\nSummary: {excerpt}\n{sources}", new_id(Kind::Incident)?)
            }
            _ => format!(
                "[{}]\nDate: {today}\nStatus: active\nScope: global\nStatement: {excerpt}\nRationale: captured as {id}\nSupersedes: none\nTags: captured\n{sources}",
                new_id(Kind::Decision)?
            ),
        };
        let op = Op { kind: Some(OpKind::AppendBlock), patch: patch.trim_end().to_owned(), ..Op::default() };
        let request = Request {
            ops: vec![op],
            risk: String::new(),
            evidence: vec![format!("{id}: {excerpt}")],
            sources: vec![id.to_owned()],
        };
        let mut pen = Pen::default();
        let proposal = self.stage(&held, request, &mut pen)?;
        close_signal(texts, id, "accepted", &mut pen)?;
        self.commit(&held, pen)?;
        Ok(proposal)
    }

    /// Drops a signal.
    ///
    /// # Errors
    /// Where it does not wait.
    pub fn reject_signal(&self, id: &str) -> Result<()> {
        let held = self.hold(Reach::Files(&[SIGNALS, super::AUDIT]))?;
        pending_signal(&held.texts, id)?;
        let mut pen = Pen::default();
        close_signal(&held.texts, id, "rejected", &mut pen)?;
        self.audit(&held.texts, &mut pen, &format!("rejected {id}"))?;
        self.commit(&held, pen)?;
        Ok(())
    }
}

/// Type, excerpt and source of a signal that waits.
fn pending_signal(texts: &Texts, id: &str) -> Result<(String, String, String)> {
    let document = Document::parse(texts.text(SIGNALS));
    let signal = document.block(id).ok_or_else(|| MemoryError::Request(format!("there is no signal {id}")))?;
    match signal.head("Status") {
        "pending" => {
            let head = |key| signal.head(key).to_owned();
            Ok((head("Type"), head("Excerpt"), head("Source")))
        }
        status => Err(MemoryError::Request(format!("{id} is {status}: only a pending signal waits for a word"))),
    }
}

fn close_signal(texts: &Texts, id: &str, status: &str, pen: &mut Pen<Apply>) -> Result<()> {
    let changes = HashMap::from([(id, vec![("Status", status.to_owned())])]);
    Ok(pen.write(SIGNALS, texts.get(SIGNALS), edit::set_fields(texts.text(SIGNALS), &changes))?)
}

/// The file a new block of a kind goes to.
const fn home(kind: Kind) -> &'static str {
    match kind {
        Kind::Decision => "decisions/DECISIONS.md",
        Kind::Task => "tasks/TASKS.md",
        Kind::Project => "entities/projects.md",
        Kind::Person => "entities/people.md",
        Kind::Tool => "entities/tools.md",
        Kind::Incident => "entities/incidents.md",
        _ => "",
    }
}
