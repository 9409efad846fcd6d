//! CUDA devices, through the primary context, so that memory is shared with whatever else uses CUDA in the process.
//!
//! The driver is asked about streams that the program named. It refuses no handle that is none: it follows it, and crashes (seen on an H200,
//! on the handle of a stream that was destroyed as on any number). So every call that takes a stream relies on that the stream lives: a Rust
//! program was told so ([`Stream`], [`retire_stream`](crate::Allocator::retire_stream)), and of others, whose streams may end untold, only
//! streams are named that never end, or that the program passed in the same call (`heap::pending`).
#![allow(unsafe_code, reason = "the driver has a C interface")]

mod api;
mod bound;
mod events;
mod launch;
mod library;
mod managed;
mod open;
mod primary;
mod rdma;
mod reach;

use std::ffi::{c_int, c_uint};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use cudarc::driver::CudaContext;

use super::managed::ManagedMemory;
use super::{Call, Calls, DeviceInfo, Driver, EventHandle, Handle, MemoryInfo, Result};
use crate::error::DeviceError;
use crate::stream::Stream;
use api::{AllocationProp, Api, IpcHandle, Location, Opaque};
use bound::{Before, Bound};
use events::Events;
pub use open::driver_message;
pub(super) use open::open;
use primary::Primary;
use reach::Reach;

const NOT_READY: c_int = 600;
const CAPTURE_UNSUPPORTED: c_int = 900;

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`
const POSIX_FILE_DESCRIPTOR: c_int = 1;
/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`
const LAZY_PEER_ACCESS: c_uint = 1;

#[derive(Debug)]
struct Cuda {
    api: Api,
    info: DeviceInfo,
    /// For programs that use cudarc, made when one asks for it.
    context: OnceLock<Arc<CudaContext>>,
    primary: Primary,
    prop: Prop,
    reach: Reach,
    events: Events,
    calls: Calls,
    /// After cudarc's context, which its end makes current.
    before: Before,
}

/// What the driver is to call a stream in this thread. Another thread's own has no name here: the default stream waits for it.
fn handle_of(stream: Stream) -> Opaque {
    let handle = match stream.is_of_another_thread() {
        true => Stream::DEFAULT.0,
        false => stream.handle(),
    };
    handle as Opaque
}

/// What physical chunks are made as.
#[derive(Debug)]
struct Prop(AllocationProp);

// SAFETY: the only pointer in it is null and never followed.
unsafe impl Send for Prop {}
// SAFETY: as above; it is never changed.
unsafe impl Sync for Prop {}

impl Cuda {
    /// Makes our context current on this thread until the guard is dropped.
    fn bind(&self) -> Result<Bound<'_>> {
        Bound::to(&self.api, self.primary.context())
    }

    /// Whether a graph is captured from a stream, of which nobody may have told us. An error where what is asked of the default stream would
    /// end the capture of another one; that it is asked for does not (seen on an H200).
    fn is_captured(&self, stream: Stream) -> Result<bool> {
        let mut status: c_int = 0;
        // SAFETY: writes one number; the stream lives (see above).
        let code = unsafe { (self.api.stream_is_capturing)(handle_of(stream), &mut status) };
        self.api.check("cuStreamIsCapturing", code).map(|()| status != 0)
    }

    /// What a stream is told while a graph is captured from it becomes part of the graph, and a question about it ends the capture.
    fn check_not_captured(&self, call: &'static str, stream: Stream) -> Result<()> {
        match self.is_captured(stream)? {
            false => Ok(()),
            true => self.api.check(call, CAPTURE_UNSUPPORTED),
        }
    }

    /// Waits for what is current.
    fn synchronize_context(&self) -> Result<()> {
        // SAFETY: no arguments.
        self.api
            .check("cuCtxSynchronize", unsafe { (self.api.ctx_synchronize)() })
    }

    fn synchronize_stream(&self, stream: Stream) -> Result<()> {
        // SAFETY: the stream lives (see above); 0 is the default stream.
        let code = unsafe { (self.api.stream_synchronize)(handle_of(stream)) };
        self.api.check("cuStreamSynchronize", code)
    }
}

impl Driver for Cuda {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn cuda_context(&self) -> Option<&Arc<CudaContext>> {
        if self.context.get().is_none() {
            // cudarc makes its context current.
            let _as_before = Bound::as_it_is(&self.api);
            let made = CudaContext::new(self.info.ordinal as usize).ok()?;
            // Another thread's, should it have been faster: this one goes before what was current is put back.
            drop(self.context.set(made));
        }
        self.context.get()
    }

    fn cuda_number(&self) -> Option<c_int> {
        Some(self.primary.device())
    }

    fn memory(&self) -> Result<MemoryInfo> {
        let _timed = self.calls.time(Call::MemoryInfo);
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
        let _timed = self.calls.time(Call::Alloc);
        let _bound = self.bind()?;
        let mut addr = 0;
        // SAFETY: writes one address.
        let code = unsafe { (self.api.mem_alloc)(&mut addr, bytes as usize) };
        self.api.check("cuMemAlloc", code)?;
        Ok(addr)
    }

    fn free(&self, addr: u64) -> Result<()> {
        let _timed = self.calls.time(Call::Free);
        let _bound = self.bind()?;
        // SAFETY: device memory; the driver waits for its users and rejects what is not its own.
        self.api.check("cuMemFree", unsafe { (self.api.mem_free)(addr) })
    }

    fn reserve(&self, bytes: u64) -> Result<u64> {
        let _timed = self.calls.time(Call::Reserve);
        let _bound = self.bind()?;
        let mut addr = 0;
        let align = self.info.granularity as usize;
        // SAFETY: writes one address; reserves address space only.
        let code = unsafe { (self.api.address_reserve)(&mut addr, bytes as usize, align, 0, 0) };
        self.api.check("cuMemAddressReserve", code)?;
        Ok(addr)
    }

    fn unreserve(&self, addr: u64, bytes: u64) -> Result<()> {
        let _timed = self.calls.time(Call::Unreserve);
        let _bound = self.bind()?;
        // SAFETY: gives back a range that `reserve` returned; the driver rejects one that still has mappings.
        self.api.check("cuMemAddressFree", unsafe {
            (self.api.address_free)(addr, bytes as usize)
        })
    }

    fn create(&self, bytes: u64, rdma: bool) -> Result<Handle> {
        let _timed = self.calls.time(Call::Create);
        let _bound = self.bind()?;
        let mut prop = self.prop.0;
        prop.gpu_direct_rdma = rdma.into();
        let mut handle = 0;
        // SAFETY: reads one AllocationProp, writes one handle.
        let code = unsafe { (self.api.create)(&mut handle, bytes as usize, &prop, 0) };
        self.api.check("cuMemCreate", code)?;
        Ok(Handle(handle))
    }

    fn release(&self, handle: Handle) -> Result<()> {
        let _timed = self.calls.time(Call::Release);
        let _bound = self.bind()?;
        // SAFETY: a handle of `create` that the caller releases once.
        self.api.check("cuMemRelease", unsafe { (self.api.release)(handle.0) })
    }

    fn map(&self, addr: u64, bytes: u64, handle: Handle) -> Result<()> {
        let _timed = self.calls.time(Call::Map);
        let _bound = self.bind()?;
        // SAFETY: a reserved range and a live handle; the driver rejects a range that is mapped.
        let code = unsafe { (self.api.map)(addr, bytes as usize, 0, handle.0, 0) };
        self.api.check("cuMemMap", code)?;
        self.reach.mapped(addr, bytes);
        Ok(())
    }

    fn set_access(&self, addr: u64, bytes: u64) -> Result<()> {
        let _timed = self.calls.time(Call::SetAccess);
        let _bound = self.bind()?;
        let by = self.reach.by();
        // SAFETY: reads as many AccessDescs as there are.
        let code = unsafe { (self.api.set_access)(addr, bytes as usize, by.as_ptr(), by.len()) };
        self.api.check("cuMemSetAccess", code)
    }

    fn enable_peer_access(&self, peer: c_int) -> Result<bool> {
        let own = self.prop.0.location;
        if peer == own.id {
            return Ok(true);
        }
        let _bound = self.bind()?;
        let mut can: c_int = 0;
        // SAFETY: writes one number; the driver checks both devices.
        let code = unsafe { (self.api.can_access_peer)(&mut can, peer, own.id) };
        self.api.check("cuDeviceCanAccessPeer", code)?;
        if can == 0 {
            return Ok(false);
        }
        self.reach.name(Location { id: peer, ..own }, |addr, bytes, access| {
            // SAFETY: reads one AccessDesc.
            let code = unsafe { (self.api.set_access)(addr, bytes as usize, access, 1) };
            self.api.check("cuMemSetAccess", code)
        })?;
        Ok(true)
    }

    fn unmap(&self, addr: u64, bytes: u64) -> Result<()> {
        let _timed = self.calls.time(Call::Unmap);
        let _bound = self.bind()?;
        let going = self.reach.unmaps(addr, bytes);
        // SAFETY: the caller knows that no queued work uses the range.
        let unmapped = self
            .api
            .check("cuMemUnmap", unsafe { (self.api.unmap)(addr, bytes as usize) });
        if unmapped.is_err() {
            going.iter().for_each(|(addr, bytes)| self.reach.mapped(*addr, *bytes));
            // For a peer that was named in between. Where it fails, so would all else.
            let _ = self.set_access(addr, bytes);
        }
        unmapped
    }

    fn export(&self, handle: Handle) -> Result<OwnedFd> {
        let _bound = self.bind()?;
        let mut descriptor: c_int = -1;
        // SAFETY: writes one descriptor. The driver knows which handles are its own.
        let code = unsafe { (self.api.export)((&raw mut descriptor).cast(), handle.0, POSIX_FILE_DESCRIPTOR, 0) };
        self.api.check("cuMemExportToShareableHandle", code)?;
        // SAFETY: a new one, which is the caller's.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        // What the process starts is to have none. Where that cannot be said it has.
        let _ = rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC);
        Ok(descriptor)
    }

    fn import(&self, chunk: BorrowedFd<'_>) -> Result<Handle> {
        let _bound = self.bind()?;
        let mut handle = 0;
        // The number itself goes where a pointer to another kind of handle would.
        let descriptor = std::ptr::without_provenance_mut(chunk.as_raw_fd() as usize);
        // SAFETY: writes one handle; the driver checks what the descriptor is.
        let code = unsafe { (self.api.import)(&mut handle, descriptor, POSIX_FILE_DESCRIPTOR) };
        self.api.check("cuMemImportFromShareableHandle", code)?;
        Ok(Handle(handle))
    }

    fn ipc_handle(&self, addr: u64) -> Result<[u8; 64]> {
        let _bound = self.bind()?;
        let mut handle = [0; 64];
        // SAFETY: writes one handle; the driver checks the address.
        let code = unsafe { (self.api.ipc_get_handle)(&mut handle, addr) };
        self.api.check("cuIpcGetMemHandle", code)?;
        Ok(handle)
    }

    fn open_ipc(&self, handle: &[u8; 64]) -> Result<u64> {
        let _bound = self.bind()?;
        let mut addr = 0;
        // SAFETY: writes one address; the driver checks the handle.
        let code = unsafe { (self.api.ipc_open_handle)(&mut addr, IpcHandle(*handle), LAZY_PEER_ACCESS) };
        self.api.check("cuIpcOpenMemHandle", code)?;
        Ok(addr)
    }

    fn close_ipc(&self, addr: u64) -> Result<()> {
        let _bound = self.bind()?;
        // SAFETY: an address of `open_ipc`; the driver waits for its users.
        self.api
            .check("cuIpcCloseMemHandle", unsafe { (self.api.ipc_close_handle)(addr) })
    }

    fn is_idle(&self, stream: Stream) -> Result<bool> {
        self.calls.count(Call::QueryStream);
        let _bound = self.bind()?;
        self.check_not_captured("cuStreamQuery", stream)?;
        // SAFETY: the stream lives (see above).
        match unsafe { (self.api.stream_query)(handle_of(stream)) } {
            NOT_READY => Ok(false),
            code => self.api.check("cuStreamQuery", code).map(|()| true),
        }
    }

    fn meet(&self, stream: Stream) {
        // A stream that cannot be asked for its context takes no work that would have to be waited for.
        let Ok(_bound) = self.bind() else { return };
        if let Some(context) = self.context_abroad(stream) {
            self.events.add_context(context);
        }
    }

    fn record(&self, stream: Stream) -> Result<EventHandle> {
        self.calls.count(Call::Record);
        let _bound = self.bind()?;
        self.check_not_captured("cuEventRecord", stream)?;
        self.record_here(stream)
    }

    fn record_all(&self) -> Result<EventHandle> {
        let Some(record) = self.api.ctx_record_event else {
            return Err(DeviceError::not_here("cuCtxRecordEvent"));
        };
        // It knows nothing of what streams of other devices have queued.
        if !self.events.contexts().is_empty() {
            return Err(DeviceError::not_here("cuCtxRecordEvent of several devices"));
        }
        self.calls.count(Call::RecordAll);
        let _bound = self.bind()?;
        self.record_by("cuCtxRecordEvent", |event| {
            // SAFETY: our context and an event of it, which are alive.
            unsafe { record(self.primary.context(), event.0 as Opaque) }
        })
    }

    fn stream_id(&self, stream: Stream) -> Option<u64> {
        let get = self.api.stream_get_id?;
        let _bound = self.bind().ok()?;
        // The capture of a graph ends by it, in whatever mode (seen on an H200 with driver 580).
        if !matches!(self.is_captured(stream), Ok(false)) {
            return None;
        }
        let mut id = 0;
        // SAFETY: writes one number; the stream lives (see above).
        let code = unsafe { get(handle_of(stream), &mut id) };
        (code == 0).then_some(id)
    }

    fn query(&self, event: EventHandle) -> Result<bool> {
        self.calls.count(Call::Query);
        let _bound = self.bind()?;
        // SAFETY: an event of `record` that was not retired.
        match unsafe { (self.api.event_query)(event.0 as Opaque) } {
            NOT_READY => Ok(false),
            code => self.api.check("cuEventQuery", code).map(|()| true),
        }
    }

    fn is_capturing(&self, stream: Stream) -> Result<bool> {
        let _bound = self.bind()?;
        self.is_captured(stream)
    }

    fn retire(&self, event: EventHandle) {
        self.events.retire(event);
    }

    fn synchronize(&self) -> Result<()> {
        let _timed = self.calls.time(Call::Synchronize);
        let _bound = self.bind()?;
        self.synchronize_context()?;
        // What waits for streams of other devices is done, too, when this returns.
        for context in self.events.contexts() {
            let there = Bound::to(&self.api, context);
            match there.and_then(|_there| self.synchronize_context()) {
                // Its device was closed or reset, and with it ended what was queued there.
                Err(error) if error.is_gone() => self.events.forget_context(context),
                waited => waited?,
            }
        }
        Ok(())
    }

    fn write(&self, addr: u64, bytes: &[u8], stream: Stream) -> Result<()> {
        let _timed = self.calls.time(Call::Copy);
        let _bound = self.bind()?;
        // A graph would have the copy, and with it `bytes`, and the wait would end its capture.
        self.check_not_captured("cuMemcpyHtoDAsync", stream)?;
        let from = bytes.as_ptr().cast();
        // SAFETY: reads `bytes`, which outlive the copy: it is waited for below, even when queueing failed half-way. That wait fails only where
        // the context has ended, and with it the copy. The stream lives (see above).
        let code = unsafe { (self.api.copy_to_device)(addr, from, bytes.len(), handle_of(stream)) };
        let queued = self.api.check("cuMemcpyHtoDAsync", code);
        self.synchronize_stream(stream)?;
        queued
    }

    fn read(&self, addr: u64, bytes: &mut [u8], stream: Stream) -> Result<()> {
        let _timed = self.calls.time(Call::Copy);
        let _bound = self.bind()?;
        // As above.
        self.check_not_captured("cuMemcpyDtoHAsync", stream)?;
        let to = bytes.as_mut_ptr().cast();
        // SAFETY: writes `bytes`, which outlive the copy: it is waited for below, as above.
        let code = unsafe { (self.api.copy_to_host)(to, addr, bytes.len(), handle_of(stream)) };
        let queued = self.api.check("cuMemcpyDtoHAsync", code);
        self.synchronize_stream(stream)?;
        queued
    }

    fn fill(&self, addr: u64, value: u32, words: u64, stream: Stream) -> Result<()> {
        let _timed = self.calls.time(Call::Copy);
        let _bound = self.bind()?;
        // A graph may have it.
        self.is_captured(stream)?;
        // SAFETY: writes device memory that the caller owns, in stream order. The stream lives (see above).
        let code = unsafe { (self.api.fill_words)(addr, value, words as usize, handle_of(stream)) };
        self.api.check("cuMemsetD32Async", code)
    }

    fn managed(self: Arc<Self>, bytes: u64) -> Result<Box<dyn ManagedMemory>> {
        self.allocate_managed(bytes)
    }

    fn calls(&self) -> Option<&Calls> {
        Some(&self.calls)
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        self.before.note(self.primary.context());
        let Ok(_bound) = self.bind() else { return };
        for event in self.events.take_all() {
            // SAFETY: nobody uses it.
            unsafe { (self.api.event_destroy)(event.0 as Opaque) };
        }
    }
}
