#![allow(clippy::unwrap_used)]

use ratatui::buffer::Buffer;

use super::super::theme::Theme;
use super::*;
use crate::model::Colors as Depth;

const G: u64 = 1 << 30;
const PARTS: [Part; 5] = [
    (Ink::Allocated, 23 * G),
    (Ink::Cached, 18 * G),
    (Ink::Other, 10 * G),
    (Ink::Free, 28 * G),
    (Ink::Driver, G / 2),
];

fn line(width: u16, theme: Theme, parts: &[Part]) -> String {
    let area = Rect::new(0, 0, width, 1);
    let mut buffer = Buffer::empty(area);
    stacked(&mut Pen::new(&mut buffer, theme), area, parts);
    (0..width).map(|x| buffer[(x, 0)].symbol().to_owned()).collect()
}

#[test]
fn shares_add_up_and_no_part_vanishes_while_there_is_room() {
    let cases: [&[u64]; 6] = [
        &[1, 1, 1],
        &[1, 1_000_000],
        &[0, 5, 0, 7],
        &[u64::MAX, 1, u64::MAX],
        &[3],
        &[1, 2, 3, 4, 5, 6, 1_000_000_000],
    ];
    for parts in cases {
        for room in 0..200 {
            for least in [1, 8] {
                let shares = apportion(parts, room, least);
                assert_eq!(shares.iter().sum::<u64>(), room, "{parts:?} in {room}");
                let live = parts.iter().filter(|&&p| p > 0).count() as u64;
                for (&part, &share) in parts.iter().zip(&shares) {
                    assert!(part > 0 || share == 0);
                    assert!(
                        part == 0 || share >= least || live * least > room,
                        "{parts:?} in {room}: {shares:?}"
                    );
                }
            }
        }
    }
    assert_eq!(apportion(&[0, 0], 10, 1), [0, 0]);
    assert_eq!(apportion(&[], 10, 1), [0; 0]);
}

#[test]
fn without_a_small_part_shares_are_the_nearest_to_proportion() {
    assert_eq!(apportion(&[50, 30, 20], 10, 1), [5, 3, 2]);
    assert_eq!(apportion(&[1, 1, 1], 10, 1), [4, 3, 3]);
}

#[test]
fn every_width_is_filled_exactly() {
    let mono = Theme::new(Depth::Mono, true);
    for (width, expected) in [
        (0, ""),
        (1, "."),
        (2, "#."),
        (5, "#=~.r"),
        (10, "###==~...r"),
        (40, "###########=========~~~~~..............r"),
    ] {
        assert_eq!(line(width, mono, &PARTS), expected);
    }
}

#[test]
fn a_boundary_within_a_cell_is_drawn_in_eighths() {
    let colour = Theme::new(Depth::Ansi256, false);
    assert_eq!(line(4, colour, &[(Ink::Allocated, 3), (Ink::Cached, 5)]), "█▌▓▓");
    assert_eq!(
        line(
            4,
            Theme::new(Depth::Mono, false),
            &[(Ink::Allocated, 3), (Ink::Cached, 5)]
        ),
        "██▓▓"
    );
    let area = Rect::new(0, 0, 4, 1);
    let mut buffer = Buffer::empty(area);
    stacked(
        &mut Pen::new(&mut buffer, colour),
        area,
        &[(Ink::Allocated, 3), (Ink::Cached, 5)],
    );
    assert_eq!(buffer[(1, 0)].fg, colour.ground(Ink::Allocated).unwrap());
    assert_eq!(buffer[(1, 0)].bg, colour.ground(Ink::Cached).unwrap());
}
