//! The integration tests of the crate, one module per topic.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[path = "../common/mod.rs"]
mod common;

mod behind;
mod cases;
mod fragmentation;
mod new_demo;
mod process;
mod recorded;
mod replay;
mod replay_live;
mod thread_streams;
mod train;
mod unified;
