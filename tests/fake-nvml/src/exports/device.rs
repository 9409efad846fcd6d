//! One GPU's identity and figures.

use std::ffi::{c_char, c_uint};
use std::time::Duration;

use nvml_wrapper_sys::bindings as nvml;
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t};

use super::{answering, code, put, put_text, with_gpu};

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut nvmlDevice_t) -> nvmlReturn_t {
    code(answering().and_then(|world| {
        let gpu = world
            .gpus
            .get(index as usize)
            .ok_or(nvml::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT)?;
        gpu.state?;
        // SAFETY: NVML's contract: `device` is null or valid.
        unsafe { put(device, (index as usize + 1) as nvmlDevice_t) }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetName(device: nvmlDevice_t, name: *mut c_char, length: c_uint) -> nvmlReturn_t {
    code(with_gpu(device, |gpu, mig| {
        let suffix: &[u8] = if mig.is_some() { b" MIG 1g.10gb" } else { b"" };
        // SAFETY: NVML's contract: `name` holds `length` bytes.
        unsafe { put_text(name, length, &[&gpu.name, suffix].concat()) }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUUID(device: nvmlDevice_t, uuid: *mut c_char, length: c_uint) -> nvmlReturn_t {
    code(with_gpu(device, |gpu, mig| {
        let text = mig.map_or_else(
            || gpu.uuid.clone(),
            |i| format!("MIG-6f5ae4c5-0000-4000-9000-{i:012x}").into_bytes(),
        );
        // SAFETY: NVML's contract: `uuid` holds `length` bytes.
        unsafe { put_text(uuid, length, &text) }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(device: nvmlDevice_t, pci: *mut nvml::nvmlPciInfo_t) -> nvmlReturn_t {
    code(with_gpu(device, |gpu, _| {
        let mut info = nvml::nvmlPciInfo_t {
            busIdLegacy: [0; 16],
            domain: 0,
            bus: 0,
            device: 0,
            pciDeviceId: 0x2330_10de,
            pciSubSystemId: 0,
            busId: [0; 32],
        };
        for (to, &from) in info.busId.iter_mut().zip(&gpu.pci) {
            *to = from as c_char;
        }
        // SAFETY: NVML's contract: `pci` is null or valid.
        unsafe { put(pci, info) }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo(device: nvmlDevice_t, memory: *mut nvml::nvmlMemory_t) -> nvmlReturn_t {
    code(with_gpu(device, |gpu, mig| {
        std::thread::sleep(Duration::from_millis(gpu.memory_delay_ms));
        gpu.memory?;
        let share = |bytes| gpu.share(mig.is_some(), bytes);
        let used = gpu.used.saturating_add(gpu.reserved);
        let (total, used) = (share(gpu.total), share(used));
        let free = gpu.free.map_or(total.wrapping_sub(used), share);
        // SAFETY: NVML's contract: `memory` is null or valid.
        unsafe { put(memory, nvml::nvmlMemory_t { total, free, used }) }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(
    device: nvmlDevice_t,
    memory: *mut nvml::nvmlMemory_v2_t,
) -> nvmlReturn_t {
    code(with_gpu(device, |gpu, mig| {
        std::thread::sleep(Duration::from_millis(gpu.memory_delay_ms));
        gpu.memory?;
        let expected = (size_of::<nvml::nvmlMemory_v2_t>() | (2 << 24)) as c_uint;
        // SAFETY: NVML's contract: `memory` is null or valid, and the caller filled its `version`.
        let version = unsafe { memory.as_ref() }.map(|m| m.version);
        if version != Some(expected) {
            return Err(nvml::nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
        }
        let share = |bytes| gpu.share(mig.is_some(), bytes);
        let (total, reserved, used) = (share(gpu.total), share(gpu.reserved), share(gpu.used));
        let left = total.wrapping_sub(reserved).wrapping_sub(used);
        let free = gpu.free.map_or(left, share);
        // SAFETY: as above.
        unsafe {
            put(
                memory,
                nvml::nvmlMemory_v2_t {
                    version: expected,
                    total,
                    reserved,
                    free,
                    used,
                },
            )
        }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUtilizationRates(
    device: nvmlDevice_t,
    rates: *mut nvml::nvmlUtilization_t,
) -> nvmlReturn_t {
    code(with_gpu(device, |gpu, _| {
        gpu.sensors?;
        // A GPU in MIG mode has no utilisation of its own.
        if gpu.mig > 0 {
            return Err(nvml::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED);
        }
        // SAFETY: NVML's contract: `rates` is null or valid.
        unsafe {
            put(
                rates,
                nvml::nvmlUtilization_t {
                    gpu: gpu.utilization,
                    memory: gpu.memory_utilization,
                },
            )
        }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTemperature(
    device: nvmlDevice_t,
    _sensor: c_uint,
    temperature: *mut c_uint,
) -> nvmlReturn_t {
    code(with_gpu(device, |gpu, _| {
        gpu.sensors?;
        // SAFETY: NVML's contract: `temperature` is null or valid.
        unsafe { put(temperature, gpu.temperature) }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPowerUsage(device: nvmlDevice_t, power: *mut c_uint) -> nvmlReturn_t {
    code(with_gpu(device, |gpu, _| {
        gpu.sensors?;
        // SAFETY: NVML's contract: `power` is null or valid.
        unsafe { put(power, gpu.power) }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetEnforcedPowerLimit(device: nvmlDevice_t, limit: *mut c_uint) -> nvmlReturn_t {
    code(with_gpu(device, |gpu, _| {
        gpu.sensors?;
        // SAFETY: NVML's contract: `limit` is null or valid.
        unsafe { put(limit, gpu.power_limit) }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPcieThroughput(
    device: nvmlDevice_t,
    counter: c_uint,
    value: *mut c_uint,
) -> nvmlReturn_t {
    code(with_gpu(device, |gpu, _| {
        std::thread::sleep(Duration::from_millis(gpu.pcie_delay_ms));
        gpu.sensors?;
        let rate = match counter {
            nvml::nvmlPcieUtilCounter_enum_NVML_PCIE_UTIL_TX_BYTES => gpu.pcie_tx,
            nvml::nvmlPcieUtilCounter_enum_NVML_PCIE_UTIL_RX_BYTES => gpu.pcie_rx,
            _ => return Err(nvml::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT),
        };
        // SAFETY: NVML's contract: `value` is null or valid.
        unsafe { put(value, rate) }
    }))
}
