//! Where a heap lives: a place that is never freed, so that buffers can point to it without counting references.
//!
//! Counting them costs two atomic operations for each buffer, a third of what a cached block costs. Instead the heap counts its
//! buffers under the lock it is reached by anyway, and moves out of its home when it has neither handles nor buffers left. The home
//! waits for the next heap: a process has as many homes as it ever had allocators at the same time.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, TryLockError, Weak};

use gpumem_channel::Process;

use crate::device::Device;
use crate::error::Error;
use crate::heap::{Grant, Heap};
use crate::lock::Lock;
use crate::stream::Stream;
use crate::tag;

/// What the clones of an allocator share.
pub(crate) struct Handle {
    pub(crate) device: Device,
    pub(crate) home: &'static Home,
}

/// A place for a heap.
pub(crate) struct Home {
    process: Process,
    tenant: Lock<Option<Box<Tenant>>>,
}

/// Who lives there.
struct Tenant {
    heap: Heap,
    device: Device,
    handle: Weak<Handle>,
    /// Buffers that point here, empty ones too.
    buffers: u64,
    /// No handle is left: the last buffer ends it.
    orphaned: bool,
}

/// Homes without a tenant.
static VACANT: Mutex<Vec<&'static Home>> = Mutex::new(Vec::new());

impl Home {
    /// Moves a heap into a home.
    pub(crate) fn settle(heap: Heap, device: Device) -> Arc<Handle> {
        let home = Home::vacant();
        let handle = Arc::new(Handle {
            device: device.clone(),
            home,
        });
        *home.tenant.lock() = Some(Box::new(Tenant {
            heap,
            device,
            handle: Arc::downgrade(&handle),
            buffers: 0,
            orphaned: false,
        }));
        handle
    }

    fn vacant() -> &'static Home {
        // In a forked child the list may be locked for ever, and its homes are the parent's.
        let list = match VACANT.try_lock() {
            Ok(list) => Some(list),
            Err(TryLockError::Poisoned(list)) => Some(list.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        list.and_then(|mut list| list.pop())
            .filter(|home| home.process.is_current())
            .unwrap_or_else(|| {
                Box::leak(Box::new(Home {
                    process: Process::current(),
                    tenant: Lock::new(None),
                }))
            })
    }

    /// Does something with the heap, unless this is a forked child: there its lock may be held for ever by a thread that does
    /// not exist.
    #[inline]
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Heap) -> R) -> Result<R, Error> {
        self.enter(|tenant| work(&mut tenant.heap))
    }

    /// The same, where success makes a buffer.
    #[inline]
    pub(crate) fn lend<R>(&self, work: impl FnOnce(&mut Heap) -> Result<R, Error>) -> Result<R, Error> {
        self.enter(|tenant| {
            let lent = work(&mut tenant.heap);
            tenant.buffers += u64::from(lent.is_ok());
            lent
        })?
    }

    /// The same where a block was set aside for the size; the heap is not asked for more.
    #[inline(always)]
    pub(crate) fn lend_quick(&self, bytes: u64, stream: Stream) -> Option<Grant> {
        if !self.process.is_current() {
            return None;
        }
        let mut place = self.tenant.lock();
        let tenant = place.as_deref_mut()?;
        let grant = tenant.heap.allocate_quick(bytes, stream, tag::current())?;
        tenant.buffers += 1;
        Some(grant)
    }

    #[inline]
    fn enter<R>(&self, work: impl FnOnce(&mut Tenant) -> R) -> Result<R, Error> {
        if !self.process.is_current() {
            return Err(Error::Forked);
        }
        match &mut *self.tenant.lock() {
            Some(tenant) => Ok(work(tenant)),
            // A handle or a buffer keeps its tenant: this is never reached.
            None => Err(Error::Forked),
        }
    }

    /// Takes a buffer back, and its block if it has one.
    #[inline]
    pub(crate) fn take_back(&'static self, block: Option<u32>) {
        let ended = self.enter(|tenant| {
            if let Some(block) = block {
                tenant.heap.free(block);
            }
            tenant.buffers -= 1;
            tenant.orphaned && tenant.buffers == 0
        });
        if let Ok(true) = ended {
            self.clear();
        }
    }

    /// The device of the heap that lives here.
    pub(crate) fn device(&self) -> Result<Device, Error> {
        self.enter(|tenant| tenant.device.clone())
    }

    /// A handle to the heap that lives here: a new one if the last is gone.
    pub(crate) fn handle(&'static self) -> Result<Arc<Handle>, Error> {
        self.enter(|tenant| {
            tenant.handle.upgrade().unwrap_or_else(|| {
                let handle = Arc::new(Handle {
                    device: tenant.device.clone(),
                    home: self,
                });
                tenant.handle = Arc::downgrade(&handle);
                tenant.orphaned = false;
                handle
            })
        })
    }

    /// Ends the heap if nothing refers to it any more.
    #[cold]
    fn clear(&'static self) {
        let mut place = self.tenant.lock();
        let unused = |tenant: &Tenant| tenant.buffers == 0 && tenant.handle.strong_count() == 0;
        if place.as_deref().is_some_and(unused) {
            let tenant = place.take();
            drop(place);
            // Gives everything back to the driver; nobody can wait for it any more.
            drop(tenant);
            VACANT.lock().unwrap_or_else(PoisonError::into_inner).push(self);
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Another handle may have been made from a buffer since this one's count fell to zero.
        let ended = self.home.enter(|tenant| {
            tenant.orphaned = tenant.handle.strong_count() == 0;
            tenant.orphaned && tenant.buffers == 0
        });
        if let Ok(true) = ended {
            self.home.clear();
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}
