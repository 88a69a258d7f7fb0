//! `--device`: the device on which local models run.

use std::io::Write;

use super::{Failure, Terminal};
use crate::inference::engine::{Device, DeviceChoice};

/// The device of all models of a command.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct DeviceArg {
    /// Device for local models: `cpu`, `cuda:N`, or `auto` (a GPU if available)
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    device: DeviceChoice,
}

impl DeviceArg {
    /// The device. If `auto` selects the CPU, prints why.
    pub(super) fn decide(&self, terminal: &mut Terminal) -> Result<Device, Failure> {
        decide(self.device, "Models run", terminal)
    }
}

/// The device of one role; `who` begins the message, such as "The judge's model runs".
pub(super) fn device_for_role(
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
