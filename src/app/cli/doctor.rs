//! `loom doctor`: what this machine offers, and what this build makes of it.

use std::env;
use std::io::Write;
use std::path::PathBuf;

use clap::ValueEnum;
use serde::Serialize;

use super::{Exit, Failure, Terminal};
use crate::foundation::base::Digest;
use crate::foundation::chat::ModelSpec;
use crate::inference::engine::gpus;
use crate::inference::providers::{OpenOptions, open};

/// Tell what this machine offers and whether the bundled model works
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// How to tell it
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

#[derive(Debug, Serialize)]
struct Findings {
    loom: &'static str,
    platform: String,
    cores: Option<usize>,
    cpu_features: Vec<Feature>,
    kernels: &'static str,
    memory_total_bytes: Option<u64>,
    memory_available_bytes: Option<u64>,
    devices: Vec<String>,
    /// Why no GPU is among them.
    no_gpu: Option<String>,
    bundled_model: Bundled,
    model_cache: Option<PathBuf>,
    model_cache_exists: bool,
}

#[derive(Debug, Serialize)]
struct Feature {
    name: &'static str,
    present: bool,
}

#[derive(Debug, Serialize)]
struct Bundled {
    digest: Option<Digest>,
    layers: Option<usize>,
    vocabulary: Option<usize>,
    problem: Option<String>,
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let findings = Findings::gather();
        match self.format {
            Format::Text => findings.tell(terminal)?,
            Format::Json => {
                let json = serde_json::to_string_pretty(&findings).map_err(std::io::Error::from)?;
                writeln!(terminal.out, "{json}")?;
            }
        }
        Ok(if findings.bundled_model.problem.is_some() { Exit::CheckFailed } else { Exit::Ok })
    }
}

impl Findings {
    fn gather() -> Self {
        let bundled_model = match open(&ModelSpec::Bundled.into(), &OpenOptions::default()) {
            Ok(model) => {
                let info = model.info();
                Bundled { digest: info.digest, layers: info.layers, vocabulary: info.vocabulary, problem: None }
            }
            Err(error) => Bundled { digest: None, layers: None, vocabulary: None, problem: Some(error.to_string()) },
        };
        let features = loom_kernels::cpu_features().into_iter().map(|(name, present)| Feature { name, present });
        let model_cache = cache();
        let (gpus, no_gpu) = gpus().map_or_else(|why| (Vec::new(), Some(why)), |gpus| (gpus, None));
        Self {
            loom: env!("CARGO_PKG_VERSION"),
            platform: format!("{} {}", env::consts::OS, env::consts::ARCH),
            cores: std::thread::available_parallelism().ok().map(usize::from),
            cpu_features: features.collect(),
            kernels: loom_kernels::active_path().name(),
            memory_total_bytes: memory("MemTotal:"),
            memory_available_bytes: memory("MemAvailable:"),
            devices: ["cpu".to_owned()].into_iter().chain(gpus).collect(),
            no_gpu,
            bundled_model,
            model_cache_exists: model_cache.as_ref().is_some_and(|path| path.is_dir()),
            model_cache,
        }
    }

    fn tell(&self, terminal: &mut Terminal) -> std::io::Result<()> {
        let unknown = || "unknown".to_owned();
        let gib = |bytes: Option<u64>| bytes.map_or_else(unknown, |bytes| format!("{:.1} GiB", bytes as f64 / GIB));
        let number = |value: Option<usize>| value.map_or_else(unknown, |value| value.to_string());
        let features = |present| -> String {
            let listed = self.cpu_features.iter().filter(|feature| feature.present == present);
            let names: Vec<_> = listed.map(|feature| feature.name).collect();
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        };
        let model = &self.bundled_model;
        let bundled = match (&model.problem, model.digest) {
            (Some(problem), _) => format!("does not open: {problem}"),
            (None, digest) => format!(
                "opens; {} layers, {} tokens, digest {}",
                number(model.layers),
                number(model.vocabulary),
                digest.map_or_else(unknown, |digest| digest.short())
            ),
        };
        let cache = match &self.model_cache {
            None => unknown(),
            Some(path) if self.model_cache_exists => path.display().to_string(),
            Some(path) => format!("{} (not there)", path.display()),
        };
        let devices = match &self.no_gpu {
            Some(why) => format!("CPU only: {why}"),
            None => self.devices.join("; "),
        };
        let lines = [
            ("loom", format!("{} on {}", self.loom, self.platform)),
            ("cores", number(self.cores)),
            ("CPU features", format!("{}; absent: {}", features(true), features(false))),
            ("kernels", format!("{} ({} chooses another)", self.kernels, loom_kernels::PATH_VARIABLE)),
            ("memory", format!("{}, {} of it free", gib(self.memory_total_bytes), gib(self.memory_available_bytes))),
            ("devices", devices),
            ("bundled model", bundled),
            ("model cache", cache),
        ];
        lines.iter().try_for_each(|(name, told)| writeln!(terminal.out, "{name:<14}{told}"))
    }
}

const GIB: f64 = (1u64 << 30) as f64;

/// A line of Linux's `/proc/meminfo`, in bytes; unknown elsewhere.
fn memory(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib = text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?;
    kib.parse::<u64>().ok()?.checked_mul(1024)
}

/// Where the Hugging Face hub's tools keep models, by their own rules.
fn cache() -> Option<PathBuf> {
    let variable = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(cache) = variable("HF_HUB_CACHE") {
        return Some(cache);
    }
    let home = variable("HF_HOME").or_else(|| Some(env::home_dir()?.join(".cache").join("huggingface")))?;
    Some(home.join("hub"))
}
