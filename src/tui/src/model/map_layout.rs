//! Lays out segments as lines of cells, where every cell stands for a fixed number of bytes. The view draws this layout, and
//! keys move the cursor by it.
//!
//! A segment begins on a new line and continues over as many lines as it needs. When there are more segments than lines, the
//! layout is *folded*: neighbouring segments that are shorter than a line share one.

#[cfg(test)]
#[path = "map_layout_tests.rs"]
mod tests;

use super::blocks::BlockMap;

/// Segments of address space that can be laid out, in order.
pub(crate) trait Extents {
    /// Bytes of the smallest cell.
    const LEAST_CELL: u64;
    /// Bytes that the size of every cell is a multiple of.
    const CELL_STEP: u64 = 1;

    /// Number of segments.
    fn count(&self) -> usize;

    /// Returns the address and the bytes of a segment.
    fn extent(&self, index: usize) -> (u64, u64);
}

impl Extents for BlockMap {
    // Allocators round to 512 bytes.
    const LEAST_CELL: u64 = 512;

    fn count(&self) -> usize {
        self.segments.len()
    }

    fn extent(&self, index: usize) -> (u64, u64) {
        let segment = &self.segments[index].segment;
        (segment.addr, segment.size)
    }
}

/// How segments are laid out. The default is the layout without a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MapLayout {
    /// Bytes per cell; 0 without a map.
    pub bytes_per_cell: u64,
    /// Cells per line.
    pub columns: u16,
    /// Whether short segments share lines.
    pub folded: bool,
    /// The smallest value of `bytes_per_cell`.
    pub least_cell: u64,
    /// `bytes_per_cell` is a multiple of this.
    pub cell_step: u64,
}

/// The part of a segment on one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strip {
    /// Line, from the first of the whole map.
    pub line: u64,
    /// First column.
    pub x: u16,
    /// Index of the segment.
    pub segment: usize,
    /// Bytes from the start of the segment to this strip.
    pub offset: u64,
    /// Number of cells.
    pub cells: u16,
}

impl MapLayout {
    /// Returns the finest layout that shows all segments in `lines` lines.
    pub(crate) fn fit<M: Extents>(map: &M, columns: u16, lines: u16) -> MapLayout {
        let folded = map.count() > usize::from(lines);
        let layout = |bytes_per_cell| MapLayout {
            bytes_per_cell,
            columns: columns.max(1),
            folded,
            least_cell: M::LEAST_CELL,
            cell_step: M::CELL_STEP,
        };
        let fits = |bytes_per_cell| layout(bytes_per_cell).lines(map) <= u64::from(lines.max(1));
        let largest = (0..map.count()).map(|i| map.extent(i).1).max().unwrap_or(0);
        let mut cell = M::LEAST_CELL;
        while !fits(cell) && cell < largest {
            cell = cell.saturating_mul(2);
        }
        if cell > M::LEAST_CELL {
            // Quarter steps between the powers of two: rounding wastes at most a fifth of the area.
            let finer = (1..4).map(|quarter| (cell / 2 + cell / 8 * quarter).next_multiple_of(M::CELL_STEP));
            cell = finer.into_iter().find(|&c| fits(c)).unwrap_or(cell);
        }
        layout(cell)
    }

    /// Returns the layout with its cells halved `zoom` times, down to the smallest cell.
    pub(crate) fn zoomed(self, zoom: u8) -> MapLayout {
        MapLayout {
            bytes_per_cell: (self.bytes_per_cell >> zoom.min(self.deepest()))
                .max(self.least_cell)
                .next_multiple_of(self.cell_step.max(1)),
            ..self
        }
    }

    /// Returns how many times the cells can be halved until they are the smallest.
    pub(crate) fn deepest(self) -> u8 {
        (0..64)
            .find(|&n| self.bytes_per_cell >> n <= self.least_cell)
            .unwrap_or(0)
    }

    /// Visits every segment with its first line and column and its number of cells; returns the number of lines.
    fn walk(&self, map: &impl Extents, mut visit: impl FnMut(usize, u64, u64, u64)) -> u64 {
        if self.bytes_per_cell == 0 || self.columns == 0 {
            return 0;
        }
        let columns = u64::from(self.columns);
        let (mut line, mut x) = (0u64, 0u64);
        for i in 0..map.count() {
            let cells = map.extent(i).1.div_ceil(self.bytes_per_cell).max(1);
            if self.folded && x > 0 && x + 1 + cells <= columns {
                x += 1;
            } else if x > 0 {
                line += 1;
                x = 0;
            }
            visit(i, line, x, cells);
            line += cells.div_ceil(columns) - 1;
            x = if cells <= columns && self.folded {
                x + cells
            } else {
                columns
            };
        }
        line + u64::from(x > 0)
    }

    /// Returns the number of lines of the whole map.
    pub(crate) fn lines(&self, map: &impl Extents) -> u64 {
        self.walk(map, |_, _, _, _| ())
    }

    /// Returns the strips on the lines in `window`, in order. A deep zoom has millions of lines; only these are visited.
    pub(crate) fn strips(&self, map: &impl Extents, window: std::ops::Range<u64>) -> Vec<Strip> {
        let columns = u64::from(self.columns);
        let mut strips = vec![];
        self.walk(map, |segment, line, x, cells| {
            let lines = cells.div_ceil(columns);
            for n in window.start.max(line)..window.end.min(line + lines) {
                let before = (n - line) * columns;
                strips.push(Strip {
                    line: n,
                    // Both are at most `columns`, a u16.
                    x: x as u16,
                    segment,
                    offset: before * self.bytes_per_cell,
                    cells: (cells - before).min(columns) as u16,
                });
            }
        });
        strips
    }

    /// Returns the line and column of an address of a segment.
    pub(crate) fn place(&self, map: &impl Extents, segment: usize, addr: u64) -> (u64, u16) {
        let mut at = (0, 0);
        self.walk(map, |i, line, x, cells| {
            if i == segment {
                let offset = addr.saturating_sub(map.extent(i).0);
                let cell = (offset / self.bytes_per_cell).min(cells - 1);
                let columns = u64::from(self.columns);
                at = (line + cell / columns, (x + cell % columns) as u16);
            }
        });
        at
    }

    /// Returns the first address of the cell at a line and column, or of the nearest cell of that line. `None` below the last
    /// line.
    pub(crate) fn address(&self, map: &impl Extents, line: u64, column: u16) -> Option<u64> {
        let strips = self.strips(map, line..line.saturating_add(1));
        let strip = strips.iter().rev().find(|s| s.x <= column).or(strips.first())?;
        let cell = u64::from(column.saturating_sub(strip.x).min(strip.cells - 1));
        let (start, size) = map.extent(strip.segment);
        let offset = strip.offset.saturating_add(cell * self.bytes_per_cell);
        Some(start.saturating_add(offset.min(size.saturating_sub(1))))
    }
}
