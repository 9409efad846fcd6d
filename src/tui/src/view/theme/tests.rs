#![allow(clippy::unwrap_used)]

use std::collections::HashSet;

use ratatui::buffer::Cell;

use super::*;

const STATES: [Ink; 7] = [
    Ink::Allocated,
    Ink::Cached,
    Ink::Pending,
    Ink::Other,
    Ink::Driver,
    Ink::Free,
    Ink::Unmapped,
];

#[test]
fn every_state_has_its_own_glyph() {
    for ascii in [false, true] {
        let theme = Theme::new(Depth::Mono, ascii);
        let glyphs: HashSet<char> = STATES.iter().map(|&s| theme.glyph(s)).collect();
        assert_eq!(glyphs.len(), STATES.len());
        assert!(!ascii || glyphs.iter().all(char::is_ascii));
    }
}

#[test]
fn mono_uses_no_colour() {
    let theme = Theme::new(Depth::Mono, false);
    for ink in STATES
        .into_iter()
        .chain([Ink::Warning, Ink::Good, Ink::Accent, Ink::Dim, Ink::Strong, Ink::Plain])
    {
        for style in [
            theme.ink(ink),
            theme.tile(ink).style,
            theme.gradient(ink, 0.5),
            theme.selected(),
        ] {
            assert_eq!((style.fg, style.bg), (None, None), "{ink:?}");
        }
    }
}

#[test]
fn text_keeps_the_terminals_background() {
    for depth in [Depth::True, Depth::Ansi256, Depth::Ansi16] {
        for ink in [Ink::Allocated, Ink::Cached, Ink::Dim, Ink::Warning] {
            assert_eq!(Theme::new(depth, false).ink(ink).bg, None);
        }
    }
}

/// Returns the relative luminance as WCAG defines it.
fn luminance((r, g, b): palette::Rgb) -> f64 {
    let channel = |c: u8| {
        let c = f64::from(c) / 255.0;
        if c <= 0.04045 {
            c / 12.92
        } else {
            ((c + 0.055) / 1.055).powf(2.4)
        }
    };
    0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b)
}

fn contrast(a: palette::Rgb, b: palette::Rgb) -> f64 {
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[test]
fn text_is_legible_on_dark_and_light() {
    for ink in [
        Ink::Allocated,
        Ink::Warning,
        Ink::Good,
        Ink::Accent,
        Ink::Dim,
        Ink::Pending,
    ] {
        let base = swatch(ink).unwrap().base;
        assert!(
            contrast(base, (16, 18, 22)) >= 4.0,
            "{ink:?} on dark: {}",
            contrast(base, (16, 18, 22))
        );
        assert!(
            contrast(base, (255, 255, 255)) >= 2.7,
            "{ink:?} on light: {}",
            contrast(base, (255, 255, 255))
        );
    }
}

/// Simulates deuteranopia after Machado, Oliveira and Fernandes (2009), severity 1.0, in linear light.
fn deuteranopia((r, g, b): palette::Rgb) -> [f64; 3] {
    let linear = |c: u8| (f64::from(c) / 255.0).powf(2.2);
    let (r, g, b) = (linear(r), linear(g), linear(b));
    let row = |m: [f64; 3]| (m[0] * r + m[1] * g + m[2] * b).clamp(0.0, 1.0).powf(1.0 / 2.2) * 255.0;
    [
        row([0.367_322, 0.860_646, -0.227_968]),
        row([0.280_085, 0.672_501, 0.047_413]),
        row([-0.011_820, 0.042_940, 0.968_881]),
    ]
}

#[test]
fn states_differ_with_deuteranopia() {
    let solid = [Ink::Allocated, Ink::Cached, Ink::Pending, Ink::Other, Ink::Driver];
    for (i, &a) in solid.iter().enumerate() {
        for &b in &solid[i + 1..] {
            let shown = |ink: Ink| {
                let s = swatch(ink).unwrap();
                deuteranopia(s.texture.map_or(s.base, |t| t.1))
            };
            let distance = shown(a)
                .iter()
                .zip(shown(b))
                .map(|(x, y)| (x - y).powi(2))
                .sum::<f64>()
                .sqrt();
            assert!(distance > 30.0, "{a:?} and {b:?} are {distance:.0} apart");
        }
    }
}

#[test]
fn gradient_runs_from_deep_to_bright_at_any_height() {
    let theme = Theme::new(Depth::True, false);
    let at = |h| theme.gradient(Ink::Allocated, h).fg.unwrap();
    assert_ne!(at(0.0), at(1.0));
    assert_eq!(at(-5.0), at(0.0));
    assert_eq!(at(7.0), at(1.0));
    assert_eq!(at(f64::NAN), at(0.0));
}

#[test]
fn ascii_mode_writes_only_ascii() {
    let theme = Theme::new(Depth::True, true);
    let drawn = "a·…│─╭▸█°µ✓日é";
    let converted = |theme: Theme| {
        let mut buffer = Buffer::with_lines([drawn]);
        theme.replace_non_ascii(&mut buffer);
        buffer.content.iter().map(Cell::symbol).collect::<String>()
    };
    assert_eq!(converted(theme), "a-~|-+># u+? ?");
    assert_eq!(converted(Theme::default()), "a·…│─╭▸█°µ✓日 é");
}

#[test]
fn chosen_colour_is_used_at_every_depth() {
    let palette = Palette {
        allocated: Some(crate::model::Rgb(250, 5, 5)),
        ..Palette::default()
    };
    let theme = |depth| {
        Theme::of(&Term {
            colors: depth,
            palette,
            ..Term::default()
        })
    };
    let color = |depth| theme(depth).color(Ink::Allocated);
    assert_eq!(color(Depth::True), Some(Color::Rgb(250, 5, 5)));
    assert_eq!(color(Depth::Ansi256), Some(Color::Indexed(196)));
    assert_eq!(color(Depth::Ansi16), Some(Color::LightRed));
    assert_eq!(color(Depth::Mono), None);
    let tile = theme(Depth::True).tile(Ink::Allocated).style;
    assert_eq!(
        (tile.fg, tile.bg),
        (Some(Color::Rgb(250, 5, 5)), Some(Color::Rgb(200, 4, 4)))
    );
    for ink in [Ink::Cached, Ink::Free, Ink::Tag(0), Ink::Plain] {
        assert_eq!(
            theme(Depth::True).tile(ink),
            Theme::new(Depth::True, false).tile(ink),
            "{ink:?}"
        );
    }
}
