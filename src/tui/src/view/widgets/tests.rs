//! Helpers of the widget tests.

use ratatui::buffer::Buffer;
use ratatui::layout::{Offset, Rect};
use ratatui::style::Style;
use ratatui::widgets::Widget;

use crate::model::{Colors, Spread};
use crate::view::theme::{Ink, Theme};
use crate::view::widgets::bar::SolidBar;
use crate::view::widgets::*;

pub(in crate::view) const TRUE: Theme = Theme::new(Colors::True, false);
pub(in crate::view) const COLOUR: Theme = Theme::new(Colors::Ansi256, false);
pub(in crate::view) const MONO: Theme = Theme::new(Colors::Mono, false);
pub(in crate::view) const ASCII: Theme = Theme::new(Colors::Mono, true);

/// Renders into an area of a larger buffer and returns the area's cells. Fails if a cell outside the area changes.
pub(in crate::view) fn drawn(size: (u16, u16), render: impl FnOnce(Rect, &mut Buffer)) -> Buffer {
    let inner = Rect::new(2, 1, size.0, size.1);
    let mut buffer = Buffer::empty(Rect::new(0, 0, size.0 + 5, size.1 + 3));
    render(inner, &mut buffer);
    let mut out = Buffer::empty(Rect::new(0, 0, size.0, size.1));
    for at in out.area.positions() {
        out[at] = buffer[at + Offset::new(2, 1)].clone();
    }
    for at in inner.positions() {
        buffer[at].reset();
    }
    assert_eq!(buffer, Buffer::empty(buffer.area), "drawn beside an area of {size:?}");
    out
}

/// Renders like `drawn` and resets the styles.
pub(in crate::view) fn letters(size: (u16, u16), render: impl FnOnce(Rect, &mut Buffer)) -> Buffer {
    let mut buffer = drawn(size, render);
    buffer.set_style(buffer.area, Style::reset());
    buffer
}

/// A theme, the content of a widget, the size of its area, and the expected lines.
pub(in crate::view) type Case<'a, T> = (Theme, T, (u16, u16), &'a [&'a str]);

/// Compares the drawn letters with lines of text. No lines means that nothing is drawn.
pub(in crate::view) fn assert_drawn(size: (u16, u16), lines: &[&str], render: impl FnOnce(Rect, &mut Buffer)) {
    let mut expected = Buffer::with_lines(lines.iter().copied());
    if lines.is_empty() {
        expected = Buffer::empty(Rect::new(0, 0, size.0, size.1));
    }
    assert_eq!(letters(size, render), expected, "in {size:?}");
}

/// An area that reaches beyond the buffer is clipped, as the popups of a small screen do.
#[test]
fn bars_and_graphs_stay_in_their_area_and_in_the_buffer() {
    for theme in [TRUE, COLOUR, MONO, ASCII] {
        let draw = |area: Rect, buf: &mut Buffer| {
            let (ink, parts) = (Ink::Allocated, [(Ink::Allocated, 3), (Ink::Cached, u64::MAX)]);
            MemoryBar { theme, parts: &parts }.render(area, buf);
            let eighths = u64::MAX;
            SolidBar { theme, ink, eighths }.render(area, buf);
            Meter { theme, ink, share: 0.5 }.render(area, buf);
            let samples = &[Some(0.5); 9];
            Spark { theme, ink, samples }.render(area, buf);
            let columns = &[Some(Spread {
                least: [0.3],
                most: [0.9],
            }); 9];
            let layers = &[ink];
            StackedGraph { theme, layers, columns }.render(area, buf);
        };
        for width in 0..6 {
            for height in 0..4 {
                drawn((width, height), draw);
                let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
                draw(Rect::new(1, 1, u16::MAX - 1, u16::MAX - 1), &mut buffer);
                draw(Rect::new(9, 9, 3, 3), &mut buffer);
            }
        }
    }
}
