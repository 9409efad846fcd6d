//! Publishes what was sampled of another allocator.

use std::fs::File;

use rustix::fs::{Stat, Timespec, Timestamps, UTIME_OMIT};

use super::Publisher;
use crate::outside::Outside;
use crate::past::PastFigures;
use crate::record::{Block, Event};
use crate::sampled::Sampled;
use crate::section::outside;
use crate::section::past::{self, PAST};
use crate::section::sampled::encode;

impl Publisher {
    /// Publishes when another allocator was sampled. Returns false if the file has no place for it: see
    /// [`Options::sampled`](crate::Options::sampled).
    pub fn sampled(&mut self, sampled: &Sampled) -> bool {
        self.record(|layout| layout.sampled, 0, encode(sampled))
    }

    /// Publishes what the process uses outside of the allocator on a device. Returns false if the file has no place for it.
    pub fn outside(&mut self, device: u8, outside: &Outside) -> bool {
        self.record(|layout| layout.outside, device.into(), outside::encode(outside))
    }

    /// Publishes figures that stay when newer ones are published: the newest [`PAST`] of all devices. Returns false if the file has no place
    /// for them.
    pub fn past_figures(&mut self, figures: &PastFigures) -> bool {
        let place = self.past % PAST;
        self.past = self.past.wrapping_add(1);
        self.record(|layout| layout.past, place, past::encode(figures))
    }

    /// Publishes an [event](Publisher::event) of an earlier time, which is heard of only now.
    pub fn past_event(&mut self, event: &Event) {
        let now = self.time();
        if !self.gone() {
            let time = event.time.min(now);
            self.writer.event(&Event { time, ..*event });
        }
    }

    /// Publishes a [block](Publisher::block) that entered its state at the earlier time that it has.
    pub fn past_block(&mut self, slot: u32, block: &Block, next: Option<u32>) -> bool {
        let time = block.time.min(self.clock.now());
        self.writer.block(slot, time, block.state, block, next)
    }

    /// Returns `CLOCK_MONOTONIC` in nanoseconds, with the resolution of an [event's time](crate::Event::time).
    pub fn now(&mut self) -> u64 {
        self.time()
    }

    /// Returns when somebody last looked at the channel and asked for its blocks ([`Reader::want_blocks`](crate::Reader::want_blocks)):
    /// the access time of its file, in nanoseconds since 1970. `None` if nobody has, if it cannot be read, and in a forked child.
    pub fn wanted_at(&self) -> Option<u64> {
        let stat = rustix::fs::stat(&self.path).ok().filter(|_| !self.gone())?;
        accessed(&stat).filter(|at| Some(*at) != self.unasked)
    }
}

/// Gives a file that has no name yet an access time that no reader's is equal to, and returns it.
///
/// The kernel's times have the resolution of its tick, so a reader that asks at once could leave the time as it was.
pub(super) fn mark_unasked(file: &File) -> Option<u64> {
    let before = rustix::fs::fstat(file).ok()?;
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: before.st_atime,
            // Between two ticks.
            tv_nsec: (before.st_atime_nsec + 1).min(999_999_999).cast_signed(),
        },
        last_modification: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
    };
    let _ = rustix::fs::futimens(file, &times);
    accessed(&rustix::fs::fstat(file).ok()?)
}

fn accessed(stat: &Stat) -> Option<u64> {
    let seconds = u64::try_from(stat.st_atime).ok()?;
    Some(seconds.saturating_mul(1_000_000_000).saturating_add(stat.st_atime_nsec))
}
