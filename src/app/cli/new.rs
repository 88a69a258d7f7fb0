//! `loom new`: writes a commented starter config.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use super::terminal::quoted;
use super::{Exit, Failure, Terminal};
use crate::simulation::persona;

/// Write NAME.yaml, a commented starter config
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom new anna            writes anna.yaml
  loom validate anna.yaml  checks it

Existing files are not overwritten.")]
pub(super) struct Args {
    /// The file's name; `.yaml` is added
    #[arg(value_name = "NAME")]
    name: PathBuf,
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let is_yaml = self.name.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
        let mut path = self.name.clone().into_os_string();
        if !is_yaml {
            path.push(".yaml");
        }
        let path = PathBuf::from(path);
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .and_then(|mut file| file.write_all(persona::STARTER.as_bytes()));
        match written {
            Ok(()) => {
                let named = quoted(&path);
                writeln!(
                    terminal.out,
                    "{} written. Edit it, then check it with `loom validate {named}`.",
                    path.display()
                )?;
                Ok(Exit::Ok)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Err(Failure::usage(format!("{} exists and is not overwritten: choose another name", path.display())))
            }
            Err(error) => Err(Failure::usage(format!("{} cannot be written: {error}", path.display()))),
        }
    }
}
