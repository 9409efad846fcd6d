//! Memory that several processes have.
//!
//! Whoever holds a [`raw allocation`](crate::Allocator::alloc_raw) can [share](Allocator::share_raw) what it lies in: memory of the driver's in
//! one piece by what CUDA calls an IPC handle, and chunks, each of which goes to the other process as a file descriptor. That maps them side
//! by side, and finds the allocation at the same offset.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crate::allocator::Allocator;
use crate::device::Driver;
use crate::error::{DeviceError, Error};
use crate::heap::Chunk;
use crate::lock::Shared;

/// A name that CUDA gives memory of the driver's in one piece, for other processes: `CUipcMemHandle`.
pub type IpcHandle = [u8; 64];

/// What a raw allocation lies in, for other processes. It says nothing any more once the allocation was freed.
#[derive(Clone, Debug)]
pub struct SharedMemory {
    driver: Arc<dyn Driver>,
    offset: u64,
    bytes: u64,
    of: Of,
}

/// What is shared.
#[derive(Clone, Debug)]
pub(crate) enum Of {
    /// Memory that the driver gave out in one piece, by its address.
    Whole(u64),
    /// Chunks that are mapped side by side.
    Chunks(Vec<Chunk>),
}

impl Allocator {
    /// What a live raw allocation lies in, for other processes. They have all of that, whatever else is there, and the memory lives until
    /// the last of them has let go of it; but it is handed to others here once it was freed.
    ///
    /// # Errors
    /// [`Error::UnknownPointer`] when the address is not a live raw allocation.
    pub fn share_raw(&self, addr: u64) -> Result<SharedMemory, Error> {
        let block = self.block_of_raw(addr)?;
        // Nothing of it is in a history: who asks may be who another process waits for.
        let shared = self.0.home.see(|heap| heap.share_of(block, addr))?;
        let (offset, bytes, of) = shared.ok_or(Error::UnknownPointer { addr })?;
        Ok(SharedMemory {
            driver: Arc::clone(&self.device().driver),
            offset,
            bytes,
            of,
        })
    }
}

impl SharedMemory {
    /// Where the allocation begins in what is shared, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The bytes of the allocation's block.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The sizes of the chunks, in the order in which they are to be mapped; none where it is one piece.
    pub fn chunks(&self) -> impl ExactSizeIterator<Item = u64> {
        self.handles().iter().map(|chunk| chunk.size)
    }

    /// Whether another answer is of the same memory.
    pub fn is_same(&self, other: &SharedMemory) -> bool {
        let handles = |of: &SharedMemory| of.handles().iter().map(|chunk| chunk.handle).collect::<Vec<_>>();
        let whole = |of: &SharedMemory| match of.of {
            Of::Whole(addr) => Some(addr),
            Of::Chunks(_) => None,
        };
        (self.offset, self.bytes, whole(self)) == (other.offset, other.bytes, whole(other))
            && handles(self) == handles(other)
    }

    fn handles(&self) -> &[Chunk] {
        match &self.of {
            Of::Whole(_) => &[],
            Of::Chunks(chunks) => chunks,
        }
    }

    /// What another process [has](Imported::add) one of the chunks by. `None`: there are not so many.
    pub fn export(&self, number: usize) -> Option<Result<OwnedFd, DeviceError>> {
        let chunk = self.handles().get(number)?;
        Some(self.driver.export(chunk.handle))
    }

    /// The handle of the one piece; `None` where it is chunks.
    pub fn ipc_handle(&self) -> Option<Result<IpcHandle, DeviceError>> {
        match &self.of {
            Of::Whole(addr) => Some(self.driver.ipc_handle(*addr)),
            Of::Chunks(_) => None,
        }
    }
}

/// Memory of another process, as long as this lives.
#[derive(Debug)]
pub struct Imported {
    /// Whose device it is on.
    allocator: Allocator,
    addr: u64,
    /// Of address space; 0 where it is one piece.
    room: u64,
    mapped: u64,
}

impl Allocator {
    /// Reserves address space on this device for so many bytes of another process's [chunks](SharedMemory::chunks).
    pub fn import(&self, bytes: u64) -> Result<Imported, DeviceError> {
        let_go_of_left();
        Ok(Imported {
            addr: self.device().driver.reserve(bytes)?,
            allocator: self.clone(),
            room: bytes,
            mapped: 0,
        })
    }

    /// Opens the [handle](SharedMemory::ipc_handle) of another process.
    pub fn open_ipc(&self, handle: &IpcHandle) -> Result<Imported, DeviceError> {
        Ok(Imported {
            addr: self.device().driver.open_ipc(handle)?,
            allocator: self.clone(),
            room: 0,
            mapped: 0,
        })
    }
}

impl Imported {
    fn driver(&self) -> &dyn Driver {
        &*self.allocator.device().driver
    }

    /// Maps the next chunk behind those before it. It has to be of just that size; what there is no address space for is an error.
    pub fn add(&mut self, chunk: OwnedFd, bytes: u64) -> Result<(), DeviceError> {
        let driver = self.driver();
        let handle = driver.import(chunk.as_fd())?;
        let mapped = driver.map(self.addr + self.mapped, bytes, handle);
        // The mapping keeps it.
        let released = driver.release(handle);
        mapped?;
        self.mapped += bytes;
        released
    }

    /// Lets this device's work reach all that was added.
    pub fn open(&self) -> Result<(), DeviceError> {
        self.driver().set_access(self.addr, self.mapped)
    }

    /// Where it begins.
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Its bytes of chunks.
    pub fn bytes(&self) -> u64 {
        self.mapped
    }
}

impl Drop for Imported {
    fn drop(&mut self) {
        let home = self.allocator.0.home;
        // In a forked child it is the parent's.
        if home.not_forked().is_err() {
            return;
        }
        if self.room == 0 {
            let _ = self.driver().close_ipc(self.addr);
            return;
        }
        let left = Left {
            allocator: self.allocator.clone(),
            addr: self.addr,
            room: self.room,
            mapped: self.mapped,
        };
        if let Some(mut all) = LEFT.lock() {
            all.push(left);
        }
        let_go_of_left();
    }
}

/// Memory of another process that nobody has here any more.
#[derive(Debug)]
struct Left {
    allocator: Allocator,
    addr: u64,
    room: u64,
    mapped: u64,
}

/// What is mapped yet: queued work may use it, and while a graph is captured that cannot be waited for.
static LEFT: Shared<Vec<Left>> = Shared::new(Vec::new());

/// Unmaps what is left, as far as that can be: when memory is imported or let go of, and with every release.
pub(crate) fn let_go_of_left() {
    let all = LEFT.lock().map(|mut all| std::mem::take(&mut *all)).unwrap_or_default();
    if all.is_empty() {
        return;
    }
    let kept: Vec<Left> = all.into_iter().filter_map(|left| left.go().err()).collect();
    if let Some(mut all) = LEFT.lock() {
        all.extend(kept);
    }
}

impl Left {
    /// It, if it has to stay.
    fn go(self) -> Result<(), Left> {
        let driver = &self.allocator.device().driver;
        let unmapped =
            self.mapped == 0 || self.allocator.settle().is_ok() && driver.unmap(self.addr, self.mapped).is_ok();
        if !unmapped {
            return Err(self);
        }
        let _ = driver.unreserve(self.addr, self.room);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::config::Config;
    use crate::device;
    use crate::publish::Publish;
    use crate::stream::Stream;

    const MIB: u64 = 1 << 20;

    /// With a real driver, or what stands for one, another process has it: `tests/tests/all/c_abi/sharing.cpp`.
    #[test]
    fn what_is_shared_is_what_the_allocation_lies_in() {
        let config = Config {
            publish: Publish::Off,
            ..Config::default()
        };
        let allocator = Allocator::new(device::sim(Default::default()), config).unwrap();
        let stream = Stream(1);
        let held: Vec<u64> = (0..8).map(|_| allocator.alloc_raw(3 * MIB, stream).unwrap()).collect();
        for addr in held.iter().step_by(2) {
            allocator.free_raw(*addr).unwrap();
        }
        // From what lies between, and new memory.
        let stitched = allocator.alloc_raw(11 * MIB, stream).unwrap();
        let small = allocator.alloc_raw(100, stream).unwrap();
        for (addr, bytes) in [(held[1], 3 * MIB), (stitched, 11 * MIB), (small, 512)] {
            let shared = allocator.share_raw(addr).unwrap();
            assert!(shared.is_same(&allocator.share_raw(addr).unwrap()));
            assert!(!shared.is_same(&allocator.share_raw(held[3]).unwrap()));
            let total: u64 = shared.chunks().sum();
            assert_eq!(shared.bytes(), bytes);
            assert!(
                shared.offset() < shared.chunks().next().unwrap(),
                "it begins in the first chunk"
            );
            let last = shared.chunks().last().unwrap();
            let end = shared.offset() + bytes;
            assert!(total - last < end && end <= total, "and ends in the last");
            assert!(shared.ipc_handle().is_none() && shared.export(shared.chunks().len()).is_none());
            assert_eq!(
                shared.export(0).unwrap().unwrap_err().code,
                801,
                "no process has a simulated one's"
            );
        }
        let pool = allocator.private_pool().unwrap();
        let [first, second] = [0, 1].map(|_| pool.alloc_raw(MIB, stream).unwrap());
        let shared = allocator.share_raw(second).unwrap();
        assert_eq!((shared.offset(), shared.chunks().len()), (second - first, 0));
        assert_eq!(shared.ipc_handle().unwrap().unwrap_err().code, 801);
        allocator.free_raw(small).unwrap();
        for addr in [small, held[1] + 512, 0] {
            assert!(matches!(allocator.share_raw(addr), Err(Error::UnknownPointer { .. })));
        }
    }
}
