//! `loom session`: works on a need until there is a verified result.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;

use clap::{Subcommand, ValueEnum};

use super::input::read_file;
use super::terminal::quoted;
use super::{Exit, Failure, Terminal, remote};
use crate::app::session::{
    ReadingCheck, Session, SessionEnv, SessionError, SessionSettings, SessionStatus, SessionTexts, StudyQuestion,
    check_reading,
};
use crate::foundation::base::{Clock, SystemClock, limits};
use crate::foundation::chat::{ModelChain, ModelSpec};
use crate::foundation::store::RealDisk;
use crate::foundation::store::read_limited;
use crate::foundation::store::receipts::{ContentStore, LOG, Receipt, ReceiptKey, chain};
use crate::governance::memory::workspace::Workspace;
use crate::governance::mood::{Mood, MoodProfiles};
use crate::governance::statechart::hope::Engagement;
use crate::inference::providers::OpenOptions;
use crate::simulation::authorizer::Authorizer;
use crate::simulation::judge::info;
use crate::simulation::persona;

/// Work on a need: questions, a brief, rollouts, expert reviews, verification, a report
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a session
    #[command(after_help = "\
Examples:
  loom session start \"How does a depressed patient hold up over 50 turns?\"
  loom session start \"Look at the student\" --engagement collaborative
  loom session start \"Does she hold?\" --config anna.yaml --turns 20
  loom session start \"Compare the student with its ablation over 10 turns\" --measure persona_llr/1 --threshold 0.1
  loom session start \"Does the student hold over 10 turns?\" --against-target openai/gpt-4o

A session is a folder with its receipts, runs, brief.md and report.md. If it is interrupted, continue it with \
`loom session resume DIR`. When it is over, `loom session answer DIR \"NEW: …\"` starts the next piece of work there.

Exit codes: 0 it waits for an answer or is over, 4 an effect was denied, 5 a model failed.")]
    Start(Box<Start>),
    /// Answer a question of a session
    Answer {
        /// The session's folder
        folder: PathBuf,
        /// The answer: `1A, 2B`, IDK, YES, `EDITS: …`, SATISFIED, PROMOTE, `NEW: …`, `WRONG: …`, `CONSULT clinician: …`, …
        answer: String,
        #[command(flatten)]
        remote: remote::RemoteArgs,
    },
    /// Print the status of a session
    Status {
        /// The session's folder
        folder: PathBuf,
    },
    /// Continue an interrupted session
    Resume {
        /// The session's folder
        folder: PathBuf,
        #[command(flatten)]
        remote: remote::RemoteArgs,
    },
    /// Test whether a model reads needs right; sessions ask it only if it does
    #[command(after_help = "\
The model chooses among the allowed values of each field of the plan, for the labelled needs of the development corpus. It is \
capable if no field is wrong and nine of ten are sure. Where its reading and that of the rules disagree, a session asks.

Exit codes: 0 it is capable, 1 it is not, 5 the model failed.")]
    Check {
        /// The model
        #[arg(long, value_name = "MODEL")]
        model: Option<ModelChain>,
        #[command(flatten)]
        remote: remote::RemoteArgs,
    },
    /// Print the log of a session, step by step
    Log {
        /// The session's folder
        folder: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
struct Start {
    /// The need: what to find out, in a sentence
    need: String,
    /// How many questions to ask; if not given, the session engagement for it
    #[arg(long, value_name = "HOW", value_enum)]
    engagement: Option<EngagementArg>,
    /// The session's model: it answers the session's questions, also in the roles of the experts
    #[arg(long, value_name = "MODEL")]
    model: Option<ModelChain>,
    /// The persona's model
    #[arg(long, value_name = "MODEL")]
    persona_model: Option<ModelChain>,
    /// The model under test, which the persona talks with
    #[arg(long, value_name = "MODEL")]
    target: Option<ModelChain>,
    /// The judge model; by default the session's model, if it passed `loom judge check`
    #[arg(long, value_name = "MODEL")]
    judge_model: Option<ModelChain>,
    /// A stronger model, asked after repeated unsure answers of the session's model
    #[arg(long, value_name = "MODEL")]
    strong_model: Option<ModelChain>,
    /// The name of an expert to exclude; repeatable
    #[arg(long, value_name = "NAME")]
    without_expert: Vec<String>,
    /// A memory workspace: searched for entries about the need, and the verdict is proposed to it
    #[arg(long, value_name = "DIR")]
    memory: Option<PathBuf>,
    /// The persona's config; by default the built-in one that the need names
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Compare with another arm: `ablation` is the same model with the persona's name alone
    #[arg(long, value_name = "ARM", value_enum, group = "arm")]
    against: Option<Against>,
    /// Compare with the same persona and another target
    #[arg(long, value_name = "MODEL", group = "arm")]
    against_target: Option<ModelChain>,
    /// Compare with another config of the persona: another prompt
    #[arg(long, value_name = "FILE", group = "arm")]
    against_config: Option<PathBuf>,
    /// The score that decides, by its id in docs/SCORES.md; by default `persona_adherence/1` with a judge, else
    /// `persona_llr/1`
    #[arg(long, value_name = "ID")]
    measure: Option<String>,
    /// What the measure, or its difference between the arms, must exceed
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    threshold: Option<f64>,
    /// A mood profile that narrows the built-in one; repeatable
    #[arg(long, value_name = "FILE")]
    mood: Vec<PathBuf>,
    /// Turns per rollout
    #[arg(long, value_name = "N")]
    turns: Option<usize>,
    /// Number of rollouts
    #[arg(long, value_name = "N")]
    rollouts: Option<usize>,
    /// The seed of all random draws
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Maximum number of concurrent rollouts
    #[arg(long, value_name = "N", default_value_t = 4)]
    parallel: usize,
    /// The output folder; by default a dated one in `sessions`
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    remote: remote::RemoteArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Against {
    /// The persona's ablation
    Ablation,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum EngagementArg {
    /// No questions: defaults are used and marked as assumptions
    Autonomous,
    /// One round of the most important questions; the rest are assumptions
    Collaborative,
    /// All questions, and steps and risks are always shown
    Guided,
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        match &self.command {
            Command::Start(start) => start.run(terminal),
            Command::Answer { folder, answer, remote } => {
                let mut session = Session::resume(place(folder, opened(remote))?).map_err(failure)?;
                session.answer(answer).map_err(failure)?;
                go(session, folder, &remote.allow_host_flags(std::iter::empty()), terminal)
            }
            Command::Resume { folder, remote } => {
                let session = Session::resume(place(folder, opened(remote))?).map_err(failure)?;
                writeln!(terminal.out, "{}", session.recap())?;
                go(session, folder, &remote.allow_host_flags(std::iter::empty()), terminal)
            }
            Command::Status { folder } => {
                let session_status = Session::look(&receipts(folder)?, &contents(folder), folder).map_err(failure)?;
                status(&session_status, terminal)?;
                Ok(Exit::Ok)
            }
            Command::Check { model, remote } => check(model.clone(), remote, terminal),
            Command::Log { folder } => {
                for receipt in receipts(folder)?.iter().filter(|receipt| is_step(&receipt.entry.kind)) {
                    writeln!(terminal.out, "{:>5}  {}", receipt.seq, line(receipt))?;
                }
                Ok(Exit::Ok)
            }
        }
    }
}

/// Tests how a model reads needs, and stores the result.
fn check(model: Option<ModelChain>, remote: &remote::RemoteArgs, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let chain = model.unwrap_or_else(|| ModelSpec::Bundled.into());
    let mut options = opened(remote);
    options.hosts.allow_chain(&chain);
    let gate = Authorizer::for_models("session check", Mood::Skeptical, &[&chain], None)?;
    let model = gate.open_model(&chain, &options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let check = runtime.block_on(check_reading(model.as_ref(), (&gate, &chain)));
    let check = check.map_err(|refusal| failure(SessionError::Refused(refusal)))?;
    let ReadingCheck { needs, right, unsure, wrong, .. } = &check;
    writeln!(terminal.out, "{needs} needs: {right} fields right, {unsure} unsure, {} wrong", wrong.len())?;
    for line in wrong {
        writeln!(terminal.out, "wrong  {line}")?;
    }
    check.store(model.info()).map_err(|error| Failure::usage(format!("the result was not stored: {error}")))?;
    let capable = check.is_capable();
    let verdict = if capable { "capable: sessions ask it" } else { "not capable: sessions read needs by rules alone" };
    writeln!(terminal.out, "{} is {verdict}", check.model)?;
    Ok(if capable { Exit::Ok } else { Exit::CheckFailed })
}

impl Start {
    /// The models named on the command line.
    const fn named(&self) -> [&Option<ModelChain>; 6] {
        let Self { model, persona_model, target, against_target, judge_model, strong_model, .. } = self;
        [model, persona_model, target, against_target, judge_model, strong_model]
    }

    /// The name and the text of a config, with the decisions that it cites.
    fn config_text(&self, path: &Path) -> Result<(String, String), Failure> {
        let (config, yaml) = persona::load_with_text(path)?;
        let yaml = match &self.memory {
            Some(memory) => {
                let texts = Workspace::at(memory, SystemClock.now())?.texts()?;
                persona::quote_decisions(&config.source, &yaml, &texts)?
            }
            None => yaml,
        };
        Ok((path.display().to_string(), yaml))
    }

    fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let config = self.config.as_deref().map(|path| self.config_text(path)).transpose()?;
        let other_config = self.against_config.as_deref().map(|path| self.config_text(path)).transpose()?;
        if let Some(measure) = self.measure.as_ref().filter(|measure| info(measure).is_none()) {
            return Err(Failure::usage(format!(
                "`{measure}` is no score: docs/SCORES.md lists them, such as persona_llr/1"
            )));
        }
        let question = match (self.against, &self.against_target, &self.against_config) {
            (Some(Against::Ablation), ..) => Some(StudyQuestion::Ablation),
            (None, Some(_), _) => Some(StudyQuestion::Targets),
            (None, None, Some(_)) => Some(StudyQuestion::Prompts),
            (None, None, None) => None,
        };
        if self.threshold.is_some_and(|threshold| !threshold.is_finite()) {
            return Err(Failure::usage("--threshold must be a finite number"));
        }
        let model = |named: &Option<ModelChain>| named.clone().unwrap_or_else(|| ModelSpec::Bundled.into());
        let settings = SessionSettings {
            engagement: self.engagement.map(Engagement::from),
            model: model(&self.model),
            judge: self.judge_model.clone(),
            strong: self.strong_model.clone(),
            blocked: self.without_expert.clone(),
            memory: self
                .memory
                .as_deref()
                .map(|path| fs::canonicalize(path).map_err(|error| file_error(path, &error)))
                .transpose()?,
            persona_model: model(&self.persona_model),
            target: model(&self.target),
            question,
            other_target: self.against_target.clone(),
            other_config: None,
            measure: self.measure.clone(),
            threshold: self.threshold,
            persona: config.as_ref().map(|(name, _)| name.clone()),
            config: None,
            moods: Vec::new(),
            turns: self.turns,
            rollouts: self.rollouts,
            other: None,
            seed: self.seed,
            parallel: self.parallel.clamp(1, limits::ROLLOUTS_MAX),
            reply_tokens_max: limits::REPLY_TOKENS_MAX as u64,
        };
        let now = SystemClock.now();
        let folder = self
            .output
            .clone()
            .unwrap_or_else(|| PathBuf::from(format!("sessions/{}", now.strftime("%Y-%m-%d_%H%M%S"))));
        fs::create_dir_all(&folder).map_err(|error| file_error(&folder, &error))?;
        let mut options = opened(&self.remote);
        let named = self.named();
        named.into_iter().flatten().for_each(|chain| options.hosts.allow_chain(chain));
        let config = config.as_ref().map(|(_, text)| text.as_str());
        let mut moods = Vec::new();
        for path in &self.mood {
            let text = read_file(path)?;
            MoodProfiles::shipped()?.narrowed(&path.display().to_string(), &text)?;
            moods.push(text);
        }
        let other_config = other_config.as_ref().map(|(name, text)| (name.clone(), text.as_str()));
        let texts = SessionTexts { config, other_config, moods };
        let session = Session::start(place(&folder, options)?, &self.need, settings, &texts).map_err(|error| {
            // A refused need leaves no folder; one that holds anything is kept.
            let _not_empty = fs::remove_dir(&folder);
            failure(error)
        })?;
        let named = self.named();
        go(session, &folder, &self.remote.allow_host_flags(named.into_iter().flatten()), terminal)
    }
}

/// Runs the session and prints its messages as they come. `flags`: what the commands that continue it need.
fn go(mut session: Session, folder: &Path, flags: &str, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let (sender, receiver) = mpsc::channel::<String>();
    session.on_message(move |text| {
        // The receiver is gone once output has failed.
        let _ = sender.send(text.to_owned());
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let worked = std::thread::spawn(move || {
        let gone = runtime.block_on(session.go());
        drop(session);
        gone
    });
    // A closed output does not stop the work: it continues until it waits for an answer.
    let mut shown = Ok(());
    for text in receiver {
        if shown.is_ok() {
            shown = writeln!(terminal.out, "{text}").and_then(|()| terminal.out.flush());
        }
    }
    let gone = worked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    shown?;
    let session_status = gone.map_err(|error| {
        // What was done is in the log.
        let _written = if flags.is_empty() {
            Ok(())
        } else {
            writeln!(terminal.err, "Continue with: loom session resume {}{flags}", quoted(folder))
        };
        failure(error)
    })?;
    if session_status.waiting {
        writeln!(terminal.err, "Answer with: loom session answer {}{flags} \"…\"", quoted(folder))?;
    } else if let Some(report) = &session_status.file {
        writeln!(terminal.err, "Report: {}", folder.join(report).display())?;
    }
    Ok(Exit::Ok)
}

fn opened(flags: &remote::RemoteArgs) -> OpenOptions {
    let mut options = OpenOptions::default();
    flags.apply(&mut options);
    options
}

fn place(folder: &Path, options: OpenOptions) -> Result<SessionEnv, Failure> {
    let key_error = |error: &dyn std::fmt::Display| Failure::usage(error.to_string());
    let key = ReceiptKey::path().and_then(|path| ReceiptKey::open(&path)).map_err(|error| key_error(&error))?;
    Ok(SessionEnv {
        folder: folder.to_owned(),
        disk: Arc::new(RealDisk::new(folder)),
        key: Arc::new(key),
        clock: Arc::new(SystemClock),
        options,
    })
}

fn file_error(path: &Path, error: &std::io::Error) -> Failure {
    Failure::usage(format!("{}: {error}", path.display()))
}

fn contents(folder: &Path) -> ContentStore {
    ContentStore::new(Arc::new(RealDisk::new(folder)))
}

fn receipts(folder: &Path) -> Result<Vec<Receipt>, Failure> {
    let path = folder.join(LOG);
    let none = || Failure::usage(format!("{} holds no session", folder.display()));
    let text = read_limited(&path, limits::RECEIPTS_BYTES_MAX)
        .map_err(|error| if error.kind() == ErrorKind::NotFound { none() } else { file_error(&path, &error) })?;
    let (receipts, _) = chain(&text).map_err(|fault| Failure::Message {
        message: format!("{}: {fault}", path.display()),
        exit: Exit::CheckFailed,
    })?;
    Ok(receipts)
}

fn status(session_status: &SessionStatus, terminal: &mut Terminal) -> Result<(), Failure> {
    writeln!(terminal.out, "stage   {}", session_status.stage)?;
    writeln!(terminal.out, "states  {}", session_status.leaves.join(", "))?;
    writeln!(terminal.out, "mood    {}", session_status.mood)?;
    let what = match (session_status.halted, session_status.waiting, session_status.conclusion) {
        (Some(counter), ..) => format!("halted: its {} are used up", counter.name()),
        (None, true, _) => "waiting for an answer".to_owned(),
        (None, false, Some(conclusion)) => format!("over: {conclusion:?}"),
        (None, false, None) => "running or interrupted: continue with `loom session resume`".to_owned(),
    };
    writeln!(terminal.out, "work    {what}")?;
    if let Some(footer) = &session_status.footer {
        writeln!(terminal.out, "{footer}")?;
    }
    if let Some(question) = &session_status.question {
        writeln!(terminal.out, "\n{question}")?;
    }
    Ok(())
}

fn is_step(kind: &str) -> bool {
    ["session.", "mood.", "gate.refused", "gate.lease_refused", "model.", "score.", "tool."]
        .iter()
        .any(|prefix| kind.starts_with(prefix))
}

fn line(receipt: &Receipt) -> String {
    let body = &receipt.entry.body;
    let field =
        |name: &str| body.get(name).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    let or = |name: &str| field(name).unwrap_or_default();
    match receipt.entry.kind.as_str() {
        "session.did" => format!("action   {}", or("action")),
        "session.told" => match field("denied") {
            Some(why) => format!("event    {}: rejected, {why}", or("event")),
            None => format!("event    {}  {}", or("event"), or("leaves")),
        },
        "session.answered" => format!("answer   {}", or("event")),
        "mood.step" | "mood.begun" => format!("mood     {}  {}", or("mood").to_uppercase(), or("taken")),
        "model.quantised" => format!(
            "model    {}: {}",
            or("question"),
            field("choice").filter(|choice| choice != "null").unwrap_or_else(|| format!("unsure, {}", or("unsure")))
        ),
        "score.quantised" => format!("score    {}: {}", or("score"), or("fact")),
        kind => format!("{kind}  {body}"),
    }
}

fn failure(error: SessionError) -> Failure {
    match error {
        SessionError::Config(errors) => Failure::Config(errors),
        SessionError::Model(error) => Failure::Model(error),
        SessionError::Refused(refusal) => Failure::Message { message: refusal.to_string(), exit: Exit::Denied },
        SessionError::Log(error) => Failure::Message { message: error.to_string(), exit: Exit::CheckFailed },
        SessionError::Receipts(error) => Failure::Gate(error),
        error => Failure::usage(error.to_string()),
    }
}

impl From<EngagementArg> for Engagement {
    fn from(engagement: EngagementArg) -> Self {
        match engagement {
            EngagementArg::Autonomous => Self::Autonomous,
            EngagementArg::Collaborative => Self::Collaborative,
            EngagementArg::Guided => Self::Guided,
        }
    }
}
