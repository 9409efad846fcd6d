//! The samplers: each on its own thread and at its own pace, handing over its latest sample.
//!
//! A slow or hung driver call holds up its own sampler and nothing else. Samples are handed over through a [`Slot`]
//! that keeps the newest; there is no queue that could grow.

mod channel;
mod descriptors;
mod marks;
mod nvml;
mod open;
mod others;
mod share;
mod slot;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub use channel::{Channels, start as start_channels};
pub use descriptors::raise_limit as raise_descriptor_limit;
pub use nvml::{in_driver, listed, named as named_nvml, sample_once as sample_nvml_once, start as start_nvml};
pub use slot::Slot;

use crate::clock;
use crate::model::{ChannelKey, Nanos};

/// Samplers need little stack; the default of 8 MiB would only look bad in a memory map.
const STACK: usize = 512 << 10;

/// Starts a sampler's thread.
///
/// # Errors
/// When the system allows no more threads.
fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new()
        .name(name.into())
        .stack_size(STACK)
        .spawn(body)
        .map(drop)
}

/// The next multiple of `interval` on the monotonic clock: samplers that keep this rhythm sample at the same moments, so
/// that their figures fit together.
fn beat_after(interval: Duration) -> Nanos {
    let interval = (interval.as_nanos() as u64).max(1_000_000);
    let now = clock::now();
    now - now % interval + interval
}

/// Sleeps until that moment.
fn sleep_to_beat(interval: Duration) {
    std::thread::sleep(Duration::from_nanos(beat_after(interval).saturating_sub(clock::now())));
}

/// What others want of the channel sampler.
#[derive(Debug, Default)]
pub struct Wishes {
    pids: Mutex<Vec<u32>>,
    selected: Mutex<Option<ChannelKey>>,
}

impl Wishes {
    /// Look these processes up, besides publishers: NVML lists them.
    pub fn look_up(&self, pids: Vec<u32>) {
        *self.pids.lock().unwrap_or_else(PoisonError::into_inner) = pids;
    }

    /// Somebody looks at the blocks of this channel.
    pub fn select(&self, channel: Option<ChannelKey>) {
        *self.selected.lock().unwrap_or_else(PoisonError::into_inner) = channel;
    }

    fn pids(&self) -> Vec<u32> {
        self.pids.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn selected(&self) -> Option<ChannelKey> {
        *self.selected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
