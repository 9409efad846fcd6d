//! Processes: NVML's rows joined with channels, one row per process and device.

use std::sync::Arc;

use gpumem_probe::{Hint, Reading};
use gpumem_text::units;

use super::channel::ChannelKey;
use super::device::DeviceKey;
use super::figures::Figures;
use super::managed::ManagedSums;
use super::{Nanos, SECOND};
use crate::wrap::{cut, fits};

/// The identity of a row across samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ProcessId {
    /// The device it uses.
    pub device: DeviceKey,
    /// The process.
    pub owner: Owner,
}

/// The identity of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// It publishes: its channel identifies it.
    Channel(ChannelKey),
    /// It does not publish: pid and start time (0 when not known) identify it.
    Pid(u32, u64),
}

/// The state of a process, and how it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProcessState {
    /// Its channel is live and can be read.
    Publishing,
    /// NVML lists it; it has no channel.
    NotPublishing,
    /// It closed its channel and ended; the channel is its black box.
    Exited,
    /// It was killed or crashed; the channel is its black box.
    Died,
    /// Its channel cannot be read consistently; figures are the last good ones, or none.
    Inconsistent(String),
    /// Its channel names a process of another user than the owner of the channel's file. The row belongs to the owner of the
    /// file; the text names the other user.
    Disputed(String),
    /// It belongs to another user, and its channel, if it has one, cannot be read.
    OtherUser,
}

impl ProcessState {
    /// Returns the text for the state.
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

    /// Checks whether its memory still counts, which it does not for black boxes.
    pub(crate) fn alive(&self) -> bool {
        !matches!(self, ProcessState::Exited | ProcessState::Died)
    }
}

/// A row of the process table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Process {
    /// Its identity.
    pub id: ProcessId,
    /// The pid in our namespace if it is known, else as NVML or the publisher reports it.
    pub pid: u32,
    /// Label of the device, as in [`super::Device::label`].
    pub device_label: String,
    /// User name; empty when not known.
    pub user: String,
    /// Command line or program name, cleaned.
    pub command: String,
    /// What tells it from others: the script, module or model that it runs; for a black box that was not seen alive, the
    /// program's own name. Cleaned.
    pub label: String,
    /// Job label; empty when not set.
    pub job: String,
    /// Rank in a distributed job.
    pub rank: Option<u32>,
    /// Number of ranks of that job, on whatever machine, as the process publishes it.
    pub world_size: Option<u32>,
    /// The parent's pid. `None` if the process or its parent is not visible here.
    pub parent: Option<u32>,
    /// Bytes on the device as NVML counts them.
    pub nvml: Reading<u64>,
    /// Figures of its channel. `None` if it has no channel or the channel cannot be read.
    pub figures: Option<Figures>,
    /// Its managed memory, on whatever device; in the first of its rows.
    pub managed: Reading<ManagedSums>,
    /// Whether it publishes, and whether it has ended.
    pub state: ProcessState,
    /// Whether a signal or a debugger has stopped it. `None` if the process is not visible here or has ended.
    pub stopped: Option<bool>,
    /// Whether it shares the device through CUDA's Multi-Process Service.
    pub mps: bool,
    /// Whether its device is simulated.
    pub simulated: bool,
    /// Its requests that failed, if the last one did within the last minutes.
    pub failing: Option<Failing>,
    /// When it ended, if it is a black box and the time is known.
    pub ended: Option<Ended>,
    /// What explains its memory, found from outside. Empty if nothing is, or nothing was looked for so far.
    pub hints: Arc<[Hint]>,
}

/// Requests of a process that failed, the last of them within [`Failing::RECENT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failing {
    /// How many failed since it began.
    pub ooms: u64,
    /// How long ago the last one failed: in whole seconds, from a minute on in whole minutes.
    pub ago: Nanos,
}

impl Failing {
    /// How long a process that failed comes first.
    const RECENT: Nanos = 300 * SECOND;

    /// Returns what is recent of a publisher's failures.
    pub(crate) fn of(figures: Option<&Figures>, now: Nanos) -> Option<Failing> {
        let figures = figures.filter(|figures| figures.ooms > 0)?;
        let ago = now.checked_sub(figures.ran_out.as_ref()?.at)?;
        let step = if ago < 60 * SECOND { SECOND } else { 60 * SECOND };
        (ago < Self::RECENT).then_some(Failing {
            ooms: figures.ooms,
            ago: ago / step * step,
        })
    }

    /// Returns how often it failed, and when it last did: `OOM x82, 3 s ago`.
    pub(crate) fn text(&self) -> String {
        let when = match self.ago / SECOND {
            0 => "now".to_owned(),
            seconds @ 1..60 => format!("{seconds} s ago"),
            _ => units::ago(self.ago),
        };
        format!("{}, {when}", self.count())
    }

    /// Returns how often it failed: `OOM x82`.
    pub(crate) fn count(&self) -> String {
        format!("OOM x{}", units::count_short(self.ooms))
    }
}

/// When a program ended, as far as is known: at its last sign of life or later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Time of its last sign of life.
    pub at: Nanos,
    /// How many minutes ago that was. Whole minutes, so that the screen changes no more often.
    pub minutes: u64,
}

/// Why there is no figure of NVML's without NVML.
pub(crate) const NO_NVML: &str = "no NVML on this machine";
/// Why there is no figure of NVML's on a device that NVML does not list.
pub(crate) const DEVICE_NOT_LISTED: &str = "NVML does not list this device";
/// Why there is no figure of NVML's for a process that NVML does not list.
pub(crate) const PROCESS_NOT_LISTED: &str = "NVML does not list this process";
/// Why there is no figure of NVML's for the second and later channels of a process on a device: NVML counts it as a whole.
pub(crate) const COUNTED_ABOVE: &str = "NVML counts this process once, for its first channel on this device";

impl Process {
    /// Checks whether a driver may count its memory. It does not when the process is simulated, has ended, is not listed, is
    /// counted for another channel, or when there is no NVML.
    pub(crate) fn may_be_counted(&self) -> bool {
        let is_uncounted = matches!(&self.nvml, Reading::Failed(why)
            if [NO_NVML, DEVICE_NOT_LISTED, PROCESS_NOT_LISTED, COUNTED_ABOVE].contains(&why.as_str()));
        !self.simulated && self.state.alive() && !is_uncounted
    }

    /// Checks whether it has a value in a column of the table, and not a dash.
    pub(crate) fn has(&self, column: Column) -> bool {
        let figures = self.figures.as_ref();
        match column {
            Column::Pid | Column::User | Column::Command | Column::State => true,
            Column::Nvml => self.may_be_counted() && self.nvml != Reading::Pending,
            Column::Reserved | Column::Allocated | Column::Cached | Column::Ooms => figures.is_some(),
            Column::Fragmentation => figures.and_then(Figures::fragmentation).is_some(),
            // In an incomplete map 0 does not mean that nothing is free.
            Column::LargestFree => figures.is_some_and(|f| f.mapped && (f.complete || f.largest_free > 0)),
            Column::Managed => self.managed.value().is_some_and(|sums| sums.bytes > 0),
        }
    }

    /// Checks whether it is the black box of a program that ran out of memory and ended within the last hour.
    pub(crate) fn has_just_failed(&self) -> bool {
        let ended = self.ended.is_some_and(|ended| ended.minutes < 60);
        ended && !self.state.alive() && self.figures.as_ref().is_some_and(|figures| figures.ooms > 0)
    }

    /// Checks whether it has a block map, even if that is not read yet.
    pub(crate) fn has_map(&self) -> bool {
        let figures = self.figures.as_ref();
        figures.is_some_and(|figures| figures.segments > 0 && figures.map_skipped.is_none())
    }

    /// Checks whether it is a black box whose blocks were not read yet. They are read only while it is selected.
    pub(crate) fn has_unread_blocks(&self, map: Option<&super::BlockMap>) -> bool {
        let segments = self.figures.as_ref().map_or(0, |f| f.segments);
        !self.state.alive() && segments > 0 && map.is_none_or(|map| map.process != self.id)
    }

    /// Returns its job and rank, or the rank alone (`torchrun` sets a rank and no job); empty if neither is set.
    pub(crate) fn job_text(&self) -> String {
        match self.rank {
            Some(rank) if self.job.is_empty() => format!("rank {rank}"),
            Some(rank) => format!("{}:{rank}", self.job),
            None => self.job.clone(),
        }
    }

    /// Fits [`Process::job_text`] into `room` columns. A long job is cut and `sign` put before the rank, which tells the
    /// processes of a job apart. Where not even that fits, the text is not cut.
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

    /// Returns one name for it in `room` columns: its job, else its rank and label. For a replay whose job does not fit, it is
    /// the trace without the word `replay`.
    pub(crate) fn name_in(&self, room: usize, sign: &str) -> String {
        let job = self.job_text();
        if self.job.is_empty() {
            let lead = if job.is_empty() { job } else { job + " " };
            return (lead + &self.label).trim_end().to_owned();
        }
        match job.strip_prefix("replay ") {
            Some(trace) if !fits(&job, room) => trace.to_owned(),
            _ => self.job_in(room, sign),
        }
    }

    /// Checks whether it is alive and not stopped, and its channel, if it has one, can be read.
    pub(crate) fn runs_as_usual(&self) -> bool {
        let readable = !matches!(self.state, ProcessState::Inconsistent(_));
        self.state.alive() && readable && self.stopped != Some(true)
    }

    /// Returns a word for a process that ended or is stopped.
    pub(crate) fn halt_text(&self) -> Option<&'static str> {
        match self.state {
            ProcessState::Exited => Some("exited"),
            ProcessState::Died => Some("died"),
            _ if self.stopped == Some(true) => Some("stopped"),
            _ => None,
        }
    }

    /// Returns the text for the state. A stopped process has a live channel but publishes nothing new.
    pub(crate) fn state_text(&self) -> String {
        let state = match (&self.state, self.stopped) {
            (ProcessState::Publishing, Some(true)) => "stopped".to_owned(),
            (state, Some(true)) => format!("{}, stopped", state.text()),
            (state, _) => state.text().to_owned(),
        };
        if self.mps { state + ", MPS" } else { state }
    }
}

/// The heading of a column that shows the job of a process if it has one, else its command.
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
    /// Failed requests.
    Ooms,
    /// State.
    State,
}

/// Names of columns that rows cannot be sorted by.
pub(crate) const OTHER_COLUMNS: [&str; 6] = ["device", "job", "of-device", "requested", "peak", "command-line"];

impl Column {
    /// All columns, in the order of the table.
    pub(crate) const ALL: [Column; 12] = [
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
        Column::Ooms,
        Column::State,
    ];

    /// Returns its heading in the table.
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
            Column::Ooms => "OOMS",
            Column::State => "STATE",
        }
    }

    /// Returns its name on the command line: the heading without capitals and blanks.
    pub(crate) fn name(self) -> String {
        self.title().to_lowercase().replace(' ', "-")
    }

    /// Checks whether it is sorted in descending order by default, as sizes are and names are not.
    pub(crate) fn descends(self) -> bool {
        !matches!(self, Column::Pid | Column::User | Column::Command | Column::State)
    }
}

/// The order of the process table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sort {
    /// The column.
    pub column: Column,
    /// Whether the largest value comes first.
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

impl Sort {
    /// Reads a column's name (`--sort`). `-` before it reverses the order that the column has by default.
    pub(crate) fn parse(text: &str) -> Option<Sort> {
        let name = text.strip_prefix('-');
        let column = Column::ALL
            .into_iter()
            .find(|column| column.name().eq_ignore_ascii_case(name.unwrap_or(text)))?;
        Some(Sort {
            column,
            descending: column.descends() != name.is_some(),
        })
    }
}
