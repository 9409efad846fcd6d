use super::*;
use crate::view::widgets::tests::{ASCII, COLOUR, Case, MONO, TRUE, assert_drawn, drawn};

const G: u64 = 1 << 30;
const PARTS: [Part; 5] = [
    (Ink::Allocated, 23 * G),
    (Ink::Cached, 18 * G),
    (Ink::Other, 10 * G),
    (Ink::Free, 28 * G),
    (Ink::Driver, G / 2),
];

#[test]
fn memory_bar_fills_every_width_exactly() {
    let two = [(Ink::Allocated, 3), (Ink::Cached, 5)];
    let most = [(Ink::Allocated, u64::MAX), (Ink::Free, 1), (Ink::Other, u64::MAX)];
    let cases: [Case<'_, &[Part]>; 15] = [
        (ASCII, &PARTS, (0, 0), &[]),
        (ASCII, &PARTS, (0, 1), &[""]),
        (ASCII, &PARTS, (3, 0), &[]),
        (ASCII, &PARTS, (1, 1), &["."]),
        (ASCII, &PARTS, (2, 1), &["#."]),
        (ASCII, &PARTS, (5, 1), &["#=~.r"]),
        (ASCII, &PARTS, (10, 2), &["###==~...r", "###==~...r"]),
        (ASCII, &PARTS, (40, 1), &["###########=========~~~~~..............r"]),
        (MONO, &PARTS, (10, 1), &["███▓▓░···╱"]),
        // A boundary within a cell is drawn in eighths if a cell can have two colours.
        (COLOUR, &two, (4, 1), &["█▌▓▓"]),
        (MONO, &two, (4, 1), &["██▓▓"]),
        (COLOUR, &[], (3, 1), &["   "]),
        (COLOUR, &[(Ink::Free, 0), (Ink::Cached, 0)], (3, 1), &["   "]),
        (MONO, &most, (7, 1), &["███·░░░"]),
        (MONO, &[(Ink::Pending, u64::MAX)], (3, 1), &["▒▒▒"]),
    ];
    for (theme, parts, size, lines) in cases {
        let bar = MemoryBar { theme, parts };
        assert_drawn(size, lines, |area, buf| bar.render(area, buf));
    }
}

#[test]
fn cell_of_two_parts_has_both_colours() {
    for theme in [COLOUR, TRUE] {
        let bar = MemoryBar {
            theme,
            parts: &[(Ink::Allocated, 3), (Ink::Cached, 5)],
        };
        let buffer = drawn((4, 1), |area, buf| bar.render(area, buf));
        let cell = &buffer[(1, 0)];
        assert_eq!(
            [Some(cell.fg), Some(cell.bg)],
            [theme.ground(Ink::Allocated), theme.ground(Ink::Cached)]
        );
    }
}

#[test]
fn solid_bar_is_as_long_as_its_eighths() {
    for (theme, eighths, size, line) in [
        (COLOUR, 0, (4, 1), "    "),
        (COLOUR, 1, (4, 1), "▏   "),
        (COLOUR, 8, (4, 1), "▓   "),
        (COLOUR, 20, (4, 1), "▓▓▌ "),
        (COLOUR, 33, (4, 1), "▓▓▓▓"),
        (COLOUR, u64::MAX, (4, 1), "▓▓▓▓"),
        (COLOUR, 20, (0, 1), ""),
        (MONO, 20, (4, 1), "▓▓▓ "),
        (ASCII, 1, (4, 1), "=   "),
    ] {
        let ink = Ink::Cached;
        let bar = SolidBar { theme, ink, eighths };
        assert_drawn(size, &[line], |area, buf| bar.render(area, buf));
    }
}

#[test]
fn meter_shows_a_share_in_half_cells() {
    for (theme, share, size, line) in [
        (COLOUR, 0.0, (4, 1), "┄┄┄┄"),
        (COLOUR, 0.5, (4, 1), "━━┄┄"),
        (COLOUR, 0.6, (4, 1), "━━╸┄"),
        (COLOUR, 1.0, (4, 1), "━━━━"),
        (MONO, 7.0, (4, 1), "━━━━"),
        (COLOUR, -1.0, (4, 1), "┄┄┄┄"),
        (COLOUR, f64::NAN, (4, 1), "┄┄┄┄"),
        (COLOUR, f64::INFINITY, (4, 1), "┄┄┄┄"),
        (ASCII, 0.6, (4, 1), "==-."),
        (COLOUR, 0.5, (1, 1), "╸"),
        (COLOUR, 0.5, (0, 1), ""),
    ] {
        let ink = Ink::Accent;
        let meter = Meter { theme, ink, share };
        assert_drawn(size, &[line], |area, buf| meter.render(area, buf));
    }
    let meter = Meter {
        theme: COLOUR,
        ink: Ink::Accent,
        share: 0.5,
    };
    let buffer = drawn((2, 1), |area, buf| meter.render(area, buf));
    assert_eq!(
        [Some(buffer[(0, 0)].fg), Some(buffer[(1, 0)].fg)],
        [COLOUR.color(Ink::Accent), COLOUR.color(Ink::Dim)]
    );
}

#[test]
fn swatch_is_the_glyph_of_its_state_and_lower_if_solid() {
    for (theme, ink, glyph) in [
        (COLOUR, Ink::Allocated, "▇"),
        (COLOUR, Ink::Cached, "▓"),
        (MONO, Ink::Free, "·"),
        (ASCII, Ink::Allocated, "#"),
        (COLOUR, Ink::Tag(2), "3"),
    ] {
        assert_eq!(swatch(&theme, ink).content, glyph, "{ink:?}");
    }
}
