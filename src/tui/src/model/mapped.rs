//! Segments without their large unmapped ranges. Virtual and stitched segments may reserve many times the addresses that they
//! have memory for; drawn whole, they would show nothing but holes.

use std::sync::Arc;

use gpumem_channel::{BlockState, Segment, SegmentMap};

/// Replaces each segment that is mostly unmapped by its runs of blocks with memory. Returns the segments and the bytes of
/// addresses that were left out.
pub(crate) fn mapped(segments: &[Arc<SegmentMap>]) -> (Vec<Arc<SegmentMap>>, u64) {
    let mut shown = Vec::with_capacity(segments.len());
    let mut left_out = 0u64;
    for map in segments {
        // The holes of a segment that was read incompletely are not known.
        if map.complete && map.segment.mapped < map.segment.size / 2 {
            left_out = left_out.saturating_add(split(map, &mut shown));
        } else {
            shown.push(Arc::clone(map));
        }
    }
    (shown, left_out)
}

/// Adds the runs of a segment's blocks that have memory to `shown`. Returns the bytes of the other blocks.
fn split(map: &SegmentMap, shown: &mut Vec<Arc<SegmentMap>>) -> u64 {
    let is_hole = |state| state == BlockState::Unmapped;
    let mut holes = 0u64;
    for run in map.blocks.chunk_by(|a, b| is_hole(a.state) == is_hole(b.state)) {
        let bytes = run.iter().fold(0u64, |sum, block| sum.saturating_add(block.size));
        match run.first() {
            Some(first) if !is_hole(first.state) => {
                let segment = Segment {
                    addr: first.addr,
                    size: bytes,
                    mapped: bytes,
                    ..map.segment
                };
                shown.push(Arc::new(SegmentMap::new(map.slot, segment, run.into(), true)));
            }
            _ => holes = holes.saturating_add(bytes),
        }
    }
    holes
}

#[cfg(test)]
mod tests {
    use gpumem_channel::Block;

    use super::*;
    use crate::model::{BlockMap, ChannelKey, DeviceKey, Owner, ProcessId};
    use BlockState::{Allocated, Free, Part, Unmapped};

    /// A segment of blocks with these states and sizes.
    fn segment(addr: u64, complete: bool, blocks: &[(BlockState, u64)]) -> Arc<SegmentMap> {
        let mut at = addr;
        let block = |&(state, size): &(BlockState, u64)| {
            at += size;
            Block {
                addr: at - size,
                size,
                state,
                ..Block::default()
            }
        };
        let list: Box<[Block]> = blocks.iter().map(block).collect();
        let bytes = |wanted: bool| {
            list.iter()
                .filter(|b| wanted || b.state != Unmapped)
                .map(|b| b.size)
                .sum()
        };
        let segment = Segment {
            addr,
            size: bytes(true),
            mapped: bytes(false),
            ..Segment::default()
        };
        Arc::new(SegmentMap::new(addr as u32, segment, list, complete))
    }

    #[test]
    fn mostly_unmapped_segments_are_shown_without_holes() {
        let whole = segment(1000, true, &[(Allocated, 8), (Unmapped, 8), (Free, 2)]);
        let sparse = [(Unmapped, 40), (Allocated, 4), (Free, 2), (Unmapped, 90), (Part, 7)];
        let unknown = segment(3000, false, &sparse);
        let list = [whole.clone(), segment(2000, true, &sparse), unknown.clone()];
        let (shown, left_out) = mapped(&list);
        let places: Vec<_> = shown
            .iter()
            .map(|map| (map.slot, map.segment.addr, map.segment.size, map.blocks.len()))
            .collect();
        assert_eq!(
            places,
            [
                (1000, 1000, 18, 3),
                (2000, 2040, 6, 2),
                (2000, 2136, 7, 1),
                (3000, 3000, 143, 5)
            ]
        );
        assert_eq!(left_out, 130);
        assert!(
            Arc::ptr_eq(&shown[0], &whole) && Arc::ptr_eq(&shown[3], &unknown),
            "nothing is copied"
        );
        assert_eq!(shown[1].free.bytes, 2);
        let map = BlockMap {
            process: ProcessId {
                device: DeviceKey::NvmlIndex(0),
                owner: Owner::Channel(ChannelKey(0, 0)),
            },
            segments: shown,
            strings: Arc::from([]),
            bytes: 0,
            blocks: 0,
            left_out,
            untracked: (0, 0),
            read_at: 0,
            until: Some(0),
        };
        let numbers = [0, 1, 2, 3].map(|segment| map.number(segment));
        assert_eq!(numbers, [(1, 3), (2, 3), (2, 3), (3, 3)], "parts belong to one segment");
        assert_eq!(map.published(), 3);
    }
}
