//! Where a heap lives: a place that is never freed, so that buffers can point to it without counting references.
//!
//! Counting them costs two atomic operations for each buffer, a third of what a cached block costs. Instead the heap and its lanes count
//! their buffers under the locks they are reached by anyway, and the heap moves out of its home when it has neither handles nor buffers left. The home
//! waits for the next heap: a process has as many homes as it ever had allocators at the same time.

mod enter;
mod queue;
mod serve;
#[cfg(test)]
mod tests;
mod turn;

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use gpumem_channel::{CloseHandle, Process};

use crate::device::Device;
use crate::error::Error;
use crate::export::OnOom;
use crate::heap::{self, Heap};
use crate::lane::Front;
use crate::lock::{Biased, OUTER, Shared};
use crate::monitor::Monitor;
use crate::process::Uncancelled;
use crate::raw::Pointers;
use crate::route::Routes;
use crate::stack::{Kept, Stack};
pub(crate) use turn::Turn;

use enter::{NEVER, OFF};
use queue::Queue;

/// What the clones of an allocator share.
pub(crate) struct Handle {
    pub(crate) device: Device,
    pub(crate) home: &'static Home,
    pub(crate) on_oom: Arc<OnOom>,
    /// The monitor that the configuration asked for.
    pub(crate) monitor: OnceLock<Monitor>,
    pub(crate) routes: Routes,
    pub(crate) goodbye: Option<CloseHandle>,
}

/// A place for a heap.
pub(crate) struct Home {
    process: Process,
    /// Whether the heap has a history, and for what it wants call stacks: one of the numbers of `enter`. And [`ROUTED`](enter::ROUTED).
    recording: AtomicU8,
    /// The lanes of the tenant's heap.
    front: Front,
    /// Blocks handed out as raw pointers.
    pointers: Pointers,
    tenant: Biased<Option<Box<Tenant>>, OUTER>,
    /// Whose turn it is to call the driver for long. Before the tenant's lock.
    turn: Queue,
}

/// Who lives there.
struct Tenant {
    /// No other one of this process ever has it.
    id: u64,
    heap: Heap,
    device: Device,
    on_oom: Arc<OnOom>,
    handle: Weak<Handle>,
    /// Buffers that point here, empty ones too, but for what lanes count: below 0 where buffers that a lane handed out came back here.
    buffers: i64,
    /// No handle is left: the last buffer ends it.
    orphaned: bool,
}

/// Homes without a tenant. A forked child's list has homes of its parent's.
static VACANT: Shared<Vec<&'static Home>> = Shared::new(Vec::new());

/// Tenants so far.
static TENANTS: AtomicU64 = AtomicU64::new(0);

impl Home {
    /// Makes a heap in a home of its own.
    pub(crate) fn settle(
        device: Device,
        on_oom: OnOom,
        make: impl FnOnce(&'static Front) -> Result<Heap, Error>,
    ) -> Result<Arc<Handle>, Error> {
        let home = Home::vacant();
        let heap = match make(&home.front) {
            Ok(heap) => heap,
            Err(error) => {
                home.vacate();
                return Err(error);
            }
        };
        home.recording.store(OFF, Ordering::Relaxed);
        let mut tenant = Box::new(Tenant {
            id: TENANTS.fetch_add(1, Ordering::Relaxed),
            heap,
            device,
            on_oom: Arc::new(on_oom),
            handle: Weak::new(),
            buffers: 0,
            orphaned: false,
        });
        let handle = tenant.new_handle(home);
        *home.tenant.lock() = Some(tenant);
        Ok(handle)
    }

    /// Makes room for the next tenant.
    fn vacate(&'static self) {
        // Without the list the home stays empty for ever.
        if let Some(mut list) = VACANT.lock() {
            list.push(self);
        }
    }

    /// Not inlined: its stack is not there any more when the channel and the heap are made. Threads may have small ones.
    #[inline(never)]
    fn vacant() -> &'static Home {
        let last = VACANT.lock().and_then(|mut list| list.pop());
        last.filter(|home| home.process.is_current()).unwrap_or_else(|| {
            Box::leak(Box::new(Home {
                process: Process::current(),
                recording: AtomicU8::new(OFF),
                front: Front::new(),
                pointers: Pointers::default(),
                tenant: Biased::new(None),
                turn: Queue::default(),
            }))
        })
    }

    /// The raw pointers.
    pub(crate) fn pointers(&self) -> Result<&Pointers, Error> {
        // Their locks may be held for ever in a forked child.
        self.not_forked()?;
        Ok(&self.pointers)
    }

    /// Who lives here now.
    pub(crate) fn tenant(&self) -> Result<u64, Error> {
        self.enter_for(NEVER, |tenant| tenant.id)
    }

    /// The device of the heap that lives here.
    pub(crate) fn device(&self) -> Result<Device, Error> {
        self.enter_for(NEVER, |tenant| tenant.device.clone())
    }

    /// A handle to the heap that lives here: a new one if the last is gone.
    pub(crate) fn handle(&'static self) -> Result<Arc<Handle>, Error> {
        self.enter_for(NEVER, |tenant| {
            tenant.handle.upgrade().unwrap_or_else(|| {
                let handle = tenant.new_handle(self);
                tenant.orphaned = false;
                tenant.heap.set_lending(self.recording.load(Ordering::Relaxed) == OFF);
                handle
            })
        })
    }

    /// Ends the heap if nothing refers to it any more.
    #[cold]
    fn clear(&'static self) {
        let _undisturbed = Uncancelled::begin();
        // Not while somebody who keeps nobody has memory of it set apart.
        let _turn = self.turn_as(Kept::begin(|| Stack::NONE));
        let mut place = self.tenant.lock();
        let unused = |tenant: &Tenant| tenant.has_no_buffers(&self.front) && tenant.handle.strong_count() == 0;
        if place.as_deref().is_some_and(unused) {
            let tenant = place.take();
            drop(place);
            self.front.clear();
            self.pointers.clear();
            heap::give_back_remains();
            // Gives everything back to the driver; nobody can wait for it any more.
            drop(tenant);
            self.vacate();
        }
    }
}

impl Tenant {
    /// A handle, where there is none.
    fn new_handle(&mut self, home: &'static Home) -> Arc<Handle> {
        let handle = Arc::new(Handle {
            device: self.device.clone(),
            home,
            on_oom: Arc::clone(&self.on_oom),
            monitor: OnceLock::new(),
            routes: Routes::default(),
            goodbye: self.heap.outlet().goodbye(),
        });
        self.handle = Arc::downgrade(&handle);
        handle
    }

    /// Whether nothing keeps the heap any more.
    fn is_done(&self, front: &Front) -> bool {
        self.orphaned && self.has_no_buffers(front)
    }

    fn has_no_buffers(&self, front: &Front) -> bool {
        self.buffers + front.buffers() == 0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Another handle may have been made from a buffer since this one's count fell to zero.
        let ended = self.home.enter_for(NEVER, |tenant| {
            tenant.orphaned = tenant.handle.strong_count() == 0;
            if tenant.orphaned {
                // From now on every buffer comes back through here, so that the last one is seen.
                tenant.heap.set_lending(false);
            }
            tenant.is_done(&self.home.front)
        });
        if let Ok(true) = ended {
            self.home.clear();
        }
    }
}

// Nothing of the program's runs while the heap or a lane is locked: no panic of the program's leaves them half changed.
impl UnwindSafe for Handle {}
impl RefUnwindSafe for Handle {}
impl UnwindSafe for Home {}
impl RefUnwindSafe for Home {}

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
