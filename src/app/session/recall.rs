//! The session's use of the governed memory: it is searched for the need at the start, and the verdict is proposed to
//! it at the end. A person applies the proposal or not.

use super::core::Session;
use super::setup::SessionError;
use super::tools::{search, searching};
use super::{finding, phrases};
use crate::foundation::gate::LedgerEntry;
use crate::governance::memory::id::BlockKind;
use crate::governance::memory::proposal::{ProposalOp, ProposalOpKind};
use crate::governance::memory::workspace::{MemoryError, ProposalRequest, Workspace};
use crate::governance::statechart::hope::Footer;

/// The prefix of a line that says why the memory was not searched.
const NOT_SEARCHED: &str = "not searched: ";
const DECISIONS: &str = "decisions/DECISIONS.md";
const PROPOSED: &str = "intelligence/proposed/";

impl Session {
    /// The memory's entries about the need, a line each; or the reason why it could not be searched.
    pub(super) fn recall(&mut self) -> Result<Vec<String>, SessionError> {
        let lines = self.search()?;
        for line in &lines {
            (self.on_message)(&format!("[KNOWN] {line}"));
        }
        Ok(lines)
    }

    fn search(&mut self) -> Result<Vec<String>, SessionError> {
        let Some(folder) = self.settings.memory.clone() else { return Ok(Vec::new()) };
        let memory = match Workspace::at(&folder, self.authorizer.now()) {
            Ok(workspace) => workspace,
            Err(error) => return Ok(vec![format!("{NOT_SEARCHED}{error}")]),
        };
        let need = self.state.work.need.clone();
        let permit = self.authorizer.permit(&searching(&need))?;
        Ok(match search(&memory, permit, &need, self.authorizer.now()) {
            Ok(hits) => {
                let line = |hit: &crate::governance::memory::search::SearchHit| {
                    format!("{} {}: {}", hit.id, hit.status, hit.title)
                };
                hits.iter().map(line).collect()
            }
            Err(error) => vec![format!("{NOT_SEARCHED}{error}")],
        })
    }

    /// Proposes the verdict as a decision. A resumed session finds its own proposal and does not repeat it.
    pub(super) fn propose(&mut self, footer: &Footer, report: &str) -> Result<(), SessionError> {
        let Some(folder) = self.settings.memory.clone() else { return Ok(()) };
        let said = match self.proposal(&folder, footer, report)? {
            Ok(id) => {
                format!("The verdict was proposed to the memory: `loom memory review {}` shows {id}", folder.display())
            }
            Err(why) => format!("The verdict was not proposed to the memory: {why}"),
        };
        (self.on_message)(&said);
        Ok(())
    }

    fn proposal(
        &mut self,
        folder: &std::path::Path,
        footer: &Footer,
        report: &str,
    ) -> Result<Result<String, MemoryError>, SessionError> {
        let name = self.folder.file_name().unwrap_or(self.folder.as_os_str());
        let evidence = format!("the session {}, report {report}", name.display());
        let drafted = Workspace::at(folder, self.authorizer.now()).and_then(|workspace| {
            let known = workspace.review(true)?.into_iter().find(|review| review.evidence.contains(&evidence));
            let found = finding::sentence(&self.state.work);
            let request = request(&workspace, &self.state.work.need, (&found, footer), &evidence)?;
            Ok((workspace, known.map(|review| review.id), request))
        });
        let (workspace, request) = match drafted {
            Ok((_, Some(id), _)) => return Ok(Ok(id)),
            Ok((workspace, None, request)) => (workspace, request),
            Err(error) => return Ok(Err(error)),
        };
        let proposed = match self.authorizer.permit(&Workspace::propose_effect(&request)) {
            Ok(permit) => workspace.propose(permit, request),
            Err(refusal) => Err(refusal.into()),
        };
        let body = match &proposed {
            Ok(id) => serde_json::json!({"tool": "memory_propose", "proposal": id}),
            Err(error) => serde_json::json!({"tool": "memory_propose", "refused": error.to_string()}),
        };
        self.authorizer.record(vec![LedgerEntry::new("tool.called", body)])?;
        Ok(proposed)
    }
}

/// The verdict as a new decision.
fn request(
    workspace: &Workspace,
    need: &str,
    (found, footer): (&str, &Footer),
    evidence: &str,
) -> Result<ProposalRequest, MemoryError> {
    let (texts, today) = (workspace.texts()?, workspace.today());
    let taken: Vec<&str> = texts.iter().map(|(path, _)| path).filter(|path| path.starts_with(PROPOSED)).collect();
    let taken = [&[DECISIONS], taken.as_slice()].concat();
    let none = || MemoryError::InvalidRequest("there are no free decision ids for today".to_owned());
    let id = texts.next_id(BlockKind::Decision, today, &taken).ok_or_else(none)?;
    let (need, verdict) = (phrases::one_line(need), phrases::one_line(&footer.to_string()));
    let patch = format!(
        "[{id}]\nDate: {today}\nStatus: active\nScope: global\nStatement: Verdict on \"{need}\": {found}; {verdict}\nRationale: measured scores and verification\nSupersedes: none\nTags: session\nSources:\n- {evidence}"
    );
    let op = ProposalOp { kind: Some(ProposalOpKind::AppendBlock), patch, ..ProposalOp::default() };
    let evidence = evidence.to_owned();
    Ok(ProposalRequest {
        ops: vec![op],
        risk: "low".to_owned(),
        evidence: vec![evidence.clone()],
        sources: vec![evidence],
    })
}
