//! Pools: memory apart from everybody else's, by name and budget, or private for CUDA graphs.

use std::sync::Arc;

use std::fmt;

use gpumem_channel::Stat;
use gpumem_text::clean;

use crate::allocator::Allocator;
use crate::buffer::{Buffer, Element};
use crate::error::Error;
use crate::heap::{self, NewPool};
use crate::home::Handle;
use crate::route::Route;
use crate::size::bytes_of;
use crate::stream::Stream;

/// What becomes of a request that a pool has no room for, within its budget or on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// It fails.
    #[default]
    Refuse,
    /// It is served from the memory that is no pool's.
    Shared,
}

/// What a pool can be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolConfig {
    /// Most bytes that the pool may take from the driver. `None`: as much as the allocator may.
    pub budget: Option<u64>,
    /// What becomes of requests that do not fit.
    pub overflow: Overflow,
    /// When memory runs out, pools of lower priority give back what they cached, lowest first, before a request fails (unless
    /// [`release_on_oom`](crate::Config::release_on_oom) is off). What is no pool's has priority 0. Pools of the same priority leave each other alone. What overflows matters as much as its pool.
    pub priority: i32,
}

/// A pool's id among those of an allocator, as PyTorch's pools have one (`c10::cuda::MempoolId_t`): the `segment_pool_id` of its segments in
/// a snapshot. (0, 0) is no pool's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MempoolId(pub u64, pub u64);

impl fmt::Display for MempoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {})", self.0, self.1)
    }
}

/// A block of a pool that the program holds or held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolBlock {
    /// Its first address.
    pub addr: u64,
    /// Its bytes.
    pub bytes: u64,
    /// What was asked for.
    pub requested: u64,
    /// The stream that it was asked for on.
    pub stream: Stream,
}

/// The figures of a pool, under PyTorch's names. What overflowed is not among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolFigures {
    /// Blocks held by the program.
    pub allocation: Stat,
    /// Blocks held by the program or waiting for the GPU.
    pub active: Stat,
    /// Segments taken from the driver.
    pub segment: Stat,
    /// Bytes asked for, of blocks held by the program: without those that wait for the GPU, which the allocator's own figure has.
    pub requested_bytes: Stat,
    /// The same after rounding.
    pub allocated_bytes: Stat,
    /// The same after rounding, with what waits for the GPU: what is reserved beyond that is cached.
    pub active_bytes: Stat,
    /// Bytes taken from the driver.
    pub reserved_bytes: Stat,
    /// Requests that were served from memory that is no pool's.
    pub num_overflows: u64,
    /// Requests that failed for want of memory.
    pub num_ooms: u64,
}

impl PoolFigures {
    /// Those that have a peak.
    pub(crate) fn stats_mut(&mut self) -> [&mut Stat; 7] {
        [
            &mut self.allocation,
            &mut self.active,
            &mut self.segment,
            &mut self.requested_bytes,
            &mut self.allocated_bytes,
            &mut self.active_bytes,
            &mut self.reserved_bytes,
        ]
    }
}

/// Memory that serves its own requests only, made by [`Allocator::pool`] and [`Allocator::private_pool`]. Clones are the same pool.
///
/// It lives in plain segments: nothing of it is ever remapped. When the last clone is gone, what is free of it goes back to the driver,
/// and the rest when nothing uses it any more: with the last buffer, and where queued work still used that, when it is next looked, which is
/// before more memory is taken from the driver, with [`poll`](Allocator::poll) and with everything that gives memory back.
#[derive(Clone, Debug)]
#[must_use = "the pool ends when its last clone is dropped"]
pub struct Pool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    memory: Arc<PoolMemory>,
    name: String,
}

/// A pool's memory, while anybody may ask for some of it: who holds the pool, or a request that was sent there.
#[derive(Debug)]
pub(crate) struct PoolMemory {
    pub(crate) handle: Arc<Handle>,
    pub(crate) arena: u16,
    pub(crate) id: MempoolId,
    pub(crate) private: bool,
}

impl Drop for PoolMemory {
    fn drop(&mut self) {
        // In a forked child the pool is the parent's.
        let _ = self.handle.home.give(|heap| heap.close_arena(self.arena));
    }
}

impl Allocator {
    /// A pool with a name of its own: its cache serves nobody else, and its budget binds what it takes from the driver.
    ///
    /// ```
    /// use gpumem_alloc::{Allocator, Config, Error, PoolConfig, Stream, device};
    ///
    /// # fn main() -> Result<(), Error> {
    /// # let config = Config { publish: gpumem_alloc::Publish::Off, ..Config::default() };
    /// # let alloc = Allocator::new(device::sim(Default::default()), config)?;
    /// let budget = Some(64 << 20);
    /// let tenant = alloc.pool("tenant", PoolConfig { budget, ..PoolConfig::default() })?;
    /// let weights = tenant.alloc::<f32>(10 << 20, Stream::DEFAULT)?;
    /// let more = tenant.alloc::<f32>(10 << 20, Stream::DEFAULT);
    /// assert!(matches!(more, Err(Error::OutOfMemory(_))), "40 and 40 MiB are more than 64");
    /// # drop(weights);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`] when the name is empty or another pool's, there are too many, or the budget is 0.
    pub fn pool(&self, name: &str, config: PoolConfig) -> Result<Pool, Error> {
        self.make_pool(NewPool::Named(name), config)
    }

    /// A private pool, for a CUDA graph: while it lives, no address that it ever handed out is handed to anybody else or goes back to
    /// the driver, for the graph goes on using them after they were freed. When memory runs out what is no pool's gives its cache back
    /// for it.
    ///
    /// # Errors
    /// [`Error::Config`] when there are too many pools.
    pub fn private_pool(&self) -> Result<Pool, Error> {
        self.make_pool(NewPool::Private(None), PoolConfig::default())
    }

    /// [`private_pool`](Allocator::private_pool) under an id of the caller's, by which it is named: PyTorch numbers its pools itself.
    ///
    /// # Errors
    /// [`Error::Config`] when there are too many pools, or one of that id, or it is (0, 0).
    pub fn private_pool_with_id(&self, id: MempoolId) -> Result<Pool, Error> {
        self.make_pool(NewPool::Private(Some(id)), PoolConfig::default())
    }

    fn make_pool(&self, new: NewPool<'_>, config: PoolConfig) -> Result<Pool, Error> {
        if self.0.home.see(|heap| heap.lacks_room_for_pool())? {
            // While a graph is captured nothing is waited for, and there may be no room.
            let _ = self.settle();
        }
        self.0.home.give_all(|heap| heap.make_room_for_pool())?;
        let (arena, name, id) = self.0.home.naming(|| {
            self.heap(|heap| {
                let arena = heap.add_arena(new, config)?;
                let (name, id) = heap.name_of_arena(arena);
                Ok((arena, name, id))
            })?
        })?;
        let handle = Arc::clone(&self.0);
        let private = matches!(new, NewPool::Private(_));
        let memory = Arc::new(PoolMemory {
            handle,
            arena,
            id,
            private,
        });
        Ok(Pool(Arc::new(Inner { memory, name })))
    }

    /// Takes memory for what a route sends to a pool, until [`end_allocate_to_pool`](Allocator::end_allocate_to_pool): requests for
    /// which several routes hold follow the one begun last.
    ///
    /// Where the pool is private a graph is taken to be captured in between: nothing is waited for then, no event is recorded and nothing
    /// goes back to the driver (but what a request took that fails on the way), whoever asks this allocator for it, so that no capture
    /// ends by it. Another allocator knows nothing of that, and ends the capture of a graph only where it has to wait for its device:
    /// when its memory has run out, or it is asked to give some back.
    pub fn begin_allocate_to_pool(&self, pool: &Pool, route: Route) -> Result<(), Error> {
        self.of_this(pool)?;
        pool.0.begin(route).map(drop)
    }

    /// Ends what the calling thread began last for a pool, or if it began nothing for that, what any thread did. Whether there was anything.
    pub fn end_allocate_to_pool(&self, pool: &Pool) -> Result<bool, Error> {
        self.of_this(pool)?;
        self.0.ended(self.0.routes.end(&pool.0.memory)?)
    }

    /// The ids of the pools that captures were lost of: [those](Route::Capture) which the calling thread began and nobody ended, one for
    /// each. They are told once, and their routes are forgotten. For who counts what is begun.
    pub fn forget_lost_captures(&self) -> Vec<MempoolId> {
        self.0.forget_lost_captures()
    }

    fn of_this(&self, pool: &Pool) -> Result<(), Error> {
        match Arc::ptr_eq(&self.0, &pool.0.memory.handle) {
            true => Ok(()),
            false => Err(Error::Config {
                setting: "pool",
                reason: format!("{} belongs to another allocator", clean(&pool.0.name)),
            }),
        }
    }
}

impl Pool {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its id: (0, n) with a name, (n, 0) if it is private and was given none.
    pub fn id(&self) -> MempoolId {
        self.0.memory.id
    }

    /// Lets another pool have its name and its id from now on, as dropping the last clone does: for who cannot say when that will be, as
    /// other threads have clones for a moment.
    pub fn give_up_name(&self) {
        self.0.give_up_name();
    }

    /// The allocator it is of.
    pub fn allocator(&self) -> Allocator {
        Allocator(Arc::clone(&self.0.memory.handle))
    }

    /// [`Allocator::alloc`] from this pool.
    ///
    /// # Errors
    /// As there; [`Error::OutOfMemory`] also when its budget has no room for it.
    pub fn alloc<T: Element>(&self, len: usize, stream: Stream) -> Result<Buffer<T>, Error> {
        let PoolMemory { handle, arena, .. } = &*self.0.memory;
        let bytes = bytes_of::<T>(len)?;
        let lent = match handle.home.lend_short_in(*arena, bytes, stream, true) {
            Some(lent) => lent,
            None => self.allocator().lend_in(*arena, bytes, stream)?,
        };
        Ok(Buffer::new(handle.home, lent, len, stream))
    }

    /// [`Allocator::alloc_raw`] from this pool; to be given back as any raw address.
    ///
    /// # Errors
    /// As [`alloc`](Pool::alloc).
    pub fn alloc_raw(&self, bytes: u64, stream: Stream) -> Result<u64, Error> {
        self.allocator().alloc_raw_in(self.0.memory.arena, bytes, stream)
    }

    /// What the program holds of it, by address. With [`alloc_raw_at`](Pool::alloc_raw_at) a pool can be made as it was before, as who captures
    /// graphs one after another does it: the next one is captured around what is held after the last, whatever was replayed meanwhile.
    ///
    /// In a forked child: nothing.
    pub fn held(&self) -> Vec<PoolBlock> {
        let PoolMemory { handle, arena, .. } = &*self.0.memory;
        handle.home.see(|heap| heap.held_of(*arena)).unwrap_or_default()
    }

    /// Takes a block of a private pool where one [was held](Pool::held) before, as large and for the same stream; to be given back as any raw
    /// address. Where queued work may still use what is free there, the device is waited for.
    ///
    /// ```
    /// use gpumem_alloc::{Allocator, Config, Stream, device};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = Config { publish: gpumem_alloc::Publish::Off, ..Config::default() };
    /// let allocator = Allocator::new(device::sim(Default::default()), config)?;
    /// let pool = allocator.private_pool()?;
    /// let addr = pool.alloc_raw(1 << 20, Stream(7))?;
    /// let before = pool.held();
    /// allocator.free_raw(addr)?;
    /// assert!(pool.held().is_empty());
    /// for block in &before {
    ///     pool.alloc_raw_at(block)?;
    /// }
    /// assert_eq!(pool.held(), before);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFree`] where that place is not free, or not the pool's, or the pool not private; [`Error::Capturing`] where the device would have to be waited for
    /// and a graph is captured; what the driver says.
    pub fn alloc_raw_at(&self, block: &PoolBlock) -> Result<(), Error> {
        self.allocator().alloc_raw_at(self.0.memory.arena, block)
    }

    /// Has the pool serve what a route says, whoever asks the allocator for it, until the guard is dropped: as
    /// [`begin_allocate_to_pool`](Allocator::begin_allocate_to_pool), with an end that no error on the way leaves out. The guard is a clone
    /// of the pool, and ends its own route, in whatever order and on whatever thread guards are dropped.
    ///
    /// ```
    /// use gpumem_alloc::{Allocator, Config, Route, Stream, device};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let allocator = Allocator::new(device::sim(Default::default()), Config::default())?;
    /// let (pool, stream) = (allocator.private_pool()?, Stream(7));
    /// let graph = {
    ///     let _capturing = pool.serve(Route::Stream(stream))?;
    ///     // The stream's capture begins, and ends before the guard does.
    ///     allocator.alloc::<f32>(1 << 20, stream)?
    /// };
    /// assert_eq!(pool.stats().allocated_bytes.current, 4 << 20);
    /// # drop(graph);
    /// # Ok(())
    /// # }
    /// ```
    pub fn serve(&self, route: Route) -> Result<Serving, Error> {
        let number = self.0.begin(route)?;
        let pool = self.clone();
        Ok(Serving { pool, number })
    }

    /// Its figures now.
    ///
    /// In a forked child: all zero.
    pub fn stats(&self) -> PoolFigures {
        let PoolMemory { handle, arena, .. } = &*self.0.memory;
        let figures = handle.home.see(|heap| heap.pool_figures(*arena));
        figures.unwrap_or_default()
    }

    /// The most bytes it may take from the driver now; `None`: as much as the allocator may, and in a forked child.
    pub fn budget(&self) -> Option<u64> {
        let PoolMemory { handle, arena, .. } = &*self.0.memory;
        handle.home.see(|heap| heap.pool_budget(*arena)).unwrap_or_default()
    }

    /// Sets its budget; `None`: as much as the allocator may. What it has beyond that goes back to the driver as far as nothing uses it, in
    /// whole segments, those first that were idle for longest, for which the device is waited for; the rest keeps the pool from taking more
    /// until it is freed and given back. While a graph is captured nothing goes back.
    ///
    /// # Errors
    /// [`Error::Config`] when the budget is 0, and what the driver says on the way back; the budget holds all the same.
    pub fn set_budget(&self, budget: Option<u64>) -> Result<(), Error> {
        let PoolMemory { handle, arena, .. } = &*self.0.memory;
        heap::set_pool_budget(&mut handle.turn()?, *arena, budget)
    }

    /// Waits for the device and gives the pool's free segments back to the driver; of a private pool nothing. The bytes that came free.
    ///
    /// # Errors
    /// [`Error::Capturing`] while a graph is captured, unless it is private, and what the driver says.
    pub fn release_cached(&self) -> Result<u64, Error> {
        let PoolMemory { handle, arena, .. } = &*self.0.memory;
        heap::release_pool(&mut handle.turn()?, *arena)
    }
}

/// Has a pool serve what its [route](Pool::serve) says until it is dropped.
#[derive(Debug)]
#[must_use = "the pool serves until the guard is dropped"]
pub struct Serving {
    pool: Pool,
    number: u64,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let PoolMemory { handle, .. } = &*self.pool.0.memory;
        // In a forked child the routes are the parent's, and nothing is captured.
        let ended = handle.routes.end_number(handle.home, self.number);
        let _ = ended.and_then(|ended| handle.ended(ended));
    }
}

impl Inner {
    /// Begins a route, and a capture where the pool is private. The route's number.
    fn begin(&self, route: Route) -> Result<u64, Error> {
        let PoolMemory { handle, private, .. } = &*self.memory;
        handle.end_lost_captures();
        // Before anybody can find the route and end both. Nobody who has the turn gives memory back when the capture begins.
        if *private {
            heap::begin_capture(&mut handle.home.turn()?)?;
        }
        handle.routes.begin(&self.memory, route)
    }

    fn give_up_name(&self) {
        let PoolMemory { handle, arena, .. } = &*self.memory;
        // In a forked child there are no pools.
        // Who calls this may have a lock: no event comes of it, so that no stack is taken.
        let _ = handle.home.see(|heap| heap.give_up_arena(*arena));
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Requests that were sent here may keep the memory for long.
        self.give_up_name();
        let handle = &self.memory.handle;
        // In a forked child the routes are the parent's, and nothing is captured.
        while let Ok(true) = handle.routes.end(&self.memory).and_then(|ended| handle.ended(ended)) {}
    }
}
