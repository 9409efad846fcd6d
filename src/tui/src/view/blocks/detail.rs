//! The block under the cursor, its process, and its free blocks by size.

#[cfg(test)]
mod tests;

use gpumem_channel::{Block, BlockState, NO_STREAM, PER_THREAD_STREAMS, PoolId, SegmentKind};
use gpumem_text::units::{self, count};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span, Text};

use super::SIDE;
use crate::model::{BlockMap, Figures, Process};
use crate::view::Screen;
use crate::view::panel::Panel;
use crate::view::theme::{Ink, Theme};
use crate::view::widgets::{SizeHistogram, ink_of};
use crate::wrap::{cut, width};

/// Checks whether a block is the first piece of a stitched block. It has the figures of the whole request.
fn is_first_piece(block: &Block) -> bool {
    block.requested > block.size
}

/// Checks whether a block is a later piece of a stitched block. Its own requested size is 0.
fn is_further_piece(block: &Block) -> bool {
    block.state == BlockState::Part || block.state == BlockState::PendingFree && block.requested == 0
}

/// Returns the block's state in words that fit into the panel of a wide screen.
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

/// Returns the pool that a block belongs to: its size class, after its name if it has one.
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

/// Returns a stream's handle, or the number of a per-thread default stream. The number has up to twelve digits and fits the
/// panel.
fn stream_text(stream: u64) -> String {
    match stream {
        0 => "default".into(),
        NO_STREAM => "any: no queued work uses it".into(),
        own if PER_THREAD_STREAMS.contains(&own) => format!("per-thread {:#x}", own - PER_THREAD_STREAMS.start),
        handle => format!("{handle:#x}"),
    }
}

/// Returns a block's size and, if the block has a requested size of its own (`tells`), the rounding in it. The label takes
/// five columns of the panel's line.
fn size_text(block: &Block, tells: bool) -> String {
    let size = units::bytes(block.size);
    let rounding = block.size.saturating_sub(block.requested);
    if !tells || is_first_piece(block) || rounding == 0 {
        return size;
    }
    let long = format!("{size}, {} rounding", units::bytes(rounding));
    match width(&long) <= SIDE - 4 - 5 {
        true => long,
        false => {
            let [size, rounding] = [block.size, rounding].map(units::bytes_short);
            format!("{size}, {rounding} rounding")
        }
    }
}

/// Returns the known facts of a block as pairs of label and text.
fn facts(map: &BlockMap, segment: usize, block: &Block) -> Vec<(&'static str, String)> {
    let held = matches!(block.state, BlockState::Allocated | BlockState::PendingFree);
    let tells = held && !is_further_piece(block);
    let mut facts = vec![
        ("address", format!("{:#014x}", block.addr)),
        ("size", size_text(block, tells)),
    ];
    if tells && is_first_piece(block) {
        facts.push(("requested in total", units::bytes(block.requested)));
    } else if tells {
        facts.push(("requested", units::bytes(block.requested)));
    }
    if tells || is_further_piece(block) {
        let tag = map.string(block.tag);
        let label = if is_line(tag) { "line" } else { "tag" };
        facts.push((label, if tag.is_empty() { "none".into() } else { tag.into() }));
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

/// Draws the panels at the right of a wide screen.
pub(super) fn panels(screen: &mut Screen<'_>, area: Rect, map: &BlockMap, process: Option<&Process>) {
    let theme = screen.theme;
    let [block_area, mut rest] = Layout::vertical([Constraint::Length(11), Constraint::Min(0)]).areas(area);
    let inside = panel(screen, block_area, "Block");
    if let Some((segment, block)) = screen.model.cursor_block() {
        let [state, rows] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(inside);
        screen.render(state_line(&theme, block, state.width), state);
        pairs(screen, rows, &facts(map, segment, block));
    }
    let Some(figures) = process.and_then(|p| p.figures.as_ref()) else {
        return;
    };
    if rest.height >= 18 {
        let outside = process.and_then(|p| screen.model.world().outside_of(p));
        let facts = process_facts(figures, outside.map(|outside| outside.bytes));
        let lines = Constraint::Length(2 + facts.len() as u16);
        let [top, below] = Layout::vertical([lines, Constraint::Min(0)]).areas(rest);
        let inside = panel(screen, top, "Process");
        pairs(screen, inside, &facts);
        rest = below;
    }
    if rest.height >= 3 {
        let inside = panel(screen, rest, "Free blocks by size");
        let sizes = &map.free_sizes();
        screen.render(SizeHistogram { theme, sizes }, inside);
    }
}

/// Draws a frame with a title and returns the area inside.
fn panel(screen: &mut Screen<'_>, area: Rect, title: &str) -> Rect {
    let panel = Panel::new(screen.theme).title(title);
    let inside = panel.inner(area);
    screen.render(panel, area);
    inside
}

/// Checks whether a tag is a line of Python, which PyTorch's blocks have in place of a tag: "train.py:41 in forward".
fn is_line(tag: &str) -> bool {
    let place = tag.split_once(" in ").and_then(|(place, _)| place.rsplit_once(':'));
    place.is_some_and(|(_, line)| !line.is_empty() && line.bytes().all(|b| b.is_ascii_digit()))
}

fn process_facts(f: &Figures, outside: Option<u64>) -> Vec<(&'static str, String)> {
    let percent = |share: Option<f64>| share.map_or("-".into(), units::percent);
    let budget = f.budget.map(|budget| ("budget", units::bytes(budget)));
    let mut facts = vec![("reserved", units::bytes(f.reserved))];
    facts.extend(budget);
    facts.extend([
        ("allocated", units::bytes(f.allocated)),
        ("cached", units::bytes(f.cached)),
    ]);
    if f.pending > 0 {
        facts.push(("of which pending", units::bytes(f.pending)));
    }
    facts.extend(outside.map(|bytes| ("outside, NVML - reserved", units::bytes(bytes))));
    facts.extend([
        (
            "largest free block",
            f.largest().map_or_else(|| "-".into(), units::bytes),
        ),
        ("peak allocated", units::bytes(f.peak_allocated)),
        ("external fragmentation", percent(f.fragmentation())),
        ("internal fragmentation", percent(f.internal_fragmentation())),
        ("inactive split / reserved", percent(f.inactive_split_ratio())),
        ("failed / retried", format!("{} / {}", count(f.ooms), count(f.retries))),
    ]);
    facts
}

/// Returns the glyph of a block's state with its name.
fn state_line(theme: &Theme, block: &Block, room: u16) -> Line<'static> {
    let tile = theme.tile(ink_of(block.state));
    let text = cut(&state_text(block), room.saturating_sub(2), "…");
    Line::from_iter([
        Span::styled(tile.glyph.to_string(), tile.style),
        Span::raw(" "),
        Span::styled(text, theme.ink(Ink::Strong)),
    ])
}

/// Draws one line per pair: the label at the left, the text at the right.
fn pairs(screen: &mut Screen<'_>, area: Rect, rows: &[(&'static str, String)]) {
    let dim = screen.theme.ink(Ink::Dim);
    for (line, (label, text)) in area.rows().zip(rows) {
        let label = Span::styled(*label, dim);
        let room = line.width.saturating_sub(label.width() as u16 + 1);
        screen.render(Line::raw(cut(text, room, "…")).right_aligned(), line);
        screen.render(label, line);
    }
}

/// Draws the facts of the block under the cursor as running text, for narrow screens.
pub(super) fn lines(screen: &mut Screen<'_>, area: Rect, map: &BlockMap) {
    let Some((segment, block)) = screen.model.cursor_block() else {
        return;
    };
    let theme = screen.theme;
    let margins = [Constraint::Length(2), Constraint::Min(0), Constraint::Length(1)];
    let [_, area, _] = Layout::horizontal(margins).areas(area);
    let mut line = state_line(&theme, block, area.width);
    line.push_span("   ");
    let mut lines = vec![];
    for (label, text) in facts(map, segment, block) {
        let wide = width(label) + 1 + width(&text);
        if line.width() + usize::from(wide) > area.width.into() {
            lines.push(std::mem::replace(&mut line, Line::raw("  ")));
        }
        // A text that is too long for a line of its own ends in an ellipsis.
        let room = area.width.saturating_sub(line.width() as u16 + width(label) + 1);
        let text = cut(&text, room, "…");
        line.extend([
            Span::styled(label, theme.ink(Ink::Dim)),
            Span::raw(format!(" {text}   ")),
        ]);
    }
    lines.push(line);
    screen.render(Text::from(lines), area);
}
