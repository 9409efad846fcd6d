//! Whole-program tests of gpumem: the real binary in a real pseudo-terminal, beside fake drivers and real channels.
//!
//! The tests lie in `tests/tests`, one file an idea; here is what they share.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support: what cannot be set up fails the test"
)]

mod binary;
mod terminal;
mod world;

pub use binary::gpumem_tui;
pub use terminal::{Ended, Terminal};
pub use world::World;
