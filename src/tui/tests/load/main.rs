//! The program under load. Apart from the other tests, which would be slowed down: these take all of a machine's cores, and a thousand
//! open files.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod campaign;
mod crowd;

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static TURN: RwLock<()> = RwLock::new(());

/// Lets other tests run meanwhile that share, but none that is to be alone.
fn shared() -> RwLockReadGuard<'static, ()> {
    TURN.read().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the other tests waiting: a program that looks everywhere would see their channels, too, and answer late for their load.
fn alone() -> RwLockWriteGuard<'static, ()> {
    TURN.write().unwrap_or_else(PoisonError::into_inner)
}
