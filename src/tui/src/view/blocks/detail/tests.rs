//! The texts about a block and its process.

use std::sync::Arc;

use gpumem_channel::{Segment, SegmentMap, StringId};

use super::*;
use crate::model::{ChannelKey, DeviceKey, Owner, ProcessId};

/// Returns a map whose string 1 is `name`.
fn map_of(segments: Vec<Arc<SegmentMap>>, name: &str) -> BlockMap {
    BlockMap {
        process: ProcessId {
            device: DeviceKey::Uuid([0; 16]),
            owner: Owner::Channel(ChannelKey(1, 2)),
        },
        blocks: segments.iter().map(|segment| segment.blocks.len()).sum(),
        segments,
        strings: ["", name].map(Arc::from).into(),
        bytes: 0,
        left_out: 0,
        untracked: (0, 0),
        read_at: 0,
        until: Some(0),
    }
}

#[test]
fn first_piece_of_a_stitched_block_has_the_request() {
    let map = map_of(vec![], "batch");
    let shown_text = |state, requested| {
        let block = Block {
            size: 8 << 20,
            requested,
            state,
            tag: StringId(1),
            ..Block::default()
        };
        let facts = facts(&map, 0, &block).into_iter();
        let figures = facts.filter(|(label, _)| ["requested", "requested in total", "tag"].contains(label));
        let figures: Vec<_> = figures.map(|(label, text)| format!("{label} {text}")).collect();
        // The glyph of the state takes two of the panel's 36 columns.
        assert!(width(&state_text(&block)) <= SIDE - 4, "{}", state_text(&block));
        (state_text(&block), figures.join(", "))
    };
    let first = shown_text(BlockState::Allocated, 20 << 20);
    assert_eq!(first.0, "allocated, the first of its pieces");
    assert_eq!(first.1, "requested in total 20.0 MiB, tag batch");
    let further = shown_text(BlockState::Part, 0);
    assert_eq!(further.0, "allocated, a further piece");
    assert_eq!(further.1, "tag batch", "a later piece has no request of its own");
    let whole = shown_text(BlockState::Allocated, 7 << 20);
    assert_eq!(whole.0, "allocated");
    assert_eq!(whole.1, "requested 7.0 MiB, tag batch");
    assert_eq!(shown_text(BlockState::PendingFree, 20 << 20).1, first.1);
    let further = shown_text(BlockState::PendingFree, 0);
    assert_eq!(further.0, "freed, in use, a further piece");
    assert_eq!(further.1, "tag batch", "nor has it once it is freed");
}

#[test]
fn rounding_is_shown_beside_the_size_and_fits() {
    let shown_text = |size, requested, state| {
        let block = Block {
            size,
            requested,
            state,
            ..Block::default()
        };
        let facts = facts(&map_of(vec![], ""), 0, &block).into_iter();
        let mut size = facts.filter(|(label, _)| *label == "size");
        size.next().map(|(_, text)| text).unwrap_or_default()
    };
    let (held, size) = (BlockState::Allocated, 704 << 20);
    assert_eq!(shown_text(size, size - 8, held), "704 MiB, 8 B rounding");
    assert_eq!(shown_text(size, size, held), "704 MiB");
    assert_eq!(shown_text(size, 0, BlockState::Free), "704 MiB");
    assert_eq!(
        shown_text(size, size + 8, held),
        "704 MiB",
        "the first piece has the request of all pieces"
    );
    let longest = shown_text(
        (1023 << 30) + (900 << 20),
        (1023 << 30) + (899 << 20) + (24 << 10),
        held,
    );
    assert_eq!(longest, "1023.9 GiB, 1000 KiB rounding");
    assert!(width("size ") + width(&longest) <= SIDE - 4, "{longest}");
}

#[test]
fn figures_of_a_process_fit_into_their_panel() {
    let figures = Figures {
        pending: 1023 << 30,
        ooms: 999_999,
        retries: 999_999,
        ..Figures::default()
    };
    for (label, text) in process_facts(&figures, Some(1023 << 30)) {
        assert!(width(label) + 1 + width(&text) <= SIDE - 2, "{label} {text}");
    }
}

#[test]
fn line_in_place_of_a_tag_is_told_apart() {
    for (tag, expected) in [
        ("train.py:41 in forward", true),
        ("<ipython-input-3>:2 in <module>", true),
        ("optimizer", false),
        ("step: 3 in all", false),
        ("a: in b", false),
        ("", false),
    ] {
        assert_eq!(is_line(tag), expected, "{tag}");
    }
}

#[test]
fn named_pool_is_shown_with_its_size_class() {
    let map = |pool_name| {
        let segment = Segment {
            pool_name: StringId(pool_name),
            ..Segment::default()
        };
        let blocks = [Block::default()].into();
        map_of(vec![Arc::new(SegmentMap::new(0, segment, blocks, true))], "tenant-a")
    };
    let shown_text = |pool_name| {
        let facts = facts(&map(pool_name), 0, &Block::default());
        facts
            .into_iter()
            .find(|(label, _)| *label == "pool")
            .map(|(_, text)| text)
    };
    assert_eq!(shown_text(0).as_deref(), Some("small"));
    assert_eq!(shown_text(1).as_deref(), Some("tenant-a, small"));
    assert_eq!(shown_text(9).as_deref(), Some("small"), "the string is missing");
}

/// Blocks of a black box do not age. Without a known end no age is shown.
#[test]
fn age_of_a_block_ends_with_its_program() {
    let mut map = map_of(vec![], "");
    let shown_text = |map: &BlockMap| {
        let block = Block {
            time: 5_000_000_000,
            ..Block::default()
        };
        let facts = facts(map, 0, &block).into_iter();
        facts.filter(|(label, _)| *label == "for").map(|(_, text)| text).next()
    };
    (map.read_at, map.until) = (90_000_000_000, Some(12_000_000_000));
    assert_eq!(shown_text(&map).as_deref(), Some("7 s"));
    map.until = None;
    assert_eq!(shown_text(&map), None);
}

#[test]
fn per_thread_stream_is_not_shown_as_a_handle() {
    let own = PER_THREAD_STREAMS.start + 0x1003;
    let texts = [0, 1, 0x7f00_1234_5000, own, u64::MAX].map(stream_text);
    assert_eq!(
        texts,
        [
            "default",
            "0x1",
            "0x7f0012345000",
            "per-thread 0x1003",
            "any: no queued work uses it"
        ]
    );
    let longest = stream_text(PER_THREAD_STREAMS.end - 1);
    assert!(width("stream ") + width(&longest) <= SIDE - 4, "{longest}");
}
