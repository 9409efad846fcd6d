//! Samples NVML on a thread of its own: loading it takes 20 ms, and a driver in trouble can take for ever.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use gpumem_probe::{Nvml, NvmlSample, NvmlState};

use super::{Slot, Wishes, sleep_to_beat, spawn};
use crate::clock;
use crate::model::Nanos;

/// The file that is looked for in place of the driver's library, cleaned, where `GPUMEM_NVML` names one.
pub fn named() -> Option<String> {
    let file = std::env::var_os("GPUMEM_NVML").filter(|file| !file.is_empty())?;
    Some(gpumem_text::clean(&file.to_string_lossy()))
}

/// How often a library that fails is tried again: the driver may be loaded meanwhile.
const RETRY: Duration = Duration::from_secs(10);

/// Starts sampling. Samples are put with the time they were taken.
///
/// # Errors
/// When the system allows no more threads.
pub fn start(interval: Duration, slot: Arc<Slot<(Nanos, NvmlSample)>>, wishes: Arc<Wishes>) -> std::io::Result<()> {
    spawn("nvml", move || run(interval, &slot, &wishes))
}

/// A sampler is in the driver, and may never come back.
static IN_DRIVER: AtomicBool = AtomicBool::new(false);

/// Whether a sampler is in the driver's library now, be it that this is being loaded. Only one samples at a time.
pub fn in_driver() -> bool {
    IN_DRIVER.load(Ordering::Relaxed)
}

/// Calls the driver.
fn call<T>(body: impl FnOnce() -> T) -> T {
    IN_DRIVER.store(true, Ordering::Relaxed);
    let answer = body();
    IN_DRIVER.store(false, Ordering::Relaxed);
    answer
}

fn run(interval: Duration, slot: &Slot<(Nanos, NvmlSample)>, wishes: &Wishes) {
    let newest = |_, new| new;
    loop {
        match call(|| Nvml::load(None)) {
            Ok(mut nvml) => loop {
                let sample = call(|| nvml.sample());
                let broken = matches!(sample.state, NvmlState::Failed { .. });
                wishes.look_up(listed(&sample));
                slot.put((clock::now(), sample), newest);
                if broken {
                    break;
                }
                sleep_to_beat(interval);
            },
            Err(state) => {
                let missing = state == NvmlState::Missing;
                slot.put((clock::now(), none(state)), newest);
                if missing {
                    // Nobody installs a driver under a running dashboard.
                    return;
                }
            }
        }
        std::thread::sleep(RETRY.max(interval));
    }
}

/// How long a report waits for the driver. Without persistence mode it takes a second or two a GPU to wake up.
const PATIENCE: Duration = Duration::from_secs(15);

/// One sample, for a report. `slow` is how long the figures that take time are waited for; none are without it.
pub fn sample_once(slow: Option<Duration>) -> NvmlSample {
    // The first look at the clock searches for it, which wants the loader's lock as well.
    clock::now();
    // A std channel would have the loader's lock when it first waits (it registers a destructor of the thread), which a library that
    // hangs while it is loaded holds.
    let sampled = Arc::new((Mutex::new(None), Condvar::new()));
    let done = sampled.clone();
    let started = spawn("nvml", move || {
        let answer = call(|| sample(slow));
        *done.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
        done.1.notify_one();
    });
    let answer = started.ok().and_then(|()| {
        let waiting = sampled.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = sampled
            .1
            .wait_timeout_while(waiting, PATIENCE, |answer| answer.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.take()
    });
    answer.unwrap_or_else(|| {
        none(NvmlState::Failed {
            error: format!("no answer within {} s", PATIENCE.as_secs()),
            hint: "the driver hangs: look for Xid errors in dmesg, and reset the GPU or reboot".into(),
        })
    })
}

fn sample(slow: Option<Duration>) -> NvmlSample {
    let mut nvml = match Nvml::load(None) {
        Ok(nvml) => nvml,
        Err(state) => return none(state),
    };
    let first = nvml.sample();
    match slow {
        None => first,
        Some(time) => {
            // The first sample starts the slow query, the second has its figures.
            nvml.wait_for_slow(time);
            nvml.sample()
        }
    }
}

/// A sample that says why there are no figures.
fn none(state: NvmlState) -> NvmlSample {
    NvmlSample {
        state,
        ..NvmlSample::default()
    }
}

/// Every pid of a sample.
pub fn listed(sample: &NvmlSample) -> Vec<u32> {
    let lists = sample.gpus.iter().filter_map(|gpu| gpu.processes.value());
    lists.flatten().map(|process| process.pid).collect()
}
