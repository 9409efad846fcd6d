//! Tests that fork.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../common/mod.rs"]
mod common;

mod embedded;
mod forks;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Runs the tests one at a time: a child forked by one test would inherit the descriptors, and so the locks, of the
/// others.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
