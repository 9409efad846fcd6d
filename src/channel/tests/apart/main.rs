//! Tests that fork.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../common/mod.rs"]
mod common;

mod forks;
mod guest;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A child that one test forks has the descriptors of the others, and with them their life signs: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
