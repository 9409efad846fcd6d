//! The speed of a live replay, and the commands that change it.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

/// The highest speed that doubling reaches before full speed. Beyond it there is nothing more to see.
const MOST: u32 = 1_000_000;

/// The speed of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// Operations per second.
    PerSecond(NonZeroU32),
    /// Full speed.
    Max,
}

impl Speed {
    /// Returns the speed at which a trace of `operations` takes a minute.
    pub(crate) fn in_a_minute(operations: usize) -> Speed {
        let per_second = u32::try_from(operations.div_ceil(60)).unwrap_or(u32::MAX);
        Speed::per_second(per_second)
    }

    /// Returns twice the speed. `reached` is the measured speed of a replay at full speed.
    pub(crate) fn faster(self, reached: Option<u32>) -> Speed {
        match self {
            Speed::PerSecond(n) if reached.is_none() && n.get() <= MOST / 2 => Speed::per_second(n.get() * 2),
            Speed::PerSecond(_) | Speed::Max => Speed::Max,
        }
    }

    /// Returns half the speed; half the measured one if that is lower.
    pub(crate) fn slower(self, reached: Option<u32>) -> Speed {
        let wanted = match self {
            Speed::PerSecond(n) => n.get(),
            Speed::Max => u32::MAX,
        };
        Speed::per_second((wanted.min(reached.unwrap_or(wanted)) / 2).clamp(1, MOST))
    }

    /// Returns a speed of `n` operations per second, or full speed for 0.
    fn per_second(n: u32) -> Speed {
        NonZeroU32::new(n).map_or(Speed::Max, Speed::PerSecond)
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Speed::PerSecond(n) => write!(f, "{n}"),
            Speed::Max => f.write_str("max"),
        }
    }
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Speed, String> {
        if text == "max" {
            return Ok(Speed::Max);
        }
        let wanted = || format!("{text:?} is not a speed: say max, or how many operations a second, at least 1");
        text.parse().map(Speed::PerSecond).map_err(|_| wanted())
    }
}

/// A command for a live replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Go at this speed.
    Speed(Speed),
    /// Double the speed; full speed beyond a million operations a second or what can be kept.
    Faster,
    /// Halve the speed.
    Slower,
    /// Pause, or go on.
    Pause,
}

impl Pace {
    /// Parses the words of a line; `None` for other commands.
    pub(crate) fn parse(words: &[&str]) -> Option<Pace> {
        match words {
            ["speed", speed] => speed.parse().ok().map(Pace::Speed),
            ["faster"] => Some(Pace::Faster),
            ["slower"] => Some(Pace::Slower),
            ["pause"] => Some(Pace::Pause),
            _ => None,
        }
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pace::Speed(speed) => write!(f, "speed {speed}"),
            Pace::Faster => f.write_str("faster"),
            Pace::Slower => f.write_str("slower"),
            Pace::Pause => f.write_str("pause"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn speeds_are_parsed_doubled_and_halved() {
        let speed = |text: &str| text.parse::<Speed>().unwrap();
        assert_eq!((speed("max"), speed("250").to_string()), (Speed::Max, "250".to_owned()));
        for bad in ["", "0", "-1", "fast", "1.5", "5000000000"] {
            assert!(bad.parse::<Speed>().is_err(), "{bad:?}");
        }
        for (before, reached, slower, faster) in [
            ("1", None, "1", "2"),
            ("250", None, "125", "500"),
            ("500000", None, "250000", "1000000"),
            ("500001", None, "250000", "max"),
            ("4000000000", None, "1000000", "max"),
            ("max", None, "1000000", "max"),
            // The measured speed counts, not the requested one.
            ("900", Some(300), "150", "max"),
            ("max", Some(90_000), "45000", "max"),
            ("max", Some(9_000_000), "1000000", "max"),
            ("max", Some(0), "1", "max"),
        ] {
            let before = speed(before);
            assert_eq!(
                (before.slower(reached), before.faster(reached)),
                (speed(slower), speed(faster)),
                "{before}, {reached:?}"
            );
        }
        assert_eq!(
            (Speed::in_a_minute(6001), Speed::in_a_minute(1)),
            (speed("101"), speed("1"))
        );
    }

    #[test]
    fn commands_round_trip_through_text() {
        for line in ["speed 20", "speed max", "faster", "slower", "pause"] {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(Pace::parse(&words).unwrap().to_string(), line);
        }
        for line in ["speed", "speed 0", "speed 1 2", "faster 2", "halt"] {
            assert_eq!(Pace::parse(&line.split(' ').collect::<Vec<_>>()), None, "{line}");
        }
    }
}
