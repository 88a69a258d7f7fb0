//! Entry point of the program `loom`; the commands are in `app::cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    loom_agent::app::cli::main()
}
