//! A stacked bar: parts of a whole that always add up to its width.

#[cfg(test)]
mod tests;

use ratatui::layout::Rect;
use ratatui::style::Style;

use super::pen::Pen;
use super::theme::Ink;

/// A part: its meaning and its bytes.
pub(super) type Part = (Ink, u64);

/// Eighths of a cell.
const EIGHTHS: u64 = 8;
const LEFT_EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// Shares `room` units among parts by largest remainder. The sum is `room` exactly (when any part is not zero). A part
/// that is not zero gets at least `least` units while there is room for that; when there is not, the largest parts
/// get `least` each.
pub(super) fn apportion(parts: &[u64], room: u64, least: u64) -> Vec<u64> {
    let mut shares = vec![0; parts.len()];
    let total: u128 = parts.iter().map(|&p| u128::from(p)).sum();
    if total == 0 || room == 0 {
        return shares;
    }
    let live = parts.iter().filter(|&&p| p > 0).count() as u64;
    if live.saturating_mul(least) > room {
        let mut order: Vec<usize> = (0..parts.len()).filter(|&i| parts[i] > 0).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(parts[i]));
        let mut left = room;
        for i in order {
            shares[i] = least.min(left);
            left -= shares[i];
        }
        return shares;
    }
    // Parts too small for their share take the least; the rest is divided among the others, which may push further
    // ones below the least: at most one round per part.
    let mut fixed = vec![false; parts.len()];
    loop {
        let held: u64 = (0..parts.len()).filter(|&i| fixed[i]).map(|_| least).sum();
        let rest: u128 = (0..parts.len())
            .filter(|&i| !fixed[i])
            .map(|i| u128::from(parts[i]))
            .sum();
        let spare = u128::from(room - held);
        let mut changed = false;
        for i in 0..parts.len() {
            if parts[i] > 0 && !fixed[i] && u128::from(parts[i]) * spare < u128::from(least) * rest {
                fixed[i] = true;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    let held: u64 = fixed.iter().filter(|&&f| f).map(|_| least).sum();
    let spare = u128::from(room - held);
    let rest: u128 = (0..parts.len())
        .filter(|&i| !fixed[i])
        .map(|i| u128::from(parts[i]))
        .sum();
    let mut remainders = Vec::with_capacity(parts.len());
    for i in 0..parts.len() {
        let exact = u128::from(parts[i]) * spare;
        match exact.checked_div(rest).filter(|_| !fixed[i]) {
            // At most `spare`, which came from a u64.
            Some(share) => {
                shares[i] = share as u64;
                remainders.push((exact % rest, i));
            }
            None if fixed[i] => shares[i] = least,
            None => {}
        }
    }
    let missing = room - shares.iter().sum::<u64>();
    remainders.sort_by_key(|&(remainder, i)| (std::cmp::Reverse(remainder), i));
    for &(_, i) in remainders.iter().take(missing as usize) {
        shares[i] += 1;
    }
    shares
}

/// Draws the parts over the whole area, every line alike.
pub(super) fn stacked(pen: &mut Pen<'_>, area: Rect, parts: &[Part]) {
    let values: Vec<u64> = parts.iter().map(|p| p.1).collect();
    let fine = if pen.theme.has_eighths() { EIGHTHS } else { 1 };
    let shares = apportion(&values, u64::from(area.width) * fine, fine);
    let mut ends = Vec::with_capacity(parts.len());
    let mut end = 0;
    for (&(ink, _), share) in parts.iter().zip(shares) {
        end += share;
        if share > 0 {
            ends.push((end, ink));
        }
    }
    let mut part = 0;
    for x in 0..area.width {
        let (from, to) = (u64::from(x) * fine, (u64::from(x) + 1) * fine);
        while part < ends.len() && ends[part].0 <= from {
            part += 1;
        }
        let Some(&(end, ink)) = ends.get(part) else { return };
        let (glyph, style) = match ends.get(part + 1) {
            Some(&(_, next)) if end < to => boundary(pen, ink, next, end - from),
            _ => {
                let tile = pen.theme.tile(ink);
                (tile.glyph, tile.style)
            }
        };
        for y in 0..area.height {
            pen.cell(area, x, y, glyph, style);
        }
    }
}

/// A cell that is `eighths` of one state and then another.
pub(super) fn boundary(pen: &Pen<'_>, left: Ink, right: Ink, eighths: u64) -> (char, Style) {
    let (left, right) = (pen.theme.ground(left), pen.theme.ground(right));
    let glyph = LEFT_EIGHTHS[(eighths % EIGHTHS) as usize];
    match (left, right) {
        (Some(left), Some(right)) => (glyph, Style::new().fg(left).bg(right)),
        (Some(left), None) => (glyph, Style::new().fg(left)),
        // No glyph fills a cell from the right by eighths: half or nothing.
        (None, Some(right)) => (if eighths <= 5 { '▐' } else { ' ' }, Style::new().fg(right)),
        (None, None) => (' ', Style::new()),
    }
}

/// A bar of one state, so many eighths of a cell long.
pub(super) fn solid(pen: &mut Pen<'_>, area: Rect, ink: Ink, eighths: u64) {
    let tile = pen.theme.tile(ink);
    let whole = if pen.theme.has_eighths() {
        eighths / EIGHTHS
    } else {
        eighths.div_ceil(EIGHTHS)
    };
    let whole = whole.min(u64::from(area.width)) as u16;
    for x in 0..whole {
        pen.cell(area, x, 0, tile.glyph, tile.style);
    }
    if let (true, 1.., Some(color)) = (pen.theme.has_eighths(), eighths % EIGHTHS, pen.theme.ground(ink)) {
        pen.cell(
            area,
            whole,
            0,
            LEFT_EIGHTHS[(eighths % EIGHTHS) as usize],
            Style::new().fg(color),
        );
    }
}

/// A thin meter: a share of its limit.
pub(super) fn meter(pen: &mut Pen<'_>, area: Rect, ink: Ink, share: f64) {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let halves = (share * f64::from(area.width) * 2.0).round() as u16;
    let (full, rest) = (pen.theme.ink(ink), pen.theme.ink(Ink::Dim));
    for x in 0..area.width {
        let (glyph, style) = match halves.saturating_sub(2 * x) {
            0 => (if pen.theme.ascii { '.' } else { '┄' }, rest),
            1 => (if pen.theme.ascii { '-' } else { '╸' }, full),
            _ => (if pen.theme.ascii { '=' } else { '━' }, full),
        };
        pen.cell(area, x, 0, glyph, style);
    }
}

/// The sample of a state in a legend. Where a solid one would melt into a bar above it, it is a little lower.
pub(super) fn swatch(pen: &mut Pen<'_>, area: Rect, x: u16, y: u16, ink: Ink) {
    let tile = pen.theme.tile(ink);
    if tile.glyph == '█' {
        let style = pen.theme.ground(ink).map_or(tile.style, |color| Style::new().fg(color));
        pen.cell(area, x, y, '▇', style);
    } else {
        pen.cell(area, x, y, tile.glyph, tile.style);
    }
}
