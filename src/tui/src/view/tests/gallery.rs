//! Writes screens as terminal output to files, to look at them: `GPUMEM_GALLERY=DIR cargo test gallery`.

use std::fmt::Write as _;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};

use super::fixture;
use crate::model::*;
use crate::view::draw;

/// Draws a model on a terminal of this size.
pub(super) fn drawn(mut model: Model, width: u16, height: u16, colors: Colors, ascii: bool) -> (Buffer, Hits) {
    model.ui.term = Term {
        width,
        height,
        colors,
        ascii,
        ..Term::default()
    };
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    let hits = draw(&mut buffer, &model);
    (buffer, hits)
}

fn color(out: &mut String, color: Color, ground: bool) {
    let base = if ground { 10 } else { 0 };
    let _ = match color {
        Color::Rgb(r, g, b) => write!(out, "\x1b[{};2;{r};{g};{b}m", 38 + base),
        Color::Indexed(i) => write!(out, "\x1b[{};5;{i}m", 38 + base),
        Color::Black => write!(out, "\x1b[{}m", 30 + base),
        Color::Yellow => write!(out, "\x1b[{}m", 33 + base),
        Color::Magenta => write!(out, "\x1b[{}m", 35 + base),
        Color::Green => write!(out, "\x1b[{}m", 32 + base),
        Color::Cyan => write!(out, "\x1b[{}m", 36 + base),
        Color::LightBlue => write!(out, "\x1b[{}m", 94 + base),
        Color::LightRed => write!(out, "\x1b[{}m", 91 + base),
        _ => Ok(()),
    };
}

/// Returns a buffer as escape sequences for a terminal.
fn ansi(buffer: &Buffer) -> String {
    let mut out = String::new();
    for y in 0..buffer.area.height {
        let _ = write!(out, "\x1b[{};1H", y + 1);
        for x in 0..buffer.area.width {
            let cell = &buffer[(x, y)];
            out.push_str("\x1b[0m");
            color(&mut out, cell.fg, false);
            color(&mut out, cell.bg, true);
            for (modifier, code) in [(Modifier::BOLD, 1), (Modifier::DIM, 2), (Modifier::REVERSED, 7)] {
                if cell.modifier.contains(modifier) {
                    let _ = write!(out, "\x1b[{code}m");
                }
            }
            out.push_str(cell.symbol());
        }
    }
    out
}

#[test]
fn gallery() {
    let Ok(dir) = std::env::var("GPUMEM_GALLERY") else {
        return;
    };
    for (name, model) in fixture::screens() {
        for (w, h) in [(80, 24), (120, 40), (200, 50)] {
            for (depth, colors, ascii) in [
                ("true", Colors::True, false),
                ("mono", Colors::Mono, false),
                ("ascii", Colors::Ansi16, true),
                ("256", Colors::Ansi256, false),
            ] {
                let (buffer, _) = drawn(model.clone(), w, h, colors, ascii);
                std::fs::write(format!("{dir}/{name}-{w}x{h}-{depth}.ansi"), ansi(&buffer)).expect("gallery folder");
            }
        }
    }
}
