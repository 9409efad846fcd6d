//! The tests of the crate, one module per topic.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[path = "../common/mod.rs"]
mod common;

mod bounds;
mod damaged;
mod hostile;
mod opcodes;
mod real;
mod roundtrip;
mod shapes;
mod writing;
