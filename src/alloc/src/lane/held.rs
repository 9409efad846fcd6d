//! How a block that is held is known.

use std::num::NonZeroU64;

use super::LANES;
use crate::heap::NIL;

/// Where a held block is known by a number: of a lane, or one of the two below; and the number. One word, which travels in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held(u64);

/// No lane: the number is the heap's.
const HEAP: u32 = u32::MAX;
/// No block: a buffer of 0 bytes.
const NOTHING: u32 = u32::MAX - 1;

impl Held {
    /// No block.
    pub(crate) const NOTHING: Held = Held::new(NOTHING, NIL);

    #[inline(always)]
    const fn new(lane: u32, at: u32) -> Held {
        Held((lane as u64) << 32 | at as u64)
    }

    #[inline(always)]
    fn parts(self) -> (u32, u32) {
        ((self.0 >> 32) as u32, self.0 as u32)
    }

    /// A block that only the heap knows.
    #[inline(always)]
    pub(crate) fn by_heap(block: u32) -> Held {
        Held::new(HEAP, block)
    }

    #[inline(always)]
    pub(crate) fn by_lane(lane: u8, record: u32) -> Held {
        Held::new(lane.into(), record)
    }

    /// The lane that it is lent to, and its number there.
    #[inline(always)]
    pub(crate) fn lane(self) -> Option<(u8, u32)> {
        let (lane, at) = self.parts();
        (lane < LANES as u32).then_some((lane as u8, at))
    }

    /// Its number in the heap, if that is where it is known.
    #[inline(always)]
    pub(crate) fn block(self) -> Option<u32> {
        let (lane, at) = self.parts();
        (lane == HEAP).then_some(at)
    }
}

/// A block that a lane hands out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lent {
    pub(crate) addr: NonZeroU64,
    /// How it is given back.
    pub(crate) held: Held,
}
