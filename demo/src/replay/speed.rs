//! How fast a live replay goes, and what its user may say about it.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

/// How fast operations follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// So many a second.
    PerSecond(NonZeroU32),
    /// As fast as it goes.
    Max,
}

impl Speed {
    /// A trace of so many operations in a minute.
    pub(super) fn in_a_minute(operations: usize) -> Speed {
        let per_second = u32::try_from(operations.div_ceil(60)).unwrap_or(u32::MAX);
        NonZeroU32::new(per_second).map_or(Speed::Max, Speed::PerSecond)
    }

    pub(super) fn faster(self) -> Speed {
        match self {
            Speed::PerSecond(n) => n
                .checked_mul(NonZeroU32::MIN.saturating_add(1))
                .map_or(Speed::Max, Speed::PerSecond),
            Speed::Max => Speed::Max,
        }
    }

    pub(super) fn slower(self) -> Speed {
        match self {
            Speed::PerSecond(n) => Speed::PerSecond(NonZeroU32::new(n.get() / 2).unwrap_or(NonZeroU32::MIN)),
            Speed::Max => NonZeroU32::new(1_000_000).map_or(Speed::Max, Speed::PerSecond),
        }
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
        let wanted = || format!("{text:?} is no speed: say max, or how many operations a second, at least 1");
        text.parse().map(Speed::PerSecond).map_err(|_| wanted())
    }
}

/// What can be said to a live replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Go at this speed.
    Speed(Speed),
    /// Twice as fast.
    Faster,
    /// Half as fast.
    Slower,
    /// Stand still, or go on.
    Pause,
}

impl Pace {
    /// Reads the words of a line; `None` when they are about something else.
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
    fn speeds_are_read_doubled_and_halved() {
        let speed = |text: &str| text.parse::<Speed>().unwrap();
        assert_eq!((speed("max"), speed("250").to_string()), (Speed::Max, "250".to_owned()));
        for bad in ["", "0", "-1", "fast", "1.5", "5000000000"] {
            assert!(bad.parse::<Speed>().is_err(), "{bad:?}");
        }
        assert_eq!(
            (speed("250").faster(), speed("250").slower()),
            (speed("500"), speed("125"))
        );
        assert_eq!(
            (speed("1").slower(), speed("3000000000").faster()),
            (speed("1"), Speed::Max)
        );
        assert_eq!(
            (Speed::Max.faster(), Speed::Max.slower()),
            (Speed::Max, speed("1000000"))
        );
        assert_eq!(
            (Speed::in_a_minute(6001), Speed::in_a_minute(1)),
            (speed("101"), speed("1"))
        );
    }

    #[test]
    fn what_is_said_is_understood_again() {
        for line in ["speed 20", "speed max", "faster", "slower", "pause"] {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(Pace::parse(&words).unwrap().to_string(), line);
        }
        for line in ["speed", "speed 0", "speed 1 2", "faster 2", "halt"] {
            assert_eq!(Pace::parse(&line.split(' ').collect::<Vec<_>>()), None, "{line}");
        }
    }
}
