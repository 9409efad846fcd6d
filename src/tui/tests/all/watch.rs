//! `--json --watch`: a line a sample, until a signal ends it or nobody reads.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use gpumem_tests::{Background, Ended, World, said, until};
use rustix::process::{Pid, Signal};
use serde_json::Value;

const WATCH: [&str; 4] = ["--json", "--watch", "--interval", "200ms"];

fn spawn(world: &World, args: &[&str]) -> Child {
    let mut command = world.command(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn send(child: &Child, signal: Signal) {
    rustix::process::kill_process(Pid::from_raw(child.id() as i32).unwrap(), signal).unwrap();
}

/// Returns the exit code once it ends, and fails if it does not.
#[track_caller]
fn code(child: &mut Child) -> Option<i32> {
    let mut ended = None;
    until("it ends", || {
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    ended.unwrap().code()
}

/// Loading the library anew for a sample would take longer than the interval.
#[test]
fn lines_come_at_the_interval_and_sources_keep_their_state() {
    let world = World::with_nvml("load_delay_ms=1500\ngpu0.used=4G\ngpu0.pcie_rx=1000");
    let mut watch = Background::start(&world, &WATCH);
    let first = watch.line();
    let began = Instant::now();
    assert_eq!(first["nvml"]["state"], "ok", "the first line waits for the driver");
    let used = |line: &Value| line["devices"][0]["memory"]["other"].as_u64().unwrap() >> 30;
    assert_eq!(used(&first), 4);
    world.play("gpu0.used=9G\ngpu0.pcie_rx=1000");
    let mut lines = vec![first];
    lines.extend((0..8).map(|_| watch.line()));
    assert!(began.elapsed() > Duration::from_secs(1), "{:?}", began.elapsed());
    let times = |line: &Value, field: &str| line["sampled_unix_ms"][field].as_u64().unwrap();
    for pair in lines.windows(2) {
        let [before, after] = pair else { unreachable!() };
        let time = |line: &Value| line["time_unix_ms"].as_u64().unwrap();
        assert!(time(before) < time(after), "each line has the time of its sample");
        for source in ["nvml", "channels", "processes", "uvm"] {
            assert!(times(before, source) <= times(after, source), "{source}");
        }
    }
    let last = &lines[8];
    assert!(times(last, "nvml") > times(&lines[4], "nvml"));
    assert_eq!(used(last), 9);
    let rate = &last["devices"][0]["pcie_host_to_device_bytes_per_second"];
    assert_eq!(rate, 1_000_000, "it is measured between samples");
}

#[test]
fn signals_end_it_after_a_whole_line() {
    let world = World::with_nvml("h100");
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut watch = Background::start(&world, &WATCH);
        watch.line();
        watch.signal(signal);
        // This panics at a line that is cut off.
        while !watch.line().is_null() {}
        assert_eq!(watch.ended(), Ended::Code(128 + signal.as_raw() as u32), "{signal:?}");
    }
}

/// `nohup gpumem-tui --json --watch > log &`.
#[test]
fn ignored_signals_stay_ignored() {
    let world = World::with_nvml("h100");
    let watch = world.command(&WATCH);
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]);
    command
        .arg(watch.get_program())
        .args(watch.get_args())
        .envs(world.environment());
    let mut watch = Background::run(command);
    watch.line();
    watch.signal(Signal::HUP);
    for _ in 0..3 {
        assert!(!watch.line().is_null());
    }
    watch.signal(Signal::TERM);
    assert_eq!(watch.ended(), Ended::Code(128 + 15));
}

/// `gpumem-tui --json --watch | head -1`. With a long interval the next write would be far away.
#[test]
fn a_closed_stdout_ends_it_quietly() {
    let world = World::with_nvml("h100");
    for interval in ["100ms", "1h"] {
        let mut child = spawn(&world, &["--json", "--watch", "--interval", interval]);
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(serde_json::from_str::<Value>(&line).is_ok(), "{line}");
        assert_eq!(code(&mut child), Some(0), "{interval}");
        let mut complaint = Vec::new();
        child.stderr.take().unwrap().read_to_end(&mut complaint).unwrap();
        assert_eq!(said(&complaint), "", "{interval}");
    }
}

/// The pipe is full, so a line is being written.
#[test]
fn a_signal_ends_it_although_nobody_reads() {
    let world = World::with_nvml("h100");
    let mut child = spawn(&world, &["--json", "--watch", "--interval", "50ms"]);
    let stdout = child.stdout.take().unwrap();
    let full = rustix::pipe::fcntl_getpipe_size(&stdout).unwrap() as u64;
    let mut before = 0;
    until("the pipe is full", || {
        std::thread::sleep(Duration::from_millis(300));
        let now = rustix::io::ioctl_fionread(&stdout).unwrap();
        let full = now == before && now * 2 > full;
        before = now;
        full
    });
    send(&child, Signal::TERM);
    assert_eq!(code(&mut child), Some(128 + 15));
}

#[test]
fn a_simulated_device_is_watched_and_its_run_ends_with_it() {
    let world = World::without_gpu();
    let mut watch = Background::start(&world, &[&WATCH[..], &["--device", "sim"]].concat());
    for _ in 0..3 {
        let line = watch.line();
        assert_eq!(
            (&line["simulated"], &line["nvml"]["state"]),
            (&true.into(), &"not-asked".into())
        );
        assert_eq!(line["processes"][0]["state"], "publishing");
    }
    let [run] = watch.children()[..] else {
        unreachable!("one simulated run: {:?}", watch.children())
    };
    watch.signal(Signal::INT);
    assert_eq!(watch.ended(), Ended::Code(128 + 2));
    until("the run is gone", || !gpumem_tests::lives(run));
}

/// A program may publish later.
#[test]
fn without_a_device_it_says_why_and_goes_on() {
    let world = World::without_gpu();
    let mut child = spawn(&world, &WATCH);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(next()["devices"], serde_json::json!([]));
    let publisher = gpumem_tests::publish(&world, gpumem_tests::uuid_of(0));
    until("it is seen", || next()["processes"][0]["state"] == "publishing");
    drop(publisher);
    until("it has ended", || next()["processes"][0]["state"] == "exited");
    send(&child, Signal::TERM);
    assert_eq!(code(&mut child), Some(128 + 15));
    let mut complaint = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
    assert!(
        complaint.contains("nothing to report") && complaint.lines().count() == 1,
        "{complaint}"
    );
}

#[test]
fn watching_is_for_documents() {
    let world = World::with_nvml("h100");
    for (args, expected) in [
        (&["--once", "--watch"][..], "--once prints one report"),
        (&["--once", "--json", "--watch"], "--once prints one report"),
        (&["--watch"], "--watch is for --json"),
    ] {
        let output = world.command(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(
            output.stdout.is_empty() && said(&output.stderr).contains(expected),
            "{args:?}: {}",
            said(&output.stderr)
        );
    }
}

#[test]
fn black_boxes_can_be_left_out_of_reports() {
    let world = World::with_nvml("h100");
    drop(gpumem_tests::publish(&world, gpumem_tests::uuid_of(0)));
    let documents = [&["--json"][..], &["--json", "--no-black-boxes"]].map(|args| {
        let output = world.command(args).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    });
    let counts = documents.map(|document| document["processes"].as_array().unwrap().len());
    assert_eq!(counts, [1, 0]);
    let once = |args: &[&str]| said(&world.command(args).output().unwrap().stdout);
    assert!(once(&["--once"]).contains("black boxes of programs that ended: 1"));
    assert!(!once(&["--once", "--no-black-boxes"]).contains("black box"));
}
