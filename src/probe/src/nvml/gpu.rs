//! One GPU from sample to sample: its identity, its figures, and what is kept when it stops answering.

use std::time::Instant;

use super::calls::{Calls, Code, Device};
use super::slow::Latest;
use super::{mig, processes};
use crate::{Gpu, GpuState, Memory, Reading, Sensors, host, uuid};

/// A GPU and what has to be known between samples.
pub(super) struct Row {
    pub(super) gpu: Gpu,
    /// Name, UUID and bus id belong to the GPU that this index means now.
    pub(super) identified: bool,
    /// Whether MIG is on; `None` is not asked yet. The question takes 0.4 ms, more than all others together, so that
    /// only a row's first sample asks itself and the slow rounds do later.
    mig_on: Option<bool>,
    /// When the PCIe figures were measured.
    pcie_at: Option<Instant>,
    /// Room for process records, kept to be used again.
    records: Vec<u64>,
}

/// What a call's answer means as a figure.
pub(super) fn reading<T>(answer: Result<T, Code>) -> Reading<T> {
    match answer {
        Ok(value) => Reading::Value(value),
        Err(Code::NOT_SUPPORTED | Code::FUNCTION_NOT_FOUND) => Reading::NotSupported,
        Err(Code::NO_PERMISSION) => Reading::NoPermission,
        Err(code) => Reading::Failed(code.text()),
    }
}

impl Row {
    pub(super) fn new(index: u32) -> Self {
        let gpu = Gpu {
            index,
            ..Gpu::default()
        };
        Row {
            gpu,
            identified: false,
            mig_on: None,
            pcie_at: None,
            records: Vec::new(),
        }
    }

    /// Asks a GPU who it is. What it does not tell stays empty.
    pub(super) fn identify(calls: &Calls, index: u32, device: &Device<'_>) -> Self {
        let mut row = Row::new(index);
        row.gpu.name = calls.name(device).unwrap_or_else(Code::untold);
        row.gpu.uuid = calls.uuid(device).ok().and_then(|uuid| uuid::bytes(&uuid));
        row.gpu.pci = calls.pci(device).unwrap_or_default();
        row.identified = true;
        row
    }

    /// Takes over what `found` says of itself and keeps the figures.
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

    /// It does not answer any more; the figures are the last known. Another card may be at its index next time.
    pub(super) fn lose(&mut self, why: &str) {
        self.gpu.state = GpuState::Lost(why.to_owned());
        self.identified = false;
    }

    /// The driver gave no handle: a GPU that was seen before is lost, one that never was is kept from us.
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

    /// Reads every quick figure. A GPU that turns out to be lost keeps the figures it had.
    pub(super) fn read(&mut self, calls: &Calls, device: &Device<'_>) {
        let memory = device_memory(calls, device);
        if let Err(code) = memory
            && code.is_lost()
        {
            return self.lose(&code.text());
        }
        self.gpu.state = GpuState::Present;
        self.set_memory(memory);
        let sensors = &mut self.gpu.sensors;
        (sensors.utilization, sensors.memory_utilization) = match calls.utilization(device) {
            Ok((kernels, memory)) => (Reading::Value(kernels), Reading::Value(memory)),
            Err(code) => (reading(Err(code)), reading(Err(code))),
        };
        sensors.temperature = reading(calls.temperature(device));
        sensors.power = reading(calls.power(device));
        sensors.power_limit = reading(calls.power_limit(device));
        let mig_devices = self.mig_devices(calls, device);
        self.gpu.processes = processes::read(calls, device, &mig_devices, &mut self.records);
        self.gpu.mig = mig_devices.into_iter().map(|(_, mig)| mig).collect();
    }

    /// Takes over the latest slow figures of this GPU; where there are none, the last known stay and their age grows.
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

    fn set_memory(&mut self, memory: Result<Reading<Memory>, Code>) {
        self.gpu.shared_with_host = matches!(memory, Err(Code::NOT_SUPPORTED));
        self.gpu.memory = match memory {
            Ok(known) => known,
            Err(Code::NOT_SUPPORTED) => shared_memory(),
            Err(code) => reading(Err(code)),
        };
    }

    fn mig_devices<'a>(&mut self, calls: &'a Calls, device: &Device<'a>) -> Vec<(Device<'a>, crate::MigDevice)> {
        match *self
            .mig_on
            .get_or_insert_with(|| mig::is_on(calls, device).unwrap_or(false))
        {
            true => mig::devices(calls, device),
            false => Vec::new(),
        }
    }
}

/// Memory v2, or v1 where the driver has no v2 (before R510): what the driver holds is then within `used`.
pub(super) fn device_memory(calls: &Calls, device: &Device<'_>) -> Result<Reading<Memory>, Code> {
    match calls.memory_v2(device) {
        Ok(m) => Ok(adds_up(m.total, m.used, Some(m.reserved))),
        Err(Code::FUNCTION_NOT_FOUND | Code::ARGUMENT_VERSION) => {
            let m = calls.memory_v1(device)?;
            Ok(adds_up(m.total, m.used, None))
        }
        Err(code) => Err(code),
    }
}

/// `free` is what is left, so that the parts always make the whole.
fn adds_up(total: u64, used: u64, reserved: Option<u64>) -> Reading<Memory> {
    let driver = reserved.unwrap_or(0);
    match total.checked_sub(used).and_then(|rest| rest.checked_sub(driver)) {
        Some(free) => Reading::Value(Memory {
            total,
            used,
            reserved,
            free,
        }),
        None => Reading::Failed(format!(
            "NVML's figures do not add up: {used} used and {driver} reserved of {total}"
        )),
    }
}

/// GB10 and the like have no memory of their own.
fn shared_memory() -> Reading<Memory> {
    match host::without_limit() {
        Reading::Value(host) => adds_up(host.total, host.total.saturating_sub(host.available), None),
        Reading::Failed(why) => Reading::Failed(why),
        _ => Reading::NotSupported,
    }
}
