//! Samples NVML on a thread of its own: loading it takes 20 ms, and a driver in trouble can take for ever.

mod checks;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use gpumem_probe::{Facts, Gpu, GpuState, Nvml, NvmlSample, NvmlState};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::sampler::{sleep_to_beat, spawn};
use super::{Requests, Source};
use crate::check::Check;
use crate::clock;
use crate::model::{Inputs, Model, Only, Request, Sample, Setup};

/// The file that is looked for in place of the driver's library, cleaned, where `GPUMEM_NVML` names one.
pub(crate) fn named() -> Option<String> {
    let file = std::env::var_os("GPUMEM_NVML").filter(|file| !file.is_empty())?;
    Some(gpumem_text::clean(&file.to_string_lossy()))
}

/// How often a library that fails is tried again: the driver may be loaded meanwhile.
const RETRY: Duration = Duration::from_secs(10);

/// A sampler is in the driver, and may never come back.
static IN_DRIVER: AtomicBool = AtomicBool::new(false);

/// Whether a sampler is in the driver's library now, be it that this is being loaded. Only one samples at a time.
pub(crate) fn in_driver() -> bool {
    IN_DRIVER.load(Ordering::Relaxed)
}

/// Calls the driver.
fn call<T>(body: impl FnOnce() -> T) -> T {
    IN_DRIVER.store(true, Ordering::Relaxed);
    let answer = body();
    IN_DRIVER.store(false, Ordering::Relaxed);
    answer
}

/// The driver, through its library. The first sample loads that.
#[derive(Default)]
pub(super) struct Driver {
    /// `None` while it does not work.
    nvml: Option<Nvml>,
    /// What the newest sample says.
    state: NvmlState,
    /// The GPUs of the newest sample: who they are outlives the library that told it.
    known: Vec<Gpu>,
}

impl Source for Driver {
    fn name(&self) -> &'static str {
        "nvml"
    }

    fn is_wanted(&self, setup: &Setup) -> bool {
        setup.only != Some(Only::Simulated)
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
                        known.iter_mut().for_each(|gpu| lose(gpu, &state));
                        return NvmlSample {
                            gpus: known,
                            ..none(state)
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

    fn rest(&mut self, pace: Duration, _: &Requests) -> bool {
        match self.state {
            // Nobody installs a driver under a running dashboard.
            NvmlState::Missing => return false,
            NvmlState::Failed { .. } => {
                self.nvml = None;
                std::thread::sleep(RETRY.max(pace));
            }
            NvmlState::Starting | NvmlState::Ready => sleep_to_beat(pace),
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

/// Its field in the JSON document. `JSON.md` says what they mean.
#[derive(Serialize)]
struct Json<'a> {
    state: &'static str,
    error: Option<&'a str>,
    hint: Option<&'a str>,
    driver: Option<&'a str>,
    cuda: Option<String>,
}

/// How long a report waits for the driver. Without persistence mode it takes a second or two a GPU to wake up.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long a report waits for NVML's slow figures (their query sleeps 20 ms).
const SLOW: Duration = Duration::from_millis(200);

/// One sample, for a report.
fn sample_once() -> NvmlSample {
    // The first look at the clock searches for it, which wants the loader's lock as well.
    clock::now();
    // A std channel would have the loader's lock when it first waits (it registers a destructor of the thread), which a library that
    // hangs while it is loaded holds.
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
        none(NvmlState::Failed {
            error: format!("no answer within {} s", PATIENCE.as_secs()),
            hint: "the driver hangs: look for Xid errors in dmesg, and reset the GPU or reboot".into(),
        })
    })
}

fn sample() -> NvmlSample {
    let mut nvml = match Nvml::load(None) {
        Ok(nvml) => nvml,
        Err(state) => return none(state),
    };
    // The first sample starts the slow query, the second has its figures.
    nvml.sample();
    nvml.wait_for_slow(SLOW);
    nvml.sample()
}

/// Marks a GPU whose driver cannot be asked any more.
fn lose(gpu: &mut Gpu, state: &NvmlState) {
    let why = match state {
        NvmlState::Failed { error, .. } => error.as_str(),
        _ => "the driver's library is gone",
    };
    gpu.state = GpuState::Lost(why.to_owned());
}

/// A sample that says why there are no figures.
fn none(state: NvmlState) -> NvmlSample {
    NvmlSample {
        state,
        ..NvmlSample::default()
    }
}
