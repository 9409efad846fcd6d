//! CUDA devices, through the primary context, so that memory is shared with whatever else uses CUDA in the process.

mod api;
mod bound;
mod launch;

use std::ffi::c_int;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{CudaContext, DriverError, sys};
use gpumem_channel::DeviceKind;

use super::{Device, DeviceInfo, Driver, EventHandle, Handle, MemoryInfo, Result};
use crate::error::Error;
use crate::size::LARGE_ROUND;
use crate::stream::Stream;
use api::{AccessDesc, AllocationProp, Api, Location, Opaque};
use bound::Bound;

const NOT_READY: c_int = 600;
const EVENT_DISABLE_TIMING: u32 = 2;
const LOCATION_DEVICE: c_int = 1;
const ALLOCATION_PINNED: c_int = 1;
const ACCESS_READ_WRITE: c_int = 3;
const GRANULARITY_MINIMUM: c_int = 0;
/// Spare events kept for reuse; creating one costs more than recording it.
const SPARE_EVENTS: usize = 256;

#[derive(Debug)]
struct Cuda {
    api: Api,
    info: DeviceInfo,
    context: Arc<CudaContext>,
    prop: Prop,
    spare: Mutex<Vec<EventHandle>>,
    /// Whether graphs are being captured somewhere.
    capturing: AtomicBool,
}

/// What physical chunks are made as.
#[derive(Debug)]
struct Prop(AllocationProp);

// SAFETY: the only pointer in it is null and never followed.
unsafe impl Send for Prop {}
// SAFETY: as above; it is never changed.
unsafe impl Sync for Prop {}

/// Opens a device.
pub(super) fn open(ordinal: u32) -> std::result::Result<Device, Error> {
    let fail = |reason: String| Error::NoDevice { ordinal, reason };
    // SAFETY: loads a shared library by name; the driver's initialisers are trusted as the driver is.
    if !unsafe { sys::is_culib_present() } {
        return Err(fail(
            "no CUDA driver: libcuda.so was not found. Install the NVIDIA driver, or use the simulated device".into(),
        ));
    }
    let api = Api::load().map_err(|name| {
        fail(format!(
            "the CUDA driver has no {name}: it is too old, CUDA 11.2 or newer is needed"
        ))
    })?;
    // Opening makes the device's context current.
    let _as_before = Bound::as_it_is(&api);
    // cudarc panics when a function it wants is missing from an old driver.
    let context = catch_unwind(|| CudaContext::new(ordinal as usize))
        .map_err(|_| fail("the CUDA driver is too old for this program".into()))?
        .map_err(|error| {
            fail(format!(
                "{}. Check that nvidia-smi lists the device, and CUDA_VISIBLE_DEVICES",
                driver_message(error)
            ))
        })?;
    let cuda = Cuda::new(api, ordinal, &context).map_err(|error| fail(error.to_string()))?;
    Ok(Device {
        driver: Arc::new(cuda),
        sim: None,
        context: Some(context),
    })
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
    fn new(api: Api, ordinal: u32, context: &Arc<CudaContext>) -> std::result::Result<Cuda, Error> {
        let ask = |error: DriverError| Error::NoDevice {
            ordinal,
            reason: driver_message(error),
        };
        let location = Location {
            kind: LOCATION_DEVICE,
            id: context.cu_device(),
        };
        let prop = AllocationProp {
            kind: ALLOCATION_PINNED,
            handle_types: 0,
            location,
            win32_handle_meta_data: std::ptr::null_mut(),
            flags: [0; 8],
        };
        let can_map = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
        let virtual_memory = context.attribute(can_map).map_err(ask)? != 0;
        let mut info = DeviceInfo {
            kind: DeviceKind::Cuda,
            ordinal,
            uuid: context.uuid().map_err(ask)?.bytes.map(|byte| byte as u8),
            name: context.name().map_err(ask)?,
            total: context.total_mem().map_err(ask)? as u64,
            granularity: LARGE_ROUND,
            virtual_memory,
        };
        if virtual_memory {
            let mut unit = 0usize;
            // SAFETY: the call reads one AllocationProp and writes one size.
            let code = unsafe { (api.granularity)(&mut unit, &prop, GRANULARITY_MINIMUM) };
            api.check("cuMemGetAllocationGranularity", code)?;
            info.granularity = unit as u64;
        }
        Ok(Cuda {
            api,
            info,
            context: Arc::clone(context),
            prop: Prop(prop),
            spare: Mutex::new(Vec::new()),
            capturing: AtomicBool::new(false),
        })
    }

    /// Makes our context current on this thread until the guard is dropped.
    fn bind(&self) -> Result<Bound<'_>> {
        let bound = Bound::to(&self.api, self.context.cu_ctx().cast())?;
        match self.capturing.load(Ordering::Relaxed) {
            true => bound.relaxed(),
            false => Ok(bound),
        }
    }

    fn synchronize_stream(&self, stream: Stream) -> Result<()> {
        // SAFETY: the driver checks stream handles of its context; 0 is the default stream.
        let code = unsafe { (self.api.stream_synchronize)(stream.0 as Opaque) };
        self.api.check("cuStreamSynchronize", code)
    }
}

impl Driver for Cuda {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory(&self) -> Result<MemoryInfo> {
        let _bound = self.bind()?;
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: writes two sizes.
        let code = unsafe { (self.api.mem_get_info)(&mut free, &mut total) };
        self.api.check("cuMemGetInfo", code)?;
        Ok(MemoryInfo {
            free: free as u64,
            total: total as u64,
        })
    }

    fn alloc(&self, bytes: u64) -> Result<u64> {
        let _bound = self.bind()?;
        let mut addr = 0;
        // SAFETY: writes one address.
        let code = unsafe { (self.api.mem_alloc)(&mut addr, bytes as usize) };
        self.api.check("cuMemAlloc", code)?;
        Ok(addr)
    }

    fn free(&self, addr: u64) -> Result<()> {
        let _bound = self.bind()?;
        // SAFETY: device memory; the driver waits for its users and rejects what is not its own.
        self.api.check("cuMemFree", unsafe { (self.api.mem_free)(addr) })
    }

    fn reserve(&self, bytes: u64) -> Result<u64> {
        let _bound = self.bind()?;
        let mut addr = 0;
        let align = self.info.granularity as usize;
        // SAFETY: writes one address; reserves address space only.
        let code = unsafe { (self.api.address_reserve)(&mut addr, bytes as usize, align, 0, 0) };
        self.api.check("cuMemAddressReserve", code)?;
        Ok(addr)
    }

    fn unreserve(&self, addr: u64, bytes: u64) -> Result<()> {
        let _bound = self.bind()?;
        // SAFETY: gives back a range that `reserve` returned; the driver rejects one that still has mappings.
        self.api.check("cuMemAddressFree", unsafe {
            (self.api.address_free)(addr, bytes as usize)
        })
    }

    fn create(&self, bytes: u64) -> Result<Handle> {
        let _bound = self.bind()?;
        let mut handle = 0;
        // SAFETY: reads one AllocationProp, writes one handle.
        let code = unsafe { (self.api.create)(&mut handle, bytes as usize, &self.prop.0, 0) };
        self.api.check("cuMemCreate", code)?;
        Ok(Handle(handle))
    }

    fn release(&self, handle: Handle) -> Result<()> {
        let _bound = self.bind()?;
        // SAFETY: a handle of `create` that the caller releases once.
        self.api.check("cuMemRelease", unsafe { (self.api.release)(handle.0) })
    }

    fn map(&self, addr: u64, bytes: u64, handle: Handle) -> Result<()> {
        let _bound = self.bind()?;
        // SAFETY: a reserved range and a live handle; the driver rejects a range that is mapped.
        let code = unsafe { (self.api.map)(addr, bytes as usize, 0, handle.0, 0) };
        self.api.check("cuMemMap", code)
    }

    fn set_access(&self, addr: u64, bytes: u64) -> Result<()> {
        let _bound = self.bind()?;
        let access = AccessDesc {
            location: self.prop.0.location,
            flags: ACCESS_READ_WRITE,
        };
        // SAFETY: reads one AccessDesc.
        let code = unsafe { (self.api.set_access)(addr, bytes as usize, &access, 1) };
        self.api.check("cuMemSetAccess", code)
    }

    fn unmap(&self, addr: u64, bytes: u64) -> Result<()> {
        let _bound = self.bind()?;
        // SAFETY: the caller knows that no queued work uses the range.
        self.api
            .check("cuMemUnmap", unsafe { (self.api.unmap)(addr, bytes as usize) })
    }

    fn record(&self, stream: Stream) -> Result<EventHandle> {
        let _bound = self.bind()?;
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let event = match spare {
            Some(event) => event,
            None => {
                let mut event: Opaque = std::ptr::null_mut();
                // SAFETY: writes one handle.
                let code = unsafe { (self.api.event_create)(&mut event, EVENT_DISABLE_TIMING) };
                self.api.check("cuEventCreate", code)?;
                EventHandle(event as u64)
            }
        };
        // SAFETY: an event of this context; the driver checks the stream.
        let code = unsafe { (self.api.event_record)(event.0 as Opaque, stream.0 as Opaque) };
        self.api
            .check("cuEventRecord", code)
            .inspect_err(|_| self.retire(event))?;
        Ok(event)
    }

    fn query(&self, event: EventHandle) -> Result<bool> {
        let _bound = self.bind()?;
        // SAFETY: an event of `record` that was not retired.
        match unsafe { (self.api.event_query)(event.0 as Opaque) } {
            NOT_READY => Ok(false),
            code => self.api.check("cuEventQuery", code).map(|()| true),
        }
    }

    fn capturing(&self, capturing: bool) {
        self.capturing.store(capturing, Ordering::Relaxed);
    }

    fn retire(&self, event: EventHandle) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE_EVENTS {
            spare.push(event);
            return;
        }
        drop(spare);
        // SAFETY: the event is retired once and used no more. Should that fail, the context's end frees it.
        unsafe { (self.api.event_destroy)(event.0 as Opaque) };
    }

    fn synchronize(&self) -> Result<()> {
        let _bound = self.bind()?;
        // SAFETY: no arguments; waits for the current context.
        self.api
            .check("cuCtxSynchronize", unsafe { (self.api.ctx_synchronize)() })
    }

    fn write(&self, addr: u64, bytes: &[u8], stream: Stream) -> Result<()> {
        let _bound = self.bind()?;
        let from = bytes.as_ptr().cast();
        // SAFETY: reads `bytes`, which outlive the copy: it is waited for below, even when queueing failed half-way.
        let code = unsafe { (self.api.copy_to_device)(addr, from, bytes.len(), stream.0 as Opaque) };
        let queued = self.api.check("cuMemcpyHtoDAsync", code);
        self.synchronize_stream(stream)?;
        queued
    }

    fn read(&self, addr: u64, bytes: &mut [u8], stream: Stream) -> Result<()> {
        let _bound = self.bind()?;
        let to = bytes.as_mut_ptr().cast();
        // SAFETY: writes `bytes`, which outlive the copy: it is waited for below, even when queueing failed half-way.
        let code = unsafe { (self.api.copy_to_host)(to, addr, bytes.len(), stream.0 as Opaque) };
        let queued = self.api.check("cuMemcpyDtoHAsync", code);
        self.synchronize_stream(stream)?;
        queued
    }

    fn fill(&self, addr: u64, value: u32, words: u64, stream: Stream) -> Result<()> {
        let _bound = self.bind()?;
        // SAFETY: writes device memory that the caller owns, in stream order.
        let code = unsafe { (self.api.fill_words)(addr, value, words as usize, stream.0 as Opaque) };
        self.api.check("cuMemsetD32Async", code)
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        let Ok(_bound) = self.bind() else { return };
        let spare = std::mem::take(&mut *self.spare.lock().unwrap_or_else(PoisonError::into_inner));
        for event in spare {
            // SAFETY: spare events are used by nobody.
            unsafe { (self.api.event_destroy)(event.0 as Opaque) };
        }
    }
}
