//! What others see of the memory while the demo runs: slow enough to follow, if somebody does.

use std::time::{Duration, Instant};

use gpumem_alloc::ManagedBuffer;

use crate::control::Control;
use crate::uvm::{BLOCK, Uvm};

/// Seconds that a second of the model takes while somebody watches.
pub(super) const SLOW_MOTION: u64 = 16;
/// The least time between two pictures.
const FRAME: Duration = Duration::from_millis(40);
/// How long a GPU rests after each access of much memory, so that a dashboard sees where that has gone.
const REST: Duration = Duration::from_millis(350);
/// Accesses of less memory are not rested after: pages that bounce have to do so within 500 microseconds.
const MUCH: u64 = BLOCK;

/// Shows what happens at a pace that can be followed. A parent that steers the demo is taken for somebody who watches.
pub(super) struct Screen<'a> {
    watched: Option<&'a Control>,
    /// Whether the watcher wants to see the end of this topic at once.
    skips: bool,
    /// The time of the model in the last picture.
    shown_ns: u64,
    /// How long all rests took.
    rested: Duration,
}

impl<'a> Screen<'a> {
    pub(super) fn new(watched: Option<&'a Control>) -> Screen<'a> {
        Screen {
            watched,
            skips: false,
            shown_ns: 0,
            rested: Duration::ZERO,
        }
    }

    /// Begins a topic: nothing of it is skipped so far.
    pub(super) fn begin(&mut self) {
        self.skips = false;
    }

    /// Returns how long all rests took.
    pub(super) fn rested(&self) -> Duration {
        self.rested
    }

    /// Shows the model if its last picture is old enough.
    pub(super) fn frame(&mut self, uvm: &Uvm, memory: &ManagedBuffer<u64>) {
        let ns = uvm.counters().ns;
        // A new model begins anew.
        self.shown_ns = self.shown_ns.min(ns);
        let since = Duration::from_nanos((ns - self.shown_ns).saturating_mul(SLOW_MOTION));
        if self.watched.is_some() && !self.skips && since >= FRAME {
            self.picture(uvm, memory);
            self.rest(since);
        }
    }

    /// Publishes the model's pages.
    pub(super) fn picture(&mut self, uvm: &Uvm, memory: &ManagedBuffer<u64>) {
        memory.publish_pages(&uvm.published(memory.device_ptr()), &uvm.counters().published());
        self.shown_ns = uvm.counters().ns;
    }

    /// Rests after a GPU's access of some pages.
    pub(super) fn rest_after(&mut self, bytes: u64) {
        if bytes >= MUCH {
            self.rest(REST);
        }
    }

    fn rest(&mut self, time: Duration) {
        let Some(control) = self.watched.filter(|_| !self.skips) else {
            return;
        };
        let began = Instant::now();
        self.skips = !control.pause_until(began + time);
        self.rested += began.elapsed();
    }
}
