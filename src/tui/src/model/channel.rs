//! Channels as the channel source hands them over.

use std::sync::Arc;

use gpumem_channel::Snapshot;

use super::Nanos;
use super::device::DeviceKey;
use super::figures::Figures;
use super::history::Mark;

/// Device and inode of a channel's file: the identity of a publisher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ChannelKey(pub u64, pub u64);

/// One channel's newest state.
#[derive(Clone, Debug)]
pub(crate) struct Channel {
    /// Its identity.
    pub key: ChannelKey,
    /// Its pid in our namespace, where that is known; `identity.pid` is the publisher's own view.
    pub pid: Option<u32>,
    /// The process here that it says to be, where that is another user's than the file: then `pid` is not known.
    pub disputed: Option<u32>,
    /// What it published. Old when `error` is set.
    pub snapshot: Arc<Snapshot>,
    /// Figures of each of the snapshot's devices; `None` where they could not be read consistently, or
    /// contradict themselves.
    pub figures: Arc<[Option<Figures>]>,
    /// Why the newest pass could not read it.
    pub error: Option<String>,
    /// When `snapshot` was read.
    pub read_at: Nanos,
    /// When its publisher was last known to live, if it is dead: its newest event, or later if it was seen alive. `None` when
    /// that is not known.
    pub last_sign: Option<Nanos>,
}

/// How much of what another user publishes is not shown. What one user may add to the model is bounded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeftOut {
    /// The user's number.
    pub uid: u32,
    /// The user's name, or the number where there is none.
    pub user: String,
    /// Channels that were found.
    pub channels: usize,
    /// Of these, those that are not shown.
    pub hidden_channels: usize,
    /// Devices of the others that are not shown.
    pub hidden_devices: usize,
}

/// Something that keeps channels from being seen, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Problem {
    /// File name, cleaned.
    pub file: String,
    /// What it is.
    pub kind: ProblemKind,
    /// What is wrong with it.
    pub text: String,
}

/// What keeps channels from being seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ProblemKind {
    /// A file that looks like a channel cannot be read.
    #[default]
    File,
    /// A directory of channels is refused: nothing in it is looked at.
    Directory,
    /// There is more in a directory, or there are more of them, than is looked at.
    Overflow,
    /// The channel file of a living program was removed.
    Removed,
}

/// What publishers held at one moment between two samples, on the devices where that changed. A training loop rises and
/// falls within a second; sampled once a second it would be drawn as steps that never were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Glance {
    /// When the publishers were read.
    pub at: Nanos,
    /// Sums over the live publishers of each device.
    pub held: Vec<Held>,
}

/// What the publishers of a device hold together. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// The device.
    pub device: DeviceKey,
    /// Held by programs.
    pub allocated: u64,
    /// Taken from the driver.
    pub reserved: u64,
}

/// One pass of the channel source.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChannelSample {
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
}
