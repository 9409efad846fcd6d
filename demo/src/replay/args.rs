//! The arguments of a replay, independent of any command-line library.

use std::path::PathBuf;
use std::str::FromStr;

use gpumem_alloc::{ConfError, Config, Publish};

use crate::args::DeviceChoice;
use crate::conf::{Conf, Segments, allocator_config};
use crate::replay::gpumem::job;

/// The allocator that is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllocatorChoice {
    /// Our allocator.
    #[default]
    Gpumem,
    /// The driver's, without a cache: every allocation is a `cuMemAlloc`.
    CudaMalloc,
    /// The driver's stream-ordered pool, set to keep its memory. On a GPU only.
    CudaMallocAsync,
}

impl AllocatorChoice {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            AllocatorChoice::Gpumem => "gpumem",
            AllocatorChoice::CudaMalloc => "cudamalloc",
            AllocatorChoice::CudaMallocAsync => "cudamallocasync",
        }
    }
}

impl FromStr for AllocatorChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<AllocatorChoice, String> {
        use AllocatorChoice::{CudaMalloc, CudaMallocAsync, Gpumem};
        let found = [Gpumem, CudaMalloc, CudaMallocAsync]
            .into_iter()
            .find(|a| a.name() == text);
        found.ok_or_else(|| format!("{text:?} is not an allocator: say gpumem, cudamalloc or cudamallocasync"))
    }
}

/// The arguments of a replay. `ReplayArgs::default()` lacks only the trace.
#[derive(Clone, Debug)]
pub struct ReplayArgs {
    /// The file.
    pub trace: PathBuf,
    /// The device to replay on.
    pub device: DeviceChoice,
    /// The allocator that serves the requests.
    pub allocator: AllocatorChoice,
    /// How our allocator takes memory for large blocks; `None` to use its configuration.
    pub segments: Option<Segments>,
    /// The configuration of our allocator; `None` for the environment's.
    pub conf: Option<Conf>,
    /// The number of passes; at least one.
    pub passes: u32,
    /// The most bytes to take from the device. It overrides the configuration of our allocator; `None` keeps that, or allows the
    /// whole device.
    pub limit: Option<u64>,
    /// How many blocks the simulated device lags behind: each block is used by work on its stream, which is done once this many
    /// more blocks have been allocated.
    pub behind: u32,
    /// Whether the report is one JSON object instead of text.
    pub json: bool,
    /// Whether our allocator publishes during the replay, as it does in programs.
    pub publish: bool,
    /// Directory of the channel; `None` for the user's default.
    pub channel_dir: Option<PathBuf>,
}

impl Default for ReplayArgs {
    fn default() -> ReplayArgs {
        ReplayArgs {
            trace: PathBuf::new(),
            device: DeviceChoice::Auto,
            allocator: AllocatorChoice::Gpumem,
            segments: None,
            conf: None,
            passes: 3,
            limit: None,
            behind: 0,
            json: false,
            publish: true,
            channel_dir: None,
        }
    }
}

impl ReplayArgs {
    /// Returns the whole configuration of our allocator.
    pub(super) fn config(&self) -> Result<Config, ConfError> {
        let config = allocator_config(
            self.conf.as_ref(),
            self.segments,
            self.channel_dir.clone(),
            job(&self.trace),
        )?;
        Ok(Config {
            budget: self.limit.or(config.budget),
            publish: if self.publish { config.publish } else { Publish::Off },
            ..config
        })
    }
}
