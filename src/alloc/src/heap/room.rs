//! Who may count how much: the heap and every lane count for themselves, and peaks are of all of them together.
//!
//! Each may count up only as far as it was [allowed](crate::counts). Who comes to that limit gets, figure by figure: some of what is left
//! below the peak, else some of what others may count and do not. Only when nobody has any does the peak rise, and then what is allowed is
//! what is counted. Lanes that wait for it at the same time are served together ([`wish`](crate::lane::Wish)).

use gpumem_channel::PoolId;

use super::Heap;
use super::allocate::Request;
use super::streams::LaneOf;
use crate::counts::{BOTH, SPLITS, pool_number};
use crate::lane::{Lane, Wish};
use crate::size::half;

/// Who counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Heap,
    Lane(u8),
}

impl Heap {
    /// Lets a lane hand out a block of `size` bytes for a request.
    pub(super) fn make_room_for(&mut self, lane: u8, request: &Request, size: u64) {
        self.make_room(lane, pool_number(request.pool), request.requested, size);
    }

    /// Lets a lane count one more block of a pool.
    pub(super) fn make_room(&mut self, lane: u8, pool: usize, requested: u64, size: u64) {
        self.allow::<0, _>(Who::Lane(lane), pool, [1, requested, size]);
    }

    /// Lets a lane, which is locked, count a block that is wished for, as far as nobody else has to give up anything. Whether it may.
    #[inline(always)]
    pub(super) fn make_room_in(&mut self, lane: &mut Lane, wish: &Wish) -> bool {
        let (ledger, by) = (&mut self.ledger, [1, wish.requested, wish.size]);
        let lacks = lacks(half(wish.size), by, |row, figure, by| {
            ledger.allow(&mut lane.counts, row, figure, by)
        });
        lacks.as_flattened().iter().sum::<u64>() == 0
    }

    /// Lets a lane count one more inactive split of a pool.
    pub(super) fn make_room_for_split(&mut self, lane: u8, pool: usize, size: u64) {
        self.allow::<SPLITS, _>(Who::Lane(lane), pool, [1, size]);
    }

    /// Counts a block of `size` bytes that is handed out for a request.
    #[inline(always)]
    pub(super) fn count_allocated(&mut self, request: &Request, size: u64) {
        let (pool, requested) = (request.pool, request.requested);
        while !self.ledger.allocated(pool, size, requested) {
            self.make_own_room(request.stream, pool, requested, size);
        }
    }

    /// Counts a free block that is an inactive split.
    #[inline(always)]
    pub(super) fn count_split(&mut self, pool: PoolId, size: u64) {
        while !self.ledger.split_added(pool, size) {
            self.make_own_room_for_split(pool, size);
        }
    }

    /// Where a stream's lane may count no block more, and its thread just gave one back here, what that leaves is the lane's: a program that
    /// always holds as many blocks as it ever did would wish for it at every other request.
    #[inline(always)]
    pub(super) fn leave_room_to_lane(&mut self, stream: u16) {
        let own = &mut self.ledger.own;
        if let LaneOf::Some(lane) = self.streams.line(stream).lane
            && own.lacks(BOTH, 0, 1) == 0
        {
            self.front.with_mine(lane, |lane| own.pass_one(&mut lane.counts));
        }
    }

    #[inline(never)]
    fn make_own_room(&mut self, stream: u16, pool: PoolId, requested: u64, size: u64) {
        let own = &mut self.ledger.own;
        if let LaneOf::Some(lane) = self.streams.line(stream).lane
            && own.lacks(BOTH, 0, 1) != 0
            && self.front.with_mine(lane, |lane| lane.counts.pass_one(own)) == Some(true)
        {
            return;
        }
        self.allow::<0, _>(Who::Heap, pool_number(pool), [1, requested, size]);
    }

    #[cold]
    #[inline(never)]
    fn make_own_room_for_split(&mut self, pool: PoolId, size: u64) {
        self.allow::<SPLITS, _>(Who::Heap, pool_number(pool), [1, size]);
    }

    /// Allows somebody to count so much more of the figures from one on. Raises peaks if they have to be, which the caller tells.
    fn allow<const FROM: usize, const N: usize>(&mut self, who: Who, pool: usize, by: [u64; N]) {
        let ledger = &mut self.ledger;
        let lacks = match who {
            Who::Heap => lacks(pool, by, |row, figure, by| ledger.allow_own(row, FROM + figure, by)),
            Who::Lane(lane) => {
                let lacks = self.front.with(lane, |lane| {
                    lacks(pool, by, |row, figure, by| {
                        ledger.allow(&mut lane.counts, row, FROM + figure, by)
                    })
                });
                lacks.unwrap_or([[0; N]; 2])
            }
        };
        for (row, lacks) in [pool, BOTH].into_iter().zip(lacks) {
            for (figure, lack) in lacks.into_iter().enumerate().filter(|(_, lack)| *lack != 0) {
                self.allow_at_others_expense(who, (row, FROM + figure), lack);
            }
        }
    }

    /// The same where neither what is left below the peak is enough nor what the heap may count.
    #[inline(never)]
    fn allow_at_others_expense(&mut self, who: Who, (row, figure): (usize, usize), lack: u64) {
        let mut found = 0;
        for lane in self.front.numbers() {
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

/// What somebody lacks of each figure of a pool, and of both pools together, who is allowed so much more.
#[inline(always)]
fn lacks<const N: usize>(pool: usize, by: [u64; N], mut allow: impl FnMut(usize, usize, u64) -> u64) -> [[u64; N]; 2] {
    [pool, BOTH].map(|row| {
        let mut lacks = by;
        for (figure, by) in lacks.iter_mut().enumerate() {
            *by = allow(row, figure, *by);
        }
        lacks
    })
}
