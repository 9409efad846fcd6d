//! Graphs over time: stacked areas of eighth blocks with a gradient, a one-line spark.

#[cfg(test)]
mod tests;

use ratatui::layout::Rect;
use ratatui::style::Color;

use super::pen::Pen;
use super::theme::{Ink, Theme};

const LOWER_EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ASCII_RAMP: [char; 9] = [' ', '.', '.', ':', '-', '=', '+', '*', '#'];

/// One column of a stacked area: the height of each layer's top from the foot, as a share of the whole, not falling.
pub(super) type Tops = [f64];

/// Units of height up to a share of the area.
fn units(share: f64, height: u16, per_cell: u32) -> u32 {
    if !share.is_finite() || share <= 0.0 {
        return 0;
    }
    let all = u32::from(height) * per_cell;
    // A float that is positive and at most `all`, so the conversion is exact enough and in range.
    let n = (share.min(1.0) * f64::from(all)).round() as u32;
    n.max(1).min(all)
}

/// The colour of a layer at a height from 0 (foot) to 1 (top).
pub(super) fn shade(theme: &Theme, ink: Ink, height: f64) -> Option<Color> {
    theme.gradient(ink, 0.25 + 0.6 * height).fg
}

/// Draws one column of a stacked area; `layers[i]` fills up to `tops[i]`. A missing sample draws nothing.
pub(super) fn stacked_column(pen: &mut Pen<'_>, area: Rect, x: u16, layers: &[Ink], tops: &Tops) {
    if area.height == 0 || x >= area.width {
        return;
    }
    let fine = if pen.theme.has_eighths() { 8 } else { 1 };
    // A layer that is not empty is at least one unit thick.
    let most = u32::from(area.height) * fine;
    let mut below = (0, 0.0);
    let tops: Vec<u32> = tops
        .iter()
        .map(|&top| {
            let least = if top > below.1 {
                (below.0 + 1).min(most)
            } else {
                below.0
            };
            below = (units(top, area.height, fine).max(least), top);
            below.0
        })
        .collect();
    for y in 0..area.height {
        let foot = u32::from(area.height - 1 - y) * fine;
        let Some((&top, &ink)) = tops.iter().zip(layers).find(|(top, _)| **top > foot) else {
            continue;
        };
        let height = f64::from(foot) / f64::from(u32::from(area.height) * fine);
        if fine == 1 {
            let style = pen.theme.gradient(ink, 0.25 + 0.6 * height);
            pen.cell(area, x, y, pen.theme.glyph(ink), style);
            continue;
        }
        let (filled, lower, upper) = match top - foot {
            8.. => (8, ink, None),
            _ => two_of(std::array::from_fn(|i| {
                let mut reach = tops.iter().zip(layers);
                reach.find(|(top, _)| **top > foot + i as u32).map(|(_, &ink)| ink)
            })),
        };
        let style = pen.theme.gradient(lower, 0.25 + 0.6 * height);
        let style = match upper.and_then(|ink| shade(&pen.theme, ink, height)) {
            Some(ground) => style.bg(ground),
            None => style,
        };
        pen.cell(area, x, y, LOWER_EIGHTHS[filled], style);
    }
}

/// The two layers that a cell shows of all that meet in it, and how many eighths the lower one fills: what puts the fewest eighths
/// wrong. Where the whole stack ends counts more than which layer ends where.
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
            // Nothing at all is above when nothing is left of the cell.
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

/// A spark: one line, one sample a column, the newest at the right edge. Heights are shares from 0 to 1.
pub(super) fn spark(pen: &mut Pen<'_>, area: Rect, ink: Ink, samples: &[Option<f64>]) {
    let room = usize::from(area.width);
    let shown = &samples[samples.len().saturating_sub(room)..];
    let lead = room - shown.len();
    for (i, sample) in shown.iter().enumerate() {
        let Some(sample) = *sample else { continue };
        let filled = units(sample, 1, 8) as usize;
        let ramp = if pen.theme.ascii { ASCII_RAMP } else { LOWER_EIGHTHS };
        // A zero sample keeps its foot, so that "nothing" and "no sample" differ.
        let glyph = if filled == 0 {
            if pen.theme.ascii { '_' } else { '▁' }
        } else {
            ramp[filled]
        };
        let style = pen.theme.gradient(ink, sample);
        pen.cell(area, (lead + i) as u16, 0, glyph, style);
    }
}

/// The smallest round figure that is not below `bytes`: 1, 1.5, 2, 3, 4, 6, 8, 12, ... of a unit.
pub(super) fn ceiling(bytes: u64) -> u64 {
    let power = bytes.max(1).checked_next_power_of_two().unwrap_or(u64::MAX);
    if power >= 4 && power / 4 * 3 >= bytes {
        power / 4 * 3
    } else {
        power
    }
}
