use super::*;
use crate::view::widgets::tests::{ASCII, COLOUR, Case, MONO, TRUE, assert_drawn, drawn};

const LAYERS: [Ink; 2] = [Ink::Allocated, Ink::Cached];

type Column = Option<Spread<[f64; 2]>>;

/// Returns columns of one moment each.
fn steady(columns: &[Option<[f64; 2]>]) -> Vec<Column> {
    columns.iter().map(|tops| tops.map(Spread::of)).collect()
}

#[test]
fn half_tone_reaches_from_the_least_to_the_most() {
    let spread = |least, most| [Some(Spread { least, most })];
    let steep = spread([0.25, 0.25], [0.75, 0.75]);
    let inner = spread([0.25, 1.0], [0.75, 1.0]);
    let cases: [Case<'_, &[Column]>; 6] = [
        (COLOUR, &steep, (1, 4), &[" ", "▒", "▒", "█"]),
        (MONO, &steep, (1, 4), &[" ", "▒", "▒", "█"]),
        (COLOUR, &inner, (1, 4), &["█", "▒", "▒", "█"]),
        (MONO, &inner, (1, 4), &["▓", "▒", "▒", "█"]),
        // Less than half of a cell: the most is drawn.
        (COLOUR, &spread([0.5, 0.5], [0.6, 0.6]), (1, 2), &["▂", "█"]),
        (COLOUR, &spread([0.0, 0.0], [1.0, 1.0]), (1, 2), &["▒", "▒"]),
    ];
    for (theme, columns, size, lines) in cases {
        let layers = &LAYERS;
        let graph = StackedGraph { theme, layers, columns };
        assert_drawn(size, lines, |area, buf| graph.render(area, buf));
    }
    // Behind a half-tone is the layer that was always there.
    let columns = &inner[..];
    let graph = StackedGraph {
        theme: TRUE,
        layers: &LAYERS,
        columns,
    };
    let buffer = drawn((1, 4), |area, buf| graph.render(area, buf));
    let cell = &buffer[(0, 1)];
    assert_eq!(
        [Some(cell.fg), Some(cell.bg)],
        [shade(&TRUE, Ink::Allocated, 0.5), shade(&TRUE, Ink::Cached, 0.5)]
    );
}

#[test]
fn stacked_layers_meet_within_a_cell() {
    let cases: [Case<'_, &[Option<[f64; 2]>]>; 12] = [
        (COLOUR, &[Some([0.25, 0.75])], (1, 2), &["▄", "▄"]),
        (COLOUR, &[Some([0.5, 0.5])], (1, 2), &[" ", "█"]),
        (COLOUR, &[Some([0.0, 1.0])], (1, 2), &["█", "█"]),
        (ASCII, &[Some([0.5, 1.0])], (1, 2), &["=", "#"]),
        (COLOUR, &[Some([f64::NAN, f64::INFINITY])], (1, 2), &[" ", " "]),
        (COLOUR, &[Some([9.0, 9.0])], (1, 2), &["█", "█"]),
        // A layer is drawn however low it is.
        (COLOUR, &[Some([1e-9, 2e-9])], (1, 2), &[" ", "▂"]),
        (
            ASCII,
            &[None, Some([0.1, 0.2]), None],
            (4, 3),
            &["    ", " =  ", " #  "],
        ),
        (COLOUR, &[Some([1.0, 1.0]); 3], (2, 1), &["██"]),
        (COLOUR, &[], (2, 1), &["  "]),
        (COLOUR, &[Some([1.0, 1.0])], (0, 3), &[]),
        (COLOUR, &[Some([1.0, 1.0])], (3, 0), &[]),
    ];
    for (theme, columns, size, lines) in cases {
        let layers = &LAYERS;
        let columns = &steady(columns)[..];
        let graph = StackedGraph { theme, layers, columns };
        assert_drawn(size, lines, |area, buf| graph.render(area, buf));
    }
}

#[test]
fn cell_of_two_layers_has_both_colours_brighter_above() {
    let graph = StackedGraph {
        theme: TRUE,
        layers: &LAYERS,
        columns: &steady(&[Some([0.25, 1.0])]),
    };
    let buffer = drawn((1, 2), |area, buf| graph.render(area, buf));
    let (top, foot) = (&buffer[(0, 0)], &buffer[(0, 1)]);
    assert_eq!(
        [Some(foot.fg), Some(foot.bg), Some(top.fg)],
        [
            shade(&TRUE, Ink::Allocated, 0.0),
            shade(&TRUE, Ink::Cached, 0.0),
            shade(&TRUE, Ink::Cached, 0.5)
        ]
    );
}

#[test]
fn cell_of_many_layers_shows_the_two_largest() {
    let (a, b, c) = (Some(Ink::Allocated), Some(Ink::Cached), Some(Ink::Other));
    // Thin layers at the bottom do not colour those above them.
    assert_eq!(two_of([a, b, c, c, c, c, c, c]), (2, Ink::Allocated, c));
    assert_eq!(two_of([a, b, b, c, c, c, c, c]), (3, Ink::Cached, c));
    // The height of the stack is kept.
    assert_eq!(
        two_of([a, b, None, None, None, None, None, None]),
        (2, Ink::Allocated, None)
    );
    assert_eq!(two_of([a, b, b, b, None, None, None, None]), (4, Ink::Cached, None));
    assert_eq!(two_of([a, a, a, b, b, b, b, b]), (3, Ink::Allocated, b));
    assert_eq!(two_of([b; 8]), (8, Ink::Cached, None));
}
