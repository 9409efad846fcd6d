//! The newest samples as the sources handed them over, and the request to the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gpumem_probe::{Gpu, NvmlSample, Process};

use super::channel::{ChannelKey, ChannelSample};
use super::history::Mark;
use super::managed::{ManagedRequest, ManagedSample};
use super::past::Past;
use super::{Nanos, SECOND};

/// The sources that sample, in the order of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SourceId {
    /// The channels that processes publish.
    Channels,
    /// Managed memory.
    Managed,
    /// The driver, through NVML.
    Nvml,
    /// The processes of the table, from `/proc`.
    Processes,
}

/// What a source found.
#[derive(Clone, Debug)]
pub(crate) enum Sample {
    /// One pass over the channels.
    Channels(ChannelSample),
    /// The managed memory of processes.
    Managed(ManagedSample),
    /// The driver's devices, and the processes on them.
    Nvml(NvmlSample),
    /// The requested processes that are visible here.
    Processes(Vec<Process>),
}

impl Sample {
    /// Returns the source of this sample.
    pub(crate) fn source(&self) -> SourceId {
        match self {
            Sample::Channels(_) => SourceId::Channels,
            Sample::Managed(_) => SourceId::Managed,
            Sample::Nvml(_) => SourceId::Nvml,
            Sample::Processes(_) => SourceId::Processes,
        }
    }
}

/// When a sample was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// The moment, on `CLOCK_MONOTONIC`.
    pub at: Nanos,
    /// Time until the next sample is due.
    pub pace: Nanos,
}

impl Taken {
    /// The time of a sample whose source samples every `pace`.
    pub(crate) fn new(at: Nanos, pace: Duration) -> Taken {
        let pace = u64::try_from(pace.as_nanos()).unwrap_or(u64::MAX);
        Taken { at, pace }
    }

    /// Checks whether the sample is older than three intervals and two seconds.
    fn is_old(&self, now: Nanos) -> bool {
        now.saturating_sub(self.at) > self.pace.saturating_mul(3).max(2 * SECOND)
    }
}

/// A sample with its time.
#[derive(Clone, Debug)]
pub(crate) struct Sampled {
    /// When it was taken.
    pub taken: Taken,
    /// What was found.
    pub sample: Sample,
}

/// When the newest sample of each source was taken. A source has no entry before its first sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times(BTreeMap<SourceId, Taken>);

impl Times {
    /// Returns when a source sampled last; `None` before its first sample.
    pub(crate) fn of(&self, source: SourceId) -> Option<Nanos> {
        self.0.get(&source).map(|taken| taken.at)
    }

    /// Iterates over the sources that have sampled, each with the time of its newest sample.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (SourceId, Nanos)> {
        self.0.iter().map(|(source, taken)| (*source, taken.at))
    }

    /// Records a sample. Returns whether it is the first of its source.
    pub(crate) fn note(&mut self, source: SourceId, taken: Taken) -> bool {
        self.0.insert(source, taken).is_none()
    }

    /// Times of sources that sample once a second and did so last at `at`.
    #[cfg(test)]
    pub(crate) fn at(at: Nanos, sources: &[SourceId]) -> Times {
        let taken = Taken::new(at, Duration::from_secs(1));
        Times(sources.iter().map(|source| (*source, taken)).collect())
    }

    /// Iterates over the sources whose newest sample is old.
    pub(crate) fn old(&self, now: Nanos) -> impl Iterator<Item = SourceId> {
        let old = self.0.iter().filter(move |(_, taken)| taken.is_old(now));
        old.map(|(source, _)| *source)
    }
}

/// The newest samples.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inputs {
    /// When each sample was taken.
    pub times: Times,
    /// NVML's sample.
    pub nvml: NvmlSample,
    /// The channels' sample. Its glances, marks and losses were moved to the histories of the devices.
    pub channels: ChannelSample,
    /// The processes' sample.
    pub processes: Vec<Process>,
    /// Channels that were seen alive and still exist. Their black boxes are listed; older ones only on demand.
    pub seen_alive: BTreeSet<ChannelKey>,
    /// Marks of devices that are not known yet: NVML answers later than the channels.
    pub unfiled_marks: Vec<Mark>,
    /// The same for what publishers held before they were read for the first time.
    pub unfiled_past: Vec<(ChannelKey, Past)>,
}

impl Inputs {
    /// Checks whether both the driver and the channels have been sampled.
    pub(crate) fn looked(&self) -> bool {
        let looked = |source| self.times.of(source).is_some();
        looked(SourceId::Nvml) && looked(SourceId::Channels)
    }

    /// Replaces the previous sample of the same source. Returns whether it is the first of that source.
    pub(crate) fn keep(&mut self, Sampled { taken, sample }: Sampled) -> bool {
        let first = self.times.note(sample.source(), taken);
        match sample {
            Sample::Channels(sample) => self.channels = sample,
            // It moves on into the world at once: nothing else is derived from the whole of it.
            Sample::Managed(_) => {}
            Sample::Nvml(sample) => self.nvml = sample,
            Sample::Processes(sample) => self.processes = sample,
        }
        first
    }
}

/// What the sources are asked for. Sources know nothing of one another, so what one found reaches another through this.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// The channel whose blocks are shown. They are read even if it is a black box.
    pub blocks_of: Option<ChannelKey>,
    /// Pids that NVML lists.
    pub listed: Vec<u32>,
    /// Pids that publish.
    pub publishers: Vec<u32>,
    /// A program that was just started and publishes, but has not been seen so far.
    pub expected: Option<u32>,
    /// What is wanted of managed memory.
    pub managed: ManagedRequest,
}

impl Request {
    /// Builds the request that follows from the newest samples.
    pub(crate) fn of(inputs: &Inputs, blocks_of: Option<ChannelKey>) -> Request {
        let gpus = inputs.nvml.gpus.iter();
        Request {
            blocks_of,
            listed: gpus.flat_map(Gpu::all_processes).map(|process| process.pid).collect(),
            publishers: inputs.channels.channels.iter().filter_map(|c| c.pid).collect(),
            expected: None,
            managed: ManagedRequest::default(),
        }
    }

    /// Returns every pid once, in ascending order.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let mut pids = [&self.listed[..], &self.publishers].concat();
        pids.sort_unstable();
        pids.dedup();
        pids
    }
}
