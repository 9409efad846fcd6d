//! Watches the managed memory of one process from outside: `uvm PID SECONDS [events]`. Prints the counters since the start once a second,
//! and after them a line for each managed range with the pages that the CPU can reach (of its first 64 blocks of 2 MiB: # all, + some,
//! . none). Prints a summary of the events at the end.
#![allow(clippy::expect_used, clippy::unwrap_used, missing_docs)]

use std::process::Command;
use std::time::{Duration, Instant};

use gpumem_probe::{
    BLOCK_PAGES, Cause, Direction, ManagedMemory, Root, Target, UvmPolicy, UvmWatch, Watching, run_helper,
};

fn helper() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg("helper");
    command
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next().expect("a pid, or `helper`");
    if first == "helper" {
        run_helper(&Root::default()).expect("the helper's descriptors");
        return;
    }
    let target = Target {
        pid: first.parse().expect("a pid"),
        start_time: 0,
    };
    let seconds: f64 = arguments.next().map_or(5.0, |s| s.parse().expect("seconds"));
    let events = arguments.next().is_some().then_some(target);

    println!("{:?}", UvmPolicy::read(&Root::default()));
    let mut memory = ManagedMemory::default();
    let mut watch = UvmWatch::new(helper);
    watch.set(&[target], events);
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    while Instant::now() < end {
        watch.wait(Duration::from_secs(1).min(end - Instant::now()));
        println!("{:?} {:?}", watch.state(target), watch.counters(target));
        let map = memory.map(target.pid).unwrap_or_default();
        let begin = Instant::now();
        let found = memory.residency(target.pid, &map.ranges).unwrap_or_default();
        let took = begin.elapsed();
        for resident in &found {
            let spans = &resident.spans;
            println!(
                "  {:x} {} MiB: {} of {} pages on the CPU, {} spans",
                resident.range.start,
                resident.range.bytes() >> 20,
                spans.present(),
                spans.pages(),
                spans.len()
            );
            let blocks = (0..spans.pages().min(64 * BLOCK_PAGES)).step_by(BLOCK_PAGES as usize);
            let signs = blocks.map(|first| match spans.present_in(first..first + BLOCK_PAGES) {
                0 => '.',
                BLOCK_PAGES => '#',
                _ => '+',
            });
            println!("    {}", signs.collect::<String>());
        }
        println!("  {} more ranges; read in {took:?}", map.left_out);
        if watch
            .state(target)
            .is_some_and(|state| matches!(state, Watching::Off(_)))
        {
            break;
        }
    }
    if events.is_some() {
        println!("{:?}", watch.events_state());
        if let Some(events) = watch.events() {
            for cause in Cause::ALL {
                for direction in [Direction::HostToDevice, Direction::DeviceToHost] {
                    println!("{cause:?} {direction:?}: {:?}", events.sums.moves(cause, direction));
                }
            }
            println!("{:?}", events.sums);
            let on_gpu: u32 = events.blocks.iter().map(|block| block.on_gpu.count_ones()).sum();
            println!("{} blocks moved, {on_gpu} parts on a GPU", events.blocks.len());
        }
    }
}
