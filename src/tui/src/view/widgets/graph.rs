//! A graph over time: stacked areas of eighth blocks with a gradient.

#[cfg(test)]
mod tests;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Color;
use ratatui::widgets::Widget;

use crate::view::theme::{Ink, Theme};

pub(super) const LOWER_EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Stacked layers, one moment per column. Cells without a layer are left as they are.
#[derive(Clone, Copy, Debug)]
pub(in crate::view) struct StackedGraph<'a, T> {
    /// Colours and glyphs.
    pub(in crate::view) theme: Theme,
    /// The layers from the bottom up.
    pub(in crate::view) layers: &'a [Ink],
    /// The columns from the left: the height of each layer's top above the bottom, as a share of the area's height, not falling.
    /// `None`: the moment is unknown.
    pub(in crate::view) columns: &'a [Option<T>],
}

impl<T: AsRef<[f64]>> Widget for StackedGraph<'_, T> {
    fn render(self, area: Rect, buf: &mut Buffer) {
        let area = area.intersection(buf.area);
        for (x, tops) in (area.left()..area.right()).zip(self.columns) {
            if let Some(tops) = tops {
                let column = Rect { x, width: 1, ..area };
                draw_column(&self.theme, self.layers, tops.as_ref(), column, buf);
            }
        }
    }
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

/// Draws one moment; `layers[i]` fills up to `tops[i]`.
fn draw_column(theme: &Theme, layers: &[Ink], tops: &[f64], column: Rect, buf: &mut Buffer) {
    let fine = if theme.has_eighths() { 8 } else { 1 };
    let all = u32::from(column.height) * fine;
    // A layer that is not empty is at least one unit high.
    let mut below = (0, 0.0);
    let tops: Vec<u32> = tops
        .iter()
        .map(|&top| {
            let least = if top > below.1 { (below.0 + 1).min(all) } else { below.0 };
            below = (units(top, column.height, fine).max(least), top);
            below.0
        })
        .collect();
    for (n, y) in (0..).zip((column.top()..column.bottom()).rev()) {
        let foot = n * fine;
        let at = |unit: u32| {
            let mut reach = tops.iter().zip(layers);
            reach.find(|(top, _)| **top > unit).map(|(&top, &ink)| (top, ink))
        };
        let Some((top, ink)) = at(foot) else { continue };
        let height = f64::from(foot) / f64::from(all);
        let cell = &mut buf[(column.x, y)];
        if fine == 1 {
            cell.set_char(theme.glyph(ink))
                .set_style(theme.gradient(ink, 0.25 + 0.6 * height));
            continue;
        }
        let (filled, lower, upper) = match top - foot {
            8.. => (8, ink, None),
            _ => two_of(std::array::from_fn(|i| at(foot + i as u32).map(|(_, ink)| ink))),
        };
        let style = theme.gradient(lower, 0.25 + 0.6 * height);
        let style = match upper.and_then(|ink| shade(theme, ink, height)) {
            Some(ground) => style.bg(ground),
            None => style,
        };
        cell.set_char(LOWER_EIGHTHS[filled]).set_style(style);
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
