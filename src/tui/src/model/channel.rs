//! Channels, as the channel source hands them over.

use std::sync::Arc;

use gpumem_channel::Snapshot;

use super::Nanos;
use super::device::DeviceKey;
use super::figures::Figures;
use super::history::Mark;
use super::past::Past;

/// Device and inode of a channel's file: the identity of a publisher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ChannelKey(pub u64, pub u64);

/// One channel's newest state.
#[derive(Clone, Debug)]
pub(crate) struct Channel {
    /// Its identity.
    pub key: ChannelKey,
    /// Its pid in our namespace, if known. `identity.pid` is the pid in the publisher's namespace.
    pub pid: Option<u32>,
    /// The process that it claims to be, if that belongs to another user than the file. `pid` is `None` then.
    pub disputed: Option<u32>,
    /// What it published. It is old when `error` is set.
    pub snapshot: Arc<Snapshot>,
    /// Figures of each of the snapshot's devices; `None` if they could not be read consistently or contradict
    /// themselves.
    pub figures: Arc<[Option<Figures>]>,
    /// Why the newest pass could not read it.
    pub error: Option<String>,
    /// When `snapshot` was read.
    pub read_at: Nanos,
    /// When a dead publisher was last known to be alive: the time of its newest event, or later if it was seen alive. `None` if
    /// it is alive or that time is not known.
    pub last_sign: Option<Nanos>,
}

/// How much of what another user publishes is not shown, because what one user may add to the model is bounded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeftOut {
    /// The user's uid.
    pub uid: u32,
    /// The user's name, or the uid if it has none.
    pub user: String,
    /// Channels that were found.
    pub channels: usize,
    /// Channels among these that are not shown.
    pub hidden_channels: usize,
    /// Devices of the shown channels that are not shown.
    pub hidden_devices: usize,
}

/// Something that keeps channels from being shown, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Problem {
    /// File name, cleaned.
    pub file: String,
    /// The kind of problem.
    pub kind: ProblemKind,
    /// A sentence that says what is wrong.
    pub text: String,
}

/// What keeps channels from being shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ProblemKind {
    /// A file that looks like a channel cannot be read.
    #[default]
    File,
    /// A channel directory is refused: nothing in it is read.
    Directory,
    /// There are more directories, or more files in a directory, than are read.
    Overflow,
    /// The channel file of a living program was removed.
    Removed,
}

/// What publishers held at one moment between two samples, on the devices where that changed. The memory of a training loop
/// rises and falls within a second, which one sample a second would miss.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Glance {
    /// When the publishers were read.
    pub at: Nanos,
    /// Sums over the live publishers of each device.
    pub held: Vec<Held>,
}

/// What the publishers of a device hold together, in bytes.
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
    /// Every channel that is read: live ones and black boxes.
    pub channels: Vec<Channel>,
    /// Files that cannot be read, and directories that are refused.
    pub problems: Vec<Problem>,
    /// What is not shown of other users' channels, by user.
    pub left_out: Vec<LeftOut>,
    /// Glances since the previous sample, oldest first.
    pub glances: Vec<Glance>,
    /// Marks of events since the previous sample, oldest first.
    pub marks: Vec<Mark>,
    /// What publishers that are read for the first time held before, with their channels.
    pub past: Vec<(ChannelKey, Past)>,
    /// Number of events that were overwritten before they could be read, by channel. 0 if that was before the first pass.
    pub lost: Vec<(ChannelKey, u64)>,
}
