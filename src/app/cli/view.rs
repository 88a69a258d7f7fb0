//! `loom view`: shows a transcript turn by turn in the terminal, or prints it as plain text.

mod page;
mod reader;
mod screen;
mod wrap;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use ratatui::crossterm::event::{self, Event, KeyEventKind};

use self::page::Page;
pub(super) use self::page::{PROBABILITY_STYLES, probability_style};
use self::reader::{Next, OpenTranscript, Reader};
use super::{Exit, Failure, Terminal};
use crate::simulation::report::load;

/// View a transcript turn by turn
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom view results/anna                   all rollouts of a run
  loom view results/anna/rollout_000.json  one rollout
  loom view results/anna | less            plain text

On a terminal, `?` shows the keys. A token's colour shows its probability.")]
pub(super) struct Args {
    /// A transcript, or a results folder
    #[arg(value_name = "FILE|DIR")]
    path: PathBuf,
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let mut transcripts = Vec::new();
        for loaded in load(&self.path).map_err(|error| super::report::failure(&error))? {
            if let Some(why) = &loaded.tokens_missing {
                writeln!(terminal.err, "{}: some messages have no token colours: {why}", loaded.file)?;
            }
            transcripts.push(OpenTranscript {
                file: loaded.file,
                transcript: loaded.transcript,
                tokens: loaded.tokens,
            });
        }
        if io::stdout().is_terminal() && io::stdin().is_terminal() {
            page_through(Reader::new(transcripts), terminal.color)?;
        } else {
            print(&transcripts, terminal)?;
        }
        Ok(Exit::Ok)
    }
}

fn page_through(mut reader: Reader, color: bool) -> io::Result<()> {
    let mut screen = ratatui::try_init()?;
    let outcome = loop {
        if let Err(error) = screen.draw(|frame| screen::draw(frame, &mut reader, color)) {
            break Err(error);
        }
        match event::read() {
            Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                if reader.key(key) == Next::Leave {
                    break Ok(());
                }
            }
            Ok(_) => {}
            Err(error) => break Err(error),
        }
    };
    ratatui::try_restore()?;
    outcome
}

fn print(transcripts: &[OpenTranscript], terminal: &mut Terminal) -> io::Result<()> {
    for open in transcripts {
        writeln!(terminal.out, "{}", open.title())?;
        for index in 0..open.transcript.turns.len() {
            let Some(page) = Page::of(open, index) else { continue };
            writeln!(terminal.out, "\n{}", page.heading)?;
            for line in page.lines(terminal.width, false) {
                writeln!(terminal.out, "{}", line.to_string().trim_end())?;
            }
        }
        writeln!(terminal.out)?;
    }
    Ok(())
}
