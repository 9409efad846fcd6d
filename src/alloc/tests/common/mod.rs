//! What tests begin with: an allocator that publishes nothing, on a simulated device.
#![allow(dead_code, clippy::unwrap_used, reason = "each test binary uses its part")]

use gpumem_alloc::device::{Sim, SimConfig, Timeline};
use gpumem_alloc::{Allocator, Config, Publish, SegmentMode};

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
