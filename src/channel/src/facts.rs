//! What an event and a block's slot have in common.

use crate::record::{Block, Event, PoolId, StringId};
use crate::word::{byte, high, pack};

/// What is published of a block, as its owner keeps it.
///
/// Each figure is asked for right before it is stored. So an allocator that publishes from its own records copies nothing first: what
/// an event and a slot hold together is more than a processor has registers.
pub trait Facts {
    /// First address.
    fn addr(&self) -> u64;
    /// Bytes.
    fn size(&self) -> u64;
    /// Bytes asked for.
    fn requested(&self) -> u64;
    /// Stream.
    fn stream(&self) -> u64;
    /// Index into the channel's devices.
    fn device(&self) -> u8;
    /// Pool.
    fn pool(&self) -> PoolId;
    /// Slot of its segment.
    fn segment(&self) -> u32;
    /// The tag that its memory was allocated for.
    fn tag(&self) -> StringId;
    /// Its device, pool and segment. Who publishes often of one block keeps it instead.
    #[inline(always)]
    fn place(&self) -> Place {
        Place::new(self.device(), self.pool(), self.segment())
    }
}

/// What of a block is stored in one word, beside its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(pub(crate) u64);

impl Place {
    /// Of its device, pool and segment.
    #[inline(always)]
    pub fn new(device: u8, pool: PoolId, segment: u32) -> Place {
        Place(pack(0, device, pool.0, segment))
    }

    /// The device, pool and segment.
    #[inline(always)]
    pub fn parts(self) -> (u8, PoolId, u32) {
        (byte(self.0, 1), PoolId(byte(self.0, 2)), high(self.0))
    }
}

/// Both records keep them under the same names.
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

/// A block that nobody holds: what it was, but for whom.
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
