#![allow(clippy::unwrap_used)]
use std::sync::Arc;

use gpumem_channel::{Segment, SegmentMap};

use super::*;
use crate::model::{ChannelKey, DeviceKey, Owner, ProcessId};

const K: u64 = 1024;

/// A map of segments with these sizes, 1 GiB apart.
fn map(sizes: &[u64]) -> BlockMap {
    let segment = |(i, &size): (usize, &u64)| {
        let segment = Segment {
            addr: (i as u64 + 1) << 30,
            size,
            ..Segment::default()
        };
        Arc::new(SegmentMap::new(i as u32, segment, Box::default(), false))
    };
    BlockMap {
        process: ProcessId {
            device: DeviceKey::NvmlIndex(0),
            owner: Owner::Channel(ChannelKey(0, 0)),
        },
        segments: sizes.iter().enumerate().map(segment).collect(),
        bytes: sizes.iter().sum(),
        blocks: 0,
        strings: Arc::from([]),
        left_out: 0,
        untracked: (0, 0),
        read_at: 0,
        until: Some(0),
    }
}

#[test]
fn fitted_layout_shows_all_segments() {
    let many: Vec<u64> = (1..40).map(|i| i * 7 * K).collect();
    let map = map(&many);
    for (w, h) in [(1, 1), (2, 5), (10, 40), (60, 12), (60, 39), (200, 60)] {
        let layout = MapLayout::fit(&map, w, h);
        let shown = layout.strips(&map, 0..u64::from(h));
        if layout.bytes_per_cell < map.largest_segment() {
            assert!(layout.lines(&map) <= u64::from(h), "{w}x{h}");
            let cells: u64 = shown.iter().map(|s| u64::from(s.cells)).sum();
            assert!(cells * layout.bytes_per_cell >= map.bytes, "{w}x{h}: bytes are missing");
        }
        assert!(shown.iter().all(|s| s.x + s.cells <= w.max(1)), "{w}x{h}");
    }
}

#[test]
fn strips_tile_every_segment_in_order() {
    let map = map(&[100 * K, 3 * K, 2 * K, 64 * K]);
    for folded in [false, true] {
        let layout = MapLayout {
            least_cell: 512,
            cell_step: 1,
            bytes_per_cell: K,
            columns: 16,
            folded,
        };
        let strips = layout.strips(&map, 0..u64::MAX);
        let mut expected = vec![0; map.segments.len()];
        for strip in &strips {
            assert_eq!(strip.offset, expected[strip.segment], "{strip:?}");
            expected[strip.segment] += u64::from(strip.cells) * K;
        }
        for (i, s) in map.segments.iter().enumerate() {
            assert!(expected[i] >= s.segment.size && expected[i] < s.segment.size + K);
        }
        assert_eq!(layout.lines(&map), if folded { 12 } else { 13 });
    }
}

#[test]
fn address_and_place_are_inverse() {
    let map = map(&[100 * K, 3 * K, 2 * K, 64 * K + 1]);
    for folded in [false, true] {
        let layout = MapLayout {
            least_cell: 512,
            cell_step: 1,
            bytes_per_cell: K,
            columns: 16,
            folded,
        };
        for strip in layout.strips(&map, 0..u64::MAX) {
            for column in strip.x..strip.x + strip.cells {
                let addr = layout.address(&map, strip.line, column).unwrap();
                assert_eq!(
                    layout.place(&map, strip.segment, addr),
                    (strip.line, column),
                    "{strip:?}"
                );
            }
        }
        assert_eq!(layout.address(&map, layout.lines(&map), 0), None);
    }
}

#[test]
fn layout_without_a_map_has_no_lines_and_no_zoom() {
    let (map, none) = (map(&[K]), MapLayout::default());
    assert_eq!(
        (none.lines(&map), none.deepest(), none.address(&map, 0, 0)),
        (0, 0, None)
    );
    assert_eq!(none.place(&map, 0, 1 << 30), (0, 0));
}

#[test]
fn deepest_zoom_is_the_first_with_the_smallest_cells() {
    for bytes_per_cell in [512, 513, 640, 1024, 1025, 3 << 20, u64::MAX] {
        let layout = MapLayout {
            least_cell: 512,
            cell_step: 1,
            bytes_per_cell,
            columns: 1,
            folded: false,
        };
        let deepest = layout.deepest();
        assert_eq!(
            layout.zoomed(deepest).bytes_per_cell,
            BlockMap::LEAST_CELL,
            "{bytes_per_cell}"
        );
        assert!(
            deepest == 0 || layout.zoomed(deepest - 1).bytes_per_cell > BlockMap::LEAST_CELL,
            "{bytes_per_cell}"
        );
        assert_eq!(layout.zoomed(255), layout.zoomed(deepest));
    }
}
