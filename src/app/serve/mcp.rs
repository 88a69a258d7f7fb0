//! The governed memory as tools of the Model Context Protocol (<https://modelcontextprotocol.io>), on standard input and
//! output. A tool is a line of [`TOOLS`]; what it may do is decided by the memory's mode, as everywhere.

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

use crate::app::watch::Watch;
use crate::foundation::base::{Clock as _, SystemClock};
use crate::foundation::gate::{self, Category, Permit};
use crate::governance::memory::capture::Heard;
use crate::governance::memory::id::Kind;
use crate::governance::memory::mode::{Capability, Mode};
use crate::governance::memory::proposal::{Op, OpKind};
use crate::governance::memory::search::Query;
use crate::governance::memory::workspace::{Finder, MemoryError, Request, Workspace};

/// Serves the memory in a folder until the client closes the standard input.
///
/// # Errors
/// Where the client does not speak the protocol, or the connection breaks.
pub async fn serve_memory(folder: PathBuf) -> Result<(), McpError> {
    let server = MemoryServer { memory: Arc::new(Memory { folder, finder: Mutex::default() }) };
    let running = server.serve(stdio()).await.map_err(|error| McpError(error.to_string()))?;
    running.waiting().await.map(drop).map_err(|error| McpError(error.to_string()))
}

/// The conversation with the client ended badly.
#[derive(Debug, thiserror::Error)]
#[error("the client could not be served: {0}")]
pub struct McpError(String);

struct MemoryServer {
    memory: Arc<Memory>,
}

struct Memory {
    folder: PathBuf,
    finder: Mutex<Finder>,
}

/// A tool: what it is called, what it takes, what it does to the world.
struct Offer {
    name: &'static str,
    title: &'static str,
    description: &'static str,
    takes: fn() -> Result<Arc<JsonObject>, String>,
    effect: Effect,
    /// What the mode must allow; without it the tool is neither listed nor run.
    needs: Option<Capability>,
    run: fn(&Memory, &Workspace, JsonObject) -> Result<Value, Refused>,
}

/// What calling a tool changes.
enum Effect {
    /// Nothing.
    Reads,
    /// Adds something; `again`: calling it twice is the same as once.
    Adds { again: bool },
    /// Changes what is true.
    Changes,
}

/// Why a tool did not do what it was asked: told to the caller, who can do better.
struct Refused(String);

impl From<MemoryError> for Refused {
    fn from(error: MemoryError) -> Self {
        Self(error.to_string())
    }
}

const TOOLS: [Offer; 8] = [
    Offer {
        name: "status",
        title: "How the memory stands",
        description: "The mode and its gates, how many blocks of each kind there are, what waits for a word.",
        takes: schema_for_input::<Nothing>,
        effect: Effect::Reads,
        needs: None,
        run: |_, workspace, arguments| {
            let Nothing {} = read(arguments)?;
            told(&workspace.status()?)
        },
    },
    Offer {
        name: "search",
        title: "Search decisions, tasks and signals",
        description: "Finds blocks by their words (BM25), with the reason for each hit. Without words, everything that \
                      passes the filters, newest first.",
        takes: schema_for_input::<Search>,
        effect: Effect::Reads,
        needs: None,
        run: |memory, workspace, arguments| {
            let query = read::<Search>(arguments)?.query()?;
            let mut finder = memory.finder.lock().unwrap_or_else(PoisonError::into_inner);
            told(&json!({"hits": finder.search(workspace, &query)?}))
        },
    },
    Offer {
        name: "show",
        title: "Show a block",
        description: "A block as it stands in its file.",
        takes: schema_for_input::<Block>,
        effect: Effect::Reads,
        needs: None,
        run: |_, workspace, arguments| {
            let Block { id } = read(arguments)?;
            let (file, text) = workspace.show(&id)?;
            told(&json!({"id": id, "file": file, "text": text}))
        },
    },
    Offer {
        name: "review",
        title: "Show what waits for a word",
        description: "The staged proposals, each with its evidence, the diff it would make, and what stands against it.",
        takes: schema_for_input::<Nothing>,
        effect: Effect::Reads,
        needs: None,
        run: |_, workspace, arguments| {
            let Nothing {} = read(arguments)?;
            told(&json!({"proposals": workspace.review(false)?}))
        },
    },
    Offer {
        name: "scan",
        title: "Look for contradictions and drift",
        description: "Contradictions between decisions, dead decisions, stalled tasks, impact. Keeps its records in \
                      intelligence/ and, where the mode allows, stages proposals; it never changes what is true.",
        takes: schema_for_input::<Nothing>,
        effect: Effect::Adds { again: true },
        needs: None,
        run: |_, workspace, arguments| {
            let Nothing {} = read(arguments)?;
            told(&workspace.scan()?)
        },
    },
    Offer {
        name: "capture",
        title: "Keep what was said as a signal",
        description: "Listens to a text and keeps each line that sounds like a decision, a commitment, a correction, a \
                      deadline or an incident. Signals wait for a person; they decide nothing.",
        takes: schema_for_input::<Capture>,
        effect: Effect::Adds { again: true },
        needs: None,
        run: |memory, workspace, arguments| {
            let Capture { text, source, kind } = read(arguments)?;
            let heard = [Heard { text: &text, source: &source, kind: kind.as_deref() }];
            let (signals, lost) = workspace.capture(memory.permit(&Workspace::capturing(&heard))?, &heard)?;
            told(&json!({"signals": signals, "lost": lost}))
        },
    },
    Offer {
        name: "propose",
        title: "Stage a proposal",
        description: "Proposes one change of the memory, with its evidence and its sources. Nothing changes until the \
                      proposal is applied.",
        takes: schema_for_input::<Propose>,
        effect: Effect::Adds { again: false },
        needs: Some(Capability::Propose),
        run: |memory, workspace, arguments| {
            let request = read::<Propose>(arguments)?.request()?;
            let permit = memory.permit(&Workspace::proposing(&request))?;
            told(&json!({"proposal": workspace.propose(permit, request)?}))
        },
    },
    Offer {
        name: "apply",
        title: "Apply a staged proposal",
        description: "Changes the files as the proposal says, all of it or nothing, with a snapshot and a receipt. Call \
                      it only for a proposal that a person has chosen.",
        takes: schema_for_input::<Proposal>,
        effect: Effect::Changes,
        needs: Some(Capability::Apply),
        run: |memory, workspace, arguments| {
            let Proposal { id } = read(arguments)?;
            let permit = memory.permit(&workspace.applying(&id)?)?;
            told(&workspace.apply(permit, &id)?)
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
    /// The words; block ids may stand among them.
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
    /// Most hits, 1 to 100; by itself 10.
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
    /// What was said.
    text: String,
    /// Where it comes from, chat:12 for example.
    source: String,
    /// What it is known to be; the whole text is one signal then, whatever its words.
    kind: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Propose {
    /// `append_block`, `insert_after_block`, `update_field`, `append_list_item`, `replace_range`, `set_status` or
    /// `supersede_decision`.
    op: String,
    /// The block that it is about.
    #[serde(default)]
    target: String,
    /// The file, relative to the workspace; by itself the one that holds the target, or the one for its kind.
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
    /// Why.
    evidence: Vec<String>,
    /// Where it comes from.
    sources: Vec<String>,
}

impl Search {
    fn query(self) -> Result<Query, Refused> {
        let day = |day: Option<String>| {
            day.map(|day| day.parse().map_err(|error| Refused(format!("`{day}` is no day: {error}")))).transpose()
        };
        let kind = |name: String| {
            let known = || Kind::ALL.map(Kind::name).join(", ");
            let found = Kind::ALL.into_iter().find(|kind| kind.name() == name);
            found.ok_or_else(|| Refused(format!("there is no kind `{name}`: use one of {}", known())))
        };
        Ok(Query {
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
    fn request(self) -> Result<Request, Refused> {
        let found = OpKind::ALL.iter().find(|(_, name)| *name == self.op);
        let (kind, _) = found.ok_or_else(|| {
            let known = OpKind::ALL.map(|(_, name)| name).join(", ");
            Refused(format!("there is no operation `{}`: use one of {known}", self.op))
        })?;
        let range = match (self.start, self.end) {
            (Some(start), Some(end)) => Some((start, end)),
            (None, None) => None,
            _ => return Err(Refused("`start` and `end` belong together".to_owned())),
        };
        let op = Op {
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
        Ok(Request { ops: vec![op], risk: self.risk, evidence: self.evidence, sources: self.sources })
    }
}

fn read<T: DeserializeOwned>(arguments: JsonObject) -> Result<T, Refused> {
    serde_json::from_value(Value::Object(arguments)).map_err(|error| Refused(format!("the arguments: {error}")))
}

fn told<T: Serialize>(outcome: &T) -> Result<Value, Refused> {
    serde_json::to_value(outcome).map_err(|error| Refused(error.to_string()))
}

impl Offer {
    fn tool(&self) -> Result<Tool, String> {
        let hints = match self.effect {
            Effect::Reads => ToolAnnotations::from_raw(None, Some(true), Some(false), Some(true), Some(false)),
            Effect::Adds { again } => {
                ToolAnnotations::from_raw(None, Some(false), Some(false), Some(again), Some(false))
            }
            Effect::Changes => ToolAnnotations::from_raw(None, Some(false), Some(true), Some(false), Some(false)),
        };
        Ok(Tool::new(self.name, self.description, (self.takes)()?).with_title(self.title).with_annotations(hints))
    }

    fn is_open(&self, mode: Mode) -> bool {
        self.needs.is_none_or(|capability| mode.allows(capability))
    }
}

impl Memory {
    fn open(&self) -> Result<Workspace, MemoryError> {
        Workspace::at(&self.folder, SystemClock.now())
    }

    /// A permit, with its receipts in the memory's folder. What applying takes a person's word for is what a person opened
    /// for assistants by the mode: where the mode is none that applies, the workspace refuses it all the same.
    fn permit(&self, effect: &gate::Effect) -> Result<Permit, Refused> {
        let told = |error: &dyn std::fmt::Display| Refused(error.to_string());
        let clock = Arc::new(SystemClock);
        let permit = if effect.category() == Category::MemoryApply {
            let watch = Watch::applying("memory mcp", &self.folder, clock).map_err(|error| told(&error))?;
            let by = format!("the mode `{}`, which a person set", self.mode());
            watch.ask_by(&by, effect).map(|permit| (watch, permit))
        } else {
            let watch = Watch::proposing("memory mcp", &self.folder, clock).map_err(|error| told(&error))?;
            watch.ask(effect).map(|permit| (watch, permit))
        };
        let (watch, permit) = permit.map_err(|refusal| told(&refusal))?;
        watch.close().map_err(|error| told(&error))?;
        Ok(permit)
    }

    /// The mode as it stands; a damaged one allows nothing.
    fn mode(&self) -> Mode {
        let mode = self.open().and_then(|workspace| workspace.mode());
        mode.unwrap_or(Mode::DetectOnly)
    }

    fn call(&self, name: &str, arguments: JsonObject) -> Result<Value, Refused> {
        let Some(offer) = TOOLS.iter().find(|offer| offer.name == name) else {
            let known: Vec<_> = TOOLS.iter().map(|offer| offer.name).collect();
            return Err(Refused(format!("there is no tool `{name}`: use one of {}", known.join(", "))));
        };
        // What is not offered is refused as well: by the workspace itself, which asks the mode under its lock.
        (offer.run)(self, &self.open()?, arguments)
    }
}

impl ServerHandler for MemoryServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("loom-memory", env!("CARGO_PKG_VERSION")))
            .with_instructions(
                "A project's decisions, tasks and signals in plain Markdown. Search before you assume; capture what is \
                 decided; propose changes with evidence. Only a person's word applies a proposal.",
            )
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mode = self.memory.mode();
        let tools: Result<_, _> = TOOLS.iter().filter(|offer| offer.is_open(mode)).map(Offer::tool).collect();
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
            Err(Refused(why)) => CallToolResult::error(vec![ContentBlock::text(why)]),
        }
        .into())
    }
}
