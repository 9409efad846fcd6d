//! A legend of the parts of a device's memory, in one line.

use gpumem_text::units::Form;
use ratatui::text::{Line, Span};

use super::bar::swatch;
use crate::view::theme::{Ink, Theme};
use crate::wrap::width;

/// A part: its meaning, its name, its bytes, and its drop rank. If not all fit, the highest rank is dropped first; 0 never is.
pub(in crate::view) type Entry = (Ink, &'static str, u64, u8);

/// What a legend has for each part, besides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::view) enum Says {
    /// The name and the bytes.
    Both,
    /// The name, where the bytes differ from device to device.
    Names,
    /// The bytes, where another legend has the names.
    Sizes,
}

/// The parts of a device's memory.
#[derive(Clone, Debug)]
pub(in crate::view) struct Legend {
    /// Colours and glyphs.
    pub(in crate::view) theme: Theme,
    /// The parts from the left.
    pub(in crate::view) entries: Vec<Entry>,
    /// Bytes of the whole memory.
    pub(in crate::view) total: u64,
    /// How bytes are written.
    pub(in crate::view) form: Form,
    /// What is written.
    pub(in crate::view) says: Says,
}

/// Returns the name of a part. The short names are those of the process table.
fn name(entry: &Entry, short: bool) -> &'static str {
    if short && entry.0 == Ink::Allocated {
        "alloc"
    } else {
        entry.1
    }
}

impl Legend {
    /// Returns it with its bytes in the short form, unless all entries fit into `room` columns as they are.
    pub(in crate::view) fn fitted(mut self, room: u16) -> Legend {
        if self.form == Form::Long && self.width(2, false) > room.saturating_add(2) {
            self.form = Form::Short;
        }
        self
    }

    /// Returns as many entries as fit into `room` columns without being cut. A part that holds more than half of the device
    /// matters most, and a tiny one least. Each entry ends with the gap behind it, so more can be drawn at the line's width.
    pub(in crate::view) fn line(mut self, room: u16) -> Line<'static> {
        let gap = if self.width(3, false) <= room { 3 } else { 2 };
        let short = self.drop_entries(room, gap);
        let mut line = Line::default();
        let mut x = 0;
        let last = self.entries.len().saturating_sub(1);
        for (i, entry) in self.entries.iter().enumerate() {
            let (label, figure) = self.texts(entry, short);
            let unit = if i == last { self.unit() } else { "" };
            let blank = if label.is_empty() || figure.is_empty() { "" } else { " " };
            let text = format!("{blank}{figure}{unit}");
            let end = x + 2 + width(label) + width(&text);
            if end > room {
                break;
            }
            line.extend([
                swatch(&self.theme, entry.0),
                Span::raw(" "),
                Span::styled(label, self.theme.ink(Ink::Dim)),
                Span::raw(format!("{text}{:1$}", "", usize::from(gap))),
            ]);
            x = end + gap;
        }
        line
    }

    /// Returns the name and the bytes of an entry as they are written.
    fn texts(&self, entry: &Entry, short: bool) -> (&'static str, String) {
        match self.says {
            Says::Both => (name(entry, short), self.form.size(entry.2)),
            Says::Names => (name(entry, short), String::new()),
            Says::Sizes => ("", self.form.size(entry.2)),
        }
    }

    /// Returns what stands behind the last entry.
    fn unit(&self) -> &'static str {
        match self.says {
            Says::Names => "",
            Says::Both | Says::Sizes => self.form.unit(),
        }
    }

    /// Returns the columns that all entries take with a gap behind each.
    fn width(&self, gap: u16, short: bool) -> u16 {
        let each = self.entries.iter().map(|entry| {
            let (label, figure) = self.texts(entry, short);
            let between = u16::from(!label.is_empty() && !figure.is_empty());
            2 + width(label) + between + width(&figure) + gap
        });
        each.sum::<u16>() + width(self.unit())
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

    const G: u64 = 1 << 30;
    const PARTS: [Entry; 4] = [
        (Ink::Allocated, "allocated", 30 * G, 1),
        (Ink::Cached, "cached", 20 * G, 2),
        (Ink::Other, "other", G, 3),
        (Ink::Free, "free", 49 * G, 0),
    ];

    fn legend(theme: Theme, entries: &[Entry], says: Says) -> Legend {
        Legend {
            theme,
            entries: entries.to_vec(),
            total: 100 * G,
            form: Form::of(entries.iter().map(|entry| entry.2)),
            says,
        }
    }

    #[test]
    fn least_important_entries_are_dropped_whole() {
        let cases: [(Theme, &[Entry], u16, &str); 12] = [
            (
                COLOUR,
                &PARTS,
                80,
                "▇ allocated 30.0   ▓ cached 20.0   ░ other 1.0   · free 49.0 GiB   ",
            ),
            (
                ASCII,
                &PARTS,
                62,
                "# allocated 30.0  = cached 20.0  ~ other 1.0  . free 49.0 GiB  ",
            ),
            (
                COLOUR,
                &PARTS,
                60,
                "▇ alloc 30.0  ▓ cached 20.0  ░ other 1.0  · free 49.0 GiB  ",
            ),
            (COLOUR, &PARTS, 48, "▇ allocated 30.0  ▓ cached 20.0  · free 49.0 GiB  "),
            (COLOUR, &PARTS, 46, "▇ alloc 30.0  ▓ cached 20.0  · free 49.0 GiB  "),
            (COLOUR, &PARTS, 36, "▇ allocated 30.0  · free 49.0 GiB  "),
            (COLOUR, &PARTS, 24, "· free 49.0 GiB  "),
            (COLOUR, &PARTS, 15, "· free 49.0 GiB  "),
            (COLOUR, &PARTS, 14, ""),
            (COLOUR, &PARTS, 0, ""),
            (COLOUR, &[], 10, ""),
            (COLOUR, &[(Ink::Other, "other", u64::MAX, 1)], 40, "░ other 16.0 EiB   "),
        ];
        for (theme, entries, room, text) in cases {
            let legend = legend(theme, entries, Says::Both);
            assert_eq!(legend.line(room).to_string(), text, "in {room} columns");
        }
    }

    #[test]
    fn legend_has_names_or_sizes_alone() {
        let parts = [PARTS[0], (Ink::Driver, "driver", G / 2, 4), PARTS[3]];
        for (says, room, text) in [
            (Says::Names, 80, "▇ allocated   ╱ driver   · free   "),
            (Says::Names, 27, "▇ alloc  ╱ driver  · free  "),
            (Says::Names, 10, "· free  "),
            (Says::Sizes, 80, "▇ 30.0 GiB   ╱ 512 MiB   · 49.0 GiB   "),
            (Says::Sizes, 25, "▇ 30.0G  ╱ 512M  · 49.0G  "),
            (Says::Sizes, 12, "· 49.0G  "),
            (
                Says::Both,
                80,
                "▇ allocated 30.0 GiB   ╱ driver 512 MiB   · free 49.0 GiB   ",
            ),
            (Says::Both, 48, "▇ allocated 30.0G  ╱ driver 512M  · free 49.0G  "),
        ] {
            let legend = legend(COLOUR, &parts, says).fitted(room);
            assert_eq!(legend.line(room).to_string(), text, "in {room} columns");
        }
    }
}
