//! What publishers held before the dashboard read them for the first time, as their events tell.

use super::{DeviceKey, Nanos};

/// Most steps kept of a device.
pub(crate) const MAX_STEPS: usize = 2048;

/// What was held from one moment to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    /// When it began.
    pub at: Nanos,
    /// When it ended.
    pub until: Nanos,
    /// Bytes held by programs.
    pub allocated: u64,
    /// Bytes taken from the driver.
    pub reserved: u64,
}

/// What a publisher held on a device before it was first read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Past {
    /// The device.
    pub device: DeviceKey,
    /// Steps by time, without overlaps. Between two of them nothing is known.
    pub steps: Vec<Step>,
}

/// Returns the sums of two lists of steps, until `end`. Where only one of them has a step, that is the sum.
pub(crate) fn sum(a: &[Step], b: &[Step], end: Nanos) -> Vec<Step> {
    let mut edges: Vec<Nanos> = a.iter().chain(b).flat_map(|step| [step.at, step.until]).collect();
    edges.push(end);
    edges.retain(|edge| *edge <= end);
    edges.sort_unstable();
    edges.dedup();
    let mut sides = [a.iter().peekable(), b.iter().peekable()];
    let mut sums = Vec::new();
    for pair in edges.windows(2) {
        let (at, until) = (pair[0], pair[1]);
        let mut held: Option<Step> = None;
        for side in &mut sides {
            while side.next_if(|step| step.until <= at).is_some() {}
            if let Some(step) = side.peek().filter(|step| step.at <= at) {
                let sum = held.get_or_insert(Step {
                    at,
                    until,
                    ..Step::default()
                });
                sum.allocated = sum.allocated.saturating_add(step.allocated);
                sum.reserved = sum.reserved.saturating_add(step.reserved);
            }
        }
        sums.extend(held);
    }
    coarsen(&mut sums, MAX_STEPS);
    sums
}

/// Merges short steps with the ones after them until there are at most `most`. A merged step has the most that was held.
pub(crate) fn coarsen(steps: &mut Vec<Step>, most: usize) {
    let mut shortest: Nanos = 1_000_000;
    while steps.len() > most {
        let mut merged: Vec<Step> = Vec::with_capacity(steps.len());
        for step in steps.drain(..) {
            match merged.last_mut() {
                Some(last) if last.until == step.at && last.until - last.at < shortest => {
                    last.until = step.until;
                    last.allocated = last.allocated.max(step.allocated);
                    last.reserved = last.reserved.max(step.reserved);
                }
                _ => merged.push(step),
            }
        }
        *steps = merged;
        // Steps with gaps between them cannot be merged: the oldest ones go.
        match shortest.checked_mul(2) {
            Some(longer) => shortest = longer,
            None => drop(steps.drain(..steps.len().saturating_sub(most))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step((at, until): (Nanos, Nanos), allocated: u64, reserved: u64) -> Step {
        Step {
            at,
            until,
            allocated,
            reserved,
        }
    }

    #[test]
    fn sums_have_a_step_wherever_either_changes() {
        let a = [step((0, 10), 1, 2), step((10, 30), 3, 4)];
        let b = [step((5, 20), 10, 20), step((40, 60), 7, 7)];
        let expected = [
            step((0, 5), 1, 2),
            step((5, 10), 11, 22),
            step((10, 20), 13, 24),
            step((20, 30), 3, 4),
            step((40, 50), 7, 7),
        ];
        assert_eq!(sum(&a, &b, 50), expected);
        assert_eq!(sum(&b, &a, 50), expected);
        assert_eq!(sum(&[], &[], 50), []);
        assert_eq!(sum(&[step((0, 10), u64::MAX, u64::MAX)], &a, 9).len(), 1, "no overflow");
    }

    #[test]
    fn coarse_steps_keep_the_most_and_the_gaps() {
        let second = 1_000_000_000;
        let mut steps: Vec<Step> = (0..4000)
            .map(|n| step((n * 1_000_000, (n + 1) * 1_000_000), n % 100, n % 200))
            .collect();
        steps.push(step((10 * second, 20 * second), 5, 5));
        coarsen(&mut steps, 512);
        assert!((256..=512).contains(&steps.len()), "{}", steps.len());
        assert!(steps.windows(2).all(|pair| pair[0].until <= pair[1].at));
        assert_eq!(steps[0].at, 0);
        assert_eq!(steps.last(), Some(&step((10 * second, 20 * second), 5, 5)));
        assert_eq!(steps.iter().map(|step| step.reserved).max(), Some(199));
        let mut apart: Vec<Step> = (0..10).map(|n| step((n * 10, n * 10 + 1), 1, 1)).collect();
        coarsen(&mut apart, 3);
        assert_eq!(apart.iter().map(|step| step.at).collect::<Vec<_>>(), [70, 80, 90]);
    }
}
