//! What a publisher held before it was first read, from its events and what it holds now.

use std::collections::{HashMap, VecDeque};

use gpumem_channel::{Event, EventKind, PastFigures};

use crate::model::{Nanos, SECOND, Step, coarsen};

/// Most changes of a device that are looked at. The rings of many lanes have more.
const MAX_CHANGES: usize = 1 << 12;
/// Most steps kept of a publisher's device.
const MAX_STEPS: usize = 512;

/// The longest time between two samples for which the first one is taken to have lasted.
const LONGEST: Nanos = 30 * SECOND;
/// How long a sample that has no next one is taken to have lasted.
const ALONE: Nanos = SECOND;

/// Returns the steps of a device of a publisher that samples, from the figures that it keeps, oldest first.
pub(super) fn sampled(past: &[PastFigures], device: u8, end: Nanos) -> Vec<Step> {
    let of_device = |figures: &&PastFigures| figures.device == device && figures.time < end;
    let samples: Vec<&PastFigures> = past.iter().filter(of_device).collect();
    let nexts = samples.iter().skip(1).map(|next| next.time).chain([end]);
    let steps = samples.iter().zip(nexts).filter(|(figures, next)| figures.time < *next);
    let steps = steps.map(|(figures, next)| Step {
        at: figures.time,
        until: match next - figures.time > LONGEST {
            true => figures.time + ALONE,
            false => next,
        },
        allocated: figures.allocated,
        reserved: figures.reserved,
    });
    let mut steps: Vec<Step> = steps.collect();
    coarsen(&mut steps, MAX_STEPS);
    steps
}

/// The changes that a publisher's events tell of.
#[derive(Default)]
pub(super) struct Changes {
    /// By device.
    of: HashMap<u8, OfDevice>,
    /// The index of the next event of each ring, if none is missing.
    next: HashMap<Option<u8>, u64>,
    /// The time up to which events are missing.
    missing_until: Nanos,
}

/// The changes on a device.
#[derive(Default)]
struct OfDevice {
    /// Oldest first. Those of one moment are one: a fast program has hundreds in each tick of its clock.
    changes: VecDeque<Change>,
    /// Whether any event was of an allocation.
    allocates: bool,
}

/// A change of what is held.
struct Change {
    at: Nanos,
    allocated: i64,
    reserved: i64,
}

impl Changes {
    /// Takes note of the next event, which happened at `at`.
    pub(super) fn see(&mut self, event: &Event, at: Nanos) {
        let next = self.next.entry(event.lane).or_insert(0);
        if event.index != *next {
            self.missing_until = self.missing_until.max(at);
        }
        *next = event.index.wrapping_add(1);
        let Ok(size) = i64::try_from(event.size) else { return };
        let (allocated, reserved) = match event.kind {
            EventKind::Alloc => (size, 0),
            EventKind::Free => (-size, 0),
            EventKind::SegmentAlloc | EventKind::SegmentMap => (0, size),
            EventKind::SegmentFree | EventKind::SegmentUnmap => (0, -size),
            _ => return,
        };
        let of = self.of.entry(event.device).or_default();
        of.allocates |= allocated != 0;
        match of.changes.back_mut() {
            Some(last) if last.at == at => {
                last.allocated = last.allocated.saturating_add(allocated);
                last.reserved = last.reserved.saturating_add(reserved);
            }
            _ => of.changes.push_back(Change {
                at,
                allocated,
                reserved,
            }),
        }
        if of.changes.len() > MAX_CHANGES
            && let Some(gone) = of.changes.pop_front()
        {
            self.missing_until = self.missing_until.max(gone.at);
        }
    }

    /// Returns the steps of a device that holds `allocated` and `reserved` bytes at `end`. They begin with the oldest event after which
    /// none is missing. `sampled` is whether the events of the allocations may be unknown: without any, nothing is known of the past.
    pub(super) fn steps(&self, device: u8, (allocated, reserved): (u64, u64), end: Nanos, sampled: bool) -> Vec<Step> {
        let Some(OfDevice { changes, allocates }) = self.of.get(&device) else {
            return Vec::new();
        };
        if sampled && !allocates {
            return Vec::new();
        }
        let mut steps = Vec::new();
        let (mut held, mut until) = ((allocated, reserved), end);
        for change in changes.iter().rev() {
            if change.at <= self.missing_until {
                break;
            }
            if change.at < until {
                steps.push(Step {
                    at: change.at,
                    until,
                    allocated: held.0,
                    reserved: held.1,
                });
                until = change.at;
            }
            let before = |held: u64, change: i64| held.checked_sub_signed(change);
            // Figures that contradict the events are no base for older ones.
            let Some(older) = before(held.0, change.allocated).zip(before(held.1, change.reserved)) else {
                break;
            };
            held = older;
        }
        steps.reverse();
        coarsen(&mut steps, MAX_STEPS);
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn event(index: u64, kind: EventKind, mib: u64) -> Event {
        Event {
            index,
            kind,
            size: mib * MIB,
            ..Event::default()
        }
    }

    fn told(first: u64) -> Changes {
        use EventKind::{Alloc, Free, FreeCompleted, SegmentAlloc, SegmentFree};
        let mut changes = Changes::default();
        let events = [
            (SegmentAlloc, 20),
            (Alloc, 10),
            (Alloc, 5),
            (Free, 10),
            (FreeCompleted, 10),
            (SegmentAlloc, 40),
            (SegmentFree, 20),
        ];
        for (n, (kind, mib)) in (0..).zip(events) {
            if n >= first {
                changes.see(&event(n, kind, mib), 100 + 10 * n);
            }
        }
        changes
    }

    #[test]
    fn steps_go_back_from_what_is_held_now() {
        let found: Vec<_> = told(0)
            .steps(0, (5 * MIB, 40 * MIB), 200, false)
            .iter()
            .map(|step| (step.at, step.until, step.allocated / MIB, step.reserved / MIB))
            .collect();
        let expected = [
            (100, 110, 0, 20),
            (110, 120, 10, 20),
            (120, 130, 15, 20),
            (130, 150, 5, 20),
            (150, 160, 5, 60),
            (160, 200, 5, 40),
        ];
        assert_eq!(found, expected);
        assert_eq!(told(0).steps(1, (0, 0), 200, false), [], "another device");
    }

    #[test]
    fn steps_begin_where_events_are_missing_or_contradict() {
        let begins = |changes: &Changes, now| changes.steps(0, now, 200, false).first().map(|step| step.at);
        assert_eq!(
            begins(&told(2), (5 * MIB, 40 * MIB)),
            Some(130),
            "the first one that is left may have older ones"
        );
        assert_eq!(
            begins(&told(0), (4 * MIB, 40 * MIB)),
            Some(110),
            "less than nothing was never held"
        );
        assert_eq!(begins(&told(0), (5 * MIB, 10 * MIB)), Some(150));
        let mut gap = told(0);
        gap.see(&event(9, EventKind::Alloc, 1), 190);
        gap.see(&event(10, EventKind::Alloc, 1), 195);
        assert_eq!(begins(&gap, (7 * MIB, 40 * MIB)), Some(195));
    }

    #[test]
    fn changes_of_one_moment_are_one() {
        let mut changes = Changes::default();
        for n in 0..100_000 {
            let kind = if n % 2 == 0 { EventKind::Alloc } else { EventKind::Free };
            changes.see(&event(n, kind, 1), 100 + n / 1000);
        }
        changes.see(&event(100_000, EventKind::Alloc, 3), 300);
        assert_eq!(changes.of[&0].changes.len(), 101);
        let steps = changes.steps(0, (3 * MIB, 3 * MIB), 400, true);
        let found = (
            steps.len(),
            steps[0].at,
            steps.last().map(|step| (step.at, step.allocated)),
        );
        assert_eq!(found, (101, 100, Some((300, 3 * MIB))));
        assert!(steps[..100].iter().all(|step| step.allocated == 0));
    }

    #[test]
    fn samples_last_until_the_next_one_unless_that_is_far() {
        let figures = |second: u64, device, allocated| PastFigures {
            time: second * SECOND,
            device,
            allocated,
            reserved: 2 * allocated,
        };
        let past = [
            figures(1, 0, 10),
            figures(2, 1, 99),
            figures(2, 0, 20),
            figures(2, 0, 30),
            figures(100, 0, 40),
            figures(500, 0, 50),
        ];
        let found: Vec<_> = sampled(&past, 0, 103 * SECOND)
            .iter()
            .map(|step| (step.at / SECOND, step.until / SECOND, step.allocated, step.reserved))
            .collect();
        assert_eq!(found, [(1, 2, 10, 20), (2, 3, 30, 60), (100, 103, 40, 80)]);
        assert_eq!(sampled(&past, 2, 103 * SECOND), []);
        assert_eq!(sampled(&[figures(1, 0, 1)], 0, SECOND), []);
    }

    #[test]
    fn sampled_figures_without_allocations_have_no_past() {
        let mut changes = Changes::default();
        changes.see(&event(0, EventKind::SegmentAlloc, 20), 100);
        assert_eq!(changes.steps(0, (MIB, 20 * MIB), 200, true), []);
        assert_eq!(changes.steps(0, (MIB, 20 * MIB), 200, false).len(), 1);
        changes.see(&event(1, EventKind::Alloc, 1), 110);
        assert_eq!(changes.steps(0, (MIB, 20 * MIB), 200, true).len(), 2);
    }
}
