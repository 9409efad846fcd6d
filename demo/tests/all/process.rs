//! A demo as a process: signals, the death of its parent, a reader that closes the output.
//!
//! These tests start this test program again as the demo (the test `child`), as a dashboard starts itself again.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gpumem_channel::{Life, Reader};
use gpumem_demo::protocol::{Body, Line, Start};
use gpumem_demo::{DeviceChoice, Fragmentation, MIN_BUDGET, RunArgs};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT};
use signal_hook::iterator::Signals;

const ROLE: &str = "GPUMEM_DEMO_TEST_ROLE";
/// Sets the directory for channels, so that none appears among the user's.
const DIR: &str = "GPUMEM_DIR";

/// Not a test by itself: the program that the tests below run.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    if role == "dashboard" {
        // Passes its own stdin and stdout on, and lives until it is killed.
        let channels = std::env::var_os(DIR).unwrap();
        let mut demo = this_program("steered", Path::new(&channels))
            .stdin(Stdio::inherit())
            .spawn()
            .unwrap();
        demo.wait().unwrap();
        return;
    }
    // A demo would inherit signals that are ignored where the tests run (nohup, a job in the background of a script).
    drop(Signals::new([SIGINT, SIGHUP]).unwrap());
    let args = RunArgs {
        device: Some(DeviceChoice::Sim),
        budget: Some(MIN_BUDGET),
        json: true,
        steer: role != "alone",
        // Without a pace it would end at once.
        pace: Some(Duration::from_millis(200)),
        parent: (role == "orphan").then_some(u32::MAX),
        ..RunArgs::default()
    };
    std::process::exit(i32::from(gpumem_demo::main(Fragmentation::default(), &args)));
}

fn this_program(role: &str, channels: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "process::child", "--nocapture", "--test-threads", "1"]);
    command.env(ROLE, role).env(DIR, channels);
    command
}

struct Demo {
    child: Child,
    lines: Option<BufReader<std::process::ChildStdout>>,
    /// Keeps the channels' directory until the test ends.
    _dir: tempfile::TempDir,
}

impl Demo {
    fn start(role: &str) -> Demo {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut command = this_program(role, &dir.path().join("channels"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = Some(BufReader::new(child.stdout.take().unwrap()));
        Demo {
            child,
            lines,
            _dir: dir,
        }
    }

    /// Reads the next line of the protocol, or `None` at the end. Skips lines of the test harness.
    fn line(&mut self) -> Option<Body> {
        loop {
            let mut text = String::new();
            if self.lines.as_mut().unwrap().read_line(&mut text).unwrap() == 0 {
                return None;
            }
            if let Some(at) = text.find("{\"schema\"") {
                return Some(Line::parse(text[at..].trim_end()).unwrap().body);
            }
        }
    }

    /// Reads up to the first step, after which a steered demo waits.
    fn until_first_step(&mut self) -> Start {
        let Some(Body::Start(start)) = self.line() else {
            panic!("no start line")
        };
        assert!(matches!(self.line(), Some(Body::Step(step)) if step.id == "fill"));
        start
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn exit_code(&mut self) -> Option<i32> {
        // `wait` would close stdin first, which also ends a demo.
        let stdin = self.child.stdin.take();
        let code = self.child.wait().unwrap().code();
        self.child.stdin = stdin;
        code
    }
}

/// Waits until a channel's publisher has ended, and returns how.
fn life(channel: &str) -> Life {
    let mut reader = Reader::open(Path::new(channel)).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let life = reader.refresh().unwrap().life;
        if life != Life::Alive || Instant::now() > deadline {
            return life;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn signals_end_the_demo_after_it_freed_its_memory() {
    for (signal, role) in [
        (Signal::TERM, "steered"),
        (Signal::INT, "alone"),
        (Signal::HUP, "steered"),
    ] {
        let mut demo = Demo::start(role);
        let channel = demo.until_first_step().channel.unwrap();
        demo.signal(signal);
        assert_eq!(demo.exit_code(), Some(128 + signal.as_raw()), "{signal:?}");
        assert_eq!(life(&channel), Life::Closed, "{signal:?}");
    }
}

#[test]
fn end_of_stdin_ends_the_demo() {
    let mut demo = Demo::start("steered");
    let channel = demo.until_first_step().channel.unwrap();
    drop(demo.child.stdin.take());
    assert_eq!(demo.exit_code(), Some(0));
    assert_eq!(life(&channel), Life::Closed);
}

/// The dashboard is killed, but another process still holds the demo's stdin open, so only the kernel can end it.
#[test]
fn death_of_the_parent_ends_a_demo_with_open_stdin() {
    let mut dashboard = Demo::start("dashboard");
    let start = dashboard.until_first_step();
    assert_ne!(start.pid, dashboard.child.id());
    dashboard.signal(Signal::KILL);
    assert_eq!(dashboard.exit_code(), None);
    assert_eq!(life(&start.channel.unwrap()), Life::Died, "killed, not ended");
    assert!(dashboard.child.stdin.is_some(), "it was open all the time");
}

#[test]
fn parent_that_died_earlier_is_noticed_at_the_start() {
    let mut orphan = Demo::start("orphan");
    assert_eq!(orphan.line(), None, "it does nothing at all");
    assert_eq!(orphan.exit_code(), Some(0));
}

#[test]
fn demo_without_a_reader_ends_quietly() {
    let mut demo = Demo::start("steered");
    let channel = demo.until_first_step().channel.unwrap();
    drop(demo.lines.take());
    // A process that another test is starting may hold the reading end for an instant. The next step finds it closed.
    while demo.child.try_wait().unwrap().is_none() {
        // The demo may be gone by now, as expected.
        let _ = demo.child.stdin.as_mut().unwrap().write_all(b"next\n");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(demo.exit_code(), Some(0));
    assert_eq!(life(&channel), Life::Closed);
}
