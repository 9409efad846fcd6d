//! The command line. Its `--help` is the reference for flags, keys, exit codes and environment.

mod conf;
mod replay;

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use gpumem_demo::replay::{Segments, Speed};
use gpumem_demo::{Conf, DemoArgs, DeviceChoice, Fix};
use gpumem_text::units::parse_bytes;

use crate::model::{Colors, Only};
use crate::wrap::wrap;
pub use replay::ReplayCli;

/// Columns that lines have at most behind the options: what clap wraps loses its columns.
const COLUMNS: u16 = 60;

/// What stands behind the options.
fn after() -> String {
    let mut keys = String::new();
    for group in crate::model::help() {
        keys += &format!("Keys: {}\n", group.title);
        for (key, text) in group.keys {
            // What the terminal can show is not known here.
            let key = [("↑", "Up"), ("↓", "Down"), ("←", "Left"), ("→", "Right")]
                .iter()
                .fold(key, |key, (arrow, name)| key.replace(arrow, name));
            let lines = wrap(&text, COLUMNS - 22).join("\n                      ");
            keys += &format!("  {key:<19} {lines}\n");
        }
        keys.push('\n');
    }
    keys + AFTER
}

/// A line for each thing, short enough for narrow terminals.
const AFTER: &str = "\
Exit codes:
  0        all is well
  1        something failed; doctor: something is wrong
  2        bad arguments, or no terminal to draw on
  3        no GPU to report on (--once, --json, doctor),
           no usable device (demo, replay)
  101      a bug: please report it
  128 + n  ended by signal n; 129 also when its terminal
           went away

Environment:
  NO_COLOR           no colours
  COLORTERM          truecolor or 24bit: 24-bit colours
  TERM               dumb: no colours
  LC_ALL, LC_CTYPE, LANG
                     not UTF-8: ASCII only
  GPUMEM_DIR         look for channels here only
  GPUMEM_NVML        this file instead of the driver's
                     NVML library
  XDG_RUNTIME_DIR    channels are in its directory
                     gpumem, if that is in memory
                     (tmpfs), else in /dev/shm
  GPUMEM_ALLOC_CONF  options of the allocator in demos
                     and replays: `gpumem-tui replay
                     --conf help` lists them
  GPUMEM_JOB         what the job of a demo, a replay
                     or any publisher is called
  RANK               the rank of a publisher, as
                     launchers of PyTorch set it
  GPUMEM_SNAPSHOT_ON_OOM
                     any program with the allocator
                     writes a snapshot there when
                     memory first runs out";

/// Shows where a GPU's memory really is: which process, how much is reserved, allocated and cached, and how it is cut
/// up. Without a subcommand: the dashboard.
#[derive(Debug, Parser)]
#[command(name = "gpumem-tui", version, after_help = after(), args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What to do instead of showing the dashboard.
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub view: ViewArgs,
}

/// Flags of the dashboard and of the one-shot reports.
#[derive(Clone, Debug, Args)]
pub struct ViewArgs {
    /// How often to sample: 500ms, 2s; from 50ms to 1h
    #[arg(long, short = 'i', value_name = "TIME", default_value = "1s", allow_hyphen_values = true, value_parser = parse_interval)]
    pub interval: Duration,
    /// Print a report and exit
    #[arg(long)]
    pub once: bool,
    /// Print one JSON document and exit
    #[arg(long, conflicts_with = "once")]
    pub json: bool,
    /// Show only this device: auto (all), sim (a simulated one, running a demo), NVML's index, or a UUID
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_parser = parse_device)]
    pub device: Device,
    /// Show only processes with these words
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub filter: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub look: LookArgs,
}

/// How the terminal is used.
#[derive(Clone, Debug, Args)]
pub struct LookArgs {
    /// How many colours to use
    #[arg(long, value_enum, value_name = "STEP", default_value_t = ColorArg::Auto)]
    pub color: ColorArg,
    /// Draw with ASCII characters only
    #[arg(long)]
    pub ascii: bool,
}

/// `--color`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorArg {
    /// As the environment says.
    Auto,
    /// 24 bits.
    True,
    /// The 256-colour cube.
    #[value(name = "256")]
    Ansi256,
    /// Sixteen.
    #[value(name = "16")]
    Ansi16,
    /// None.
    Mono,
}

impl ColorArg {
    /// The step asked for; `None` leaves it to the environment.
    pub fn step(self) -> Option<Colors> {
        match self {
            ColorArg::Auto => None,
            ColorArg::True => Some(Colors::True),
            ColorArg::Ansi256 => Some(Colors::Ansi256),
            ColorArg::Ansi16 => Some(Colors::Ansi16),
            ColorArg::Mono => Some(Colors::Mono),
        }
    }
}

/// `--device` of the dashboard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Device {
    /// Every device.
    Auto,
    /// One of them.
    Only(Only),
}

/// Subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a memory problem and watch it being fixed; without a name: list the demos
    Demo(DemoCli),
    /// Replay recorded allocations through an allocator: the memory and the time it takes
    Replay(ReplayCli),
    /// Say what can and cannot be seen here, and what to do about it
    Doctor(LookArgs),
}

/// `demo`.
#[derive(Clone, Debug, Args)]
pub struct DemoCli {
    /// Which one
    pub name: Option<String>,
    /// Run here, step by step on stdout, without the dashboard
    #[arg(long)]
    pub headless: bool,
    /// One JSON object per line, of schema gpumem-demo/1
    #[arg(long, requires = "headless")]
    pub json: bool,
    /// Where to run: auto (a GPU), sim, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", value_parser = |text: &str| text.parse::<DeviceChoice>())]
    pub device: Option<DeviceChoice>,
    /// Most device memory to use: 512M, 2G [default: 2G, and at most a tenth of what is free; train on the simulated device:
    /// 15/16 of it]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_parser = |text: &str| parse_bytes(text))]
    pub budget: Option<u64>,
    /// How often the dashboard samples: 500ms, 2s; from 50ms to 1h
    #[arg(long, short = 'i', value_name = "TIME", default_value = "1s", allow_hyphen_values = true, value_parser = parse_interval, conflicts_with = "headless")]
    pub interval: Duration,
    /// Which fix fragmentation applies unless another is chosen: release, remap or workspace [default: remap]
    #[arg(long, value_name = "FIX", value_parser = |text: &str| text.parse::<Fix>())]
    pub fix: Option<Fix>,
    /// Layers of the model that train trains [default: 12]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = |text: &str| parse_number(text, 1..=1000_u32))]
    pub layers: Option<u32>,
    /// Mean batch size of train [default: 32]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = |text: &str| parse_number(text, 1..=65_536_u32))]
    pub batch: Option<u32>,
    /// Steps of train; 0: until told to quit [default: 0]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = |text: &str| parse_number(text, 0..=u64::MAX))]
    pub steps: Option<u64>,
    /// At the end of train: say who held the memory at its peak and what stays or grows, and write a snapshot for PyTorch's
    /// viewers (.pickle or .json)
    #[arg(long, value_name = "FILE", requires = "headless")]
    pub snapshot: Option<PathBuf>,
    /// Have train forget to free something in each step
    #[arg(long)]
    pub leak: bool,
    /// Time between steps: 500ms, 2s [default: none, but 3s for those of train]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_duration)]
    pub pace: Option<Duration>,
    /// Seed of everything random [default: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = |text: &str| parse_number(text, 0..=u64::MAX))]
    pub seed: Option<u64>,
    /// Wait for lines on stdin: next, fix NAME, quit
    #[arg(long, requires = "headless")]
    pub steer: bool,
    /// Trace of replay, and how it is replayed: `replay --watch` runs it
    #[arg(long, value_name = "FILE", hide = true)]
    pub trace: Option<PathBuf>,
    /// Operations a second
    #[arg(long, value_name = "N", hide = true, allow_hyphen_values = true, value_parser = |text: &str| text.parse::<Speed>())]
    pub speed: Option<Speed>,
    /// How memory for large blocks is taken
    #[arg(long, value_name = "KIND", hide = true, value_parser = |text: &str| text.parse::<Segments>())]
    pub segments: Option<Segments>,
    /// Options of the allocator [default: those of GPUMEM_ALLOC_CONF]; help lists them. fragmentation takes only publish, job,
    /// history and monitor
    #[arg(long, value_name = "TEXT", value_parser = conf::Parser)]
    pub conf: Option<Conf>,
    /// Process id of the dashboard that steers
    #[arg(long, value_name = "PID", requires = "steer", hide = true, value_parser = |text: &str| parse_number(text, 0..=u32::MAX))]
    pub parent: Option<u32>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub look: LookArgs,
}

impl DemoCli {
    /// What the demo is told, when it runs in this process.
    pub fn to_args(&self, name: &str) -> DemoArgs {
        let mut args = DemoArgs {
            demo: name.to_owned(),
            device: self.device.unwrap_or_default(),
            budget: self.budget,
            json: self.json,
            steer: self.steer,
            parent: self.parent,
            pace: self.pace,
            trace: self.trace.clone(),
            speed: self.speed,
            segments: self.segments,
            conf: self.conf.clone(),
            snapshot: self.snapshot.clone(),
            leak: self.leak,
            ..DemoArgs::default()
        };
        args.fix = self.fix.unwrap_or(args.fix);
        args.layers = self.layers.unwrap_or(args.layers);
        args.batch = self.batch.unwrap_or(args.batch);
        args.steps = self.steps.unwrap_or(args.steps);
        args.seed = self.seed.unwrap_or(args.seed);
        args
    }

    /// A flag that means nothing to a demo, and the one that it is for.
    pub fn misplaced(&self, name: &str) -> Option<(&'static str, &'static str)> {
        const HOLES: &str = "fragmentation";
        const TRAIN: &str = "train";
        let given = [
            ("--fix", self.fix.is_some(), HOLES),
            ("--layers", self.layers.is_some(), TRAIN),
            ("--batch", self.batch.is_some(), TRAIN),
            ("--steps", self.steps.is_some(), TRAIN),
            ("--snapshot", self.snapshot.is_some(), TRAIN),
            ("--leak", self.leak, TRAIN),
        ];
        // A dashboard hands its flags to every demo that is chosen there.
        let judged = self.parent.is_none() && [HOLES, TRAIN].contains(&name);
        let found = given.iter().find(|(_, given, of)| judged && *given && *of != name);
        found.map(|(flag, _, of)| (*flag, *of))
    }

    /// The flags that a child is given, when the demo runs under the dashboard.
    pub fn child_flags(&self) -> Vec<String> {
        let flag = |name: &str, value: Option<String>| value.map(|value| [format!("--{name}"), value]);
        let flags = [
            flag("budget", self.budget.map(|n| n.to_string())),
            flag("fix", self.fix.map(|f| f.name().to_owned())),
            flag("layers", self.layers.map(|n| n.to_string())),
            flag("batch", self.batch.map(|n| n.to_string())),
            flag("steps", self.steps.map(|n| n.to_string())),
            flag("pace", self.pace.map(|p| format!("{}ms", p.as_millis()))),
            flag("seed", self.seed.map(|n| n.to_string())),
            flag("conf", self.conf.as_ref().map(|conf| conf.text().to_owned())),
        ];
        let leak = self.leak.then(|| "--leak".to_owned());
        flags.into_iter().flatten().flatten().chain(leak).collect()
    }
}

/// The command line's name of a demo's device.
pub fn device_name(device: DeviceChoice) -> String {
    match device {
        DeviceChoice::Auto => "auto".into(),
        DeviceChoice::Sim => "sim".into(),
        DeviceChoice::Cuda(ordinal) => format!("cuda:{ordinal}"),
    }
}

fn parse_number<N: FromStr + PartialOrd + Display>(text: &str, range: RangeInclusive<N>) -> Result<N, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("say a whole number from {} to {}", range.start(), range.end()))
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let bounds = || "must be from 50ms to 1h".to_owned();
    if is_negative(text) {
        return Err(bounds());
    }
    let time = parse_duration(text)?;
    if (Duration::from_millis(50)..=Duration::from_secs(3600)).contains(&time) {
        Ok(time)
    } else {
        Err(bounds())
    }
}

fn is_negative(text: &str) -> bool {
    text.strip_prefix('-')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// `500ms`, `2s`, `1.5s`, `1m`, `1h`. A number alone means seconds.
fn parse_duration(text: &str) -> Result<Duration, String> {
    if is_negative(text) {
        return Err("must not be negative".into());
    }
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit.trim() {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("say it like 500ms or 2s".into()),
    };
    let number: f64 = number.parse().map_err(|_| "say it like 500ms or 2s".to_owned())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| "too long".into())
}

fn parse_device(text: &str) -> Result<Device, String> {
    let uuid = text.strip_prefix("GPU-").unwrap_or(text);
    let is_uuid = uuid.len() >= 4 && uuid.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    Ok(match text {
        "auto" => Device::Auto,
        "sim" => Device::Only(Only::Simulated),
        _ => match text.parse() {
            Ok(index) if text.len() < 4 => Device::Only(Only::Index(index)),
            _ if is_uuid => Device::Only(Only::Uuid(text.to_owned())),
            _ => return Err("say auto, sim, an index such as 0, or a UUID such as GPU-6f5ae4c5".into()),
        },
    })
}

#[cfg(test)]
#[path = "cli_tests.rs"]
mod tests;
