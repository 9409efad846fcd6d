//! The arguments of `replay`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use gpumem_demo::replay::{AllocatorChoice, ReplayArgs};
use gpumem_demo::trace::STDIN;
use gpumem_demo::{Conf, DeviceChoice, Replay, RunArgs, Segments, Speed, parse_number};
use gpumem_text::units::parse_bytes;

use super::{LookArgs, parse_interval};

const AFTER: &str = "\
Trace formats, plain or compressed with gzip, recognized by their first bytes:
  op,id,bytes,stream
      rows a,ID,BYTES,STREAM and f,ID
  Thread,Time,Action,Pointer,Size,Stream
      the log of RMM's logging_resource_adaptor
  a pickle or JSON
      torch.cuda.memory._dump_snapshot() after _record_memory_history()

A pass is the whole trace; what is live at its end is freed before the next one. Reserved is physical memory taken from the device, \
for all pools and streams; ratio is peak reserved / peak requested of the first pass. On the simulated device the cost of driver \
calls is modelled. Requests that fail for lack of memory are counted, and the replay continues without them.

--json prints one object of schema gpumem-replay/1: sizes in bytes, times in nanoseconds, null where a figure is not available. \
With --speed it prints lines of schema gpumem-demo/1 instead.";

/// The arguments of `replay`.
#[derive(Clone, Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct ReplayCli {
    /// The recorded allocations; - is stdin
    #[arg(value_name = "TRACE", value_parser = OsStringValueParser::new().map(trace_path))]
    pub trace: PathBuf,
    /// Where to run: auto (a GPU; without a driver, and not with --json: sim), sim, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_parser = |text: &str| text.parse::<DeviceChoice>())]
    pub device: DeviceChoice,
    /// Allocator: gpumem, cudamalloc (no cache) or cudamallocasync (the driver's pool, on a GPU only)
    #[arg(long, value_name = "NAME", default_value = "gpumem", value_parser = |text: &str| text.parse::<AllocatorChoice>())]
    pub allocator: AllocatorChoice,
    /// How gpumem takes memory for large blocks: auto (as it likes), plain, virtual or stitched [default: what --conf says, or auto]
    #[arg(long, value_name = "KIND", value_parser = |text: &str| text.parse::<Segments>())]
    pub segments: Option<Segments>,
    /// Options of gpumem, as in PYTORCH_CUDA_ALLOC_CONF [default: those of GPUMEM_ALLOC_CONF]; help lists them
    #[arg(long, value_name = "TEXT")]
    pub conf: Option<Conf>,
    /// Number of passes [default: 3; with --watch or --speed: until it is stopped]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = |text: &str| parse_number(text, 1..=1_000_000_u32))]
    pub passes: Option<u32>,
    /// Most device memory to use, in place of budget_mb: 512M, 2G; of cudamallocasync, most bytes to hold
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_parser = parse_limit)]
    pub limit: Option<u64>,
    /// Let the simulated GPU lag: work on a block's stream is done once N more blocks were handed out
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true, allow_hyphen_values = true, conflicts_with_all = ["watch", "speed"], value_parser = |text: &str| parse_number(text, 0..=1_000_000_u32))]
    pub behind: u32,
    /// Print one JSON object; with --speed, one per line
    #[arg(long)]
    pub json: bool,
    /// Do not publish the replay
    #[arg(long)]
    pub no_publish: bool,
    /// Watch it in the dashboard, at a pace
    #[arg(long, conflicts_with_all = ["json", "no_publish"])]
    pub watch: bool,
    /// Replay live at this pace: operations per second, or max [default with --watch: the trace in a minute]
    #[arg(long, value_name = "N", allow_hyphen_values = true, conflicts_with = "no_publish", value_parser = |text: &str| text.parse::<Speed>())]
    pub speed: Option<Speed>,
    /// Read commands from stdin: speed N, speed max, faster, slower, pause, quit. The replay ends with stdin
    #[arg(long, requires = "speed", conflicts_with = "watch")]
    pub steer: bool,
    /// How often the dashboard samples: 500ms, 2s; from 50ms to 1h [default: 1s, or what the configuration says]
    #[arg(long, short = 'i', value_name = "TIME", allow_hyphen_values = true, value_parser = parse_interval, requires = "watch")]
    pub interval: Option<Duration>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub look: LookArgs,
}

fn trace_path(text: OsString) -> PathBuf {
    if text == "-" { STDIN.into() } else { text.into() }
}

fn parse_limit(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        0 => Err("0 bytes leave no room for anything".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Error for a live replay of another allocator.
const LIVE_IS_GPUMEM: &str = "--watch and --speed show what gpumem publishes: leave out --allocator";

/// Error for a watched replay that does not publish.
const WATCHED_IS_PUBLISHED: &str =
    "--watch shows what gpumem publishes: leave publish:off out (of --conf, or of GPUMEM_ALLOC_CONF)";

/// Error for a steered replay that would read its trace from stdin. The dashboard steers its child.
const STDIN_IS_TAKEN: &str = "--watch and --steer leave no stdin to read a trace from: name a file";

impl ReplayCli {
    /// Checks whether it is replayed at a pace, to be watched, rather than measured.
    pub(crate) fn live(&self) -> bool {
        self.watch || self.speed.is_some()
    }

    /// Returns the arguments of a replay that is measured.
    pub(crate) fn to_args(&self) -> ReplayArgs {
        let defaults = ReplayArgs::default();
        ReplayArgs {
            trace: self.trace.clone(),
            device: self.device,
            allocator: self.allocator,
            segments: self.segments,
            conf: self.conf.clone(),
            passes: self.passes.unwrap_or(defaults.passes),
            limit: self.limit,
            behind: self.behind,
            json: self.json,
            publish: !self.no_publish,
            channel_dir: None,
        }
    }

    /// Returns the arguments of a live replay in this process.
    ///
    /// # Errors
    /// When an argument works only for a replay that is measured.
    pub(crate) fn to_demo(&self) -> Result<(Replay, RunArgs), &'static str> {
        if self.allocator != AllocatorChoice::Gpumem {
            return Err(LIVE_IS_GPUMEM);
        }
        if self.watch && !gpumem_demo::publishes(self.conf.as_ref()) {
            return Err(WATCHED_IS_PUBLISHED);
        }
        if (self.watch || self.steer) && self.trace == Path::new(STDIN) {
            return Err(STDIN_IS_TAKEN);
        }
        let demo = Replay {
            trace: Some(self.trace.clone()),
            speed: self.speed,
            segments: self.segments,
            passes: self.passes.unwrap_or(0).into(),
        };
        let run = RunArgs {
            device: Some(self.device),
            budget: self.limit,
            json: self.json,
            steer: self.steer,
            conf: self.conf.clone(),
            ..RunArgs::default()
        };
        Ok((demo, run))
    }

    /// Returns the flags of the child that replays under the dashboard.
    pub(crate) fn child_flags(&self) -> Vec<OsString> {
        let flag = |name: &str, value: Option<OsString>| value.map(|value| [format!("--{name}").into(), value]);
        let flags = [
            flag("trace", Some(self.trace.clone().into())),
            flag("budget", self.limit.map(|n| n.to_string().into())),
            flag("steps", self.passes.map(|n| n.to_string().into())),
            flag("speed", self.speed.map(|speed| speed.to_string().into())),
            flag("segments", self.segments.map(|kind| kind.name().into())),
            flag("conf", self.conf.as_ref().map(|conf| conf.text().into())),
        ];
        flags.into_iter().flatten().flatten().collect()
    }
}
