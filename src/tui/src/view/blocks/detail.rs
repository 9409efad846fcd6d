//! The block under the cursor, its process, and its free blocks by size.

use gpumem_channel::{Block, BlockState, NO_STREAM, PoolId, SegmentKind};
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::super::Screen;
use super::super::pen::{split_top, width};
use super::super::theme::Ink;
use super::super::{bar, strips};
use crate::model::{BlockMap, Figures, Histogram, Process};
use crate::units;
use crate::units::{count, round_size};

/// Whether a block is the first piece of a stitched one, which has the figures of the whole request.
fn is_first_piece(block: &Block) -> bool {
    block.requested > block.size
}

/// Whether a block is a piece of a stitched one other than the first: nobody asked for it alone.
fn is_further_piece(block: &Block) -> bool {
    block.state == BlockState::Part || block.state == BlockState::PendingFree && block.requested == 0
}

/// The state in words, which the panel of a wide screen has room for.
fn state_text(block: &Block) -> String {
    match block.state {
        BlockState::Allocated if is_first_piece(block) => "allocated, the first of its pieces".into(),
        BlockState::Allocated => "allocated".into(),
        BlockState::Part => "allocated, a further piece".into(),
        BlockState::Free => "cached, ready for reuse".into(),
        BlockState::Quick => "cached, set aside for its size".into(),
        BlockState::PendingFree if is_first_piece(block) => "freed, in use, the first piece".into(),
        BlockState::PendingFree if is_further_piece(block) => "freed, in use, a further piece".into(),
        BlockState::PendingFree => "freed, the GPU still uses it".into(),
        BlockState::Unmapped => "no memory behind it".into(),
        BlockState::Unknown(n) => format!("state {n}, newer than this program"),
    }
}

/// Which requests a block's memory serves: those of a size, and of a named pool if it is of one.
fn pool_text(map: &BlockMap, segment: usize, pool: PoolId) -> String {
    let size = match pool {
        PoolId::SMALL => "small".into(),
        PoolId::LARGE => "large".into(),
        PoolId(n) => n.to_string(),
    };
    let name = map
        .segments
        .get(segment)
        .map_or("", |s| map.string(s.segment.pool_name));
    match name {
        "" => size,
        name => format!("{name}, {size}"),
    }
}

/// What is known of a block, as label and text.
fn facts(map: &BlockMap, segment: usize, block: &Block) -> Vec<(&'static str, String)> {
    let held = matches!(block.state, BlockState::Allocated | BlockState::PendingFree);
    let tells = held && !is_further_piece(block);
    let mut facts = vec![
        ("address", format!("{:#014x}", block.addr)),
        ("size", units::bytes(block.size)),
    ];
    if tells && is_first_piece(block) {
        facts.push(("requested in all", units::bytes(block.requested)));
    } else if tells {
        let waste = block.size.saturating_sub(block.requested);
        let waste = if waste > 0 {
            format!(" (+{})", units::bytes_short(waste))
        } else {
            String::new()
        };
        facts.push(("requested", format!("{}{waste}", units::bytes(block.requested))));
    }
    if tells || is_further_piece(block) {
        let tag = map.string(block.tag);
        facts.push(("tag", if tag.is_empty() { "none".into() } else { tag.into() }));
    }
    facts.push((
        "stream",
        match block.stream {
            0 => "default".into(),
            NO_STREAM => "any: no queued work uses it".into(),
            handle => format!("{handle:#x}"),
        },
    ));
    facts.push(("pool", pool_text(map, segment, block.pool)));
    facts.push(("for", units::age(map.read_at.saturating_sub(block.time))));
    if let Some(s) = map.segments.get(segment) {
        let kind = match s.segment.kind {
            SegmentKind::Plain => "plain",
            SegmentKind::Virtual => "virtual",
            SegmentKind::Stitched => "stitched",
            SegmentKind::Unknown(_) => "unknown",
        };
        let (number, all) = map.number(segment);
        facts.push(("segment", format!("{number} of {all}, {kind}")));
    }
    facts
}

/// The panels at the right of a wide screen.
pub(super) fn panels(screen: &mut Screen<'_>, area: Rect, map: &BlockMap, process: Option<&Process>) {
    let (block_area, rest) = split_top(area, 11);
    let inside = screen.pen.panel(block_area, "Block", "");
    if let Some((segment, block)) = screen.model.cursor_block() {
        let (_, rows) = split_top(inside, 1);
        state_line(screen, inside, block);
        pairs(screen, rows, &facts(map, segment, block));
    }
    let figures = process.and_then(|p| p.figures.as_ref());
    let rest = match figures {
        Some(figures) if rest.height >= 18 => {
            let facts = process_facts(figures);
            let (top, rest) = split_top(rest, 2 + facts.len() as u16);
            let inside = screen.pen.panel(top, "Process", "");
            pairs(screen, inside, &facts);
            rest
        }
        _ => rest,
    };
    if figures.is_some() && rest.height >= 3 {
        let inside = screen.pen.panel(rest, "Free blocks by size", "");
        histogram(screen, inside, &map.free_sizes());
    }
}

fn process_facts(f: &Figures) -> Vec<(&'static str, String)> {
    let percent = |share: Option<f64>| share.map_or("-".into(), units::percent);
    let budget = f.budget.map(|budget| ("budget", units::bytes(budget)));
    let mut facts = vec![("reserved", units::bytes(f.reserved))];
    facts.extend(budget);
    facts.extend([
        ("allocated", units::bytes(f.allocated)),
        ("cached", units::bytes(f.cached)),
    ]);
    if f.pending > 0 {
        facts.push(("of it pending", units::bytes(f.pending)));
    }
    facts.extend([
        ("largest free block", units::bytes(f.largest_free)),
        ("peak allocated", units::bytes(f.peak_allocated)),
        ("external, 1 - largest/free", percent(f.fragmentation())),
        ("internal, 1 - requested/alloc", percent(f.internal_fragmentation())),
        ("inactive split / reserved", percent(f.inactive_split_ratio())),
        ("failed / retried", format!("{} / {}", count(f.ooms), count(f.retries))),
    ]);
    facts
}

fn state_line(screen: &mut Screen<'_>, area: Rect, block: &Block) {
    let ink = strips::ink_of(block.state);
    let tile = screen.pen.theme.tile(ink);
    screen.pen.cell(area, 0, 0, tile.glyph, tile.style);
    let style = screen.pen.theme.ink(Ink::Strong);
    screen
        .pen
        .clipped(area, 2, 0, &state_text(block), area.width.saturating_sub(2), style);
}

/// Labels at the left, figures at the right.
fn pairs(screen: &mut Screen<'_>, area: Rect, rows: &[(&str, String)]) {
    let dim = screen.pen.theme.ink(Ink::Dim);
    for (y, (label, text)) in rows.iter().enumerate().take(usize::from(area.height)) {
        let y = y as u16;
        let x = screen.pen.text(area, 0, y, label, dim);
        let room = area.width.saturating_sub(x + 1);
        if width(text) <= room {
            screen.pen.text_end(area, area.width, y, text, Style::new());
        } else {
            screen.pen.clipped(area, x + 1, y, text, room, Style::new());
        }
    }
}

/// The same in three lines for narrow screens.
pub(super) fn lines(screen: &mut Screen<'_>, area: Rect, map: &BlockMap) {
    let Some((segment, block)) = screen.model.cursor_block() else {
        return;
    };
    let area = Rect {
        x: area.x + area.width.min(2),
        width: area.width.saturating_sub(3),
        ..area
    };
    state_line(screen, area, block);
    let dim = screen.pen.theme.ink(Ink::Dim);
    let (mut x, mut y) = (width(&state_text(block)) + 5, 0);
    for (label, text) in facts(map, segment, block) {
        if x + width(label) + 1 + width(&text) > area.width {
            (x, y) = (2, y + 1);
        }
        x = screen.pen.text(area, x, y, label, dim);
        x = screen.pen.text(area, x + 1, y, &text, Style::new()) + 3;
    }
}

/// Free blocks per power of two, as bars of their bytes. When lines are few, the smallest sizes share the first one.
pub(super) fn histogram(screen: &mut Screen<'_>, area: Rect, sizes: &Histogram) {
    let Some((first, last)) = sizes.range() else {
        let dim = screen.pen.theme.ink(Ink::Dim);
        screen.pen.text(area, 0, 0, "nothing is free", dim);
        return;
    };
    if area.height == 0 {
        return;
    }
    let lines = usize::from(area.height).min(last - first + 1);
    let fold = last + 1 - lines;
    let most = sizes.bytes[first..=last].iter().copied().max().unwrap_or(1).max(1);
    for (y, bucket) in (fold..=last).rev().enumerate() {
        let y = y as u16;
        let folded = bucket == fold && fold > first;
        let range = if folded { first..=bucket } else { bucket..=bucket };
        let blocks: u64 = sizes.count[range.clone()].iter().map(|&n| u64::from(n)).sum();
        let bytes: u64 = sizes.bytes[range].iter().fold(0, |sum, &n| sum.saturating_add(n));
        let dim = screen.pen.theme.ink(Ink::Dim);
        let label = if folded {
            format!("<{}", round_size(1 << (bucket + 1).min(63)))
        } else {
            round_size(1 << bucket)
        };
        screen.pen.text_end(area, 8, y, &label, dim);
        let text = count(blocks);
        screen.pen.text_end(area, 13, y, &text, Style::new());
        let total = units::bytes_short(bytes);
        let left = screen
            .pen
            .text_end(area, area.width, y, &total, if bytes == 0 { dim } else { Style::new() });
        let line = Rect {
            x: area.x + 14,
            y: area.y + y,
            width: left.saturating_sub(15),
            height: 1,
        };
        let full = bytes.min(most);
        if full > 0 {
            let long = u64::from(line.width) * 8;
            // Only the bar itself is drawn: what is not there has no look.
            let eighths = (u128::from(long) * u128::from(full) / u128::from(most)) as u64;
            bar::solid(&mut screen.pen, line, Ink::Cached, eighths.max(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gpumem_channel::{Segment, SegmentMap, StringId};

    use super::super::SIDE;
    use super::*;
    use crate::model::{ChannelKey, DeviceKey, Owner, ProcessId};

    /// A map whose second string is a name.
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
        }
    }

    #[test]
    fn pieces_of_a_stitched_block_tell_of_the_whole_once() {
        let map = map_of(vec![], "batch");
        let told = |state, requested| {
            let block = Block {
                size: 8 << 20,
                requested,
                state,
                tag: StringId(1),
                ..Block::default()
            };
            let facts = facts(&map, 0, &block).into_iter();
            let figures = facts.filter(|(label, _)| label.starts_with("requested") || *label == "tag");
            let figures: Vec<_> = figures.map(|(label, text)| format!("{label} {text}")).collect();
            // Two columns of a panel's 36 are the swatch's.
            assert!(width(&state_text(&block)) <= SIDE - 4, "{}", state_text(&block));
            (state_text(&block), figures.join(", "))
        };
        let first = told(BlockState::Allocated, 20 << 20);
        assert_eq!(first.0, "allocated, the first of its pieces");
        assert_eq!(first.1, "requested in all 20.0 MiB, tag batch");
        let further = told(BlockState::Part, 0);
        assert_eq!(further.0, "allocated, a further piece");
        assert_eq!(further.1, "tag batch", "nobody asked for 0 bytes");
        let whole = told(BlockState::Allocated, 7 << 20);
        assert_eq!(whole.0, "allocated");
        assert_eq!(whole.1, "requested 7.0 MiB (+1.0M), tag batch");
        assert_eq!(told(BlockState::PendingFree, 20 << 20).1, first.1);
        let further = told(BlockState::PendingFree, 0);
        assert_eq!(further.0, "freed, in use, a further piece");
        assert_eq!(further.1, "tag batch", "nobody asked for 0 bytes of it either");
    }

    #[test]
    fn figures_of_a_process_fit_into_their_panel() {
        let figures = Figures {
            pending: 1023 << 30,
            ooms: 999_999,
            retries: 999_999,
            ..Figures::default()
        };
        for (label, text) in process_facts(&figures) {
            assert!(width(label) + 1 + width(&text) <= SIDE - 2, "{label} {text}");
        }
    }

    #[test]
    fn a_block_tells_whose_pool_it_is_of() {
        let map = |pool_name| {
            let segment = Segment {
                pool_name: StringId(pool_name),
                ..Segment::default()
            };
            let blocks = [Block::default()].into();
            map_of(vec![Arc::new(SegmentMap::new(0, segment, blocks, true))], "tenant-a")
        };
        let told = |pool_name| {
            let facts = facts(&map(pool_name), 0, &Block::default());
            facts
                .into_iter()
                .find(|(label, _)| *label == "pool")
                .map(|(_, text)| text)
        };
        assert_eq!(told(0).as_deref(), Some("small"));
        assert_eq!(told(1).as_deref(), Some("tenant-a, small"));
        assert_eq!(told(9).as_deref(), Some("small"), "a name that is not there");
    }
}
