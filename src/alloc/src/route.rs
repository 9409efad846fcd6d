//! Which requests go to which pool: what a program says for a while, instead of asking the pool.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::error::Error;
use crate::home::{Handle, Home};
use crate::pool::PoolMemory;
use crate::process::Uncancelled;
use crate::stream::Stream;

/// Which requests go to a pool.
#[derive(Clone)]
pub enum Route {
    /// All of the thread that begins it.
    ThisThread,
    /// All for a stream.
    Stream(Stream),
    /// All for streams that a function says yes to. It is called by any thread that allocates, and must neither allocate here nor begin or end
    /// anything: who ends a route waits until nobody is in its function, which is never called after that. A clone of the pool in it would keep
    /// the pool, and the route, for ever.
    Filter(Arc<dyn Fn(Stream) -> bool + Send + Sync>),
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Route::ThisThread => f.write_str("ThisThread"),
            Route::Stream(stream) => f.debug_tuple("Stream").field(stream).finish(),
            Route::Filter(_) => f.write_str("Filter"),
        }
    }
}

/// The routes of an allocator, the one begun first first. While there are any its home says so, so that programs without pools never
/// look here.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    open: RwLock<Vec<Open>>,
    begun: AtomicU64,
}

#[derive(Debug)]
struct Open {
    /// No other one of this allocator ever has it.
    number: u64,
    memory: Arc<PoolMemory>,
    route: Route,
    thread: Thread,
}

/// A thread; no other one of this process is ever the same. Not the standard library's, which does not know whose a destructor is that runs
/// when its own of that thread have run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Thread(u64);

impl Thread {
    fn here() -> Thread {
        /// Threads so far.
        static THREADS: AtomicU64 = AtomicU64::new(0);
        thread_local! {
            /// This one, once it was asked for. There as long as its thread: nothing of it is to be dropped.
            static HERE: Cell<Option<Thread>> = const { Cell::new(None) };
        }
        let new = || Thread(THREADS.fetch_add(1, Ordering::Relaxed));
        let here = HERE.get().unwrap_or_else(new);
        HERE.set(Some(here));
        here
    }
}

impl Open {
    fn holds(&self, stream: Stream) -> bool {
        match &self.route {
            Route::ThisThread => self.thread == Thread::here(),
            Route::Stream(other) => *other == stream,
            Route::Filter(filter) => {
                let _undisturbed = Uncancelled::begin();
                filter(stream)
            }
        }
    }
}

impl Routes {
    fn read(&self) -> RwLockReadGuard<'_, Vec<Open>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// In a forked child the lock may be held for ever.
    fn write(&self, home: &Home) -> Result<RwLockWriteGuard<'_, Vec<Open>>, Error> {
        home.not_forked()?;
        Ok(self.open.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Its number.
    pub(crate) fn begin(&self, memory: &Arc<PoolMemory>, route: Route) -> Result<u64, Error> {
        let home = memory.handle.home;
        let mut open = self.write(home)?;
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        open.push(Open {
            number,
            memory: Arc::clone(memory),
            route,
            thread: Thread::here(),
        });
        home.set_routed(true);
        Ok(number)
    }

    /// Ends what this thread began last for a pool, or where it began nothing, what anybody did. Whether there was anything.
    pub(crate) fn end(&self, memory: &PoolMemory) -> Result<bool, Error> {
        let here = Thread::here();
        let its = |route: &Open| route.memory.arena == memory.arena;
        self.end_one(memory.handle.home, |open| {
            let mine = open.iter().rposition(|route| its(route) && route.thread == here);
            mine.or_else(|| open.iter().rposition(its))
        })
    }

    /// Ends the one of this number. Whether nobody did before.
    pub(crate) fn end_number(&self, home: &Home, number: u64) -> Result<bool, Error> {
        self.end_one(home, |open| open.iter().position(|route| route.number == number))
    }

    fn end_one(&self, home: &Home, which: impl FnOnce(&[Open]) -> Option<usize>) -> Result<bool, Error> {
        let mut open = self.write(home)?;
        let ended = which(&open).map(|at| open.remove(at));
        home.set_routed(!open.is_empty());
        // A function may own the last of another pool, which has routes to end, too.
        drop(open);
        Ok(ended.is_some())
    }

    /// The pool that a request goes to. Its memory is that pool's until the request is served, whoever ends the route meanwhile.
    fn pool(&self, stream: Stream) -> Option<Arc<PoolMemory>> {
        let open = self.read();
        let found = open.iter().rev().find(|route| route.holds(stream));
        found.map(|route| Arc::clone(&route.memory))
    }
}

impl Handle {
    /// The pool that a request goes to, if the program began something of the kind.
    #[inline]
    pub(crate) fn pool(&self, stream: Stream) -> Option<Arc<PoolMemory>> {
        self.home.is_routed().then(|| self.routes.pool(stream)).flatten()
    }
}
