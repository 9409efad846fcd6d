//! The cursor on the block map.

use gpumem_channel::BlockState::{Allocated, Free};

use super::sample::*;
use crate::event::{Event, Key, Mouse, MouseAction};
use crate::model::*;

/// Two segments of 8 MiB: blocks of 1, 1, 6 MiB and of 4, 4 MiB; drawn with 1 MiB per cell, 4 cells per line.
fn mapped() -> Model {
    let mut model = model();
    let blocks: &[&[_]] = &[
        &[(MIB, Allocated), (MIB, Free), (6 * MIB, Allocated)],
        &[(4 * MIB, Free), (4 * MIB, Allocated)],
    ];
    feed(&mut model, [channels(SECOND, vec![channel(1, blocks)])]);
    let map = MapGeometry {
        bytes_per_cell: MIB,
        columns: 4,
        lines: 4,
    };
    feed(
        &mut model,
        [
            Event::Drawn(Hits { map, ..Hits::default() }),
            Event::Key(Key::Char('2')),
        ],
    );
    model
}

/// Segment and MiB into it.
fn place(model: &Model) -> (usize, u64) {
    let (segment, _) = model.cursor_block().unwrap();
    let base = model.map.as_ref().unwrap().segments[segment].segment.addr;
    (segment, (model.ui.blocks.cursor.unwrap_or(base) - base) / MIB)
}

#[test]
fn moves_by_what_is_seen() {
    use Key::{Char, Down, End, Home, Left, Right, Up};
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
        (&[Right, Down, Down, Down, Down, Down], (1, 7)),
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
fn the_cursor_stays_at_its_address_when_blocks_change() {
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
fn a_click_puts_the_cursor_on_the_cell() {
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
        [Event::Drawn(Hits {
            areas,
            ..Hits::default()
        })],
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
fn zoom_is_bounded() {
    let mut model = mapped();
    press(&mut model, &[Key::Char('-')]);
    assert_eq!(model.ui.blocks.zoom, 0);
    for _ in 0..100 {
        press(&mut model, &[Key::Char('+')]);
    }
    assert_eq!(model.ui.blocks.zoom, BlocksUi::MAX_ZOOM);
    press(&mut model, &[Key::Char('0')]);
    assert_eq!(model.ui.blocks.zoom, 0);
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
