//! The block map: segments laid out as lines of cells, every cell a fixed number of bytes.
//!
//! A segment begins a line and goes on over as many as it needs. When there are more segments than lines, neighbours
//! that are shorter than a line share one (they are *folded*). Drawing costs one pass over the blocks in view and
//! nothing per block is allocated.

mod cells;
#[cfg(test)]
mod tests;

use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::pen::{Pen, split_left};
use super::theme::Ink;
use crate::model::BlockMap;
use crate::units;
pub(super) use cells::{ink_of, mixed_look};

/// The smallest cell: allocators round to 512 bytes.
const LEAST_CELL: u64 = 512;
/// `7f2a4c000000 512.0M `
const LABEL: u16 = 21;

/// How segments are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Bytes per cell.
    pub(super) bytes_per_cell: u64,
    /// Cells per line.
    pub(super) columns: u16,
    /// Short segments share lines.
    pub(super) folded: bool,
}

/// Part of a segment on one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Strip {
    /// Line, from the first of the whole map.
    pub(super) line: u64,
    /// First column.
    pub(super) x: u16,
    /// Index of the segment.
    pub(super) segment: usize,
    /// Bytes of the segment before this strip.
    pub(super) offset: u64,
    /// Cells.
    pub(super) cells: u16,
}

impl Layout {
    /// The finest layout that shows all segments in so many lines, then zoomed in by halving the cell.
    pub(super) fn fit(map: &BlockMap, columns: u16, lines: u16, zoom: u8) -> Layout {
        let folded = map.segments.len() > usize::from(lines);
        let layout = |bytes_per_cell| Layout {
            bytes_per_cell,
            columns: columns.max(1),
            folded,
        };
        let fits = |bytes_per_cell| layout(bytes_per_cell).lines(map) <= u64::from(lines.max(1));
        let largest = map.largest_segment();
        let mut cell = LEAST_CELL;
        while !fits(cell) && cell < largest {
            cell = cell.saturating_mul(2);
        }
        if cell > LEAST_CELL {
            // Quarter steps between the powers of two: at most a fifth of the room is lost to rounding.
            let finer = (1..4).map(|quarter| cell / 2 + cell / 8 * quarter);
            cell = finer.into_iter().find(|&c| fits(c)).unwrap_or(cell);
        }
        layout((cell >> zoom.min(63)).max(LEAST_CELL))
    }

    /// Visits every segment with its first line and column and its number of cells; returns the number of lines.
    fn walk(&self, map: &BlockMap, mut visit: impl FnMut(usize, u64, u64, u64)) -> u64 {
        let columns = u64::from(self.columns);
        let (mut line, mut x) = (0u64, 0u64);
        for (i, s) in map.segments.iter().enumerate() {
            let cells = s.segment.size.div_ceil(self.bytes_per_cell).max(1);
            if self.folded && x > 0 && x + 1 + cells <= columns {
                x += 1;
            } else if x > 0 {
                line += 1;
                x = 0;
            }
            visit(i, line, x, cells);
            line += cells.div_ceil(columns) - 1;
            x = if cells <= columns && self.folded {
                x + cells
            } else {
                columns
            };
        }
        line + u64::from(x > 0)
    }

    /// Lines of the whole map.
    fn lines(&self, map: &BlockMap) -> u64 {
        self.walk(map, |_, _, _, _| ())
    }

    /// The strips on the lines in `window`, in order. A deep zoom has millions of lines: only these are visited.
    fn strips(&self, map: &BlockMap, window: std::ops::Range<u64>) -> Vec<Strip> {
        let columns = u64::from(self.columns);
        let mut strips = vec![];
        self.walk(map, |segment, line, x, cells| {
            let lines = cells.div_ceil(columns);
            for n in window.start.max(line)..window.end.min(line + lines) {
                let before = (n - line) * columns;
                strips.push(Strip {
                    line: n,
                    // Both are at most `columns`, a u16.
                    x: x as u16,
                    segment,
                    offset: before * self.bytes_per_cell,
                    cells: (cells - before).min(columns) as u16,
                });
            }
        });
        strips
    }

    /// The line that shows an address of a segment.
    fn line_of(&self, map: &BlockMap, segment: usize, addr: u64) -> u64 {
        let mut at = 0;
        self.walk(map, |i, line, _, _| {
            if i == segment {
                let offset = addr.saturating_sub(map.segments[i].segment.addr);
                at = line + offset / self.bytes_per_cell / u64::from(self.columns);
            }
        });
        at
    }
}

/// What a drawn map tells the screen.
pub(super) struct Drawn {
    /// The layout it has.
    pub(super) layout: Layout,
    /// Lines of the whole map, and the first one shown.
    pub(super) lines: (u64, u64),
    /// Area, first address and segment of every strip.
    pub(super) strips: Vec<(Rect, u64)>,
}

/// Draws a map with labels where there is room for them. The line of the cursor is always in view.
pub(super) fn draw(pen: &mut Pen<'_>, area: Rect, map: &BlockMap, cursor: Option<u64>, zoom: u8) -> Drawn {
    let (labels, cells_area) = split_left(area, if area.width >= 60 { LABEL } else { 0 });
    let layout = Layout::fit(map, cells_area.width, area.height, zoom);
    let under = cursor.and_then(|addr| map.nearest(addr));
    let height = u64::from(area.height);
    let total = layout.lines(map);
    let at = under.map_or(0, |(segment, block)| {
        layout.line_of(map, segment, cursor_in(block, cursor))
    });
    let top = at.saturating_sub(height / 2).min(total.saturating_sub(height));
    let strips = layout.strips(map, top..top + height);
    let mut scratch = vec![];
    let mut drawn = Drawn {
        layout,
        lines: (total, top),
        strips: Vec::with_capacity(strips.len()),
    };
    for (i, strip) in strips.iter().enumerate() {
        let y = (strip.line - top) as u16;
        let segment = &map.segments[strip.segment];
        if strip.x == 0 {
            let sharing = strips[i + 1..].iter().take_while(|s| s.line == strip.line).count();
            label(pen, labels, y, strip, map, sharing);
        }
        let begin = segment.segment.addr.saturating_add(strip.offset);
        cells::aggregate(&mut scratch, segment, begin, strip.cells, layout.bytes_per_cell);
        for (n, mix) in scratch.iter().enumerate() {
            let x = strip.x + n as u16;
            let from = begin.saturating_add(n as u64 * layout.bytes_per_cell);
            let to = from.saturating_add(layout.bytes_per_cell);
            let (glyph, mut style) = cells::look(pen, mix);
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

/// Address and size at a segment's first line; how far into it at the others.
fn label(pen: &mut Pen<'_>, area: Rect, y: u16, strip: &Strip, map: &BlockMap, sharing: usize) {
    let dim = pen.theme.ink(Ink::Dim);
    let segment = &map.segments[strip.segment].segment;
    if strip.offset > 0 {
        let text = format!("+{}", units::bytes_short(strip.offset));
        pen.text_end(area, LABEL - 1, y, &text, dim);
        return;
    }
    let x = pen.text(area, 0, y, &format!("{:012x}", segment.addr), dim);
    let text = match sharing {
        0 => units::bytes_short(segment.size),
        n => format!("{} seg", n + 1),
    };
    let style = pen.theme.ink(Ink::Plain);
    pen.text_end(area, (x + 8).max(LABEL - 1), y, &text, style);
}
