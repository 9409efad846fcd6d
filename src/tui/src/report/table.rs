//! Formats a table as text. Columns are as wide as their widest cell.

use crate::wrap::width;

/// The alignment of the cells of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// Returns the lines of the table, without trailing white space.
pub(super) fn lines(aligns: &[Align], rows: &[Vec<String>]) -> Vec<String> {
    let widest = |column: usize| rows.iter().filter_map(|r| r.get(column)).map(|c| width(c)).max();
    let widths: Vec<u16> = (0..aligns.len()).map(|column| widest(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).zip(aligns).map(|((cell, wide), align)| {
            // A character may take two columns.
            let padding = " ".repeat(usize::from(wide.saturating_sub(width(cell))));
            match align {
                Align::Left => format!("{cell}{padding}"),
                Align::Right => format!("{padding}{cell}"),
            }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}
