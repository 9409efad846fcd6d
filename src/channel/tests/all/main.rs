//! The tests of the crate, one module for each idea.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../common/mod.rs"]
mod common;

mod gives_way;
mod hostile;
mod hostile_lanes;
mod interrupted;
mod lane_stress;
mod lanes;
mod life;
mod room;
mod roundtrip;
mod sections;
mod stamp;
mod who;
