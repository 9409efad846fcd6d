//! Which requests go to which pool: what a program says for a while, instead of asking the pool.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::error::Error;
use crate::home::{Handle, Home, Turn};
use crate::pool::{MempoolId, PoolMemory};
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
    Filter(Filter),
    /// For the capture of a graph that the calling thread begins from a stream before it calls the allocator again: all for streams that a
    /// function says yes to, as above, while that stream is captured.
    ///
    /// A capture that fails may leave nobody who ends its route. It ends by itself once the stream is not captured any more: with the first
    /// call that allocates or gives memory back by the thread that began it, or where the stream was seen to be captured by any thread. So
    /// the capture ends on that thread, or while that does not call the allocator. Where the stream may be gone before the route has ended that
    /// has to be a call that allocates on it.
    Capture {
        /// Where the capture begins: no default one.
        stream: Stream,
        /// Whether the stream lives until the route has ended, so that the driver may be asked about it at any time.
        lasts: bool,
        /// Not asked while the stream is not captured.
        filter: Filter,
    },
}

/// Says which streams a [`Route`] is for.
type Filter = Arc<dyn Fn(Stream) -> bool + Send + Sync>;

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Route::ThisThread => f.write_str("ThisThread"),
            Route::Stream(stream) => f.debug_tuple("Stream").field(stream).finish(),
            Route::Filter(_) => f.write_str("Filter"),
            Route::Capture { stream, .. } => f
                .debug_struct("Capture")
                .field("stream", stream)
                .finish_non_exhaustive(),
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
pub(crate) struct Open {
    /// No other one of this allocator ever has it.
    number: u64,
    memory: Arc<PoolMemory>,
    route: Route,
    thread: Thread,
    /// Whether the capture that it is for has begun, as far as anybody saw.
    begun: AtomicBool,
    /// The capture that it is for was over, and nobody had ended it. It holds for nothing, and stays for who ends it after all.
    lost: bool,
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
    /// Whether it holds for a stream. `over` is set where its capture is over.
    fn holds(&self, stream: Stream, over: &mut bool) -> bool {
        let says = |filter: &Filter| {
            let _undisturbed = Uncancelled::begin();
            filter(stream)
        };
        match &self.route {
            Route::ThisThread => self.thread == Thread::here(),
            Route::Stream(other) => *other == stream,
            Route::Filter(filter) => says(filter),
            Route::Capture { filter, .. } => match self.capture(Some(stream)) {
                // What its function looks at may be gone.
                None => false,
                Some(Stage::UnderWay) => says(filter),
                Some(Stage::Over) => {
                    *over = true;
                    false
                }
            },
        }
    }

    /// The capture that it is for, if there is one now that nobody has found to be over. `named`: a stream that lives.
    fn capture(&self, named: Option<Stream>) -> Option<Stage> {
        let Route::Capture { stream, lasts, .. } = self.route else {
            return None;
        };
        if self.lost {
            return None;
        }
        if !lasts && named != Some(stream) {
            return Some(Stage::UnderWay);
        }
        // Looked at before the driver is asked: it may begin in between.
        let begun = self.begun.load(Ordering::Acquire) || self.thread == Thread::here();
        let _undisturbed = Uncancelled::begin();
        match self.memory.handle.device.driver.is_capturing(stream) {
            Ok(true) => {
                self.begun.store(true, Ordering::Release);
                Some(Stage::UnderWay)
            }
            Ok(false) => begun.then_some(Stage::Over),
            Err(_) => Some(Stage::UnderWay),
        }
    }
}

/// How far the capture of a graph is.
#[derive(PartialEq, Eq)]
enum Stage {
    UnderWay,
    Over,
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
            begun: AtomicBool::new(false),
            lost: false,
        });
        home.set_routed(true);
        Ok(number)
    }

    /// Ends what this thread began last for a pool, or where it began nothing, what anybody did.
    pub(crate) fn end(&self, memory: &PoolMemory) -> Result<Option<Open>, Error> {
        let here = Thread::here();
        let its = |route: &Open| route.memory.arena == memory.arena;
        self.end_one(memory.handle.home, |open| {
            let mine = open.iter().rposition(|route| its(route) && route.thread == here);
            mine.or_else(|| open.iter().rposition(its))
        })
    }

    /// Ends the one of this number, if nobody did before.
    pub(crate) fn end_number(&self, home: &Home, number: u64) -> Result<Option<Open>, Error> {
        self.end_one(home, |open| open.iter().position(|route| route.number == number))
    }

    fn end_one(&self, home: &Home, which: impl FnOnce(&[Open]) -> Option<usize>) -> Result<Option<Open>, Error> {
        let mut open = self.write(home)?;
        let ended = which(&open).map(|at| open.remove(at));
        tell(home, &open);
        Ok(ended)
    }

    /// Ends those whose captures are over. How many a private pool had.
    fn lose(&self, home: &Home) -> Result<usize, Error> {
        home.not_forked()?;
        // Asks the driver under the lock that filters ask it under.
        let over: Vec<u64> = {
            let open = self.read();
            let over = open.iter().filter(|route| route.capture(None) == Some(Stage::Over));
            over.map(|route| route.number).collect()
        };
        if over.is_empty() {
            return Ok(0);
        }
        let mut open = self.write(home)?;
        let mut captures = 0;
        for route in &mut *open {
            // Another thread may have found the same.
            if over.contains(&route.number) && !route.lost {
                route.lost = true;
                captures += usize::from(route.memory.private);
            }
        }
        tell(home, &open);
        Ok(captures)
    }

    /// Takes those of this thread that were lost: nobody will end them.
    fn take_lost(&self, home: &Home) -> Result<Vec<Open>, Error> {
        let here = Thread::here();
        let mut open = self.write(home)?;
        Ok(open
            .extract_if(.., |route| route.lost && route.thread == here)
            .collect())
    }

    /// The pool that a request goes to, and whether captures were found to be over. Its memory is that pool's until the request is served,
    /// whoever ends the route meanwhile.
    fn pool(&self, stream: Stream) -> (Option<Arc<PoolMemory>>, bool) {
        let mut over = false;
        let open = self.read();
        let found = open.iter().rev().find(|route| route.holds(stream, &mut over));
        (found.map(|route| Arc::clone(&route.memory)), over)
    }
}

/// Says whether requests may go to pools, as what is open changes.
fn tell(home: &Home, open: &[Open]) {
    home.set_routed(open.iter().any(|route| !route.lost));
}

impl Handle {
    /// The pool that a request goes to, if the program began something of the kind.
    #[inline]
    pub(crate) fn pool(&self, stream: Stream) -> Option<Arc<PoolMemory>> {
        self.home.is_routed().then(|| self.routed(stream)).flatten()
    }

    fn routed(&self, stream: Stream) -> Option<Arc<PoolMemory>> {
        let (pool, over) = self.routes.pool(stream);
        if over {
            self.end_lost_captures();
        }
        pool
    }

    /// Waits for the turn, for what a capture forbids: those that are over and that nobody ended forbid nothing.
    pub(crate) fn turn(&self) -> Result<Turn<'_>, Error> {
        self.end_lost_captures();
        self.home.turn()
    }

    /// Ends the routes of captures that are over, which nobody ended, and with them the captures.
    pub(crate) fn end_lost_captures(&self) {
        // In a forked child nothing is captured.
        for _ in 0..self.routes.lose(self.home).unwrap_or_default() {
            let _ = self.home.give(|heap| heap.end_capture());
        }
    }

    /// The ids of the pools of captures that this thread began and nobody ended.
    pub(crate) fn forget_lost_captures(&self) -> Vec<MempoolId> {
        self.end_lost_captures();
        let lost = self.routes.take_lost(self.home).unwrap_or_default();
        lost.iter().map(|route| route.memory.id).collect()
    }

    /// A route has ended, and the capture where its pool is private. Whether there was one.
    pub(crate) fn ended(&self, route: Option<Open>) -> Result<bool, Error> {
        let Some(Open { memory, lost, .. }) = route else {
            return Ok(false);
        };
        let captured = memory.private && !lost;
        drop(memory);
        if captured {
            self.home.give(|heap| heap.end_capture())?;
        }
        Ok(true)
    }
}
