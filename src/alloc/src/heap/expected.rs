//! How much a program is expected to hold: about as much is reserved before a request is rather stitched from what there is.
//!
//! What it ever held it holds again, most likely: it is in a loop. But a program that gives its cache back needs less from now on, as a server
//! that has prepared itself, and what it held before is no reason any more to take memory; unless it does so again and again, as scripts do
//! after every step.

/// Times the cache was given back that are remembered.
const KEPT: usize = 8;
/// What was held in one of them comes again if so much of it, or more, was held in another one.
const ALIKE: u64 = 2;
/// Chunks are at most as large as those of a program that holds so many times what is expected.
const COARSE: u64 = 4;

/// Bytes that were requested at the same time, as far as they were seen: whenever a request finds nothing free that fits.
#[derive(Debug, Default)]
pub(super) struct Expected {
    /// The most since the cache was given back. `None`: it never was.
    since: Option<u64>,
    /// The most before each of the last times, from the time before on.
    before: [u64; KEPT],
    times: usize,
    /// What comes again.
    again: u64,
}

impl Expected {
    /// The program gave its cache back, with `held` bytes beside it, and never held more than `ever`.
    pub(super) fn gave_back(&mut self, held: u64, ever: u64) {
        let most = self.since.map_or(ever, |since| since.max(held));
        (self.before[self.times % KEPT], self.since) = (most, Some(held));
        self.times += 1;
        let mut before = self.before;
        before.sort_unstable();
        let [.., second, most] = before;
        self.again = if second >= most / ALIKE { most } else { second };
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

    /// The same for the size of chunks, which are as large as they were while it may be that much comes again.
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
        assert_eq!(expected.most(10, 1000), 1000);
        expected.gave_back(5, 1000);
        assert_eq!([20, 10, 30].map(|held| expected.most(held, 1000)), [20, 20, 30]);
        assert_eq!([100, 1000].map(|ever| expected.most_for_chunks(10, ever)), [100, 120]);
        expected.gave_back(5, 1000);
        assert_eq!(expected.most(10, 1000), 30, "no more than twice");
    }

    #[test]
    fn who_gives_the_cache_back_at_every_step_is_expected_to_hold_as_much_as_in_the_largest() {
        let mut expected = Expected::default();
        expected.gave_back(5, 100);
        for held in [60, 30, 20] {
            expected.most(held, 100);
            expected.gave_back(5, 100);
            assert_eq!(expected.most(10, 100), 100, "{held}");
        }
    }

    #[test]
    fn what_was_held_long_ago_is_forgotten() {
        let mut expected = Expected::default();
        expected.gave_back(5, 100);
        let mut step = || {
            expected.most(60, 100);
            expected.gave_back(5, 100);
            expected.most(10, 100)
        };
        let then: Vec<u64> = (0..9).map(|_| step()).collect();
        assert_eq!((then[..7].to_vec(), then[7..].to_vec()), (vec![100; 7], vec![60; 2]));
    }
}
