//! `loom session`: a piece of work from a need to a verified result.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;

use clap::{Subcommand, ValueEnum};

use super::input::read_file;
use super::{Exit, Failure, Terminal, remote};
use crate::app::session::{Place, Session, SessionError, Settings, Standing, Texts};
use crate::foundation::base::{Clock, SystemClock, limits};
use crate::foundation::chat::{ModelChain, ModelSpec};
use crate::foundation::store::RealDisk;
use crate::foundation::store::receipts::{Contents, Key, LOG, Receipt, chain};
use crate::governance::mood::Profiles;
use crate::governance::statechart::hope::Engagement;
use crate::inference::providers::OpenOptions;
use crate::simulation::persona;

/// Take a need to a verified result: questions, a brief, rollouts, experts, checks, a report
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Begin a session
    #[command(after_help = "\
Examples:
  loom session start \"How does a depressed patient hold up over 50 turns?\"
  loom session start \"Look at the student\" --engagement collaborative
  loom session start \"Does she hold?\" --config anna.yaml --turns 20

A session is a folder: its receipts, the runs, brief.md and report.md. Killed at any moment, it goes on with \
`loom session resume DIR`. When it is over, `loom session answer DIR \"NEW: …\"` begins the next piece of work there.

Exit codes: 0 it waits for you or is over, 4 denied, 5 a model failed.")]
    Start(Box<Start>),
    /// Answer what a session asked
    Answer {
        /// The session's folder
        folder: PathBuf,
        /// The answer: `1A, 2B`, IDK, YES, `EDITS: …`, SATISFIED, PROMOTE, `NEW: …`, `WRONG: …`, `CONSULT clinician: …`, …
        answer: String,
        #[command(flatten)]
        remote: remote::Flags,
    },
    /// Say where a session stands
    Status {
        /// The session's folder
        folder: PathBuf,
    },
    /// Go on with a session that was interrupted
    Resume {
        /// The session's folder
        folder: PathBuf,
        #[command(flatten)]
        remote: remote::Flags,
    },
    /// Print what happened, step by step
    Log {
        /// The session's folder
        folder: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
struct Start {
    /// What is wanted, in a sentence
    need: String,
    /// How densely to be asked; asked if not given
    #[arg(long, value_name = "HOW", value_enum)]
    engagement: Option<Asks>,
    /// The session's own model: it answers questions and lends the experts its voice
    #[arg(long, value_name = "MODEL")]
    model: Option<ModelChain>,
    /// The persona's model
    #[arg(long, value_name = "MODEL")]
    persona_model: Option<ModelChain>,
    /// The model under test, which the persona talks with
    #[arg(long, value_name = "MODEL")]
    target: Option<ModelChain>,
    /// The model that judges; the session's own where it passed `loom judge check`, if not given
    #[arg(long, value_name = "MODEL")]
    judge_model: Option<ModelChain>,
    /// A stronger model, which is asked where the session's own was unsure again and again
    #[arg(long, value_name = "MODEL")]
    strong_model: Option<ModelChain>,
    /// An expert who is not to be heard; can be given again
    #[arg(long, value_name = "NAME")]
    without_expert: Vec<String>,
    /// A memory workspace: it is searched for what bears on the need, and the verdict is proposed to it
    #[arg(long, value_name = "DIR")]
    memory: Option<PathBuf>,
    /// The persona's config; if not given, the need says which of those that come with loom
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A mood's profile of your own, which narrows the one that comes with loom; can be given again
    #[arg(long, value_name = "FILE")]
    mood: Vec<PathBuf>,
    /// Turns of a rollout
    #[arg(long, value_name = "N")]
    turns: Option<usize>,
    /// Rollouts
    #[arg(long, value_name = "N")]
    rollouts: Option<usize>,
    /// Where all draws come from
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// How many rollouts at the same time
    #[arg(long, value_name = "N", default_value_t = 4)]
    parallel: usize,
    /// The folder to write; a dated one in `sessions` if not given
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    remote: remote::Flags,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Asks {
    /// Defaults are taken, and marked as assumptions
    Autonomous,
    /// One round of the questions that matter most; the rest are assumptions
    Collaborative,
    /// Every question is asked, and steps and risks are shown unasked
    Guided,
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        match &self.command {
            Command::Start(start) => start.run(terminal),
            Command::Answer { folder, answer, remote } => {
                let mut session = Session::resume(place(folder, opened(remote))?).map_err(failure)?;
                session.answer(answer).map_err(failure)?;
                go(session, folder, terminal)
            }
            Command::Resume { folder, remote } => {
                let session = Session::resume(place(folder, opened(remote))?).map_err(failure)?;
                writeln!(terminal.out, "{}", session.recap())?;
                go(session, folder, terminal)
            }
            Command::Status { folder } => {
                let standing = Session::look(&receipts(folder)?, &contents(folder), folder).map_err(failure)?;
                status(&standing, terminal)?;
                Ok(Exit::Ok)
            }
            Command::Log { folder } => {
                for receipt in receipts(folder)?.iter().filter(|receipt| is_step(&receipt.entry.kind)) {
                    writeln!(terminal.out, "{:>5}  {}", receipt.seq, line(receipt))?;
                }
                Ok(Exit::Ok)
            }
        }
    }
}

impl Start {
    fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let config = match &self.config {
            None => None,
            Some(path) => {
                persona::load(path)?;
                Some((path.display().to_string(), read_file(path)?))
            }
        };
        let model = |named: &Option<ModelChain>| named.clone().unwrap_or_else(|| ModelSpec::Bundled.into());
        let settings = Settings {
            engagement: self.engagement.map(Engagement::from),
            model: model(&self.model),
            judge: self.judge_model.clone(),
            strong: self.strong_model.clone(),
            blocked: self.without_expert.clone(),
            memory: self
                .memory
                .as_deref()
                .map(|path| fs::canonicalize(path).map_err(|error| told(path, &error)))
                .transpose()?,
            persona_model: model(&self.persona_model),
            target: model(&self.target),
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
        fs::create_dir_all(&folder).map_err(|error| told(&folder, &error))?;
        let options = opened(&self.remote);
        let config = config.as_ref().map(|(_, text)| text.as_str());
        let mut moods = Vec::new();
        for path in &self.mood {
            let text = read_file(path)?;
            Profiles::shipped()?.narrowed(&path.display().to_string(), &text)?;
            moods.push(text);
        }
        let texts = Texts { config, moods };
        let session = Session::start(place(&folder, options)?, &self.need, settings, &texts).map_err(failure)?;
        go(session, &folder, terminal)
    }
}

/// Goes on, and prints what is said as it is said.
fn go(mut session: Session, folder: &Path, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let (sender, receiver) = mpsc::channel::<String>();
    session.hear(move |text| {
        // Nobody listens any more once the session stands still.
        let _ = sender.send(text.to_owned());
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let worked = std::thread::spawn(move || {
        let gone = runtime.block_on(session.go());
        drop(session);
        gone
    });
    // Whoever stops reading does not stop the work: it goes on to where it waits.
    let mut shown = Ok(());
    for text in receiver {
        if shown.is_ok() {
            shown = writeln!(terminal.out, "{text}").and_then(|()| terminal.out.flush());
        }
    }
    let gone = worked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    shown?;
    let standing = gone.map_err(failure)?;
    if standing.waiting {
        writeln!(terminal.err, "Answer with: loom session answer {} \"…\"", folder.display())?;
    } else if let Some(report) = &standing.file {
        writeln!(terminal.err, "Report: {}", folder.join(report).display())?;
    }
    Ok(Exit::Ok)
}

fn opened(flags: &remote::Flags) -> OpenOptions {
    let mut options = OpenOptions::default();
    flags.set(&mut options);
    options
}

fn place(folder: &Path, options: OpenOptions) -> Result<Place, Failure> {
    let told = |error: &dyn std::fmt::Display| Failure::usage(error.to_string());
    let key = Key::path().and_then(|path| Key::open(&path)).map_err(|error| told(&error))?;
    Ok(Place {
        folder: folder.to_owned(),
        disk: Arc::new(RealDisk::new(folder)),
        key: Arc::new(key),
        clock: Arc::new(SystemClock),
        options,
    })
}

fn told(path: &Path, error: &std::io::Error) -> Failure {
    Failure::usage(format!("{}: {error}", path.display()))
}

fn contents(folder: &Path) -> Contents {
    Contents::new(Arc::new(RealDisk::new(folder)))
}

fn receipts(folder: &Path) -> Result<Vec<Receipt>, Failure> {
    let path = folder.join(LOG);
    let none = || Failure::usage(format!("{} holds no session", folder.display()));
    let text = fs::read(&path)
        .map_err(|error| if error.kind() == ErrorKind::NotFound { none() } else { told(&path, &error) })?;
    let (receipts, _) = chain(&text)
        .map_err(|fault| Failure::Told { message: format!("{}: {fault}", path.display()), exit: Exit::CheckFailed })?;
    Ok(receipts)
}

fn status(standing: &Standing, terminal: &mut Terminal) -> Result<(), Failure> {
    writeln!(terminal.out, "stage   {}", standing.stage)?;
    writeln!(terminal.out, "states  {}", standing.leaves.join(", "))?;
    writeln!(terminal.out, "mood    {}", standing.mood)?;
    let what = match (standing.halted, standing.waiting, standing.conclusion) {
        (Some(counter), ..) => format!("halted: its {} are used up", counter.name()),
        (None, true, _) => "waits for an answer".to_owned(),
        (None, false, Some(conclusion)) => format!("over: {conclusion:?}"),
        (None, false, None) => "under way, or interrupted: `loom session resume` goes on".to_owned(),
    };
    writeln!(terminal.out, "work    {what}")?;
    if let Some(footer) = &standing.footer {
        writeln!(terminal.out, "{footer}")?;
    }
    if let Some(asked) = &standing.asked {
        writeln!(terminal.out, "\n{asked}")?;
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
        "session.did" => format!("did      {}", or("action")),
        "session.told" => match field("denied") {
            Some(why) => format!("told     {}: not taken, {why}", or("event")),
            None => format!("told     {}  {}", or("event"), or("leaves")),
        },
        "session.answered" => format!("answered {}", or("event")),
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
        SessionError::Refused(refusal) => Failure::Told { message: refusal.to_string(), exit: Exit::Denied },
        SessionError::Log(error) => Failure::Told { message: error.to_string(), exit: Exit::CheckFailed },
        SessionError::Watch(error) => Failure::Watch(error),
        error => Failure::usage(error.to_string()),
    }
}

impl From<Asks> for Engagement {
    fn from(asks: Asks) -> Self {
        match asks {
            Asks::Autonomous => Self::Autonomous,
            Asks::Collaborative => Self::Collaborative,
            Asks::Guided => Self::Guided,
        }
    }
}
