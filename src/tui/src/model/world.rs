//! The machine at one moment.

use std::collections::{BTreeSet, HashMap};

use gpumem_probe::{NvmlState, Reading};

use super::Nanos;
use super::channel::{Channel, LeftOut, Problem};
use super::device::Device;
use super::finding::Finding;
use super::growth::Growth;
use super::inputs::{Inputs, SourceId, Times};
use super::managed::ManagedWorld;
use super::outside::Outside;
use super::process::{COUNTED_ABOVE, Process, ProcessId};
use super::ranks::Jobs;
use crate::words;
use crate::wrap::cut;

/// Columns of a process's name in a sentence.
const NAME: usize = 40;

/// Versions that the driver reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Driver {
    /// Driver version.
    pub version: Option<String>,
    /// Highest CUDA version it offers, as (major, minor).
    pub cuda: Option<(u32, u32)>,
}

impl World {
    /// Takes over what is shown as it was sampled. `update` derives devices, processes and findings from several sources.
    pub(crate) fn of(inputs: &Inputs) -> World {
        World {
            times: inputs.times.clone(),
            nvml: inputs.nvml.state.clone(),
            driver: Driver {
                version: inputs.nvml.driver.clone(),
                cuda: inputs.nvml.cuda,
            },
            problems: inputs.channels.problems.clone(),
            left_out: inputs.channels.left_out.clone(),
            published: inputs.channels.channels.clone(),
            ..World::default()
        }
    }

    /// Returns the sources whose figures are old. NVML is left out while it does not answer, since it then has no figures.
    pub(crate) fn stale(&self, now: Nanos) -> Vec<SourceId> {
        let ages = |source: &SourceId| *source != SourceId::Nvml || self.nvml == NvmlState::Ready;
        self.times.old(now).filter(ages).collect()
    }

    /// Returns when the channels were last read; `None` before the first time.
    pub(crate) fn channels_at(&self) -> Option<Nanos> {
        self.times.of(SourceId::Channels)
    }

    /// Describes how NVML fails, as a finding; `None` while it does not.
    pub(crate) fn nvml_failure(&self) -> Option<String> {
        match &self.nvml {
            NvmlState::Failed { error, hint } => Some(format!("NVML: {error}. {}", words::sentence(hint))),
            NvmlState::Starting | NvmlState::Ready | NvmlState::Missing => None,
        }
    }

    /// Returns the name of a process with its pid, and its device if there are several: `train.py (4121, GPU 0)`. Without a name it is
    /// the pid alone, or `4121 on GPU 0`.
    pub(crate) fn name_of(&self, process: &Process) -> String {
        let Process { pid, device_label, .. } = process;
        let name = process.name_in(NAME, "…");
        let name = cut(&name, NAME as u16, "…");
        match (name.as_str(), self.devices.len() > 1) {
            ("", true) => format!("{pid} on {device_label}"),
            ("", false) => pid.to_string(),
            (name, true) => format!("{name} ({pid}, {device_label})"),
            (name, false) => format!("{name} ({pid})"),
        }
    }

    /// Returns what a process uses on its device outside of its allocators. `None` if NVML or the process does not tell.
    pub(crate) fn outside_of(&self, process: &Process) -> Option<Outside> {
        let (nvml, figures) = (process.nvml.value()?, process.figures.as_ref()?);
        if !process.state.alive() || process.simulated {
            return None;
        }
        // NVML counts the process once, and it may have more allocators that publish.
        let counted_here = |p: &&Process| {
            let same = (p.id.device, p.pid) == (process.id.device, process.pid) && p.id != process.id;
            same && matches!(&p.nvml, Reading::Failed(why) if why == COUNTED_ABOVE)
        };
        let others = self
            .processes
            .iter()
            .filter(counted_here)
            .filter_map(|p| p.figures.as_ref());
        let reserved = others.fold(figures.reserved, |sum, other| sum.saturating_add(other.reserved));
        Some(Outside {
            bytes: nvml.saturating_sub(reserved),
            at_start: figures.outside_at_start,
            users: figures.outside_users.clone(),
        })
    }

    /// Checks whether the two are drawn alike, apart from the histories of devices and the block map.
    pub(crate) fn looks_like(&self, other: &World) -> bool {
        // Every field is named, so that a new field has to be considered here.
        let World {
            times: _,
            nvml,
            driver,
            devices,
            processes,
            past,
            // They follow from the processes.
            jobs: _,
            findings,
            // It follows from the findings.
            older: _,
            problems,
            left_out,
            published: _,
            managed: _,
            growth: _,
        } = self;
        (nvml, self.channels_at().is_some(), driver) == (&other.nvml, other.channels_at().is_some(), &other.driver)
            && devices.len() == other.devices.len()
            && devices.iter().zip(&other.devices).all(|(a, b)| a.looks_like(b))
            && (processes, past) == (&other.processes, &other.past)
            && (findings, problems, left_out) == (&other.findings, &other.problems, &other.left_out)
    }
}

/// The state of the machine, derived once per sample. Cheap enough to clone when the user pauses.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    /// When the samples that it is derived from were taken.
    pub times: Times,
    /// Whether NVML answers.
    pub nvml: NvmlState,
    /// The driver.
    pub driver: Driver,
    /// Devices: NVML's by index, then those known from channels alone, then simulated ones.
    pub devices: Vec<Device>,
    /// Processes in no particular order; [`super::Model::rows`] orders them.
    pub processes: Vec<Process>,
    /// Processes that ended before the dashboard began, most of them. Their black boxes are listed on demand.
    pub past: BTreeSet<ProcessId>,
    /// Distributed jobs, and which of the processes are their ranks.
    pub jobs: Jobs,
    /// Sentences about the state of the machine, worst first, and then the older ones.
    pub findings: Vec<Finding>,
    /// The number of older ones, and the line that stands for them if there are several.
    pub older: (usize, Option<Finding>),
    /// Managed memory. It has samples of its own and is carried over.
    pub managed: ManagedWorld,
    /// What the processes held over the last minutes. It is carried over.
    pub growth: HashMap<ProcessId, Growth>,
    /// Channel files and directories that could not be read.
    pub problems: Vec<Problem>,
    /// What is not shown of other users' channels, by user.
    pub left_out: Vec<LeftOut>,
    /// The channels, for the block map.
    pub published: Vec<Channel>,
}
