//! The operation that must be published fast: a request that hits the cache, or its free.

use crate::facts::Facts;
use crate::format::flags::{SPLIT, SPLIT_IN_LARGE};
use crate::record::{Block, BlockState, EventKind, PoolId};

/// A request that hit the cache, or a block that returned to it, without any change of structure. Not for a block that
/// waits for the GPU.
#[derive(Debug)]
pub struct Operation<'a, F = Block> {
    /// [`EventKind::Alloc`], [`EventKind::Free`] or [`EventKind::FreeCompleted`].
    pub kind: EventKind,
    /// The block's slot.
    pub slot: u32,
    /// The block's new state.
    pub state: BlockState,
    /// The block. If it is free, its tag and requested size are those of its last holder, and go into the event only.
    pub block: &'a F,
    /// The slot of the next block in its segment.
    pub next: Option<u32>,
    /// Whether it is an inactive split while it is free.
    pub split: Split,
}

/// The result of publishing an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// Whether the table has a slot for the block.
    pub stored: bool,
    /// Whether the device's figures must be published now, with everything that changed since they last were. Otherwise
    /// readers derive them from the event.
    pub figures_due: bool,
}

/// The pool, if any, that counts a block as an inactive split while it is free, in its stored form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split(pub(crate) u8);

impl Split {
    /// No pool counts it.
    pub const NO: Split = Split(0);

    /// This pool counts it.
    #[inline(always)]
    pub fn of(pool: PoolId) -> Split {
        Split(SPLIT | (SPLIT_IN_LARGE * u8::from(pool != PoolId::SMALL)))
    }

    /// Whether a pool counts it.
    #[inline(always)]
    pub fn is_one(self) -> bool {
        self.0 != 0
    }
}

impl From<Option<PoolId>> for Split {
    fn from(pool: Option<PoolId>) -> Split {
        pool.map_or(Split::NO, Split::of)
    }
}

impl<F: Facts> Clone for Operation<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Facts> Copy for Operation<'_, F> {}
