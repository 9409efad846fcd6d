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

/// How many cases of a campaign that has `full` of them are run: a tenth, or with `GPUMEM_FULL=1` all.
pub(in crate::heap) fn campaign(full: u32) -> u32 {
    match std::env::var_os("GPUMEM_FULL") {
        Some(_) => full,
        None => full.div_ceil(10),
    }
}
