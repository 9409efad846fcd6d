#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use gpumem_channel::{Block, BlockState, Segment, SegmentMap};
use ratatui::buffer::Buffer;

use super::*;
use crate::model::{ChannelKey, DeviceKey, Owner, ProcessId};
use crate::view::widgets::tests::{ASCII, COLOUR, MONO, TRUE, drawn, letters};

const K: u64 = 1024;

/// Returns a map of segments at 1 MiB, 2 MiB, ..., each given as runs of state and size.
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

fn widget(map: &BlockMap, theme: Theme, zoom: u8, cursor: Option<u64>) -> BlockMapWidget<'_> {
    BlockMapWidget {
        theme,
        map,
        cursor,
        zoom,
    }
}

fn lines(widget: BlockMapWidget<'_>, w: u16, h: u16) -> Vec<String> {
    let mut state = BlockMapState::default();
    let buffer = letters((w, h), |area, buf| widget.render(area, buf, &mut state));
    let line = |y| (0..w).map(|x| buffer[(x, y)].symbol().to_owned()).collect();
    (0..h).map(line).collect()
}

#[test]
fn cells_show_the_state_of_their_bytes_at_every_width() {
    let map = map(&[&[(A, 4 * K), (F, 2 * K), (A, 2 * K)]]);
    for (w, expected) in [
        (0, ""),
        (1, "*"),
        (2, "#*"),
        (4, "##=#"),
        (8, "####==[#"),
        (12, "#####*==[##"),
    ] {
        let drawn = lines(widget(&map, ASCII, 0, None), w, 1).concat();
        assert_eq!(drawn.trim_end(), expected, "{w} columns");
    }
}

#[test]
fn boundary_inside_a_cell_is_drawn_in_eighths() {
    let map = map(&[&[(A, 3 * K), (F, 5 * K)]]);
    let widget = widget(&map, COLOUR, 0, None);
    let buffer = drawn((2, 1), |area, buf| {
        widget.render(area, buf, &mut BlockMapState::default());
    });
    let cell = &buffer[(0, 0)];
    assert_eq!(
        (cell.symbol(), Some(cell.fg), Some(cell.bg)),
        ("▊", COLOUR.ground(Ink::Allocated), COLOUR.ground(Ink::Cached))
    );
}

#[test]
fn short_segments_share_a_line_only_if_lines_are_few() {
    let map = map(&[&[(A, 2 * K)], &[(F, 2 * K)], &[(A, 2 * K)]]);
    assert!(!MapLayout::fit(&map, 20, 3).folded);
    let layout = MapLayout::fit(&map, 20, 2);
    assert!(layout.folded);
    assert_eq!(
        lines(widget(&map, ASCII, 0, Some(0x30_0000)), 20, 1),
        ["#### ==== @###      "]
    );
}

#[test]
fn cursor_stays_in_view_at_every_zoom() {
    let map = map(&[&[(A, 900 * K)], &[(F, 64 * K), (A, 60 * K)]]);
    for zoom in 0..=40 {
        for cursor in [1 << 20, (1 << 20) + 500 * K, (2 << 20) + 100 * K] {
            let shown = lines(widget(&map, ASCII, zoom, Some(cursor)), 30, 5).concat();
            assert_eq!(shown.matches('@').count(), 1, "zoom {zoom}, cursor {cursor:#x}");
        }
    }
}

#[test]
fn unknown_part_of_a_segment_is_a_question_mark() {
    let mut map = map(&[&[(A, 4 * K), (F, 4 * K)]]);
    let mut torn = (*map.segments[0]).clone();
    torn.blocks = torn.blocks[..1].to_vec().into();
    torn.complete = false;
    map.segments[0] = Arc::new(torn);
    assert_eq!(lines(widget(&map, ASCII, 0, Some(1 << 20)), 8, 1), ["@###????"]);
}

#[test]
fn hostile_segments_take_bounded_work() {
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
        lines(widget(&map, COLOUR, zoom, Some(u64::MAX)), 80, 20);
        lines(widget(&map, ASCII, zoom, Some(0)), 80, 20);
    }
}

/// This holds far into a large segment, too.
#[test]
fn every_line_of_a_segment_has_its_own_label() {
    let map = map(&[&[(A, 40 << 30), (F, 40 << 30)]]);
    for zoom in 0..24 {
        for cursor in [0, 1 << 30, 79 << 30] {
            let lines = lines(widget(&map, MONO, zoom, Some((1 << 20) + cursor)), 80, 16);
            let labels = lines.iter().map(|line| line.chars().take(LABEL.into()).collect());
            let labels: Vec<String> = labels.filter(|l: &String| !l.trim().is_empty()).collect();
            assert!(labels.windows(2).all(|two| two[0] != two[1]), "{zoom}: {labels:#?}");
        }
    }
}

/// Keys move the cursor by the drawn layout, and clicks find their address by the strips.
#[test]
fn drawn_map_reports_its_strips_and_looks() {
    let map = map(&[&[(A, 4 * K), (F, 4 * K)], &[(A, 2 * K)]]);
    let mut state = BlockMapState::default();
    let widget = widget(&map, COLOUR, 0, None);
    let buffer = letters((4, 2), |area, buf| widget.render(area, buf, &mut state));
    assert_eq!(buffer, Buffer::with_lines(["██▏▓", "█   "]));
    assert_eq!(state.layout.bytes_per_cell, 2 * K);
    assert_eq!((state.layout, state.lines), (state.whole, (2, 0)));
    // The area begins at column 2 and line 1.
    let strips = [(Rect::new(2, 1, 4, 1), 1 << 20), (Rect::new(2, 2, 1, 1), 2 << 20)];
    assert_eq!(state.strips, strips);
    assert_eq!(state.counts, [3, 2, 0, 0, 0, 0]);
}

#[test]
fn wide_map_has_labels() {
    let one = map(&[&[(A, 4 * K)]]);
    let two = map(&[&[(A, 4 * K)], &[(F, 4 * K)], &[(A, 4 * K)]]);
    for (map, width, height, label) in [
        (&one, 60, 1, "000000100000    4.0K "),
        (&two, 60, 1, "000000100000   3 seg "),
        (&one, 59, 1, "########"),
    ] {
        let lines = lines(widget(map, ASCII, 0, None), width, height);
        assert!(lines[0].starts_with(label), "{lines:?}");
    }
}

#[test]
fn block_under_the_cursor_is_highlighted() {
    let map = map(&[&[(A, 4 * K), (F, 4 * K)]]);
    for (theme, style) in [
        (TRUE, TRUE.bright(Ink::Allocated).map(|c| Style::reset().fg(c).bg(c))),
        (MONO, Some(Style::reset().add_modifier(Modifier::BOLD))),
    ] {
        let widget = widget(&map, theme, 0, Some(1 << 20));
        let buffer = drawn((8, 1), |area, buf| {
            widget.render(area, buf, &mut BlockMapState::default());
        });
        assert_eq!(buffer[(0, 0)].symbol(), "◆");
        let style = style.unwrap();
        let is = buffer[(1, 0)].style();
        assert_eq!(
            (is.fg, is.bg, is.add_modifier),
            (style.fg, style.bg, style.add_modifier),
            "{theme:?}"
        );
    }
}

#[test]
fn map_is_drawn_in_every_size() {
    let map = map(&[&[(A, 3 * K), (F, 5 * K)], &[(BlockState::Unknown(9), 1)], &[]]);
    for w in (0..70).step_by(3) {
        for h in 0..4 {
            lines(widget(&map, COLOUR, 3, Some(u64::MAX)), w, h);
        }
    }
}
