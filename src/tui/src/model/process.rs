//! Processes: NVML's rows joined with channels, one row per process and device.

use gpumem_probe::Reading;

use super::Nanos;
use super::channel::ChannelKey;
use super::device::DeviceKey;
use super::figures::Figures;
use crate::words;
use crate::wrap::{cut, fits};

/// What makes a row the same one from sample to sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ProcessId {
    /// The device it uses.
    pub device: DeviceKey,
    /// The process.
    pub owner: Owner,
}

/// A process, whether it publishes or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// It publishes: its channel says who it is.
    Channel(ChannelKey),
    /// It does not: pid and start time (0 when not known) say who it is.
    Pid(u32, u64),
}

/// What we know of a process and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProcessState {
    /// Its channel is live and read.
    Publishing,
    /// NVML lists it; it has no channel.
    NotPublishing,
    /// It said goodbye; its channel is its black box.
    Exited,
    /// It was killed or crashed; its channel is its black box.
    Died,
    /// Its channel cannot be read consistently; figures are the last good ones, or none.
    Inconsistent(String),
    /// Its channel says that it is a process that is another user's than the channel's file. The text says whose. The row is the file's
    /// owner's.
    Disputed(String),
    /// It is another user's: its channel, if any, is closed to us.
    OtherUser,
}

impl ProcessState {
    /// The words for it.
    pub(crate) fn text(&self) -> &'static str {
        match self {
            ProcessState::Publishing => "publishing",
            ProcessState::NotPublishing => "not publishing",
            ProcessState::Exited => "exited (black box)",
            ProcessState::Died => "died (black box)",
            ProcessState::Inconsistent(_) => "inconsistent",
            ProcessState::Disputed(_) => "disputed (claim does not hold)",
            ProcessState::OtherUser => "other user's",
        }
    }

    /// Whether its memory still counts: false for black boxes.
    pub(crate) fn alive(&self) -> bool {
        !matches!(self, ProcessState::Exited | ProcessState::Died)
    }
}

/// A row of the process table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Process {
    /// Its identity.
    pub id: ProcessId,
    /// Process id: ours where it is known, else as NVML or the publisher says.
    pub pid: u32,
    /// Label of the device, as in [`super::Device::label`].
    pub device_label: String,
    /// User name; empty when not known.
    pub user: String,
    /// Command line or program name, cleaned.
    pub command: String,
    /// Job label; empty when not set.
    pub job: String,
    /// Rank in a distributed job.
    pub rank: Option<u32>,
    /// Bytes on the device as NVML counts them.
    pub nvml: Reading<u64>,
    /// What its channel says. `None` when it has none or it cannot be read.
    pub figures: Option<Figures>,
    /// Bytes of managed memory on the device.
    pub managed: Reading<u64>,
    /// Its state.
    pub state: ProcessState,
    /// A signal or a debugger has stopped it; not known where its process is not visible here, or ended.
    pub stopped: Option<bool>,
    /// It shares the device through a server of CUDA's Multi-Process Service.
    pub mps: bool,
    /// Its device is simulated.
    pub simulated: bool,
    /// When it ended, of a black box that tells.
    pub ended: Option<Ended>,
}

/// When a program ended, as far as is known: at its last sign of life, or after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Its last sign of life.
    pub at: Nanos,
    /// How many minutes ago that is: what is shown changes no more often.
    pub minutes: u64,
}

/// Why nothing is counted where there is no NVML.
pub(crate) const NO_NVML: &str = "no NVML on this machine";
/// Why nothing is counted on a device that NVML does not know.
pub(crate) const DEVICE_NOT_LISTED: &str = "NVML does not list this device";
/// Why nothing is counted for a process that NVML does not know.
pub(crate) const PROCESS_NOT_LISTED: &str = "NVML does not list this process";
/// Why nothing is counted for the second channel of a process on a device, and for further ones: NVML counts it as a whole.
pub(crate) const COUNTED_ABOVE: &str = "NVML counts this process once, for its first channel on this device";

impl Process {
    /// Whether a driver might count what it has: none does of what is simulated, or gone, or not listed, or counted for another
    /// channel of the same process, or where there is no NVML.
    pub(crate) fn may_be_counted(&self) -> bool {
        let nobody = matches!(&self.nvml, Reading::Failed(why)
            if [NO_NVML, DEVICE_NOT_LISTED, PROCESS_NOT_LISTED, COUNTED_ABOVE].contains(&why.as_str()));
        !self.simulated && self.state.alive() && !nobody
    }

    /// Whether it is a black box of a program that ran out of memory and ended within the last hour.
    pub(crate) fn has_just_failed(&self) -> bool {
        let ended = self.ended.is_some_and(|ended| ended.minutes < 60);
        ended && !self.state.alive() && self.figures.as_ref().is_some_and(|figures| figures.ooms > 0)
    }

    /// Whether it is a black box whose blocks, which are read only while somebody looks at them, may be to come.
    pub(crate) fn has_unread_blocks(&self, map: Option<&super::BlockMap>) -> bool {
        let segments = self.figures.as_ref().map_or(0, |f| f.segments);
        !self.state.alive() && segments > 0 && map.is_none_or(|map| map.process != self.id)
    }

    /// Its job with its rank, or its rank alone (`torchrun` sets one, and nobody a job); empty where neither is set.
    pub(crate) fn job_text(&self) -> String {
        match self.rank {
            Some(rank) if self.job.is_empty() => format!("rank {rank}"),
            Some(rank) => format!("{}:{rank}", self.job),
            None => self.job.clone(),
        }
    }

    /// The same in so many columns: a job that is too long is cut, with a sign, before the rank, which tells those of a job apart. With
    /// no room for that it is as long as it is.
    pub(crate) fn job_in(&self, room: usize, sign: &str) -> String {
        let job = self.job_text();
        let rank = self.rank.map(|rank| format!(":{rank}"));
        let Some(rank) = rank.filter(|_| !self.job.is_empty() && !fits(&job, room)) else {
            return job;
        };
        let left = room.saturating_sub(rank.len());
        match fits(sign, left.saturating_sub(1)) {
            true => cut(&self.job, u16::try_from(left).unwrap_or(u16::MAX), sign) + &rank,
            false => job,
        }
    }

    /// What it is called in so many columns, where there is room for one name: its job, which somebody chose for it, else its
    /// command line, after the rank if it has one. Where the job of a replay does not fit its trace alone is told: the word before it tells none apart.
    pub(crate) fn name_in(&self, room: usize, sign: &str) -> String {
        let job = self.job_text();
        if self.job.is_empty() {
            let lead = if job.is_empty() { job } else { job + " " };
            let command = words::command_in(&self.command, room.saturating_sub(lead.len()));
            return (lead + &command).trim_end().to_owned();
        }
        match job.strip_prefix("replay ") {
            Some(trace) if !fits(&job, room) => trace.to_owned(),
            _ => self.job_in(room, sign),
        }
    }

    /// Whether it lives, goes on, and what it says of itself can be read, if it says anything.
    pub(crate) fn runs_as_usual(&self) -> bool {
        let readable = !matches!(self.state, ProcessState::Inconsistent(_));
        self.state.alive() && readable && self.stopped != Some(true)
    }

    /// That it ended or stands still, in a word where it does.
    pub(crate) fn halt_text(&self) -> Option<&'static str> {
        match self.state {
            ProcessState::Exited => Some("exited"),
            ProcessState::Died => Some("died"),
            _ if self.stopped == Some(true) => Some("stopped"),
            _ => None,
        }
    }

    /// Its state in words. Whoever is stopped has a live channel, and publishes nothing new.
    pub(crate) fn state_text(&self) -> String {
        let state = match (&self.state, self.stopped) {
            (ProcessState::Publishing, Some(true)) => "stopped".to_owned(),
            (state, Some(true)) => format!("{}, stopped", state.text()),
            (state, _) => state.text().to_owned(),
        };
        if self.mps { state + ", MPS" } else { state }
    }
}

/// The heading of a column of commands in which jobs stand for those of processes that have one.
pub(crate) const JOB_OR_COMMAND: &str = "JOB/COMMAND";

/// A column to sort by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Column {
    /// Process id.
    Pid,
    /// User name.
    User,
    /// Command.
    Command,
    /// NVML's bytes.
    #[default]
    Nvml,
    /// Reserved bytes.
    Reserved,
    /// Allocated bytes.
    Allocated,
    /// Cached bytes.
    Cached,
    /// External fragmentation.
    Fragmentation,
    /// Largest free block.
    LargestFree,
    /// Managed bytes.
    Managed,
    /// State.
    State,
}

impl Column {
    /// All of them, in the order of the table.
    pub(crate) const ALL: [Column; 11] = [
        Column::Pid,
        Column::User,
        Column::Command,
        Column::Nvml,
        Column::Reserved,
        Column::Allocated,
        Column::Cached,
        Column::Fragmentation,
        Column::LargestFree,
        Column::Managed,
        Column::State,
    ];

    /// The table's heading.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Column::Pid => "PID",
            Column::User => "USER",
            Column::Command => "COMMAND",
            Column::Nvml => "NVML",
            Column::Reserved => "RESERVED",
            Column::Allocated => "ALLOC",
            Column::Cached => "CACHED",
            Column::Fragmentation => "FRAG",
            Column::LargestFree => "LARGEST FREE",
            Column::Managed => "MANAGED",
            Column::State => "STATE",
        }
    }

    /// Whether the interesting end comes first: large numbers do, names do not.
    pub(crate) fn descends(self) -> bool {
        !matches!(self, Column::Pid | Column::User | Column::Command | Column::State)
    }
}

/// The order of the process table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sort {
    /// By which column.
    pub column: Column,
    /// Large first.
    pub descending: bool,
}

impl Default for Sort {
    fn default() -> Self {
        Sort {
            column: Column::Nvml,
            descending: true,
        }
    }
}
