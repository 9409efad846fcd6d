//! How much a program is expected to hold: about as much is reserved before a request is rather stitched from what there is.
//!
//! What it ever held it holds again, most likely: it is in a loop. But who gives the cache back has it that he needs less from now on, and what
//! was held before is no reason any more to take memory; unless that came back after the last time, as where the cache is given back
//! at every step.

/// A program comes back to what it held if it comes to this part of it.
const AGAIN: u64 = 2;
/// Chunks are at most as large as those of a program that holds so many times what is expected.
const COARSE: u64 = 4;

/// Bytes that were requested at the same time, as far as they were seen: whenever a request finds nothing free that fits.
#[derive(Debug, Default)]
pub(super) struct Expected {
    /// The most since the cache was given back. `None`: it never was.
    since: Option<u64>,
    /// The most from the time before to that time.
    before: Option<u64>,
    /// What is held again.
    again: u64,
}

impl Expected {
    /// The program gave its cache back, with `held` bytes beside it, and never held more than `ever`.
    pub(super) fn gave_back(&mut self, held: u64, ever: u64) {
        let most = self.since.map_or(ever, |since| since.max(held));
        let comes_back = self.before.is_some_and(|before| most >= before / AGAIN);
        self.again = if comes_back {
            self.before.unwrap_or(0).max(most)
        } else {
            0
        };
        (self.before, self.since) = (Some(most), Some(held));
    }

    /// What to expect where a program holds `held` bytes, and never held more than `ever`.
    pub(super) fn most(&mut self, held: u64, ever: u64) -> u64 {
        match &mut self.since {
            None => ever,
            Some(since) => {
                *since = held.max(*since);
                self.again.max(*since)
            }
        }
    }

    /// What chunks go by: what a program held before its last release it may yet come to.
    pub(super) fn most_for_chunks(&mut self, held: u64, ever: u64) -> u64 {
        ever.min(self.most(held, ever).saturating_mul(COARSE))
    }
}

#[cfg(test)]
mod tests {
    use super::Expected;

    #[test]
    fn what_was_held_is_expected_until_the_cache_is_given_back() {
        let mut expected = Expected::default();
        assert_eq!(expected.most(10, 100), 100);
        expected.gave_back(5, 100);
        assert_eq!([20, 10, 30].map(|held| expected.most(held, 100)), [20, 20, 30]);
        assert_eq!(expected.most_for_chunks(10, 100), 100);
        assert_eq!(expected.most_for_chunks(10, 1000), 120);
    }

    #[test]
    fn who_gives_the_cache_back_at_every_step_is_expected_to_hold_as_much_again() {
        let mut expected = Expected::default();
        expected.gave_back(5, 100);
        assert_eq!(expected.most(60, 100), 60);
        expected.gave_back(5, 100);
        assert_eq!(expected.most(10, 100), 100, "it came back to more than half");
        assert_eq!(expected.most(55, 100), 100);
        expected.gave_back(5, 100);
        assert_eq!(expected.most(10, 100), 60);
        expected.gave_back(5, 100);
        assert_eq!(expected.most(10, 100), 10, "it did not");
    }
}
