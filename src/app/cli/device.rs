//! `--device` and the arguments on where the models of several roles run.

use std::io::Write;

use super::remote::RemoteArgs;
use super::{Failure, Terminal};
use crate::inference::engine::{Device, DeviceChoice};
use crate::inference::providers::{OpenOptions, PerRole};

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
fn device_for_role(
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

/// Where and how fast the models of several roles run: shared by `loom run` and `loom score`.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct RoleArgs {
    /// Number of rollouts or transcripts at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = super::at_least_one)]
    pub(super) parallel: usize,
    /// Compute threads [default: all cores]
    #[arg(long, value_name = "N", value_parser = super::at_least_one)]
    threads: Option<usize>,
    #[command(flatten)]
    device: DeviceArg,
    /// Device of the persona's model
    #[arg(long, value_name = "DEVICE")]
    persona_device: Option<DeviceChoice>,
    /// Device of the judge's model
    #[arg(long, value_name = "DEVICE")]
    judge_device: Option<DeviceChoice>,
    #[command(flatten)]
    pub(super) remote: RemoteArgs,
}

impl RoleArgs {
    /// The options with which models are opened; `interlocutor` is the device of the other side's model.
    pub(super) fn options(
        &self,
        template: Option<String>,
        interlocutor: Option<DeviceChoice>,
        terminal: &mut Terminal,
    ) -> Result<OpenOptions, Failure> {
        let mut options = OpenOptions::new(self.threads, template);
        options.device = self.device.decide(terminal)?;
        options.devices = PerRole {
            persona: device_for_role(self.persona_device, "The persona's model runs", terminal)?,
            interlocutor: device_for_role(interlocutor, "The other side's model runs", terminal)?,
            judge: device_for_role(self.judge_device, "The judge's model runs", terminal)?,
        };
        self.remote.apply(&mut options);
        Ok(options)
    }
}
