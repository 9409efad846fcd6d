//! What a program gives back before more memory is taken.

use crate::callback::Callback;

static CALLBACK: Callback<fn()> = Callback::none();

/// Has a function called before an allocator of this process takes memory for a request, maps, waits for the device, or refuses it: on the
/// thread that asks, with no lock of the allocator's, and then the request looks anew at what there is. Once for a request, and again only for
/// one whose stream finds no room among those that have ended. `None`: no function any more, of which no call is under way then. PyTorch's
/// `FreeMemoryCallback`.
///
/// It is for memory that is kept for somebody else, who may be done with it by now: another process that reads it, say. What a program
/// keeps for itself as long as there is room goes back when a request fails ([`Error::OutOfMemory`](crate::Error::OutOfMemory)).
///
/// The function may allocate: it is not called for that again, nor for what the process's other callbacks allocate (of out-of-memory errors,
/// of call stacks). What it locks nobody may hold who allocates or calls this, and it must not unwind. In a history what it does has the
/// call stack of who asked.
///
/// ```
/// # use std::sync::Mutex;
/// # use gpumem_alloc::{Allocator, Buffer, Config, Publish, Stream, device};
/// static LENT: Mutex<Vec<Buffer<u8>>> = Mutex::new(Vec::new());
///
/// # fn main() -> Result<(), gpumem_alloc::Error> {
/// # let config = Config { publish: Publish::Off, ..Config::default() };
/// # let allocator = Allocator::new(device::sim(Default::default()), config)?;
/// gpumem_alloc::set_free_memory_callback(Some(|| LENT.lock().unwrap().clear()));
/// let lent = allocator.alloc(1 << 30, Stream::DEFAULT)?;
/// LENT.lock().unwrap().push(lent);
/// let next = allocator.alloc::<u8>(1 << 30, Stream::DEFAULT)?; // where that was
/// assert_eq!(allocator.stats().all().reserved_bytes.peak, 1 << 30);
/// # Ok(())
/// # }
/// ```
pub fn set_free_memory_callback(function: Option<fn()>) {
    CALLBACK.set(function);
}

/// Whether the thread is to [call](free_memory) it before it goes on.
pub(crate) fn may_free_memory() -> bool {
    CALLBACK.may_be_called()
}

pub(crate) fn free_memory() {
    CALLBACK.call(|function| function());
}
