//! Slow queries, on their own thread: PCIe throughput, and whether MIG is on. PCIe throughput takes two queries of 21
//! ms a GPU, of which 0.5 to 0.9 ms are processor time (H100, driver 580).
//!
//! The thread measures only after a sample has requested it, so a paused dashboard leaves the driver alone. Its pace is
//! slow enough to take about a thousandth of a core.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::MAX_GPUS;
use super::calls::Calls;
use super::gpu::reading;
use super::mig;
use crate::Reading;
use gpumem_text::uuid;

/// Shortest time from the start of one round to the start of the next: the longer of `PACE` and `PACE_ROUNDS` times the
/// length of the round.
const PACE: Duration = Duration::from_secs(5);
const PACE_ROUNDS: u32 = 25;

/// The slow figures of one GPU.
pub(super) struct Slow {
    pub(super) uuid: Option<[u8; 16]>,
    pub(super) rx: Reading<u64>,
    pub(super) tx: Reading<u64>,
    pub(super) mig_on: Option<bool>,
    pub(super) at: Instant,
}

/// The figures of the last round, or why there are none.
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

    /// Waits until a round is requested and `time` has come. Returns false when the sampler is gone.
    fn wait_until_wanted(&self, time: Instant) -> bool {
        let mut state = self.lock();
        while !state.stop {
            let rest = time.saturating_duration_since(Instant::now());
            state = match (state.wanted, rest) {
                (true, Duration::ZERO) => return true,
                (true, rest) => {
                    self.changed
                        .wait_timeout(state, rest)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
                (false, _) => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        false
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

    /// Returns the figures of the last round and requests the next one.
    pub(super) fn latest_and_request(&self) -> Latest {
        let mut state = self.shared.lock();
        state.wanted = true;
        self.shared.changed.notify_all();
        state.latest.clone()
    }

    /// Waits until the requested round is done. Returns false when that takes longer than `limit`.
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
    let mut next = Instant::now();
    while shared.wait_until_wanted(next) {
        let start = Instant::now();
        let round = measure(calls);
        next = start + PACE.max(start.elapsed() * PACE_ROUNDS);
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
            let uuid = calls.uuid(&device).ok().and_then(|uuid| uuid::bytes(&uuid));
            let [rx, tx] = calls.pcie(&device).map(reading);
            Some(Slow {
                uuid,
                rx,
                tx,
                mig_on: mig::is_on(calls, &device),
                at: Instant::now(),
            })
        })
        .collect()
}
