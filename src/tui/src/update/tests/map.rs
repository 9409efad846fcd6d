//! The cursor on the block map.

use gpumem_channel::BlockState::{Allocated, Free};

use super::sample::*;
use crate::event::{Event, Key, Mouse, MouseAction};
use crate::model::*;

/// A model with two segments of 8 MiB with blocks of 1, 1, 6 MiB and of 4, 4 MiB, drawn with 1 MiB per cell and 4 cells per line.
fn mapped() -> Model {
    let mut model = model();
    let blocks: &[&[_]] = &[
        &[(MIB, Allocated), (MIB, Free), (6 * MIB, Allocated)],
        &[(4 * MIB, Free), (4 * MIB, Allocated)],
    ];
    feed(&mut model, [channels(SECOND, vec![channel(1, blocks)])]);
    let layout = MapLayout {
        least_cell: 512,
        cell_step: 1,
        bytes_per_cell: MIB,
        columns: 4,
        folded: false,
    };
    let map = MapGeometry {
        layout,
        whole: layout,
        lines: 3,
    };
    feed(
        &mut model,
        [
            Event::Drawn(Box::new(Hits { map, ..Hits::default() })),
            Event::Key(Key::Char('2')),
        ],
    );
    model
}

/// Returns the segment of the cursor, and the MiB from its start.
fn place(model: &Model) -> (usize, u64) {
    let (segment, _) = model.cursor_block().unwrap();
    let base = model.map.as_ref().unwrap().segments[segment].segment.addr;
    (segment, (model.ui.blocks.cursor.unwrap_or(base) - base) / MIB)
}

#[test]
fn cursor_moves_as_drawn() {
    use Key::{Char, Down, End, Home, Left, PageDown, PageUp, Right, Up};
    let cases: &[(&[Key], (usize, u64))] = &[
        (&[Left], (0, 0)),
        (&[Right], (0, 1)),
        (&[Right, Right], (0, 2)),
        (&[Right, Right, Right], (1, 0)),
        (&[Right, Right, Right, Left], (0, 2)),
        (&[End], (1, 7)),
        (&[End, Right], (1, 4)),
        (&[End, Home], (0, 0)),
        (&[Down], (0, 4)),
        (&[Down, Down], (1, 0)),
        (&[Right, Down, Down, Down, Down, Down], (1, 5)),
        (&[Up], (0, 0)),
        (&[PageDown], (1, 0)),
        (&[PageDown, PageDown], (1, 4)),
        (&[End, PageUp], (0, 7)),
        (&[End, PageUp, PageUp], (0, 3)),
        (&[Right, Down, Up], (0, 1)),
        (&[Char('l'), Char('j'), Char('k'), Char('h')], (0, 0)),
    ];
    for (keys, expected) in cases {
        let mut model = mapped();
        press(&mut model, keys);
        assert_eq!(place(&model), *expected, "{keys:?}");
    }
}

#[test]
fn cursor_stays_at_its_address_when_blocks_change() {
    let mut model = mapped();
    press(&mut model, &[Key::Right, Key::Right]);
    let joined: &[&[_]] = &[&[(8 * MIB, Free)], &[(8 * MIB, Free)]];
    feed(&mut model, [channels(2 * SECOND, vec![channel(1, joined)])]);
    assert_eq!(place(&model), (0, 2));
    assert_eq!(model.cursor_block().unwrap().1.size, 8 * MIB);
    feed(&mut model, [channels(3 * SECOND, vec![channel(1, &[])])]);
    assert!(model.cursor_block().is_none());
    press(&mut model, &[Key::Right, Key::Down, Key::End]);
}

#[test]
fn click_puts_the_cursor_on_the_cell() {
    let mut model = mapped();
    let base = model.map.as_ref().unwrap().segments[0].segment.addr;
    let target = Target::Bytes {
        addr: base + 4 * MIB,
        bytes_per_cell: MIB,
    };
    let areas = vec![Hit {
        area: Area {
            x: 10,
            y: 5,
            width: 20,
            height: 1,
        },
        target,
    }];
    feed(
        &mut model,
        [Event::Drawn(Box::new(Hits {
            areas,
            ..Hits::default()
        }))],
    );
    let click = |x| {
        Event::Mouse(Mouse {
            action: MouseAction::Click,
            x,
            y: 5,
        })
    };
    feed(&mut model, [click(13)]);
    assert_eq!(place(&model), (0, 7));
    feed(&mut model, [click(25)]);
    assert_eq!(place(&model), (0, 7), "no block there: the cursor stays");
}

#[test]
fn zoom_ends_at_the_smallest_cell() {
    let mut model = mapped();
    press(&mut model, &[Key::Char('-')]);
    assert_eq!(model.ui.blocks.zoom, 0);
    for _ in 0..100 {
        press(&mut model, &[Key::Char('+')]);
    }
    let whole = model.ui.hits.map.whole;
    assert_eq!(model.ui.blocks.zoom, 11, "1 MiB is 2^11 cells of 512 bytes");
    assert_eq!(whole.zoomed(11).bytes_per_cell, 512);
    assert_eq!(whole.zoomed(10).bytes_per_cell, 1024);
    press(&mut model, &[Key::Char('-')]);
    assert_eq!(model.ui.blocks.zoom, 10, "one step back shows a change");
    press(&mut model, &[Key::Char('0')]);
    assert_eq!(model.ui.blocks.zoom, 0);
}

/// Segments begin on new lines: two of 6 cells take two lines of 5 cells each. Short ones share a line if folded.
#[test]
fn up_and_down_move_by_drawn_lines() {
    let mut model = model();
    let short: &[_] = &[(2 * MIB, Free)];
    let blocks: &[&[_]] = &[&[(6 * MIB, Free)], &[(6 * MIB, Free)], short, short, short];
    feed(&mut model, [channels(SECOND, vec![channel(1, blocks)])]);
    let layout = |folded| MapLayout {
        least_cell: 512,
        cell_step: 1,
        bytes_per_cell: MIB,
        columns: 5,
        folded,
    };
    let drawn = |folded| {
        let map = MapGeometry {
            layout: layout(folded),
            whole: layout(folded),
            lines: 9,
        };
        Event::Drawn(Box::new(Hits { map, ..Hits::default() }))
    };
    feed(&mut model, [drawn(false), Event::Key(Key::Char('2'))]);
    let base = model.map.as_ref().unwrap().segments[0].segment.addr;
    model.ui.blocks.cursor = Some(base + 4 * MIB);
    let mut seen = Vec::new();
    for _ in 0..7 {
        press(&mut model, &[Key::Down]);
        seen.push(place(&model));
    }
    assert_eq!(seen, [(0, 5), (1, 0), (1, 5), (2, 0), (3, 0), (4, 0), (4, 0)]);
    feed(&mut model, [drawn(true)]);
    model.ui.blocks.cursor = Some(base + 3 * MIB);
    let mut seen = Vec::new();
    for _ in 0..4 {
        press(&mut model, &[Key::Down]);
        seen.push(place(&model));
    }
    assert_eq!(seen, [(0, 5), (1, 0), (1, 5), (2, 0)]);
    // The fourth segment is on the line of the third, from column 3 on.
    model.ui.blocks.cursor = Some(model.map.as_ref().unwrap().segments[3].segment.addr);
    press(&mut model, &[Key::Down]);
    assert_eq!(place(&model), (4, 1), "the nearest cell of a shorter line");
    press(&mut model, &[Key::Up]);
    assert_eq!(place(&model), (2, 1), "and the segment above that cell");
}

#[test]
fn addresses_find_their_block() {
    let model = mapped();
    let map = model.map.as_ref().unwrap();
    let base = map.segments[0].segment.addr;
    assert_eq!(map.at(base + MIB).unwrap().1.addr, base + MIB);
    assert_eq!(map.at(base + 2 * MIB - 1).unwrap().1.addr, base + MIB);
    assert!(map.at(base - 1).is_none());
    assert!(map.at(base + 8 * MIB).is_none());
    assert_eq!(map.nearest(base + 8 * MIB).unwrap().0, 1);
    assert_eq!(map.nearest(u64::MAX).unwrap().0, 1);
    assert_eq!(map.nearest(0).unwrap().1.addr, base);
}
