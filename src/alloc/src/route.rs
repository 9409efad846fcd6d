//! Which requests go to which pool: what a program says for a while, instead of asking the pool.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use crate::heap::COMMON;
use crate::home::Handle;
use crate::stream::Stream;

/// Which requests go to a pool.
#[derive(Clone)]
pub enum Route {
    /// All of the thread that begins it.
    ThisThread,
    /// All for a stream.
    Stream(Stream),
    /// All for streams that a function says yes to. It is called by any thread that allocates, and must not allocate here.
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
    open: Mutex<Arc<Vec<Open>>>,
}

#[derive(Clone, Debug)]
struct Open {
    arena: u16,
    route: Route,
    thread: ThreadId,
}

impl Open {
    fn holds(&self, stream: Stream) -> bool {
        match &self.route {
            Route::ThisThread => self.thread == thread::current().id(),
            Route::Stream(other) => *other == stream,
            Route::Filter(filter) => filter(stream),
        }
    }
}

impl Routes {
    fn open(&self) -> MutexGuard<'_, Arc<Vec<Open>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self, handle: &Handle, arena: u16, route: Route) {
        let thread = thread::current().id();
        let mut open = self.open();
        Arc::make_mut(&mut open).push(Open { arena, route, thread });
        handle.home.set_routed(true);
    }

    /// Ends what was begun last for an arena. Whether there was anything.
    pub(crate) fn end(&self, handle: &Handle, arena: u16) -> bool {
        let mut open = self.open();
        let last = open.iter().rposition(|route| route.arena == arena);
        if let Some(at) = last {
            Arc::make_mut(&mut open).remove(at);
        }
        handle.home.set_routed(!open.is_empty());
        last.is_some()
    }

    /// The arena of a request.
    pub(crate) fn arena(&self, stream: Stream) -> u16 {
        // Without the lock, so that a filter may take its time.
        let open = Arc::clone(&self.open());
        let found = open.iter().rev().find(|route| route.holds(stream));
        found.map_or(COMMON, |route| route.arena)
    }
}

impl Handle {
    /// The arena of a request: the common one, unless the program began something else.
    #[inline]
    pub(crate) fn arena(&self, stream: Stream) -> u16 {
        match self.home.is_routed() {
            true => self.routes.arena(stream),
            false => COMMON,
        }
    }
}
