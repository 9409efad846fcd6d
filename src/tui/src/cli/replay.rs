//! `replay`.

use std::path::PathBuf;

use clap::Args;
use gpumem_demo::replay::{AllocatorChoice, ReplayArgs, Segments};
use gpumem_demo::{DeviceChoice, parse_bytes};

const AFTER: &str = "\
Traces, each plain or compressed with gzip, known by how they begin:
  op,id,bytes,stream                      rows a,ID,BYTES,STREAM and f,ID
  Thread,Time,Action,Pointer,Size,Stream  the log of RMM's logging_resource_adaptor
  a pickle or JSON                        torch.cuda.memory._dump_snapshot() after _record_memory_history()

A pass is the whole trace; what it leaves is freed before the next one. Reserved is physical memory taken from the device,
for all pools and streams; ratio is peak reserved / peak requested of the first pass. On the simulated device what driver
calls cost is modelled. Requests that find too little memory are counted, and the replay goes on without them.

--json prints one object of schema gpumem-replay/1: sizes in bytes, times in nanoseconds, null where a figure is not to be had.";

/// What `replay` is told.
#[derive(Clone, Debug, Args)]
#[command(after_help = AFTER)]
pub struct ReplayCli {
    /// The recorded allocations
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Where to run: auto (a GPU; without a driver, and not with --json: sim), sim, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_parser = |text: &str| text.parse::<DeviceChoice>())]
    pub device: DeviceChoice,
    /// Through what: gpumem, cudamalloc (no cache) or cudamallocasync (the driver's pool, on a GPU only)
    #[arg(long, value_name = "NAME", default_value = "gpumem", value_parser = |text: &str| text.parse::<AllocatorChoice>())]
    pub allocator: AllocatorChoice,
    /// How gpumem takes memory for large blocks: plain, virtual or stitched [default: its own]
    #[arg(long, value_name = "KIND", value_parser = |text: &str| text.parse::<Segments>())]
    pub segments: Option<Segments>,
    /// How often
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub passes: u32,
    /// Most device memory to use: 512M, 2G
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_parser = |text: &str| parse_bytes(text))]
    pub limit: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Do not publish meanwhile
    #[arg(long)]
    pub no_publish: bool,
}

impl ReplayCli {
    /// What the replay is told.
    pub fn to_args(&self) -> ReplayArgs {
        ReplayArgs {
            trace: self.trace.clone(),
            device: self.device,
            allocator: self.allocator,
            segments: self.segments,
            passes: self.passes,
            limit: self.limit,
            json: self.json,
            publish: !self.no_publish,
            channel_dir: None,
        }
    }
}
