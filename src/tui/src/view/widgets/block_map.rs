//! The blocks of a process as cells of equal size, laid out by [`MapLayout`].

mod cells;
#[cfg(test)]
mod tests;

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{StatefulWidget, Widget};

use crate::model::{BlockMap, MapLayout, Strip};
use crate::view::theme::{Ink, Theme};
use crate::wrap::width;
pub(in crate::view) use cells::{LOOKS, LookCounts, ink_of, sign};
use gpumem_text::units;

/// Columns of a label: `7f2a4c000000 1023.9G `.
const LABEL: u16 = 21;
/// The narrowest map that has labels.
const LABELLED: u16 = 60;

/// The blocks of a process, with labels where they fit. The line of the cursor is always in view.
///
/// Drawing takes one pass over the blocks in view and allocates nothing per block.
#[derive(Clone, Copy, Debug)]
pub(in crate::view) struct BlockMapWidget<'a> {
    /// Colours and glyphs.
    pub(in crate::view) theme: Theme,
    /// The blocks.
    pub(in crate::view) map: &'a BlockMap,
    /// The address of the cursor. Its block is highlighted.
    pub(in crate::view) cursor: Option<u64>,
    /// How often the bytes per cell are halved, starting from the layout that shows everything.
    pub(in crate::view) zoom: u8,
}

/// The result of drawing a map. Rendering overwrites it without reading the previous one.
#[derive(Clone, Debug, Default)]
pub(in crate::view) struct BlockMapState {
    /// The drawn layout.
    pub(in crate::view) layout: MapLayout,
    /// The layout that shows everything.
    pub(in crate::view) whole: MapLayout,
    /// Lines of the whole map, and the first one shown.
    pub(in crate::view) lines: (u64, u64),
    /// Area and first address of every strip of cells.
    pub(in crate::view) strips: Vec<(Rect, u64)>,
    /// How many cells were drawn with each look.
    pub(in crate::view) counts: LookCounts,
}

impl StatefulWidget for BlockMapWidget<'_> {
    type State = BlockMapState;

    fn render(self, area: Rect, buf: &mut Buffer, state: &mut BlockMapState) {
        let (theme, map) = (self.theme, self.map);
        let area = area.intersection(buf.area);
        let labels = if area.width >= LABELLED { LABEL } else { 0 };
        let [labels, cells] = Layout::horizontal([Constraint::Length(labels), Constraint::Min(0)]).areas(area);
        let whole = MapLayout::fit(map, cells.width, area.height);
        let layout = whole.zoomed(self.zoom);
        // The segment, start and end of the block under the cursor, and the cursor's address within it.
        let under = self.cursor.and_then(|addr| {
            let (segment, block) = map.nearest(addr)?;
            let here = if block.addr <= addr && addr - block.addr < block.size {
                addr
            } else {
                block.addr
            };
            Some((segment, block.addr, block.addr.saturating_add(block.size), here))
        });
        let height = u64::from(area.height);
        let total = layout.lines(map);
        let at = under.map_or(0, |(segment, .., here)| layout.place(map, segment, here).0);
        let top = at.saturating_sub(height / 2).min(total.saturating_sub(height));
        let strips = layout.strips(map, top..top + height);
        *state = BlockMapState {
            layout,
            whole,
            lines: (total, top),
            strips: Vec::with_capacity(strips.len()),
            counts: LookCounts::default(),
        };
        let mut mixes = vec![];
        for (i, strip) in strips.iter().enumerate() {
            // Every strip is on one of the lines in view.
            let y = area.y + (strip.line - top) as u16;
            let segment = &map.segments[strip.segment];
            if strip.x == 0 {
                let sharing = strips[i + 1..].iter().take_while(|s| s.line == strip.line).count();
                let label_area = Rect { y, height: 1, ..labels };
                self.label(strip, sharing, layout).render(label_area, buf);
            }
            let begin = segment.segment.addr.saturating_add(strip.offset);
            cells::aggregate(&mut mixes, segment, begin, strip.cells, layout.bytes_per_cell);
            let strip = Rect {
                x: cells.x + strip.x,
                y,
                width: strip.cells,
                height: 1,
            };
            for (n, (mix, x)) in (0..).zip(mixes.iter().zip(strip.x..cells.right())) {
                let from = begin.saturating_add(n * layout.bytes_per_cell);
                let to = from.saturating_add(layout.bytes_per_cell);
                let (mut glyph, mut style) = cells::look(&theme, mix);
                cells::note(&mut state.counts, &theme, mix);
                match under {
                    Some((.., here)) if (from..to).contains(&here) => {
                        // The ASCII lookalike of the diamond would be lost among the glyphs of the states.
                        glyph = if theme.ascii { '@' } else { '◆' };
                        style = Style::reset().add_modifier(Modifier::REVERSED | Modifier::BOLD);
                    }
                    Some((_, first, end, _)) if from < end && to > first => {
                        style = cells::highlight(&theme, mix, style);
                    }
                    _ => {}
                }
                buf[(x, y)].set_char(glyph).set_style(style);
            }
            state.strips.push((strip.intersection(cells), begin));
        }
    }
}

impl BlockMapWidget<'_> {
    /// Returns the label before a line: address and size of the segment that begins there, or how many segments share the line,
    /// or the line's offset in its segment.
    fn label(&self, strip: &Strip, sharing: usize, layout: MapLayout) -> Line<'static> {
        let dim = self.theme.ink(Ink::Dim);
        let segment = &self.map.segments[strip.segment].segment;
        let pad = |text: &str, room: u16| Span::raw(" ".repeat(room.saturating_sub(width(text)).into()));
        if strip.offset > 0 {
            let line = layout.bytes_per_cell.saturating_mul(u64::from(layout.columns));
            let text = format!("+{}", units::bytes_apart(strip.offset, line));
            return Line::from(vec![pad(&text, LABEL - 1), Span::styled(text, dim)]);
        }
        let text = match sharing {
            0 => units::bytes_short(segment.size),
            // Segments are split at holes that are left out, so there are more runs than the title counts segments.
            n if self.map.left_out > 0 => format!("{} runs", n + 1),
            n => format!("{} seg", n + 1),
        };
        let address = format!("{:012x}", segment.addr);
        let room = LABEL.saturating_sub(width(&address)).min(8);
        let mut line = Line::from(Span::styled(address, dim));
        // A cut figure would be wrong.
        if width(&text) < room {
            line.extend([pad(&text, room), Span::styled(text, self.theme.ink(Ink::Plain))]);
        }
        line
    }
}
