//! What the dashboard knows: plain data, and pure functions that derive one figure from another.
//!
//! Nothing here draws, reads a clock or does I/O. Time comes in as [`Nanos`]. State changes only in
//! `update`; a view reads [`Model::world`], [`Model::rows`] and [`Model::ui`], and draws.

mod alert;
mod blocks;
mod channel;
mod demo;
mod device;
mod figures;
mod filter;
mod finding;
mod growth;
mod hierarchy;
mod hint;
mod history;
mod inputs;
mod key;
mod keymap;
mod looks;
mod managed;
mod managed_published;
mod map_layout;
mod mapped;
mod only;
mod outlier;
mod outside;
mod palette;
mod partition;
mod past;
mod pools;
mod process;
mod ran_out;
mod ranks;
mod spread;
mod tags;
mod triage;
mod ui;
mod views;
mod world;

pub(crate) use alert::{Alert, Alerts, Condition, Fired};
pub(crate) use blocks::{BlockMap, Histogram};
pub(crate) use channel::{Channel, ChannelKey, ChannelSample, Glance, Held, LeftOut, Problem, ProblemKind};
pub(crate) use demo::{
    Choice, Demo, DemoBlock, DemoInfo, DemoKind, DemoOom, DemoOutcome, DemoPhase, DemoStats, DemoStep,
};
pub(crate) use device::{Device, DeviceKey, DeviceKind, DeviceState, PartOf};
pub(crate) use figures::Figures;
pub(crate) use filter::Filter;
pub(crate) use finding::{About, Finding, FindingKey, Severity};
pub(crate) use growth::{PERIOD, Stage};
pub(crate) use hierarchy::{
    CONTEXT, CurvePoint, Hierarchies, Hierarchy, HierarchyLevel, LevelBandwidth, LevelLatency, MEASURED_IN,
    MEASURED_WITH, Measuring, Rung, Whose,
};
pub(crate) use hint::{claim, hint_source, hint_text, kv_cache_text};
pub(crate) use history::{DISCOVER, History, MAX_MARKS, MAX_POINTS, Mark, MarkKind, Point};
pub(crate) use inputs::{Inputs, Request, Sample, Sampled, SourceId, Taken};
pub(crate) use key::Key;
pub(crate) use keymap::{Action, HelpGroup, Move, action_of, footer, help};
pub(crate) use looks::{Looks, PHASE_LOOKS, TAG_COLOURS, TAG_GLYPHS};
pub(crate) use managed::{
    Causes, CounterHistory, Counting, KnownCauses, ManagedProcess, ManagedRequest, ManagedSample, ManagedSums,
    ManagedWorld, Origin, Pages, Places, Rates, Tracking,
};
pub(crate) use managed_published::{PublishedManaged, PublishedRange};
pub(crate) use map_layout::{Extents, MapLayout, Strip};
pub(crate) use mapped::mapped;
pub(crate) use only::Only;
pub(crate) use outlier::{Figure, Holdings, Outlier, signed_difference};
pub(crate) use palette::{Palette, Rgb};
pub(crate) use partition::{Basis, Partition};
pub(crate) use past::{Past, Step, coarsen};
pub(crate) use pools::PoolShare;
pub(crate) use process::{
    COUNTED_ABOVE, Column, DEVICE_NOT_LISTED, Ended, Failing, JOB_OR_COMMAND, NO_NVML, OTHER_COLUMNS, Owner,
    PROCESS_NOT_LISTED, Process, ProcessId, ProcessState, Sort,
};
pub(crate) use ran_out::RanOut;
pub(crate) use ranks::{Job, Jobs, Rank};
pub(crate) use spread::Spread;
pub(crate) use tags::{TagPast, TagPoint};
pub(crate) use triage::{first_fix, judge};
pub(crate) use ui::{
    Area, BlocksUi, Colors, Hit, Hits, KeptColumns, MapGeometry, Popup, Target, Term, TextGeometry, TimelineUi, Toast,
    Ui,
};
pub(crate) use views::{VIEWS, View, ViewRow};
pub(crate) use world::World;

pub(crate) use gpumem_probe::Sensors;

#[cfg(test)]
pub(crate) use {inputs::Times, world::Driver};

use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Nanoseconds of `CLOCK_MONOTONIC`, the clock of blocks and events in channels.
pub(crate) type Nanos = u64;

/// One second.
pub(crate) const SECOND: Nanos = 1_000_000_000;

/// What does not change while the dashboard runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setup {
    /// This machine's name, cleaned.
    pub host: String,
    /// Our user's name.
    pub user: String,
    /// Our user's number.
    pub uid: u32,
    /// Whether we are root and can read other users' channels.
    pub root: bool,
    /// Time between samples.
    pub interval: Nanos,
    /// Show only these devices (`--device`); all if empty.
    pub only: Vec<Only>,
    /// Whether the driver's trackers may be attached to processes.
    pub tracking: Tracking,
    /// The demos that can be started.
    pub demos: Vec<DemoInfo>,
    /// The name of the demo that is started, simulated, when there is no GPU.
    pub without_gpu: String,
    /// `CLOCK_REALTIME - CLOCK_MONOTONIC` at start, in nanoseconds. Used to write times of day.
    pub realtime_offset: i128,
    /// Do nothing to any process (`--readonly`).
    pub read_only: bool,
    /// Do not start a demo automatically.
    pub no_demo: bool,
    /// The file that `GPUMEM_NVML` names in place of the driver's library, cleaned.
    pub nvml: Option<String>,
    /// The black boxes that are listed without being asked for.
    pub black_boxes: BlackBoxes,
    /// Names of the columns that the process table may have; all if empty.
    pub columns: Vec<String>,
}

/// Which black boxes are listed without being asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum BlackBoxes {
    /// Those of programs that were seen alive, and of programs that ran out of memory a short while ago.
    #[default]
    Recent,
    /// Those of programs that were seen alive (`--no-black-boxes` in the dashboard).
    SeenAlive,
    /// None (`--no-black-boxes` in a report).
    None,
}

impl Setup {
    /// Checks whether a device is to be shown.
    pub(crate) fn shows(&self, device: &Device) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only.matches(device))
    }

    /// Checks whether the user chose simulated devices and no others.
    pub(crate) fn only_simulated(&self) -> bool {
        !self.only.is_empty() && self.only.iter().all(|only| *only == Only::Simulated)
    }
}

/// Everything the dashboard knows and shows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    /// What does not change.
    pub setup: Setup,
    /// Time of the newest event. It does not advance between events.
    pub now: Nanos,
    /// The newest samples, from which `live` is derived.
    pub inputs: Inputs,
    /// The newest state of the machine.
    pub live: World,
    /// The state when the user paused; shown instead of `live` until they resume.
    pub frozen: Option<Box<World>>,
    /// Rows of the process table after filter and sort: indexes into `world().processes`.
    pub rows: Vec<usize>,
    /// Blocks of the selected process; `None` when it publishes none.
    pub map: Option<BlockMap>,
    /// What the selected process, or the last selected one, allocated by tag.
    pub tags: Option<TagPast>,
    /// The numbers of tags and phases, on which their colours depend.
    pub looks: Looks,
    /// The demo that runs or ran last.
    pub demo: Option<Demo>,
    /// The memory hierarchies of cards.
    pub hierarchies: Hierarchies,
    /// Processes that are being attached to.
    pub attaching: BTreeSet<u32>,
    /// Processes that could not be attached to, and why. A pid may be that of another process by now; the user reads it at once.
    pub not_attached: BTreeMap<u32, String>,
    /// What the user selected and opened.
    pub ui: Ui,
}

impl Model {
    /// Returns the world to show: frozen while paused, live otherwise.
    pub(crate) fn world(&self) -> &World {
        self.frozen.as_deref().unwrap_or(&self.live)
    }

    /// Returns the time of day of a moment, in milliseconds since 1970.
    pub(crate) fn unix_ms(&self, at: Nanos) -> u64 {
        let nanos = i128::from(at) + self.setup.realtime_offset;
        u64::try_from(nanos / 1_000_000).unwrap_or(0)
    }

    /// Returns the age of NVML's figures when they are overdue; `None` when they are not, and while paused.
    pub(crate) fn nvml_late_by(&self) -> Option<Nanos> {
        let world = self.world();
        let stale = world.stale(self.now).contains(&SourceId::Nvml);
        let at = world.times.of(SourceId::Nvml).filter(|_| stale && !self.paused())?;
        Some(self.now.saturating_sub(at))
    }

    /// Checks whether what is shown is frozen. Sampling continues meanwhile.
    pub(crate) fn paused(&self) -> bool {
        self.frozen.is_some()
    }

    /// Returns the selected process if it may be attached to: it uses a real device, and does not publish.
    pub(crate) fn attachable(&self) -> Option<&Process> {
        let process = self.selected_process()?;
        let may_be = process.state == ProcessState::NotPublishing && !process.simulated && !self.setup.read_only;
        may_be.then_some(process)
    }

    /// Iterates over the processes to list, in order.
    pub(crate) fn listed(&self) -> impl ExactSizeIterator<Item = &Process> {
        let world = self.world();
        self.rows.iter().map(|&i| &world.processes[i])
    }

    /// Checks whether a driver may count the memory of any listed process. True when none is listed.
    pub(crate) fn counted(&self) -> bool {
        self.rows.is_empty() || self.listed().any(Process::may_be_counted)
    }

    /// Returns the column that processes are sorted by. When no driver counts their memory, RESERVED takes the place of NVML.
    pub(crate) fn order(&self) -> Column {
        match self.ui.sort.column {
            Column::Nvml if !self.counted() => Column::Reserved,
            column => column,
        }
    }

    /// Checks whether a column of the table has, or lately had, a value and not only dashes. When no process is listed, all do
    /// but MANAGED, which few machines have.
    pub(crate) fn has_values(&self, column: Column) -> bool {
        (self.rows.is_empty() && column != Column::Managed)
            || self.ui.kept.columns.contains(&column)
            || self.listed().any(|p| p.has(column))
    }

    /// Returns the number of processes that are listed while nothing narrows the list.
    pub(crate) fn listable(&self) -> usize {
        let world = self.world();
        let hidden = if self.ui.black_boxes { 0 } else { world.past.len() };
        world.processes.len().saturating_sub(hidden)
    }

    /// Says how many of the processes that could be listed pass the filter: `1 of 4 match`.
    pub(crate) fn matches(&self) -> String {
        format!("{} of {} match", self.rows.len(), self.listable())
    }

    /// Returns the filter of the process table.
    pub(crate) fn filter(&self) -> Filter {
        Filter::parse(&self.ui.filter.text)
    }

    /// Returns the device that the user restricted the list to.
    pub(crate) fn only_device(&self) -> Option<&Device> {
        self.selected_device().filter(|_| self.ui.one_device)
    }

    /// Returns the device that the user restricted the list to, with its MIG devices. `None` while all are listed.
    pub(crate) fn listed_devices(&self) -> Option<HashSet<DeviceKey>> {
        let only = self.only_device()?.key;
        let is_listed =
            |device: &&Device| device.key == only || device.part_of.as_ref().is_some_and(|of| of.gpu == only);
        Some(
            self.world()
                .devices
                .iter()
                .filter(is_listed)
                .map(|device| device.key)
                .collect(),
        )
    }

    /// Returns how many black boxes are listed on demand only.
    pub(crate) fn listable_past(&self) -> usize {
        let (world, devices) = (self.world(), self.listed_devices());
        let is_listed = |id: &&ProcessId| devices.as_ref().is_none_or(|devices| devices.contains(&id.device));
        world.past.iter().filter(is_listed).count()
    }

    /// Checks whether a filter or a device narrows the list of processes.
    pub(crate) fn narrowed(&self) -> bool {
        !self.ui.filter.text.is_empty() || self.only_device().is_some()
    }

    /// Iterates over the findings, worst first, without those about processes that a filter or a device leaves out of the list. One
    /// line may stand for several older ones.
    pub(crate) fn findings(&self) -> impl Iterator<Item = &Finding> {
        let all = !self.narrowed();
        let listed: HashSet<ProcessId> = self.listed().filter(|_| !all).map(|p| p.id).collect();
        let passes = move |id| all || listed.contains(&id);
        let world = self.world();
        let (older, line) = &world.older;
        let line = line.as_ref().filter(|_| all && !self.ui.unfolded);
        let shown = world.findings.len() - line.map_or(0, |_| *older);
        let findings = world.findings.iter().take(shown).chain(line);
        let passing = findings.filter(move |finding| finding.process.is_none_or(&passes));
        passing.filter(|finding| !self.is_dismissed(finding))
    }

    /// Returns the place of the chosen finding. Others may have come before it since it was chosen.
    pub(crate) fn chosen_finding(&self, chosen: Option<&FindingKey>) -> usize {
        let place = chosen.and_then(|key| self.findings().position(|finding| finding.key() == *key));
        place.unwrap_or(0)
    }

    /// Checks whether the user dismissed a finding. One that has become worse since is shown again.
    pub(crate) fn is_dismissed(&self, finding: &Finding) -> bool {
        let dismissed = &self.ui.dismissed;
        !dismissed.is_empty()
            && dismissed
                .get(&finding.key())
                .is_some_and(|then| *then >= finding.severity)
    }

    /// Returns the selected process if it is still known. The filter may hide it from the list.
    pub(crate) fn selected_process(&self) -> Option<&Process> {
        let id = self.ui.process.as_ref()?;
        self.world().processes.iter().find(|p| p.id == *id)
    }

    /// Returns the job of the selected process and its rank there, if it is a rank of one.
    pub(crate) fn selected_job(&self) -> Option<(&Job, &Rank)> {
        self.world().jobs.get(self.ui.process?)
    }

    /// Returns the channel of the selected process, if it has one.
    pub(crate) fn selected_channel(&self) -> Option<ChannelKey> {
        match self.ui.process?.owner {
            Owner::Channel(key) => Some(key),
            Owner::Pid(..) => None,
        }
    }

    /// Returns the request to the sources that follows from the current state.
    pub(crate) fn request(&self) -> Request {
        Request {
            expected: self.expected(),
            managed: self.managed_request(),
            ..Request::of(&self.inputs, self.selected_channel())
        }
    }

    /// Returns the demo that runs and publishes, until its channel is seen.
    fn expected(&self) -> Option<u32> {
        let demo = self
            .demo
            .as_ref()
            .filter(|demo| demo.running() && demo.unpublished.is_none())?;
        let pid = demo.pid.filter(|_| demo.current().is_some())?;
        let channels = &self.inputs.channels.channels;
        (!channels.iter().any(|channel| channel.pid == Some(pid))).then_some(pid)
    }

    /// Returns the position of the selected process in [`Model::listed`].
    pub(crate) fn selected_row(&self) -> Option<usize> {
        let id = self.ui.process.as_ref()?;
        self.listed().position(|p| p.id == *id)
    }

    /// Returns the selected device: the one the user chose, else that of the selected process, else the first.
    pub(crate) fn selected_device(&self) -> Option<&Device> {
        let devices = &self.world().devices;
        let chosen = self
            .ui
            .device
            .as_ref()
            .and_then(|key| devices.iter().find(|d| d.key == *key));
        let its = self.ui.process.as_ref();
        let its = || its.and_then(|id| devices.iter().find(|d| d.key == id.device));
        chosen.or_else(its).or(devices.first())
    }

    /// Returns the block under the cursor of the Blocks view, with the index of its segment in [`BlockMap::segments`].
    pub(crate) fn cursor_block(&self) -> Option<(usize, &gpumem_channel::Block)> {
        let map = self.map.as_ref()?;
        self.ui
            .blocks
            .cursor
            .map_or_else(|| map.first(), |addr| map.nearest(addr))
    }

    /// Says which of the devices that the user chose do not exist, apart from simulated ones, which may come and go.
    pub(crate) fn missing_devices(&self) -> Option<String> {
        let devices = &self.world().devices;
        let is_missing = |only: &&Only| **only != Only::Simulated && !devices.iter().any(|device| only.matches(device));
        let missing: Vec<String> = self.setup.only.iter().filter(is_missing).map(Only::to_string).collect();
        (!missing.is_empty()).then(|| format!("no such device: {}", missing.join(", ")))
    }

    /// Checks whether a simulated device is shown.
    pub(crate) fn simulated(&self) -> bool {
        self.world().devices.iter().any(|d| d.kind == DeviceKind::Simulated)
    }
}
