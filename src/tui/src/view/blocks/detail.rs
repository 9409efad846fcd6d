//! The block under the cursor, its process, and its free blocks by size.

#[cfg(test)]
mod tests;

use gpumem_channel::{Block, BlockState, NO_STREAM, PER_THREAD_STREAMS, PoolId, SegmentKind};
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::super::Screen;
use super::super::pen::{split_top, width};
use super::super::strips;
use super::super::theme::Ink;
use super::SIDE;
use crate::model::{BlockMap, Figures, Process};
use crate::view::widgets::SizeHistogram;
use gpumem_text::units::{self, count};

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

/// A stream by its handle, or a per-thread default stream by the number that tells it from those of other threads, which has up to twelve digits
/// and fits the panel.
fn stream_text(stream: u64) -> String {
    match stream {
        0 => "default".into(),
        NO_STREAM => "any: no queued work uses it".into(),
        own if PER_THREAD_STREAMS.contains(&own) => format!("per-thread {:#x}", own - PER_THREAD_STREAMS.start),
        handle => format!("{handle:#x}"),
    }
}

/// A block's size (its label takes five columns of the panel's line), and how much of it nobody asked for where the block tells what was.
fn size_text(block: &Block, tells: bool) -> String {
    let size = units::bytes(block.size);
    let rounding = block.size.saturating_sub(block.requested);
    if !tells || is_first_piece(block) || rounding == 0 {
        return size;
    }
    let long = format!("{size}, {} rounding", units::bytes(rounding));
    match width(&long) <= SIDE - 4 - 5 {
        true => long,
        false => format!("{size}, {} rounding", units::bytes_short(rounding)),
    }
}

/// What is known of a block, as label and text.
fn facts(map: &BlockMap, segment: usize, block: &Block) -> Vec<(&'static str, String)> {
    let held = matches!(block.state, BlockState::Allocated | BlockState::PendingFree);
    let tells = held && !is_further_piece(block);
    let mut facts = vec![
        ("address", format!("{:#014x}", block.addr)),
        ("size", size_text(block, tells)),
    ];
    if tells && is_first_piece(block) {
        facts.push(("requested in all", units::bytes(block.requested)));
    } else if tells {
        facts.push(("requested", units::bytes(block.requested)));
    }
    if tells || is_further_piece(block) {
        let tag = map.string(block.tag);
        facts.push(("tag", if tag.is_empty() { "none".into() } else { tag.into() }));
    }
    facts.push(("stream", stream_text(block.stream)));
    facts.push(("pool", pool_text(map, segment, block.pool)));
    facts.extend(map.age(block).map(|age| ("for", units::age(age))));
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
        let theme = screen.pen.theme;
        let sizes = &map.free_sizes();
        screen.render(SizeHistogram { theme, sizes }, inside);
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
        ("internal, 1 - requested/active", percent(f.internal_fragmentation())),
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
        // One that is too long for a line of its own is seen to be.
        x = screen.pen.clipped(area, x + 1, y, &text, area.width, Style::new()) + 3;
    }
}
