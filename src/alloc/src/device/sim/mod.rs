//! The simulated device: a capacity, 2 MiB granularity, contents, streams, and the modelled cost of every call.
//!
//! It is strict where the real driver is undefined: double frees and touching memory without access are errors, and
//! [`Sim::violations`] tells of double frees and of memory that was unmapped while queued work still used it.

mod managed;
mod memory;
mod pause;
mod state;

use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpumem_channel::DeviceKind;

use super::managed::ManagedMemory;
use super::{Call, Device, DeviceInfo, Driver, EventHandle, Handle, MemoryInfo, Result};
use crate::error::DeviceError;
use crate::size::MAX_REQUEST;
use crate::stream::Stream;
use state::State;

pub use pause::Pause;
pub use state::Live;

/// When simulated work is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timeline {
    /// At once.
    #[default]
    Immediate,
    /// When told: [`Sim::advance`] and [`Sim::finish`].
    Manual,
    /// After this many further driver calls.
    After(u64),
    /// Once so many further pieces of work are queued, on whatever streams: a device that is so far behind its program.
    Behind(u64),
}

/// What to simulate.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Memory in bytes; more than 128 TiB are 128 TiB, as no device has.
    pub total: u64,
    /// Bytes used by others: never available.
    pub used_by_others: u64,
    /// Device name.
    pub name: String,
    /// Device ordinal; devices of different ordinals have different UUIDs.
    pub ordinal: u32,
    /// When work is done.
    pub timeline: Timeline,
    /// Whether the device can do virtual segments.
    pub virtual_memory: bool,
}

impl Default for SimConfig {
    /// 80 GiB, everything done at once.
    fn default() -> SimConfig {
        SimConfig {
            total: 80 << 30,
            used_by_others: 0,
            name: "Simulated GPU".to_owned(),
            ordinal: 0,
            timeline: Timeline::Immediate,
            virtual_memory: true,
        }
    }
}

/// A simulated device and its controls. Clones are the same device.
#[derive(Clone, Debug)]
pub struct Sim(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    info: DeviceInfo,
    state: Mutex<State>,
    gate: pause::Gate,
}

impl Sim {
    /// A device with nothing on it.
    pub fn new(mut config: SimConfig) -> Sim {
        config.total = config.total.min(MAX_REQUEST);
        let mut uuid = *b"gpumem-sim\0\0\0\0\0\0";
        uuid[12..].copy_from_slice(&config.ordinal.to_be_bytes());
        let info = DeviceInfo {
            kind: DeviceKind::Simulated,
            ordinal: config.ordinal,
            uuid,
            name: config.name.clone(),
            total: config.total,
            granularity: state::GRANULARITY,
            virtual_memory: config.virtual_memory,
            gpu_direct_rdma: config.virtual_memory,
        };
        Sim(Arc::new(Shared {
            info,
            state: Mutex::new(State::new(&config)),
            gate: pause::Gate::default(),
        }))
    }

    /// The device to hand to an allocator.
    pub fn device(&self) -> Device {
        Device {
            driver: Arc::clone(&self.0) as Arc<dyn Driver>,
            sim: Some(self.clone()),
        }
    }

    /// `cuMemAlloc`, for a program that has no allocator of its own.
    pub fn alloc(&self, bytes: u64) -> std::result::Result<u64, DeviceError> {
        self.state().alloc(bytes)
    }

    /// `cuMemFree` of what [`alloc`](Sim::alloc) returned. Anything else is an error and a [violation](Sim::violations).
    pub fn free(&self, addr: u64) -> std::result::Result<(), DeviceError> {
        self.state().free(addr)
    }

    /// Queues work on a stream that uses `bytes` at `addr`. It is done when the timeline says so.
    pub fn enqueue(&self, stream: Stream, addr: u64, bytes: u64) {
        self.state().enqueue(stream, addr, bytes);
    }

    /// Finishes the oldest `steps` pieces of work (or events) of a stream.
    pub fn advance(&self, stream: Stream, steps: u64) {
        self.state().advance(stream, steps);
    }

    /// Finishes all work of a stream.
    pub fn finish(&self, stream: Stream) {
        self.state().advance(stream, u64::MAX);
    }

    /// The same, but for what streams of its handle have queued that were destroyed.
    pub fn finish_living(&self, stream: Stream) {
        self.state().finish_living(stream);
    }

    /// A driver makes a stream: of a handle that it gave to one before that is [destroyed](Sim::destroy_stream). Other numbers are
    /// streams anyway.
    pub fn create_stream(&self, stream: Stream) {
        self.state().create_stream(stream);
    }

    /// `cuStreamDestroy`: what is queued goes on, and whoever uses the stream afterwards makes a [violation](Sim::violations).
    pub fn destroy_stream(&self, stream: Stream) {
        self.state().destroy_stream(stream);
    }

    /// Whether unfinished work of a stream other than `stream` uses any of these bytes.
    pub fn busy_for(&self, stream: Stream, addr: u64, bytes: u64) -> bool {
        self.state().busy_for(stream, addr, bytes)
    }

    /// Makes the driver call after the next `skip` ones fail, once: with `CUDA_ERROR_OUT_OF_MEMORY` or
    /// `CUDA_ERROR_UNKNOWN`.
    pub fn fail_after(&self, skip: u64, out_of_memory: bool) {
        self.state().fail_after(skip, out_of_memory);
    }

    /// Makes the next calls of a kind fail, so many times.
    pub fn fail_next(&self, call: Call, times: u64) {
        self.state().fail_next(call, times);
    }

    /// Takes back a failure that has not happened yet; whether there was one.
    pub fn clear_failure(&self) -> bool {
        self.state().clear_failure()
    }

    /// Changes how much memory others use.
    pub fn set_used_by_others(&self, bytes: u64) {
        self.state().used_by_others = bytes;
    }

    /// Keeps whoever makes a call of this kind waiting, until what is returned is dropped: a driver that takes its time.
    pub fn pause(&self, call: Call) -> Pause<'_> {
        self.0.gate.close(call, usize::MAX)
    }

    /// The same for who comes first; others pass meanwhile.
    pub fn pause_first(&self, call: Call) -> Pause<'_> {
        self.0.gate.close(call, 1)
    }

    /// Makes the next call of a kind panic.
    #[cfg(test)]
    pub(crate) fn panic_at(&self, call: Call) {
        self.0.gate.panic_at(call);
    }

    /// How often a call was made.
    pub fn calls(&self, call: Call) -> u64 {
        self.state().calls[call as usize]
    }

    /// How many calls were made.
    pub fn total_calls(&self) -> u64 {
        self.state().calls.iter().sum()
    }

    /// What the calls so far would have cost on a real device, in nanoseconds.
    pub fn modelled_ns(&self) -> u64 {
        self.state().modelled_ns
    }

    /// Allocators that have told it of captures of graphs which are under way.
    pub fn capturing(&self) -> usize {
        self.state().capturing
    }

    /// A graph is captured from a stream from now on, or none any more.
    pub fn capture(&self, stream: Stream, captured: bool) {
        let mut state = self.state();
        match captured {
            true => state.captured.insert(stream.0),
            false => state.captured.remove(&stream.0),
        };
    }

    /// What is alive on the device.
    pub fn live(&self) -> Live {
        self.state().live()
    }

    /// Calls that broke the driver's rules, in words. Empty unless the allocator is wrong.
    pub fn violations(&self) -> Vec<String> {
        self.state().violations.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same for a copy on a stream.
    fn on(&self, stream: Stream) -> Result<MutexGuard<'_, State>> {
        self.gate.pass(Call::Copy);
        let mut state = self.state();
        state.named(Call::Copy, stream)?;
        Ok(state)
    }
}

impl Driver for Shared {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory(&self) -> Result<MemoryInfo> {
        self.gate.pass(Call::MemoryInfo);
        let mut state = self.state();
        state.begin(Call::MemoryInfo, 0, 0)?;
        Ok(MemoryInfo {
            free: state.free_bytes(),
            total: self.info.total,
        })
    }

    fn alloc(&self, bytes: u64) -> Result<u64> {
        self.gate.pass(Call::Alloc);
        self.state().alloc(bytes)
    }

    fn free(&self, addr: u64) -> Result<()> {
        self.gate.pass(Call::Free);
        self.state().free(addr)
    }

    fn reserve(&self, bytes: u64) -> Result<u64> {
        self.gate.pass(Call::Reserve);
        self.state().reserve(bytes)
    }

    fn managed(self: Arc<Self>, bytes: u64) -> Result<Box<dyn ManagedMemory>> {
        Ok(Box::new(managed::Allocation::new(self, bytes)?))
    }

    fn unreserve(&self, addr: u64, bytes: u64) -> Result<()> {
        self.gate.pass(Call::Unreserve);
        self.state().unreserve(addr, bytes)
    }

    fn create(&self, bytes: u64, _rdma: bool) -> Result<Handle> {
        self.gate.pass(Call::Create);
        self.state().create(bytes).map(Handle)
    }

    fn release(&self, handle: Handle) -> Result<()> {
        self.gate.pass(Call::Release);
        self.state().release(handle.0)
    }

    fn map(&self, addr: u64, bytes: u64, handle: Handle) -> Result<()> {
        self.gate.pass(Call::Map);
        self.state().map(addr, bytes, handle.0)
    }

    fn set_access(&self, addr: u64, bytes: u64) -> Result<()> {
        self.gate.pass(Call::SetAccess);
        self.state().set_access(addr, bytes)
    }

    fn enable_peer_access(&self, _peer: c_int) -> Result<bool> {
        Ok(false)
    }

    fn unmap(&self, addr: u64, bytes: u64) -> Result<()> {
        self.gate.pass(Call::Unmap);
        self.state().unmap(addr, bytes)
    }

    fn is_idle(&self, stream: Stream) -> Result<bool> {
        self.gate.pass(Call::QueryStream);
        self.state().is_idle(stream)
    }

    fn record(&self, stream: Stream) -> Result<EventHandle> {
        self.gate.pass(Call::Record);
        self.state().record(stream).map(EventHandle)
    }

    fn record_all(&self) -> Result<EventHandle> {
        self.gate.pass(Call::RecordAll);
        self.state().record_all().map(EventHandle)
    }

    fn stream_id(&self, stream: Stream) -> Option<u64> {
        self.state().stream_id(stream)
    }

    fn query(&self, event: EventHandle) -> Result<bool> {
        self.gate.pass(Call::Query);
        self.state().query(event.0)
    }

    fn is_capturing(&self, stream: Stream) -> Result<bool> {
        Ok(self.state().captured.contains(&stream.0))
    }

    fn capturing(&self, capturing: bool) {
        let mut state = self.state();
        match capturing {
            true => state.capturing += 1,
            false => state.capturing -= 1,
        }
    }

    fn retire(&self, event: EventHandle) {
        self.state().retire(event.0);
    }

    fn synchronize(&self) -> Result<()> {
        self.gate.pass(Call::Synchronize);
        self.state().synchronize()
    }

    fn write(&self, addr: u64, bytes: &[u8], stream: Stream) -> Result<()> {
        self.on(stream)?.write(addr, bytes)
    }

    fn read(&self, addr: u64, bytes: &mut [u8], stream: Stream) -> Result<()> {
        self.on(stream)?.read(addr, bytes)
    }

    fn fill(&self, addr: u64, value: u32, words: u64, stream: Stream) -> Result<()> {
        self.on(stream)?.fill(addr, value, words)
    }
}
