//! Colours and glyphs: what each meaning looks like at each colour depth.
//!
//! Two rules hold everywhere. Every state has its own glyph besides its colour, so that nothing is lost on a monochrome
//! terminal, in a text copy of the screen, or to a colour-blind reader. The terminal's own foreground and background are
//! kept, so that the dashboard suits dark and light terminals.

mod palette;
#[cfg(test)]
mod tests;

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};

use crate::model::{Colors as Depth, Palette, TAG_GLYPHS, Term};
use palette::{Swatch, mix, swatch};

/// The meaning of a text or a cell, which decides its colour and glyph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Ink {
    /// Held by the program.
    Allocated,
    /// Reserved by the allocator, not in use by the program.
    Cached,
    /// Freed, still in use by queued GPU work.
    Pending,
    /// Held by processes that do not publish, and by the publishers' own contexts.
    Other,
    /// Held by the driver and firmware.
    Driver,
    /// Available to every process.
    Free,
    /// Address range without memory.
    Unmapped,
    /// Allocated for one of the program's tags, by number from 0.
    Tag(u8),
    /// Something to act on.
    Warning,
    /// Something that went well.
    Good,
    /// Titles, keys, the cursor.
    Accent,
    /// Labels, frames, axes.
    Dim,
    /// Text to be read first.
    Strong,
    /// Everything else: the terminal's own foreground.
    Plain,
}

/// One cell of a filled area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    /// The state's own glyph.
    pub(super) glyph: char,
    /// Its colours.
    pub(super) style: Style,
}

/// The look of a terminal: a colour depth and a glyph set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Theme {
    /// Colours.
    pub(super) depth: Depth,
    /// Whether only ASCII is written.
    pub(super) ascii: bool,
    /// Colours that the user chose.
    palette: Palette,
}

impl Theme {
    /// Returns the theme of a terminal.
    pub(super) fn of(term: &Term) -> Self {
        Theme {
            palette: term.palette,
            ..Theme::new(term.colors, term.ascii)
        }
    }

    /// Creates a theme for a colour depth and a glyph set.
    pub(super) const fn new(depth: Depth, ascii: bool) -> Self {
        Theme {
            depth,
            ascii,
            palette: Palette::BUILT_IN,
        }
    }

    /// Returns the colours of a meaning, or `None` for the terminal's own.
    fn swatch(&self, ink: Ink) -> Option<Swatch> {
        let Palette {
            allocated,
            cached,
            pending,
            other,
            driver,
            free,
            warning,
            good,
            accent,
            dim,
        } = self.palette;
        let chosen = match ink {
            Ink::Allocated => allocated,
            Ink::Cached => cached,
            Ink::Pending => pending,
            Ink::Other => other,
            Ink::Driver => driver,
            Ink::Free | Ink::Unmapped => free,
            Ink::Warning => warning,
            Ink::Good => good,
            Ink::Accent => accent,
            Ink::Dim => dim,
            Ink::Tag(_) | Ink::Strong | Ink::Plain => None,
        };
        let built_in = swatch(ink)?;
        Some(chosen.map_or(built_in, |color| built_in.in_color(color)))
    }

    /// Returns the style of text with this meaning.
    pub(super) fn ink(&self, ink: Ink) -> Style {
        let style = Style::new();
        match ink {
            Ink::Plain => return style,
            Ink::Strong => return style.add_modifier(Modifier::BOLD),
            _ => {}
        }
        let style = match (ink, self.color(ink)) {
            (_, Some(color)) => style.fg(color),
            (Ink::Dim | Ink::Driver | Ink::Free | Ink::Unmapped, None) => style.add_modifier(Modifier::DIM),
            (Ink::Warning | Ink::Accent, None) => style.add_modifier(Modifier::BOLD),
            _ => style,
        };
        if ink == Ink::Warning {
            style.add_modifier(Modifier::BOLD)
        } else {
            style
        }
    }

    /// Returns the flat colour of a meaning, or `None` where the depth has none for it.
    pub(super) fn color(&self, ink: Ink) -> Option<Color> {
        let Swatch {
            base, indexed, basic, ..
        } = self.swatch(ink)?;
        match self.depth {
            Depth::True => Some(rgb(base)),
            Depth::Ansi256 => Some(Color::Indexed(indexed.0)),
            Depth::Ansi16 => basic,
            Depth::Mono => None,
        }
    }

    /// Returns the cell that fills an area of this state. With 256 colours or more it is a faint texture on a solid background.
    pub(super) fn tile(&self, ink: Ink) -> Tile {
        let glyph = self.glyph(ink);
        let style = self.ink(ink).remove_modifier(Modifier::BOLD);
        let style = match self.texture(ink) {
            Some((texture, ground)) => style.fg(texture).bg(ground),
            None => style,
        };
        Tile { glyph, style }
    }

    /// Returns the flat colour closest to a tile of this state, for cells that are part this state and part another. `None`:
    /// nothing is drawn.
    pub(super) fn ground(&self, ink: Ink) -> Option<Color> {
        if matches!(ink, Ink::Free | Ink::Unmapped) {
            return None;
        }
        // How much of a cell the glyph covers.
        let cover = match ink {
            Ink::Cached => 0.75,
            Ink::Pending => 0.5,
            Ink::Other => 0.25,
            _ => 0.15,
        };
        match (self.depth, self.swatch(ink).and_then(|s| s.texture), self.texture(ink)) {
            (Depth::True, Some((texture, ground)), _) => Some(rgb(mix(ground, texture, cover))),
            (_, _, Some((texture, ground))) => Some(if cover >= 0.5 { texture } else { ground }),
            _ => self.color(ink),
        }
    }

    /// Returns the texture and background of a filled cell.
    fn texture(&self, ink: Ink) -> Option<(Color, Color)> {
        let swatch = self.swatch(ink)?;
        match self.depth {
            Depth::True => swatch.texture.map(|(texture, ground)| (rgb(texture), rgb(ground))),
            Depth::Ansi256 => swatch
                .indexed
                .1
                .map(|(texture, ground)| (Color::Indexed(texture), Color::Indexed(ground))),
            Depth::Ansi16 | Depth::Mono => None,
        }
    }

    /// Returns a lighter shade for the block under the cursor, or `None` without true colour.
    pub(super) fn bright(&self, ink: Ink) -> Option<Color> {
        (self.depth == Depth::True)
            .then(|| self.swatch(ink).map(|s| rgb(s.bright)))
            .flatten()
    }

    /// Returns the glyph of a state.
    pub(super) fn glyph(&self, ink: Ink) -> char {
        let (unicode, ascii) = match ink {
            Ink::Allocated => ('█', '#'),
            Ink::Cached => ('▓', '='),
            Ink::Pending => ('▒', '%'),
            Ink::Other => ('░', '~'),
            Ink::Driver => ('╱', 'r'),
            Ink::Free => ('·', '.'),
            Ink::Unmapped => ('╌', '-'),
            // Its number, from 1.
            Ink::Tag(n) => {
                let digit = char::from(b'1' + n % TAG_GLYPHS);
                (digit, digit)
            }
            Ink::Warning => ('▲', '!'),
            Ink::Good => ('✓', '+'),
            Ink::Accent | Ink::Dim | Ink::Strong | Ink::Plain => ('•', '*'),
        };
        if self.ascii { ascii } else { unicode }
    }

    /// Returns the style of a letter on a coloured background, reversed if there is no colour.
    pub(super) fn on(&self, ground: Option<Color>) -> Style {
        let dark = match self.depth {
            Depth::True => rgb(palette::ON_GROUND),
            _ => Color::Black,
        };
        match ground {
            Some(color) => Style::new().fg(dark).bg(color),
            None => Style::new().add_modifier(Modifier::REVERSED),
        }
    }

    /// Returns the style of a graph at a height from 0 (bottom, dark) to 1 (top, bright).
    pub(super) fn gradient(&self, ink: Ink, height: f64) -> Style {
        let Some(Swatch { deep, bright, .. }) = self.swatch(ink) else {
            return self.ink(ink);
        };
        match self.depth {
            Depth::True => Style::new().fg(rgb(mix(deep, bright, height))),
            _ => match self.ground(ink) {
                Some(color) => Style::new().fg(color),
                None => self.ink(ink).remove_modifier(Modifier::BOLD),
            },
        }
    }

    /// Returns a darker shade of a state for the seams between blocks, or `None` where the depth cannot show one.
    pub(super) fn seam(&self, ink: Ink) -> Option<Color> {
        match self.depth {
            Depth::True => self.swatch(ink).map(|s| rgb(s.deep)),
            Depth::Ansi256 => Some(Color::Indexed(236)),
            Depth::Ansi16 | Depth::Mono => None,
        }
    }

    /// Returns the style of the selected row or tab.
    pub(super) fn selected(&self) -> Style {
        match self.depth {
            Depth::True => Style::new().bg(rgb(palette::SELECTED)).fg(rgb(palette::ON_SELECTED)),
            Depth::Ansi256 => Style::new().bg(Color::Indexed(24)).fg(Color::Indexed(255)),
            Depth::Ansi16 | Depth::Mono => Style::new().add_modifier(Modifier::REVERSED),
        }
    }

    /// Checks whether partial blocks with a foreground and a background can be drawn.
    pub(super) fn has_eighths(&self) -> bool {
        !self.ascii && self.depth != Depth::Mono
    }

    /// Replaces every other character by a similar one in ASCII mode.
    pub(super) fn replace_non_ascii(&self, buffer: &mut Buffer) {
        if !self.ascii {
            return;
        }
        for cell in buffer.content.iter_mut().filter(|cell| !cell.symbol().is_ascii()) {
            let mut letters = cell.symbol().chars();
            let lookalike = match (letters.next(), letters.next()) {
                (Some(letter), None) => ascii_lookalike(letter),
                _ => '?',
            };
            cell.set_char(lookalike);
        }
    }
}

/// Returns the ASCII character that looks most like `c`.
fn ascii_lookalike(c: char) -> char {
    match c {
        '·' | '•' => '-',
        // Not a full stop, which would make a cut text look complete.
        '…' => '~',
        '│' | '┊' | '▏' | '▌' => '|',
        // Where a block begins.
        '▐' => '[',
        '─' | '━' | '╌' | '┄' => '-',
        '╾' => '|',
        '┈' => '.',
        '┤' => '|',
        '╭' | '╮' | '╰' | '╯' => '+',
        '▸' | '▶' | '→' | '›' | '≥' => '>',
        '◂' | '◀' | '←' | '‹' => '<',
        '▴' | '▲' | '↑' => '^',
        '▾' | '▼' | '↓' => 'v',
        '█' | '▇' | '▆' | '▅' => '#',
        '▄' | '▃' | '▂' | '▁' => '_',
        '°' => ' ',
        '×' => 'x',
        'µ' => 'u',
        '▒' => ':',
        '✓' => '+',
        '✗' => 'x',
        '●' => '*',
        '○' => 'o',
        _ => '?',
    }
}

fn rgb((r, g, b): palette::Rgb) -> Color {
    Color::Rgb(r, g, b)
}
