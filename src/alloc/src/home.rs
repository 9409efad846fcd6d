//! Where a heap lives: a place that is never freed, so that buffers can point to it without counting references.
//!
//! Counting them costs two atomic operations for each buffer, a third of what a cached block costs. Instead the heap counts its
//! buffers under the lock it is reached by anyway, and moves out of its home when it has neither handles nor buffers left. The home
//! waits for the next heap: a process has as many homes as it ever had allocators at the same time.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, TryLockError, Weak};

use gpumem_channel::Process;

use crate::device::Device;
use crate::error::Error;
use crate::export::OnOom;
use crate::heap::{Grant, Heap};
use crate::history::{History, Stacks};
use crate::lock::Lock;
use crate::monitor::Monitor;
use crate::route::Routes;
use crate::stack::{self, Stack};
use crate::stream::Stream;
use crate::tag;

/// What the clones of an allocator share.
pub(crate) struct Handle {
    pub(crate) device: Device,
    pub(crate) home: &'static Home,
    pub(crate) on_oom: Arc<OnOom>,
    /// The monitor that the configuration asked for.
    pub(crate) monitor: OnceLock<Monitor>,
    pub(crate) routes: Routes,
}

/// A place for a heap.
pub(crate) struct Home {
    process: Process,
    /// Whether the heap has a history, and for what it wants call stacks: one of the numbers below. And [`ROUTED`].
    recording: AtomicU8,
    tenant: Lock<Option<Box<Tenant>>>,
}

/// Who lives there.
struct Tenant {
    /// No other one of this process ever has it.
    id: u64,
    heap: Heap,
    device: Device,
    on_oom: Arc<OnOom>,
    handle: Weak<Handle>,
    /// Buffers that point here, empty ones too.
    buffers: u64,
    /// No handle is left: the last buffer ends it.
    orphaned: bool,
}

/// Values of [`Home::recording`].
const OFF: u8 = 0;
const NO_STACKS: u8 = 1;
const STACKS_OF_ALLOCATIONS: u8 = 2;
const ALL_STACKS: u8 = 3;
/// Set while requests may go to pools without saying so.
const ROUTED: u8 = 0x80;

/// Homes without a tenant.
static VACANT: Mutex<Vec<&'static Home>> = Mutex::new(Vec::new());

/// Tenants so far.
static TENANTS: AtomicU64 = AtomicU64::new(0);

impl Home {
    /// Moves a heap into a home.
    pub(crate) fn settle(heap: Heap, device: Device, on_oom: OnOom) -> Arc<Handle> {
        let home = Home::vacant();
        let on_oom = Arc::new(on_oom);
        let handle = Arc::new(Handle {
            device: device.clone(),
            home,
            on_oom: Arc::clone(&on_oom),
            monitor: OnceLock::new(),
            routes: Routes::default(),
        });
        home.recording.store(OFF, Ordering::Relaxed);
        *home.tenant.lock() = Some(Box::new(Tenant {
            id: TENANTS.fetch_add(1, Ordering::Relaxed),
            heap,
            device,
            on_oom,
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
                    recording: AtomicU8::new(OFF),
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
        if self.is_special() {
            return None;
        }
        let mut place = self.tenant.lock();
        let tenant = place.as_deref_mut()?;
        let grant = tenant.heap.allocate_quick(bytes, stream, tag::current())?;
        tenant.buffers += 1;
        Some(grant)
    }

    /// [`with`](Home::with) for what gives blocks back.
    #[inline]
    pub(crate) fn give<R>(&self, work: impl FnOnce(&mut Heap) -> R) -> Result<R, Error> {
        self.enter_for(ALL_STACKS, |tenant| work(&mut tenant.heap))
    }

    /// Switches the heap's history on or off.
    pub(crate) fn record_history(&self, history: History) -> Result<(), Error> {
        self.with(|heap| {
            heap.record_history(history)?;
            let recording = match history {
                History::Off => OFF,
                History::On { stacks, .. } => match stacks {
                    Stacks::None => NO_STACKS,
                    Stacks::Alloc => STACKS_OF_ALLOCATIONS,
                    Stacks::All => ALL_STACKS,
                },
            };
            let routed = self.recording.load(Ordering::Relaxed) & ROUTED;
            self.recording.store(recording | routed, Ordering::Relaxed);
            Ok(())
        })?
    }

    /// Whether requests may go to pools without saying so.
    #[inline]
    pub(crate) fn is_routed(&self) -> bool {
        self.recording.load(Ordering::Relaxed) & ROUTED != 0 && self.process.is_current()
    }

    /// Says so, or not any more.
    pub(crate) fn set_routed(&self, routed: bool) {
        // Under the lock, like every change of it.
        let _ = self.with(|_| {
            let recording = self.recording.load(Ordering::Relaxed) & !ROUTED;
            let routed = if routed { ROUTED } else { 0 };
            self.recording.store(recording | routed, Ordering::Relaxed);
        });
    }

    /// Whether this is a forked child, or the heap has a history, or there are routes: none is in a hurry.
    #[inline(always)]
    fn is_special(&self) -> bool {
        !self.process.is_current() | (self.recording.load(Ordering::Relaxed) != OFF)
    }

    #[inline]
    fn enter<R>(&self, work: impl FnOnce(&mut Tenant) -> R) -> Result<R, Error> {
        self.enter_for(STACKS_OF_ALLOCATIONS, work)
    }

    /// `stacks`: from which value of [`recording`](Home::recording) on the call stack is taken.
    #[inline]
    fn enter_for<R>(&self, stacks: u8, work: impl FnOnce(&mut Tenant) -> R) -> Result<R, Error> {
        if self.is_special() {
            return self.enter_recorded(stacks, work);
        }
        match &mut *self.tenant.lock() {
            Some(tenant) => Ok(work(tenant)),
            // A handle or a buffer keeps its tenant: this is never reached.
            None => Err(Error::Forked),
        }
    }

    #[cold]
    #[inline(never)]
    fn enter_recorded<R>(&self, stacks: u8, work: impl FnOnce(&mut Tenant) -> R) -> Result<R, Error> {
        if !self.process.is_current() {
            return Err(Error::Forked);
        }
        // Before the heap is locked: unwinding may wait for whoever loads a library, and loading one may allocate.
        let caller = if self.recording.load(Ordering::Relaxed) & !ROUTED >= stacks {
            stack::capture()
        } else {
            Stack::NONE
        };
        match &mut *self.tenant.lock() {
            Some(tenant) => {
                tenant.heap.attribute(caller);
                let result = work(tenant);
                tenant.heap.attribute(Stack::NONE);
                Ok(result)
            }
            None => Err(Error::Forked),
        }
    }

    /// Takes a buffer back, and its block if it has one.
    #[inline]
    pub(crate) fn take_back(&'static self, block: Option<u32>) {
        if self.is_special() {
            return self.take_back_recorded(block);
        }
        let ended = match &mut *self.tenant.lock() {
            Some(tenant) => tenant.take_back(block),
            None => false,
        };
        if ended {
            self.clear();
        }
    }

    #[cold]
    #[inline(never)]
    fn take_back_recorded(&'static self, block: Option<u32>) {
        if let Ok(true) = self.enter_recorded(ALL_STACKS, |tenant| tenant.take_back(block)) {
            self.clear();
        }
    }

    /// Who lives here now.
    pub(crate) fn tenant(&self) -> Result<u64, Error> {
        self.enter(|tenant| tenant.id)
    }

    /// Does something with the heap if it is still that of the tenant. Unlike a handle, knowing who lives here keeps nobody.
    pub(crate) fn visit<R>(&self, tenant: u64, work: impl FnOnce(&mut Heap) -> R) -> Option<R> {
        if !self.process.is_current() {
            return None;
        }
        let mut place = self.tenant.lock();
        let there = place.as_deref_mut().filter(|there| there.id == tenant)?;
        Some(work(&mut there.heap))
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
                    on_oom: Arc::clone(&tenant.on_oom),
                    monitor: OnceLock::new(),
                    routes: Routes::default(),
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

impl Tenant {
    /// Takes a buffer back. Whether that was the last thing that kept the heap.
    #[inline(always)]
    fn take_back(&mut self, block: Option<u32>) -> bool {
        if let Some(block) = block {
            self.heap.free(block);
        }
        self.buffers -= 1;
        self.orphaned && self.buffers == 0
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

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Home").finish_non_exhaustive()
    }
}
