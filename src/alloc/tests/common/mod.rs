//! What tests begin with: an allocator that publishes nothing, on a simulated device.

use std::process::Command;

use gpumem_alloc::device::{Sim, SimConfig, Timeline};
use gpumem_alloc::{Allocator, Buffer, Config, Error, OomReport, Publish, SegmentMode, Stream};

pub(crate) const MIB: usize = 1 << 20;

/// An allocator on a device of so many bytes.
pub(crate) fn start(total: usize, timeline: Timeline, config: Config) -> (Sim, Allocator) {
    let sim = Sim::new(SimConfig {
        total: total as u64,
        timeline,
        ..SimConfig::default()
    });
    let config = Config {
        publish: Publish::Off,
        ..config
    };
    let alloc = Allocator::new(sim.device(), config).unwrap();
    (sim, alloc)
}

/// A configuration of nothing but its segments.
pub(crate) fn of(segments: SegmentMode) -> Config {
    Config {
        segments,
        ..Config::default()
    }
}

/// The same where streams have each other's memory without a wait for the device.
pub(crate) fn sharing(segments: SegmentMode) -> Config {
    Config {
        cross_stream_reuse: true,
        ..of(segments)
    }
}

/// A buffer of so many MiB on the default stream.
pub(crate) fn get(alloc: &Allocator, mib: usize) -> Buffer<u8> {
    alloc.alloc(mib * MIB, Stream::DEFAULT).unwrap()
}

/// What is said where there is no memory for one.
pub(crate) fn fails(alloc: &Allocator, mib: usize) -> OomReport {
    short(alloc.alloc::<u8>(mib * MIB, Stream::DEFAULT))
}

/// What is said where there is no memory.
pub(crate) fn short<T: std::fmt::Debug>(result: Result<T, Error>) -> OomReport {
    match result {
        Err(Error::OutOfMemory(report)) => *report,
        other => panic!("{other:?}"),
    }
}

/// Runs a test, of this path, by itself in another process; whether this is that one.
pub(crate) fn has_a_process(test: &str) -> bool {
    const IS_ALONE: &str = "GPUMEM_TEST_ALONE";
    if std::env::var_os(IS_ALONE).is_some() {
        return true;
    }
    let mut program = Command::new(std::env::current_exe().unwrap());
    let output = program
        .args(["--exact", test, "--nocapture"])
        .env(IS_ALONE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{test}: {said}");
    false
}

/// How many cases of a campaign that has `full` of them are run: a tenth, or with `GPUMEM_FULL=1` all.
pub(crate) fn campaign(full: u32) -> u32 {
    match std::env::var_os("GPUMEM_FULL") {
        Some(_) => full,
        None => full.div_ceil(10),
    }
}
