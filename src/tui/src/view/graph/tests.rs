use ratatui::buffer::Buffer;

use super::super::theme::Theme;
use super::*;
use crate::model::Colors as Depth;

fn drawn(w: u16, h: u16, theme: Theme, draw: impl Fn(&mut Pen<'_>, Rect)) -> Vec<String> {
    let area = Rect::new(0, 0, w, h);
    let mut buffer = Buffer::empty(area);
    draw(&mut Pen::new(&mut buffer, theme), area);
    (0..h)
        .map(|y| (0..w).map(|x| buffer[(x, y)].symbol().to_owned()).collect())
        .collect()
}

const COLOUR: Theme = Theme {
    depth: Depth::Ansi256,
    ascii: false,
};
const ASCII: Theme = Theme {
    depth: Depth::Mono,
    ascii: true,
};

#[test]
fn a_spark_tells_nothing_from_no_sample() {
    let samples = [None, Some(0.0), Some(0.5), Some(1.0)];
    assert_eq!(
        drawn(4, 1, COLOUR, |pen, area| spark(pen, area, Ink::Accent, &samples)),
        [" ▁▄█"]
    );
    assert_eq!(
        drawn(4, 1, ASCII, |pen, area| spark(pen, area, Ink::Accent, &samples)),
        [" _-#"]
    );
    assert_eq!(
        drawn(1, 1, COLOUR, |pen, area| spark(pen, area, Ink::Accent, &samples)),
        ["█"]
    );
}

#[test]
fn stacked_layers_meet_within_a_cell() {
    let layers = [Ink::Allocated, Ink::Cached];
    let column = |theme, tops: [f64; 2]| drawn(1, 2, theme, |pen, area| stacked_column(pen, area, 0, &layers, &tops));
    assert_eq!(column(COLOUR, [0.25, 0.75]), ["▄", "▄"]);
    assert_eq!(column(COLOUR, [0.5, 0.5]), [" ", "█"]);
    assert_eq!(column(COLOUR, [0.0, 1.0]), ["█", "█"]);
    assert_eq!(column(ASCII, [0.5, 1.0]), ["=", "#"]);
    assert_eq!(column(COLOUR, [f64::NAN, f64::INFINITY]), [" ", " "]);
}

#[test]
fn of_many_layers_in_a_cell_the_two_that_fill_most_of_it_are_shown() {
    let (a, b, c) = (Some(Ink::Allocated), Some(Ink::Cached), Some(Ink::Other));
    // Slivers at the foot do not colour what lies above them.
    assert_eq!(two_of([a, b, c, c, c, c, c, c]), (2, Ink::Allocated, c));
    assert_eq!(two_of([a, b, b, c, c, c, c, c]), (3, Ink::Cached, c));
    // The stack is as high as it is.
    assert_eq!(
        two_of([a, b, None, None, None, None, None, None]),
        (2, Ink::Allocated, None)
    );
    assert_eq!(two_of([a, b, b, b, None, None, None, None]), (4, Ink::Cached, None));
    assert_eq!(two_of([a, a, a, b, b, b, b, b]), (3, Ink::Allocated, b));
    assert_eq!(two_of([b; 8]), (8, Ink::Cached, None));
}

#[test]
fn nothing_is_drawn_without_room() {
    for (w, h) in [(0, 0), (0, 3), (3, 0)] {
        drawn(w, h, COLOUR, |pen, area| {
            spark(pen, area, Ink::Allocated, &[Some(0.5)]);
            stacked_column(pen, area, 0, &[Ink::Allocated], &[0.5]);
        });
    }
}

#[test]
fn the_top_of_the_scale_is_round_and_not_below_the_figure() {
    for (bytes, top) in [
        (0, 1),
        (1, 1),
        (3, 3),
        (5, 6),
        (7, 8),
        (9, 12),
        (13, 16),
        (48 << 30, 48 << 30),
        (49 << 30, 64 << 30),
    ] {
        assert_eq!(ceiling(bytes), top);
    }
    assert!(ceiling(u64::MAX) >= u64::MAX / 4 * 3);
}
