//! Publishes what was sampled of another allocator.

use super::Publisher;
use crate::sampled::Sampled;
use crate::section::sampled::encode;

impl Publisher {
    /// Publishes when another allocator was sampled. Returns false if the file has no place for it: see
    /// [`Options::sampled`](crate::Options::sampled).
    pub fn sampled(&mut self, sampled: &Sampled) -> bool {
        self.record(|layout| layout.sampled, 0, encode(sampled))
    }

    /// Returns `CLOCK_MONOTONIC` in nanoseconds, with the resolution of an [event's time](crate::Event::time).
    pub fn now(&mut self) -> u64 {
        self.time()
    }

    /// Returns when somebody last looked at the channel and asked for its blocks ([`Reader::want_blocks`](crate::Reader::want_blocks)):
    /// the access time of its file, in nanoseconds since 1970. `None` if it cannot be read, and in a forked child.
    pub fn wanted_at(&self) -> Option<u64> {
        let stat = rustix::fs::stat(&self.path).ok().filter(|_| !self.gone())?;
        let seconds = u64::try_from(stat.st_atime).ok()?;
        Some(
            seconds
                .saturating_mul(1_000_000_000)
                .saturating_add(stat.st_atime_nsec as u64),
        )
    }
}
