//! The demos, one file each, and the list of them.
//!
//! To add a demo:
//!
//! 1. `demo/src/demos/NAME.rs`: a type with the demo's own arguments (`clap::Args`), and [`Demo`] for it: its name, what it shows in
//!    one line, its [kind](crate::protocol::Kind) and `run`. Further files go into a folder of the same name.
//! 2. Here: its module and its row in the list.
//! 3. A test of it: `demo/tests/NAME.rs`.
//!
//! A demo with a kernel of its own adds that, too: `kernels/NAME.cu` (`kernels/build.py` makes the PTX and the lock), where it is
//! embedded (`demo/src/kernels.rs`), and its launch (`demo/src/gpu.rs`, which alone may be `unsafe`, with its folder).
//!
//! The subcommand `gpumem-tui demo NAME` with its help, the dashboard's list and its keys, and the message for unknown names
//! follow from these. `run` gets a [stage](crate::Stage): it calls `begin`, then `done` for each step. It waits with `advance`
//! (stepped) or `rest` (looping), or reads commands itself (paced). `lab` has the allocator and the device. Sizes are bytes.

mod fragmentation;
mod replay;
mod train;
mod unified;

use crate::demo::{Demo, Entry, row};

pub use fragmentation::{Fix, Fragmentation, Sizes};
pub use replay::Replay;
pub use train::Train;
pub use unified::{Unified, UnifiedFix};

/// Every demo, in the order of the list.
pub(crate) const LIST: &[Entry] = &[
    row::<Fragmentation>(),
    row::<Train>(),
    row::<Unified>(),
    row::<Replay>(),
];

/// The name of the demo that the dashboard shows without a GPU.
pub const WITHOUT_GPU: &str = Train::NAME;
