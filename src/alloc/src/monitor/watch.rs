//! When something has been too much for too long: pure, so that time can be anything.

use std::time::Duration;

/// How long nothing more is done after something was: at least, and at most. It is twice as long each time.
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
///
/// After something was done it pauses, for longer each time, whether that helped or not: what helped may be undone at once, and then
/// doing it again and again is work for nothing. Once the ratio has stayed below for as long as the last pause, the next is a first one.
#[derive(Debug)]
pub(super) struct Watch {
    above: f64,
    below: f64,
    lasting: Duration,
    /// Since when the ratio is above.
    since: Option<Duration>,
    /// Since when it is below.
    calm: Option<Duration>,
    /// Whether the episode was told.
    told: bool,
    /// For how long nothing more is done, if something was.
    pause: Option<Duration>,
    /// Since when: the first look afterwards.
    resting: Option<Duration>,
}

impl Watch {
    pub(super) fn new(above: f64, below: f64, lasting: Duration) -> Watch {
        Watch {
            above,
            below,
            lasting,
            since: None,
            calm: None,
            told: false,
            pause: None,
            resting: None,
        }
    }

    /// Whether a ratio (`None`: nothing to speak of) ends an episode.
    pub(super) fn is_over(&self, ratio: Option<f64>) -> bool {
        ratio.unwrap_or(0.0) < self.below
    }

    /// Takes a ratio. How long it has been too high, if something is to be done now.
    pub(super) fn look(&mut self, now: Duration, ratio: Option<f64>) -> Option<Told> {
        let rested = now.saturating_sub(*self.resting.get_or_insert(now));
        if self.is_over(ratio) {
            let calm = now.saturating_sub(*self.calm.get_or_insert(now));
            self.told = false;
            self.pause = self.pause.filter(|pause| calm < *pause);
        } else {
            self.calm = None;
        }
        if ratio.unwrap_or(0.0) <= self.above {
            self.since = None;
            return None;
        }
        let lasted = now.saturating_sub(*self.since.get_or_insert(now));
        if lasted < self.lasting || self.pause.is_some_and(|pause| rested < pause) {
            return None;
        }
        if self.told {
            // Where nothing was tried there is nothing to try again.
            return self.pause.map(|_| Told::GoesOn(lasted));
        }
        self.told = true;
        Some(Told::Begun(lasted))
    }

    /// Something was done about it. If it helped, what comes is another episode. If not, it may later: memory that was held then, or a
    /// capture that was under way, may be gone.
    pub(super) fn acted(&mut self, helped: bool) {
        let pause = self.pause.map_or(self.lasting, |pause| pause * 2);
        self.pause = Some(pause.clamp(SHORTEST, LONGEST));
        self.resting = None;
        if helped {
            (self.told, self.since) = (false, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What these ratios, a second apart, tell at which of them, if what is done then helps, does not, or is only a warning.
    fn looks(helps: Option<bool>, ratios: &[f64]) -> Vec<(usize, Told)> {
        let mut watch = Watch::new(0.5, 0.4, Duration::from_secs(2));
        let mut look = |at: usize, ratio: f64| {
            let told = watch.look(Duration::from_secs(at as u64), Some(ratio))?;
            if let Some(helps) = helps {
                watch.acted(helps);
            }
            Some((at, told))
        };
        (0..).zip(ratios).filter_map(|(at, ratio)| look(at, *ratio)).collect()
    }

    /// At which of them something is to be done.
    fn told(helps: Option<bool>, ratios: &[f64]) -> Vec<usize> {
        looks(helps, ratios).into_iter().map(|(at, _)| at).collect()
    }

    fn begun(at: usize, seconds: u64) -> (usize, Told) {
        (at, Told::Begun(Duration::from_secs(seconds)))
    }

    fn goes_on(at: usize, seconds: u64) -> (usize, Told) {
        (at, Told::GoesOn(Duration::from_secs(seconds)))
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
        for ratio in [0.45, 0.4] {
            let ratios = [0.6, 0.6, 0.6, ratio, 0.6, 0.6, 0.6];
            assert_eq!(told(None, &ratios), [2], "it is not over yet at {ratio}");
        }
        assert_eq!(told(None, &[0.6, 0.6, 0.6, 0.39, 0.6, 0.6, 0.6]), [2, 6]);
    }

    #[test]
    fn what_did_not_help_is_tried_again_after_twice_as_long_each_time() {
        assert_eq!(
            looks(Some(false), &[0.6; 20]),
            [begun(2, 2), goes_on(5, 5), goes_on(10, 10), goes_on(19, 19)]
        );
        let mut ratios = [0.6; 40];
        ratios[6] = 0.45;
        assert_eq!(
            looks(Some(false), &ratios[..20]),
            [begun(2, 2), goes_on(5, 5), goes_on(10, 3), goes_on(19, 12)],
            "the same, for a while not too much"
        );
        ratios[6] = 0.3;
        assert_eq!(
            looks(Some(false), &ratios),
            [
                begun(2, 2),
                goes_on(5, 5),
                begun(10, 3),
                goes_on(19, 12),
                goes_on(36, 29)
            ],
            "another episode, and as long a pause"
        );
    }

    #[test]
    fn what_helped_and_was_undone_at_once_is_done_again_as_seldom() {
        assert_eq!(
            looks(Some(true), &[0.6; 40]),
            [begun(2, 2), begun(5, 2), begun(10, 4), begun(19, 8), begun(36, 16)]
        );
        // It is below between any two times, but never for long.
        let ratios: Vec<f64> = (0..60).map(|at| if at % 4 == 3 { 0.3 } else { 0.6 }).collect();
        assert_eq!(told(Some(true), &ratios), [2, 6, 14, 26, 46]);
        assert_eq!(told(Some(false), &ratios), [2, 6, 14, 26, 46]);
    }

    #[test]
    fn a_ratio_that_stays_below_for_as_long_as_a_pause_ends_it() {
        // The pause after the look at 10 is 8 s, and lasts until 19.
        let calm_for = |seconds: usize| {
            let mut ratios = [0.6; 40];
            ratios[11..=11 + seconds].fill(0.3);
            told(Some(true), &ratios)
        };
        assert_eq!(calm_for(7)[3..], [21, 38], "the next one is of 16 s");
        assert_eq!(calm_for(8)[3..], [22, 25, 30, 39], "the next one is of 2 s");
    }

    #[test]
    fn a_clock_that_goes_back_tells_nothing() {
        let mut watch = Watch::new(0.5, 0.4, Duration::from_secs(2));
        assert_eq!(watch.look(Duration::from_secs(9), Some(0.9)), None);
        assert_eq!(watch.look(Duration::from_secs(1), Some(0.9)), None);
        assert_eq!(watch.look(Duration::from_secs(2), None), None);
    }
}
