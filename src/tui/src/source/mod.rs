//! The sources. Each samples one thing, on its own thread and at its own interval, and hands over its latest sample.
//!
//! A slow or hung driver call delays its own source and nothing else. Samples are handed over through a [`Slot`], which
//! keeps the newest; there is no queue that could grow. Sources know nothing of one another. Where one depends on what
//! another found, the main loop passes that on in a [`Request`].
//!
//! A new source is a file here that implements [`Source`], and a row in [`all`]. Its sample is a variant of [`Sample`] and a
//! field of [`Inputs`]. `CONTRIBUTING.md` lists the files to change.

mod channel;
mod descriptors;
mod managed;
mod marks;
mod nvml;
mod open;
mod others;
mod past;
mod process;
mod sampler;
mod share;
mod slot;

use std::time::Duration;

use gpumem_probe::Facts;
use serde_json::value::RawValue;

pub(crate) use descriptors::raise_limit as raise_descriptor_limit;
pub(crate) use managed::driver_root;
pub(crate) use nvml::{in_driver, named as named_nvml};
pub(crate) use sampler::{Requests, Samples, start, take_once, tick_after};
pub(crate) use slot::Slot;

use channel::Channels;
use managed::Managed;
use nvml::Driver;
use process::ProcessTable;

use crate::check::Check;
use crate::model::{Inputs, Model, Request, Sample, Setup};

/// Returns every source. Reports sample them in this order; the request to each is built from the samples before it.
pub(crate) fn all() -> Vec<Box<dyn Source>> {
    vec![
        Box::<Driver>::default(),
        Box::<Channels>::default(),
        Box::<ProcessTable>::default(),
        Box::<Managed>::default(),
    ]
}

/// Something that is sampled.
///
/// A source is also created where only its name or its checks are needed, so creating one must be cheap: whatever takes
/// time is left to the first sample.
pub(crate) trait Source: Send {
    /// Returns the name of its thread, which is also the name of its field in the JSON document.
    fn name(&self) -> &'static str;

    /// Checks whether it is sampled in this run.
    fn is_wanted(&self, _setup: &Setup) -> bool {
        true
    }

    /// Returns the time between its samples; `interval` is what the user asked for.
    fn pace(&self, interval: Duration) -> Duration {
        interval
    }

    /// Takes a sample.
    fn sample(&mut self, request: &Request) -> Sample;

    /// Takes the only sample of a report. It includes figures that take longer, and it gives up on a driver that hangs.
    fn sample_once(&mut self, request: &Request) -> Sample {
        self.sample(request)
    }

    /// Merges a sample that was not taken yet into the newer one, so that its events are not lost.
    fn merge(&self, _old: Sample, new: Sample) -> Sample {
        new
    }

    /// Sleeps until the next sample is due. Returns `false` when no further sample can succeed.
    fn wait(&mut self, pace: Duration, _requests: &Requests) -> bool {
        sampler::sleep_until_tick(pace);
        true
    }

    /// Returns the checks that `doctor` prints for it, after one sample.
    fn checks(&self, _facts: &Facts, _inputs: &Inputs) -> Vec<Check> {
        Vec::new()
    }

    /// Returns its field in the JSON document, if it has one. Figures of a device or a process are in the fields of those.
    ///
    /// # Errors
    /// When it cannot be written as JSON, which is a bug.
    fn json(&self, _model: &Model) -> serde_json::Result<Option<Box<RawValue>>> {
        Ok(None)
    }
}
