//! A table as text: columns as wide as their widest cell, on a terminal.

use crate::wrap::width;

/// How a column's cells stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// Lines of the table, without white space at their ends.
pub(super) fn lines(aligns: &[Align], rows: &[Vec<String>]) -> Vec<String> {
    let widest = |column: usize| rows.iter().filter_map(|r| r.get(column)).map(|c| width(c)).max();
    let widths: Vec<u16> = (0..aligns.len()).map(|column| widest(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).zip(aligns).map(|((cell, wide), align)| {
            // A letter may take two columns.
            let air = " ".repeat(usize::from(wide.saturating_sub(width(cell))));
            match align {
                Align::Left => format!("{cell}{air}"),
                Align::Right => format!("{air}{cell}"),
            }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}
