//! The span of time that a timeline shows, divided into columns.

#[cfg(test)]
mod tests;

use crate::model::{Device, History, Nanos, Spread};

/// The shown span, divided into one bucket of time per column. Buckets begin at multiples of their width, so that a sample
/// does not change its bucket when another one arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// Nanoseconds per column.
    pub(super) bucket: Nanos,
    /// The number of the first column's bucket, counted from the clock's zero.
    pub(super) first: u64,
    /// Columns of time before the clock's zero, when the machine started a short while ago.
    pub(super) lead: u16,
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
            lead: u64::from(columns).saturating_sub(last.saturating_add(1)) as u16,
            columns,
        }
    }

    /// Returns the column of a moment, or `None` outside the window.
    pub(super) fn column(&self, at: Nanos) -> Option<u16> {
        let column = (at / self.bucket)
            .saturating_add(self.lead.into())
            .checked_sub(self.first)?;
        u16::try_from(column).ok().filter(|&c| c < self.columns)
    }

    /// Returns the first moment of a column.
    pub(super) fn start(&self, column: u16) -> Nanos {
        let column = u64::from(column.saturating_sub(self.lead));
        self.first.saturating_add(column).saturating_mul(self.bucket)
    }
}

/// Returns the least and the most of each column's moments; of a column without any, those of the last moment before it, if it is
/// not older than `max_gap`. Moments come oldest first.
pub(super) fn fill<T: Clone + AsRef<[u64]> + AsMut<[u64]>>(
    moments: impl Iterator<Item = (Nanos, Spread<T>)>,
    window: Window,
    max_gap: Nanos,
) -> Vec<Option<Spread<T>>> {
    let mut columns: Vec<Option<Spread<T>>> = vec![None; usize::from(window.columns)];
    // The last moment of each column.
    let mut last = columns.clone();
    let mut before = None;
    let mut newest = None;
    for (at, moment) in moments {
        newest = Some(at);
        match window.column(at).map(usize::from) {
            Some(column) => {
                match &mut columns[column] {
                    Some(known) => known.add(&moment),
                    here => *here = Some(moment.clone()),
                }
                last[column] = Some(moment);
            }
            None if at < window.start(0) => before = Some((at, moment)),
            None => {}
        }
    }
    for (n, (column, last)) in (0..).zip(columns.iter_mut().zip(last)) {
        let start = window.start(n);
        match last {
            Some(last) => before = Some((start, last)),
            None => {
                let fresh = before.as_ref().filter(|(at, _)| start.saturating_sub(*at) <= max_gap);
                *column = fresh.map(|(_, moment)| moment.clone());
            }
        }
    }
    // The time after the newest sample is unknown.
    if let Some(newest) = newest.and_then(|at| window.column(at)) {
        columns[usize::from(newest) + 1..].fill(None);
    }
    columns
}

/// Returns the tops of a device's memory in each column. Before the first sample they are those of what publishers held.
pub(super) fn columns(device: &Device, window: Window, max_gap: Nanos) -> Vec<Option<Spread<[u64; 3]>>> {
    let seen = fill(device.history.tops(), window, max_gap).into_iter();
    seen.zip(told(&device.history, window))
        .map(|(seen, told)| seen.or(told))
        .collect()
}

/// Returns the tops of what publishers held in each column before the first sample.
fn told(history: &History, window: Window) -> Vec<Option<Spread<[u64; 3]>>> {
    let mut columns: Vec<Option<Spread<_>>> = vec![None; usize::from(window.columns)];
    for step in &history.past {
        // A step ends just before the moment at which the next one begins.
        let place = |at: Nanos| {
            (at / window.bucket)
                .saturating_add(window.lead.into())
                .checked_sub(window.first)
        };
        let last = place(step.until.saturating_sub(1).max(step.at));
        let first = place(step.at).unwrap_or(0);
        let Some(last) = last else { continue };
        let reserved = step.reserved.max(step.allocated);
        let held = Spread::of([step.allocated, reserved, reserved]);
        for column in first..=last.min(u64::from(window.columns).saturating_sub(1)) {
            match &mut columns[column as usize] {
                Some(known) => known.add(&held),
                here => *here = Some(held),
            }
        }
    }
    columns
}
