//! The palette. Deuteranopic, protanopic and normal eyes can all tell blue from amber; the other colours differ in lightness
//! as well as in hue. Text colours have a contrast of about 3:1 or more on both #101216 and #ffffff.

use ratatui::style::Color;

use super::Ink;

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
    let (base, deep, bright, indexed, basic) = match n % 5 {
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
