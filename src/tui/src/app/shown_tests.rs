use proptest::prelude::*;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::*;

const W: u16 = 9;
const H: u16 = 3;

/// One, two and no columns wide, combined, with a variation selector, and of several code points.
const SYMBOLS: [&str; 14] = [
    " ",
    "a",
    "b",
    "─",
    "é",
    "e\u{301}",
    "日",
    "本",
    "한",
    "⌨\u{fe0f}",
    "❤\u{fe0f}",
    "👨\u{200d}👩",
    "ｶﾞ",
    "\u{301}",
];

fn styles() -> [Style; 6] {
    [
        Style::new(),
        Style::new().fg(Color::Red),
        Style::new().fg(Color::Rgb(1, 2, 3)),
        Style::new().bg(Color::Indexed(4)),
        Style::new().add_modifier(Modifier::BOLD),
        Style::new().add_modifier(Modifier::REVERSED),
    ]
}

/// What is drawn: pieces of text where and how, and whether a style is laid over a line.
type Picture = Vec<(u16, u16, Vec<usize>, usize, bool)>;

fn picture() -> impl Strategy<Value = Picture> {
    let text = prop::collection::vec(0..SYMBOLS.len(), 0..6);
    prop::collection::vec((0..W, 0..H, text, 0..6usize, any::<bool>()), 0..8)
}

fn draw(picture: &Picture) -> Buffer {
    let mut buffer = Buffer::empty(Rect::new(0, 0, W, H));
    for (x, y, text, style, line) in picture {
        let text: String = text.iter().map(|&i| SYMBOLS[i]).collect();
        let style = styles()[*style];
        buffer.set_stringn(*x, *y, text, usize::from(W), style);
        if *line {
            buffer.set_style(Rect::new(0, *y, W, 1), style);
        }
    }
    buffer
}

proptest! {
    /// ratatui's comparison of two buffers is the model. We may send more, and only the cell behind an emoji whose
    /// style changed: we do not tell symbol and style apart.
    #[test]
    fn sends_what_ratatui_would(pictures in prop::collection::vec(picture(), 1..6)) {
        let mut before = Buffer::empty(Rect::new(0, 0, W, H));
        let mut shown = Shown::blank(before.area);
        for picture in &pictures {
            let next = draw(picture);
            let ours: Vec<_> = shown.changes(&next).collect();
            let theirs = before.diff(&next);
            for change in &theirs {
                prop_assert!(ours.contains(change), "{change:?} is missing");
            }
            for change in ours.iter().filter(|c| !theirs.contains(c)) {
                let behind_emoji = change.0 > 0 && next[(change.0 - 1, change.1)].symbol().contains('\u{fe0f}');
                prop_assert!(behind_emoji, "{change:?} is too much");
            }
            prop_assert!(shown.changes(&next).next().is_none(), "what was sent is shown");
            before = next;
        }
    }

    /// No two cells that differ look the same.
    #[test]
    fn marks_tell_cells_apart(a in (0..SYMBOLS.len(), 0..6usize), b in (0..SYMBOLS.len(), 0..6usize)) {
        let mark = |(symbol, style): (usize, usize)| {
            let mut cell = Cell::EMPTY;
            cell.set_symbol(SYMBOLS[symbol]).set_style(styles()[style]);
            Mark::of(&cell)
        };
        prop_assert_eq!(mark(a) == mark(b), a == b);
    }
}

#[test]
fn every_colour_has_its_own_mark() {
    let mut seen = std::collections::HashSet::new();
    let named = (0..=255).map(Color::Indexed).chain([
        Color::Reset,
        Color::Black,
        Color::Red,
        Color::LightRed,
        Color::Gray,
        Color::DarkGray,
        Color::White,
    ]);
    for color in named {
        let mut cell = Cell::EMPTY;
        cell.set_fg(color);
        assert!(seen.insert(Mark::of(&cell).0), "{color:?}");
    }
    for r in 0..=255 {
        for g in [0, 1, 127, 255] {
            for ground in [false, true] {
                let color = Color::Rgb(r, g, 9);
                let style = if ground {
                    Style::new().bg(color)
                } else {
                    Style::new().fg(color)
                };
                let mut cell = Cell::EMPTY;
                cell.set_style(style);
                assert!(seen.insert(Mark::of(&cell).0), "{color:?} {ground}");
            }
        }
    }
}
