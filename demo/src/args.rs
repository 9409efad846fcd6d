//! What a run is told, free of any command-line library.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::conf::{Conf, Segments};
use crate::pace::Speed;

/// Where a demo runs.
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

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceChoice, String> {
        let wanted = || format!("{text:?} is no device: say auto, sim, cuda or cuda:N");
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

/// How the demo `fragmentation` ends large requests' trouble.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fix {
    /// Give the cache back to the driver and ask again.
    Release,
    /// Join the holes by remapping.
    #[default]
    Remap,
    /// Start over with a workspace that is allocated first and reused.
    Workspace,
}

impl Fix {
    /// Every fix, in the order of a list.
    pub const ALL: [Fix; 3] = [Fix::Release, Fix::Remap, Fix::Workspace];

    /// What the command line and `fix NAME` take.
    pub fn name(self) -> &'static str {
        match self {
            Fix::Release => "release",
            Fix::Remap => "remap",
            Fix::Workspace => "workspace",
        }
    }
}

impl FromStr for Fix {
    type Err = String;

    fn from_str(text: &str) -> Result<Fix, String> {
        let found = Fix::ALL.into_iter().find(|fix| fix.name() == text);
        found.ok_or_else(|| format!("{text:?} is no fix: say release, remap or workspace"))
    }
}

/// What a run is told. `DemoArgs::default()` is `demo fragmentation` on the first CUDA device, as text.
#[derive(Clone, Debug)]
pub struct DemoArgs {
    /// A name of [`crate::list()`].
    pub demo: String,
    /// Where.
    pub device: DeviceChoice,
    /// Most bytes of device memory; `None`: 2 GiB or a tenth of the device's free memory, whichever is less, and for `train`
    /// on the simulated device 15/16 of it; for `replay` what the allocator is told, or all there is.
    pub budget: Option<u64>,
    /// The fix a run of `fragmentation` applies unless another one is chosen on the way.
    pub fix: Fix,
    /// JSON lines instead of text.
    pub json: bool,
    /// Wait for [`crate::protocol::Command`] lines on stdin, and end when it ends.
    pub steer: bool,
    /// The id of the process that steers, where it told it.
    pub parent: Option<u32>,
    /// Directory of the channel; `None`: the user's.
    pub channel_dir: Option<PathBuf>,
    /// Time between steps of `fragmentation` that is not steered (`None`: none), and time of one step of `train`
    /// (`None`: [`TRAIN_PACE`]).
    pub pace: Option<Duration>,
    /// Layers of the model that `train` trains.
    pub layers: u32,
    /// Mean batch size of `train`.
    pub batch: u32,
    /// Steps of `train`, passes of `replay`; 0: until told to quit.
    pub steps: u64,
    /// Where `train` writes a snapshot for PyTorch's viewers at its end; it then records a history, and says who held the memory.
    pub snapshot: Option<PathBuf>,
    /// Whether `train` forgets to free something in each step, as programs do.
    pub leak: bool,
    /// What `replay` replays.
    pub trace: Option<PathBuf>,
    /// How fast; `None`: the trace in a minute.
    pub speed: Option<Speed>,
    /// How its allocator takes memory; `None`: the allocator's default.
    pub segments: Option<Segments>,
    /// What its allocator is told besides; `None`: what the environment says.
    pub conf: Option<Conf>,
    /// Seed of everything random: the same seed gives the same run.
    pub seed: u64,
}

/// Time of one training step when no pace is given: at a refresh of 1 s a dashboard sees three moments of each, so that the
/// sawtooth is not lost between samples.
pub const TRAIN_PACE: Duration = Duration::from_secs(3);

impl Default for DemoArgs {
    fn default() -> DemoArgs {
        DemoArgs {
            demo: "fragmentation".to_owned(),
            device: DeviceChoice::Auto,
            budget: None,
            fix: Fix::Remap,
            json: false,
            steer: false,
            parent: None,
            channel_dir: None,
            pace: None,
            layers: 12,
            batch: 32,
            steps: 0,
            snapshot: None,
            leak: false,
            trace: None,
            speed: None,
            segments: None,
            conf: None,
            seed: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_and_fixes_are_read_by_name() {
        assert_eq!("cuda:3".parse(), Ok(DeviceChoice::Cuda(3)));
        assert_eq!("cuda".parse(), Ok(DeviceChoice::Cuda(0)));
        assert_eq!("sim".parse(), Ok(DeviceChoice::Sim));
        for bad in ["", "cuda:", "cuda:-1", "gpu", "sim:0"] {
            assert!(bad.parse::<DeviceChoice>().is_err(), "{bad:?}");
        }
        for fix in Fix::ALL {
            assert_eq!(fix.name().parse(), Ok(fix));
        }
        assert!("defrag".parse::<Fix>().is_err());
    }
}
