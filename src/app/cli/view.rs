//! `loom view`: a transcript, turn by turn, in the terminal; as plain text where there is none.

mod page;
mod reader;
mod screen;
mod wrap;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use ratatui::crossterm::event::{self, Event, KeyEventKind};

use self::page::Page;
pub(super) use self::page::{LIKELY, likely};
use self::reader::{Book, Next, Reader};
use super::{Exit, Failure, Terminal};
use crate::simulation::report::load;

/// Page through a transcript
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom view results/anna                   all rollouts of a run
  loom view results/anna/rollout_000.json  one
  loom view results/anna | less            plain text

On a terminal, `?` shows the keys. A token's colour says how likely the model found it.")]
pub(super) struct Args {
    /// A transcript, or a results folder
    #[arg(value_name = "FILE|DIR")]
    path: PathBuf,
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let mut books = Vec::new();
        for loaded in load(&self.path).map_err(|error| super::report::failure(&error))? {
            if let Some(why) = &loaded.tokens_missing {
                writeln!(terminal.err, "{}: shown without colours where tokens are missing: {why}", loaded.file)?;
            }
            books.push(Book { file: loaded.file, transcript: loaded.transcript, tokens: loaded.tokens });
        }
        if io::stdout().is_terminal() && io::stdin().is_terminal() {
            page_through(Reader::new(books), terminal.color)?;
        } else {
            print(&books, terminal)?;
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

fn print(books: &[Book], terminal: &mut Terminal) -> io::Result<()> {
    for book in books {
        writeln!(terminal.out, "{}", book.title())?;
        for index in 0..book.transcript.turns.len() {
            let Some(page) = Page::of(book, index) else { continue };
            writeln!(terminal.out, "\n{}", page.heading)?;
            for line in page.lines(terminal.width, false) {
                writeln!(terminal.out, "{}", line.to_string().trim_end())?;
            }
        }
        writeln!(terminal.out)?;
    }
    Ok(())
}
