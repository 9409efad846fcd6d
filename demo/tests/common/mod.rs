//! Helpers of the tests of whole demos.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

use std::io::{BufRead, Cursor, Write};
use std::time::Duration;

use gpumem_demo::protocol::{Body, Line, Outcome, Start, Step};
use gpumem_demo::{Chosen, DemoError, DeviceChoice, Ended, MIN_BUDGET, RunArgs, run};

/// Returns the arguments of a run on the simulated device, as JSON, at full speed, with the smallest budget.
pub fn args() -> RunArgs {
    RunArgs {
        device: Some(DeviceChoice::Sim),
        json: true,
        budget: Some(MIN_BUDGET),
        pace: Some(Duration::ZERO),
        ..RunArgs::default()
    }
}

/// The output of a run, and how it ended.
pub struct Ran {
    pub lines: Vec<Body>,
    pub ended: Result<Ended, DemoError>,
}

impl Ran {
    pub fn start(&self) -> &Start {
        match &self.lines[0] {
            Body::Start(start) => start,
            other => panic!("the first line is {other:?}"),
        }
    }

    pub fn steps(&self) -> Vec<&Step> {
        self.lines
            .iter()
            .filter_map(|l| if let Body::Step(s) = l { Some(&**s) } else { None })
            .collect()
    }

    pub fn step(&self, id: &str) -> &Step {
        self.steps()
            .into_iter()
            .find(|s| s.id == id)
            .unwrap_or_else(|| panic!("no step {id}"))
    }

    pub fn notices(&self) -> Vec<&str> {
        self.lines
            .iter()
            .filter_map(|l| {
                if let Body::Notice { message } = l {
                    Some(&**message)
                } else {
                    None
                }
            })
            .collect()
    }

    pub fn outcome(&self) -> &Outcome {
        match self.lines.last() {
            Some(Body::Result { result }) => result,
            other => panic!("the last line is {other:?}"),
        }
    }
}

/// Runs a demo with its own channel directory, so that it does not appear among the user's channels.
pub fn play_into(
    out: &mut dyn Write,
    demo: impl Into<Chosen>,
    args: &RunArgs,
    input: Option<Box<dyn BufRead + Send>>,
) -> Result<Ended, DemoError> {
    let channels = tempfile::tempdir_in("/dev/shm").unwrap();
    let args = RunArgs {
        channel_dir: Some(channels.path().join("channels")),
        ..args.clone()
    };
    run(demo, &args, out, input)
}

/// Runs a demo and reads back every line.
pub fn play(demo: impl Into<Chosen>, args: &RunArgs, input: Option<Box<dyn BufRead + Send>>) -> Ran {
    let demo = demo.into();
    let name = demo.entry().name;
    let mut out = Vec::new();
    let ended = play_into(&mut out, demo, args, input);
    let lines = String::from_utf8(out)
        .unwrap()
        .lines()
        .map(|l| Line::parse(l).unwrap())
        .collect::<Vec<_>>();
    assert!(lines.iter().all(|l| l.demo == name));
    Ran {
        lines: lines.into_iter().map(|l| l.body).collect(),
        ended,
    }
}

/// Runs a demo steered by the lines of `input`.
pub fn steered(demo: impl Into<Chosen>, args: &RunArgs, input: &str) -> Ran {
    let args = RunArgs {
        steer: true,
        ..args.clone()
    };
    play(demo, &args, Some(Box::new(Cursor::new(input.to_owned()))))
}
