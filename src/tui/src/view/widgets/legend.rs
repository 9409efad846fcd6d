//! A legend of the parts of a device's memory with their figures, in one line.

use ratatui::text::{Line, Span};

use super::bar::swatch;
use crate::view::theme::{Ink, Theme};
use crate::wrap::width;

/// A part: its meaning, its name, its bytes, and its drop rank. If not all fit, the highest rank is dropped first; 0 never is.
pub(in crate::view) type Entry = (Ink, &'static str, u64, u8);

/// The parts of a device's memory with their figures.
#[derive(Clone, Debug)]
pub(in crate::view) struct Legend<'a, F> {
    /// Colours and glyphs.
    pub(in crate::view) theme: Theme,
    /// The parts from the left.
    pub(in crate::view) entries: Vec<Entry>,
    /// Bytes of the whole memory.
    pub(in crate::view) total: u64,
    /// Formats a number of bytes.
    pub(in crate::view) text: F,
    /// The unit behind the last figure.
    pub(in crate::view) unit: &'a str,
}

/// Returns the name of a part. The short names are those of the process table.
fn name(entry: &Entry, short: bool) -> &'static str {
    if short && entry.0 == Ink::Allocated {
        "alloc"
    } else {
        entry.1
    }
}

impl<F: Fn(u64) -> String> Legend<'_, F> {
    /// Returns as many entries as fit into `room` columns without being cut. A part that holds more than half of the device
    /// matters most, and a tiny one least. Each entry ends with the gap behind it, so more can be drawn at the line's width.
    pub(in crate::view) fn line(mut self, room: u16) -> Line<'static> {
        let gap = if self.width(3, false) <= room { 3 } else { 2 };
        let short = self.drop_entries(room, gap);
        let mut line = Line::default();
        let mut x = 0;
        let last = self.entries.len().saturating_sub(1);
        for (i, entry) in self.entries.iter().enumerate() {
            let label = name(entry, short);
            let unit = if i == last { self.unit } else { "" };
            let figure = format!("{}{unit}", (self.text)(entry.2));
            let end = x + 2 + width(label) + 1 + width(&figure);
            if end > room {
                break;
            }
            line.extend([
                swatch(&self.theme, entry.0),
                Span::raw(" "),
                Span::styled(label, self.theme.ink(Ink::Dim)),
                Span::raw(format!(" {figure}{:1$}", "", usize::from(gap))),
            ]);
            x = end + gap;
        }
        line
    }

    /// Returns the columns that all entries take with a gap behind each.
    fn width(&self, gap: u16, short: bool) -> u16 {
        let each = self
            .entries
            .iter()
            .map(|e| 2 + width(name(e, short)) + 1 + width(&(self.text)(e.2)) + gap);
        each.sum::<u16>() + width(self.unit)
    }

    /// Drops entries until the others fit, and returns whether they need their short names for that.
    fn drop_entries(&mut self, room: u16, gap: u16) -> bool {
        // The last entry needs no gap.
        let fits = |legend: &Self, short| legend.width(gap, short) <= room.saturating_add(gap);
        let mut whole = true;
        while self.entries.len() > 1 && !fits(self, false) {
            let little = |e: &Entry| e.3 > 0 && e.2 < self.total / 50;
            // A bar that is mostly of one colour means nothing without the name of that colour.
            let rank = |e: &Entry| (little(e), e.3 > 0, e.2 <= self.total / 2, e.3);
            let dropped = (0..self.entries.len())
                .max_by_key(|&i| rank(&self.entries[i]))
                .unwrap_or(0);
            // Short names are used only if they keep every entry but the tiny ones.
            if whole && fits(self, true) {
                return true;
            }
            whole &= little(&self.entries[dropped]);
            self.entries.remove(dropped);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::widgets::tests::{ASCII, COLOUR};

    const PARTS: [Entry; 4] = [
        (Ink::Allocated, "allocated", 30, 1),
        (Ink::Cached, "cached", 20, 2),
        (Ink::Other, "other", 1, 3),
        (Ink::Free, "free", 49, 0),
    ];

    #[test]
    fn least_important_entries_are_dropped_whole() {
        let cases: [(Theme, &[Entry], u16, &str); 12] = [
            (
                COLOUR,
                &PARTS,
                80,
                "▇ allocated 30   ▓ cached 20   ░ other 1   · free 49 B   ",
            ),
            (
                ASCII,
                &PARTS,
                52,
                "# allocated 30  = cached 20  ~ other 1  . free 49 B  ",
            ),
            (COLOUR, &PARTS, 50, "▇ alloc 30  ▓ cached 20  ░ other 1  · free 49 B  "),
            (COLOUR, &PARTS, 41, "▇ allocated 30  ▓ cached 20  · free 49 B  "),
            (COLOUR, &PARTS, 37, "▇ alloc 30  ▓ cached 20  · free 49 B  "),
            (COLOUR, &PARTS, 28, "▇ allocated 30  · free 49 B  "),
            (COLOUR, &PARTS, 20, "· free 49 B  "),
            (COLOUR, &PARTS, 11, "· free 49 B  "),
            (COLOUR, &PARTS, 10, ""),
            (COLOUR, &PARTS, 0, ""),
            (COLOUR, &[], 10, ""),
            (
                COLOUR,
                &[(Ink::Other, "other", u64::MAX, 1)],
                40,
                "░ other 18446744073709551615 B   ",
            ),
        ];
        for (theme, entries, room, text) in cases {
            let legend = Legend {
                theme,
                entries: entries.to_vec(),
                total: 100,
                text: |bytes: u64| bytes.to_string(),
                unit: " B",
            };
            assert_eq!(legend.line(room).to_string(), text, "in {room} columns");
        }
    }
}
