//! The newest samples as the sources handed them over, and what the sources are asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gpumem_probe::{Gpu, NvmlSample, Process};

use super::channel::{ChannelKey, ChannelSample};
use super::{Nanos, SECOND};

/// The sources that sample, in the order of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SourceId {
    /// The channels that processes publish.
    Channels,
    /// The driver.
    Nvml,
    /// The processes behind the rows.
    Processes,
}

/// What a source found.
#[derive(Clone, Debug)]
pub(crate) enum Sample {
    /// One pass over the channels.
    Channels(ChannelSample),
    /// The driver's devices, and the processes on them.
    Nvml(NvmlSample),
    /// Those of the processes that were asked for which can be seen here.
    Processes(Vec<Process>),
}

impl Sample {
    /// Whose it is.
    pub(crate) fn source(&self) -> SourceId {
        match self {
            Sample::Channels(_) => SourceId::Channels,
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
    /// How long until the next one.
    pub pace: Nanos,
}

impl Taken {
    /// Of a source that samples every `pace`.
    pub(crate) fn new(at: Nanos, pace: Duration) -> Taken {
        let pace = u64::try_from(pace.as_nanos()).unwrap_or(u64::MAX);
        Taken { at, pace }
    }

    /// Whether the source has missed three samples and two seconds since: its figures are then old, not wrong.
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

/// When the newest sample of each source was taken. A source is not in it before its first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times(BTreeMap<SourceId, Taken>);

impl Times {
    /// When a source sampled last; `None` before its first sample.
    pub(crate) fn of(&self, source: SourceId) -> Option<Nanos> {
        self.0.get(&source).map(|taken| taken.at)
    }

    /// Notes a sample; whether it is the first of its source.
    pub(crate) fn note(&mut self, source: SourceId, taken: Taken) -> bool {
        self.0.insert(source, taken).is_none()
    }

    /// Sources that sample once a second and did so last at `at`.
    #[cfg(test)]
    pub(crate) fn at(at: Nanos, sources: &[SourceId]) -> Times {
        let taken = Taken::new(at, Duration::from_secs(1));
        Times(sources.iter().map(|source| (*source, taken)).collect())
    }

    /// The sources whose figures are old.
    pub(crate) fn old(&self, now: Nanos) -> impl Iterator<Item = SourceId> {
        let old = self.0.iter().filter(move |(_, taken)| taken.is_old(now));
        old.map(|(source, _)| *source)
    }
}

/// The newest samples.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inputs {
    /// When each was taken.
    pub times: Times,
    /// NVML's.
    pub nvml: NvmlSample,
    /// The channels'. Glances, marks and losses have moved on into the devices' histories.
    pub channels: ChannelSample,
    /// The processes'.
    pub processes: Vec<Process>,
    /// Channels that were seen alive and are still there: their black boxes are news, older ones are not.
    pub seen_alive: BTreeSet<ChannelKey>,
}

impl Inputs {
    /// Whether the driver and the channels have been looked at.
    pub(crate) fn looked(&self) -> bool {
        let looked = |source| self.times.of(source).is_some();
        looked(SourceId::Nvml) && looked(SourceId::Channels)
    }

    /// Keeps a sample in place of the one before; whether it is the first of its source.
    pub(crate) fn keep(&mut self, Sampled { taken, sample }: Sampled) -> bool {
        let first = self.times.note(sample.source(), taken);
        match sample {
            Sample::Channels(sample) => self.channels = sample,
            Sample::Nvml(sample) => self.nvml = sample,
            Sample::Processes(sample) => self.processes = sample,
        }
        first
    }
}

/// What the sources are asked for. Sources know nothing of one another: what one found is asked of the next from here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// The channel whose blocks are shown: they are wanted even if it is a black box.
    pub blocks_of: Option<ChannelKey>,
    /// The processes that NVML lists.
    pub listed: Vec<u32>,
    /// The processes that publish.
    pub publishers: Vec<u32>,
}

impl Request {
    /// What follows from the newest samples.
    pub(crate) fn of(inputs: &Inputs, blocks_of: Option<ChannelKey>) -> Request {
        let gpus = inputs.nvml.gpus.iter();
        Request {
            blocks_of,
            listed: gpus.flat_map(Gpu::all_processes).map(|process| process.pid).collect(),
            publishers: inputs.channels.channels.iter().filter_map(|c| c.pid).collect(),
        }
    }

    /// Every process that somebody names, once, in order.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let mut pids = [&self.listed[..], &self.publishers].concat();
        pids.sort_unstable();
        pids.dedup();
        pids
    }
}
