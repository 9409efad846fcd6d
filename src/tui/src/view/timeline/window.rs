//! The span that a timeline shows, and which moment each of its columns has.

#[cfg(test)]
mod tests;

use crate::model::{Device, Nanos, Partition};

/// The span that is shown, cut into one bucket of time per column. Buckets lie at multiples of their width, so that
/// a sample never changes its column because another one arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// Nanoseconds per column.
    pub(super) bucket: Nanos,
    /// Number of the first column's bucket since the clock's zero.
    pub(super) first: u64,
    /// Columns.
    pub(super) columns: u16,
}

impl Window {
    pub(super) fn new(span: Nanos, end: Nanos, columns: u16) -> Window {
        let bucket = (span / u64::from(columns.max(1))).max(1);
        let last = end / bucket;
        Window {
            bucket,
            first: last.saturating_add(1).saturating_sub(u64::from(columns)),
            columns,
        }
    }

    /// The column of a moment; `None` outside the window.
    pub(super) fn column(&self, at: Nanos) -> Option<u16> {
        let column = (at / self.bucket).checked_sub(self.first)?;
        u16::try_from(column).ok().filter(|&c| c < self.columns)
    }

    /// The first moment of a column.
    pub(super) fn start(&self, column: u16) -> Nanos {
        self.first.saturating_add(u64::from(column)).saturating_mul(self.bucket)
    }
}

/// One moment per column: the highest of its bucket, else the one before while that is no older than samples may be.
/// Points come oldest first.
pub(super) fn fill<'a, T, K: PartialOrd>(
    points: impl Iterator<Item = (Nanos, &'a T)>,
    window: Window,
    patience: Nanos,
    height: impl Fn(&T) -> K,
) -> Vec<Option<&'a T>> {
    let mut columns: Vec<Option<&T>> = vec![None; usize::from(window.columns)];
    let mut before: Option<(Nanos, &T)> = None;
    let mut newest = None;
    for (at, point) in points {
        newest = Some(at);
        match window.column(at) {
            Some(column) => {
                let here = &mut columns[usize::from(column)];
                if here.is_none_or(|known| height(known) <= height(point)) {
                    *here = Some(point);
                }
            }
            None if at < window.start(0) => before = Some((at, point)),
            None => {}
        }
    }
    for column in 0..window.columns {
        let start = window.start(column);
        match columns[usize::from(column)] {
            Some(point) => before = Some((start, point)),
            None => {
                let fresh = before.filter(|(at, _)| start.saturating_sub(*at) <= patience);
                columns[usize::from(column)] = fresh.map(|(_, point)| point);
            }
        }
    }
    // Nothing is known of the time after the newest sample.
    if let Some(newest) = newest.and_then(|at| window.column(at)) {
        columns[usize::from(newest) + 1..].fill(None);
    }
    columns
}

/// The fullest partition of each column.
pub(super) fn columns(device: &Device, window: Window, patience: Nanos) -> Vec<Option<&Partition>> {
    let points = device.history.points().map(|p| (p.at, &p.memory));
    fill(points, window, patience, Partition::fullness)
}
