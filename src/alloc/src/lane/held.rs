//! How a block that is held is known.

use std::num::NonZeroU64;

use super::LANES;
use crate::heap::NIL;
use crate::size::{MIN_BLOCK, class_size};

/// Where a held block is known by a number: twice a lane's and 1, or one of the two below, in 8 bits; and the number in the next 32. One
/// word, which travels in a register and is never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held(u64);

/// No lane: the number is the heap's.
const HEAP: u8 = u8::MAX;
/// No block: a buffer of 0 bytes.
const NOTHING: u8 = u8::MAX - 2;
const _: () = assert!(2 * LANES < NOTHING as usize);

/// Bits of it.
const BITS: u32 = u8::BITS + u32::BITS;

impl Held {
    /// No block.
    pub(crate) const NOTHING: Held = Held::new(NOTHING, NIL);

    #[inline(always)]
    const fn new(place: u8, at: u32) -> Held {
        Held(place as u64 | (at as u64) << u8::BITS)
    }

    #[inline(always)]
    fn parts(self) -> (u8, u32) {
        (self.0 as u8, (self.0 >> u8::BITS) as u32)
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

/// A block that a lane hands out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lent {
    /// Its address, a multiple of 256, and 1 where its size is that of the request's class.
    addr: NonZeroU64,
    /// How it is given back.
    pub(crate) held: Held,
}

impl Lent {
    #[inline(always)]
    pub(super) fn new(addr: NonZeroU64, held: Held) -> Lent {
        Lent { addr, held }
    }

    /// The same where it is known whether its size is that of the request's class.
    #[inline(always)]
    pub(crate) fn by_class(self, by_class: bool) -> Lent {
        Lent {
            addr: self.addr | u64::from(by_class),
            ..self
        }
    }

    #[inline(always)]
    pub(crate) fn addr(self) -> u64 {
        self.addr.get() & !1
    }

    /// Its bytes, for a request that comes to this size.
    #[inline(always)]
    pub(crate) fn size(self, asked: u64) -> u64 {
        if self.addr.get() & 1 == 0 {
            asked
        } else {
            class_size(asked)
        }
    }
}

/// A block that the heap hands out, in two words, which come back in registers: memory that was written in pieces and is read as a whole
/// a moment later would be waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    /// Its address, a multiple of 256, and the upper 8 bits of its size.
    addr: u64,
    /// How it is given back, and the lower 24 bits of its size.
    held: NonZeroU64,
}

/// Bits of the size, in smallest blocks: it may be up to 2 TiB.
const LOW: u32 = u64::BITS - BITS;
const HIGH: u32 = u8::BITS;

impl Given {
    /// What is larger than can be said is said to be as large as can be: it is given back by its number.
    #[inline(always)]
    pub(crate) fn new(addr: u64, size: u64, held: Held) -> Given {
        debug_assert!(addr.trailing_zeros() >= HIGH && size.is_multiple_of(MIN_BLOCK));
        let units = (size / MIN_BLOCK).min((1 << (HIGH + LOW)) - 1);
        Given {
            addr: addr | units >> LOW,
            held: NonZeroU64::MIN | held.0 | units << BITS,
        }
    }

    /// Its address, its bytes, and how it is given back.
    #[inline(always)]
    pub(crate) fn parts(self) -> (u64, u64, Held) {
        let (high, held) = (self.addr % (1 << HIGH), self.held.get());
        let units = high << LOW | held >> BITS;
        (self.addr - high, units * MIN_BLOCK, Held(held % (1 << BITS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_in_two_words_is_what_comes_out() {
        let holds = [
            Held::NOTHING,
            Held::by_heap(0),
            Held::by_heap(NIL - 1),
            Held::by_lane(0, 0),
            Held::by_lane(1, NIL),
        ];
        for held in holds {
            for addr in [256, 0x7f00_0000_0200, u64::MAX << HIGH] {
                for size in [512, 24 << 20, 80 << 30, (2 << 40) - 512] {
                    assert_eq!(Given::new(addr, size, held).parts(), (addr, size, held));
                }
            }
            assert_eq!(Given::new(512, 5 << 40, held).parts(), (512, (2 << 40) - 512, held));
        }
        assert_eq!(
            (holds[1].block(), holds[2].block(), holds[4].block()),
            (Some(0), Some(NIL - 1), None)
        );
        assert_eq!((holds[3].lane(), holds[4].lane()), (Some((0, 0)), Some((1, NIL))));
        assert_eq!((holds[0].block(), holds[0].lane(), holds[1].lane()), (None, None, None));
    }
}
