//! What the terminal shows, as one word per cell: enough to find the cells that change, at a fifth of the memory that a
//! second buffer takes.

use ratatui::buffer::{Buffer, Cell, CellWidth};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};

#[cfg(test)]
#[path = "shown_tests.rs"]
mod tests;

/// A cell in a word: columns it takes in the lowest byte, whether its style shows without a glyph in the next bit, and a
/// hash of everything in the rest. Two cells that differ are taken for equal once in 2^55.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark(u64);

impl Mark {
    fn of(cell: &Cell) -> Mark {
        let mut hash = 0;
        for chunk in cell.symbol().as_bytes().chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            hash = mix(hash, u64::from_le_bytes(word));
        }
        hash = mix(hash, color(cell.fg) | color(cell.bg) << 32);
        hash = mix(hash, u64::from(cell.modifier.bits()));
        let columns = u64::from(cell.cell_width().clamp(1, 255));
        let shows = cell.bg != Color::Reset || cell.modifier.intersects(SHOWS_ON_BLANK);
        Mark((hash & !0x1ff) | (u64::from(shows) << 8) | columns)
    }

    fn columns(self) -> usize {
        (self.0 & 0xff) as usize
    }

    fn shows_on_blank(self) -> bool {
        self.0 & 0x100 != 0
    }
}

/// Modifiers that are seen on a blank.
const SHOWS_ON_BLANK: Modifier = Modifier::REVERSED
    .union(Modifier::UNDERLINED)
    .union(Modifier::SLOW_BLINK)
    .union(Modifier::RAPID_BLINK)
    .union(Modifier::CROSSED_OUT);

/// A quick hash, a word at a time: ten thousand cells are hashed for a frame.
fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash.rotate_left(5) ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
    product as u64 ^ (product >> 64) as u64
}

/// A colour in 32 bits.
fn color(color: Color) -> u64 {
    let named = [
        Color::Reset,
        Color::Black,
        Color::Red,
        Color::Green,
        Color::Yellow,
        Color::Blue,
        Color::Magenta,
        Color::Cyan,
        Color::Gray,
        Color::DarkGray,
        Color::LightRed,
        Color::LightGreen,
        Color::LightYellow,
        Color::LightBlue,
        Color::LightMagenta,
        Color::LightCyan,
        Color::White,
    ];
    match color {
        Color::Rgb(r, g, b) => u64::from(u32::from_le_bytes([r, g, b, 2])),
        Color::Indexed(i) => u64::from(u32::from_le_bytes([i, 0, 0, 1])),
        named_one => named.iter().position(|&n| n == named_one).unwrap_or(named.len()) as u64,
    }
}

/// What the terminal shows.
#[derive(Debug)]
pub(super) struct Shown(Vec<Mark>);

impl Shown {
    /// A blank screen.
    pub(super) fn blank(area: Rect) -> Shown {
        Shown(vec![Mark::of(&Cell::EMPTY); area.area() as usize])
    }

    /// The cells of `next`, some lines of the screen, that have to be sent, in order. Once all are taken, `next` is what
    /// the terminal shows there.
    pub(super) fn changes<'a>(&'a mut self, next: &'a Buffer) -> Changes<'a> {
        let before = usize::from(next.area.y) * usize::from(next.area.width);
        let marks = self.0.get_mut(before..).unwrap_or_default();
        Changes {
            width: usize::from(next.area.width).max(1),
            top: next.area.y,
            cells: next.content.iter().zip(marks).enumerate(),
            last: None,
            behind: 0,
            uncovered: 0,
            forced: false,
        }
    }
}

/// The cells that change. Follows the rules of ratatui's own comparison of two buffers: cells behind a wide character
/// are not sent, and cells that a wide character with a visible style has left are sent even if they look the same.
pub(super) struct Changes<'a> {
    cells: std::iter::Enumerate<std::iter::Zip<std::slice::Iter<'a, Cell>, std::slice::IterMut<'a, Mark>>>,
    width: usize,
    /// Line of the first cell.
    top: u16,
    /// The cell before and its mark: neighbours are often alike.
    last: Option<(&'a Cell, Mark)>,
    /// Cells before this one lie behind a wide character.
    behind: usize,
    /// Cells before this one, and not behind a wide character, may be stale on the terminal ...
    uncovered: usize,
    /// ... however they look (a wide character left), or if they changed (an emoji that some terminals draw narrow).
    forced: bool,
}

impl Changes<'_> {
    /// Whether cell `i`, which looked `old` and looks `new`, is to be sent.
    fn sends(&mut self, i: usize, cell: &Cell, old: Mark, new: Mark) -> bool {
        if i < self.behind {
            return false;
        }
        let end = i + new.columns();
        if i < self.uncovered {
            self.behind = end;
            self.uncovered = self.uncovered.max(end);
            return self.forced || old != new;
        }
        if old != new && new.columns() > 1 && cell.symbol().contains('\u{fe0f}') {
            (self.uncovered, self.forced) = (end, false);
        } else if old != new && new.columns() == 1 && old.columns() > 1 && old.shows_on_blank() {
            (self.uncovered, self.forced) = (i + old.columns(), true);
        } else {
            self.behind = end;
        }
        old != new
    }
}

impl<'a> Iterator for Changes<'a> {
    type Item = (u16, u16, &'a Cell);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (i, (cell, mark)) = self.cells.next()?;
            let new = match self.last {
                Some((last, mark)) if last == cell => mark,
                _ => Mark::of(cell),
            };
            self.last = Some((cell, new));
            let old = std::mem::replace(mark, new);
            if self.sends(i, cell, old, new) {
                // Both are below a screen's width and height.
                return Some(((i % self.width) as u16, self.top + (i / self.width) as u16, cell));
            }
        }
    }
}
