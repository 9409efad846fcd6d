//! Who may count how much: the heap and every lane count for themselves, and peaks are of all of them together.
//!
//! Each may count up only as far as it was [allowed](crate::counts). Who comes to that limit gets, figure by figure: some of what is left
//! below the peak, else some of what others may count and do not. Only when nobody has any does the peak rise, and then what is allowed is
//! what is counted.

use gpumem_channel::PoolId;

use super::Heap;
use super::allocate::Request;
use crate::counts::{BOTH, FIGURES, pool_number};
use crate::lane::LANES;

/// Who counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Heap,
    Lane(u8),
}

impl Heap {
    /// Lets a lane hand out a block of `size` bytes for a request.
    pub(super) fn make_room_for(&mut self, lane: u8, request: &Request, size: u64) {
        self.make_room(lane, pool_number(request.pool), [1, request.requested, size, 0, 0]);
    }

    /// Lets a lane count so much more in a pool.
    pub(super) fn make_room(&mut self, lane: u8, pool: usize, by: [u64; FIGURES]) {
        self.allow(Who::Lane(lane), pool, by);
    }

    /// Counts a block that is handed out.
    #[inline(always)]
    pub(super) fn count_allocated(&mut self, pool: PoolId, size: u64, requested: u64) {
        while !self.ledger.allocated(pool, size, requested) {
            self.make_own_room(pool, [1, requested, size, 0, 0]);
        }
    }

    /// Counts a free block that is an inactive split.
    #[inline(always)]
    pub(super) fn count_split(&mut self, pool: PoolId, size: u64) {
        while !self.ledger.split_added(pool, size) {
            self.make_own_room(pool, [0, 0, 0, 1, size]);
        }
    }

    #[cold]
    #[inline(never)]
    fn make_own_room(&mut self, pool: PoolId, by: [u64; FIGURES]) {
        self.allow(Who::Heap, pool_number(pool), by);
    }

    /// Allows somebody to count so much more. Raises peaks if they have to be, which the caller tells.
    fn allow(&mut self, who: Who, pool: usize, by: [u64; FIGURES]) {
        for row in [pool, BOTH] {
            for (figure, by) in by.into_iter().enumerate().filter(|(_, by)| *by != 0) {
                let ledger = &mut self.ledger;
                let lack = match who {
                    Who::Heap => ledger.allow_own(row, figure, by),
                    Who::Lane(lane) => {
                        let lack = self
                            .front
                            .with(lane, |lane| ledger.allow(&mut lane.counts, row, figure, by));
                        lack.unwrap_or(0)
                    }
                };
                if lack != 0 {
                    self.allow_at_others_expense(who, (row, figure), lack);
                }
            }
        }
    }

    /// The same where neither what is left below the peak is enough nor what the heap may count.
    #[inline(never)]
    fn allow_at_others_expense(&mut self, who: Who, (row, figure): (usize, usize), lack: u64) {
        let mut found = 0;
        for lane in 0..LANES as u8 {
            if found < lack && who != Who::Lane(lane) {
                let given = self
                    .front
                    .with(lane, |lane| lane.counts.give_up(row, figure, lack - found));
                found += given.unwrap_or(0);
            }
        }
        if found < lack {
            self.ledger.raise_peaks(row, figure, lack - found);
            found = lack;
        }
        match who {
            Who::Heap => self.ledger.own.allow(row, figure, found),
            Who::Lane(lane) => {
                self.front.with(lane, |lane| lane.counts.allow(row, figure, found));
            }
        }
    }
}
