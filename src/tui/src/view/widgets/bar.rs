//! Bars: the parts of a device's memory, the bytes of one state, a share of a limit.

#[cfg(test)]
mod tests;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;
use ratatui::widgets::Widget;

use super::apportion::apportion;
use crate::view::theme::{Ink, Theme};

/// A part of a device's memory: its meaning and its bytes.
pub(in crate::view) type Part = (Ink, u64);

/// Eighths in a cell.
const EIGHTHS: u64 = 8;
const LEFT_EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// The parts of a device's memory side by side. They fill the whole width of the area, on every line.
#[derive(Clone, Copy, Debug)]
pub(in crate::view) struct MemoryBar<'a> {
    /// Colours and glyphs.
    pub(in crate::view) theme: Theme,
    /// The parts from the left. A part of 0 bytes is not drawn.
    pub(in crate::view) parts: &'a [Part],
}

impl Widget for MemoryBar<'_> {
    fn render(self, area: Rect, buf: &mut Buffer) {
        let area = area.intersection(buf.area);
        let values: Vec<u64> = self.parts.iter().map(|p| p.1).collect();
        let fine = if self.theme.has_eighths() { EIGHTHS } else { 1 };
        let shares = apportion(&values, u64::from(area.width) * fine, fine);
        let mut ends = Vec::with_capacity(self.parts.len());
        let mut end = 0;
        for (&(ink, _), share) in self.parts.iter().zip(shares) {
            end += share;
            if share > 0 {
                ends.push((end, ink));
            }
        }
        let mut part = 0;
        for (n, x) in (0..).zip(area.left()..area.right()) {
            let (from, to) = (n * fine, (n + 1) * fine);
            while part < ends.len() && ends[part].0 <= from {
                part += 1;
            }
            let Some(&(end, ink)) = ends.get(part) else { return };
            let (glyph, style) = match ends.get(part + 1) {
                Some(&(_, next)) if end < to => boundary(&self.theme, ink, next, end - from),
                _ => {
                    let tile = self.theme.tile(ink);
                    (tile.glyph, tile.style)
                }
            };
            for y in area.top()..area.bottom() {
                buf[(x, y)].set_char(glyph).set_style(style);
            }
        }
    }
}

/// Returns a cell that is `eighths` eighths of one state and the rest of another.
pub(super) fn boundary(theme: &Theme, left: Ink, right: Ink, eighths: u64) -> (char, Style) {
    let glyph = LEFT_EIGHTHS[(eighths % EIGHTHS) as usize];
    match (theme.ground(left), theme.ground(right)) {
        (Some(left), Some(right)) => (glyph, Style::new().fg(left).bg(right)),
        (Some(left), None) => (glyph, Style::new().fg(left)),
        // No glyph fills a cell from the right by eighths, so it is half or nothing.
        (None, Some(right)) => (if eighths <= 5 { '▐' } else { ' ' }, Style::new().fg(right)),
        (None, None) => (' ', Style::new()),
    }
}

/// A bar of one state. The cells beyond its length are left as they are.
#[derive(Clone, Copy, Debug)]
pub(in crate::view) struct SolidBar {
    /// Colours and glyphs.
    pub(in crate::view) theme: Theme,
    /// Its state.
    pub(in crate::view) ink: Ink,
    /// Its length in eighths of a cell, rounded up to a cell on terminals without partial blocks.
    pub(in crate::view) eighths: u64,
}

impl Widget for SolidBar {
    fn render(self, area: Rect, buf: &mut Buffer) {
        let area = area.intersection(buf.area);
        let tile = self.theme.tile(self.ink);
        let (whole, rest) = match self.theme.has_eighths() {
            true => (self.eighths / EIGHTHS, self.eighths % EIGHTHS),
            false => (self.eighths.div_ceil(EIGHTHS), 0),
        };
        for y in area.top()..area.bottom() {
            for (n, x) in (0..).zip(area.left()..area.right()) {
                if n < whole {
                    buf[(x, y)].set_char(tile.glyph).set_style(tile.style);
                } else if let (true, 1.., Some(color)) = (n == whole, rest, self.theme.ground(self.ink)) {
                    buf[(x, y)].set_char(LEFT_EIGHTHS[rest as usize]).set_fg(color);
                }
            }
        }
    }
}

/// A thin line that shows a share of a limit.
#[derive(Clone, Copy, Debug)]
pub(in crate::view) struct Meter {
    /// Colours and glyphs.
    pub(in crate::view) theme: Theme,
    /// The colour of the share.
    pub(in crate::view) ink: Ink,
    /// From 0 to 1. A value that is not finite counts as 0.
    pub(in crate::view) share: f64,
}

impl Widget for Meter {
    fn render(self, area: Rect, buf: &mut Buffer) {
        let area = area.intersection(buf.area);
        let share = if self.share.is_finite() { self.share } else { 0.0 };
        let halves = (share.clamp(0.0, 1.0) * f64::from(area.width) * 2.0).round() as u32;
        let (full, rest) = (self.theme.ink(self.ink), self.theme.ink(Ink::Dim));
        // The lookalikes of these line glyphs cannot be told apart, so the meter has ASCII glyphs of its own.
        let [none, half, whole] = if self.theme.ascii {
            ['.', '-', '=']
        } else {
            ['┄', '╸', '━']
        };
        for y in area.top()..area.bottom() {
            for (n, x) in (0..).zip(area.left()..area.right()) {
                let (glyph, style) = match halves.saturating_sub(2 * n) {
                    0 => (none, rest),
                    1 => (half, full),
                    _ => (whole, full),
                };
                buf[(x, y)].set_char(glyph).set_style(style);
            }
        }
    }
}

/// Returns the sample of a state in a legend. A solid one is a little lower than the cell, so that it does not merge with a
/// bar above it.
pub(in crate::view) fn swatch(theme: &Theme, ink: Ink) -> Span<'static> {
    let tile = theme.tile(ink);
    if tile.glyph == '█' {
        let style = theme.ground(ink).map_or(tile.style, |color| Style::new().fg(color));
        Span::styled("▇", style)
    } else {
        Span::styled(tile.glyph.to_string(), tile.style)
    }
}
