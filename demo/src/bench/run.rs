//! Runs a benchmark: opens the device, measures, writes the report, frees everything.

use std::io::{BufRead, BufReader, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use gpumem_alloc::device;
use gpumem_text::clean;

use super::args::{Bench, HierarchyArgs};
use super::budget::budget;
use super::claims;
use super::error::{BenchError, Stop};
use super::hierarchy::{Report, keep, measure};
use super::protocol::{Body, Start};
use super::watch::{Lines, ProgressLine, Watcher};
use crate::blocking::stdout;
use crate::control::{Control, End};
use crate::gpu::CudaRig;
use crate::process::die_with_parent;
use crate::rig::Rig;
use crate::signals::listen_to_signals;

/// The name of `bench hierarchy` on the command line and in its lines.
const HIERARCHY: &str = "hierarchy";

/// Runs a benchmark as the process's only task, on stdin, stdout and stderr. SIGTERM, SIGINT and SIGHUP end it within a second, and
/// so does the death of its parent when steered. Returns the exit code, which is that of demos ([`crate::exit_code`]).
pub fn main(bench: &Bench) -> u8 {
    let (name, done) = match bench {
        Bench::Hierarchy(args) => (HIERARCHY, run(args)),
        Bench::Claims(args) => (
            claims::NAME,
            listen(args.steer, args.parent).and_then(|control| claims::run(args, &control)),
        ),
    };
    match done {
        Ok(()) => 0,
        Err(Stop::End(End::Signal(signal))) => 128u8.saturating_add(u8::try_from(signal).unwrap_or(0)),
        Err(Stop::End(End::Quit | End::ParentGone)) => 0,
        Err(Stop::Error(error)) => {
            if error.exit_code() != 0 {
                // If stderr is closed, no one wants the message.
                let _ = writeln!(std::io::stderr(), "gpumem-tui bench {name}: {error}");
            }
            error.exit_code()
        }
    }
}

/// Begins to listen to signals, and to the parent if that steers.
fn listen(steer: bool, parent: Option<u32>) -> Result<Control, Stop> {
    if steer {
        die_with_parent(parent).map_err(BenchError::from)?;
    }
    let input: Option<Box<dyn BufRead + Send>> = match steer {
        true => Some(Box::new(BufReader::new(std::io::stdin()))),
        false => None,
    };
    let (control, signals) = Control::new(input);
    listen_to_signals(signals).map_err(BenchError::Output)?;
    Ok(control)
}

fn run(args: &HierarchyArgs) -> Result<(), Stop> {
    let control = listen(args.steer, args.parent)?;
    let mut out = stdout();
    let mut lines = Lines::new(&mut out, HIERARCHY);
    let done = perform(args, &control, &mut lines);
    if let (true, Err(Stop::Error(error))) = (args.steer, &done) {
        // An output that cannot be written has been reported already.
        let _ = lines.say(Body::Error {
            message: error.to_string(),
            exit_code: error.exit_code(),
        });
    }
    let report = done?;
    // Before it is written: a reader may go away in the middle.
    let (kept, not_kept) = match args.no_save {
        true => (None, None),
        false => match keep(&report) {
            Ok(path) => (Some(clean(&path.display().to_string())), None),
            Err(error) => (None, Some(error.to_string())),
        },
    };
    if let Some(why) = &not_kept {
        let _ = writeln!(
            std::io::stderr(),
            "gpumem-tui bench {HIERARCHY}: the report is not kept (--no-save does not try): {why}"
        );
    }
    if args.steer {
        lines.say(Body::Hierarchy {
            report: Box::new(report),
            kept,
            not_kept,
        })?;
        return Ok(());
    }
    let text = match args.json {
        true => serde_json::to_string_pretty(&report).map_err(std::io::Error::from)? + "\n",
        false => report.text() + &kept.map_or_else(String::new, |path| format!("\nkept in {path}\n")),
    };
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Opens the device and measures it. All memory is free when this returns.
fn perform(args: &HierarchyArgs, control: &Control, lines: &mut Lines<'_>) -> Result<Report, Stop> {
    let device = device::cuda(args.device).map_err(|error| BenchError::NoDevice(error.to_string()))?;
    let mut rig = CudaRig::open(device, |free| budget(args.budget, free))?;
    let (bytes, load_ns) = (rig.budget(), rig.load_ns());
    if args.steer {
        lines.say(Body::Start(Start {
            pid: std::process::id(),
            device: rig.card().name.clone(),
            uuid: rig.card().uuid.clone(),
            budget: bytes,
        }))?;
    }
    let mut watcher = Watcher {
        control,
        terminal: ProgressLine::on_terminal().filter(|_| !args.steer),
        lines: args.steer.then_some(lines),
    };
    let mut report = measure(&mut rig, bytes, &mut watcher)?;
    report.load_ms = Some(load_ns as f64 / 1e6);
    report.date = date();
    Ok(report)
}

/// Returns the date in seconds since 1970-01-01 UTC.
pub(super) fn date() -> u64 {
    // A clock before 1970 has no date to give.
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
