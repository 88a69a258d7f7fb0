//! Devices that models run on: the CPU, or an NVIDIA GPU if the program was built with the feature `cuda` and the
//! driver finds one. A model never runs on another device than requested: what a GPU does not support is refused with
//! the reason.

use std::fmt;
use std::str::FromStr;

use super::error::LoadError;

/// A device to run a model on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Device {
    /// The CPU.
    #[default]
    Cpu,
    /// The NVIDIA GPU with this ordinal of the driver.
    Cuda(usize),
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

/// The user's choice of device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The first GPU that can be used, else the CPU.
    Auto,
    /// This device only.
    Only(Device),
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ordinal = |text: &str| text.strip_prefix("cuda:")?.parse().ok();
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Only(Device::Cpu)),
            "cuda" => Ok(Self::Only(Device::Cuda(0))),
            other => ordinal(other)
                .map(|ordinal| Self::Only(Device::Cuda(ordinal)))
                .ok_or_else(|| format!("`{other}` is not a device; valid values are `auto`, `cpu` and `cuda:N`")),
        }
    }
}

impl DeviceChoice {
    /// The device to use, and why `Auto` chose the CPU.
    pub fn decide(self) -> (Device, Option<String>) {
        match self {
            Self::Only(device) => (device, None),
            Self::Auto => match usable() {
                Ok(ordinal) => (Device::Cuda(ordinal), None),
                Err(why) => (Device::Cpu, Some(why)),
            },
        }
    }
}

/// The GPUs of this machine, for display.
#[derive(Debug, Clone)]
pub struct Gpus {
    /// One line per GPU.
    pub devices: Vec<String>,
    /// The implementation of large matrix products: cuBLAS, or Loom's own kernels and why.
    pub products: String,
}

/// Information about GPUs for `loom doctor`.
///
/// # Errors
/// Why there is no usable GPU.
pub fn gpus() -> Result<Gpus, String> {
    listed()
}

#[cfg(not(feature = "cuda"))]
const NOT_BUILT: &str = "this build has no GPU support (it is enabled by the feature `cuda`)";

#[cfg(not(feature = "cuda"))]
fn listed() -> Result<Gpus, String> {
    Err(NOT_BUILT.to_owned())
}

#[cfg(not(feature = "cuda"))]
fn usable() -> Result<usize, String> {
    Err(NOT_BUILT.to_owned())
}

#[cfg(feature = "cuda")]
fn listed() -> Result<Gpus, String> {
    use loom_kernels::cuda::{CAPABILITY_MIN, Gpu};
    let gpus = Gpu::all().map_err(|error| error.to_string())?;
    if gpus.is_empty() {
        return Err("the NVIDIA driver reports no GPU".to_owned());
    }
    let line = |gpu: &loom_kernels::cuda::GpuInfo| {
        let ((major, minor), (least, least_minor), (driver, driver_minor)) =
            (gpu.capability, CAPABILITY_MIN, gpu.driver);
        let old = if gpu.capability < CAPABILITY_MIN {
            format!("; too old, {least}.{least_minor} is needed")
        } else {
            String::new()
        };
        let gib = gpu.memory as f64 / f64::from(1 << 30);
        let (name, ordinal) = (&gpu.name, gpu.ordinal);
        format!(
            "cuda:{ordinal} {name}, {gib:.1} GiB, compute capability {major}.{minor}{old}, driver for CUDA {driver}.{driver_minor}"
        )
    };
    let products = Gpu::installed_library().unwrap_or_else(|why| format!("own kernels, slower: no cuBLAS ({why})"));
    Ok(Gpus { devices: gpus.iter().map(line).collect(), products })
}

#[cfg(feature = "cuda")]
fn usable() -> Result<usize, String> {
    use loom_kernels::cuda::{CAPABILITY_MIN, Gpu};
    let gpus = Gpu::all().map_err(|error| error.to_string())?;
    let new = gpus.iter().find(|gpu| gpu.capability >= CAPABILITY_MIN);
    new.map(|gpu| gpu.ordinal).ok_or_else(|| "no GPU of this machine is new enough".to_owned())
}

impl Device {
    /// Returns an error on any device but the CPU, because `what` runs only there.
    pub(super) fn must_be_cpu(self, what: &str) -> Result<(), LoadError> {
        match self {
            Self::Cpu => Ok(()),
            Self::Cuda(_) => Err(LoadError::Start(match listed() {
                Ok(_) => format!("{what} is not supported on a GPU yet; use the device `cpu`"),
                Err(why) => format!("{self} cannot be used: {why}; use the device `cpu`"),
            })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_parsed() {
        let check = |text: &str, expected| assert_eq!(text.parse::<DeviceChoice>().ok(), expected, "{text}");
        check("auto", Some(DeviceChoice::Auto));
        check("cpu", Some(DeviceChoice::Only(Device::Cpu)));
        check("cuda", Some(DeviceChoice::Only(Device::Cuda(0))));
        check("cuda:3", Some(DeviceChoice::Only(Device::Cuda(3))));
        check("cuda:", None);
        check("cuda:-1", None);
        check("gpu", None);
        check("CPU", None);
    }

    #[test]
    fn only_auto_falls_back_to_the_cpu_and_says_why() {
        assert_eq!(DeviceChoice::Only(Device::Cuda(7)).decide(), (Device::Cuda(7), None));
        match DeviceChoice::Auto.decide() {
            (Device::Cpu, why) => assert!(why.is_some()),
            (Device::Cuda(_), why) => assert!(why.is_none()),
        }
    }
}
