//! What a replay is told, free of any command-line library.

use std::path::PathBuf;
use std::str::FromStr;

use gpumem_alloc::{ConfError, Config, Publish};

use crate::args::DeviceChoice;
use crate::conf::{Conf, Segments, told};
use crate::replay::gpumem::job;

/// Whose allocations are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllocatorChoice {
    /// Our allocator.
    #[default]
    Gpumem,
    /// The driver's, without any cache: every allocation is a `cuMemAlloc`.
    CudaMalloc,
    /// The driver's stream-ordered pool, told to keep what it has. On a GPU only.
    CudaMallocAsync,
}

impl AllocatorChoice {
    /// What the command line takes.
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
        found.ok_or_else(|| format!("{text:?} is no allocator: say gpumem, cudamalloc or cudamallocasync"))
    }
}

/// What a replay is told. `ReplayArgs::default()` lacks only the trace.
#[derive(Clone, Debug)]
pub struct ReplayArgs {
    /// The file.
    pub trace: PathBuf,
    /// The device to replay on.
    pub device: DeviceChoice,
    /// The allocator that serves the requests.
    pub allocator: AllocatorChoice,
    /// How our allocator takes memory; `None`: as it is told otherwise.
    pub segments: Option<Segments>,
    /// What our allocator is told besides; `None`: what the environment says.
    pub conf: Option<Conf>,
    /// How often; at least once.
    pub passes: u32,
    /// Most bytes to take from the device, for our allocator in place of what it is told; `None`: as many as it is told,
    /// or as the device has.
    pub limit: Option<u64>,
    /// How many blocks the simulated device is behind: each is used by work on its stream, which is done once so many more were handed out.
    pub behind: u32,
    /// One JSON object instead of text.
    pub json: bool,
    /// Whether our allocator publishes meanwhile, as it does in programs.
    pub publish: bool,
    /// Directory of the channel; `None`: the user's.
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
    /// What our allocator is told, all in all.
    pub(super) fn config(&self) -> Result<Config, ConfError> {
        let told = told(
            self.conf.as_ref(),
            self.segments,
            self.channel_dir.clone(),
            job(&self.trace),
        )?;
        Ok(Config {
            budget: self.limit.or(told.budget),
            publish: if self.publish { told.publish } else { Publish::Off },
            ..told
        })
    }
}
