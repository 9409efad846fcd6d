//! Measures what the dashboard costs the machine it runs on: CPU, memory, time to its first output, bytes to the terminal.
//!
//! `cargo bench -p gpumem-tui --bench cost [-- [SECONDS] [COLUMNSxROWS] [no-nvml]]`
//!
//! Runs `gpumem-tui` in a pseudo-terminal (200x50) beside one publisher at a time and prints a table. Each figure of a
//! running dashboard is taken over SECONDS (12) after 3 s to settle: CPU is of all its threads (`schedstat`; a demo that
//! it runs as its child does not count), memory is what is resident at the end (`smaps_rollup`). The first output is the
//! median of five starts. Uses the machine's NVML if it has one; `no-nvml` keeps it away.
//!
//! `GPUMEM_BIN=FOLDER` measures the `gpumem-tui` in that folder: another version, or on a machine without cargo.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what cannot be measured ends the program"
)]

mod churn;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gpumem_tests::{Terminal, World, gpumem_tui};

const SETTLE: Duration = Duration::from_secs(3);
const STARTS: usize = 5;
const MIB: f64 = (1 << 20) as f64;

/// The settings from the command line.
struct Plan {
    seconds: u64,
    columns: u16,
    rows: u16,
    nvml: bool,
}

/// A publisher to measure beside: its name, the dashboard's interval, its program and arguments.
struct Case {
    name: &'static str,
    interval: &'static str,
    program: fn() -> PathBuf,
    arguments: &'static [&'static str],
}

const SIMULATED: &[&str] = &["demo", "train", "--headless", "--device", "sim", "--steps", "0"];
const ON_GPU: &[&str] = &["demo", "train", "--headless", "--steps", "0"];

/// What a dashboard used while it was watched.
struct Cost {
    cpu_percent: f64,
    resident: f64,
    bytes_per_second: f64,
}

/// Returns the path of this program, which is also the publisher.
fn own() -> PathBuf {
    std::env::current_exe().expect("our own path")
}

fn main() {
    // Cargo adds `--bench`.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if let [churn::WORD, blocks, rate] = words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        churn::publish(blocks.parse().unwrap(), rate.parse().unwrap());
    }
    let plan = match plan(words.into_iter()) {
        Ok(plan) => plan,
        Err(word) => {
            eprintln!("{word:?} is neither SECONDS, COLUMNSxROWS nor no-nvml");
            std::process::exit(2);
        }
    };
    println!(
        "gpumem-tui on a terminal of {}x{}, {} s each, {}",
        plan.columns,
        plan.rows,
        plan.seconds,
        match (plan.nvml, driver()) {
            (true, true) => "with NVML",
            (true, false) => "no NVIDIA driver here",
            (false, _) => "without NVML",
        }
    );
    println!(
        "{:<36}{:>9}{:>16}{:>12}{:>14}{:>12}",
        "beside", "interval", "CPU of a core", "resident", "first output", "terminal"
    );
    for case in cases(plan.nvml && driver()) {
        measure(&plan, &case);
    }
}

fn plan(words: impl Iterator<Item = String>) -> Result<Plan, String> {
    let mut plan = Plan {
        seconds: 12,
        columns: 200,
        rows: 50,
        nvml: true,
    };
    for word in words {
        let size = word.split_once('x').map(|(c, r)| (c.parse(), r.parse()));
        match (word.parse(), size) {
            (Ok(seconds @ 1..), _) => plan.seconds = seconds,
            (_, Some((Ok(columns), Ok(rows)))) => (plan.columns, plan.rows) = (columns, rows),
            _ if word == "no-nvml" => plan.nvml = false,
            _ => return Err(word),
        }
    }
    Ok(plan)
}

/// Returns whether the NVIDIA driver is loaded.
fn driver() -> bool {
    Path::new("/proc/driver/nvidia/version").exists()
}

fn cases(gpu: bool) -> [Case; 3] {
    [
        Case {
            name: "1,000 blocks that stand still",
            interval: "1s",
            program: own,
            arguments: &[churn::WORD, "1000", "0"],
        },
        Case {
            name: "demo train",
            interval: "1s",
            program: gpumem_tui,
            arguments: if gpu { ON_GPU } else { SIMULATED },
        },
        Case {
            name: "100,000 blocks, 100,000 changes/s",
            interval: "100ms",
            program: own,
            arguments: &[churn::WORD, "100000", "100000"],
        },
    ]
}

fn measure(plan: &Plan, case: &Case) {
    let world = World::without_gpu();
    let mut publisher = publish(&world, case);
    let mut firsts: Vec<Duration> = (0..STARTS)
        .map(|_| start(&world, plan, case, Duration::from_millis(300)).first_output_after())
        .collect();
    firsts.sort();
    let terminal = start(&world, plan, case, SETTLE);
    let cost = watch(&terminal, Duration::from_secs(plan.seconds));
    println!(
        "{:<36}{:>9}{:>14.2} %{:>8.1} MiB{:>11.1} ms{:>8.0} B/s",
        case.name,
        case.interval,
        cost.cpu_percent,
        cost.resident / MIB,
        firsts[STARTS / 2].as_secs_f64() * 1e3,
        cost.bytes_per_second,
    );
    drop(terminal);
    let _ = publisher.kill();
    let _ = publisher.wait();
}

/// Starts a dashboard and lets it run for `settle`.
fn start(world: &World, plan: &Plan, case: &Case, settle: Duration) -> Terminal {
    let arguments = ["--interval", case.interval];
    // `World` hides the machine's NVML from tests.
    let own: &[(&str, &str)] = if plan.nvml { &[("GPUMEM_NVML", "")] } else { &[] };
    let terminal = Terminal::start_with(world, &arguments, plan.columns, plan.rows, own);
    std::thread::sleep(settle);
    terminal
}

/// Starts the publisher and waits for its first line, which it writes when it publishes.
fn publish(world: &World, case: &Case) -> Child {
    let mut child = Command::new((case.program)())
        .args(case.arguments)
        .envs(world.environment())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the publisher starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    lines.next().expect("a first line of the publisher").unwrap();
    // Its further output must not fill the pipe.
    std::thread::spawn(move || lines.for_each(drop));
    child
}

fn watch(terminal: &Terminal, time: Duration) -> Cost {
    let (begin, cpu, bytes) = (Instant::now(), cpu(terminal.pid()), terminal.written());
    std::thread::sleep(time);
    let took = begin.elapsed().as_secs_f64();
    Cost {
        cpu_percent: (self::cpu(terminal.pid()) - cpu) / took * 100.0,
        resident: resident(terminal.pid()),
        bytes_per_second: (terminal.written() - bytes) as f64 / took,
    }
}

/// Returns the CPU time of all living threads, in seconds.
fn cpu(pid: u32) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the dashboard runs");
    let nanoseconds = |thread: std::fs::DirEntry| -> Option<u64> {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok()
    };
    threads.flatten().filter_map(nanoseconds).sum::<u64>() as f64 / 1e9
}

/// Returns the resident memory in bytes.
fn resident(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("the dashboard runs");
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:")).expect("Rss");
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib * 1024.0
}
