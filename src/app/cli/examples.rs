//! `loom examples`: the example configs.

use std::fs::{OpenOptions, create_dir_all};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::{Exit, Failure, Terminal};
use crate::foundation::config::nearest;
use crate::simulation::persona::{ExampleConfig, adversaries, examples};

/// List, print or copy the example configs
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom examples                    lists them
  loom examples student            prints one
  loom examples --copy my-configs  copies all; does not overwrite files")]
pub(super) struct Args {
    /// Print this example
    #[arg(conflicts_with = "copy")]
    name: Option<String>,
    /// Copy all examples into this folder
    #[arg(long, value_name = "DIR")]
    copy: Option<PathBuf>,
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        if let Some(name) = &self.name {
            print(name, terminal)?;
        } else if let Some(folder) = &self.copy {
            copy(folder, terminal)?;
        } else {
            list(terminal)?;
        }
        Ok(Exit::Ok)
    }
}

fn all() -> impl Iterator<Item = &'static ExampleConfig> {
    examples().iter().chain(adversaries())
}

fn list(terminal: &mut Terminal) -> io::Result<()> {
    let width = all().map(|example| example.path.len()).max().unwrap_or(0);
    for example in all() {
        writeln!(terminal.out, "{:width$}  {}", example.path, example.summary())?;
    }
    Ok(())
}

fn print(name: &str, terminal: &mut Terminal) -> Result<(), Failure> {
    let Some(example) = all().find(|example| example.name == name || example.path == name) else {
        let meant = nearest(name, all().map(|example| example.name));
        let help = meant.map_or("`loom examples` lists them".to_owned(), |meant| format!("did you mean `{meant}`?"));
        return Err(Failure::usage(format!("there is no example called `{name}`: {help}")));
    };
    write!(terminal.out, "{}", example.yaml)?;
    Ok(())
}

fn copy(folder: &Path, terminal: &mut Terminal) -> Result<(), Failure> {
    for example in all() {
        let path = folder.join(example.path);
        let written = path.parent().map_or(Ok(()), create_dir_all).and_then(|()| {
            let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
            file.write_all(example.yaml.as_bytes())
        });
        match written {
            Ok(()) => writeln!(terminal.out, "{} written", path.display())?,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                writeln!(terminal.out, "{} exists, not overwritten", path.display())?;
            }
            Err(error) => return Err(Failure::usage(format!("{} cannot be written: {error}", path.display()))),
        }
    }
    Ok(())
}
