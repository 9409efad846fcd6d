#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use gpumem_channel::{Block, BlockState, Segment, SegmentMap};
use ratatui::buffer::Buffer;

use super::super::theme::Theme;
use super::*;
use crate::model::{ChannelKey, Colors, DeviceKey, Owner, ProcessId};

const K: u64 = 1024;

/// A map of segments at 1 MiB, 2 MiB, ... given as runs of state and size.
fn map(segments: &[&[(BlockState, u64)]]) -> BlockMap {
    let segments: Vec<Arc<SegmentMap>> = segments
        .iter()
        .enumerate()
        .map(|(i, runs)| {
            let start = (i as u64 + 1) << 20;
            let mut addr = start;
            let blocks: Vec<Block> = runs
                .iter()
                .map(|&(state, size)| {
                    addr += size;
                    Block {
                        addr: addr - size,
                        size,
                        state,
                        ..Block::default()
                    }
                })
                .collect();
            let segment = Segment {
                addr: start,
                size: addr - start,
                ..Segment::default()
            };
            Arc::new(SegmentMap::new(i as u32, segment, blocks.into(), true))
        })
        .collect();
    BlockMap {
        process: ProcessId {
            device: DeviceKey::NvmlIndex(0),
            owner: Owner::Channel(ChannelKey(0, 0)),
        },
        bytes: segments.iter().map(|s| s.segment.size).sum(),
        blocks: segments.iter().map(|s| s.blocks.len()).sum(),
        segments,
        strings: vec![Arc::from("")].into(),
        left_out: 0,
        untracked: (0, 0),
        read_at: 0,
        until: Some(0),
    }
}

const A: BlockState = BlockState::Allocated;
const F: BlockState = BlockState::Free;

fn lines(map: &BlockMap, w: u16, h: u16, zoom: u8, cursor: Option<u64>, theme: Theme) -> Vec<String> {
    let area = Rect::new(0, 0, w, h);
    let mut buffer = Buffer::empty(area);
    draw(&mut Pen::new(&mut buffer, theme), area, map, cursor, zoom);
    (0..h)
        .map(|y| (0..w).map(|x| buffer[(x, y)].symbol().to_owned()).collect())
        .collect()
}

const ASCII: Theme = Theme {
    depth: Colors::Mono,
    ascii: true,
};
const COLOUR: Theme = Theme {
    depth: Colors::Ansi256,
    ascii: false,
};

#[test]
fn a_cell_shows_the_state_of_its_bytes_at_every_width() {
    let map = map(&[&[(A, 4 * K), (F, 2 * K), (A, 2 * K)]]);
    for (w, expected) in [
        (0, ""),
        (1, "*"),
        (2, "#*"),
        (4, "##=#"),
        (8, "####==[#"),
        (12, "#####*==[##"),
    ] {
        let area = Rect::new(0, 0, w, 1);
        let mut buffer = Buffer::empty(area);
        let layout = MapLayout::fit(&map, w, 1);
        let mut scratch = vec![];
        let pen = Pen::new(&mut buffer, ASCII);
        cells::aggregate(&mut scratch, &map.segments[0], 1 << 20, w, layout.bytes_per_cell);
        let drawn: String = scratch
            .iter()
            .filter(|m| **m != cells::Mix::default())
            .map(|m| cells::look(&pen, m).0)
            .collect();
        assert_eq!(drawn, expected, "{w} columns of {}", layout.bytes_per_cell);
    }
}

#[test]
fn a_boundary_inside_a_cell_lies_where_the_bytes_are() {
    let map = map(&[&[(A, 3 * K), (F, 5 * K)]]);
    let mut buffer = Buffer::empty(Rect::new(0, 0, 2, 1));
    let pen = Pen::new(&mut buffer, COLOUR);
    let mut scratch = vec![];
    cells::aggregate(&mut scratch, &map.segments[0], 1 << 20, 2, 4 * K);
    let (glyph, style) = cells::look(&pen, &scratch[0]);
    assert_eq!(
        (glyph, style.fg, style.bg),
        ('▊', COLOUR.ground(Ink::Allocated), COLOUR.ground(Ink::Cached))
    );
}

#[test]
fn short_segments_share_a_line_only_when_lines_are_few() {
    let map = map(&[&[(A, 2 * K)], &[(F, 2 * K)], &[(A, 2 * K)]]);
    assert!(!MapLayout::fit(&map, 20, 3).folded);
    let layout = MapLayout::fit(&map, 20, 2);
    assert!(layout.folded);
    assert_eq!(lines(&map, 20, 1, 0, Some(0x30_0000), ASCII), ["#### ==== @###      "]);
}

#[test]
fn the_cursor_stays_in_view_however_deep_the_zoom() {
    let map = map(&[&[(A, 900 * K)], &[(F, 64 * K), (A, 60 * K)]]);
    for zoom in 0..=40 {
        for cursor in [1 << 20, (1 << 20) + 500 * K, (2 << 20) + 100 * K] {
            let shown = lines(&map, 30, 5, zoom, Some(cursor), ASCII).concat();
            assert_eq!(shown.matches('@').count(), 1, "zoom {zoom}, cursor {cursor:#x}");
        }
    }
}

#[test]
fn what_is_not_known_of_a_segment_is_a_question_mark() {
    let mut map = map(&[&[(A, 4 * K), (F, 4 * K)]]);
    let mut torn = (*map.segments[0]).clone();
    torn.blocks = torn.blocks[..1].to_vec().into();
    torn.complete = false;
    map.segments[0] = Arc::new(torn);
    assert_eq!(lines(&map, 8, 1, 0, Some(1 << 20), ASCII), ["@###????"]);
}

#[test]
fn hostile_segments_end_in_bounded_work() {
    let mut map = map(&[&[(A, 4 * K)]]);
    let mut wild = (*map.segments[0]).clone();
    wild.segment.addr = u64::MAX - 4096;
    wild.segment.size = u64::MAX;
    wild.blocks = vec![Block {
        addr: u64::MAX - 4096,
        size: u64::MAX,
        ..Block::default()
    }]
    .into();
    map.segments = vec![Arc::new(wild.clone()), Arc::new(wild)];
    for zoom in [0, 1, 40] {
        lines(&map, 80, 20, zoom, Some(u64::MAX), COLOUR);
        lines(&map, 80, 20, zoom, Some(0), ASCII);
    }
}

/// However far into a large segment.
#[test]
fn lines_of_a_segment_have_labels_of_their_own() {
    let map = map(&[&[(A, 40 << 30), (F, 40 << 30)]]);
    for zoom in 0..24 {
        for cursor in [0, 1 << 30, 79 << 30] {
            let area = Rect::new(0, 0, 80, 16);
            let mut buffer = Buffer::empty(area);
            let mut pen = Pen::new(&mut buffer, Theme::new(Colors::Mono, false));
            draw(&mut pen, area, &map, Some((1 << 20) + cursor), zoom);
            let label = |y| (0..LABEL).map(|x| buffer[(x, y)].symbol()).collect::<String>();
            let labels: Vec<String> = (0..16).map(label).filter(|l| !l.trim().is_empty()).collect();
            assert!(labels.windows(2).all(|two| two[0] != two[1]), "{zoom}: {labels:#?}");
        }
    }
}
