//! What a lane knows of a block that it was lent.

use gpumem_channel::{Place, Split, StringId};

use crate::heap::NIL;
use crate::publish::DEVICE;
use crate::size::pool_of;

/// What became of a lent block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The program holds it.
    Held,
    /// It is free, and set aside for the next request of its size.
    Aside,
    /// The program holds it, and the heap wants to know of it again: it is only remembered here by its number.
    Recalled,
    /// No block has this number.
    Vacant,
}

/// A lent block. A line of the cache.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Record {
    pub(crate) addr: u64,
    pub(crate) size: u64,
    pub(crate) requested: u64,
    /// The heap's free counter when it was set aside, or more.
    pub(crate) freed_at: u64,
    /// Its number in the heap, which is its slot in the channel; that of the one behind it; and its segment.
    pub(crate) block: u32,
    pub(crate) next: u32,
    pub(crate) place: Place,
    /// While it is set aside: the next record of its size that is.
    pub(crate) link: u32,
    pub(crate) tag: StringId,
    /// Whether it was ever handed out from here.
    pub(crate) served: bool,
    pub(crate) state: State,
    /// Whether it is an inactive split while it is free.
    pub(crate) split: Split,
}

impl Record {
    /// A block that the program holds.
    pub(crate) fn new(block: u32, addr: u64, size: u64, segment: u32, requested: u64, tag: StringId) -> Record {
        Record {
            addr,
            size,
            requested,
            freed_at: 0,
            block,
            next: NIL,
            place: Place::new(DEVICE, pool_of(size), segment),
            link: NIL,
            tag,
            served: false,
            state: State::Held,
            split: Split::NO,
        }
    }
}
