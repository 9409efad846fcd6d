//! A replay for the dashboard: at a pace that the user sets, over and over, publishing like any program.

mod pacer;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

use crate::conf::Segments;
use crate::control::{End, Input};
use crate::demo::Demo;
use crate::error::DemoError;
use crate::lab::MemoryPlan;
use crate::pace::Speed;
use crate::protocol::{Command, Kind, OutOfMemory, Outcome, Step};
use crate::replay::gpumem::{Gpumem, job};
use crate::replay::replayer::{Refused, Replayer, Streams};
use crate::replay::{ReplayError, read};
use crate::stage::{Stage, Stop};
use crate::trace::{Op, Trace};
use crate::values::parse_number;
use gpumem_text::units::{bytes_to_pib, count, plural};
use pacer::{Pacer, TICK};

/// The most operations between two looks at the clock.
const BURST: usize = 256;
/// How often it reports its progress.
const REPORT: Duration = Duration::from_secs(1);

/// `demo replay`, with its arguments: `replay TRACE --watch` and `--speed` start it.
#[derive(Clone, Debug, Default, Args)]
pub struct Replay {
    /// The recorded allocations
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Operations a second, or max [default: the trace in a minute]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = |text: &str| text.parse::<Speed>())]
    pub speed: Option<Speed>,
    /// How memory for large blocks is taken [default: as --conf says]
    #[arg(long, value_name = "KIND", value_parser = |text: &str| text.parse::<Segments>())]
    pub segments: Option<Segments>,
    /// Passes; 0: until told to quit [default: 0]
    #[arg(long = "steps", value_name = "N", allow_hyphen_values = true, default_value = "0", hide_default_value = true, value_parser = |text: &str| parse_number(text, 0..=u64::MAX))]
    pub passes: u64,
}

/// A running replay.
struct Live<'a> {
    /// The file's name.
    name: String,
    trace: &'a Trace,
    /// Notes on the trace, in sentences with a blank before each.
    odd: String,
    /// The number of passes; 0 means until `quit`.
    passes: u64,
    replayer: Gpumem,
    pacer: Pacer,
    pass: u64,
    /// When the pass began.
    began: Instant,
    /// The next operation of this pass.
    at: usize,
    reported: Instant,
    /// The last pass that was reported.
    reported_pass: u64,
    failures: u64,
    /// The newest failure since the last report.
    oom: Option<OutOfMemory>,
}

impl Demo for Replay {
    const NAME: &'static str = "replay";
    const SUMMARY: &'static str = "recorded allocations, at a pace";
    const KIND: Kind = Kind::Paced;
    const COMMAND: &'static str = "replay";

    fn memory_plan(&self) -> MemoryPlan {
        MemoryPlan::Device {
            segments: self.segments,
        }
    }

    fn label(&self) -> String {
        self.trace
            .as_deref()
            .map_or_else(|| format!("demo {}", Self::NAME), job)
    }

    fn run(&mut self, stage: &mut Stage<'_>) -> Result<Outcome, Stop> {
        let Some(path) = &self.trace else {
            let argument = "--trace";
            let reason = "say which trace to replay".to_owned();
            return Err(DemoError::Argument { argument, reason }.into());
        };
        let trace = read(path)?;
        let streams = Streams::new(stage.lab.device(), &trace);
        let streams = streams.map_err(|why| ReplayError::while_doing("making streams", why))?;
        let replayer = Gpumem::with(stage.lab.allocator().clone(), &trace, &streams);
        stage.begin(self.passes, None)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let speed = self.speed.unwrap_or_else(|| Speed::in_a_minute(trace.ops.len()));
        let now = Instant::now();
        let mut live = Live {
            name: gpumem_text::clean(&name),
            trace: &trace,
            odd: odd(&trace),
            passes: self.passes,
            replayer,
            pacer: Pacer::new(speed, now),
            pass: 1,
            began: now,
            at: 0,
            reported: now,
            reported_pass: 0,
            failures: 0,
            oom: None,
        };
        live.report(stage)?;
        let played = live.play(stage);
        if let Err(Stop::End(End::Quit | End::Signal(_))) = played {
            // The replay ends even if no one reads this report.
            drop(live.report(stage));
        }
        played?;
        drop(live);
        Ok(Outcome {
            steps_done: stage.steps_done,
            reserved_at_end: stage.release_all()?,
            ..Outcome::default()
        })
    }
}

fn odd(trace: &Trace) -> String {
    let left_out = trace.odd.left_out(trace.format).map(|rows| format!("left out: {rows}"));
    let notes = left_out.into_iter().chain(trace.odd.notes());
    notes.map(|note| format!(" Of the file: {note}.")).collect()
}

impl Live<'_> {
    fn play(&mut self, stage: &mut Stage<'_>) -> Result<(), Stop> {
        self.begin_pass(stage);
        loop {
            self.listen(stage)?;
            let now = Instant::now();
            let due = self.pacer.due(now);
            if self.advance(stage, due, now + TICK)? {
                return Ok(());
            }
            // A paused replay has nothing new to report.
            if !self.pacer.paused() && self.reported.elapsed() >= REPORT {
                self.report(stage)?;
            }
        }
    }

    /// Replays `due` operations, or until `deadline`. Returns true when the last pass has ended.
    fn advance(&mut self, stage: &mut Stage<'_>, due: u64, deadline: Instant) -> Result<bool, Stop> {
        let all = self.trace.ops.len();
        let mut due = usize::try_from(due).unwrap_or(usize::MAX);
        while due > 0 {
            let burst = BURST.min(due).min(all - self.at);
            for _ in 0..burst {
                self.operation()?;
            }
            self.pacer.did(burst);
            due -= burst;
            if self.at == all && self.end_pass(stage)? {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        Ok(false)
    }

    fn begin_pass(&mut self, stage: &Stage<'_>) {
        // All passes have the same name: a channel keeps a thousand names, and there may be more passes.
        stage.lab.mark("pass");
        self.began = Instant::now();
        self.at = 0;
    }

    /// Frees everything for the next pass, unless this was the last.
    fn end_pass(&mut self, stage: &mut Stage<'_>) -> Result<bool, Stop> {
        stage.steps_done = self.pass;
        let last = self.pass == self.passes;
        // Only some short passes are reported. A pass that was reported is reported again at its end.
        if last || self.reported_pass == self.pass || self.reported.elapsed() >= REPORT {
            self.report(stage)?;
        }
        self.replayer
            .clear()
            .map_err(|why| ReplayError::while_doing("freeing what the trace leaves", why))?;
        if !last {
            let long = self.began.elapsed() >= REPORT;
            self.pass += 1;
            self.begin_pass(stage);
            if long {
                self.report(stage)?;
            }
        }
        Ok(last)
    }

    fn operation(&mut self) -> Result<(), ReplayError> {
        let broken = |why: String| ReplayError::while_doing("replaying", why);
        match self.trace.ops[self.at] {
            Op::Alloc { slot, stream, bytes } => match self.replayer.alloc(slot, bytes, stream) {
                Ok(()) => {}
                Err(Refused::Memory(why)) => {
                    self.failures += 1;
                    self.oom = Some(self.replayer.out_of_memory(bytes, &*why));
                }
                Err(Refused::Broken(why)) => return Err(broken(why)),
            },
            Op::Free { slot } => self.replayer.free(slot).map_err(broken)?,
        }
        self.at += 1;
        Ok(())
    }

    /// Executes commands until the next tick.
    fn listen(&mut self, stage: &mut Stage<'_>) -> Result<(), Stop> {
        let deadline = self.pacer.next();
        while let Some(heard) = stage.control.wait_until(deadline) {
            match heard {
                Input::Command(Command::Pace(pace)) => {
                    self.pacer.change(pace, Instant::now());
                    self.report(stage)?;
                }
                heard => stage.answer(heard, "say speed N, speed max, faster, slower, pause or quit")?,
            }
        }
        Ok(())
    }

    fn report(&mut self, stage: &mut Stage<'_>) -> Result<(), DemoError> {
        self.reported = Instant::now();
        self.reported_pass = self.pass;
        let all = self.trace.ops.len();
        let pace = self.pacer.in_words();
        let failures = match self.failures {
            0 => String::new(),
            n => format!(" Requests that found too little memory so far: {}.", count(n)),
        };
        let requested = bytes_to_pib(self.trace.peak_requested);
        let step = Step {
            id: "replay".to_owned(),
            title: format!(
                "Pass {}, {} % of {}",
                count(self.pass),
                (self.at * 100 + all / 2) / all,
                plural(all as u64, "operation")
            ),
            detail: format!(
                "{}: {pace} It requests {requested} at its peak.{}{failures}",
                self.name, self.odd
            ),
            oom: self.oom.take(),
            halted: self.pacer.paused(),
            ..Step::default()
        };
        stage.tell(self.pass, step)
    }
}
