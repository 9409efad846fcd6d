//! The calls into NVML, one safe function each, through `nvml-wrapper`. What the wrapper lacks is called directly, and
//! is the only unsafe code for NVML:
//! - the library is loaded before the wrapper loads it, so that the file is known ([`library`]);
//! - memory v1, for drivers before R510: the wrapper has v2 only;
//! - the instance ids of a MIG device, which the wrapper cannot query;
//! - the process lists ([`lists`]): the wrapper's buffer is too small for the records of the first R535 drivers.
//!
//! A function that the driver lacks returns `FUNCTION_NOT_FOUND`.
#![allow(unsafe_code)]

mod code;
mod library;
mod lists;

use std::ffi::OsStr;

use gpumem_text::clean_line;
use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::{PcieUtilCounter, TemperatureSensor};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::MemoryInfo;
use nvml_wrapper_sys::bindings::{NVML_DEVICE_MIG_ENABLE, nvmlDevice_t, nvmlMemory_t, nvmlReturn_t};

pub(super) use code::Code;
use code::check;
pub(super) use library::Library;
pub(super) use lists::List;

/// NVML's handle of a GPU or MIG device. Handles are not kept between samples.
pub(super) type Device<'a> = nvml_wrapper::Device<'a>;

/// The loaded and initialised library. It is shut down when this is dropped.
pub(super) struct Calls {
    nvml: Nvml,
    records: lists::Records,
}

/// An NVML function that writes one value.
type Ask<T> = unsafe extern "C" fn(nvmlDevice_t, *mut T) -> nvmlReturn_t;

/// Length of the longest text that NVML gives (`NVML_DEVICE_NAME_V2_BUFFER_SIZE`, `NVML_DEVICE_UUID_V2_BUFFER_SIZE`).
const TEXT: usize = 96;

/// Cleans a text from the driver of control characters.
fn text(answer: Result<String, NvmlError>) -> Result<String, Code> {
    answer.map(|text| clean_line(text.as_bytes(), TEXT)).map_err(Code::from)
}

impl Calls {
    /// Initialises a loaded library.
    pub(super) fn init(library: &Library, name: &OsStr) -> Result<Calls, Code> {
        library.can_shut_down()?;
        let nvml = Nvml::builder().lib_path(name).init()?;
        Ok(Calls {
            records: lists::Records::of(nvml.lib()),
            nvml,
        })
    }

    /// Queries one value that the wrapper does not offer.
    fn ask<T, E>(found: &Result<Ask<T>, E>, device: &Device<'_>, mut value: T) -> Result<T, Code> {
        let ask = found.as_ref().map_err(|_| Code::FUNCTION_NOT_FOUND)?;
        // SAFETY: the handle came from this library, and NVML writes one `T`, as its signature says.
        check(unsafe { ask(device.handle(), &mut value) })?;
        Ok(value)
    }

    pub(super) fn driver_version(&self) -> Result<String, Code> {
        text(self.nvml.sys_driver_version())
    }

    /// Returns (major, minor) of the newest CUDA version that the driver supports.
    pub(super) fn cuda_version(&self) -> Result<(u32, u32), Code> {
        let version = self.nvml.sys_cuda_driver_version()?;
        let version = u32::try_from(version).map_err(|_| Code::NOT_SUPPORTED)?;
        Ok((version / 1000, version % 1000 / 10))
    }

    pub(super) fn device_count(&self) -> Result<u32, Code> {
        Ok(self.nvml.device_count()?)
    }

    pub(super) fn device(&self, index: u32) -> Result<Device<'_>, Code> {
        Ok(self.nvml.device_by_index(index)?)
    }

    pub(super) fn name(&self, device: &Device<'_>) -> Result<String, Code> {
        text(device.name())
    }

    pub(super) fn uuid(&self, device: &Device<'_>) -> Result<String, Code> {
        text(device.uuid())
    }

    /// Returns the PCI bus id.
    pub(super) fn pci(&self, device: &Device<'_>) -> Result<String, Code> {
        text(device.pci_info().map(|pci| pci.bus_id))
    }

    pub(super) fn memory_v2(&self, device: &Device<'_>) -> Result<MemoryInfo, Code> {
        Ok(device.memory_info()?)
    }

    pub(super) fn memory_v1(&self, device: &Device<'_>) -> Result<nvmlMemory_t, Code> {
        let none = nvmlMemory_t {
            total: 0,
            free: 0,
            used: 0,
        };
        Self::ask(&self.nvml.lib().nvmlDeviceGetMemoryInfo, device, none)
    }

    /// Returns the percentages of time in which a kernel ran and in which memory was accessed.
    pub(super) fn utilization(&self, device: &Device<'_>) -> Result<(u32, u32), Code> {
        let rates = device.utilization_rates()?;
        Ok((rates.gpu, rates.memory))
    }

    pub(super) fn temperature(&self, device: &Device<'_>) -> Result<u32, Code> {
        Ok(device.temperature(TemperatureSensor::Gpu)?)
    }

    pub(super) fn power(&self, device: &Device<'_>) -> Result<u32, Code> {
        Ok(device.power_usage()?)
    }

    pub(super) fn power_limit(&self, device: &Device<'_>) -> Result<u32, Code> {
        Ok(device.enforced_power_limit()?)
    }

    /// Measures the bytes per second that the device received and sent over PCIe. Sleeps 20 ms for each of the two.
    pub(super) fn pcie(&self, device: &Device<'_>) -> [Result<u64, Code>; 2] {
        [PcieUtilCounter::Receive, PcieUtilCounter::Send].map(|counter| {
            let rate = device.pcie_throughput(counter)?;
            Ok(u64::from(rate) * 1000)
        })
    }

    pub(super) fn mig_enabled(&self, device: &Device<'_>) -> Result<bool, Code> {
        Ok(device.mig_mode()?.current == NVML_DEVICE_MIG_ENABLE)
    }

    pub(super) fn max_mig_devices(&self, device: &Device<'_>) -> Result<u32, Code> {
        Ok(device.mig_device_count()?)
    }

    pub(super) fn mig_device<'a>(&'a self, parent: &Device<'a>, index: u32) -> Result<Device<'a>, Code> {
        Ok(parent.mig_device_by_index(index)?)
    }

    pub(super) fn gpu_instance(&self, mig: &Device<'_>) -> Result<u32, Code> {
        Self::ask(&self.nvml.lib().nvmlDeviceGetGpuInstanceId, mig, 0)
    }
}
