//! When the operations of a live replay are due: by the clock, whatever passes they belong to. Time is told to it.

use std::time::{Duration, Instant};

use crate::pace::{Pace, Speed};
use gpumem_text::units::{count, plural};

/// How often a replay listens, and catches up with its pace.
pub(super) const TICK: Duration = Duration::from_millis(20);
/// Of how many seconds operations are caught up with: what stood still for longer does not race afterwards.
const CATCH_UP: f64 = 0.5;
/// How many seconds late it is where the pace cannot be kept, and not only a moment was missed.
const LATE: f64 = 0.1;
/// How long is measured how fast it goes.
const MEASURED: Duration = Duration::from_millis(250);

/// The pace of a replay and how it is kept.
pub(super) struct Pacer {
    speed: Speed,
    paused: bool,
    /// Operations that are due, and a part of the next one.
    due: f64,
    /// Until when they are counted.
    counted: Instant,
    /// Operations done since then are counted, too.
    measured: (Instant, u64),
    /// Operations a second, where it goes as fast as it can; `None` while the pace is kept, and before that is known.
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

    /// When to ask next what is due.
    pub(super) fn next(&self) -> Instant {
        match (self.speed, self.paused) {
            (Speed::Max, false) => self.counted,
            _ => self.counted + TICK,
        }
    }

    /// How many operations are due.
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

    /// So many of those that were due are done.
    pub(super) fn did(&mut self, operations: usize) {
        self.measured.1 += operations as u64;
        if let Speed::PerSecond(_) = self.speed {
            self.due -= operations as f64;
        }
    }

    pub(super) fn change(&mut self, pace: Pace, now: Instant) {
        self.due(now);
        // Nothing is caught up with at another pace than its own.
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

    /// How fast it goes, as a sentence.
    pub(super) fn in_words(&self) -> String {
        let a_second = |n: u32| plural(n.into(), "operation") + " a second.";
        match (self.speed, self.reached) {
            _ if self.paused => "It stands still.".to_owned(),
            (Speed::PerSecond(n), None) => a_second(n.get()),
            (Speed::PerSecond(n), Some(reached)) => {
                format!("As fast as it goes, {} of {}", count(reached.into()), a_second(n.get()))
            }
            (Speed::Max, Some(reached)) => format!("As fast as it goes, {}", a_second(reached)),
            (Speed::Max, None) => "As fast as it goes.".to_owned(),
        }
    }
}

/// What is measured is no more exact than that.
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

    /// Does what is due at this moment, at most so much of it.
    fn look(pacer: &mut Pacer, now: Instant, most: u64) -> u64 {
        let done = pacer.due(now).min(most);
        pacer.did(done as usize);
        done
    }

    #[test]
    fn a_pace_is_kept_on_average() {
        for (speed, expected) in [("1", 60), ("7", 420), ("2000", 120_000), ("300000", 18_000_000)] {
            let (mut pacer, mut now) = pacer(speed);
            let (end, mut done) = (now + 60_000 * MS, 0);
            // A moment is missed now and then.
            for wait in [20, 21, 33, 400].into_iter().cycle() {
                assert!(pacer.next() <= now + TICK);
                now = end.min(now + wait * MS);
                done += look(&mut pacer, now, u64::MAX);
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
    fn what_stood_still_does_not_race() {
        let (mut pacer, now) = pacer("1000");
        assert_eq!(
            look(&mut pacer, now + 3600 * 1000 * MS, u64::MAX),
            501,
            "as after a suspension"
        );
        let mut now = now + 3600 * 1000 * MS;
        pacer.change(Pace::Pause, now);
        now += 5000 * MS;
        assert_eq!(look(&mut pacer, now, u64::MAX), 0);
        pacer.change(Pace::Pause, now);
        assert_eq!(look(&mut pacer, now + 10 * MS, u64::MAX), 10);
        // Nor does what was late at another pace.
        look(&mut pacer, now + 410 * MS, 0);
        pacer.change(Pace::Slower, now + 410 * MS);
        assert_eq!(look(&mut pacer, now + 430 * MS, u64::MAX), 11);
    }

    /// A machine that does 40 operations a millisecond.
    #[test]
    fn what_cannot_be_kept_is_gone_at_as_fast_as_it_goes() {
        for (speed, told) in [
            ("max", "As fast as it goes, 40,000 operations a second."),
            (
                "4000000000",
                "As fast as it goes, 40,000 of 4,000,000,000 operations a second.",
            ),
        ] {
            let (mut pacer, mut now) = pacer(speed);
            now += TICK;
            let began = now;
            while now < began + 1000 * MS {
                assert_eq!(look(&mut pacer, now, 800), 800, "{speed}");
                now += TICK;
                assert!(pacer.next() <= now, "{speed}: nothing is waited for");
            }
            assert_eq!(pacer.in_words(), told);
            // Half of what it was, and not of what was wished for.
            pacer.change(Pace::Slower, now);
            assert_eq!(pacer.in_words(), "20,000 operations a second.");
        }
        let (mut pacer, mut now) = pacer("50000");
        for _ in 0..100 {
            now += TICK;
            look(&mut pacer, now, 800);
        }
        assert_eq!(
            pacer.in_words(),
            "As fast as it goes, 40,000 of 50,000 operations a second."
        );
        pacer.change(Pace::Faster, now);
        assert_eq!(pacer.in_words(), "As fast as it goes.");
    }

    #[test]
    fn what_is_measured_is_rounded() {
        let rounded = [0, 7, 999, 1234, 1_659_999, u32::MAX].map(three_digits);
        assert_eq!(rounded, [0, 7, 999, 1230, 1_650_000, 4_290_000_000]);
    }
}
