//! The fragmentation monitor: a thread that looks at an allocator now and then, and warns or tidies up when too much of its memory
//! is free in pieces too small for too long.
//!
//! It looks without changing anything. For that it has the allocator's lock for as long as it takes to look at the largest free block of each
//! stream, pool and kind of segment, and to lock each lane for a moment: hardly longer where there are more blocks, but where there are more
//! streams and pools. Only a look that finds too much has the blocks that are set aside join their neighbours, and looks again: what counts
//! is what a request would find. A monitor keeps no allocator alive, and ends with it; in a forked child there is none.

mod alert;
mod watch;

use std::fmt;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gpumem_channel::{MONITOR, Process};

pub use alert::{Alert, Done, Measure};

use crate::error::Error;
use crate::heap::{self, Access};
use crate::home::Home;
use crate::process::{Unsignalled, say};
use alert::Reading;
use watch::{Told, Watch};

/// What a monitor does when it finds too much fragmentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// Says so: on stderr, or to the listener if there is one.
    #[default]
    Warn,
    /// Gives the cache back as [`Allocator::release_cached`](crate::Allocator::release_cached) does, which waits for the device, and
    /// says so.
    Release,
    /// Makes the cache compact as [`Allocator::compact`](crate::Allocator::compact) does, and says so.
    Compact,
}

/// What a monitor looks for. `MonitorConfig::default()` warns when more than half of 256 MiB or more of free memory is in other pieces
/// than the largest of each pool, and of what is no pool's, for 10 s.
#[derive(Clone, Debug)]
pub struct MonitorConfig {
    /// The ratio it looks at.
    pub measure: Measure,
    /// How much is too much: above 0 and below 1.
    pub above: f64,
    /// For how long.
    pub lasting: Duration,
    /// An episode is over, and the next one is told again, when the ratio is below this. `None`: nine tenths of `above`.
    ///
    /// What was done helped if the ratio is below this afterwards, however much was given back. If it did not, the episode goes on; what was
    /// done is tried again, and told only if it helps then. What helped may be undone at once. So after both there is a pause in which
    /// nothing is done; an episode that has begun in it is told at its end. The first is as long as `lasting`, each further one twice as long as
    /// the one before, at least 1 s and at most 5 minutes. Once the ratio has stayed below this for as long as the last pause, the next is
    /// a first one again. After a warning there is none.
    pub below: Option<f64>,
    /// Less free memory than this many bytes is never too much. What is free in private pools counts only for [`Measure::Cached`].
    pub least: u64,
    /// How often it looks; at least 1 ms.
    pub every: Duration,
    /// What it does.
    pub action: Action,
    /// Whom it tells; `None`: stderr. One that panics is not called again, and what it was to be told goes to stderr, too.
    pub listener: Option<Listener>,
}

impl Default for MonitorConfig {
    fn default() -> MonitorConfig {
        MonitorConfig {
            measure: Measure::External,
            above: 0.5,
            lasting: Duration::from_secs(10),
            below: None,
            least: 256 << 20,
            every: Duration::from_millis(500),
            action: Action::Warn,
            listener: None,
        }
    }
}

impl MonitorConfig {
    /// Whether it can work.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let fail = |reason: &str| {
            Err(Error::Config {
                setting: "monitor",
                reason: reason.to_owned(),
            })
        };
        let inside = |ratio: f64| ratio > 0.0 && ratio < 1.0;
        if !inside(self.above) {
            return fail("the ratio must be above 0 and below 1");
        }
        if self.below.is_some_and(|below| !inside(below) || below > self.above) {
            return fail("an episode must end at a ratio above 0 that is no higher than the one it begins at");
        }
        if self.every < Duration::from_millis(1) {
            return fail("looking more often than once in 1 ms is not watching but disturbing");
        }
        Ok(())
    }
}

/// A function that a monitor calls, on its thread and without any lock. It must not own the allocator: that would never end then.
#[derive(Clone)]
pub struct Listener(Arc<dyn Fn(&Alert) + Send + Sync>);

impl Listener {
    /// Calls this.
    pub fn new(listener: impl Fn(&Alert) + Send + Sync + 'static) -> Listener {
        Listener(Arc::new(listener))
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

/// A running monitor. Dropping it stops it, and waits for what it is doing just now.
///
/// ```
/// use gpumem_alloc::{Action, Allocator, Config, Listener, MonitorConfig, device};
///
/// # fn main() -> Result<(), gpumem_alloc::Error> {
/// # let config = Config { publish: gpumem_alloc::Publish::Off, ..Config::default() };
/// # let alloc = Allocator::new(device::sim(Default::default()), config)?;
/// let _monitor = alloc.monitor(MonitorConfig {
///     action: Action::Compact,
///     listener: Some(Listener::new(|alert| eprintln!("{alert}"))),
///     ..MonitorConfig::default()
/// })?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the monitor stops when this is dropped"]
pub struct Monitor {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    process: Process,
}

impl Monitor {
    /// Starts one for the heap in a home.
    pub(crate) fn start(home: &'static Home, config: MonitorConfig) -> Result<Monitor, Error> {
        config.check()?;
        let mut eye = Eye::new(home, config)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let began = Instant::now();
        let watch = move || {
            while !stopped.load(Ordering::Acquire) && eye.look(began.elapsed()) {
                std::thread::park_timeout(eye.config.every);
            }
        };
        let unsignalled = Unsignalled::begin();
        let thread = std::thread::Builder::new()
            .name("gpumem-monitor".to_owned())
            .spawn(watch);
        drop(unsignalled);
        let thread = thread.map_err(|error| Error::Config {
            setting: "monitor",
            reason: format!("its thread could not be started: {error}"),
        })?;
        Ok(Monitor {
            stop,
            thread: Some(thread),
            process: Process::current(),
        })
    }

    /// Has it end by itself. Waits for nobody.
    pub(crate) fn end(&self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.as_ref().filter(|_| self.process.is_current()) {
            thread.thread().unpark();
        }
    }

    /// Whether it still watches: it ends with its allocator, at its next look.
    pub fn is_running(&self) -> bool {
        self.process.is_current() && self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

// Its listener's panics do not leave its thread.
impl UnwindSafe for Monitor {}
impl RefUnwindSafe for Monitor {}

impl Drop for Monitor {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if !self.process.is_current() {
            // A forked child: the thread is the parent's.
            return std::mem::forget(thread);
        }
        self.stop.store(true, Ordering::Release);
        thread.thread().unpark();
        if thread.thread().id() != std::thread::current().id() {
            let _ = thread.join();
        }
    }
}

/// The monitor without its thread and its clock.
#[derive(Debug)]
struct Eye {
    home: &'static Home,
    tenant: u64,
    device: u32,
    config: MonitorConfig,
    watch: Watch,
}

impl Eye {
    fn new(home: &'static Home, config: MonitorConfig) -> Result<Eye, Error> {
        let below = config.below.unwrap_or(config.above * 0.9);
        Ok(Eye {
            tenant: home.tenant()?,
            device: home.device()?.info().ordinal,
            watch: Watch::new(config.above, below, config.lasting),
            home,
            config,
        })
    }

    /// Looks, `now` after some beginning. Whether there still is something to look at.
    fn look(&mut self, now: Duration) -> bool {
        let Eye { config, watch, .. } = self;
        let found = self.home.visit(self.tenant, |heap| {
            let mut reading = Reading::of(heap, config.measure, false);
            if config.ratio(&reading).is_some_and(|ratio| ratio > config.above) {
                reading = Reading::of(heap, config.measure, true);
            }
            let ratio = config.ratio(&reading);
            let told = watch.look(now, ratio)?;
            Some((reading, ratio.unwrap_or(0.0), told))
        });
        let Some(found) = found else { return false };
        let Some((reading, ratio, told)) = found else {
            return true;
        };
        // Not under the lock that it looked under: what it does may take long.
        let Some(mut turn) = self.home.turn_of(self.tenant) else {
            return false;
        };
        let done = self.config.action.take(&mut turn);
        // Much may have been given back that was not what the ratio is high for.
        let helped = done.changed_something() && {
            let after = turn.heap(|heap| self.config.ratio(&Reading::of(heap, self.config.measure, true)));
            after.is_ok_and(|ratio| self.watch.is_over(ratio))
        };
        drop(turn);
        // To be warned once more helps nobody.
        if self.config.action != Action::Warn {
            self.watch.acted(helped);
        }
        let lasted = match told {
            Told::Begun(lasted) => lasted,
            Told::GoesOn(lasted) if helped => lasted,
            Told::GoesOn(_) => return true,
        };
        self.tell(&Alert {
            device: self.device,
            measure: self.config.measure,
            ratio,
            lasted,
            reserved: reading.reserved,
            allocated: reading.allocated,
            free: reading.free,
            largest_of_each: reading.largest_of_each,
            done,
        });
        true
    }

    fn tell(&mut self, alert: &Alert) {
        if let Some(listener) = self.config.listener.take() {
            // Nothing of ours is half done while it runs; what becomes of its own, whoever wrote it knows.
            if catch_unwind(AssertUnwindSafe(|| (listener.0)(alert))).is_ok() {
                self.config.listener = Some(listener);
                return;
            }
            say("gpumem: a monitor's listener panicked: it is not called again");
        }
        say(&format!("gpumem: {alert}"));
    }
}

impl MonitorConfig {
    /// `None`: there is too little free memory to speak of it.
    fn ratio(&self, reading: &Reading) -> Option<f64> {
        if reading.free.total < self.least {
            return None;
        }
        let part = |bytes: u64, of: u64| (of > 0).then(|| bytes as f64 / of as f64);
        match self.measure {
            Measure::External => part(reading.largest_of_each, reading.free.total).map(|served| 1.0 - served),
            Measure::Cached => part(reading.free.total, reading.reserved),
        }
    }
}

impl Action {
    fn take(self, on: &mut impl Access) -> Done {
        // One name each, and not one for each alert: a channel keeps a thousand.
        let begun = on.heap(|heap| heap.mark(&format!("{MONITOR}fragmented")));
        let done = begun.and_then(|()| match self {
            Action::Warn => Ok(Done::Warned),
            Action::Release => heap::release_cached(on).map(Done::Released),
            Action::Compact => heap::compact(on).map(Done::Compacted),
        });
        if self != Action::Warn {
            // A forked child has no monitor.
            let _ = on.heap(|heap| heap.mark(&format!("{MONITOR}tidied up")));
        }
        done.unwrap_or_else(|error| Done::Failed(error.to_string()))
    }
}

#[cfg(test)]
#[path = "pools_tests.rs"]
mod pools_tests;
#[cfg(test)]
#[path = "tests.rs"]
mod tests;
#[cfg(test)]
#[path = "thread_tests.rs"]
mod thread_tests;
