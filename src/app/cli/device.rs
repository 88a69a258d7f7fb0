//! `--device`: where local models run.

use std::io::Write;

use super::{Failure, Terminal};
use crate::inference::engine::{Device, DeviceChoice};

/// Of all models of a command.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct DeviceArg {
    /// Where local models run: `cpu`, `cuda:N`, or `auto` for a GPU where one can be used
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    device: DeviceChoice,
}

impl DeviceArg {
    /// The device, after telling why it is the CPU where that was not asked for.
    pub(super) fn decide(&self, terminal: &mut Terminal) -> Result<Device, Failure> {
        decide(self.device, "Models run", terminal)
    }
}

/// The same of one role: `who` runs there, in words.
pub(super) fn of_role(
    choice: Option<DeviceChoice>,
    who: &str,
    terminal: &mut Terminal,
) -> Result<Option<Device>, Failure> {
    choice.map(|choice| decide(choice, who, terminal)).transpose()
}

fn decide(choice: DeviceChoice, who: &str, terminal: &mut Terminal) -> Result<Device, Failure> {
    let (device, why) = choice.decide();
    if let Some(why) = why {
        writeln!(terminal.err, "{who} on the CPU: {why}.")?;
    }
    Ok(device)
}
