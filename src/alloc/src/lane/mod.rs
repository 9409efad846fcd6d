//! Lanes: in front of the heap one for each of the first streams, with a lock of its own, so that threads on different streams do not
//! wait for each other.
//!
//! The heap lends a lane the blocks whose sizes come again: such a block is handed out and taken back by its lane alone, whole, without
//! the heap, for which it is just held by somebody. What a lane does therefore changes no structure: no neighbour, no segment, nothing
//! of what the driver gave.
//!
//! | file | what |
//! |---|---|
//! | `front` | all lanes of a heap, found by stream |
//! | `one` | one of them |
//! | `succession` | the same for one stream after another |
//! | `record`, `held` | a lent block, and the number by which the program holds it |
//! | `quick` | the free ones among the lent blocks, by exact size |
//! | `told`, `seen` | what is published of them |
//! | `wish` | requests that wait for leave to count a block |
//!
//! Rules of locking: who holds a lane's lock takes no other one. The heap's comes first: whoever holds it may take a lane's, one at a
//! time, for as long as that lane's own matters take.

mod front;
mod held;
mod one;
mod quick;
mod record;
mod seen;
mod succession;
mod told;
mod wish;

#[cfg(test)]
mod front_tests;
#[cfg(test)]
mod ordering_tests;
#[cfg(test)]
mod quick_tests;

// What threads meet at, by these names: the ordering tests have the same files over stand-ins of both.
use std::sync::atomic;

use crate::lock;

pub(crate) use front::{Apart, Front, LANES, NOT_ENTERED};
pub(crate) use held::{Held, Lent};
pub(crate) use one::Lane;
pub(crate) use quick::{SORTS, list_of, sort_of, sorts_between};
pub(crate) use record::{Record, State};
pub(crate) use wish::Wish;
