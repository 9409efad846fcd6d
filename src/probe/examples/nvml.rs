//! Prints a sample of NVML and how long a sample takes: `cargo run --release -p gpumem-probe --example nvml [SAMPLES]`.
//!
//! The times are those of whole samples, 100 ms apart, while the thread for slow queries runs.

use std::time::{Duration, Instant};

use gpumem_probe::{Nvml, Processes};

fn main() {
    let samples: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(50);
    let before = resident();
    let start = Instant::now();
    let mut nvml = match Nvml::load(None) {
        Ok(nvml) => nvml,
        Err(state) => {
            println!("{state:#?}");
            std::process::exit(1);
        }
    };
    println!("load {:?}", start.elapsed());
    let start = Instant::now();
    nvml.sample();
    println!("first sample {:?}", start.elapsed());
    nvml.wait_for_slow(Duration::from_secs(10));
    let sample = nvml.sample();
    println!("{sample:#?}");
    let listed = sample.gpus.iter().filter_map(|gpu| gpu.processes.value()).flatten();
    let pids: Vec<u32> = listed.map(|p| p.pid).chain([std::process::id()]).collect();
    println!("{:#?}", Processes::default().look_up(&pids));

    let mut times: Vec<Duration> = (0..samples.max(1))
        .map(|_| {
            std::thread::sleep(Duration::from_millis(100));
            let start = Instant::now();
            nvml.sample();
            start.elapsed()
        })
        .collect();
    times.sort();
    println!(
        "sample: median {:?}, slowest {:?} of {}",
        times[times.len() / 2],
        times[times.len() - 1],
        times.len()
    );
    println!("resident before NVML {before} KiB, now {} KiB", resident());
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or(0)
}
