//! A scenario as plain values, in NVML's units.

use nvml_wrapper_sys::bindings::nvmlReturn_t;

/// The result of a call, with NVML's error number.
pub(crate) type Answer = Result<(), nvmlReturn_t>;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct World {
    pub(crate) load_delay_ms: u64,
    pub(crate) load_exit: Option<i32>,
    /// What every call prints on standard output.
    pub(crate) says: String,
    pub(crate) init: Answer,
    pub(crate) init_delay_ms: u64,
    pub(crate) calls: Answer,
    pub(crate) driver: String,
    pub(crate) cuda: i32,
    pub(crate) gpus: Vec<Gpu>,
    /// Size of one process record.
    pub(crate) process_bytes: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Gpu {
    pub(crate) name: Vec<u8>,
    pub(crate) uuid: Vec<u8>,
    pub(crate) pci: Vec<u8>,
    pub(crate) total: u64,
    pub(crate) used: u64,
    pub(crate) reserved: u64,
    /// The free bytes that are reported, if they are not what is left of the total.
    pub(crate) free: Option<u64>,
    pub(crate) memory: Answer,
    pub(crate) memory_delay_ms: u64,
    pub(crate) sensors: Answer,
    pub(crate) utilization: u32,
    pub(crate) memory_utilization: u32,
    pub(crate) temperature: u32,
    pub(crate) power: u32,
    pub(crate) power_limit: u32,
    pub(crate) pcie_rx: u32,
    pub(crate) pcie_tx: u32,
    pub(crate) pcie_delay_ms: u64,
    pub(crate) process: Vec<Process>,
    pub(crate) processes: Answer,
    /// The result of the process lists of the whole GPU, but not of those of its MIG devices.
    pub(crate) whole_list: Answer,
    pub(crate) state: Answer,
    /// The result of every call on it but the one that returns its handle.
    pub(crate) answers: Answer,
    pub(crate) mig: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// `u64::MAX` is NVML's "not available".
    pub(crate) bytes: u64,
    pub(crate) compute: bool,
    pub(crate) graphics: bool,
    pub(crate) mps: bool,
    /// `u32::MAX` is NVML's "none".
    pub(crate) instance: u32,
}

impl World {
    /// Returns one idle H100, with the figures of a real one.
    pub(crate) fn new() -> Self {
        World {
            load_delay_ms: 0,
            load_exit: None,
            says: String::new(),
            init: Ok(()),
            init_delay_ms: 0,
            calls: Ok(()),
            driver: "580.159.04".into(),
            cuda: 13000,
            gpus: vec![Gpu::h100(0)],
            process_bytes: 24,
        }
    }
}

impl Gpu {
    /// Returns the share of `bytes` of one MIG device, or all of them for the whole GPU.
    pub(crate) fn share(&self, of_mig: bool, bytes: u64) -> u64 {
        if of_mig { bytes / u64::from(self.mig) } else { bytes }
    }

    pub(crate) fn h100(index: usize) -> Self {
        Gpu {
            name: b"NVIDIA H100 80GB HBM3".to_vec(),
            uuid: format!("GPU-6f5ae4c5-0000-4000-8000-{index:012x}").into_bytes(),
            pci: format!("00000000:{:02X}:00.0", (index + 1) & 0xff).into_bytes(),
            total: 81559 << 20,
            used: 0,
            reserved: 480 << 20,
            free: None,
            memory: Ok(()),
            memory_delay_ms: 0,
            sensors: Ok(()),
            utilization: 0,
            memory_utilization: 0,
            temperature: 30,
            power: 70_000,
            power_limit: 700_000,
            pcie_rx: 0,
            pcie_tx: 0,
            pcie_delay_ms: 20,
            process: Vec::new(),
            processes: Ok(()),
            whole_list: Ok(()),
            state: Ok(()),
            answers: Ok(()),
            mig: 0,
        }
    }
}
