//! Measures what looking up 20 processes and the host's memory costs: `cargo run --release -p gpumem-probe --example
//! processes [ROUNDS]`.
//!
//! Prints the CPU time of a look-up (at one look-up a second, 100 µs are 0.01 % of a core) and how much memory it takes. Arguments after
//! `ROUNDS` are pids to look up in place of 20 sleeping children.

use std::process::{Child, Command};
use std::time::Duration;

use gpumem_probe::{Processes, host_memory};

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1).filter_map(|n| n.parse::<u32>().ok());
    let rounds = arguments.next().unwrap_or(200).max(1);
    let mut pids: Vec<u32> = arguments.collect();
    let mut children: Vec<Child> = Vec::new();
    if pids.is_empty() {
        for _ in 0..20 {
            children.push(Command::new("sleep").arg("600").spawn()?);
        }
        pids.extend(children.iter().map(Child::id));
        std::thread::sleep(Duration::from_millis(50));
    }
    let before = resident();
    let mut processes = Processes::default();
    let first = processes.look_up(&pids);
    let after_one = resident();
    let start = processor_time();
    for _ in 0..rounds {
        processes.look_up(&pids);
    }
    let spent = processor_time() - start;
    println!("{} processes, first: {:?}", pids.len(), first.first());
    println!("{:?} of CPU time a look-up", spent / rounds);
    println!(
        "resident {before} KiB before, {after_one} KiB after one look-up, {} KiB after {rounds} more",
        resident()
    );
    let start = processor_time();
    let memory = host_memory();
    println!("{memory:?}: {:?} of CPU time", processor_time() - start);
    for mut child in children {
        child.kill()?;
        child.wait()?;
    }
    Ok(())
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or(0)
}
