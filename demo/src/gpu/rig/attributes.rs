//! The attributes of a card.

use std::sync::Arc;

use cudarc::driver::sys::CUdevice_attribute as Attribute;
use cudarc::driver::{CudaContext, sys};
use gpumem_alloc::device::DeviceInfo;

use crate::gpu::{GpuError, while_doing};
use crate::rig::Card;

/// Files with the version of the kernel's driver: its module's, if sysfs is there.
const VERSION: &str = "/sys/module/nvidia/version";

pub(super) fn card(context: &Arc<CudaContext>, info: &DeviceInfo) -> Result<Card, GpuError> {
    // The driver refuses an attribute that it does not know.
    let asked = |attribute| {
        context
            .attribute(attribute)
            .ok()
            .and_then(|value| u32::try_from(value).ok())
    };
    let needed = |attribute| {
        let value = context
            .attribute(attribute)
            .map_err(while_doing("asking for the device's attributes"))?;
        Ok::<u32, GpuError>(u32::try_from(value).unwrap_or(0))
    };
    let mhz = |attribute| asked(attribute).map(|khz| khz / 1000).filter(|mhz| *mhz > 0);
    Ok(Card {
        name: gpumem_text::clean_line(info.name.as_bytes(), 80),
        uuid: uuid_text(&info.uuid),
        compute_capability: (
            needed(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            needed(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        driver: driver_version(),
        sms: needed(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.max(1),
        sm_mhz_max: mhz(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
        memory_mhz_max: mhz(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE),
        memory_bus_bits: asked(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH),
        memory_bytes: info.total,
        l2_bytes: needed(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.into(),
        shared_bytes_per_sm: needed(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?.into(),
        register_bytes_per_sm: u64::from(needed(Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR)?) * 4,
        l2_persisting_max_bytes: asked(Attribute::CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE).map(u64::from),
        l2_persisting_bytes: context
            .get_limit(sys::CUlimit::CU_LIMIT_PERSISTING_L2_CACHE_SIZE)
            .ok()
            .map(|bytes| bytes as u64),
        ecc: asked(Attribute::CU_DEVICE_ATTRIBUTE_ECC_ENABLED).map(|on| on != 0),
        peers: super::peer::peers(context)?,
    })
}

/// Returns a UUID as NVML writes it.
pub(super) fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::from("GPU");
    let mut rest = uuid.as_slice();
    for bytes in [4, 2, 2, 2, 6] {
        let (group, others) = rest.split_at(bytes);
        text.push('-');
        text.extend(group.iter().map(|byte| format!("{byte:02x}")));
        rest = others;
    }
    text
}

/// Returns the version of the kernel's driver, or of CUDA where the former cannot be read.
fn driver_version() -> String {
    let version = std::fs::read(VERSION).map(|bytes| gpumem_text::clean_line(&bytes, 40));
    version.ok().filter(|text| !text.is_empty()).unwrap_or_else(|| {
        let mut cuda = 0;
        // SAFETY: writes one number.
        let known = unsafe { sys::cuDriverGetVersion(&mut cuda) }.result().is_ok();
        match known {
            true => format!("cuda-{}.{}", cuda / 1000, cuda % 1000 / 10),
            false => "unknown".to_owned(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuid_is_written_as_nvml_writes_it() {
        let uuid = [
            0x6f, 0x5a, 0xe4, 0xc5, 0x00, 0x01, 0xab, 0xcd, 0xef, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70,
        ];
        assert_eq!(uuid_text(&uuid), "GPU-6f5ae4c5-0001-abcd-ef10-203040506070");
    }
}
