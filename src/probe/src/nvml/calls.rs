//! The calls into NVML, one safe function each. The only unsafe code of the NVML side.
//!
//! Memory safety rests on the signatures in `nvml-wrapper-sys`, which are generated from nvml.h. A function that the
//! driver is too old to have answers `FUNCTION_NOT_FOUND`.
#![allow(unsafe_code)]

mod lists;

use std::ffi::{CStr, c_char};

use gpumem_text::clean_line;
use nvml_wrapper_sys::bindings as nvml;
use nvml_wrapper_sys::bindings::{NvmlLib, nvmlDevice_t, nvmlReturn_t};

pub(super) use lists::List;

/// NVML's number for what went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Code(pub(super) nvmlReturn_t);

impl Code {
    pub(super) const NOT_SUPPORTED: Code = Code(nvml::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED);
    pub(super) const NO_PERMISSION: Code = Code(nvml::nvmlReturn_enum_NVML_ERROR_NO_PERMISSION);
    pub(super) const INSUFFICIENT_SIZE: Code = Code(nvml::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE);
    pub(super) const FUNCTION_NOT_FOUND: Code = Code(nvml::nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND);
    pub(super) const ARGUMENT_VERSION: Code = Code(nvml::nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    pub(super) const DRIVER_NOT_LOADED: Code = Code(nvml::nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED);
    pub(super) const VERSION_MISMATCH: Code = Code(nvml::nvmlReturn_enum_NVML_ERROR_LIB_RM_VERSION_MISMATCH);

    /// The GPU fell off the bus, needs a reset, or is not there any more.
    pub(super) fn is_lost(self) -> bool {
        matches!(
            self.0,
            nvml::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST
                | nvml::nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED
                | nvml::nvmlReturn_enum_NVML_ERROR_GPU_NOT_FOUND
        )
    }
}

/// A GPU or MIG device as NVML knows it. Handles are not kept between samples.
#[derive(Clone, Copy)]
pub(super) struct Device(nvmlDevice_t);

/// The loaded and initialised library.
pub(super) struct Calls {
    lib: NvmlLib,
    /// 64-bit words in a process record: 3, but 4 on the first R535 drivers, which put one more field into it.
    process_words: usize,
}

fn symbol<T: Copy, E>(found: &Result<T, E>) -> Result<T, Code> {
    found.as_ref().copied().map_err(|_| Code::FUNCTION_NOT_FOUND)
}

fn check(code: nvmlReturn_t) -> Result<(), Code> {
    if code == nvml::nvmlReturn_enum_NVML_SUCCESS {
        Ok(())
    } else {
        Err(Code(code))
    }
}

/// One 32-bit figure of a device.
fn figure<E>(
    found: &Result<unsafe extern "C" fn(nvmlDevice_t, *mut u32) -> nvmlReturn_t, E>,
    device: Device,
) -> Result<u32, Code> {
    let mut value = 0;
    // SAFETY: the handle came from this library, which writes one number into `value`.
    check(unsafe { symbol(found)?(device.0, &mut value) })?;
    Ok(value)
}

/// Text that NVML writes into a buffer of at most 96 bytes (its longest, `NVML_DEVICE_NAME_V2_BUFFER_SIZE`).
fn text(write: impl FnOnce(*mut c_char, u32) -> nvmlReturn_t) -> Result<String, Code> {
    let mut buffer = [0u8; 96];
    check(write(buffer.as_mut_ptr().cast(), buffer.len() as u32))?;
    let end = buffer.iter().position(|&b| b == 0).unwrap_or(buffer.len());
    Ok(clean_line(&buffer[..end], buffer.len()))
}

impl Calls {
    /// Loads the library and initialises it. The outer error is the loader's, the inner one NVML's with its text.
    pub(super) fn open(name: &std::ffi::OsStr) -> Result<Result<Calls, (Code, String)>, String> {
        // SAFETY: loading runs the library's initialisers; that the driver's library may be loaded is the premise of
        // using NVML at all.
        let lib = unsafe { NvmlLib::new(name) }.map_err(|e| clean_line(e.to_string().as_bytes(), 300))?;
        let init = symbol(&lib.nvmlInit_v2);
        let calls = Calls {
            process_words: lists::process_words(&lib),
            lib,
        };
        // SAFETY: nvmlInit_v2 takes no arguments.
        let answer = init.and_then(|init| check(unsafe { init() }));
        Ok(match answer {
            Ok(()) => Ok(calls),
            Err(code) => {
                let text = calls.text(code);
                Err((code, text))
            }
        })
    }

    /// NVML's words for an error.
    pub(super) fn text(&self, code: Code) -> String {
        if code == Code::FUNCTION_NOT_FOUND {
            return "the driver's library lacks this function".into();
        }
        let words = symbol(&self.lib.nvmlErrorString).ok().and_then(|words| {
            // SAFETY: takes a number; returns null or a static string of the library, which stays loaded while `self`
            // lives.
            let pointer = unsafe { words(code.0) };
            // SAFETY: as above.
            (!pointer.is_null()).then(|| clean_line(unsafe { CStr::from_ptr(pointer) }.to_bytes(), 120))
        });
        words.unwrap_or_else(|| format!("NVML error {}", code.0))
    }

    pub(super) fn driver_version(&self) -> Result<String, Code> {
        let f = symbol(&self.lib.nvmlSystemGetDriverVersion)?;
        // SAFETY: NVML writes at most `length` bytes.
        text(|buffer, length| unsafe { f(buffer, length) })
    }

    /// (major, minor) of the newest CUDA the driver serves.
    pub(super) fn cuda_version(&self) -> Result<(u32, u32), Code> {
        let mut version = 0;
        // SAFETY: NVML writes one number.
        check(unsafe { symbol(&self.lib.nvmlSystemGetCudaDriverVersion_v2)?(&mut version) })?;
        let version = u32::try_from(version).map_err(|_| Code::NOT_SUPPORTED)?;
        Ok((version / 1000, version % 1000 / 10))
    }

    pub(super) fn device_count(&self) -> Result<u32, Code> {
        let mut count = 0;
        // SAFETY: NVML writes one number.
        check(unsafe { symbol(&self.lib.nvmlDeviceGetCount_v2)?(&mut count) })?;
        Ok(count)
    }

    pub(super) fn device(&self, index: u32) -> Result<Device, Code> {
        let mut device = std::ptr::null_mut();
        // SAFETY: NVML writes one handle.
        check(unsafe { symbol(&self.lib.nvmlDeviceGetHandleByIndex_v2)?(index, &mut device) })?;
        Ok(Device(device))
    }

    pub(super) fn name(&self, device: Device) -> Result<String, Code> {
        let f = symbol(&self.lib.nvmlDeviceGetName)?;
        // SAFETY: the handle came from this library; NVML writes at most `length` bytes.
        text(|buffer, length| unsafe { f(device.0, buffer, length) })
    }

    pub(super) fn uuid(&self, device: Device) -> Result<String, Code> {
        let f = symbol(&self.lib.nvmlDeviceGetUUID)?;
        // SAFETY: the handle came from this library; NVML writes at most `length` bytes.
        text(|buffer, length| unsafe { f(device.0, buffer, length) })
    }

    pub(super) fn pci(&self, device: Device) -> Result<String, Code> {
        let f = symbol(&self.lib.nvmlDeviceGetPciInfo_v3)?;
        let mut info = nvml::nvmlPciInfo_t {
            busIdLegacy: [0; 16],
            domain: 0,
            bus: 0,
            device: 0,
            pciDeviceId: 0,
            pciSubSystemId: 0,
            busId: [0; 32],
        };
        // SAFETY: the handle came from this library; NVML fills one structure.
        check(unsafe { f(device.0, &mut info) })?;
        let bytes: Vec<u8> = info.busId.iter().map(|&c| c as u8).take_while(|&b| b != 0).collect();
        Ok(clean_line(&bytes, 32))
    }

    pub(super) fn memory_v2(&self, device: Device) -> Result<nvml::nvmlMemory_v2_t, Code> {
        let f = symbol(&self.lib.nvmlDeviceGetMemoryInfo_v2)?;
        // nvml.h's NVML_STRUCT_VERSION(Memory, 2).
        let version = (size_of::<nvml::nvmlMemory_v2_t>() | (2 << 24)) as u32;
        let mut memory = nvml::nvmlMemory_v2_t {
            version,
            total: 0,
            reserved: 0,
            free: 0,
            used: 0,
        };
        // SAFETY: the handle came from this library; NVML fills one structure of the version said in it.
        check(unsafe { f(device.0, &mut memory) })?;
        Ok(memory)
    }

    pub(super) fn memory_v1(&self, device: Device) -> Result<nvml::nvmlMemory_t, Code> {
        let f = symbol(&self.lib.nvmlDeviceGetMemoryInfo)?;
        let mut memory = nvml::nvmlMemory_t {
            total: 0,
            free: 0,
            used: 0,
        };
        // SAFETY: the handle came from this library; NVML fills one structure.
        check(unsafe { f(device.0, &mut memory) })?;
        Ok(memory)
    }

    /// Percent of time (a kernel ran, memory was accessed).
    pub(super) fn utilization(&self, device: Device) -> Result<(u32, u32), Code> {
        let f = symbol(&self.lib.nvmlDeviceGetUtilizationRates)?;
        let mut rates = nvml::nvmlUtilization_t { gpu: 0, memory: 0 };
        // SAFETY: the handle came from this library; NVML fills one structure.
        check(unsafe { f(device.0, &mut rates) })?;
        Ok((rates.gpu, rates.memory))
    }

    pub(super) fn temperature(&self, device: Device) -> Result<u32, Code> {
        let f = symbol(&self.lib.nvmlDeviceGetTemperature)?;
        let mut degrees = 0;
        // SAFETY: the handle came from this library; NVML writes one number.
        check(unsafe {
            f(
                device.0,
                nvml::nvmlTemperatureSensors_enum_NVML_TEMPERATURE_GPU,
                &mut degrees,
            )
        })?;
        Ok(degrees)
    }

    pub(super) fn power(&self, device: Device) -> Result<u32, Code> {
        figure(&self.lib.nvmlDeviceGetPowerUsage, device)
    }

    pub(super) fn power_limit(&self, device: Device) -> Result<u32, Code> {
        figure(&self.lib.nvmlDeviceGetEnforcedPowerLimit, device)
    }

    /// Bytes per second that the device received and sent over PCIe. Sleeps 20 ms for each of the two.
    pub(super) fn pcie(&self, device: Device) -> [Result<u64, Code>; 2] {
        let counters = [
            nvml::nvmlPcieUtilCounter_enum_NVML_PCIE_UTIL_RX_BYTES,
            nvml::nvmlPcieUtilCounter_enum_NVML_PCIE_UTIL_TX_BYTES,
        ];
        counters.map(|counter| {
            let f = symbol(&self.lib.nvmlDeviceGetPcieThroughput)?;
            let mut rate = 0;
            // SAFETY: the handle came from this library; NVML writes one number.
            check(unsafe { f(device.0, counter, &mut rate) })?;
            Ok(u64::from(rate) * 1000)
        })
    }

    pub(super) fn mig_enabled(&self, device: Device) -> Result<bool, Code> {
        let (mut current, mut pending) = (0, 0);
        // SAFETY: the handle came from this library; NVML writes two numbers.
        check(unsafe { symbol(&self.lib.nvmlDeviceGetMigMode)?(device.0, &mut current, &mut pending) })?;
        Ok(current == nvml::NVML_DEVICE_MIG_ENABLE)
    }

    pub(super) fn max_mig_devices(&self, device: Device) -> Result<u32, Code> {
        figure(&self.lib.nvmlDeviceGetMaxMigDeviceCount, device)
    }

    pub(super) fn mig_device(&self, parent: Device, index: u32) -> Result<Device, Code> {
        let f = symbol(&self.lib.nvmlDeviceGetMigDeviceHandleByIndex)?;
        let mut device = std::ptr::null_mut();
        // SAFETY: the handle came from this library; NVML writes one handle.
        check(unsafe { f(parent.0, index, &mut device) })?;
        Ok(Device(device))
    }

    pub(super) fn gpu_instance(&self, mig: Device) -> Result<u32, Code> {
        figure(&self.lib.nvmlDeviceGetGpuInstanceId, mig)
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        if let Ok(shutdown) = symbol(&self.lib.nvmlShutdown) {
            // SAFETY: takes no arguments; `self` is the last user of the library. After a failed initialisation it only
            // returns an error.
            unsafe { shutdown() };
        }
    }
}
