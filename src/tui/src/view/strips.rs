//! The block map, as [`MapLayout`] lays it out. Drawing costs one pass over the blocks in view and nothing per block is
//! allocated.

mod cells;
#[cfg(test)]
mod tests;

use gpumem_text::units;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::pen::{Pen, split_left};
use super::theme::Ink;
use crate::model::{BlockMap, MapLayout, Strip};
pub(super) use cells::{LOOKS, Seen, ink_of, sign};

/// `7f2a4c000000 512.0M `
const LABEL: u16 = 21;

/// What a drawn map tells the screen.
pub(super) struct Drawn {
    /// The layout it has.
    pub(super) layout: MapLayout,
    /// The layout that shows everything.
    pub(super) whole: MapLayout,
    /// Lines of the whole map, and the first one shown.
    pub(super) lines: (u64, u64),
    /// Area, first address and segment of every strip.
    pub(super) strips: Vec<(Rect, u64)>,
    /// How many cells look like what.
    pub(super) seen: Seen,
}

/// Draws a map with labels where there is room for them. The line of the cursor is always in view.
pub(super) fn draw(pen: &mut Pen<'_>, area: Rect, map: &BlockMap, cursor: Option<u64>, zoom: u8) -> Drawn {
    let (labels, cells_area) = split_left(area, if area.width >= 60 { LABEL } else { 0 });
    let whole = MapLayout::fit(map, cells_area.width, area.height);
    let layout = whole.zoomed(zoom);
    let under = cursor.and_then(|addr| map.nearest(addr));
    let height = u64::from(area.height);
    let total = layout.lines(map);
    let at = under.map_or(0, |(segment, block)| {
        layout.place(map, segment, cursor_in(block, cursor)).0
    });
    let top = at.saturating_sub(height / 2).min(total.saturating_sub(height));
    let strips = layout.strips(map, top..top + height);
    let mut scratch = vec![];
    let mut drawn = Drawn {
        layout,
        whole,
        lines: (total, top),
        strips: Vec::with_capacity(strips.len()),
        seen: Seen::default(),
    };
    for (i, strip) in strips.iter().enumerate() {
        let y = (strip.line - top) as u16;
        let segment = &map.segments[strip.segment];
        if strip.x == 0 {
            let sharing = strips[i + 1..].iter().take_while(|s| s.line == strip.line).count();
            let line = layout.bytes_per_cell.saturating_mul(u64::from(layout.columns));
            label(pen, labels, y, strip, map, (sharing, line));
        }
        let begin = segment.segment.addr.saturating_add(strip.offset);
        cells::aggregate(&mut scratch, segment, begin, strip.cells, layout.bytes_per_cell);
        for (n, mix) in scratch.iter().enumerate() {
            let x = strip.x + n as u16;
            let from = begin.saturating_add(n as u64 * layout.bytes_per_cell);
            let to = from.saturating_add(layout.bytes_per_cell);
            let (glyph, mut style) = cells::look(pen, mix);
            cells::note(&mut drawn.seen, &pen.theme, mix);
            if let Some((_, block)) = under {
                let here = cursor_in(block, cursor);
                let end = block.addr.saturating_add(block.size);
                if (from..to).contains(&here) {
                    let cursor_style = Style::reset().add_modifier(Modifier::REVERSED | Modifier::BOLD);
                    pen.cell(cells_area, x, y, if pen.theme.ascii { '@' } else { '◆' }, cursor_style);
                    continue;
                }
                if from < end && to > block.addr {
                    style = cells::highlight(pen, mix, style);
                }
            }
            pen.cell(cells_area, x, y, glyph, style);
        }
        let hit = Rect {
            x: cells_area.x + strip.x,
            y: cells_area.y + y,
            width: strip.cells,
            height: 1,
        };
        drawn.strips.push((hit, begin));
    }
    drawn
}

/// The cursor's address when it lies in the block, else the block's first.
fn cursor_in(block: &gpumem_channel::Block, cursor: Option<u64>) -> u64 {
    cursor
        .filter(|&c| c >= block.addr && c - block.addr < block.size)
        .unwrap_or(block.addr)
}

/// Address and size at a segment's first line, or how many more share it; how far into it at the others, of which each has so many bytes.
fn label(pen: &mut Pen<'_>, area: Rect, y: u16, strip: &Strip, map: &BlockMap, (sharing, line): (usize, u64)) {
    let dim = pen.theme.ink(Ink::Dim);
    let segment = &map.segments[strip.segment].segment;
    if strip.offset > 0 {
        let text = format!("+{}", units::bytes_apart(strip.offset, line));
        pen.text_end(area, LABEL - 1, y, &text, dim);
        return;
    }
    let x = pen.text(area, 0, y, &format!("{:012x}", segment.addr), dim);
    let text = match sharing {
        0 => units::bytes_short(segment.size),
        // Parts of segments are more than the segments that the title counts.
        n if map.left_out > 0 => format!("{} runs", n + 1),
        n => format!("{} seg", n + 1),
    };
    let style = pen.theme.ink(Ink::Plain);
    pen.text_end(area, (x + 8).max(LABEL - 1), y, &text, style);
}
