//! Pages that bounce between processors (uvm_perf_thrashing.c, with the defaults of its parameters).

use std::collections::HashMap;

use super::mask::Mask;
use super::{PAGES, cost};

/// The moves of a page that follow each other within this time are bounces (`uvm_perf_thrashing_lapse_usec`).
const LAPSE: u64 = 500_000;
/// Number of bounces from which on a page is thrashing (`uvm_perf_thrashing_threshold`).
const THRESHOLD: u32 = 3;
/// Number of throttlings after which a page is pinned (`uvm_perf_thrashing_pin_threshold`).
const NAPS: u32 = 10;
/// How long a page stays pinned (`uvm_perf_thrashing_pin` times the lapse).
const PIN: u64 = 300 * LAPSE;

/// The recent moves of one page.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    last: u64,
    bounces: u32,
    naps: u32,
    pinned_until: Option<u64>,
}

/// What to do with a page that is about to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Move it.
    Move,
    /// Hold up the processor first, so that the other gets some work done.
    Nap,
    /// Keep it where both reach it.
    Pin,
}

/// The pages that moved lately.
#[derive(Clone, Debug, Default)]
pub(super) struct Bounces {
    pages: HashMap<usize, Recent>,
    /// Pages that may be pinned. Mostly there are none.
    pinned: Vec<usize>,
    /// Pages that were found to be thrashing so far, each as often as it was.
    thrashing: u64,
}

impl Bounces {
    /// Notes that a page is about to move because of a fault.
    pub(super) fn bounce(&mut self, page: usize, now: u64) -> Verdict {
        let recent = self.pages.entry(page).or_default();
        if recent.pinned_until.is_some_and(|until| now < until) {
            return Verdict::Pin;
        }
        if recent.bounces > 0 && now - recent.last > LAPSE {
            *recent = Recent::default();
        }
        recent.last = now;
        recent.bounces += 1;
        if recent.bounces < THRESHOLD {
            return Verdict::Move;
        }
        self.thrashing += u64::from(recent.bounces == THRESHOLD);
        if recent.naps < NAPS {
            recent.naps += 1;
            // The time of a nap is not a pause between two moves.
            recent.last += cost::NAP;
            return Verdict::Nap;
        }
        recent.pinned_until = Some(now + PIN);
        self.pinned.push(page);
        Verdict::Pin
    }

    /// Returns how often a page was found to be thrashing.
    pub(super) fn thrashing(&self) -> u64 {
        self.thrashing
    }

    /// Returns the pages whose pin ended, and forgets their moves.
    pub(super) fn expired(&mut self, now: u64) -> Vec<usize> {
        let until = |page: &usize| self.pages.get(page).and_then(|recent| recent.pinned_until);
        let ended = |page: &usize| until(page).is_none_or(|until| until <= now);
        let (ended, pinned) = self.pinned.iter().copied().partition(ended);
        self.pinned = pinned;
        for page in &ended {
            self.pages.remove(page);
        }
        ended
    }

    /// Returns the pinned pages of a block.
    pub(super) fn of_block(&self, index: usize) -> Mask {
        let mut mask = Mask::default();
        for page in self.pinned.iter().filter(|page| **page / PAGES == index) {
            mask.set(page % PAGES);
        }
        mask
    }
}
