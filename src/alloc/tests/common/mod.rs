//! What tests begin with: an allocator that publishes nothing, on a simulated device.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "each test binary uses its part"
)]

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
