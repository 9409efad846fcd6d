//! A replay to look at: at a pace that its user sets, over and over, publishing like any program.

use std::time::{Duration, Instant};

use super::gpumem::Gpumem;
use super::replayer::{Refused, Replayer, Streams};
use super::speed::{Pace, Speed};
use super::{ReplayError, read};
use crate::bytes::{count, format_bytes, plural};
use crate::control::{End, Heard};
use crate::error::DemoError;
use crate::protocol::{Command, OutOfMemory, Outcome, Step};
use crate::run::{Stage, Stop};
use crate::trace::{Op, Trace};

/// How often it listens, and catches up with its pace.
const TICK: Duration = Duration::from_millis(20);
/// How many operations at most lie between two looks at the clock.
const BURST: usize = 256;
/// How often it tells how far it is.
const REPORT: Duration = Duration::from_secs(1);

/// A replay under way.
struct Live<'a> {
    /// The file's.
    name: String,
    trace: &'a Trace,
    replayer: Gpumem,
    speed: Speed,
    paused: bool,
    pass: u64,
    /// The next operation of this pass.
    at: usize,
    reported: Instant,
    /// The pass that was told of last.
    told: u64,
    failures: u64,
    /// The newest of them since the last report.
    oom: Option<OutOfMemory>,
}

pub(crate) fn play(stage: &mut Stage<'_>) -> Result<Outcome, Stop> {
    let Some(path) = &stage.args.trace else {
        let argument = "--trace";
        let reason = "say which trace to replay".to_owned();
        return Err(DemoError::Argument { argument, reason }.into());
    };
    let trace = read(path)?;
    let streams = Streams::new(stage.lab.device(), &trace);
    let streams = streams.map_err(|why| ReplayError::while_doing("making streams", why))?;
    let replayer = Gpumem::with(stage.lab.allocator().clone(), &trace, &streams);
    stage.begin(stage.args.steps)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut live = Live {
        name: gpumem_channel::clean(&name),
        trace: &trace,
        replayer,
        speed: stage.args.speed.unwrap_or_else(|| Speed::in_a_minute(trace.ops.len())),
        paused: false,
        pass: 1,
        at: 0,
        reported: Instant::now(),
        told: 0,
        failures: 0,
        oom: None,
    };
    live.report(stage)?;
    let played = live.play(stage);
    if let Err(Stop::End(End::Quit | End::Signal(_))) = played {
        // The end stands, whether or not anybody still reads how far it came.
        drop(live.report(stage));
    }
    played?;
    drop(live);
    Ok(Outcome {
        steps_done: stage.steps_done,
        reserved_at_end: stage.strike()?,
        ..Outcome::default()
    })
}

impl Live<'_> {
    fn play(&mut self, stage: &mut Stage<'_>) -> Result<(), Stop> {
        let passes = stage.args.steps;
        loop {
            let began = Instant::now();
            self.pass(stage)?;
            stage.steps_done = self.pass;
            // Short passes are told of now and then; one of which anything was told is told to its end.
            let long = began.elapsed() >= REPORT;
            let last = self.pass == passes;
            if long || last || self.told == self.pass {
                self.report(stage)?;
            }
            self.replayer
                .clear()
                .map_err(|why| ReplayError::while_doing("freeing what the trace leaves", why))?;
            if last {
                return Ok(());
            }
            self.pass += 1;
            self.at = 0;
            if long {
                self.report(stage)?;
            }
        }
    }

    fn pass(&mut self, stage: &mut Stage<'_>) -> Result<(), Stop> {
        // One name for all: a channel keeps a thousand names, and fast passes are more.
        stage.lab.mark("pass");
        let all = self.trace.ops.len();
        let (mut due, mut clock) = (0.0, Instant::now());
        while self.at < all {
            self.listen(stage)?;
            let now = Instant::now();
            let passed = (now - clock).as_secs_f64();
            clock = now;
            match self.speed {
                _ if self.paused => due = 0.0,
                Speed::Max => self.advance(all, now + TICK)?,
                Speed::PerSecond(n) => {
                    due += passed * f64::from(n.get());
                    let wanted = (self.at + due as usize).min(all);
                    let before = self.at;
                    self.advance(wanted, now + TICK)?;
                    // A pace that cannot be kept is not caught up with.
                    due = if self.at < wanted {
                        0.0
                    } else {
                        due - (self.at - before) as f64
                    };
                }
            }
            // Of what stands still there is nothing new, and the end of a pass is told elsewhere.
            if !self.paused && self.at < all && now - self.reported >= REPORT {
                self.report(stage)?;
            }
        }
        Ok(())
    }

    /// Replays up to an operation, or until time is up.
    fn advance(&mut self, until: usize, deadline: Instant) -> Result<(), Stop> {
        while self.at < until {
            for _ in 0..BURST.min(until - self.at) {
                self.operation()?;
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        Ok(())
    }

    fn operation(&mut self) -> Result<(), ReplayError> {
        let broken = |why: String| ReplayError::while_doing("replaying", why);
        match self.trace.ops[self.at] {
            Op::Alloc { slot, stream, bytes } => match self.replayer.alloc(slot, bytes, stream) {
                Ok(()) => {}
                Err(Refused::Memory(why)) => {
                    self.failures += 1;
                    self.oom = Some(self.replayer.out_of_memory(bytes, why.to_string()));
                }
                Err(Refused::Broken(why)) => return Err(broken(why)),
            },
            Op::Free { slot } => self.replayer.free(slot).map_err(broken)?,
        }
        self.at += 1;
        Ok(())
    }

    /// Does what is said until the next tick.
    fn listen(&mut self, stage: &mut Stage<'_>) -> Result<(), Stop> {
        let wait = if self.speed == Speed::Max && !self.paused {
            Duration::ZERO
        } else {
            TICK
        };
        let deadline = Instant::now() + wait;
        while let Some(heard) = stage.control.wait_until(deadline) {
            match heard {
                Heard::Command(Command::Pace(pace)) => {
                    match pace {
                        Pace::Speed(speed) => self.speed = speed,
                        Pace::Faster => self.speed = self.speed.faster(),
                        Pace::Slower => self.speed = self.speed.slower(),
                        Pace::Pause => self.paused = !self.paused,
                    }
                    self.report(stage)?;
                }
                heard => stage.answer(heard, "say speed N, speed max, faster, slower, pause or quit")?,
            }
        }
        Ok(())
    }

    fn report(&mut self, stage: &mut Stage<'_>) -> Result<(), DemoError> {
        self.reported = Instant::now();
        self.told = self.pass;
        let all = self.trace.ops.len();
        let pace = match (self.paused, self.speed) {
            (true, _) => "It stands still.".to_owned(),
            (false, Speed::PerSecond(n)) => format!("{} a second.", plural(n.get().into(), "operation")),
            (false, Speed::Max) => "As fast as it goes.".to_owned(),
        };
        let failures = match self.failures {
            0 => String::new(),
            n => format!(" Requests that found too little memory so far: {}.", count(n)),
        };
        let requested = format_bytes(self.trace.peak_requested);
        let step = Step {
            id: "replay".to_owned(),
            title: format!(
                "Pass {}, {} % of {}",
                count(self.pass),
                (self.at * 100 + all / 2) / all,
                plural(all as u64, "operation")
            ),
            detail: format!("{}: {pace} It asks for {requested} at its peak.{failures}", self.name),
            oom: self.oom.take(),
            halted: self.paused,
            ..Step::default()
        };
        stage.tell(self.pass, step)
    }
}
