//! Runs a demo: opens the device, ties the pieces together, frees everything.

use std::io::{BufRead, BufReader, Write};
use std::time::{Duration, Instant};

use crate::args::{DemoArgs, DeviceChoice, Fix};
use crate::control::{Control, End, Heard, Signals};
use crate::error::{DemoError, Ended, exit_code};
use crate::lab::{Kind, Lab, open_cuda};
use crate::output::{Output, WIDTH, width_of_stdout};
use crate::patient::stdout;
use crate::process::die_with_parent;
use crate::protocol::{Body, Command, Outcome, Start, Step};
use crate::{account, fragmentation, gpu, replay, train};

/// No clock reaches further than some centuries, and no pace needs more than this.
pub(crate) const LONGEST_REST: Duration = Duration::from_secs(24 * 3600);

/// Why a demo's body is left early. Everything it holds is freed on the way out.
pub(crate) enum Stop {
    /// Told to end.
    End(End),
    /// Something failed.
    Error(DemoError),
}

impl<E: Into<DemoError>> From<E> for Stop {
    fn from(error: E) -> Stop {
        Stop::Error(error.into())
    }
}

/// A demo on its stage: where it runs, whom it talks to, whom it listens to.
pub(crate) struct Stage<'a> {
    pub(crate) lab: Lab,
    pub(crate) args: &'a DemoArgs,
    pub(crate) output: Output<'a>,
    pub(crate) control: &'a Control,
    pub(crate) steps_done: u64,
    steps: u64,
}

impl Stage<'_> {
    /// Says the first line, and what the allocator's options are given without effect. `steps` is the number of steps, 0 for no end.
    pub(crate) fn begin(&mut self, steps: u64) -> Result<(), DemoError> {
        self.steps = steps;
        let start = Start {
            pid: std::process::id(),
            channel: self.lab.channel(),
            device: self.lab.device_name(),
            simulated: self.lab.simulated(),
            budget: self.lab.limit(),
            steps,
        };
        self.output.say(Body::Start(start))?;
        for note in self.lab.notes() {
            self.output.say(Body::Notice {
                message: note.to_string(),
            })?;
        }
        Ok(())
    }

    /// Says that a step has been done; its number, the number of steps and the figures are filled in here.
    pub(crate) fn done(&mut self, step: Step) -> Result<(), DemoError> {
        self.steps_done += 1;
        self.tell(self.steps_done, step)
    }

    /// Says how a step of this number is getting on; the rest is filled in as for one that is done.
    pub(crate) fn tell(&mut self, number: u64, step: Step) -> Result<(), DemoError> {
        let step = Step {
            step: number,
            steps: self.steps,
            stats: self.lab.stats(),
            ..step
        };
        self.output.say(Body::Step(Box::new(step)))
    }

    /// Waits until the next step is due: for `next` when steered, else for the pace.
    pub(crate) fn advance(&mut self) -> Result<(), Stop> {
        if !self.args.steer {
            return self.rest(self.args.pace.unwrap_or_default());
        }
        loop {
            match self.control.wait() {
                Heard::Command(Command::Next) => return Ok(()),
                heard => self.answer(heard, "say next or quit")?,
            }
        }
    }

    /// Like [`Stage::advance`], where a fix can be chosen.
    pub(crate) fn choose_fix(&mut self) -> Result<Fix, Stop> {
        if !self.args.steer {
            self.advance()?;
            return Ok(self.args.fix);
        }
        loop {
            match self.control.wait() {
                Heard::Command(Command::Next) => return Ok(self.args.fix),
                Heard::Command(Command::Fix(name)) => match name.parse() {
                    Ok(fix) => return Ok(fix),
                    Err(message) => self.output.say(Body::Notice { message })?,
                },
                heard => self.answer(heard, "say fix NAME or next")?,
            }
        }
    }

    /// Does nothing for a while, listening.
    pub(crate) fn rest(&mut self, time: Duration) -> Result<(), Stop> {
        let deadline = Instant::now() + time.min(LONGEST_REST);
        while let Some(heard) = self.control.wait_until(deadline) {
            self.answer(heard, "this runs by itself; say quit to end it")?;
        }
        Ok(())
    }

    /// What to do with what cannot be done now.
    pub(crate) fn answer(&mut self, heard: Heard, instead: &str) -> Result<(), Stop> {
        let message = match heard {
            Heard::End(end) => return Err(Stop::End(end)),
            Heard::Garbage(error) => format!("{error}: {instead}"),
            Heard::Command(command) => format!("\"{command}\" means nothing at this point: {instead}"),
        };
        Ok(self.output.say(Body::Notice { message })?)
    }

    /// Gives all cached memory back; what is then still reserved was leaked.
    pub(crate) fn strike(&mut self) -> Result<u64, DemoError> {
        self.lab.release()?;
        Ok(self.lab.stats().reserved)
    }
}

/// Runs `args.demo`, writes its lines to `out`, and takes commands from `input` when `args.steer` is set.
///
/// Touches no signal and no process setting: [`main`] does.
///
/// # Errors
/// See [`DemoError`]; in JSON an error is also the last line. All memory is free when this returns.
pub fn run(args: &DemoArgs, out: &mut dyn Write, input: Option<Box<dyn BufRead + Send>>) -> Result<Ended, DemoError> {
    let (control, _signals) = Control::new(input.filter(|_| args.steer));
    run_with(args, out, || WIDTH, &control)
}

fn run_with(args: &DemoArgs, out: &mut dyn Write, width: fn() -> usize, control: &Control) -> Result<Ended, DemoError> {
    let ended = perform(args, out, width, control);
    if let (true, Err(error)) = (args.json, &ended) {
        let body = Body::Error {
            message: error.to_string(),
            exit_code: error.exit_code(),
        };
        // Output that cannot be written is the error already reported.
        let _ = Output::new(out, &args.demo, true, width).say(body);
    }
    ended
}

fn perform(args: &DemoArgs, out: &mut dyn Write, width: fn() -> usize, control: &Control) -> Result<Ended, DemoError> {
    let (kind, play): (_, fn(&mut Stage<'_>) -> _) = match args.demo.as_str() {
        "fragmentation" => (Kind::Full, fragmentation::play),
        "train" => (Kind::Training, train::play),
        "replay" => (Kind::Replay, replay::play),
        other => return Err(DemoError::UnknownDemo(other.to_owned())),
    };
    if let Some(path) = &args.snapshot {
        account::check(path)?;
    }
    let output = Output::new(out, &args.demo, args.json, width);
    let lab = Lab::open(args, kind)?;
    let mut stage = Stage {
        lab,
        args,
        output,
        control,
        steps_done: 0,
        steps: 0,
    };
    let result: Result<Outcome, Stop> = play(&mut stage);
    match result {
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

/// Whether a demo could begin, before anything is shown of it: an error that says why not is on stderr then, and the exit code is that of
/// [`main`]. A device that there is a driver for is left to the demo: to open one takes memory on it.
pub fn check(args: &DemoArgs) -> u8 {
    let ended = match args.device {
        DeviceChoice::Auto if !gpu::driver_present() => open_cuda(0).map(drop),
        DeviceChoice::Cuda(ordinal) if !gpu::driver_present() => open_cuda(ordinal).map(drop),
        _ => Ok(()),
    };
    report(&ended.map(|()| Ended::Early(End::Quit)), args)
}

/// Runs a demo as this process's whole purpose: on stdin, stdout and stderr, ended by signals, and by the death of its
/// parent when steered. Returns the exit code ([`exit_code`]).
pub fn main(args: &DemoArgs) -> u8 {
    report(&run_process(args), args)
}

/// Tells how it ended. The exit code.
fn report(ended: &Result<Ended, DemoError>, args: &DemoArgs) -> u8 {
    match ended {
        Err(DemoError::OutputClosed) => {}
        // Whoever closed stderr does not want to know.
        Err(error) => drop(writeln!(std::io::stderr(), "{}: {error}", told_by(args))),
        Ok(_) => {}
    }
    exit_code(ended)
}

/// Whose error it is, as its user knows it.
fn told_by(args: &DemoArgs) -> &'static str {
    match args.demo.as_str() {
        "replay" => "gpumem-tui replay",
        _ => "gpumem-tui demo",
    }
}

fn run_process(args: &DemoArgs) -> Result<Ended, DemoError> {
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
    run_with(args, &mut stdout(), width_of_stdout, &control)
}

/// The signals that a process ignores, as bits from 1 on, by what `/proc/PID/status` says of it. None where that says nothing.
fn ignored_signals(status: &[u8]) -> u64 {
    // The kernel cuts the program's name after 15 bytes, be it in the middle of a character.
    let status = String::from_utf8_lossy(status);
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

/// Turns SIGTERM, SIGINT and SIGHUP into the end of the demo, so that it frees its memory and closes its channel. A
/// second one kills at once, should the first find the demo stuck in the driver.
fn listen_to_signals(signals: Signals) -> std::io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    // What is ignored when a program begins (nohup, a job in the background of a script) stays ignored.
    let ignored = ignored_signals(&std::fs::read("/proc/self/status").unwrap_or_default());
    let wanted = [SIGTERM, SIGINT, SIGHUP];
    let wanted = wanted.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
    let mut heard = signal_hook::iterator::Signals::new(wanted)?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for (count, signal) in heard.forever().enumerate() {
            if count > 0 {
                std::process::exit(128 + signal);
            }
            signals.send(signal);
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_are_ignored_are_known_by_what_the_kernel_says() {
        assert_eq!(
            ignored_signals(b"Name:\tx\xd0\nSigIgn:\t0000000000001001\nSigCgt:\t03\n"),
            0x1001
        );
        for nothing in ["", "SigIgn:", "SigIgn:\tnonsense"] {
            assert_eq!(ignored_signals(nothing.as_bytes()), 0, "{nothing}");
        }
    }
}
