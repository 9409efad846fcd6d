//! A graph over time: stacked areas of eighth blocks with a gradient.

#[cfg(test)]
mod tests;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};
use ratatui::text::Span;
use ratatui::widgets::Widget;

use crate::model::Spread;
use crate::view::theme::{Ink, Theme};

pub(super) const LOWER_EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// What lies between the least and the most of a layer, which was there at times.
const AT_TIMES: char = '▒';

/// Stacked layers, some time per column. A layer is solid up to the least that it was in that time, and a half-tone from there to
/// the most. Cells without a layer are left as they are.
#[derive(Clone, Copy, Debug)]
pub(in crate::view) struct StackedGraph<'a, T> {
    /// Colours and glyphs.
    pub(in crate::view) theme: Theme,
    /// The layers from the bottom up.
    pub(in crate::view) layers: &'a [Ink],
    /// The columns from the left: the height of each layer's top above the bottom, as a share of the area's height, not falling.
    /// `None`: the time is unknown.
    pub(in crate::view) columns: &'a [Option<Spread<T>>],
}

impl<T: AsRef<[f64]>> Widget for StackedGraph<'_, T> {
    fn render(self, area: Rect, buf: &mut Buffer) {
        let area = area.intersection(buf.area);
        for (x, tops) in (area.left()..area.right()).zip(self.columns) {
            if let Some(tops) = tops {
                let column = Rect { x, width: 1, ..area };
                let bands = Bands::new(&self.theme, self.layers, tops, column.height);
                bands.draw(&self.theme, column, buf);
            }
        }
    }
}

/// Returns the sample of a half-tone in a legend.
pub(in crate::view) fn at_times(theme: &Theme, ink: Ink) -> Span<'static> {
    Span::styled(AT_TIMES.to_string(), theme.gradient(ink, 0.5))
}

/// Converts a share of the area's height to units of `1 / per_cell` of a cell.
pub(super) fn units(share: f64, height: u16, per_cell: u32) -> u32 {
    if !share.is_finite() || share <= 0.0 {
        return 0;
    }
    let all = u32::from(height) * per_cell;
    // The float is positive and at most `all`, so the conversion is in range.
    let n = (share.min(1.0) * f64::from(all)).round() as u32;
    n.max(1).min(all)
}

/// Returns the colour of a layer at a height from 0 (bottom) to 1 (top).
pub(in crate::view) fn shade(theme: &Theme, ink: Ink, height: f64) -> Option<Color> {
    theme.gradient(ink, 0.25 + 0.6 * height).fg
}

/// A part of a column that looks the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Band {
    /// Its end above the bottom.
    top: u32,
    ink: Ink,
    /// Whether the layer was there at times only.
    at_times: bool,
}

/// The bands of a column, from the bottom up, in units of which `fine` are a cell.
struct Bands {
    fine: u32,
    bands: Vec<Band>,
}

impl Bands {
    fn new<T: AsRef<[f64]>>(theme: &Theme, layers: &[Ink], tops: &Spread<T>, height: u16) -> Bands {
        let fine = if theme.has_eighths() { 8 } else { 1 };
        let all = u32::from(height) * fine;
        let mut bands = Vec::with_capacity(2 * layers.len());
        // A layer that is not empty is at least one unit high.
        let (mut end, mut below) = (0, 0.0);
        let tops = tops.least.as_ref().iter().zip(tops.most.as_ref());
        for (&ink, (&least, &most)) in layers.iter().zip(tops) {
            for (share, at_times) in [(least, false), (most, true)] {
                let share = if share.is_finite() { share } else { 0.0 };
                let lowest = if share > below { (end + 1).min(all) } else { end };
                end = units(share, height, fine).max(lowest);
                below = share.max(below);
                bands.push(Band {
                    top: end,
                    ink,
                    at_times,
                });
            }
        }
        Bands { fine, bands }
    }

    /// Returns the band of a unit.
    fn at(&self, unit: u32) -> Option<Band> {
        self.bands.iter().find(|band| band.top > unit).copied()
    }

    /// Returns the first layer above a unit that was always there: what is behind a half-tone.
    fn behind(&self, unit: u32) -> Option<Ink> {
        let mut solid = self.bands.iter().filter(|band| !band.at_times);
        solid.find(|band| band.top > unit).map(|band| band.ink)
    }

    fn draw(&self, theme: &Theme, column: Rect, buf: &mut Buffer) {
        let fine = self.fine;
        let all = u32::from(column.height) * fine;
        for (n, y) in (0..).zip((column.top()..column.bottom()).rev()) {
            let foot = n * fine;
            let Some(first) = self.at(foot) else { break };
            let height = f64::from(foot) / f64::from(all);
            let style = |ink| theme.gradient(ink, 0.25 + 0.6 * height);
            let cell = &mut buf[(column.x, y)];
            if fine == 1 {
                let (glyph, style) = match (first.at_times, first.ink) {
                    // Tags differ only by their digits here.
                    (true, Ink::Tag(_)) => (theme.glyph(first.ink), style(first.ink).add_modifier(Modifier::DIM)),
                    (true, ink) => (AT_TIMES, style(ink)),
                    (false, ink) => (theme.glyph(ink), style(ink)),
                };
                cell.set_char(glyph).set_style(style);
                continue;
            }
            if first.top - foot >= 8 && !first.at_times {
                cell.set_char(LOWER_EIGHTHS[8]).set_style(style(first.ink));
                continue;
            }
            let bands: [Option<Band>; 8] = std::array::from_fn(|i| self.at(foot + i as u32));
            let faint = bands.iter().flatten().filter(|band| band.at_times);
            if faint.clone().count() >= 4 {
                let ink = faint.clone().next_back().map_or(first.ink, |band| band.ink);
                let style = match self.behind(foot + 7).and_then(|ink| shade(theme, ink, height)) {
                    Some(ground) => style(ink).bg(ground),
                    None => style(ink),
                };
                cell.set_char(AT_TIMES).set_style(style);
                continue;
            }
            // A half-tone that is less than half of the cell looks like what is behind it, else like its layer.
            let shown = |(i, band): (u32, Option<Band>)| match band {
                Some(band) if band.at_times => Some(self.behind(foot + i).unwrap_or(band.ink)),
                band => band.map(|band| band.ink),
            };
            let eighths = std::array::from_fn(|i| shown((i as u32, bands[i])));
            let (filled, lower, upper) = two_of(eighths);
            let style = match upper.and_then(|ink| shade(theme, ink, height)) {
                Some(ground) => style(lower).bg(ground),
                None => style(lower),
            };
            cell.set_char(LOWER_EIGHTHS[filled]).set_style(style);
        }
    }
}

/// Chooses the two layers that a cell shows of all that meet in it, and how many eighths the lower one fills, so that the
/// fewest eighths are wrong. The end of the whole stack counts more than the boundary between two layers.
fn two_of(eighths: [Option<Ink>; 8]) -> (usize, Ink, Option<Ink>) {
    let wrong = |shown: Option<Ink>, is: Option<Ink>| match (shown, is) {
        _ if shown == is => 0,
        (Some(_), Some(_)) => 1,
        _ => 2,
    };
    let price = |part: &[Option<Ink>], shown: Option<Ink>| part.iter().map(|is| wrong(shown, *is)).sum::<u32>();
    let mut best = (u32::MAX, (8, Ink::Free, None));
    for split in (1..=8).rev() {
        let (below, above) = eighths.split_at(split);
        for lower in below.iter().flatten() {
            // If the lower layer fills the cell, there is no upper one.
            for upper in above.iter().chain(above.is_empty().then_some(&None)) {
                let price = price(below, Some(*lower)) + price(above, *upper);
                if price < best.0 {
                    best = (price, (split, *lower, *upper));
                }
            }
        }
    }
    best.1
}
