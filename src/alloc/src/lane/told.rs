//! What is published of a block that is lent.

use gpumem_channel::{self as channel, BlockState, EventKind, Operation, Split};

use super::Record;
use super::seen::Seen;
use crate::heap::some;
use crate::stream::Stream;

/// Publishes that a block was handed out, or set aside. Whether the figures are due.
#[inline(always)]
pub(super) fn publish<const HELD: bool>(outlet: &mut channel::Lane, stream: Stream, record: &Record) -> bool {
    let block = Seen { record, stream };
    // Constants: what they are in the channel needs no table.
    let told = if HELD {
        outlet.operation_again(&operation(
            EventKind::Alloc,
            BlockState::Allocated,
            &block,
            record.split,
        ))
    } else {
        outlet.operation_again(&operation(EventKind::Free, BlockState::Quick, &block, record.split))
    };
    told.figures_due
}

/// What happened to a block; `split`: it became an inactive split here, or none any more.
#[inline(always)]
pub(super) fn operation<'a>(
    kind: EventKind,
    state: BlockState,
    block: &'a Seen<'a>,
    split: Split,
) -> Operation<'a, Seen<'a>> {
    let record = block.record;
    Operation {
        kind,
        slot: record.block,
        state,
        block,
        next: some(record.next),
        split,
    }
}
