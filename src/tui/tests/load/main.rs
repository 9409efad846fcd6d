//! Tests of the program under load. They are a test target of their own because they take all of a machine's cores and a thousand open
//! files, which would slow the other tests down.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod campaign;
mod crowd;

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static TURN: RwLock<()> = RwLock::new(());

/// Lets other tests that share run at the same time, but none that needs to be alone.
fn shared() -> RwLockReadGuard<'static, ()> {
    TURN.read().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the other tests wait. A program that looks everywhere would see their channels, too, and would be slowed down by their load.
fn alone() -> RwLockWriteGuard<'static, ()> {
    TURN.write().unwrap_or_else(PoisonError::into_inner)
}
