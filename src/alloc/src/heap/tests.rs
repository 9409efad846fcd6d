//! Tests of the whole heap.
#![allow(clippy::unwrap_used)]

pub(super) mod check;
pub(super) mod direct;
pub(super) mod faults;
pub(super) mod judge;
pub(super) mod lines;
pub(super) mod meanwhile;
pub(super) mod model;
pub(super) mod naive;
pub(super) mod pools;
pub(super) mod program;
pub(super) mod published;
pub(super) mod streams;
pub(super) mod wish;

use super::Heap;
use crate::config::Config;
use crate::device::Sim;
use crate::lane::Front;
use crate::publish::Publish;

/// A heap of a simulated device, told to nobody.
pub(super) fn heap_on(sim: &Sim, config: Config) -> Heap {
    let config = Config {
        publish: Publish::Off,
        ..config
    };
    Heap::new(sim.device().driver, &config, Front::alone()).unwrap()
}
