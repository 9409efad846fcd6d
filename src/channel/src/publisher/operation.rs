//! The one thing that has to be published fast.

use crate::record::{Block, BlockState, Event, EventKind, PoolId, StringId};

/// A request that hit the cache, or a block that came back to it, without any change of structure. Not for a block that waits for the
/// GPU.
#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    /// [`EventKind::Alloc`], [`EventKind::Free`] or [`EventKind::FreeCompleted`].
    pub kind: EventKind,
    /// The block's slot.
    pub slot: u32,
    /// The block as it is now. A free block's `requested` and `tag` are those it had: they go into the event only.
    pub block: &'a Block,
    /// The slot of the block behind it in its segment.
    pub next: Option<u32>,
    /// The pool that counts it as an inactive split while it is free, if it is one.
    pub split: Option<PoolId>,
}

impl Operation<'_> {
    /// Its event and its block as they are stored, at this time.
    #[inline(always)]
    pub(crate) fn at(&self, time: u64) -> (Event, Block) {
        let Block {
            addr,
            size,
            requested,
            stream,
            state,
            device,
            pool,
            segment,
            tag,
            ..
        } = *self.block;
        let event = Event {
            index: 0,
            lane: None,
            time,
            kind: self.kind,
            device,
            pool,
            addr,
            size,
            requested,
            stream,
            tag,
            segment,
            split: self.split,
        };
        let free = matches!(state, BlockState::Free | BlockState::Quick);
        let block = Block {
            time,
            requested: if free { 0 } else { requested },
            tag: if free { StringId(0) } else { tag },
            ..*self.block
        };
        (event, block)
    }
}
