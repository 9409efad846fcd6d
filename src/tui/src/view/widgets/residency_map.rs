//! Where the pages of managed ranges are, as cells of equal size.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{StatefulWidget, Widget};

use super::bar::{boundary, swatch};
use crate::model::{Causes, Extents, MapGeometry, Pages, Places};
use crate::view::theme::{Ink, Theme};
use crate::wrap::width;
use gpumem_text::units;

/// Columns of a label: `7f2a4c000000 1023.9G `.
const LABEL: u16 = 21;
/// The narrowest map that has labels.
const LABELLED: u16 = 60;

/// The places with their names, in the order of the legend. Without causes a page that is not on the CPU may be anywhere.
pub(in crate::view) const PLACES: [(Ink, &str); 5] = [
    (Ink::Cached, "on the CPU"),
    (Ink::Allocated, "on the GPU"),
    (Ink::Pending, "evicted to the host"),
    (Ink::Driver, "prefetched to the host"),
    (Ink::Other, "not on the CPU"),
];

/// The managed ranges of a process. The line of the cursor is always in view.
#[derive(Clone, Copy, Debug)]
pub(in crate::view) struct ResidencyMap<'a> {
    /// Colours and glyphs.
    pub(in crate::view) theme: Theme,
    /// The pages.
    pub(in crate::view) pages: &'a Pages,
    /// Why they moved, where that is known.
    pub(in crate::view) causes: Option<&'a Causes>,
    /// The address of the cursor; `None` is the first.
    pub(in crate::view) cursor: Option<u64>,
    /// Whether the cursor is drawn.
    pub(in crate::view) shows_cursor: bool,
    /// How often the bytes per cell are halved, starting from the layout that shows everything.
    pub(in crate::view) zoom: u8,
}

/// The result of drawing a map. Rendering overwrites it without reading the previous one.
#[derive(Clone, Debug, Default)]
pub(in crate::view) struct ResidencyState {
    /// The layouts and the lines in view.
    pub(in crate::view) geometry: MapGeometry,
    /// Lines of the whole map, and the first one shown.
    pub(in crate::view) lines: (u64, u64),
    /// Area and first address of every strip of cells.
    pub(in crate::view) strips: Vec<(Rect, u64)>,
    /// The cell under the cursor: its first address and its bytes by place.
    pub(in crate::view) under: Option<(u64, Places)>,
}

impl StatefulWidget for ResidencyMap<'_> {
    type State = ResidencyState;

    fn render(self, area: Rect, buf: &mut Buffer, state: &mut ResidencyState) {
        let (theme, pages) = (self.theme, self.pages);
        let area = area.intersection(buf.area);
        let labels = if area.width >= LABELLED { LABEL } else { 0 };
        let [labels, cells] = Layout::horizontal([Constraint::Length(labels), Constraint::Min(0)]).areas(area);
        let whole = crate::model::MapLayout::fit(pages, cells.width, area.height);
        let layout = whole.zoomed(self.zoom);
        *state = ResidencyState {
            geometry: MapGeometry {
                layout,
                whole,
                lines: area.height,
            },
            ..ResidencyState::default()
        };
        let Some(first) = pages.nearest(0) else { return };
        let at = self.cursor.unwrap_or(pages.extent(first).0);
        let Some(range) = pages.nearest(at) else { return };
        let bounds = pages.ranges[range].range;
        let at = at.clamp(bounds.start, bounds.end.saturating_sub(1));
        let (height, total) = (u64::from(area.height), layout.lines(pages));
        let line = layout.place(pages, range, at).0;
        let top = line.saturating_sub(height / 2).min(total.saturating_sub(height));
        state.lines = (total, top);
        let mut labelled = None;
        for strip in layout.strips(pages, top..top + height) {
            let y = area.y + (strip.line - top) as u16;
            let (start, bytes) = pages.extent(strip.segment);
            if labels.width > 0 && labelled != Some(strip.line) {
                labelled = Some(strip.line);
                let line_bytes = layout.bytes_per_cell.saturating_mul(u64::from(layout.columns));
                let line = label(&theme, (start, bytes), strip.offset, line_bytes);
                line.render(Rect { y, height: 1, ..labels }, buf);
            }
            let begin = start + strip.offset;
            let x = cells.x + strip.x;
            for (n, x) in (0..u64::from(strip.cells)).zip(x..cells.right()) {
                let from = begin.saturating_add(n * layout.bytes_per_cell);
                let to = from.saturating_add(layout.bytes_per_cell).min(start + bytes);
                let places = pages.places(strip.segment, (from, to), self.causes);
                let (mut glyph, mut style) = look(&theme, &places);
                if self.shows_cursor && (from..to).contains(&at) && strip.segment == range {
                    state.under = Some((from, places));
                    glyph = if theme.ascii { '@' } else { '◆' };
                    style = Style::reset().add_modifier(Modifier::REVERSED | Modifier::BOLD);
                }
                buf[(x, y)].set_char(glyph).set_style(style);
            }
            let drawn = Rect {
                x,
                y,
                width: strip.cells,
                height: 1,
            };
            state.strips.push((drawn.intersection(cells), begin));
        }
    }
}

/// Returns what stands before a line: address and size of the range that begins there, or how far into it the line is.
fn label(theme: &Theme, (start, bytes): (u64, u64), offset: u64, line_bytes: u64) -> Line<'static> {
    let dim = theme.ink(Ink::Dim);
    let pad = |text: &str, room: u16| Span::raw(" ".repeat(room.saturating_sub(width(text)).into()));
    if offset > 0 {
        let text = format!("+{}", units::bytes_apart(offset, line_bytes));
        return Line::from(vec![pad(&text, LABEL - 1), Span::styled(text, dim)]);
    }
    let (address, size) = (format!("{start:012x}"), units::bytes_short(bytes));
    let room = LABEL - 1 - width(&address).min(LABEL - 1);
    Line::from(vec![Span::styled(address, dim), pad(&size, room), Span::raw(size)])
}

/// Returns the glyph and style of a cell: one place, or the two largest of several.
fn look(theme: &Theme, places: &Places) -> (char, Style) {
    let mut shares = [
        places.cpu,
        places.gpu,
        places.evicted,
        places.prefetched,
        places.elsewhere,
    ]
    .into_iter()
    .zip(PLACES.map(|place| place.0))
    .filter(|(bytes, _)| *bytes > 0)
    .collect::<Vec<_>>();
    shares.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    match shares[..] {
        [] => ('?', theme.ink(Ink::Dim)),
        [(_, ink)] => {
            let tile = theme.tile(ink);
            (tile.glyph, tile.style)
        }
        [(most, ink), (second, other), ..] if theme.has_eighths() => {
            // The CPU's part stands at the left whatever its share, so that neighbouring cells can be compared.
            let all = most + second;
            let (left, right, part) = match ink == Ink::Cached || other != Ink::Cached {
                true => (ink, other, most),
                false => (other, ink, second),
            };
            let eighths = (u128::from(part) * 8 / u128::from(all)) as u64;
            boundary(theme, left, right, eighths.clamp(1, 7))
        }
        [(_, ink), ..] => ('*', theme.ink(ink)),
    }
}

/// Returns the sample of a place in the legend.
pub(in crate::view) fn place_sign(theme: &Theme, ink: Ink) -> Span<'static> {
    swatch(theme, ink)
}
