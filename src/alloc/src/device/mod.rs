//! Devices: where memory comes from.
//!
//! The allocator knows a device only through `Driver`, which has the shape of the CUDA driver API: plain allocations,
//! reserved address ranges, physical chunks that are mapped into them, and events on streams. [`Device`] is the handle
//! that programs hold; it cannot be used to reach the memory itself, so memory the allocator manages cannot be pulled
//! away under it by safe code.

mod cost;
mod cuda;
pub(crate) mod managed;
mod sim;

use std::ffi::c_int;
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use cudarc::driver::CudaContext;

pub use cost::Call;
pub(crate) use cost::Calls;
pub use cuda::driver_message;
pub use gpumem_channel::DeviceKind;
pub use managed::Location;
pub use sim::{Live, Pause, Sim, SimConfig, Timeline};

use crate::error::{DeviceError, Error};
use crate::stream::Stream;

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// CUDA or simulated.
    pub kind: DeviceKind,
    /// Number of the device in this process (`CUDA_VISIBLE_DEVICES` renumbers).
    pub ordinal: u32,
    /// The UUID as in `cuDeviceGetUuid`.
    pub uuid: [u8; 16],
    /// Marketing name.
    pub name: String,
    /// Total memory in bytes.
    pub total: u64,
    /// Unit of physical chunks in bytes.
    pub granularity: u64,
    /// Whether address ranges and physical chunks can be handled apart (virtual segments).
    pub virtual_memory: bool,
    /// Whether chunks can be mapped that network cards and storage reach (GPUDirect RDMA): the device says so, and one was mapped when it was
    /// opened.
    pub gpu_direct_rdma: bool,
}

/// Free and total memory in bytes, whoever uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Free.
    pub free: u64,
    /// Total.
    pub total: u64,
}

/// A physical chunk, as the driver names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Handle(pub(crate) u64);

/// A recorded event, as the driver names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventHandle(pub(crate) u64);

type Result<T> = std::result::Result<T, DeviceError>;

/// The driver calls the allocator needs. All of them may be called from any thread.
///
/// The caller keeps the driver's rules: it frees, maps and unmaps only what it owns, and only when no queued work uses it.
pub(crate) trait Driver: Send + Sync + fmt::Debug {
    fn info(&self) -> &DeviceInfo;
    /// Of CUDA devices. Nobody else keeps it for us: what it leaves current when it goes is seen to where the driver goes.
    fn cuda_context(&self) -> Option<&Arc<CudaContext>> {
        None
    }
    /// What the driver calls the device, of CUDA devices.
    fn cuda_number(&self) -> Option<c_int> {
        None
    }
    fn memory(&self) -> Result<MemoryInfo>;
    fn alloc(&self, bytes: u64) -> Result<u64>;
    fn free(&self, addr: u64) -> Result<()>;
    /// Reserves address space, aligned to the granularity.
    fn reserve(&self, bytes: u64) -> Result<u64>;
    fn unreserve(&self, addr: u64, bytes: u64) -> Result<()>;
    /// Makes a chunk. `rdma`: that other devices on the bus reach, where the device can.
    fn create(&self, bytes: u64, rdma: bool) -> Result<Handle>;
    /// Gives a chunk back; its memory comes free once it is mapped nowhere.
    fn release(&self, handle: Handle) -> Result<()>;
    /// Maps a whole chunk. A chunk may be mapped at several addresses.
    fn map(&self, addr: u64, bytes: u64, handle: Handle) -> Result<()>;
    /// Makes a mapped range readable and writable, for this device and its peers.
    fn set_access(&self, addr: u64, bytes: u64) -> Result<()>;
    /// Lets another device, which the driver has that number for, reach what is mapped here, now and later. Whether it can.
    fn enable_peer_access(&self, peer: c_int) -> Result<bool>;
    /// Unmaps whole mappings. Does not wait for queued work.
    fn unmap(&self, addr: u64, bytes: u64) -> Result<()>;
    /// What another process can [import](Driver::import) a chunk by.
    fn export(&self, _handle: Handle) -> Result<OwnedFd> {
        Err(DeviceError::not_here("cuMemExportToShareableHandle"))
    }
    /// A chunk of another process, to be released as one that was made here.
    fn import(&self, _chunk: BorrowedFd<'_>) -> Result<Handle> {
        Err(DeviceError::not_here("cuMemImportFromShareableHandle"))
    }
    /// What another process can [open](Driver::open_ipc) a plain allocation by.
    fn ipc_handle(&self, _addr: u64) -> Result<[u8; 64]> {
        Err(DeviceError::not_here("cuIpcGetMemHandle"))
    }
    /// The address of another process's plain allocation here, to be closed as often as it was opened.
    fn open_ipc(&self, _handle: &[u8; 64]) -> Result<u64> {
        Err(DeviceError::not_here("cuIpcOpenMemHandle"))
    }
    fn close_ipc(&self, _addr: u64) -> Result<()> {
        Err(DeviceError::not_here("cuIpcCloseMemHandle"))
    }
    /// Whether all work that was queued on a stream is done.
    fn is_idle(&self, stream: Stream) -> Result<bool>;
    /// The program names a stream for the first time, and has not used it yet for what it names it for. It may be another device's.
    fn meet(&self, _stream: Stream) {}
    /// Records a new event on a stream, which may be another device's.
    fn record(&self, stream: Stream) -> Result<EventHandle>;
    /// Records a new event behind all that is queued now, on whatever stream. No stream is named: one that is gone does no harm.
    ///
    /// It ends the capture of a graph from any stream of the device.
    fn record_all(&self) -> Result<EventHandle> {
        Err(DeviceError::not_here("cuCtxRecordEvent"))
    }
    /// A number that no other stream of this process has had or will have, though its handle may come back. `None`: not to be learned, as
    /// while a graph is captured from the stream.
    fn stream_id(&self, _stream: Stream) -> Option<u64> {
        None
    }
    /// Whether the work before the event is done.
    fn query(&self, event: EventHandle) -> Result<bool>;
    /// Whether a graph is captured from a stream, which is no default one. No capture ends by this question.
    fn is_capturing(&self, stream: Stream) -> Result<bool>;
    /// One more allocator has graphs captured, or one fewer: for devices that look whether anything ends a capture.
    fn capturing(&self, _capturing: bool) {}
    /// Gives an event back. The one call that keeps nobody waiting.
    fn retire(&self, event: EventHandle);
    /// Waits for all streams, and for those devices that have streams which were [met](Driver::meet).
    fn synchronize(&self) -> Result<()>;
    /// Copies to the device and waits for it.
    fn write(&self, addr: u64, bytes: &[u8], stream: Stream) -> Result<()>;
    /// Copies from the device, after the stream's work so far.
    fn read(&self, addr: u64, bytes: &mut [u8], stream: Stream) -> Result<()>;
    /// Fills `words` 32-bit words, in stream order.
    fn fill(&self, addr: u64, value: u32, words: u64, stream: Stream) -> Result<()>;
    /// Allocates managed memory.
    fn managed(self: Arc<Self>, _bytes: u64) -> Result<Box<dyn managed::ManagedMemory>> {
        Err(DeviceError::not_here("cuMemAllocManaged"))
    }
    /// What was called so far, where that is kept here.
    fn calls(&self) -> Option<&Calls> {
        None
    }
}

/// A device to allocate on. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Device {
    pub(crate) driver: Arc<dyn Driver>,
    sim: Option<Sim>,
}

// Drivers call nothing of the program's.
impl UnwindSafe for Device {}
impl RefUnwindSafe for Device {}

impl Device {
    /// What it is.
    pub fn info(&self) -> &DeviceInfo {
        self.driver.info()
    }

    /// Free and total memory now.
    pub fn memory(&self) -> std::result::Result<MemoryInfo, DeviceError> {
        self.driver.memory()
    }

    /// Lets kernels and copies of another device reach the memory that allocators map on this one (virtual and stitched segments), what
    /// there is and what they map later; one way. `false` where the hardware cannot, and on simulated devices.
    ///
    /// Memory of plain segments needs nothing here: it is within reach once the peer's context was given access to this one's
    /// (`cuCtxEnablePeerAccess`), which does nothing for mapped memory. A mapping takes longer for each peer. Allocators that are made on
    /// this device or a clone of it have the same peers; what [`cuda()`] opens anew has its own.
    ///
    /// When the driver refuses it for a part of the memory, the other device may reach some of it, and what is mapped later it does not.
    pub fn enable_peer_access(&self, peer: &Device) -> std::result::Result<bool, DeviceError> {
        match (self.driver.cuda_number(), peer.driver.cuda_number()) {
            (Some(_), Some(peer)) => self.driver.enable_peer_access(peer),
            _ => Ok(false),
        }
    }

    /// How often its driver was called so far, for whoever uses it or a clone of it. A stream that is asked how far it is takes some more calls
    /// (which context is current, whether a graph is captured), which are not counted apart.
    pub fn calls(&self, call: Call) -> u64 {
        match (&self.sim, self.driver.calls()) {
            (Some(sim), _) => sim.calls(call),
            (None, calls) => calls.map_or(0, |calls| calls.counted(call)),
        }
    }

    /// What these calls took, in nanoseconds: modelled on a simulated device; measured on others, but for `cuStreamQuery`, `cuEventQuery`
    /// and `cuEventRecord`, of which two looks at the clock would be a part.
    pub fn calls_ns(&self) -> u64 {
        match (&self.sim, self.driver.calls()) {
            (Some(sim), _) => sim.modelled_ns(),
            (None, calls) => calls.map_or(0, Calls::ns),
        }
    }

    /// The [number](Driver::stream_id) of a stream that the program passes in this call.
    pub(crate) fn id_of(&self, stream: Stream) -> Option<u64> {
        match stream.never_ends() {
            true => None,
            false => self.driver.stream_id(stream),
        }
    }

    /// The simulated device behind this one, if it is one.
    pub fn as_sim(&self) -> Option<&Sim> {
        self.sim.as_ref()
    }

    /// The CUDA context, to make streams and launch kernels with cudarc, made when it is first asked for; `None` on the simulated device, or if
    /// the driver refuses cudarc what it gave us.
    pub fn cuda_context(&self) -> Option<&Arc<CudaContext>> {
        self.driver.cuda_context()
    }
}

/// A simulated device: [`Sim::new`] as a [`Device`].
pub fn sim(config: SimConfig) -> Device {
    Sim::new(config).device()
}

/// A CUDA device by ordinal, through its primary context.
///
/// Errors when there is no driver, no such device, or the driver lacks a call the allocator needs; the message says which
/// and what to check.
pub fn cuda(ordinal: u32) -> std::result::Result<Device, Error> {
    cuda::open(ordinal)
}
