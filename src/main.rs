//! The program `loom`; all it does is in `app::cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    loom_agent::app::cli::main()
}
