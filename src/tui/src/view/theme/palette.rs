//! The palette. Deuteranopic, protanopic and normal eyes can all tell blue from amber; the other colours differ in lightness
//! as well as in hue. Text colours have a contrast of about 3:1 or more on both #101216 and #ffffff.

use ratatui::style::Color;

use super::Ink;
use crate::model::{Rgb as Chosen, TAG_COLOURS};

/// Red, green, blue.
pub(super) type Rgb = (u8, u8, u8);

/// The colours of one meaning at every depth.
#[derive(Clone, Copy)]
pub(super) struct Swatch {
    /// Text and flat areas.
    pub(super) base: Rgb,
    /// Bottom of a gradient, and the seam between two blocks.
    pub(super) deep: Rgb,
    /// Top of a gradient.
    pub(super) bright: Rgb,
    /// Texture and background of a filled cell; `None` draws the glyph in `base` on the terminal's own background.
    pub(super) texture: Option<(Rgb, Rgb)>,
    /// The nearest of xterm's 256 colours: for text and flat areas, and for texture and background of a filled cell.
    pub(super) indexed: (u8, Option<(u8, u8)>),
    /// One of the 16 colours; `None` for the terminal's own foreground, dimmed.
    pub(super) basic: Option<Color>,
}

impl Swatch {
    /// Returns the same in another colour, with shades of it.
    pub(super) fn in_color(self, Chosen(r, g, b): Chosen) -> Swatch {
        let base = (r, g, b);
        let [dark, darker, light] = [mix(base, BLACK, 0.2), mix(base, BLACK, 0.45), mix(base, WHITE, 0.35)];
        Swatch {
            base,
            deep: darker,
            bright: light,
            texture: self.texture.map(|_| (base, dark)),
            indexed: (indexed(base), self.indexed.1.map(|_| (indexed(base), indexed(dark)))),
            basic: Some(basic(base)),
        }
    }
}

const BLACK: Rgb = (0, 0, 0);
const WHITE: Rgb = (255, 255, 255);

/// Returns the colour between two, at a share from 0 (the first) to 1.
pub(super) fn mix(from: Rgb, to: Rgb, share: f64) -> Rgb {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    // The value lies between two bytes, so it fits into one.
    let channel = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * share).round() as u8;
    (channel(from.0, to.0), channel(from.1, to.1), channel(from.2, to.2))
}

fn distance(a: Rgb, b: Rgb) -> u32 {
    let channel = |a: u8, b: u8| u32::from(a.abs_diff(b)).pow(2);
    channel(a.0, b.0) + channel(a.1, b.1) + channel(a.2, b.2)
}

/// Returns the nearest of xterm's colours 16 to 255: a cube of 6x6x6 and 24 greys.
fn indexed(color: Rgb) -> u8 {
    const LEVELS: [u8; 6] = [0, 95, 135, 175, 215, 255];
    let of = |index: u8| match index {
        232.. => {
            let grey = 8 + 10 * (index - 232);
            (grey, grey, grey)
        }
        _ => {
            let cube = usize::from(index - 16);
            (LEVELS[cube / 36], LEVELS[cube / 6 % 6], LEVELS[cube % 6])
        }
    };
    (16..=255).min_by_key(|index| distance(of(*index), color)).unwrap_or(16)
}

/// Returns the nearest of the 16 colours, as xterm shows them.
fn basic(color: Rgb) -> Color {
    const COLORS: [(Color, Rgb); 15] = [
        (Color::Red, (205, 0, 0)),
        (Color::Green, (0, 205, 0)),
        (Color::Yellow, (205, 205, 0)),
        (Color::Blue, (0, 0, 238)),
        (Color::Magenta, (205, 0, 205)),
        (Color::Cyan, (0, 205, 205)),
        (Color::Gray, (229, 229, 229)),
        (Color::DarkGray, (127, 127, 127)),
        (Color::LightRed, (255, 0, 0)),
        (Color::LightGreen, (0, 255, 0)),
        (Color::LightYellow, (255, 255, 0)),
        (Color::LightBlue, (92, 92, 255)),
        (Color::LightMagenta, (255, 0, 255)),
        (Color::LightCyan, (0, 255, 255)),
        (Color::White, (255, 255, 255)),
    ];
    let nearest = COLORS.iter().min_by_key(|(_, shown)| distance(*shown, color));
    nearest.map_or(Color::White, |(color, _)| *color)
}

/// Background of the selected row.
pub(super) const SELECTED: Rgb = (38, 79, 120);
/// Text on the selected row.
pub(super) const ON_SELECTED: Rgb = (236, 242, 248);
/// Text on a background of any of the colours below.
pub(super) const ON_GROUND: Rgb = (16, 18, 22);

/// Returns the colours of a meaning, or `None` for the terminal's own.
pub(super) fn swatch(ink: Ink) -> Option<Swatch> {
    let swatch = |base, deep, bright, texture, indexed, basic| {
        Some(Swatch {
            base,
            deep,
            bright,
            texture,
            indexed,
            basic,
        })
    };
    match ink {
        Ink::Allocated => swatch(
            (84, 148, 226),
            (36, 78, 138),
            (128, 190, 250),
            Some(((70, 132, 208), (70, 132, 208))),
            (75, Some((68, 68))),
            Some(Color::LightBlue),
        ),
        Ink::Cached => swatch(
            (209, 152, 56),
            (128, 88, 24),
            (244, 197, 104),
            Some(((212, 158, 66), (178, 128, 46))),
            (179, Some((179, 136))),
            Some(Color::Yellow),
        ),
        Ink::Pending => swatch(
            (190, 120, 190),
            (110, 62, 112),
            (226, 164, 226),
            Some(((206, 140, 206), (150, 90, 152))),
            (176, Some((176, 96))),
            Some(Color::Magenta),
        ),
        Ink::Other => swatch(
            (128, 140, 160),
            (70, 80, 98),
            (170, 182, 202),
            Some(((140, 152, 172), (88, 99, 119))),
            (103, Some((103, 60))),
            None,
        ),
        Ink::Driver => swatch(
            (110, 116, 128),
            (60, 64, 72),
            (140, 146, 158),
            Some(((104, 110, 122), (58, 62, 71))),
            (243, Some((245, 238))),
            None,
        ),
        Ink::Free | Ink::Unmapped => swatch((104, 112, 126), (70, 76, 88), (140, 148, 162), None, (242, None), None),
        Ink::Tag(n) => tag(n),
        Ink::Warning => swatch(
            (228, 108, 60),
            (140, 60, 30),
            (255, 150, 100),
            None,
            (209, None),
            Some(Color::LightRed),
        ),
        Ink::Good => swatch(
            (62, 164, 150),
            (30, 100, 92),
            (110, 208, 192),
            None,
            (73, None),
            Some(Color::Green),
        ),
        Ink::Accent => swatch(
            (58, 164, 186),
            (24, 96, 112),
            (120, 214, 232),
            None,
            (80, None),
            Some(Color::Cyan),
        ),
        Ink::Dim => swatch((124, 132, 146), (70, 76, 88), (160, 168, 182), None, (245, None), None),
        Ink::Strong | Ink::Plain => None,
    }
}

/// Returns the colours of a tag. Neighbours differ in lightness, and each tag has its number beside it.
fn tag(n: u8) -> Option<Swatch> {
    let (base, deep, bright, indexed, basic) = match n % TAG_COLOURS {
        0 => ((72, 134, 214), (34, 74, 132), (116, 178, 244), 68, Color::LightBlue),
        1 => ((214, 134, 62), (132, 76, 28), (246, 178, 112), 173, Color::Yellow),
        2 => ((50, 148, 134), (26, 90, 82), (98, 200, 184), 72, Color::Green),
        3 => ((204, 104, 148), (120, 52, 84), (236, 154, 190), 168, Color::Magenta),
        _ => ((138, 138, 58), (80, 80, 30), (188, 188, 104), 143, Color::Cyan),
    };
    Some(Swatch {
        base,
        deep,
        bright,
        texture: None,
        indexed: (indexed, None),
        basic: Some(basic),
    })
}
