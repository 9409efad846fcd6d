//! When something has been too much for too long: pure, so that time can be anything.

use std::time::Duration;

/// How long it is waited until something is tried again that did not help: at least, and at most. It is twice as long each time.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(300);

/// What a look tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// An episode has begun: the ratio has been too high for so long.
    Begun(Duration),
    /// It goes on, and what did not help before may help now.
    GoesOn(Duration),
}

/// Begins an episode when a ratio has been above one limit for some time, and ends it when it is below another.
#[derive(Debug)]
pub(super) struct Watch {
    above: f64,
    below: f64,
    lasting: Duration,
    /// Since when the ratio is above, and in an episode since when nothing was tried.
    since: Option<Duration>,
    /// Whether the episode was told.
    told: bool,
    /// After how long something is tried again in it, if it is.
    pause: Option<Duration>,
}

impl Watch {
    pub(super) fn new(above: f64, below: f64, lasting: Duration) -> Watch {
        Watch {
            above,
            below,
            lasting,
            since: None,
            told: false,
            pause: None,
        }
    }

    /// Takes a ratio (`None`: nothing to speak of). How long it has been too high, if something is to be done now.
    pub(super) fn look(&mut self, now: Duration, ratio: Option<f64>) -> Option<Told> {
        let ratio = ratio.unwrap_or(0.0);
        if self.told && ratio < self.below {
            (self.told, self.pause) = (false, None);
        }
        if ratio <= self.above {
            self.since = None;
            return None;
        }
        let lasted = now.saturating_sub(*self.since.get_or_insert(now));
        if self.told {
            return self
                .pause
                .filter(|pause| lasted >= *pause)
                .map(|_| Told::GoesOn(lasted));
        }
        self.told = lasted >= self.lasting;
        self.told.then_some(Told::Begun(lasted))
    }

    /// What was done about it: if it helped, what comes is another episode. If not, it may later: memory that was held then, or a capture
    /// that was under way, may be gone.
    pub(super) fn acted(&mut self, helped: bool) {
        self.since = None;
        let pause = self.pause.map_or(self.lasting, |pause| pause * 2);
        self.pause = (!helped).then_some(pause.clamp(SHORTEST, LONGEST));
        self.told = !helped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At which of these ratios, a second apart, something is to be done, if that helps, does not, or is only a warning.
    fn told(helps: Option<bool>, ratios: &[f64]) -> Vec<usize> {
        let mut watch = Watch::new(0.5, 0.4, Duration::from_secs(2));
        let mut look = |at: usize, ratio: f64| {
            let told = watch.look(Duration::from_secs(at as u64), Some(ratio)).is_some();
            if told && let Some(helps) = helps {
                watch.acted(helps);
            }
            told
        };
        (0..)
            .zip(ratios)
            .filter(|(at, ratio)| look(*at, **ratio))
            .map(|(at, _)| at)
            .collect()
    }

    #[test]
    fn an_episode_is_told_once() {
        assert_eq!(told(None, &[0.6; 10]), [2]);
        assert_eq!(told(None, &[0.5; 10]), [0; 0], "not above");
        assert_eq!(
            told(None, &[0.6, 0.6, 0.3, 0.6, 0.6, 0.3]),
            [0; 0],
            "not for long enough"
        );
        assert_eq!(
            told(None, &[0.6, 0.6, 0.6, 0.45, 0.6, 0.6, 0.6]),
            [2],
            "it is not over yet"
        );
        assert_eq!(told(None, &[0.6, 0.6, 0.6, 0.39, 0.6, 0.6, 0.6]), [2, 6]);
        assert_eq!(
            told(Some(true), &[0.6; 8]),
            [2, 5],
            "what helped is done again, after as long"
        );
    }

    #[test]
    fn what_did_not_help_is_tried_again_after_twice_as_long_each_time() {
        assert_eq!(told(Some(false), &[0.6; 40]), [2, 5, 10, 19, 36]);
        let mut ratios = [0.6; 20];
        ratios[6] = 0.3;
        assert_eq!(told(Some(false), &ratios), [2, 5, 9, 12, 17], "another episode");
        ratios[6] = 0.45;
        assert_eq!(
            told(Some(false), &ratios),
            [2, 5, 11],
            "the same, for a while not too much"
        );
    }

    #[test]
    fn a_clock_that_goes_back_tells_nothing() {
        let mut watch = Watch::new(0.5, 0.4, Duration::from_secs(2));
        assert_eq!(watch.look(Duration::from_secs(9), Some(0.9)), None);
        assert_eq!(watch.look(Duration::from_secs(1), Some(0.9)), None);
        assert_eq!(watch.look(Duration::from_secs(2), None), None);
    }
}
