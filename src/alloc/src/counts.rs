//! What one of those that hand out blocks counts: the heap, or a lane.
//!
//! Peaks are of all of them together, and exact. So each may count up only as far as it was allowed to: what all are allowed never
//! passes a peak. Who comes to that limit has the heap allow more, which raises the peak if it has to.

use gpumem_channel::{DeviceStats, LanePool, LaneStat, PoolId};

/// Figures of a pool: blocks held, bytes asked for and bytes of these, inactive splits and their bytes.
pub(crate) const FIGURES: usize = 5;

/// Figures of the small pool, of the large one, and of [`BOTH`].
pub(crate) type Figures = [[u64; FIGURES]; 3];

/// Both pools together, among [`Figures`].
pub(crate) const BOTH: usize = 2;

/// Where they are among a pool's figures as the channel has them, and which of [`FIGURES`] each is.
pub(crate) const PLACES: [(usize, usize); 7] = [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (7, 3), (8, 4)];

/// Where the figures of splits begin.
pub(crate) const SPLITS: usize = 3;

/// A pool's number among [`Figures`].
#[inline(always)]
pub(crate) fn pool_number(pool: PoolId) -> usize {
    usize::from(pool != PoolId::SMALL)
}

/// What one counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// What it may yet count up.
    room: [[i64; FIGURES]; 3],
    /// The same and what it counts now.
    allowed: Figures,
    /// All that ever came, by pool.
    came: [[u64; FIGURES]; 2],
}

/// What a count leaves of `N` figures' room; below zero: there is not enough.
#[inline(always)]
fn left<const N: usize>(room: &[i64], by: [u64; N]) -> ([i64; N], i64) {
    let mut left = [0; N];
    let mut sign = 0;
    for i in 0..N {
        left[i] = room[i] - by[i] as i64;
        sign |= left[i];
    }
    (left, sign)
}

impl Counts {
    /// Counts a block that is handed out, if there is room.
    #[inline(always)]
    pub(crate) fn allocate(&mut self, pool: usize, requested: u64, size: u64) -> bool {
        self.add::<0, SPLITS>(pool, [1, requested, size])
    }

    /// Counts an inactive split, if there is room.
    #[inline(always)]
    pub(crate) fn add_split(&mut self, pool: usize, size: u64) -> bool {
        self.add::<SPLITS, { FIGURES - SPLITS }>(pool, [1, size])
    }

    #[inline(always)]
    fn add<const FROM: usize, const N: usize>(&mut self, pool: usize, by: [u64; N]) -> bool {
        let (own, sign) = left(&self.room[pool][FROM..], by);
        let (both, other_sign) = left(&self.room[BOTH][FROM..], by);
        if sign | other_sign < 0 {
            return false;
        }
        self.room[pool][FROM..FROM + N].copy_from_slice(&own);
        self.room[BOTH][FROM..FROM + N].copy_from_slice(&both);
        for (came, by) in self.came[pool][FROM..].iter_mut().zip(by) {
            *came += by;
        }
        true
    }

    /// Counts down: a block that is given back, or an inactive split that is none any more.
    #[inline(always)]
    pub(crate) fn subtract(&mut self, pool: usize, by: [u64; FIGURES]) {
        for row in [pool, BOTH] {
            for (room, by) in self.room[row].iter_mut().zip(by) {
                *room += by as i64;
            }
        }
    }

    /// What room for so much more of a figure lacks.
    #[inline(always)]
    pub(crate) fn lacks(&self, row: usize, figure: usize, by: u64) -> u64 {
        (by as i64 - self.room[row][figure]).max(0) as u64
    }

    /// Allows more of a figure.
    #[inline(always)]
    pub(crate) fn allow(&mut self, row: usize, figure: usize, more: u64) {
        self.room[row][figure] += more as i64;
        self.allowed[row][figure] += more;
    }

    /// Gives up some of what may be counted of a figure and is not: what another one lacks or half of it, whichever is more, as far as
    /// there is any.
    pub(crate) fn give_up(&mut self, row: usize, figure: usize, lack: u64) -> u64 {
        let room = self.room[row][figure];
        let less = lack.max(room as u64 / 2).min(room as u64);
        self.room[row][figure] -= less as i64;
        self.allowed[row][figure] -= less;
        less
    }

    /// Gives up all that may be counted and is not. How much that was.
    pub(crate) fn give_up_all(&mut self) -> Figures {
        let less = self.room.map(|row| row.map(|room| room as u64));
        for (allowed, less) in self.allowed.as_flattened_mut().iter_mut().zip(less.as_flattened()) {
            *allowed -= less;
        }
        self.room = Default::default();
        less
    }

    /// Lets another one count a block of either pool more, if it may count none and this one may. Whether it does.
    #[inline(always)]
    pub(crate) fn pass_one(&mut self, to: &mut Counts) -> bool {
        let passes = self.room[BOTH][0] > 0 && to.room[BOTH][0] == 0;
        if passes {
            self.room[BOTH][0] -= 1;
            self.allowed[BOTH][0] -= 1;
            to.allow(BOTH, 0, 1);
        }
        passes
    }

    /// What is counted from now on, with the leave for it, is another's. It stays in what ever came here.
    pub(crate) fn hand_over(&mut self, pool: usize, less: [u64; FIGURES]) {
        for row in [pool, BOTH] {
            for (allowed, less) in self.allowed[row].iter_mut().zip(less) {
                *allowed -= less;
            }
        }
    }

    /// The other end of it.
    pub(crate) fn take_over(&mut self, pool: usize, more: [u64; FIGURES]) {
        for row in [pool, BOTH] {
            for (allowed, more) in self.allowed[row].iter_mut().zip(more) {
                *allowed += more;
            }
        }
    }

    /// What may be counted, and what is.
    #[cfg(test)]
    pub(crate) fn allowed(&self) -> Figures {
        self.allowed
    }

    /// What is counted now.
    pub(crate) fn current(&self, pool: usize) -> [u64; FIGURES] {
        std::array::from_fn(|i| self.allowed[pool][i] - self.room[pool][i] as u64)
    }

    /// All that ever came.
    pub(crate) fn came(&self, pool: usize) -> [u64; FIGURES] {
        self.came[pool]
    }

    /// Blocks that were given back so far, or handed over.
    pub(crate) fn frees(&self) -> u64 {
        let went = |pool: usize| self.came[pool][0] - self.current(pool)[0];
        went(0) + went(1)
    }

    /// Adds what is counted here, peaks aside.
    pub(crate) fn add_to(&self, stats: &mut DeviceStats) {
        for (pool, stats) in [&mut stats.small, &mut stats.large].into_iter().enumerate() {
            let (came, current) = (self.came(pool), self.current(pool));
            for (at, figure) in PLACES {
                let stat = &mut *stats.figures_mut()[at];
                stat.current += current[figure];
                stat.allocated += came[figure];
            }
        }
    }

    /// As the channel shows a lane's.
    pub(crate) fn as_lane(&self, pool: usize) -> LanePool {
        let (current, came) = (self.current(pool), self.came(pool));
        let figure = |i: usize| LaneStat {
            current: current[i],
            allocated: came[i],
        };
        LanePool {
            allocation: figure(0),
            requested_bytes: figure(1),
            allocated_bytes: figure(2),
            inactive_split: figure(3),
            inactive_split_bytes: figure(4),
        }
    }
}
