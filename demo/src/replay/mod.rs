//! Replays recorded allocations through an allocator and reports the memory and time they took.
//!
//! A pass is the whole trace. Blocks still live at its end are freed before the next one. The first pass is cold: the allocator
//! holds nothing. The time is that of the loop over the operations, and nothing else is in that loop: the trace is parsed
//! before, the allocator itself keeps the peaks, and figures that need a look after every operation come from one more pass on
//! a separate allocator ([`Fragmentation`]).
//!
//! The demo `replay` is different: it replays for the dashboard, at a pace that the user sets ([`crate::Pace`]).

mod args;
pub(crate) mod gpumem;
mod idle;
mod mallocs;
mod measure;
pub(crate) mod replayer;
mod report;
mod text;

use std::fs::Metadata;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use gpumem_alloc::device::{self, Device, SimConfig, Timeline};
use gpumem_alloc::{ConfError, Config, History, Publish, Stacks};
use gpumem_channel::DeviceKind;
use gpumem_text::units::entries;

use crate::args::DeviceChoice;
use crate::blocking::stdout;
use crate::gpu;
use crate::trace::{STDIN, Trace, TraceError};

pub use args::{AllocatorChoice, ReplayArgs};
pub use report::{
    AllocatorPart, Failures, FirstFailure, Fragmentation, MemoryPart, Pass, Report, SCHEMA, TimePart, TracePart,
};

use gpumem::Gpumem;
use mallocs::Mallocs;
use measure::measure;
use replayer::Streams;
use text::{in_words, left_out};

/// Why a trace could not be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file is not a trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// There is nothing to replay.
    #[error("{file}: the trace has no operations{left_out}{hint}")]
    Nothing {
        /// The file.
        file: String,
        /// The entries that were left out, after a semicolon; may be empty.
        left_out: String,
        /// The likely reason, after a colon; may be empty.
        hint: &'static str,
    },
    /// An allocator that does not exist on this device.
    #[error(
        "cudamallocasync is the driver's own pool and exists on a GPU only: say --device cuda, or --allocator cudamalloc"
    )]
    NoPool,
    /// An argument that does not apply to this allocator.
    #[error("{argument} is for --allocator gpumem only")]
    NotForThis {
        /// Its name.
        argument: &'static str,
    },
    /// `--behind` with a GPU, whose progress cannot be set.
    #[error("--behind is for the simulated device: say --device sim")]
    BehindOnGpu,
    /// The allocator's configuration cannot be parsed.
    #[error(transparent)]
    Conf(#[from] ConfError),
    /// The allocator refuses its configuration.
    #[error("the allocator's settings: {0}")]
    Settings(gpumem_alloc::Error),
    /// The device cannot be used.
    #[error("{0}. The simulated device needs no GPU: --device sim")]
    NoDevice(String),
    /// Something failed for another reason than too little memory.
    #[error("{doing}: {why}")]
    Failed {
        /// What the replay was doing.
        doing: String,
        /// The error of the allocator or the driver.
        why: String,
    },
    /// The report could not be written.
    #[error("could not write the report: {0}")]
    Output(#[from] std::io::Error),
}

impl ReplayError {
    /// Returns 1 if something failed, an invalid trace included; 2 for bad arguments; 3 for no usable device; 0 if the reader of
    /// the report is gone.
    pub fn exit_code(&self) -> u8 {
        match self {
            ReplayError::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => 0,
            ReplayError::Trace(_)
            | ReplayError::Nothing { .. }
            | ReplayError::Failed { .. }
            | ReplayError::Output(_) => 1,
            ReplayError::NoPool
            | ReplayError::NotForThis { .. }
            | ReplayError::BehindOnGpu
            | ReplayError::Conf(_)
            | ReplayError::Settings(_) => 2,
            ReplayError::NoDevice(_) => 3,
        }
    }

    pub(crate) fn while_doing(doing: &str, why: impl std::fmt::Display) -> ReplayError {
        ReplayError::Failed {
            doing: doing.to_owned(),
            why: why.to_string(),
        }
    }
}

/// Replays as the process's only task: the report goes to stdout, an error to stderr. Returns the exit code.
pub fn main(args: &ReplayArgs) -> u8 {
    if args.allocator == AllocatorChoice::Gpumem {
        print_notes(args);
    }
    let done = run(args).and_then(|report| {
        let text = if args.json {
            serde_json::to_string_pretty(&report).map_err(std::io::Error::from)? + "\n"
        } else {
            report.text()
        };
        let mut out = stdout();
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    });
    exit_code(done)
}

/// Checks whether a replay can begin, before anything of it is shown. Writes an error to stderr and returns the exit code of
/// [`main`]. Leaves out what can be read only once (a pipe, stdin) and devices with a driver, because opening one takes memory
/// on it.
pub fn check(args: &ReplayArgs) -> u8 {
    exit_code(check_settings(args).and_then(|()| {
        let once = |file: Metadata| !file.is_file() && !file.is_dir();
        if args.trace == Path::new(STDIN) || std::fs::metadata(&args.trace).is_ok_and(once) {
            Ok(())
        } else {
            read(&args.trace).map(drop)
        }
    }))
}

fn check_settings(args: &ReplayArgs) -> Result<(), ReplayError> {
    args.config()?.check().map_err(ReplayError::Settings)?;
    match args.device {
        DeviceChoice::Cuda(_) if !gpu::driver_present() => open(args).map(drop),
        _ => Ok(()),
    }
}

/// Writes notes on options without effect to stderr. Errors in the options are reported by the replay.
fn print_notes(args: &ReplayArgs) {
    for note in args.config().iter().flat_map(Config::without_effect) {
        let _ = writeln!(std::io::stderr(), "gpumem-tui replay: note: {note}");
    }
}

fn exit_code(done: Result<(), ReplayError>) -> u8 {
    let Err(error) = done else { return 0 };
    if error.exit_code() != 0 {
        // If stderr is closed, no one wants the message.
        let _ = writeln!(std::io::stderr(), "gpumem-tui replay: {error}");
    }
    error.exit_code()
}

/// Reads a trace, which must have operations.
pub(crate) fn read(path: &Path) -> Result<Trace, ReplayError> {
    let trace = Trace::open(path)?;
    match trace.ops.is_empty() {
        true => {
            let others = (trace.others > 0).then(|| match trace.others {
                1 => "1 entry that asks for no memory and frees none".to_owned(),
                n => format!("{} that ask for no memory and free none", entries(n)),
            });
            let trace = TracePart::new(name(path), &trace, 0);
            let left_out = in_words(left_out(&trace).chain(others));
            let hint = match trace.format {
                "rmm log" if left_out.is_empty() => {
                    ": the program allocated nothing, or ended before the log was written (rmm.disable_logging() writes it)"
                }
                _ => "",
            };
            Err(ReplayError::Nothing {
                file: trace.file,
                left_out,
                hint,
            })
        }
        false => Ok(trace),
    }
}

fn name(path: &Path) -> String {
    gpumem_text::clean(&path.display().to_string())
}

/// Replays a trace.
///
/// # Errors
/// See [`ReplayError`]. Requests that find too little memory are not an error: the report counts them.
pub fn run(args: &ReplayArgs) -> Result<Report, ReplayError> {
    let ours = args.allocator == AllocatorChoice::Gpumem;
    let given = [
        (args.segments.is_some(), "--segments"),
        (args.conf.is_some(), "--conf"),
        (args.behind > 0, "--behind"),
    ];
    for (given, argument) in given {
        if given && !ours {
            return Err(ReplayError::NotForThis { argument });
        }
    }
    let config = if ours { args.config()? } else { Config::default() };
    let began = Instant::now();
    let trace = read(&args.trace)?;
    let parse_ns = began.elapsed().as_nanos() as u64;
    let device = open(args)?;
    let simulated = device.info().kind == DeviceKind::Simulated;
    if args.behind > 0 && !simulated {
        return Err(ReplayError::BehindOnGpu);
    }
    let streams = Streams::new(&device, &trace).map_err(|why| ReplayError::while_doing("making streams", why))?;
    let measured = match args.allocator {
        AllocatorChoice::Gpumem => {
            let segments = config.segments_on(device.info().virtual_memory).name();
            let silent = Config {
                publish: Publish::Off,
                // A history changes where blocks lie. Its events and stacks change nothing more.
                history: match config.history {
                    History::Off => History::Off,
                    History::On { .. } => History::On {
                        max_events: 0,
                        stacks: Stacks::None,
                    },
                },
                monitor: None,
                ..config.clone()
            };
            let mut replayer = Gpumem::new(&device, config, &trace, &streams, args.behind)?;
            let (limit, publishing) = (replayer.limit(), replayer.publishes());
            let mut measured = measure(&trace, args.passes, &mut replayer, simulated)?;
            // Two allocators may not fit on the device at once.
            drop(replayer);
            let survey = |at_peak: Option<u64>| {
                let mut again = Gpumem::new(&fresh(&device, args), silent.clone(), &trace, &streams, args.behind)?;
                again.survey(&trace, at_peak)
            };
            // On a GPU the second run may differ.
            measured.memory.fragmentation = match survey(measured.memory.peak_reserved)? {
                Some(found) => Some(found),
                None => survey(None)?,
            };
            measured.allocator.segments = Some(segments.to_owned());
            measured.allocator.limit = limit;
            measured.allocator.publishing = publishing;
            measured
        }
        AllocatorChoice::CudaMalloc | AllocatorChoice::CudaMallocAsync => {
            let mut replayer = Mallocs::new(&device, args, &trace, &streams)?;
            let mut measured = measure(&trace, args.passes, &mut replayer, simulated)?;
            measured.allocator.limit = args.limit;
            measured
        }
    };
    let mut report = measured;
    report.simulated = simulated;
    report.behind = args.behind.into();
    report.device = device.info().name.clone();
    report.device_total = device.info().total;
    report.trace = TracePart::new(name(&args.trace), &trace, parse_ns);
    report.allocator.name = args.allocator.name().to_owned();
    Ok(report)
}

fn open(args: &ReplayArgs) -> Result<Device, ReplayError> {
    let ordinal = match args.device {
        DeviceChoice::Sim => return Ok(simulated(args)),
        DeviceChoice::Auto if gpu::may_simulate(args.json) => return Ok(simulated(args)),
        DeviceChoice::Auto => 0,
        DeviceChoice::Cuda(ordinal) => ordinal,
    };
    device::cuda(ordinal).map_err(|error| ReplayError::NoDevice(error.to_string()))
}

fn simulated(args: &ReplayArgs) -> Device {
    device::sim(SimConfig {
        timeline: match args.behind {
            0 => Timeline::Immediate,
            behind => Timeline::Behind(behind.into()),
        },
        ..SimConfig::default()
    })
}

/// Returns an empty simulated device, or the same real one.
fn fresh(device: &Device, args: &ReplayArgs) -> Device {
    match device.as_sim() {
        Some(_) => simulated(args),
        None => device.clone(),
    }
}
