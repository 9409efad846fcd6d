//! Samples NVML. Loading it takes 20 ms, and a call into a failing driver may never return.

mod checks;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use gpumem_probe::{Facts, Gpu, GpuState, Nvml, NvmlSample, NvmlState};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::sampler::{sleep_until_tick, spawn};
use super::{Requests, Source};
use crate::check::Check;
use crate::clock;
use crate::model::{Inputs, Model, Request, Sample, Setup};

/// Returns the file that `GPUMEM_NVML` names to be loaded in place of the driver's library, cleaned for display.
pub(crate) fn named() -> Option<String> {
    let file = std::env::var_os("GPUMEM_NVML").filter(|file| !file.is_empty())?;
    Some(gpumem_text::clean(&file.to_string_lossy()))
}

/// Time after which a failed library is loaded again: the driver may work by then.
const RETRY: Duration = Duration::from_secs(10);

/// Whether a sampler is in a driver call, which may never return.
static IN_DRIVER: AtomicBool = AtomicBool::new(false);

/// Checks whether a sampler is in the driver's library now, or loading it. Only one samples at a time.
pub(crate) fn in_driver() -> bool {
    IN_DRIVER.load(Ordering::Relaxed)
}

/// Calls the driver, and sets [`IN_DRIVER`] meanwhile.
fn call<T>(body: impl FnOnce() -> T) -> T {
    IN_DRIVER.store(true, Ordering::Relaxed);
    let answer = body();
    IN_DRIVER.store(false, Ordering::Relaxed);
    answer
}

/// NVIDIA's driver, through NVML. The first sample loads the library.
#[derive(Default)]
pub(super) struct Driver {
    /// `None` while it does not work.
    nvml: Option<Nvml>,
    /// The state in the newest sample.
    state: NvmlState,
    /// The GPUs of the newest sample, which are still listed (as lost) when the library has to be loaded again.
    known: Vec<Gpu>,
}

impl Source for Driver {
    fn name(&self) -> &'static str {
        "nvml"
    }

    fn is_wanted(&self, setup: &Setup) -> bool {
        !setup.only_simulated()
    }

    fn sample(&mut self, _: &Request) -> Sample {
        let nvml = &mut self.nvml;
        let mut known = std::mem::take(&mut self.known);
        let sample = call(|| {
            if nvml.is_none() {
                match Nvml::load(None) {
                    Ok(mut loaded) => {
                        loaded.remember(known);
                        *nvml = Some(loaded);
                    }
                    Err(state) => {
                        known.iter_mut().for_each(|gpu| mark_lost(gpu, &state));
                        return NvmlSample {
                            gpus: known,
                            ..without_figures(state)
                        };
                    }
                }
            }
            nvml.as_mut().map(Nvml::sample).unwrap_or_default()
        });
        self.state = sample.state.clone();
        self.known.clone_from(&sample.gpus);
        Sample::Nvml(sample)
    }

    fn sample_once(&mut self, _: &Request) -> Sample {
        Sample::Nvml(sample_once())
    }

    fn wait(&mut self, pace: Duration, _: &Requests) -> bool {
        match self.state {
            // A driver is not expected to be installed while the dashboard runs.
            NvmlState::Missing => return false,
            NvmlState::Failed { .. } => {
                self.nvml = None;
                std::thread::sleep(RETRY.max(pace));
            }
            NvmlState::Starting | NvmlState::Ready => sleep_until_tick(pace),
        }
        true
    }

    fn checks(&self, facts: &Facts, inputs: &Inputs) -> Vec<Check> {
        checks::all(facts, &inputs.nvml)
    }

    fn json(&self, model: &Model) -> serde_json::Result<Option<Box<RawValue>>> {
        let world = model.world();
        let (state, error, hint) = match &world.nvml {
            _ if !self.is_wanted(&model.setup) => ("not-asked", None, None),
            NvmlState::Starting => ("starting", None, None),
            NvmlState::Ready => ("ok", None, None),
            NvmlState::Missing => ("missing", None, None),
            NvmlState::Failed { error, hint } => ("failing", Some(error.as_str()), Some(hint.as_str())),
        };
        to_raw_value(&Json {
            state,
            error,
            hint,
            driver: world.driver.version.as_deref(),
            cuda: world.driver.cuda.map(|(major, minor)| format!("{major}.{minor}")),
        })
        .map(Some)
    }
}

/// The `nvml` field of the JSON document, as `JSON.md` describes it.
#[derive(Serialize)]
struct Json<'a> {
    state: &'static str,
    error: Option<&'a str>,
    hint: Option<&'a str>,
    driver: Option<&'a str>,
    cuda: Option<String>,
}

/// How long a report waits for the driver. Without persistence mode the driver takes one or two seconds to initialise each
/// GPU.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long a report waits for NVML's slow figures (their query sleeps 20 ms).
const SLOW: Duration = Duration::from_millis(200);

/// Takes one sample for a report.
fn sample_once() -> NvmlSample {
    // The first call finds the clock in the vDSO, which takes the loader's lock, so it has to come first.
    clock::now();
    // Not a std channel: its first wait registers a thread destructor, which takes the loader's lock. A library that hangs
    // while it is loaded holds that lock.
    let sampled = Arc::new((Mutex::new(None), Condvar::new()));
    let done = sampled.clone();
    let started = spawn("nvml", move || {
        let answer = call(sample);
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
        without_figures(NvmlState::Failed {
            error: format!("no answer within {} s", PATIENCE.as_secs()),
            hint: "the driver hangs: look for Xid errors in dmesg, and reset the GPU or reboot".into(),
        })
    })
}

fn sample() -> NvmlSample {
    let mut nvml = match Nvml::load(None) {
        Ok(nvml) => nvml,
        Err(state) => return without_figures(state),
    };
    // The first sample starts the slow query; the second one has its figures.
    nvml.sample();
    nvml.wait_for_slow(SLOW);
    nvml.sample()
}

/// Marks a GPU as lost because the driver cannot be asked any more.
fn mark_lost(gpu: &mut Gpu, state: &NvmlState) {
    let why = match state {
        NvmlState::Failed { error, .. } => error.as_str(),
        _ => "the driver's library is gone",
    };
    gpu.state = GpuState::Lost(why.to_owned());
}

/// Returns a sample without figures; `state` says why.
fn without_figures(state: NvmlState) -> NvmlSample {
    NvmlSample {
        state,
        ..NvmlSample::default()
    }
}
