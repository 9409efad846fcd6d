//! The newest samples as the sources handed them over.

use std::collections::BTreeSet;

use gpumem_probe::{NvmlSample, Process};

use super::Nanos;
use super::channel::{Channel, ChannelKey, LeftOut, Problem};
use super::device::DeviceKey;
use super::history::Mark;

/// What publishers held at one moment between two samples, on the devices where that changed. A training loop rises and
/// falls within a second; sampled once a second it would be drawn as steps that never were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Glance {
    /// When.
    pub at: Nanos,
    /// Sums over the live publishers of each device.
    pub held: Vec<Held>,
}

/// What the publishers of a device hold together. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The device.
    pub device: DeviceKey,
    /// Held by programs.
    pub allocated: u64,
    /// Taken from the driver.
    pub reserved: u64,
}

/// One pass of the channel source.
#[derive(Clone, Debug, Default)]
pub struct ChannelSample {
    /// When.
    pub at: Nanos,
    /// Every channel that is read, live ones and black boxes.
    pub channels: Vec<Channel>,
    /// Files that cannot be read, and directories that are refused.
    pub problems: Vec<Problem>,
    /// What is not read of other users' channels, by user.
    pub left_out: Vec<LeftOut>,
    /// What was held between the sample before and this one, oldest first.
    pub glances: Vec<Glance>,
    /// Events since the sample before, oldest first.
    pub marks: Vec<Mark>,
    /// Events that were overwritten before they could be read, by channel; 0 of those that were so before anybody looked.
    pub lost: Vec<(ChannelKey, u64)>,
    /// The processes behind the rows that are shown.
    pub processes: Vec<Process>,
}

/// The newest samples.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// NVML's.
    pub nvml: NvmlSample,
    /// When it was taken; `None` before the first.
    pub nvml_at: Option<Nanos>,
    /// The channels'. Glances, marks and losses have moved on into the devices' histories.
    pub channels: ChannelSample,
    /// When they were read; `None` before the first.
    pub channels_at: Option<Nanos>,
    /// Channels that were seen alive and are still there: their black boxes are news, older ones are not.
    pub seen_alive: BTreeSet<ChannelKey>,
}
