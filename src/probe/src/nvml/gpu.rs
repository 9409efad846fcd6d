//! One GPU from sample to sample: its identity, its figures, and what is kept when it stops answering.

use std::time::Instant;

use super::calls::{Calls, Code, Device};
use super::slow::Latest;
use super::{memory, mig, processes};
use crate::facts::Card;
use crate::{Gpu, GpuState, MigDevice, Reading, Sensors};
use gpumem_text::uuid;

/// A GPU and the state kept between samples.
pub(super) struct Row {
    pub(super) gpu: Gpu,
    /// Whether name, UUID and bus id are known to belong to the GPU at this index.
    pub(super) identified: bool,
    /// The index at which the GPU last answered.
    answered_at: Option<u32>,
    /// Whether MIG is on; `None` if not queried yet. The query takes 0.4 ms, more than all others together, so only a
    /// row's first sample makes it; later the slow thread does.
    mig_on: Option<bool>,
    /// When the PCIe figures were measured.
    pcie_at: Option<Instant>,
    /// Buffer for process records, reused between samples.
    records: Vec<u64>,
}

/// Converts a call's result into a reading.
pub(super) fn reading<T>(answer: Result<T, Code>) -> Reading<T> {
    match answer {
        Ok(value) => Reading::Value(value),
        Err(Code::NOT_SUPPORTED | Code::FUNCTION_NOT_FOUND) => Reading::NotSupported,
        Err(Code::NO_PERMISSION) => Reading::NoPermission,
        Err(code) => Reading::Failed(code.text()),
    }
}

/// Converts a call's result like [`reading`], but returns an error when it says that the GPU is lost.
pub(super) fn unless_lost<T>(answer: Result<T, Code>) -> Result<Reading<T>, Code> {
    match answer {
        Err(code) if code.is_lost() => Err(code),
        answer => Ok(reading(answer)),
    }
}

/// The results of a row's calls, not yet checked for plausibility.
struct Found {
    memory: memory::Found,
    sensors: Sensors,
    processes: Reading<Vec<crate::GpuProcess>>,
    mig: Vec<MigDevice>,
}

impl Row {
    pub(super) fn new(index: u32) -> Self {
        Row::known(Gpu {
            index,
            ..Gpu::default()
        })
    }

    /// Makes the row of a GPU that was known before the library was loaded.
    pub(super) fn known(gpu: Gpu) -> Self {
        Row {
            answered_at: Some(gpu.index).filter(|_| gpu.uuid.is_some()),
            gpu,
            identified: false,
            mig_on: None,
            pcie_at: None,
            records: Vec::new(),
        }
    }

    /// Whether the GPU has a UUID or a bus id.
    pub(super) fn is_known(&self) -> bool {
        self.gpu.uuid.is_some() || !self.gpu.pci.is_empty()
    }

    /// Queries name, UUID and bus id. What the GPU does not tell stays empty.
    ///
    /// # Errors
    /// It is lost.
    pub(super) fn identify(calls: &Calls, index: u32, device: &Device<'_>) -> Result<Self, Code> {
        let lost = |code: &Code| code.is_lost();
        let (name, uuid, pci) = (calls.name(device), calls.uuid(device), calls.pci(device));
        if let Some(code) = [&name, &uuid, &pci]
            .into_iter()
            .find_map(|text| text.as_ref().err().copied().filter(lost))
        {
            return Err(code);
        }
        let mut row = Row::new(index);
        row.gpu.name = name.unwrap_or_else(Code::placeholder);
        row.gpu.uuid = uuid.ok().and_then(|uuid| uuid::bytes(&uuid));
        row.gpu.pci = pci.unwrap_or_default();
        row.identified = true;
        Ok(row)
    }

    /// Takes over the identity of `found` and keeps the figures.
    pub(super) fn take_identity(&mut self, found: Row) {
        let Gpu {
            index, uuid, name, pci, ..
        } = found.gpu;
        self.gpu = Gpu {
            index,
            uuid,
            name,
            pci,
            ..std::mem::take(&mut self.gpu)
        };
        self.identified = true;
        self.mig_on = None;
    }

    /// Takes over the identity that the kernel module gives.
    pub(super) fn take_card(&mut self, card: Card) {
        (self.gpu.name, self.gpu.uuid, self.gpu.pci) = (card.name, uuid::bytes(&card.uuid), card.pci);
    }

    /// Marks the GPU as lost. Its figures are the last known ones. Another card may be at its index next time.
    pub(super) fn lose(&mut self, why: &str) {
        self.gpu.state = GpuState::Lost(why.to_owned());
        self.identified = false;
    }

    /// Marks a GPU that the driver no longer lists as lost.
    pub(super) fn leave_list(&mut self) {
        let why = "no longer listed by the driver";
        match self.answered_at.filter(|&then| then != self.gpu.index) {
            Some(then) => self.lose(&format!("{why}, which had it as GPU {then}")),
            None => self.lose(why),
        }
    }

    /// Records that the driver gave no handle: a GPU that was seen before is lost; one that was never seen is present,
    /// but may not be queried.
    pub(super) fn refuse(&mut self, code: Code) {
        if code.is_lost() || self.gpu.uuid.is_some() {
            return self.lose(&code.text());
        }
        self.gpu.state = GpuState::Present;
        self.gpu.memory = reading(Err(code));
        self.gpu.processes = reading(Err(code));
        let Sensors {
            utilization,
            memory_utilization,
            temperature,
            power,
            power_limit,
            pcie_rx: _,
            pcie_tx: _,
        } = &mut self.gpu.sensors;
        for figure in [utilization, memory_utilization, temperature, power, power_limit] {
            *figure = reading(Err(code));
        }
    }

    /// Reads every fast figure. If any answer says that the GPU is lost, it keeps the figures it had.
    pub(super) fn read(&mut self, calls: &Calls, device: &Device<'_>) {
        match self.ask(calls, device) {
            Ok(found) => self.take(found),
            Err(code) => self.lose(&code.text()),
        }
    }

    fn take(&mut self, found: Found) {
        let gpu = &mut self.gpu;
        gpu.state = GpuState::Present;
        self.answered_at = Some(gpu.index);
        (gpu.memory, gpu.host) = found.memory.check(&gpu.name, &found.processes);
        gpu.sensors = found.sensors;
        gpu.processes = found.processes;
        gpu.mig = found.mig;
        let parts = gpu.mig.iter_mut().map(|part| (&part.memory, &mut part.processes));
        for (memory, list) in [(&gpu.memory, &mut gpu.processes)].into_iter().chain(parts) {
            if let (Some(memory), Reading::Value(list)) = (memory.value(), list) {
                processes::reject_impossible(list, memory.total);
            }
        }
    }

    /// Queries every fast figure.
    ///
    /// # Errors
    /// It is lost.
    fn ask(&mut self, calls: &Calls, device: &Device<'_>) -> Result<Found, Code> {
        let memory = memory::Found::ask(calls, device)?;
        let (utilization, memory_utilization) = match unless_lost(calls.utilization(device))? {
            Reading::Value((kernels, memory)) => (percent(kernels), percent(memory)),
            none => (none.clone().none(), none.none()),
        };
        let Sensors { pcie_rx, pcie_tx, .. } = &self.gpu.sensors;
        let sensors = Sensors {
            utilization,
            memory_utilization,
            temperature: unless_lost(calls.temperature(device))?,
            power: unless_lost(calls.power(device))?,
            power_limit: unless_lost(calls.power_limit(device))?,
            pcie_rx: pcie_rx.clone(),
            pcie_tx: pcie_tx.clone(),
        };
        let mut mig = self.mig_devices(calls, device);
        let processes = processes::read(calls, device, &mut mig, &mut self.records)?;
        Ok(Found {
            memory,
            sensors,
            processes,
            mig: mig.into_iter().map(|(_, mig)| mig).collect(),
        })
    }

    /// Takes over the latest slow figures of this GPU. Without new figures the last known ones stay, and their age
    /// grows.
    pub(super) fn merge_slow(&mut self, latest: &Latest) {
        let gpu = &mut self.gpu;
        let sensors = &mut gpu.sensors;
        match latest {
            Ok(round) => {
                if let Some(slow) = round.iter().find(|slow| slow.uuid.is_some() && slow.uuid == gpu.uuid) {
                    (sensors.pcie_rx, sensors.pcie_tx) = (slow.rx.clone(), slow.tx.clone());
                    self.pcie_at = Some(slow.at);
                    self.mig_on = slow.mig_on.or(self.mig_on);
                }
            }
            Err(why) => {
                (sensors.pcie_rx, sensors.pcie_tx) = (Reading::Failed(why.clone()), Reading::Failed(why.clone()))
            }
        }
        gpu.pcie_age = self.pcie_at.map(|at| at.elapsed());
    }

    fn mig_devices<'a>(&mut self, calls: &'a Calls, device: &Device<'a>) -> Vec<(Device<'a>, MigDevice)> {
        match *self
            .mig_on
            .get_or_insert_with(|| mig::is_on(calls, device).unwrap_or(false))
        {
            true => mig::devices(calls, device),
            false => Vec::new(),
        }
    }
}

/// Checks a percentage of time. Some drivers have returned values above 100 %, up to 4,294,967,295 %.
fn percent(said: u32) -> Reading<u32> {
    match said {
        0..=100 => Reading::Value(said),
        more => Reading::Failed(format!("NVML says {more} %, which cannot be")),
    }
}
