//! The stage of a demo: its device, its output and its inputs.

use std::str::FromStr;
use std::time::{Duration, Instant};

use crate::args::RunArgs;
use crate::control::{Control, End, Input};
use crate::error::DemoError;
use crate::lab::Lab;
use crate::output::Output;
use crate::protocol::{Body, Command, Kind, Start, Step};

/// The longest rest. An `Instant` cannot hold times far in the future, and no pace needs more.
pub(crate) const LONGEST_REST: Duration = Duration::from_secs(24 * 3600);

/// Why a demo's `run` returns early. Everything it holds is freed on the way out.
#[derive(Debug)]
pub enum Stop {
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

/// The stage of a demo: its device, its output and its inputs.
pub struct Stage<'a> {
    pub(crate) lab: Lab,
    pub(crate) args: &'a RunArgs,
    pub(crate) output: Output<'a>,
    pub(crate) control: &'a Control,
    pub(crate) steps_done: u64,
    kind: Kind,
    steps: u64,
}

impl<'a> Stage<'a> {
    pub(crate) fn new(lab: Lab, args: &'a RunArgs, kind: Kind, output: Output<'a>, control: &'a Control) -> Stage<'a> {
        Stage {
            lab,
            args,
            output,
            control,
            steps_done: 0,
            kind,
            steps: 0,
        }
    }

    /// Writes the first line, and notes on options of the allocator without effect. `steps` is the number of steps, 0 for no end;
    /// `map_bytes` is what the maps of all steps cover, `None` for a demo that reports none.
    pub(crate) fn begin(&mut self, steps: u64, map_bytes: Option<u64>) -> Result<(), DemoError> {
        self.steps = steps;
        let start = Start {
            pid: std::process::id(),
            channel: self.lab.channel(),
            device: self.lab.device_name(),
            simulated: self.lab.simulated(),
            budget: self.lab.limit(),
            steps,
            map_bytes,
            kind: Some(self.kind),
        };
        self.output.say(Body::Start(start))?;
        for note in self.lab.notes() {
            self.output.say(Body::Notice {
                message: note.to_string(),
            })?;
        }
        Ok(())
    }

    /// Reports a finished step. Its number, the number of steps and the figures are filled in here.
    pub(crate) fn done(&mut self, step: Step) -> Result<(), DemoError> {
        self.steps_done += 1;
        self.tell(self.steps_done, step)
    }

    /// Reports the progress of a step. The other fields are filled in as for a finished one.
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
                Input::Command(Command::Next) => return Ok(()),
                heard => self.answer(heard, "say next or quit")?,
            }
        }
    }

    /// Waits like [`Stage::advance`], and returns the chosen fix, or `default` if none is chosen.
    pub(crate) fn choose<F: FromStr<Err = String>>(&mut self, default: F) -> Result<F, Stop> {
        if !self.args.steer {
            self.advance()?;
            return Ok(default);
        }
        loop {
            match self.control.wait() {
                Input::Command(Command::Next) => return Ok(default),
                Input::Command(Command::Fix(name)) => match name.parse() {
                    Ok(fix) => return Ok(fix),
                    Err(message) => self.output.say(Body::Notice { message })?,
                },
                heard => self.answer(heard, "say fix NAME or next")?,
            }
        }
    }

    /// Waits for `time` and answers inputs.
    pub(crate) fn rest(&mut self, time: Duration) -> Result<(), Stop> {
        let deadline = Instant::now() + time.min(LONGEST_REST);
        while let Some(heard) = self.control.wait_until(deadline) {
            self.answer(heard, "this runs by itself; say quit to end it")?;
        }
        Ok(())
    }

    /// Handles an input that does not apply now: ends the demo, or writes a notice with `instead`.
    pub(crate) fn answer(&mut self, heard: Input, instead: &str) -> Result<(), Stop> {
        let message = match heard {
            Input::End(end) => return Err(Stop::End(end)),
            Input::Invalid(error) => format!("{error}: {instead}"),
            Input::Command(command) => format!("\"{command}\" means nothing at this point: {instead}"),
        };
        Ok(self.output.say(Body::Notice { message })?)
    }

    /// Releases all cached memory, and returns what is still reserved, which was leaked.
    pub(crate) fn release_all(&mut self) -> Result<u64, DemoError> {
        self.lab.release()?;
        Ok(self.lab.stats().reserved)
    }
}
