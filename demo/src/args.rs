//! The arguments of every demo. Those of a single demo are in its own file.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use crate::conf::Conf;
use crate::values::{parse_duration, parse_number};
use gpumem_text::units::parse_bytes;

/// The device a demo runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The first CUDA device; an error when there is none. Never the simulated one.
    #[default]
    Auto,
    /// The simulated device.
    Sim,
    /// The CUDA device of this ordinal.
    Cuda(u32),
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Auto => f.write_str("auto"),
            DeviceChoice::Sim => f.write_str("sim"),
            DeviceChoice::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceChoice, String> {
        let wanted = || format!("{text:?} is not a device: say  auto, sim, cuda or cuda:N");
        match text {
            "auto" => Ok(DeviceChoice::Auto),
            "sim" => Ok(DeviceChoice::Sim),
            "cuda" => Ok(DeviceChoice::Cuda(0)),
            other => {
                let ordinal = other.strip_prefix("cuda:").ok_or_else(wanted)?;
                ordinal.parse().map(DeviceChoice::Cuda).map_err(|_| wanted())
            }
        }
    }
}

/// The arguments of every demo. `RunArgs::default()` equals a command line without flags.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// Run here, step by step on stdout, without the dashboard
    #[arg(long)]
    pub headless: bool,
    /// One JSON object per line, of schema gpumem-demo/1
    #[arg(long, requires = "headless")]
    pub json: bool,
    /// Where to run: auto (a GPU), sim, cuda or cuda:N
    // It needs its own id: `gpumem-tui` has another `--device`, and clap also passes global flags upwards.
    #[arg(id = "run_device", long = "device", value_name = "DEVICE", value_parser = |text: &str| text.parse::<DeviceChoice>())]
    pub device: Option<DeviceChoice>,
    /// Most device memory to use: 512M, 2G [default: 2G, and at most a tenth of what is free]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_parser = |text: &str| parse_bytes(text))]
    pub budget: Option<u64>,
    /// Time between steps: 500ms, 2s [default: none]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_duration)]
    pub pace: Option<Duration>,
    /// Seed of everything random [default: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value = "1", hide_default_value = true, value_parser = |text: &str| parse_number(text, 0..=u64::MAX))]
    pub seed: u64,
    /// Wait for lines on stdin: next, fix NAME, quit
    #[arg(long, requires = "headless")]
    pub steer: bool,
    /// Options of the allocator [default: those of GPUMEM_ALLOC_CONF]; help lists them
    #[arg(long, value_name = "TEXT")]
    pub conf: Option<Conf>,
    /// Process id of the dashboard that steers
    #[arg(long, value_name = "PID", requires = "steer", hide = true, value_parser = |text: &str| parse_number(text, 0..=u32::MAX))]
    pub parent: Option<u32>,
    /// Directory of the channel; `None` for the user's default.
    #[arg(skip)]
    pub channel_dir: Option<PathBuf>,
}

impl Default for RunArgs {
    fn default() -> RunArgs {
        RunArgs {
            headless: false,
            json: false,
            device: None,
            budget: None,
            pace: None,
            seed: 1,
            steer: false,
            conf: None,
            parent: None,
            channel_dir: None,
        }
    }
}

impl RunArgs {
    /// Returns the flags that apply to any demo. The dashboard passes them to each demo that is started there.
    pub fn shared_flags(&self) -> Vec<String> {
        let flag = |name: &str, value: Option<String>| value.map(|value| [format!("--{name}"), value]);
        let seed = (self.seed != 1).then(|| self.seed.to_string());
        let flags = [
            flag("budget", self.budget.map(|n| n.to_string())),
            flag("pace", self.pace.map(|p| format!("{}ms", p.as_millis()))),
            flag("seed", seed),
            flag("conf", self.conf.as_ref().map(|conf| conf.text().to_owned())),
        ];
        flags.into_iter().flatten().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_by_name() {
        assert_eq!("cuda:3".parse(), Ok(DeviceChoice::Cuda(3)));
        assert_eq!("cuda".parse(), Ok(DeviceChoice::Cuda(0)));
        assert_eq!("sim".parse(), Ok(DeviceChoice::Sim));
        for bad in ["", "cuda:", "cuda:-1", "gpu", "sim:0"] {
            assert!(bad.parse::<DeviceChoice>().is_err(), "{bad:?}");
        }
        for device in [DeviceChoice::Auto, DeviceChoice::Sim, DeviceChoice::Cuda(3)] {
            assert_eq!(device.to_string().parse(), Ok(device));
        }
    }
}
