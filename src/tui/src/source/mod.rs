//! The sources: each samples one thing, on its own thread and at its own pace, and hands over its latest sample.
//!
//! A slow or hung driver call holds up its own source and nothing else. Samples are handed over through a [`Slot`] that
//! keeps the newest; there is no queue that could grow. Sources know nothing of one another: where one has to look at what
//! another found, the main loop asks it to with a [`Request`].
//!
//! A new source is a file here with its [`Source`] and a row in [`all`]. What it finds is a variant of [`Sample`] and a field
//! of [`Inputs`]. The README has the list of files.

mod channel;
mod descriptors;
mod marks;
mod nvml;
mod open;
mod others;
mod process;
mod sampler;
mod share;
mod slot;

use std::time::Duration;

use gpumem_probe::Facts;
use serde_json::value::RawValue;

pub(crate) use descriptors::raise_limit as raise_descriptor_limit;
pub(crate) use nvml::{in_driver, named as named_nvml};
pub(crate) use sampler::{Requests, Samples, start, take_once};
pub(crate) use slot::Slot;

use channel::Channels;
use nvml::Driver;
use process::ProcessTable;

use crate::check::Check;
use crate::model::{Inputs, Model, Request, Sample, Setup};

/// Every source. Reports sample them in this order, and ask each for what those before it found.
pub(crate) fn all() -> Vec<Box<dyn Source>> {
    vec![
        Box::<Driver>::default(),
        Box::<Channels>::default(),
        Box::<ProcessTable>::default(),
    ]
}

/// Something that is sampled. It is made where only its words are wanted, too: what takes time is for the first sample.
pub(crate) trait Source: Send {
    /// The name of its thread, and of its field in the JSON document.
    fn name(&self) -> &'static str;

    /// Whether it is sampled here.
    fn is_wanted(&self, _setup: &Setup) -> bool {
        true
    }

    /// How often it samples, where the user wants a sample every `interval`.
    fn pace(&self, interval: Duration) -> Duration {
        interval
    }

    /// Looks.
    fn sample(&mut self, request: &Request) -> Sample;

    /// Looks for a report, which has only this sample: with what takes longer, and with an end where there may be none.
    fn sample_once(&mut self, request: &Request) -> Sample {
        self.sample(request)
    }

    /// Makes one sample of the one that nobody took yet and the newer one. What must not be lost goes over.
    fn merge(&self, _old: Sample, new: Sample) -> Sample {
        new
    }

    /// Sleeps until it is time for the next sample; `false` when none will be worth it.
    fn rest(&mut self, pace: Duration, _requests: &Requests) -> bool {
        sampler::sleep_to_beat(pace);
        true
    }

    /// What `doctor` says of it, after one sample.
    fn checks(&self, _facts: &Facts, _inputs: &Inputs) -> Vec<Check> {
        Vec::new()
    }

    /// Its field in the JSON document, if it has one of its own: what belongs to a device or to a process stands there.
    ///
    /// # Errors
    /// When it cannot be written as JSON, which would be a bug.
    fn json(&self, _model: &Model) -> serde_json::Result<Option<Box<RawValue>>> {
        Ok(None)
    }
}
