//! A program without a terminal, such as a demo that publishes.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use rustix::process::{Pid, Signal};
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT};

use crate::{Ended, World, children, lives, until};

/// Resets ignored signals for programs that are started from here on. The tests may have been started with signals ignored (nohup, a
/// background job of a script), and children inherit that, but not a handler.
fn heed_signals() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
    for signal in [SIGINT, SIGHUP] {
        if ignored >> (signal - 1) & 1 == 1 {
            signal_hook::flag::register(signal, Arc::default()).unwrap();
        }
    }
}

/// A running program whose output is read line by line. It is killed on drop.
pub struct Background {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Background {
    /// Starts `gpumem-tui` with `args` in `world`.
    pub fn start(world: &World, args: &[&str]) -> Background {
        Background::run(world.command(args))
    }

    /// Starts a command that ends up as `gpumem-tui`.
    pub fn run(mut command: Command) -> Background {
        heed_signals();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Background { child, output }
    }

    /// Starts a training run that publishes until it is ended, and waits for its first step.
    pub fn training(world: &World) -> Background {
        let mut args = vec!["demo", "train", "--headless", "--json", "--device", "sim"];
        args.extend(["--steps", "0", "--pace", "200ms"]);
        let mut demo = Background::start(world, &args);
        demo.step();
        demo
    }

    /// Starts a program whose memory does not change and is fragmented: every other block is free. Also returns its figures.
    pub fn fragmented(world: &World) -> (Background, Value) {
        Background::run_fragmented(world.command(&Background::FRAGMENTED))
    }

    /// The arguments of [`fragmented`](Self::fragmented).
    pub const FRAGMENTED: [&str; 9] = [
        "demo",
        "fragmentation",
        "--headless",
        "--json",
        "--steer",
        "--device",
        "sim",
        "--budget",
        "256M",
    ];

    /// The same with a command that ends up running the program with these arguments.
    pub fn run_fragmented(command: Command) -> (Background, Value) {
        let mut demo = Background::run(command);
        demo.step();
        demo.tell("next");
        let figures = demo.step()["stats"].clone();
        (demo, figures)
    }

    /// Waits for its next step and returns that line.
    #[track_caller]
    pub fn step(&mut self) -> Value {
        loop {
            let line = self.line();
            assert!(!line.is_null(), "it ended before its next step");
            if line["type"] == "step" {
                return line;
            }
        }
    }

    /// Sends it a line.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns its current children.
    pub fn children(&self) -> Vec<u32> {
        children(self.pid())
    }

    /// Returns its next line of output, which is JSON. Null at the end.
    #[track_caller]
    pub fn line(&mut self) -> Value {
        let mut line = String::new();
        match self.output.read_line(&mut line).unwrap() {
            0 => Value::Null,
            _ => serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")),
        }
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid() as i32).expect("a process id");
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for its end and returns how it ended.
    pub fn ended(&mut self) -> Ended {
        until("it ends", || !lives(self.pid()));
        match self.child.wait().unwrap().code() {
            Some(code) => Ended::Code(code as u32),
            None => Ended::Signal,
        }
    }

    /// Sends SIGKILL and waits for its end.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
