//! Trouble that no call returns as an error: what was asked for was done.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::say;

static TELLER: OnceLock<fn(&str)> = OnceLock::new();
static SAID: AtomicBool = AtomicBool::new(false);

/// Has all trouble told to a function from now on, on the thread that is in it. Without one the first is said on stderr. Only one function is
/// ever told.
pub fn tell_trouble_to(teller: fn(&str)) {
    // Who is told already stays so.
    let _ = TELLER.set(teller);
}

/// Tells of trouble.
pub(crate) fn tell_trouble(text: &str) {
    match TELLER.get() {
        Some(teller) => teller(text),
        None if SAID.swap(true, Ordering::Relaxed) => {}
        None => say(&format!("gpumem: {text}")),
    }
}
