//! The data that an event and a block's slot have in common.

use crate::record::{Block, Event, PoolId, StringId};
use crate::word::{byte, high, pack};

/// The data published about a block, in whatever form its owner keeps it.
///
/// Each value is read right before it is stored. So an allocator that publishes from its own records need not copy them
/// first: an event and a slot together hold more values than a processor has registers.
pub trait Facts {
    /// First address of the block.
    fn addr(&self) -> u64;
    /// Size in bytes.
    fn size(&self) -> u64;
    /// Bytes that the program requested.
    fn requested(&self) -> u64;
    /// The stream of the block, as in [`Block::stream`].
    fn stream(&self) -> u64;
    /// Index into the channel's devices.
    fn device(&self) -> u8;
    /// The pool that counts the block.
    fn pool(&self) -> PoolId;
    /// Slot of its segment.
    fn segment(&self) -> u32;
    /// The tag under which it was allocated.
    fn tag(&self) -> StringId;
    /// Device, pool and segment in one value. A caller that publishes a block often can keep this value.
    #[inline(always)]
    fn place(&self) -> Place {
        Place::new(self.device(), self.pool(), self.segment())
    }
}

/// Device, pool and segment of a block, as stored in one word beside its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(pub(crate) u64);

impl Place {
    /// Packs device, pool and segment.
    #[inline(always)]
    pub fn new(device: u8, pool: PoolId, segment: u32) -> Place {
        Place(pack(0, device, pool.0, segment))
    }

    /// Returns device, pool and segment.
    #[inline(always)]
    pub fn parts(self) -> (u8, PoolId, u32) {
        (byte(self.0, 1), PoolId(byte(self.0, 2)), high(self.0))
    }
}

/// Implements the methods that return a field of the same name.
macro_rules! facts {
    ($record:ty: $($name:ident -> $type:ty),*) => {
        impl Facts for $record {
            $(
                #[inline(always)]
                fn $name(&self) -> $type {
                    self.$name
                }
            )*
        }
    };
}

facts!(Block: addr -> u64, size -> u64, requested -> u64, stream -> u64, device -> u8, pool -> PoolId, segment -> u32, tag -> StringId);
facts!(Event: addr -> u64, size -> u64, requested -> u64, stream -> u64, device -> u8, pool -> PoolId, segment -> u32, tag -> StringId);

/// A block that is not held: its data without what was requested and the tag.
#[derive(Debug)]
pub struct Unheld<'a, F>(pub &'a F);

impl<F: Facts> Facts for Unheld<'_, F> {
    #[inline(always)]
    fn addr(&self) -> u64 {
        self.0.addr()
    }
    #[inline(always)]
    fn size(&self) -> u64 {
        self.0.size()
    }
    #[inline(always)]
    fn requested(&self) -> u64 {
        0
    }
    #[inline(always)]
    fn stream(&self) -> u64 {
        self.0.stream()
    }
    #[inline(always)]
    fn device(&self) -> u8 {
        self.0.device()
    }
    #[inline(always)]
    fn pool(&self) -> PoolId {
        self.0.pool()
    }
    #[inline(always)]
    fn segment(&self) -> u32 {
        self.0.segment()
    }
    #[inline(always)]
    fn tag(&self) -> StringId {
        StringId(0)
    }
    #[inline(always)]
    fn place(&self) -> Place {
        self.0.place()
    }
}
