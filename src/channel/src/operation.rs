//! The one thing that has to be published fast.

use crate::facts::Facts;
use crate::format::flags::{SPLIT, SPLIT_IN_LARGE};
use crate::record::{Block, BlockState, EventKind, PoolId};

/// A request that hit the cache, or a block that came back to it, without any change of structure. Not for a block that waits for the
/// GPU.
#[derive(Debug)]
pub struct Operation<'a, F = Block> {
    /// [`EventKind::Alloc`], [`EventKind::Free`] or [`EventKind::FreeCompleted`].
    pub kind: EventKind,
    /// The block's slot.
    pub slot: u32,
    /// What the block is doing now.
    pub state: BlockState,
    /// The block, and while it is free who had it: that goes into the event only.
    pub block: &'a F,
    /// The slot of the block behind it in its segment.
    pub next: Option<u32>,
    /// Whether it is an inactive split while it is free.
    pub split: Split,
}

/// What became of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// Whether the table has a slot for its block.
    pub stored: bool,
    /// Whether the device's figures must be published now, with all that changed since they were. Otherwise its event tells them.
    pub figures_due: bool,
}

/// The pool that counts a block as an inactive split while it is free, if one does: as it is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split(pub(crate) u8);

impl Split {
    /// None does.
    pub const NO: Split = Split(0);

    /// This pool does.
    #[inline(always)]
    pub fn of(pool: PoolId) -> Split {
        Split(SPLIT | (SPLIT_IN_LARGE * u8::from(pool != PoolId::SMALL)))
    }

    /// Whether one does.
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
