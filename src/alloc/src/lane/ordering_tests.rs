//! Lanes under loom: interleavings, and reorderings that Rust's memory model allows, of the very files that programs run, over stand-ins
//! for atomics and locks. Processors that keep the order of stores, as x86's do, hide what is missing; those of Grace Hopper do not.
//!
//! What loom leaves to be thought about: it makes no relaxed load later than what its thread does next. All that is read relaxed here and
//! matters is read under the lock that it changes under; the rest are looks that may be wrong.
//!
//! The heap is played: what it does with lanes under its own lock, and in which order, is what the functions do that are named.
#![allow(clippy::unwrap_used, clippy::panic)]
#![allow(
    dead_code,
    clippy::duplicate_mod,
    reason = "what is taken in a second time is not all used here"
)]

use std::cell::Cell;
use std::panic::AssertUnwindSafe;

use gpumem_channel::StringId;
use loom::thread;

use super::told;
use super::{Held, Lent, Record, State, seen};
use crate::counts::{BOTH, FIGURES};
use crate::size::class_size;
use crate::stream::Stream;
use crate::tag::Tag;
use atomic::{Without, begin_execution, leave_out, prepare};
use front::{Front, place_of};
use lock::Lock;
use one::Lane;
use wish::Wish;

mod atomic;
#[path = "front.rs"]
mod front;
mod lock;
mod models;
#[path = "one.rs"]
mod one;
#[path = "quick.rs"]
mod quick;
#[path = "succession.rs"]
mod succession;
#[path = "wish.rs"]
mod wish;

thread_local! {
    static FRONT: Cell<Option<&'static Front>> = const { Cell::new(None) };
    static HEAP: Cell<Option<&'static Lock<Tenant>>> = const { Cell::new(None) };
}

/// As much of [`crate::home`]'s as decides when it is over.
#[derive(Debug, Default)]
struct Tenant {
    buffers: i64,
    orphaned: bool,
}

/// The model's.
fn front() -> &'static Front {
    FRONT.get().unwrap()
}

fn heap() -> &'static Lock<Tenant> {
    HEAP.get().unwrap()
}

/// Runs `model` under loom: what the first execution says that fails.
fn run(without: Without, model: fn()) -> Result<(), String> {
    leave_out(without);
    FRONT.set(Some(Front::alone()));
    HEAP.set(Some(Box::leak(Box::new(Lock::new(Tenant::default())))));
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 10_000;
    // More take long: with three nothing else was found.
    builder.preemption_bound = Some(2);
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
        builder.check(move || {
            begin_execution();
            model();
        });
    }));
    outcome.map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or(panic.downcast_ref::<String>().cloned()).unwrap_or_default()
    })
}

/// `model` must hold.
fn holds(model: fn()) {
    assert_eq!(run(Without::Nothing, model), Ok(()));
}

/// `model` must say `what`.
fn fails(without: Without, model: fn(), what: &str) {
    let outcome = run(without, model);
    let said = outcome.as_ref().is_err_and(|said| said.contains(what));
    assert!(said, "nobody misses it: {without:?}, {outcome:?}");
}

/// `model` must hold, and say `what` without any of these.
fn needs(model: fn(), what: &str, needed: &[Without]) {
    holds(model);
    needed.iter().for_each(|without| fails(*without, model, what));
}
