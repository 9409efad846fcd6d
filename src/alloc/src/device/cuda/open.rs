//! Opening a device.

use std::ffi::c_int;
use std::sync::{Arc, OnceLock};

use cudarc::driver::DriverError;
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use gpumem_channel::DeviceKind;

use super::api::{AllocationProp, Api, Location};
use super::bound::{Before, Bound};
use super::events::Events;
use super::library::Library;
use super::primary::Primary;
use super::rdma;
use super::reach::{Reach, access};
use super::{Cuda, POSIX_FILE_DESCRIPTOR, Prop};
use crate::device::{Calls, Device, DeviceInfo};
use crate::error::{DeviceError, Error};
use crate::size::LARGE_ROUND;

const LOCATION_DEVICE: c_int = 1;
const ALLOCATION_PINNED: c_int = 1;
const GRANULARITY_MINIMUM: c_int = 0;

/// Opens a device.
pub(in crate::device) fn open(ordinal: u32) -> Result<Device, Error> {
    let fail = |reason: String| Error::NoDevice { ordinal, reason };
    let library = Library::load().map_err(|refused| {
        fail(match refused {
            None => "no CUDA driver: libcuda.so was not found. Install the NVIDIA driver".into(),
            Some(why) => {
                format!("the CUDA driver is there and cannot be loaded: {why}. In a container, see how it is mounted")
            }
        })
    })?;
    let api = Api::of(library).map_err(|name| {
        fail(format!(
            "the CUDA driver has no {}: it is too old, CUDA 11.2 or newer is needed",
            name.to_string_lossy()
        ))
    })?;
    let cuda = Cuda::new(api, ordinal).map_err(|error| {
        let reason = refusal(&api, &error);
        fail(format!(
            "{reason}. Check that nvidia-smi lists the device, and CUDA_VISIBLE_DEVICES"
        ))
    })?;
    Ok(Device {
        driver: Arc::new(cuda),
        sim: None,
    })
}

/// An error of the driver's as people read it: "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected (cuInit: 100)".
fn refusal(api: &Api, error: &DeviceError) -> String {
    let DeviceError { call, code, name } = error;
    match api.error_text(*code) {
        Some(text) if !text.is_empty() => format!("{name}: {text} ({call}: {code})"),
        _ => format!("{name} ({call}: {code})"),
    }
}

/// An error of cudarc's as people read it: "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected". Its own text is that of
/// a debugger.
pub fn driver_message(error: DriverError) -> String {
    let name = format!("{:?}", error.0);
    match error.error_string().map(|text| text.to_string_lossy().into_owned()) {
        Ok(text) if !text.is_empty() => format!("{name}: {text}"),
        _ => name,
    }
}

impl Cuda {
    fn new(api: Api, ordinal: u32) -> Result<Cuda, DeviceError> {
        let primary = Primary::retain(api, ordinal)?;
        let device = primary.device();
        let location = Location {
            kind: LOCATION_DEVICE,
            id: device,
        };
        let can_map = Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
        let virtual_memory = api.attribute(device, can_map)? != 0;
        let for_rdma = Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED;
        // An old driver does not know what is asked.
        let gpu_direct_rdma = api.attribute(device, for_rdma).unwrap_or(0) != 0;
        let by_descriptor = Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
        // An old driver does not know what is asked.
        let by_descriptor = api.attribute(device, by_descriptor).unwrap_or(0) != 0;
        let prop = AllocationProp {
            kind: ALLOCATION_PINNED,
            // So that other processes can have it, which costs nothing where none does.
            handle_types: if by_descriptor { POSIX_FILE_DESCRIPTOR } else { 0 },
            location,
            win32_handle_meta_data: std::ptr::null_mut(),
            compression: 0,
            gpu_direct_rdma: 0,
            usage: 0,
            reserved: [0; 4],
        };
        let mut info = DeviceInfo {
            kind: DeviceKind::Cuda,
            ordinal,
            uuid: api.uuid(device)?,
            name: api.name(device)?,
            total: api.total(device)?,
            granularity: LARGE_ROUND,
            virtual_memory,
            gpu_direct_rdma,
        };
        if virtual_memory {
            let mut unit = 0usize;
            // SAFETY: the call reads one AllocationProp and writes one size.
            let code = unsafe { (api.granularity)(&mut unit, &prop, GRANULARITY_MINIMUM) };
            api.check("cuMemGetAllocationGranularity", code)?;
            info.granularity = unit as u64;
            if gpu_direct_rdma {
                let _bound = Bound::to(&api, primary.context())?;
                info.gpu_direct_rdma = rdma::is_mapped(&api, &prop, &access(location), unit);
            }
        }
        Ok(Cuda {
            api,
            info,
            context: OnceLock::new(),
            primary,
            prop: Prop(prop),
            reach: Reach::new(location),
            events: Events::default(),
            calls: Calls::default(),
            before: Before::new(api),
        })
    }
}
