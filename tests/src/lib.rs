//! Support for tests of the whole program: the real binary in a real pseudo-terminal, with fake drivers and real channels.
//!
//! The tests of the program are in `src/tui/tests`, and those of the library for C programs in `tests/tests`. This crate has what they
//! share.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support: what cannot be set up fails the test"
)]

mod background;
mod binary;
mod namespace;
mod outcome;
mod publisher;
mod random;
mod terminal;
mod world;

use std::time::{Duration, Instant};

pub use background::Background;
pub use binary::{gpumem_tui, libgpumem_alloc};
pub use namespace::unshared;
pub use outcome::{Ended, Modes};
pub use publisher::{fail, publish, publish_named, uuid_of};
pub use random::Random;
pub use terminal::{Connection, Terminal};
pub use world::World;

/// How long anything may take before a test gives up. It is long because CI machines are slow and shared.
const PATIENCE: Duration = Duration::from_secs(30);

/// Keys of views, each with a text that only its view shows at 80x24 beside a demo.
pub const VIEWS: [(&str, &str); 4] = [("1", "STATE"), ("2", "1 cell ="), ("3", "last 60 s"), ("7", "Demo: ")];

/// Returns a program's output as text.
pub fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits until `holds` is true, for conditions that no screen shows. Panics if that takes too long.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns whether a process is alive. A zombie is not.
pub fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Returns whether a process is stopped, as by Ctrl-Z.
pub fn stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

/// Returns the current children of a process.
pub fn children(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}
