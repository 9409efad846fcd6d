//! Where the blocks of a demo's maps are drawn. An address that was used once keeps its place in all later steps, so that maps can
//! be compared: what came later is drawn behind what was there before.

use std::ops::Range;

use crate::model::DemoStep;

/// What is at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// A block that the program holds.
    Held,
    /// A block in the cache.
    Free,
    /// Addresses that had memory in an earlier step.
    Gone,
}

/// Neighbouring columns with the same content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cells {
    /// What is there.
    pub(super) content: Content,
    /// Its bytes.
    pub(super) bytes: u64,
    /// Its columns.
    pub(super) columns: Range<u16>,
}

/// A range of addresses, and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    addr: u64,
    bytes: u64,
    /// Bytes of all pieces before it.
    offset: u64,
    /// Whether other addresses lie between it and the piece before, so that a blank column separates them.
    apart: bool,
}

/// The addresses that the maps of some steps use, in the order of their first use.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    pieces: Vec<Piece>,
    bytes: u64,
}

impl Places {
    /// Gives every address of the maps of these steps a place.
    pub(super) fn of(steps: &[DemoStep]) -> Places {
        let mut places = Places::default();
        for block in steps.iter().flat_map(|step| &step.map) {
            places.add(block.addr, block.addr.saturating_add(block.size));
        }
        places
    }

    /// Returns the bytes of all places.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds those addresses of a range that have no place yet.
    fn add(&mut self, mut from: u64, to: u64) {
        while from < to {
            let known = |piece: &&Piece| piece.addr <= from && from - piece.addr < piece.bytes;
            if let Some(piece) = self.pieces.iter().find(known) {
                from = piece.addr.saturating_add(piece.bytes);
                continue;
            }
            let next = self
                .pieces
                .iter()
                .map(|piece| piece.addr)
                .filter(|&addr| addr > from)
                .min();
            let end = next.map_or(to, |next| next.min(to));
            match self.pieces.last_mut() {
                Some(last) if last.addr + last.bytes == from => last.bytes += end - from,
                last => {
                    let apart = last.is_some();
                    self.pieces.push(Piece {
                        addr: from,
                        bytes: end - from,
                        offset: self.bytes,
                        apart,
                    });
                }
            }
            self.bytes = self.bytes.saturating_add(end - from);
            from = end;
        }
    }

    /// Returns the columns of the map of `step`, whose addresses all have places, from the left. A block takes at least one column.
    pub(super) fn cells(&self, step: &DemoStep, scale: Scale) -> Vec<Cells> {
        let mut cells: Vec<Cells> = vec![];
        let (mut end, mut jumps) = (0, 0);
        for piece in &self.pieces {
            jumps += u16::from(piece.apart);
            let to = piece.addr + piece.bytes;
            let mut at = piece.addr;
            let mut push = |content: Content, from: u64, bytes: u64| {
                let column = |addr: u64| scale.column(piece.offset + (addr - piece.addr)).saturating_add(jumps);
                let mut start = column(from).max(end);
                let mut stop = column(from + bytes).min(scale.columns).max(start);
                if content == Content::Gone && bytes < scale.bytes / 2 {
                    // Too small to be seen: what is before it reaches further.
                    if let Some(before) = cells.last_mut().filter(|before| before.columns.end == start) {
                        (before.columns.end, end) = (stop, stop);
                    }
                    return;
                }
                if start == stop && content != Content::Gone {
                    // It takes a column of its neighbour if that has more, so that what follows keeps its place.
                    match cells
                        .last_mut()
                        .filter(|before| before.columns.len() > 1 && before.columns.end == start)
                    {
                        Some(before) => {
                            before.columns.end -= 1;
                            start -= 1;
                        }
                        None => stop = stop.saturating_add(1).min(scale.columns),
                    }
                }
                if start < stop {
                    end = stop;
                    let columns = start..stop;
                    cells.push(Cells {
                        content,
                        bytes,
                        columns,
                    });
                }
            };
            for block in &step.map {
                let (from, until) = (block.addr.max(at), block.addr.saturating_add(block.size).min(to));
                if from >= until {
                    continue;
                }
                if from > at {
                    push(Content::Gone, at, from - at);
                }
                let content = if block.free { Content::Free } else { Content::Held };
                push(content, from, until - from);
                at = until;
            }
            if at < to {
                push(Content::Gone, at, to - at);
            }
        }
        cells
    }
}

/// The scale of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scale {
    columns: u16,
    /// Bytes per column, at least 1.
    pub(super) bytes: u64,
}

impl Scale {
    /// Returns the finest scale at which `bytes` and one gap fit into the columns.
    pub(super) fn new(bytes: u64, columns: u16) -> Scale {
        Scale {
            columns,
            bytes: bytes.div_ceil(u64::from(columns.saturating_sub(1).max(1))).max(1),
        }
    }

    /// Returns the column that an offset is nearest to.
    fn column(self, offset: u64) -> u16 {
        let column = offset.saturating_add(self.bytes / 2) / self.bytes;
        u16::try_from(column).unwrap_or(u16::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::DemoBlock;

    fn step(blocks: &[(u64, u64, bool)]) -> DemoStep {
        let block = |&(addr, size, free): &(u64, u64, bool)| DemoBlock { addr, size, free };
        DemoStep {
            map: blocks.iter().map(block).collect(),
            ..DemoStep::default()
        }
    }

    /// Returns the map of the last step in a picture of one letter per column.
    fn picture(steps: &[DemoStep], bytes: u64, columns: u16) -> String {
        let mut line = vec![' '; columns.into()];
        for cells in Places::of(steps).cells(steps.last().unwrap_or(&step(&[])), Scale::new(bytes, columns)) {
            let letter = match cells.content {
                Content::Held => '#',
                Content::Free => '=',
                Content::Gone => '.',
            };
            line[usize::from(cells.columns.start)..usize::from(cells.columns.end)].fill(letter);
        }
        line.into_iter().collect()
    }

    #[test]
    fn addresses_keep_their_places_when_blocks_come_and_go() {
        let steps = [
            step(&[(1000, 4, false), (1004, 4, false), (1008, 4, false)]),
            step(&[(1000, 4, false), (1004, 4, true), (1008, 4, false)]),
            // The hole has no memory any more, and new memory comes behind the last block.
            step(&[(1000, 4, false), (1008, 4, false), (1012, 4, false)]),
            // All is gone, and a new range comes, at lower addresses.
            step(&[(50, 3, false), (53, 2, true)]),
        ];
        let pictures = [1, 2, 3, 4].map(|n| picture(&steps[..n], 23, 24));
        assert_eq!(
            pictures,
            [
                "############            ",
                "####====####            ",
                "####....########        ",
                "................ ###==  ",
            ]
        );
    }

    #[test]
    fn smallest_block_takes_a_column() {
        let steps = [step(&[(0, 1, false), (1, 1, true), (2, 98, false)])];
        assert_eq!(picture(&steps, 100, 11), "#=######## ");
        let steps = [step(&[(0, 49, true), (49, 2, false), (51, 49, true)])];
        assert_eq!(picture(&steps, 100, 11), "====#===== ", "the others keep their places");
        let steps = [
            step(&[(0, 47, true), (47, 53, false)]),
            step(&[(0, 43, true), (47, 53, false)]),
        ];
        assert_eq!(picture(&steps, 100, 11), "=====##### ", "four bytes less are not seen");
    }

    proptest! {
        /// Whatever a child reports.
        #[test]
        fn cells_are_in_order_and_inside(
            maps in prop::collection::vec(prop::collection::vec((0u64..60, 1u64..20, any::<bool>()), 0..6), 1..5),
            bytes in 0u64..200,
            columns in 0u16..40,
        ) {
            let steps: Vec<DemoStep> = maps.iter().map(|blocks| step(blocks)).collect();
            let scale = Scale::new(bytes, columns);
            for n in 1..=steps.len() {
                let cells = Places::of(&steps[..n]).cells(&steps[n - 1], scale);
                let mut end = 0;
                for cells in cells {
                    prop_assert!(cells.columns.start >= end && cells.columns.end <= columns);
                    prop_assert!(!cells.columns.is_empty());
                    end = cells.columns.end;
                }
            }
        }

        /// A later step moves no address.
        #[test]
        fn places_of_fewer_steps_are_the_first_ones(
            maps in prop::collection::vec(prop::collection::vec((0u64..60, 1u64..20, any::<bool>()), 0..6), 1..5),
        ) {
            let steps: Vec<DemoStep> = maps.iter().map(|blocks| step(blocks)).collect();
            let all = Places::of(&steps);
            for n in 0..steps.len() {
                for piece in Places::of(&steps[..n]).pieces {
                    let same = |other: &&Piece| (other.addr, other.offset) == (piece.addr, piece.offset);
                    prop_assert!(all.pieces.iter().find(same).is_some_and(|other| other.bytes >= piece.bytes));
                }
            }
        }
    }
}
