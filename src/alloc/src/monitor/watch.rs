//! When something has been too much for too long: pure, so that time can be anything.

use std::time::Duration;

/// Begins an episode when a ratio has been above one limit for some time, and ends it when it is below another.
#[derive(Debug)]
pub(super) struct Watch {
    above: f64,
    below: f64,
    lasting: Duration,
    /// Since when the ratio is above.
    since: Option<Duration>,
    /// Whether the episode was told.
    told: bool,
}

impl Watch {
    pub(super) fn new(above: f64, below: f64, lasting: Duration) -> Watch {
        Watch {
            above,
            below,
            lasting,
            since: None,
            told: false,
        }
    }

    /// Takes a ratio (`None`: nothing to speak of). How long it has been too high, if that is to be told now.
    pub(super) fn look(&mut self, now: Duration, ratio: Option<f64>) -> Option<Duration> {
        let ratio = ratio.unwrap_or(0.0);
        if self.told {
            self.told = ratio >= self.below;
            self.since = None;
            return None;
        }
        if ratio <= self.above {
            self.since = None;
            return None;
        }
        let lasted = now.saturating_sub(*self.since.get_or_insert(now));
        self.told = lasted >= self.lasting;
        self.told.then_some(lasted)
    }

    /// What was done about it: if it helped, what comes is another episode. If not, it would not help again.
    pub(super) fn acted(&mut self, helped: bool) {
        if helped {
            (self.told, self.since) = (false, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told at each of these ratios, a second apart.
    fn told(helps: bool, ratios: &[f64]) -> Vec<usize> {
        let mut watch = Watch::new(0.5, 0.4, Duration::from_secs(2));
        let mut look = |at: usize, ratio: f64| {
            let told = watch.look(Duration::from_secs(at as u64), Some(ratio)).is_some();
            if told {
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
        assert_eq!(told(false, &[0.6; 10]), [2]);
        assert_eq!(told(false, &[0.5; 10]), [0; 0], "not above");
        assert_eq!(
            told(false, &[0.6, 0.6, 0.3, 0.6, 0.6, 0.3]),
            [0; 0],
            "not for long enough"
        );
        assert_eq!(
            told(false, &[0.6, 0.6, 0.6, 0.45, 0.6, 0.6, 0.6]),
            [2],
            "it is not over yet"
        );
        assert_eq!(told(false, &[0.6, 0.6, 0.6, 0.39, 0.6, 0.6, 0.6]), [2, 6]);
        assert_eq!(
            told(true, &[0.6; 8]),
            [2, 5],
            "what helped is done again, after as long"
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
