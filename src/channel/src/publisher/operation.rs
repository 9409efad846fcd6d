//! The one thing that has to be published fast.

use crate::facts::Facts;
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
    /// The pool that counts it as an inactive split while it is free, if it is one.
    pub split: Option<PoolId>,
}

impl<F: Facts> Clone for Operation<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Facts> Copy for Operation<'_, F> {}
