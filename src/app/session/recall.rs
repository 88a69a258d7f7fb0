//! What a session takes from the governed memory and gives to it: what bears on the need, when it begins, and its verdict as
//! a proposal, when it ends. A person applies it or not.

use super::audit::NOT_SEARCHED;
use super::core::Session;
use super::place::SessionError;
use super::tools::Memory;
use super::{finding, phrases};
use crate::foundation::gate::Entry;
use crate::governance::memory::id::Kind;
use crate::governance::memory::proposal::{Op, OpKind};
use crate::governance::memory::workspace::{MemoryError, Request, Workspace};
use crate::governance::statechart::hope::Footer;

const DECISIONS: &str = "decisions/DECISIONS.md";
const PROPOSED: &str = "intelligence/proposed/";

impl Session {
    /// What the memory holds that bears on the need, a line each; why it was not searched, where it could not be.
    pub(super) fn recall(&mut self) -> Result<Vec<String>, SessionError> {
        let lines = self.search()?;
        for line in &lines {
            (self.told)(&format!("[KNOWN] {line}"));
        }
        Ok(lines)
    }

    fn search(&mut self) -> Result<Vec<String>, SessionError> {
        let Some(folder) = self.settings.memory.clone() else { return Ok(Vec::new()) };
        let memory = match Workspace::at(&folder, self.ward.now()) {
            Ok(workspace) => Memory::new(workspace),
            Err(error) => return Ok(vec![format!("{NOT_SEARCHED}{error}")]),
        };
        let need = self.course.work.need.clone();
        let permit = self.ward.ask(&memory.searching(&need))?;
        Ok(match memory.search(permit, &need, self.ward.now()) {
            Ok(hits) => {
                let line =
                    |hit: &crate::governance::memory::search::Hit| format!("{} {}: {}", hit.id, hit.status, hit.title);
                hits.iter().map(line).collect()
            }
            Err(error) => vec![format!("{NOT_SEARCHED}{error}")],
        })
    }

    /// Proposes the verdict as a decision. A session that is taken up again finds its own proposal there already.
    pub(super) fn propose(&mut self, footer: &Footer, report: &str) -> Result<(), SessionError> {
        let Some(folder) = self.settings.memory.clone() else { return Ok(()) };
        let said = match self.proposal(&folder, footer, report)? {
            Ok(id) => {
                format!("The verdict is proposed to the memory: `loom memory review {}` shows {id}", folder.display())
            }
            Err(why) => format!("The verdict is not proposed to the memory: {why}"),
        };
        (self.told)(&said);
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
        let drafted = Workspace::at(folder, self.ward.now()).and_then(|workspace| {
            let known = workspace.review(true)?.into_iter().find(|review| review.evidence.contains(&evidence));
            let found = finding::of(&self.course.work);
            let request = request(&workspace, &self.course.work.need, (found, footer), &evidence)?;
            Ok((workspace, known.map(|review| review.id), request))
        });
        let (workspace, request) = match drafted {
            Ok((_, Some(id), _)) => return Ok(Ok(id)),
            Ok((workspace, None, request)) => (workspace, request),
            Err(error) => return Ok(Err(error)),
        };
        let proposed = match self.ward.ask(&Memory::proposing(&request)) {
            Ok(permit) => workspace.propose(permit, request),
            Err(refusal) => Err(refusal.into()),
        };
        let body = match &proposed {
            Ok(id) => serde_json::json!({"tool": "memory_propose", "proposal": id}),
            Err(error) => serde_json::json!({"tool": "memory_propose", "refused": error.to_string()}),
        };
        self.ward.record(&[], vec![Entry::new("tool.called", body)])?;
        Ok(proposed)
    }
}

/// The verdict as a new decision.
fn request(
    workspace: &Workspace,
    need: &str,
    (found, footer): (finding::Finding, &Footer),
    evidence: &str,
) -> Result<Request, MemoryError> {
    let (texts, today) = (workspace.texts()?, workspace.today());
    let taken: Vec<&str> = texts.iter().map(|(path, _)| path).filter(|path| path.starts_with(PROPOSED)).collect();
    let taken = [&[DECISIONS], taken.as_slice()].concat();
    let none = || MemoryError::Request("the day has no ids left".to_owned());
    let id = texts.next_id(Kind::Decision, today, &taken).ok_or_else(none)?;
    let (need, verdict) = (phrases::one_line(need), phrases::one_line(&footer.to_string()));
    let patch = format!(
        "[{id}]\nDate: {today}\nStatus: active\nScope: global\nStatement: Verdict on \"{need}\": {found}; {verdict}\nRationale: what was measured, and the verify gate\nSupersedes: none\nTags: session\nSources:\n- {evidence}"
    );
    let op = Op { kind: Some(OpKind::AppendBlock), patch, ..Op::default() };
    let evidence = evidence.to_owned();
    Ok(Request { ops: vec![op], risk: "low".to_owned(), evidence: vec![evidence.clone()], sources: vec![evidence] })
}
