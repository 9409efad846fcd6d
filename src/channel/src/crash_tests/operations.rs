//! The operations that are interrupted.

use super::*;
use crate::Split;

/// Index of the operation that frees the segment.
pub(super) const LAST: usize = 6;

/// The operations, each with the event that announces it.
pub(super) const OPERATIONS: [fn(&mut Writer<Memory>); LAST + 1] = [
    |w| {
        // A segment appears.
        w.event(&Event {
            kind: EventKind::SegmentAlloc,
            ..Event::default()
        });
        w.segment_begin(0);
        show(w, 0, block(0, 4096, BlockState::Free), None);
        w.segment_end(0, Some((&SEGMENT, Some(0))));
    },
    |w| {
        // A request splits a block.
        w.event(&Event {
            kind: EventKind::Alloc,
            ..Event::default()
        });
        w.segment_begin(0);
        show(w, 0, block(0, 512, BlockState::Allocated), Some(1));
        show(w, 1, block(512, 3584, BlockState::Free), None);
        w.segment_end(0, Some((&SEGMENT, Some(0))));
        w.stats(0, &figures(1), Touched::ALL);
    },
    |w| {
        // A request takes a block as it is.
        w.event(&Event {
            kind: EventKind::Alloc,
            ..Event::default()
        });
        show(w, 1, block(512, 3584, BlockState::Allocated), None);
        w.stats(0, &figures(2), Touched::SMALL);
    },
    |w| {
        // A free joins two blocks.
        w.event(&Event {
            kind: EventKind::Free,
            ..Event::default()
        });
        w.segment_begin(0);
        show(w, 0, block(0, 4096, BlockState::Free), None);
        w.clear_block(1);
        w.segment_end(0, Some((&SEGMENT, Some(0))));
        w.stats(0, &figures(0), Touched::ALL);
    },
    |w| {
        // A request splits a block, published in one call.
        let due = w.change(0, (EventKind::Alloc, Split::NO), true, &small(EventKind::Alloc));
        let mut blocks = w.structure(0, 0).unwrap();
        blocks.block(0, BlockState::Allocated, &block(0, 512, BlockState::Allocated), Some(1));
        blocks.block(1, BlockState::Free, &block(512, 3584, BlockState::Free), None);
        assert!(blocks.is_whole());
        drop(blocks);
        if due {
            w.stats(0, &figures(1), Touched::ALL);
        }
    },
    |w| {
        // A free joins two blocks, published in one call.
        assert!(w.change(0, (EventKind::Free, Split::NO), false, &small(EventKind::Free)));
        let mut blocks = w.structure(0, 0).unwrap();
        blocks.gone(1);
        blocks.block(0, BlockState::Free, &block(0, 4096, BlockState::Free), None);
        assert!(blocks.is_whole());
        drop(blocks);
        w.stats(0, &figures(0), Touched::ALL);
    },
    |w| {
        // A segment is given back.
        w.event(&Event {
            kind: EventKind::SegmentFree,
            ..Event::default()
        });
        w.segment_begin(0);
        w.clear_block(0);
        w.segment_end(0, None);
        w.stats(0, &figures(0), Touched::ALL);
    },
];
