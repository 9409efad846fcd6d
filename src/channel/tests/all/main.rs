//! The tests of the crate, one module per topic.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../common/mod.rs"]
mod common;

mod clock;
mod hostile;
mod hostile_lanes;
mod identity;
mod interrupted;
mod lane_stress;
mod lanes;
mod life;
mod reused_memory;
mod roundtrip;
mod sections;
mod small_tmpfs;
