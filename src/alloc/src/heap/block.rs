//! Blocks: the parts that tile a segment, in a slab. A block's index is its slot in the channel.

use std::ops::{Index, IndexMut};

use gpumem_channel::{BlockState, PoolId, StringId};

use crate::free::{Key, Place};
use crate::size::Class;

/// No block, no segment.
pub(crate) const NIL: u32 = u32::MAX;

/// The slot, if it is one.
#[inline(always)]
pub(crate) fn some(slot: u32) -> Option<u32> {
    (slot != NIL).then_some(slot)
}

/// A part of a segment. One line of the cache: blocks of a program that does not repeat itself are met in any order.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Block {
    pub(crate) addr: u64,
    pub(crate) size: u64,
    /// Bytes the program asked for; 0 unless allocated or pending.
    pub(crate) requested: u64,
    /// The heap's free counter when it was freed on `stream`; other streams may take it once that was idle later, or an event recorded
    /// there later is done. 0: no queued work uses it.
    pub(crate) freed_at: u64,
    pub(crate) segment: u32,
    /// Neighbours by address inside the segment.
    pub(crate) prev: u32,
    pub(crate) next: u32,
    pub(crate) tag: StringId,
    /// Index of the stream it was last allocated on; while free, the stream that may take it at once.
    pub(crate) stream: u16,
    pub(crate) class: Class,
    /// Whose figures count it: of the request while it is held, of its class while it is free.
    pub(crate) pool: PoolId,
    pub(crate) state: BlockState,
    /// Whether it is counted as an inactive split.
    pub(crate) split_counted: bool,
    /// Whether other streams used it since it was allocated; the heap knows which.
    pub(crate) used: bool,
    /// The stitched block that it is a piece of, while that is held.
    pub(crate) stitched: u32,
    /// While it is lent: its number in its stream's lane.
    pub(crate) record: u32,
}

const _: () = assert!(size_of::<Block>() == 64);

/// A block that another one takes in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) addr: u64,
    pub(crate) size: u64,
    pub(crate) freed_at: u64,
    pub(crate) next: u32,
    pub(crate) stream: u16,
}

/// What is in a slot before its block.
pub(crate) const VACANT: Block = Block {
    addr: 0,
    size: 0,
    requested: 0,
    freed_at: 0,
    segment: NIL,
    prev: NIL,
    next: NIL,
    tag: StringId(0),
    stream: 0,
    class: Class::Small,
    pool: PoolId::SMALL,
    state: BlockState::Unmapped,
    split_counted: false,
    used: false,
    stitched: NIL,
    record: NIL,
};

impl Block {
    #[inline(always)]
    pub(crate) fn is_free(&self) -> bool {
        matches!(self.state, BlockState::Free)
    }

    /// Nobody holds it any more.
    #[inline(always)]
    pub(crate) fn forget_owner(&mut self) {
        self.requested = 0;
        self.pool = self.class.pool();
        self.tag = StringId(0);
    }

    /// Keeps `size` bytes, and is followed by a block of the rest, whose slot that is to be. `own` is its own.
    #[inline(always)]
    pub(crate) fn split_off(&mut self, own: u32, size: u64, slot: u32) -> Block {
        let rest = Block {
            addr: self.addr + size,
            size: self.size - size,
            freed_at: self.freed_at,
            segment: self.segment,
            prev: own,
            next: self.next,
            stream: self.stream,
            class: self.class,
            pool: self.class.pool(),
            state: self.state,
            ..VACANT
        };
        (self.size, self.next) = (size, slot);
        rest
    }

    /// It is none any more: whoever remembers it must not take it for a free one.
    #[inline(always)]
    fn vanish(&mut self) {
        self.state = BlockState::Unmapped;
    }

    /// It is a part of the one before it now. What it was.
    #[inline(always)]
    pub(crate) fn part(&mut self) -> Part {
        self.vanish();
        Part {
            addr: self.addr,
            size: self.size,
            freed_at: self.freed_at,
            next: self.next,
            stream: self.stream,
        }
    }

    /// What it goes by in the index of free blocks; `slot` is its own.
    #[inline(always)]
    pub(crate) fn key(&self, slot: u32) -> Key {
        Key {
            size: self.size,
            addr: self.addr,
            block: slot,
        }
    }
}

/// Where free blocks are in their index, by slot.
pub(crate) type Places = Vec<Place>;

/// All blocks of a device.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    slots: Vec<Block>,
    places: Places,
    vacant: Vec<u32>,
}

impl Blocks {
    pub(crate) fn insert(&mut self, block: Block) -> u32 {
        let slot = self.vacancy();
        self[slot] = block;
        slot
    }

    /// The slot of a block to be.
    #[inline(always)]
    pub(crate) fn vacancy(&mut self) -> u32 {
        match self.vacant.pop() {
            Some(slot) => slot,
            None => self.add_slot(),
        }
    }

    #[cold]
    #[inline(never)]
    fn add_slot(&mut self) -> u32 {
        self.slots.push(VACANT);
        self.places.push(Place::default());
        self.slots.len() as u32 - 1
    }

    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) {
        self[slot].vanish();
        self.vacate(slot);
    }

    /// The slot of a block that is a part of another one is free again.
    #[inline(always)]
    pub(crate) fn vacate(&mut self, slot: u32) {
        self.vacant.push(slot);
    }

    /// A block, unless there is none of this number: of [`NIL`] there never is.
    #[inline(always)]
    pub(crate) fn get(&self, slot: u32) -> Option<&Block> {
        self.slots.get(slot as usize)
    }

    /// A block, and where the free ones are in their index.
    #[inline(always)]
    pub(crate) fn with_places(&mut self, slot: u32) -> (&mut Block, &mut Places) {
        (&mut self.slots[slot as usize], &mut self.places)
    }

    /// Where the free ones are in their index.
    #[inline(always)]
    pub(crate) fn places(&mut self) -> &mut Places {
        &mut self.places
    }

    /// Every block, and some of the state `Unmapped` that are gone.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Block> {
        self.slots.iter()
    }

    /// Live blocks.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }
}

impl Index<u32> for Blocks {
    type Output = Block;
    #[inline]
    fn index(&self, slot: u32) -> &Block {
        &self.slots[slot as usize]
    }
}

impl IndexMut<u32> for Blocks {
    #[inline]
    fn index_mut(&mut self, slot: u32) -> &mut Block {
        &mut self.slots[slot as usize]
    }
}
