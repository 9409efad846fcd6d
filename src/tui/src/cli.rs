//! The command line. Its `--help` is the reference for flags, keys, exit codes and environment.

mod demo;
mod manual;
mod replay;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use gpumem_demo::{is_negative, parse_duration};
use serde::{Deserialize, Serialize};

use crate::model::{Colors, Column, Filter, Only, Sort, Tracking};
use crate::wrap::wrap;
pub(crate) use demo::{DemoCli, explain};
pub(crate) use manual::{completions, page};
pub(crate) use replay::ReplayCli;

/// Most columns of a line after the options. Longer lines would be wrapped by clap, which breaks the alignment.
const COLUMNS: u16 = 60;

/// Returns the part of `--help` after the options.
fn after() -> String {
    let mut keys = String::new();
    for group in crate::model::help() {
        keys += &format!("Keys: {}\n", group.title);
        for (key, text) in group.keys {
            // It is not known here whether the terminal can show arrows.
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

/// The filter, exit codes and environment, in lines short enough for narrow terminals.
const AFTER: &str = "\
Filter (key /, --filter), all terms must match:
  WORD               a part of the pid, user, command, job,
                     device or state
  publishing, stopped, exited, died, inconsistent, ...
                     a state; a part of one does not match
  gpu:0, gpu:0:1, gpu:GPU-6f5a, gpu:sim
                     a device: index, MIG device, UUID or
                     its beginning, simulated
  user:NAME          a user, by the whole name
  pid:N, rank:N      a number
  state:TEXT         the beginning of a state, such as
                     state:not-publishing
  job:TEXT           a part of the job's name
  pid:11,12          one of several values
  -TERM, !TERM       does not match

Exit codes:
  0        all is well
  1        something failed; doctor: something is wrong
  2        bad arguments, or no terminal to draw on
  3        no GPU to report on (--once, --json, doctor),
           no usable device (demo, replay)
  4        triage: memory ran out, or is about to
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
  GPUMEM_UVM         this folder instead of / for the
                     driver's unified memory: its dev,
                     proc and sys
  GPUMEM_NVML        this file instead of the driver's
                     NVML library
  XDG_RUNTIME_DIR    channels are in its directory
                     gpumem, if that is in memory
                     (tmpfs), else in /dev/shm
  XDG_CONFIG_HOME    the configuration is in its directory
                     gpumem, else in ~/.config/gpumem
  XDG_CACHE_HOME     reports of `bench` and the Python
                     files of `run` are kept in its
                     directory gpumem, else in
                     ~/.cache/gpumem
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

/// Version, commit and target, for bug reports.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("GPUMEM_BUILD"), ")");

/// Shows where a GPU's memory really is: which process has it, how much is reserved, allocated and cached, and how fragmented it
/// is. Without a subcommand: the dashboard.
#[derive(Debug, Parser)]
#[command(name = "gpumem-tui", version = VERSION, after_help = after(), args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    /// What to do instead of showing the dashboard.
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub view: ViewArgs,
}

/// Flags of the dashboard and of the one-shot reports.
#[derive(Clone, Debug, Args)]
pub(crate) struct ViewArgs {
    /// How often to sample: 500ms, 2s; from 50ms to 1h [default: 1s, or what the configuration says]
    #[arg(long, short = 'i', value_name = "TIME", allow_hyphen_values = true, value_parser = parse_interval)]
    pub interval: Option<Duration>,
    /// Print a report and exit
    #[arg(long)]
    pub once: bool,
    /// Print one JSON document and exit
    #[arg(long)]
    pub json: bool,
    /// With --json: print a document a sample, each on one line, until a signal ends it or stdout is closed
    #[arg(long)]
    pub watch: bool,
    /// Leave out the black boxes of programs that have ended; the dashboard's b still lists them
    #[arg(long)]
    pub no_black_boxes: bool,
    /// Show only this device; several with commas, or with the flag again: auto (all), sim (a simulated one, running a demo), NVML's index, or a UUID (MIG-... or 0:1: a MIG device)
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_delimiter = ',', value_parser = parse_device)]
    pub device: Vec<Device>,
    /// Show only processes that match: words, and terms as below
    #[arg(long, value_name = "TEXT", default_value = "", allow_hyphen_values = true, value_parser = parse_filter)]
    pub filter: String,
    /// Show only processes of these users, as user:NAME in the filter
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = parse_user)]
    pub user: Vec<String>,
    /// Show only these processes, as pid:N in the filter
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub pid: Vec<u32>,
    /// Sort processes: pid, user, command, nvml, reserved, alloc, cached, frag, largest-free, managed, ooms or state; - before it reverses
    #[arg(long, value_name = "COLUMN", default_value = "nvml", allow_hyphen_values = true, value_parser = parse_sort)]
    pub sort: Sort,
    /// Attach the driver's counters of managed memory to processes: auto (while view 5 shows them), on, off
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = UvmArg::Auto)]
    pub uvm: UvmArg,
    /// Do nothing to any process: the dashboard then attaches to none
    #[arg(long)]
    pub readonly: bool,
    /// Print the configuration as it is used, as TOML, and exit
    #[arg(long)]
    pub print_config: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub look: LookArgs,
}

impl ViewArgs {
    /// Returns the chosen devices; none if all are to be shown.
    pub(crate) fn only(&self) -> Vec<Only> {
        let all = self.device.contains(&Device::Auto);
        let only = self.device.iter().filter_map(|device| match device {
            Device::Only(only) if !all => Some(only.clone()),
            _ => None,
        });
        only.collect()
    }

    /// Returns the text of the filter, with the terms for `--user` and `--pid`.
    pub(crate) fn filter(&self) -> String {
        let pids = self.pid.iter().map(u32::to_string).collect();
        let term = |key: &str, values: Vec<String>| (!values.is_empty()).then(|| format!("{key}:{}", values.join(",")));
        let terms = [
            term("user", self.user.clone()),
            term("pid", pids),
            Some(self.filter.clone()),
        ];
        let terms: Vec<String> = terms.into_iter().flatten().filter(|term| !term.is_empty()).collect();
        terms.join(" ")
    }
}

/// `--uvm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum UvmArg {
    /// While view 5 shows a process.
    Auto,
    /// To every process with managed memory, always.
    On,
    /// Never.
    Off,
}

impl UvmArg {
    /// When the driver's trackers may be attached.
    pub(crate) fn tracking(self) -> Tracking {
        match self {
            UvmArg::Auto => Tracking::Shown,
            UvmArg::On => Tracking::Always,
            UvmArg::Off => Tracking::Never,
        }
    }
}

/// How the terminal is used.
#[derive(Clone, Debug, Args)]
pub(crate) struct LookArgs {
    /// How many colours to use [default: auto, or what the configuration says]
    #[arg(long, value_enum, value_name = "STEP")]
    pub color: Option<ColorArg>,
    /// Draw with ASCII characters only; --ascii=false draws with others, whatever the configuration says
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub ascii: Option<bool>,
    /// The configuration, instead of gpumem/config.toml in $XDG_CONFIG_HOME or ~/.config
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// The value of `--color`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ColorArg {
    /// As the environment says.
    #[default]
    Auto,
    /// 24-bit colours.
    True,
    /// 256 colours.
    #[value(name = "256")]
    #[serde(rename = "256")]
    Ansi256,
    /// 16 colours.
    #[value(name = "16")]
    #[serde(rename = "16")]
    Ansi16,
    /// No colours.
    Mono,
}

impl ColorArg {
    /// Returns the chosen colours; `None` leaves the choice to the environment.
    pub(crate) fn step(self) -> Option<Colors> {
        match self {
            ColorArg::Auto => None,
            ColorArg::True => Some(Colors::True),
            ColorArg::Ansi256 => Some(Colors::Ansi256),
            ColorArg::Ansi16 => Some(Colors::Ansi16),
            ColorArg::Mono => Some(Colors::Mono),
        }
    }
}

/// A value of `--device` of the dashboard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    /// Every device.
    Auto,
    /// One of them.
    Only(Only),
}

/// Subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a memory problem and watch it being fixed; without a name: list the demos
    Demo(DemoCli),
    /// Replay recorded allocations through an allocator: the memory and the time it takes
    Replay(ReplayCli),
    /// Measure the memory of a GPU
    #[command(subcommand)]
    Bench(gpumem_demo::bench::Bench),
    /// Run a command whose Python processes publish the memory of PyTorch, or use gpumem's allocator
    #[command(after_help = AFTER_RUN)]
    Run(RunCli),
    /// Have a running Python process publish the memory of PyTorch, though nobody prepared it for that
    #[command(after_help = AFTER_ATTACH)]
    Attach(AttachCli),
    /// End what `attach` began
    Detach {
        /// The process
        #[arg(value_name = "PID")]
        pid: u32,
    },
    /// Say from a log, a process or the machine as it is which memory ran out, why, and what helps
    #[command(after_help = AFTER_TRIAGE)]
    Triage(TriageCli),
    /// Check what can be seen on this machine, and say what to do about the rest
    #[command(after_help = AFTER_DOCTOR)]
    Doctor(DoctorCli),
    /// Print the completions for a shell
    #[command(after_help = AFTER_COMPLETIONS)]
    Completions {
        /// The shell
        #[arg(value_enum, value_name = "SHELL")]
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or that of a subcommand, for `man -l -`
    Man {
        /// The subcommand
        #[arg(value_name = "COMMAND")]
        command: Option<String>,
    },
    /// Hold the driver's trackers of managed memory for a dashboard, which starts it
    #[command(hide = true)]
    UvmHelper,
    /// Publish what a PyTorch process says on stdin, which starts it
    #[command(hide = true)]
    Publisher {
        /// The process was attached to, and is not the one that started this
        #[arg(long, value_name = "PID")]
        attached_to: Option<u32>,
    },
}

/// The arguments of `triage`.
#[derive(Clone, Debug, Args)]
pub(crate) struct TriageCli {
    /// The log or message; - or nothing: what is piped in. Without either: the machine as it is now
    #[arg(value_name = "FILE", conflicts_with = "pid")]
    pub file: Option<PathBuf>,
    /// A process that publishes, alive or ended
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

const AFTER_TRIAGE: &str = "\
Reads messages of PyTorch (1.0 to 2.15), JAX, TensorFlow, CuPy, RMM, vLLM, SGLang, llama.cpp, ollama, TensorRT, ONNX Runtime, Paddle, NCCL, \
Triton and others, in logs of one process or of many ranks, and the kernel's. Of a longer log than 32 MiB the beginning and the end are read.

  python train.py 2>&1 | tee log; gpumem-tui triage log
  kubectl logs POD | gpumem-tui triage

Exit codes: 0 nothing failed for lack of memory; 4 something did; 1 it cannot be read; 2 bad arguments.";

const AFTER_COMPLETIONS: &str = "\
bash:  gpumem-tui completions bash > ~/.local/share/bash-completion/completions/gpumem-tui
zsh:   gpumem-tui completions zsh > a folder of $fpath/_gpumem-tui
fish:  gpumem-tui completions fish > ~/.config/fish/completions/gpumem-tui.fish";

/// The arguments of `doctor`.
#[derive(Clone, Debug, Args)]
pub(crate) struct DoctorCli {
    /// Print the checks as one JSON document
    #[arg(long, conflicts_with = "bundle")]
    pub json: bool,
    /// Write a new archive (.tar.gz) for a bug report, without names of users, hosts and jobs, arguments and paths of home directories
    #[arg(long, value_name = "FILE")]
    pub bundle: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub look: LookArgs,
}

const AFTER_DOCTOR: &str = "\
A check is ok, a note (something optional is missing), none (no GPU) or BAD.

--bundle says what the archive has, and what stays in it. It never overwrites a file.

Exit codes: 0 nothing is wrong, 1 something is, 3 there is no GPU. With --bundle: 0 the archive is written, 1 it is not.";

/// The arguments of `attach`.
#[derive(Clone, Debug, Args)]
pub(crate) struct AttachCli {
    /// Say what would be done, or which right is missing, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do it in this process, which another one has started for that
    #[arg(long, hide = true)]
    pub own_session: bool,
    /// The process
    #[arg(value_name = "PID")]
    pub pid: u32,
}

const AFTER_ATTACH: &str = "\
The process's main thread stands still for about a millisecond, and a text of Python is executed in it: at once if the thread waits, else \
as soon as it is back in the interpreter. The text starts a thread that publishes until `gpumem-tui detach PID`, or until nobody has \
looked at the process's blocks for 30 minutes. No file is written for it, and nothing is installed.

CPython 3.8 to 3.15 on x86-64 Linux; from 3.14 on, an interpreter that runs is not stopped (PEP 768). It needs the right to trace the process.

Exit codes: 0 it publishes; 1 it does not, and stderr says why.";

/// The arguments of `run`.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunCli {
    /// Put PyTorch and CuPy on gpumem's allocator, which takes less memory and publishes by itself
    #[arg(long)]
    pub allocator: bool,
    /// The allocator's library instead of the libgpumem_alloc.so that GPUMEM_LIBRARY names or that is near this program
    #[arg(long, value_name = "PATH", requires = "allocator")]
    pub library: Option<PathBuf>,
    /// The command with its arguments, such as python train.py or torchrun --nproc-per-node 8 train.py
    #[arg(
        value_name = "COMMAND",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub command: Vec<OsString>,
}

const AFTER_RUN: &str = "\
The command replaces this program, so signals, exit code and terminal are its own. Every Python that it starts, torchrun's ranks \
included, publishes once it has imported torch and initialised CUDA. This works by PYTHONPATH, so not for a Python that ignores it \
(-I, -E, -S). If publishing cannot be prepared, a line on stderr says why, and the command runs without it.

With --allocator every Python has PyTorch and CuPy on gpumem's allocator once they are imported, and a line on stderr says so. If that \
cannot be prepared, the command is not run.

Exit codes: that of the command; 126 if it cannot be run, 127 if it is not found, 2 if the allocator cannot be used.

Environment of the command:
  GPUMEM_LIBRARY     the allocator's libgpumem_alloc.so
  GPUMEM_ALLOC_CONF  options of the allocator: `gpumem-tui
                     replay --conf help` lists them
  GPUMEM_QUIET       1: no line about the allocator
  GPUMEM_HISTORY     how many operations PyTorch records, from
                     100 to 10000; none if not set
  GPUMEM_INTERVAL    seconds between two readings, from 0.1
                     to 60; 1 if not set
  GPUMEM_JOB         what the job is called";

pub(crate) fn parse_interval(text: &str) -> Result<Duration, String> {
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

pub(crate) fn parse_device(text: &str) -> Result<Device, String> {
    match text {
        "auto" => Ok(Device::Auto),
        _ => Only::parse(text)
            .map(Device::Only)
            .ok_or_else(|| "use auto, sim, an index such as 0 or 0:1, or a UUID such as GPU-6f5ae4c5".into()),
    }
}

/// Reads a filter. A value that makes no sense is refused, since a report with it would look as if no process were there.
fn parse_filter(text: &str) -> Result<String, String> {
    let text = gpumem_text::clean(text);
    match Filter::parse(&text).problem() {
        Some(why) => Err(why.to_owned()),
        None => Ok(text),
    }
}

/// Reads a user's name, which becomes a term of the filter.
fn parse_user(text: &str) -> Result<String, String> {
    let name = gpumem_text::clean(text);
    match name.is_empty() || name.contains(char::is_whitespace) {
        true => Err("use the name of a user, without blanks".into()),
        false => Ok(name),
    }
}

fn parse_sort(text: &str) -> Result<Sort, String> {
    Sort::parse(text).ok_or_else(|| {
        let names: Vec<String> = Column::ALL.into_iter().map(Column::name).collect();
        format!("use one of {}; - before it reverses the order", names.join(", "))
    })
}

#[cfg(test)]
#[path = "cli_tests.rs"]
mod tests;
