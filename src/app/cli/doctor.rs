//! `loom doctor`: the machine's hardware and how this build uses it.

use std::env;
use std::io::Write;
use std::path::PathBuf;

use serde::Serialize;

use super::output::OutputFormat;
use super::{Exit, Failure, Terminal};
use crate::foundation::base::Digest;
use crate::foundation::chat::ModelSpec;
use crate::governance::mood::Mood;
use crate::inference::engine::{available_memory, gpus, total_memory};
use crate::inference::providers::OpenOptions;
use crate::inference::remote::hub::cache_folder;
use crate::simulation::authorizer::Authorizer;

/// Show this machine's hardware and test the bundled model
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Output format
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    format: OutputFormat,
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
    /// Why there is no GPU.
    no_gpu: Option<String>,
    /// The matrix-product implementation for long prompts on GPUs.
    gpu_products: Option<String>,
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
        let findings = Findings::gather()?;
        match self.format {
            OutputFormat::Text => findings.print(terminal)?,
            OutputFormat::Json => {
                let json = serde_json::to_string_pretty(&findings).map_err(std::io::Error::from)?;
                writeln!(terminal.out, "{json}")?;
            }
        }
        Ok(if findings.bundled_model.problem.is_some() { Exit::CheckFailed } else { Exit::Ok })
    }
}

impl Findings {
    fn gather() -> Result<Self, Failure> {
        let bundled = ModelSpec::Bundled.into();
        let gate = Authorizer::for_models("doctor", Mood::Calm, &[&bundled], None)?;
        let bundled_model = match gate.open_model(&bundled, &OpenOptions::default()) {
            Ok(model) => {
                let info = model.info();
                Bundled { digest: info.digest, layers: info.layers, vocabulary: info.vocabulary, problem: None }
            }
            Err(error) => Bundled { digest: None, layers: None, vocabulary: None, problem: Some(error.to_string()) },
        };
        let features = loom_kernels::cpu_features().into_iter().map(|(name, present)| Feature { name, present });
        let (gpus, gpu_products, no_gpu) = match gpus() {
            Ok(gpus) => (gpus.devices, Some(gpus.products), None),
            Err(why) => (Vec::new(), None, Some(why)),
        };
        let model_cache = cache_folder();
        Ok(Self {
            loom: env!("CARGO_PKG_VERSION"),
            platform: format!("{} {}", env::consts::OS, env::consts::ARCH),
            cores: std::thread::available_parallelism().ok().map(usize::from),
            cpu_features: features.collect(),
            kernels: loom_kernels::active_path().name(),
            memory_total_bytes: total_memory(),
            memory_available_bytes: available_memory(),
            devices: ["cpu".to_owned()].into_iter().chain(gpus).collect(),
            no_gpu,
            gpu_products,
            bundled_model,
            model_cache_exists: model_cache.as_ref().is_some_and(|path| path.is_dir()),
            model_cache,
        })
    }

    fn print(&self, terminal: &mut Terminal) -> std::io::Result<()> {
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
            Some(path) => format!("{} (does not exist)", path.display()),
        };
        let devices = match (&self.no_gpu, &self.gpu_products) {
            (Some(why), _) => format!("CPU only: {why}"),
            (None, Some(products)) => format!("{}; long prompts on a GPU use {products}", self.devices.join("; ")),
            (None, None) => self.devices.join("; "),
        };
        let lines = [
            ("loom", format!("{} on {}", self.loom, self.platform)),
            ("cores", number(self.cores)),
            ("CPU features", format!("{}; absent: {}", features(true), features(false))),
            ("kernels", format!("{} (set {} to choose another)", self.kernels, loom_kernels::PATH_VARIABLE)),
            ("memory", format!("{}, {} of it free", gib(self.memory_total_bytes), gib(self.memory_available_bytes))),
            ("devices", devices),
            ("bundled model", bundled),
            ("model cache", cache),
        ];
        lines.iter().try_for_each(|(name, value)| writeln!(terminal.out, "{name:<14}{value}"))
    }
}

const GIB: f64 = (1u64 << 30) as f64;
