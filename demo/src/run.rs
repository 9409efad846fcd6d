//! Runs a demo: opens the device, connects the parts, frees everything.

use std::io::{BufRead, BufReader, Write};

use crate::args::{DeviceChoice, RunArgs};
use crate::blocking::stdout;
use crate::control::{Control, End};
use crate::demo::{Chosen, Entry};
use crate::error::{DemoError, Ended, exit_code};
use crate::gpu;
use crate::lab::{Lab, open_cuda};
use crate::output::{Output, width_of_stdout};
use crate::paragraph::WIDTH;
use crate::process::die_with_parent;
use crate::protocol::Body;
use crate::signals::listen_to_signals;
use crate::stage::{Stage, Stop};

/// Runs a demo, writes its lines to `out`, and takes commands from `input` when `args.steer` is set.
///
/// Touches no signal and no process setting: [`main`] does.
///
/// # Errors
/// See [`DemoError`]; in JSON an error is also the last line. All memory is free when this returns.
pub fn run(
    demo: impl Into<Chosen>,
    args: &RunArgs,
    out: &mut dyn Write,
    input: Option<Box<dyn BufRead + Send>>,
) -> Result<Ended, DemoError> {
    let (control, _signals) = Control::new(input.filter(|_| args.steer));
    run_with(demo.into(), args, out, || WIDTH, &control)
}

fn run_with(
    chosen: Chosen,
    args: &RunArgs,
    out: &mut dyn Write,
    width: fn() -> usize,
    control: &Control,
) -> Result<Ended, DemoError> {
    let name = chosen.entry().name;
    let ended = perform(chosen, args, out, width, control);
    if let (true, Err(error)) = (args.json, &ended) {
        let body = Body::Error {
            message: error.to_string(),
            exit_code: error.exit_code(),
        };
        // An output that cannot be written has been reported already.
        let _ = Output::new(out, name, true, width).say(body);
    }
    ended
}

fn perform(
    mut chosen: Chosen,
    args: &RunArgs,
    out: &mut dyn Write,
    width: fn() -> usize,
    control: &Control,
) -> Result<Ended, DemoError> {
    let Entry { name, kind, .. } = chosen.entry();
    let demo = &mut chosen.demo;
    demo.check()?;
    let output = Output::new(out, name, args.json, width);
    let lab = Lab::open(args, demo.memory_plan(), demo.label())?;
    let mut stage = Stage::new(lab, args, kind, output, control);
    match demo.run(&mut stage) {
        Ok(outcome) => {
            stage.output.say(Body::Result {
                result: outcome.clone(),
            })?;
            Ok(Ended::Done(outcome))
        }
        Err(Stop::End(end)) => Ok(Ended::Early(end)),
        Err(Stop::Error(error)) => Err(error),
    }
}

/// Checks whether a demo can begin, before anything of it is shown. Writes an error to stderr and returns the exit code of
/// [`main`]. Leaves out devices with a driver, because opening one takes memory on it.
pub fn check(demo: &Chosen, args: &RunArgs) -> u8 {
    let ended = match args.device.unwrap_or_default() {
        DeviceChoice::Auto if !gpu::driver_present() => open_cuda(0).map(drop),
        DeviceChoice::Cuda(ordinal) if !gpu::driver_present() => open_cuda(ordinal).map(drop),
        _ => Ok(()),
    };
    report(&ended.map(|()| Ended::Early(End::Quit)), demo.entry())
}

/// Runs a demo as the process's only task, on stdin, stdout and stderr. Signals end it, and so does the death of its parent
/// when steered. Returns the exit code ([`exit_code`]).
pub fn main(demo: impl Into<Chosen>, args: &RunArgs) -> u8 {
    let demo = demo.into();
    let entry = demo.entry();
    report(&run_process(demo, args), entry)
}

/// Reports how it ended, and returns the exit code.
fn report(ended: &Result<Ended, DemoError>, demo: Entry) -> u8 {
    match ended {
        Err(DemoError::OutputClosed) => {}
        // If stderr is closed, no one wants the message.
        Err(error) => drop(writeln!(std::io::stderr(), "gpumem-tui {}: {error}", demo.command)),
        Ok(_) => {}
    }
    exit_code(ended)
}

fn run_process(demo: Chosen, args: &RunArgs) -> Result<Ended, DemoError> {
    if args.steer {
        die_with_parent(args.parent)?;
    }
    let input: Option<Box<dyn BufRead + Send>> = if args.steer {
        Some(Box::new(BufReader::new(std::io::stdin())))
    } else {
        None
    };
    let (control, signals) = Control::new(input);
    listen_to_signals(signals).map_err(DemoError::Output)?;
    run_with(demo, args, &mut stdout(), width_of_stdout, &control)
}
