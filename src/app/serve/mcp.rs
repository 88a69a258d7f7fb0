//! The governed memory as tools of the Model Context Protocol (<https://modelcontextprotocol.io>), over standard input
//! and output. Each tool is an entry of [`TOOLS`]; the memory's mode decides what is permitted.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::handler::server::tool::schema_for_input;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, JsonObject, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::schemars::JsonSchema;
use rmcp::service::{RequestContext, RoleServer, ServiceExt};
use rmcp::transport::stdio;
use rmcp::{ErrorData, ServerHandler};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::foundation::base::{Clock as _, SystemClock};
use crate::foundation::gate::{self, Category, Permit};
use crate::governance::memory::capture::CaptureInput;
use crate::governance::memory::id::BlockKind;
use crate::governance::memory::mode::{MemoryCapability, Mode};
use crate::governance::memory::proposal::{ProposalOp, ProposalOpKind};
use crate::governance::memory::search::SearchQuery;
use crate::governance::memory::workspace::{CachedSearch, MemoryError, ProposalRequest, Workspace};
use crate::simulation::authorizer::Authorizer;

/// Serves the memory in a folder until the client closes the standard input.
///
/// # Errors
/// If the client does not speak the protocol, or the connection breaks.
pub async fn serve_memory(folder: PathBuf) -> Result<(), McpError> {
    let server = MemoryServer { memory: Arc::new(Memory { folder, finder: Mutex::default() }) };
    let running = server.serve(stdio()).await.map_err(|error| McpError(error.to_string()))?;
    running.waiting().await.map(drop).map_err(|error| McpError(error.to_string()))
}

/// The connection to the client failed.
#[derive(Debug, thiserror::Error)]
#[error("the connection to the client failed: {0}")]
pub struct McpError(String);

struct MemoryServer {
    memory: Arc<Memory>,
}

struct Memory {
    folder: PathBuf,
    finder: Mutex<CachedSearch>,
}

/// A tool: name, arguments, and effect on the world.
struct MemoryTool {
    name: &'static str,
    title: &'static str,
    description: &'static str,
    arguments_schema: fn() -> Result<Arc<JsonObject>, String>,
    effect: ToolEffect,
    /// The capability that the mode must allow; otherwise the tool is neither listed nor run.
    needs: Option<MemoryCapability>,
    run: fn(&Memory, &Workspace, JsonObject) -> Result<Value, ToolError>,
}

/// The effect of a tool.
enum ToolEffect {
    /// Nothing.
    Reads,
    /// Adds something; `again`: calling it twice has the effect of once.
    Adds { idempotent: bool },
    /// Changes decisions.
    Changes,
}

/// Why a tool failed; sent to the client as the tool's result.
struct ToolError(String);

impl From<MemoryError> for ToolError {
    fn from(error: MemoryError) -> Self {
        Self(error.to_string())
    }
}

const TOOLS: [MemoryTool; 8] = [
    MemoryTool {
        name: "status",
        title: "Status of the memory",
        description: "The mode and its gates, the number of blocks of each kind, and the pending proposals.",
        arguments_schema: schema_for_input::<Nothing>,
        effect: ToolEffect::Reads,
        needs: None,
        run: |_, workspace, arguments| {
            let Nothing {} = read(arguments)?;
            to_json(&workspace.status()?)
        },
    },
    MemoryTool {
        name: "search",
        title: "Search decisions, tasks and signals",
        description: "Finds blocks by their words (BM25), with the reason for each hit. Without words, everything that \
                      passes the filters, newest first.",
        arguments_schema: schema_for_input::<Search>,
        effect: ToolEffect::Reads,
        needs: None,
        run: |memory, workspace, arguments| {
            let query = read::<Search>(arguments)?.query()?;
            let mut finder = memory.finder.lock().unwrap_or_else(PoisonError::into_inner);
            to_json(&json!({"hits": finder.search(workspace, &query)?}))
        },
    },
    MemoryTool {
        name: "show",
        title: "Show a block",
        description: "A block as it is in its file.",
        arguments_schema: schema_for_input::<Block>,
        effect: ToolEffect::Reads,
        needs: None,
        run: |_, workspace, arguments| {
            let Block { id } = read(arguments)?;
            let (file, text) = workspace.show(&id)?;
            to_json(&json!({"id": id, "file": file, "text": text}))
        },
    },
    MemoryTool {
        name: "review",
        title: "Show pending proposals",
        description: "The staged proposals, each with its evidence, the diff it would make, and the objections.",
        arguments_schema: schema_for_input::<Nothing>,
        effect: ToolEffect::Reads,
        needs: None,
        run: |_, workspace, arguments| {
            let Nothing {} = read(arguments)?;
            to_json(&json!({"proposals": workspace.review(false)?}))
        },
    },
    MemoryTool {
        name: "scan",
        title: "Look for contradictions and drift",
        description: "Contradictions between decisions, dead decisions, stalled tasks, impact. Keeps its records in \
                      intelligence/ and, where the mode allows, stages proposals; it never changes what is true.",
        arguments_schema: schema_for_input::<Nothing>,
        effect: ToolEffect::Adds { idempotent: true },
        needs: None,
        run: |_, workspace, arguments| {
            let Nothing {} = read(arguments)?;
            to_json(&workspace.scan()?)
        },
    },
    MemoryTool {
        name: "capture",
        title: "Capture statements as signals",
        description: "Listens to a text and keeps each line that sounds like a decision, a commitment, a correction, a \
                      deadline or an incident. Signals wait for a person; they decide nothing.",
        arguments_schema: schema_for_input::<Capture>,
        effect: ToolEffect::Adds { idempotent: true },
        needs: None,
        run: |memory, workspace, arguments| {
            let Capture { text, source, kind } = read(arguments)?;
            let heard = [CaptureInput { text: &text, source: &source, kind: kind.as_deref() }];
            let (signals, lost) = workspace.capture(memory.permit(&Workspace::capture_effect(&heard))?, &heard)?;
            to_json(&json!({"signals": signals, "lost": lost}))
        },
    },
    MemoryTool {
        name: "propose",
        title: "Stage a proposal",
        description: "Proposes one change of the memory, with its evidence and its sources. Nothing changes until the \
                      proposal is applied.",
        arguments_schema: schema_for_input::<Propose>,
        effect: ToolEffect::Adds { idempotent: false },
        needs: Some(MemoryCapability::Propose),
        run: |memory, workspace, arguments| {
            let request = read::<Propose>(arguments)?.request()?;
            let permit = memory.permit(&Workspace::propose_effect(&request))?;
            to_json(&json!({"proposal": workspace.propose(permit, request)?}))
        },
    },
    MemoryTool {
        name: "apply",
        title: "Apply a staged proposal",
        description: "Changes the files as the proposal says, all of it or nothing, with a snapshot and a receipt. Call \
                      it only for a proposal that a person has chosen.",
        arguments_schema: schema_for_input::<Proposal>,
        effect: ToolEffect::Changes,
        needs: Some(MemoryCapability::Apply),
        run: |memory, workspace, arguments| {
            let Proposal { id } = read(arguments)?;
            let permit = memory.permit(&workspace.apply_effect(&id)?)?;
            to_json(&workspace.apply(permit, &id)?)
        },
    },
];

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
struct Search {
    /// The words; may include block ids.
    text: String,
    /// Only this kind: decision, task, project, person, tool, incident, contradiction, drift, impact, signal, …
    kind: Option<String>,
    /// Only this status.
    status: String,
    /// Only with this tag.
    tag: String,
    /// Only of this project.
    project: String,
    /// Not before this day, YYYY-MM-DD.
    from: Option<String>,
    /// Not after this day, YYYY-MM-DD.
    to: Option<String>,
    /// Maximum number of hits, 1 to 100; 10 by default.
    limit: Option<usize>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Block {
    /// The block's id, D-20260220-001 for example.
    id: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Proposal {
    /// The proposal's id, P-20260220-001 for example.
    id: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Capture {
    /// The text.
    text: String,
    /// The source, chat:12 for example.
    source: String,
    /// The kind of signal, if known; the whole text becomes one signal then.
    kind: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Propose {
    /// `append_block`, `insert_after_block`, `update_field`, `append_list_item`, `replace_range`, `set_status` or
    /// `supersede_decision`.
    op: String,
    /// The target block.
    #[serde(default)]
    target: String,
    /// The file, relative to the workspace; by default the file of the target, or of its kind.
    #[serde(default)]
    file: String,
    /// `set_status`: the new status.
    #[serde(default)]
    status: String,
    /// `set_status`: a line for History.
    #[serde(default)]
    history: String,
    /// `update_field`, `append_list_item`: the field.
    #[serde(default)]
    field: String,
    /// `update_field`, `append_list_item`: the value or the item.
    #[serde(default)]
    value: String,
    /// `replace_range`: what the first line to replace contains.
    start: Option<String>,
    /// `replace_range`: what the line after the last contains.
    end: Option<String>,
    /// The new block, or the new lines.
    #[serde(default)]
    patch: String,
    /// `low`, `medium` or `high`.
    #[serde(default)]
    risk: String,
    /// The reasons.
    evidence: Vec<String>,
    /// The sources.
    sources: Vec<String>,
}

impl Search {
    fn query(self) -> Result<SearchQuery, ToolError> {
        let day = |day: Option<String>| {
            day.map(|day| day.parse().map_err(|error| ToolError(format!("`{day}` is not a date: {error}")))).transpose()
        };
        let kind = |name: String| {
            let known = || BlockKind::ALL.map(BlockKind::name).join(", ");
            let found = BlockKind::ALL.into_iter().find(|kind| kind.name() == name);
            found.ok_or_else(|| ToolError(format!("there is no kind `{name}`: use one of {}", known())))
        };
        Ok(SearchQuery {
            text: self.text,
            kind: self.kind.map(kind).transpose()?,
            status: self.status,
            tag: self.tag,
            project: self.project,
            from: day(self.from)?,
            to: day(self.to)?,
            limit: self.limit.unwrap_or(10).clamp(1, 100),
        })
    }
}

impl Propose {
    fn request(self) -> Result<ProposalRequest, ToolError> {
        let found = ProposalOpKind::ALL.iter().find(|(_, name)| *name == self.op);
        let (kind, _) = found.ok_or_else(|| {
            let known = ProposalOpKind::ALL.map(|(_, name)| name).join(", ");
            ToolError(format!("there is no operation `{}`: use one of {known}", self.op))
        })?;
        let range = match (self.start, self.end) {
            (Some(start), Some(end)) => Some((start, end)),
            (None, None) => None,
            _ => return Err(ToolError("`start` and `end` must be given together".to_owned())),
        };
        let op = ProposalOp {
            kind: Some(*kind),
            file: self.file,
            target: self.target,
            field: self.field,
            value: self.value,
            status: self.status,
            history: self.history,
            range,
            patch: self.patch.replace("\r\n", "\n").trim_end().to_owned(),
        };
        Ok(ProposalRequest { ops: vec![op], risk: self.risk, evidence: self.evidence, sources: self.sources })
    }
}

fn read<T: DeserializeOwned>(arguments: JsonObject) -> Result<T, ToolError> {
    serde_json::from_value(Value::Object(arguments)).map_err(|error| ToolError(format!("invalid arguments: {error}")))
}

fn to_json<T: Serialize>(outcome: &T) -> Result<Value, ToolError> {
    serde_json::to_value(outcome).map_err(|error| ToolError(error.to_string()))
}

impl MemoryTool {
    fn tool(&self) -> Result<Tool, String> {
        let hints = match self.effect {
            ToolEffect::Reads => ToolAnnotations::from_raw(None, Some(true), Some(false), Some(true), Some(false)),
            ToolEffect::Adds { idempotent } => {
                ToolAnnotations::from_raw(None, Some(false), Some(false), Some(idempotent), Some(false))
            }
            ToolEffect::Changes => ToolAnnotations::from_raw(None, Some(false), Some(true), Some(false), Some(false)),
        };
        Ok(Tool::new(self.name, self.description, (self.arguments_schema)()?)
            .with_title(self.title)
            .with_annotations(hints))
    }

    fn is_open(&self, mode: Mode) -> bool {
        self.needs.is_none_or(|capability| mode.allows(capability))
    }
}

impl Memory {
    fn open(&self) -> Result<Workspace, MemoryError> {
        Workspace::at(&self.folder, SystemClock.now())
    }

    /// Requests a permit, with receipts in the memory's folder. The approval that applying needs is the mode, which a
    /// person set; the workspace still denies it in other modes.
    fn permit(&self, effect: &gate::Effect) -> Result<Permit, ToolError> {
        let tool_error = |error: &dyn std::fmt::Display| ToolError(error.to_string());
        let clock = Arc::new(SystemClock);
        let permit = if effect.category() == Category::MemoryApply {
            let gate = Authorizer::for_memory_changes("memory mcp", &self.folder, clock)
                .map_err(|error| tool_error(&error))?;
            let by = format!("the mode `{}`, which a person set", self.mode());
            gate.permit_approved(&by, effect).map(|permit| (gate, permit))
        } else {
            let gate = Authorizer::for_memory_proposals("memory mcp", &self.folder, clock)
                .map_err(|error| tool_error(&error))?;
            gate.permit(effect).map(|permit| (gate, permit))
        };
        let (gate, permit) = permit.map_err(|refusal| tool_error(&refusal))?;
        gate.close().map_err(|error| tool_error(&error))?;
        Ok(permit)
    }

    /// The current mode; a damaged one allows nothing.
    fn mode(&self) -> Mode {
        let mode = self.open().and_then(|workspace| workspace.mode());
        mode.unwrap_or(Mode::DetectOnly)
    }

    fn call(&self, name: &str, arguments: JsonObject) -> Result<Value, ToolError> {
        let Some(tool) = TOOLS.iter().find(|tool| tool.name == name) else {
            let known: Vec<_> = TOOLS.iter().map(|tool| tool.name).collect();
            return Err(ToolError(format!("there is no tool `{name}`: use one of {}", known.join(", "))));
        };
        // Tools that are not listed are denied by the workspace, which checks the mode under its lock.
        (tool.run)(self, &self.open()?, arguments)
    }
}

impl ServerHandler for MemoryServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("loom-memory", env!("CARGO_PKG_VERSION")))
            .with_instructions(
                "A project's decisions, tasks and signals in plain Markdown. Search before you assume; capture what is \
                 decided; propose changes with evidence. Only a person's approval applies a proposal.",
            )
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mode = self.memory.mode();
        let tools: Result<_, _> = TOOLS.iter().filter(|tool| tool.is_open(mode)).map(MemoryTool::tool).collect();
        tools.map(ListToolsResult::with_all_items).map_err(|why| ErrorData::internal_error(why, None))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let memory = Arc::clone(&self.memory);
        let arguments = request.arguments.unwrap_or_default();
        let called = tokio::task::spawn_blocking(move || memory.call(&request.name, arguments)).await;
        let outcome = called.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        Ok(match outcome {
            Ok(value) => CallToolResult::structured(value),
            Err(ToolError(why)) => CallToolResult::error(vec![ContentBlock::text(why)]),
        }
        .into())
    }
}
