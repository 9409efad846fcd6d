//! The span of time that a timeline shows, divided into columns.

#[cfg(test)]
mod tests;

use crate::model::{Device, History, Nanos, Partition};

/// The shown span, divided into one bucket of time per column. Buckets begin at multiples of their width, so that a sample
/// does not change its bucket when another one arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// Nanoseconds per column.
    pub(super) bucket: Nanos,
    /// The number of the first column's bucket, counted from the clock's zero.
    pub(super) first: u64,
    /// The number of columns.
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

    /// Returns the column of a moment, or `None` outside the window.
    pub(super) fn column(&self, at: Nanos) -> Option<u16> {
        let column = (at / self.bucket).checked_sub(self.first)?;
        u16::try_from(column).ok().filter(|&c| c < self.columns)
    }

    /// Returns the first moment of a column.
    pub(super) fn start(&self, column: u16) -> Nanos {
        self.first.saturating_add(u64::from(column)).saturating_mul(self.bucket)
    }
}

/// Returns one point per column: the highest of its bucket, else the previous one if it is not older than `max_gap`. Points
/// come oldest first.
pub(super) fn fill<'a, T, K: PartialOrd>(
    points: impl Iterator<Item = (Nanos, &'a T)>,
    window: Window,
    max_gap: Nanos,
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
                let fresh = before.filter(|(at, _)| start.saturating_sub(*at) <= max_gap);
                columns[usize::from(column)] = fresh.map(|(_, point)| point);
            }
        }
    }
    // The time after the newest sample is unknown.
    if let Some(newest) = newest.and_then(|at| window.column(at)) {
        columns[usize::from(newest) + 1..].fill(None);
    }
    columns
}

/// Returns the partition with the most memory in use of each column. Before the first sample it is what publishers held.
pub(super) fn columns(device: &Device, window: Window, max_gap: Nanos) -> Vec<Option<Partition>> {
    let points = device.history.points().map(|p| (p.at, &p.memory));
    let seen = fill(points, window, max_gap, Partition::fullness).into_iter();
    let total = device.memory.value().map_or(0, |memory| memory.total);
    let told = told(&device.history, window, total);
    seen.zip(told).map(|(seen, told)| seen.copied().or(told)).collect()
}

/// Returns the most that publishers held in each column before the first sample.
fn told(history: &History, window: Window, total: u64) -> Vec<Option<Partition>> {
    let mut columns: Vec<Option<Partition>> = vec![None; usize::from(window.columns)];
    for step in &history.past {
        // A step ends just before the moment at which the next one begins.
        let last = (step.until.saturating_sub(1).max(step.at) / window.bucket).checked_sub(window.first);
        let first = (step.at / window.bucket).saturating_sub(window.first);
        let Some(last) = last else { continue };
        let held = Partition::of_publishers(total, step.allocated, step.reserved);
        for column in first..=last.min(u64::from(window.columns).saturating_sub(1)) {
            let here = &mut columns[column as usize];
            if here.is_none_or(|known| known.fullness() <= held.fullness()) {
                *here = Some(held);
            }
        }
    }
    columns
}
