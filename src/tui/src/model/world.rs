//! The machine at one moment.

use std::collections::BTreeSet;

use gpumem_probe::NvmlState;

use super::channel::{Channel, LeftOut, Problem};
use super::device::Device;
use super::finding::Finding;
use super::process::{Process, ProcessId};
use super::{Nanos, SECOND};
use crate::words;

/// What the driver says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Driver {
    /// Driver version.
    pub version: Option<String>,
    /// Highest CUDA version it offers, as (major, minor).
    pub cuda: Option<(u32, u32)>,
}

impl World {
    /// Whether NVML, and whether the channels have missed three samples and two seconds: their figures are then old, not wrong. An NVML
    /// that does not answer has no figures that could age.
    pub fn stale(&self, now: Nanos, interval: Nanos) -> [bool; 2] {
        let late = |at: Option<Nanos>| at.is_some_and(|at| now.saturating_sub(at) > (3 * interval).max(2 * SECOND));
        [
            self.nvml == NvmlState::Ready && late(self.nvml_at),
            late(self.channels_at),
        ]
    }

    /// How NVML fails, as a finding; `None` while it does not.
    pub fn nvml_failure(&self) -> Option<String> {
        match &self.nvml {
            NvmlState::Failed { error, hint } => Some(format!("NVML: {error}. {}", words::sentence(hint))),
            NvmlState::Starting | NvmlState::Ready | NvmlState::Missing => None,
        }
    }

    /// A process's number, and where there are several devices, on which.
    pub fn name_of(&self, process: &Process) -> String {
        let Process { pid, device_label, .. } = process;
        match self.devices.len() > 1 {
            true => format!("{pid} on {device_label}"),
            false => pid.to_string(),
        }
    }

    /// Whether the two look the same but for the devices' past and what is seen in the block map alone.
    pub fn looks_like(&self, other: &World) -> bool {
        // Every field is named: a new one must be thought of here.
        let World {
            nvml,
            nvml_at: _,
            channels_at,
            driver,
            devices,
            processes,
            past,
            findings,
            problems,
            left_out,
            published: _,
        } = self;
        (nvml, channels_at.is_some(), driver) == (&other.nvml, other.channels_at.is_some(), &other.driver)
            && devices.len() == other.devices.len()
            && devices.iter().zip(&other.devices).all(|(a, b)| a.looks_like(b))
            && (processes, past) == (&other.processes, &other.past)
            && (findings, problems, left_out) == (&other.findings, &other.problems, &other.left_out)
    }
}

/// Everything known about the machine, derived once per sample. Cheap enough to clone when the user pauses.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// Whether NVML answers.
    pub nvml: NvmlState,
    /// When its newest sample was taken.
    pub nvml_at: Option<Nanos>,
    /// When the channels were last read.
    pub channels_at: Option<Nanos>,
    /// The driver.
    pub driver: Driver,
    /// Devices: NVML's by index, then those known from channels alone, then simulated ones.
    pub devices: Vec<Device>,
    /// Processes in no particular order; [`super::Model::rows`] orders them.
    pub processes: Vec<Process>,
    /// Those of them that ended before the dashboard began: black boxes, listed on demand.
    pub past: BTreeSet<ProcessId>,
    /// What is worth saying, worst first.
    pub findings: Vec<Finding>,
    /// Channel files that could not be read.
    pub problems: Vec<Problem>,
    /// What is not shown of other users' channels, by user.
    pub left_out: Vec<LeftOut>,
    /// The channels themselves, for the block map.
    pub published: Vec<Channel>,
}
