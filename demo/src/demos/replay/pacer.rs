//! Decides when the operations of a live replay are due, independently of passes. The time is passed in.

use std::time::{Duration, Instant};

use crate::pace::{Pace, Speed};
use gpumem_text::units::{count, plural};

/// How often a replay reads commands and catches up with its pace.
pub(super) const TICK: Duration = Duration::from_millis(20);
/// The most seconds of operations that are caught up with, so that a replay does not race after a longer stop.
const CATCH_UP: f64 = 0.5;
/// A replay that is this many seconds late cannot keep its pace, and has not only missed a moment.
const LATE: f64 = 0.1;
/// The period over which the speed is measured.
const MEASURED: Duration = Duration::from_millis(250);

/// Keeps the pace of a replay.
pub(super) struct Pacer {
    speed: Speed,
    paused: bool,
    /// Operations that are due, and a part of the next one.
    due: f64,
    /// The time up to which they are counted.
    counted: Instant,
    /// The begin of the current measurement, and the operations done since.
    measured: (Instant, u64),
    /// Measured operations a second at full speed; `None` while the pace is kept, and until measured.
    reached: Option<u32>,
}

impl Pacer {
    pub(super) fn new(speed: Speed, now: Instant) -> Pacer {
        Pacer {
            speed,
            paused: false,
            due: 0.0,
            counted: now,
            measured: (now, 0),
            reached: None,
        }
    }

    pub(super) fn paused(&self) -> bool {
        self.paused
    }

    /// Returns when to call `due` next.
    pub(super) fn next(&self) -> Instant {
        match (self.speed, self.paused) {
            (Speed::Max, false) => self.counted,
            _ => self.counted + TICK,
        }
    }

    /// Returns the number of operations that are due.
    pub(super) fn due(&mut self, now: Instant) -> u64 {
        self.measure(now);
        let passed = (now - self.counted).as_secs_f64();
        self.counted = now;
        match self.speed {
            _ if self.paused => 0,
            Speed::Max => u64::MAX,
            Speed::PerSecond(n) => {
                let n = f64::from(n.get());
                self.due = (self.due + passed * n).min(1.0 + n * CATCH_UP);
                self.due as u64
            }
        }
    }

    /// Records that this many of the due operations are done.
    pub(super) fn did(&mut self, operations: usize) {
        self.measured.1 += operations as u64;
        if let Speed::PerSecond(_) = self.speed {
            self.due -= operations as f64;
        }
    }

    pub(super) fn change(&mut self, pace: Pace, now: Instant) {
        self.due(now);
        // Late operations are not caught up with at a new pace.
        self.due = self.due.min(1.0);
        let before = self.speed;
        match pace {
            Pace::Speed(speed) => self.speed = speed,
            Pace::Faster => self.speed = self.speed.faster(self.reached),
            Pace::Slower => self.speed = self.speed.slower(self.reached),
            Pace::Pause => self.paused = !self.paused,
        }
        self.measured = (now, 0);
        self.reached = self.reached.filter(|_| self.speed == before);
    }

    fn measure(&mut self, now: Instant) {
        let (since, done) = self.measured;
        let time = now - since;
        if self.paused || time < MEASURED {
            return;
        }
        let late = match self.speed {
            Speed::Max => true,
            Speed::PerSecond(n) => self.due > 1.0 + f64::from(n.get()) * LATE,
        };
        self.reached = late.then(|| three_digits((done as f64 / time.as_secs_f64()) as u32));
        self.measured = (now, 0);
    }

    /// Returns the speed as a sentence.
    pub(super) fn in_words(&self) -> String {
        let a_second = |n: u32| plural(n.into(), "operation") + " a second.";
        match (self.speed, self.reached) {
            _ if self.paused => "It stands still.".to_owned(),
            (Speed::PerSecond(n), None) => a_second(n.get()),
            (Speed::PerSecond(n), Some(reached)) => {
                format!("At full speed, {} of {}", count(reached.into()), a_second(n.get()))
            }
            (Speed::Max, Some(reached)) => format!("At full speed, {}", a_second(reached)),
            (Speed::Max, None) => "At full speed.".to_owned(),
        }
    }
}

/// Rounds to three digits, the precision of the measurement.
fn three_digits(n: u32) -> u32 {
    let unit = 10_u32.pow(n.checked_ilog10().unwrap_or(0).saturating_sub(2));
    n / unit * unit
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn pacer(speed: &str) -> (Pacer, Instant) {
        let now = Instant::now();
        (Pacer::new(speed.parse().unwrap(), now), now)
    }

    /// Does at most `most` of the operations due at this moment.
    fn do_due(pacer: &mut Pacer, now: Instant, most: u64) -> u64 {
        let done = pacer.due(now).min(most);
        pacer.did(done as usize);
        done
    }

    #[test]
    fn pace_is_kept_on_average() {
        for (speed, expected) in [("1", 60), ("7", 420), ("2000", 120_000), ("300000", 18_000_000)] {
            let (mut pacer, mut now) = pacer(speed);
            let (end, mut done) = (now + 60_000 * MS, 0);
            // Some ticks come late.
            for wait in [20, 21, 33, 400].into_iter().cycle() {
                assert!(pacer.next() <= now + TICK);
                now = end.min(now + wait * MS);
                done += do_due(&mut pacer, now, u64::MAX);
                if now == end {
                    break;
                }
            }
            assert!((expected - 1..=expected).contains(&done), "{speed}: {done}");
            let words = pacer.in_words();
            assert!(words.ends_with(" a second.") && !words.starts_with("As"), "{words}");
        }
    }

    #[test]
    fn replay_does_not_race_after_a_stop() {
        let (mut pacer, now) = pacer("1000");
        assert_eq!(
            do_due(&mut pacer, now + 3600 * 1000 * MS, u64::MAX),
            501,
            "as after a suspension"
        );
        let mut now = now + 3600 * 1000 * MS;
        pacer.change(Pace::Pause, now);
        now += 5000 * MS;
        assert_eq!(do_due(&mut pacer, now, u64::MAX), 0);
        pacer.change(Pace::Pause, now);
        assert_eq!(do_due(&mut pacer, now + 10 * MS, u64::MAX), 10);
        // It does not race after a change of pace, either.
        do_due(&mut pacer, now + 410 * MS, 0);
        pacer.change(Pace::Slower, now + 410 * MS);
        assert_eq!(do_due(&mut pacer, now + 430 * MS, u64::MAX), 11);
    }

    /// The machine does 40 operations per millisecond.
    #[test]
    fn pace_that_cannot_be_kept_runs_at_full_speed() {
        for (speed, text) in [
            ("max", "At full speed, 40,000 operations a second."),
            (
                "4000000000",
                "At full speed, 40,000 of 4,000,000,000 operations a second.",
            ),
        ] {
            let (mut pacer, mut now) = pacer(speed);
            now += TICK;
            let began = now;
            while now < began + 1000 * MS {
                assert_eq!(do_due(&mut pacer, now, 800), 800, "{speed}");
                now += TICK;
                assert!(pacer.next() <= now, "{speed}: it does not wait");
            }
            assert_eq!(pacer.in_words(), text);
            // Half of the measured speed, not of the requested one.
            pacer.change(Pace::Slower, now);
            assert_eq!(pacer.in_words(), "20,000 operations a second.");
        }
        let (mut pacer, mut now) = pacer("50000");
        for _ in 0..100 {
            now += TICK;
            do_due(&mut pacer, now, 800);
        }
        assert_eq!(pacer.in_words(), "At full speed, 40,000 of 50,000 operations a second.");
        pacer.change(Pace::Faster, now);
        assert_eq!(pacer.in_words(), "At full speed.");
    }

    #[test]
    fn measured_speed_is_rounded() {
        let rounded = [0, 7, 999, 1234, 1_659_999, u32::MAX].map(three_digits);
        assert_eq!(rounded, [0, 7, 999, 1230, 1_650_000, 4_290_000_000]);
    }
}
