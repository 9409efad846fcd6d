//! How a block that is held is known.

use std::num::NonZeroU64;

use super::LANES;
use crate::heap::NIL;

/// Where a held block is known by a number: twice a lane's and 1, or one of the two below, in 8 bits; and the number in the next 32. One
/// word, which travels in a register and is never 0, as where it is known is odd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held(NonZeroU64);

/// No lane: the number is the heap's.
const HEAP: u8 = u8::MAX;
/// No block: a buffer of 0 bytes.
const NOTHING: u8 = u8::MAX - 2;
const _: () = assert!(2 * LANES < NOTHING as usize && HEAP % 2 == 1 && NOTHING % 2 == 1);

impl Held {
    /// No block.
    pub(crate) const NOTHING: Held = Held::new(NOTHING, NIL);

    #[inline(always)]
    const fn new(place: u8, at: u32) -> Held {
        match NonZeroU64::new(place as u64 | (at as u64) << u8::BITS | 1) {
            Some(held) => Held(held),
            None => Held(NonZeroU64::MIN),
        }
    }

    #[inline(always)]
    fn parts(self) -> (u8, u32) {
        (self.0.get() as u8, (self.0.get() >> u8::BITS) as u32)
    }

    /// A block that only the heap knows.
    #[inline(always)]
    pub(crate) fn by_heap(block: u32) -> Held {
        Held::new(HEAP, block)
    }

    #[inline(always)]
    pub(crate) fn by_lane(lane: u8, record: u32) -> Held {
        Held::new(2 * lane + 1, record)
    }

    /// The lane that it is lent to, and its number there.
    #[inline(always)]
    pub(crate) fn lane(self) -> Option<(u8, u32)> {
        let (place, at) = self.parts();
        (place < 2 * LANES as u8).then_some((place / 2, at))
    }

    /// Its number in the heap, if that is where it is known.
    #[inline(always)]
    pub(crate) fn block(self) -> Option<u32> {
        let (place, at) = self.parts();
        (place == HEAP).then_some(at)
    }
}

/// A block that is handed out, in two words, which come back in registers: memory that was written in pieces and is read as a whole a
/// moment later would be waited for. Its size is known to who it is given back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lent {
    pub(crate) addr: u64,
    /// How it is given back.
    pub(crate) held: Held,
}

impl Lent {
    /// No block: what a buffer of 0 bytes has.
    pub(crate) const NOTHING: Lent = Lent {
        addr: 0,
        held: Held::NOTHING,
    };
}

const _: () = assert!(size_of::<Option<Lent>>() == 16 && size_of::<Result<Lent, u64>>() == 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_knows_a_held_block_is_told_by_its_word() {
        let holds = [
            Held::NOTHING,
            Held::by_heap(0),
            Held::by_heap(NIL - 1),
            Held::by_lane(0, 0),
            Held::by_lane(1, NIL),
        ];
        assert_eq!(
            (holds[1].block(), holds[2].block(), holds[4].block()),
            (Some(0), Some(NIL - 1), None)
        );
        assert_eq!((holds[3].lane(), holds[4].lane()), (Some((0, 0)), Some((1, NIL))));
        assert_eq!((holds[0].block(), holds[0].lane(), holds[1].lane()), (None, None, None));
    }
}
