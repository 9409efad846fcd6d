//! What the allocators of this process are told: the environment's `GPUMEM_ALLOC_CONF`.

use std::ffi::c_char;
use std::sync::atomic::{AtomicBool, Ordering};

use gpumem::conf::Note;
use gpumem::device::Device;
use gpumem::{Allocator, Config, Error, SegmentMode};

use crate::boundary::{enter, write};
use crate::failure::Failure;

/// The allocator of a device, limited to a fraction of its memory if the program said so. What the environment says and cannot be
/// is said once, and the defaults hold instead: a program that allocates through here cannot do anything about it. So is what has no effect.
/// And how it takes memory.
pub(crate) fn allocator(device: Device, fraction: Option<f64>) -> Result<(Allocator, SegmentMode), Failure> {
    let limited = |config: Config| Config {
        budget_fraction: config.budget_fraction.into_iter().chain(fraction).reduce(f64::min),
        streams_may_end_untold: true,
        ..config
    };
    let can_map = device.info().virtual_memory;
    let told = Config::from_env().unwrap_or_else(|error| {
        complain(&error.to_string());
        Config::default()
    });
    let config = limited(told.clone());
    let segments = config.segments_on(can_map);
    let notes = config.without_effect();
    let made = Allocator::new(device.clone(), config);
    if !matches!(made, Err(Error::Config { .. })) {
        say_notes(&notes);
    }
    match made {
        // It may be no fault of the configuration's: its thread cannot be started where a process may have no more. Limits hold all the same.
        Err(error @ Error::Config { setting: "monitor", .. }) => {
            let unwatched = Config { monitor: None, ..told };
            let made = Allocator::new(device, limited(unwatched))?;
            say_once(&format!(
                "gpumem: {}: {error}\ngpumem: the allocator goes on without it",
                gpumem::conf::VARIABLE
            ));
            Ok((made, segments))
        }
        Err(error @ Error::Config { .. }) => {
            let made = Allocator::new(device, limited(Config::default()))?;
            complain(&format!("{}: {error}", gpumem::conf::VARIABLE));
            Ok((made, Config::default().segments_on(can_map)))
        }
        made => Ok((made?, segments)),
    }
}

/// # Safety
///
/// `text` is valid for writes of `room` bytes, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpumem_conf_error(text: *mut c_char, room: usize) -> i64 {
    enter("gpumem_conf_error", -1, || {
        let wrong = match Config::from_env() {
            Ok(config) => config
                .check()
                .err()
                .map(|error| format!("{}: {error}", gpumem::conf::VARIABLE)),
            Err(error) => Some(error.to_string()),
        };
        // SAFETY: the caller's contract.
        unsafe { write(&wrong.unwrap_or_default(), text, room) }
    })
}

fn complain(about: &str) {
    say_once(&format!(
        "gpumem: {about}\ngpumem: the allocator goes on with its defaults; GPUMEM_ALLOC_CONF is as if it were not set"
    ));
}

/// Once for all devices.
fn say_notes(notes: &[Note]) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !notes.is_empty() && !SAID.swap(true, Ordering::Relaxed) {
        let lines = notes
            .iter()
            .map(|note| format!("gpumem: {}: {note}", gpumem::conf::VARIABLE));
        gpumem::say(&lines.collect::<Vec<_>>().join("\n"));
    }
}

/// Not once for each device.
fn say_once(text: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        gpumem::say(text);
    }
}
