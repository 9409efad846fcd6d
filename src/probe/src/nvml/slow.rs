//! The figures that take long to get, on a thread of their own: PCIe throughput, two queries of 20 ms a GPU.
//!
//! It measures when asked by a sample, and not more often than once a second: a paused dashboard leaves the driver alone.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::MAX_GPUS;
use super::calls::Calls;
use super::gpu::reading;
use crate::{Reading, text};

/// Shortest time from the start of one round to the start of the next.
const PACE: Duration = Duration::from_secs(1);

/// What was measured on one GPU.
pub(super) struct Slow {
    pub(super) uuid: Option<[u8; 16]>,
    pub(super) rx: Reading<u64>,
    pub(super) tx: Reading<u64>,
    pub(super) at: Instant,
}

/// A round's figures, or why there are none.
pub(super) type Latest = Result<Arc<[Slow]>, String>;

pub(super) struct SlowSampler {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    latest: Latest,
    wanted: bool,
    stop: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlowSampler {
    pub(super) fn start(calls: &Arc<Calls>) -> Self {
        let state = State {
            latest: Ok(Arc::new([])),
            wanted: false,
            stop: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let (theirs, calls) = (shared.clone(), calls.clone());
        let thread = std::thread::Builder::new()
            .name("gpumem-pcie".into())
            .spawn(move || run(&theirs, &calls));
        if let Err(e) = thread {
            shared.lock().latest = Err(format!("starting the thread that measures it: {e}"));
        }
        SlowSampler { shared }
    }

    /// The figures of the last round; asks for the next one.
    pub(super) fn latest_and_request(&self) -> Latest {
        let mut state = self.shared.lock();
        state.wanted = true;
        self.shared.changed.notify_all();
        state.latest.clone()
    }

    /// Waits until the round that was asked for is done.
    pub(super) fn wait(&self, limit: Duration) -> bool {
        let state = self.shared.lock();
        let waiting = self
            .shared
            .changed
            .wait_timeout_while(state, limit, |s| s.wanted && s.latest.is_ok());
        let (state, timeout) = waiting.unwrap_or_else(PoisonError::into_inner);
        !timeout.timed_out() && state.latest.is_ok()
    }
}

impl Drop for SlowSampler {
    /// Does not wait for the thread: a driver call that hangs must not keep the program from ending.
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_all();
    }
}

fn run(shared: &Shared, calls: &Calls) {
    let mut last: Option<Instant> = None;
    loop {
        let mut state = shared.lock();
        loop {
            if state.stop {
                return;
            }
            let rest = last.map_or(Duration::ZERO, |at| PACE.saturating_sub(at.elapsed()));
            let waited = match (state.wanted, rest) {
                (true, Duration::ZERO) => break,
                (true, rest) => shared
                    .changed
                    .wait_timeout(state, rest)
                    .map(|(s, _)| s)
                    .map_err(|e| e.into_inner().0),
                (false, _) => shared.changed.wait(state).map_err(PoisonError::into_inner),
            };
            state = waited.unwrap_or_else(|poisoned| poisoned);
        }
        drop(state);
        last = Some(Instant::now());
        let round = measure(calls);
        let mut state = shared.lock();
        state.latest = Ok(round);
        state.wanted = false;
        shared.changed.notify_all();
    }
}

fn measure(calls: &Calls) -> Arc<[Slow]> {
    let count = calls.device_count().unwrap_or(0).min(MAX_GPUS);
    (0..count)
        .filter_map(|index| {
            let device = calls.device(index).ok()?;
            let uuid = calls.uuid(device).ok().and_then(|uuid| text::uuid_bytes(&uuid));
            let [rx, tx] = calls.pcie(device).map(|rate| reading(calls, rate));
            Some(Slow {
                uuid,
                rx,
                tx,
                at: Instant::now(),
            })
        })
        .collect()
}
