//! Whether what a process holds keeps growing.
//!
//! A training step allocates and frees again, so neither the newest figure nor the highest says anything. The least that was held in
//! each [`PERIOD`] does: it is what the program keeps. If it rises period after period, the program leaks, or fills a cache.

use std::collections::VecDeque;

use super::{Nanos, SECOND};

/// The time over which a least is taken. A step of a training rarely takes longer.
pub(crate) const PERIOD: Nanos = 15 * SECOND;
/// Rises in a row from which on memory is said to rise. Of a training whose steps vary, that many follow each other by chance about once a
/// day.
const RISING: usize = 6;
/// Rises in a row from which on it is confirmed.
const CONFIRMED: usize = 12;
/// Most periods kept: five minutes.
const KEPT: usize = 21;
/// Least bytes of a rise, as a part of what was held: less is noise.
const LEAST_PART: u64 = 1000;
/// Least bytes of a rise.
const LEAST: u64 = 1 << 20;

/// What a process held over the last minutes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Growth {
    /// The least of each whole period, oldest first, without gaps.
    least: VecDeque<u64>,
    /// The number of the running period, counted from the clock's zero, with the least that was held in it.
    running: Option<(u64, u64)>,
}

/// How sure it is that memory grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// It has risen for a minute and a half.
    Rising,
    /// It has risen for three minutes or more, and does not slow down.
    Confirmed,
}

/// A rise without an end in sight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rise {
    /// How sure it is.
    pub stage: Stage,
    /// How long it has risen.
    pub time: Nanos,
    /// The least that was held in its first period, in bytes.
    pub from: u64,
    /// The least that was held in the newest whole period, in bytes.
    pub to: u64,
}

impl Rise {
    /// Returns the bytes by which it rises in a minute.
    pub(crate) fn per_minute(&self) -> u64 {
        let grown = u128::from(self.to - self.from) * u128::from(60 * SECOND);
        u64::try_from(grown / u128::from(self.time.max(1))).unwrap_or(u64::MAX)
    }
}

impl Growth {
    /// Takes note of what is held at a moment. Moments come in order.
    pub(crate) fn note(&mut self, at: Nanos, held: u64) {
        let period = at / PERIOD;
        match &mut self.running {
            Some((running, least)) if *running == period => *least = held.min(*least),
            Some((running, least)) => {
                let (before, least) = (*running, *least);
                if before.checked_add(1) == Some(period) {
                    self.least.push_back(least);
                    let surplus = self.least.len().saturating_sub(KEPT);
                    self.least.drain(..surplus);
                } else {
                    // Nothing is known of the time between.
                    self.least.clear();
                }
                self.running = Some((period, held));
            }
            None => self.running = Some((period, held)),
        }
    }

    /// Returns the rise that goes on now, if there is one.
    pub(crate) fn rise(&self) -> Option<Rise> {
        let least: Vec<u64> = self.least.iter().copied().collect();
        let rises = |pair: &[u64]| pair[1] >= pair[0].saturating_add(LEAST.max(pair[0] / LEAST_PART));
        let times = least.windows(2).rev().take_while(|pair| rises(pair)).count();
        let risen = &least[least.len().saturating_sub(times + 1)..];
        let (&from, &to) = (risen.first()?, risen.last()?);
        // What fills up slows down: in its second half it rises less.
        let middle = risen[risen.len() / 2];
        let slows = to - middle < (middle - from) / 2;
        if times < RISING {
            return None;
        }
        let stage = match times >= CONFIRMED && !slows {
            true => Stage::Confirmed,
            false => Stage::Rising,
        };
        let time = PERIOD.saturating_mul(times as u64);
        Some(Rise { stage, time, from, to })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Returns the rise after a program held `held(second)` MiB in each of so many seconds.
    fn after(seconds: u64, held: impl Fn(u64) -> u64) -> Option<Rise> {
        let mut growth = Growth::default();
        (0..seconds).for_each(|second| growth.note(second * SECOND, held(second) * MIB));
        growth.rise()
    }

    fn stage(seconds: u64, held: impl Fn(u64) -> u64) -> Option<Stage> {
        after(seconds, held).map(|rise| rise.stage)
    }

    /// A step of a training takes 3 s and has a peak of 4 GiB.
    fn step(second: u64) -> u64 {
        [100, 4096, 2000][(second % 3) as usize]
    }

    #[test]
    fn leak_under_a_training_is_rising_and_then_confirmed() {
        let leaks = |second| step(second) + second * 3;
        assert_eq!(stage(105, leaks), None, "seven periods have six rises");
        assert_eq!(stage(106, leaks), Some(Stage::Rising));
        assert_eq!(stage(180, leaks), Some(Stage::Rising));
        let rise = after(196, leaks).unwrap();
        assert_eq!((rise.stage, rise.time), (Stage::Confirmed, 180 * SECOND));
        assert_eq!((rise.from / MIB, rise.to / MIB), (100, 640));
        assert_eq!(rise.per_minute() / MIB, 180);
        assert_eq!(after(4000, leaks).unwrap().time, 300 * SECOND, "as far as is kept");
    }

    #[test]
    fn what_does_not_grow_is_no_leak() {
        assert_eq!(stage(400, step), None);
        assert_eq!(
            stage(400, |second| 5000 + second / 100),
            None,
            "1 MiB in 100 s of 5 GiB"
        );
        assert_eq!(
            stage(400, |second| (second / 60) * 500 + step(second)),
            None,
            "a new size each minute"
        );
        assert_eq!(stage(400, |second| step(second) + 9000 - second), None, "it falls");
        assert_eq!(after(1, |_| u64::MAX >> 20), None);
    }

    #[test]
    fn what_fills_up_is_not_confirmed_and_ends() {
        let fills = |second: u64| 20_000 - 20_000 * 40 / (40 + second);
        assert_eq!(stage(240, fills), Some(Stage::Rising));
        let loads = |second: u64| second.min(150) * 100;
        assert_eq!(stage(120, loads), Some(Stage::Rising));
        assert_eq!(stage(200, loads), None);
    }

    #[test]
    fn gap_in_the_samples_ends_a_rise() {
        let mut growth = Growth::default();
        (0..120).for_each(|second| growth.note(second * SECOND, second * 9 * MIB));
        assert!(growth.rise().is_some());
        growth.note(200 * SECOND, 2000 * MIB);
        assert_eq!(growth.rise(), None);
        growth.note(0, 0);
        growth.note(u64::MAX, u64::MAX);
    }
}
