//! The machine at one moment.

use std::collections::BTreeSet;

use super::channel::{Channel, Problem};
use super::device::Device;
use super::finding::Finding;
use super::process::{Process, ProcessId};
use super::source::Source;

/// What the driver says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Driver {
    /// Driver version.
    pub version: Option<String>,
    /// Highest CUDA version it offers, as (major, minor).
    pub cuda: Option<(u32, u32)>,
}

impl World {
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
            channels,
            driver,
            devices,
            processes,
            past,
            findings,
            problems,
            published: _,
        } = self;
        (&nvml.state, &channels.state, driver) == (&other.nvml.state, &other.channels.state, &other.driver)
            && devices.len() == other.devices.len()
            && devices.iter().zip(&other.devices).all(|(a, b)| a.looks_like(b))
            && (processes, past) == (&other.processes, &other.past)
            && (findings, problems) == (&other.findings, &other.problems)
    }
}

/// Everything known about the machine, derived once per sample. Cheap enough to clone when the user pauses.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// NVML as a source.
    pub nvml: Source,
    /// Channels as a source.
    pub channels: Source,
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
    /// The channels themselves, for the block map.
    pub published: Vec<Channel>,
}
