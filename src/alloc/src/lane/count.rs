//! What a lane counts by itself: its share of the device's figures.
//!
//! Peaks are of all lanes and the heap together, and exact. So a lane may count up only as far as the heap allowed it to: what the heap
//! counts and what all lanes may count never pass a peak. A lane that comes to that limit asks the heap, which raises the peak if it
//! has to.

use gpumem_channel::{DeviceStats, LanePool, LaneStat};

/// Figures of a pool: blocks held, bytes asked for and bytes of these, inactive splits and their bytes.
pub(crate) const FIGURES: usize = 5;

/// Figures of the small pool, of the large one, and of both together.
pub(crate) type Figures = [[u64; FIGURES]; 3];

/// Where they are among a pool's figures as the channel has them, and which of [`FIGURES`] each is.
pub(crate) const PLACES: [(usize, usize); 7] = [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (7, 3), (8, 4)];

const BOTH: usize = 2;
/// Blocks held and their bytes come first.
const HELD: usize = 3;

/// The figures of a lane.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// What it may yet count up.
    room: [[i64; FIGURES]; 3],
    /// All that ever came, and all that went.
    came: [[u64; FIGURES]; 2],
    went: [[u64; FIGURES]; 2],
}

/// What an increase takes of the room there is; below zero: too much.
#[inline(always)]
fn take<const N: usize>(room: &[i64], by: [u64; N]) -> ([i64; N], i64) {
    let mut left = [0; N];
    let mut sign = 0;
    for i in 0..N {
        left[i] = room[i] - by[i] as i64;
        sign |= left[i];
    }
    (left, sign)
}

#[inline(always)]
fn add<const N: usize>(to: &mut [u64], by: [u64; N]) {
    for i in 0..N {
        to[i] += by[i];
    }
}

#[inline(always)]
fn give<const N: usize>(room: &mut [i64], by: [u64; N]) {
    for i in 0..N {
        room[i] += by[i] as i64;
    }
}

impl Counts {
    /// Counts a block that is handed out, if there is room.
    #[inline(always)]
    pub(super) fn allocate(&mut self, pool: usize, requested: u64, size: u64, split: bool) -> bool {
        let by = [1, requested, size];
        let (own, sign) = take(&self.room[pool], by);
        let (both, other_sign) = take(&self.room[BOTH], by);
        if sign | other_sign < 0 {
            return false;
        }
        self.room[pool][..HELD].copy_from_slice(&own);
        self.room[BOTH][..HELD].copy_from_slice(&both);
        add(&mut self.came[pool], by);
        if split {
            self.split_gone(pool, size);
        }
        true
    }

    /// Counts a block that is set aside, if there is room.
    #[inline(always)]
    pub(super) fn free(&mut self, pool: usize, requested: u64, size: u64, split: bool) -> bool {
        if split && !self.split_comes(pool, size) {
            return false;
        }
        self.freed(pool, requested, size);
        true
    }

    #[inline(never)]
    fn split_comes(&mut self, pool: usize, size: u64) -> bool {
        let by = [1, size];
        let (own, sign) = take(&self.room[pool][HELD..], by);
        let (both, other_sign) = take(&self.room[BOTH][HELD..], by);
        if sign | other_sign < 0 {
            return false;
        }
        self.room[pool][HELD..].copy_from_slice(&own);
        self.room[BOTH][HELD..].copy_from_slice(&both);
        add(&mut self.came[pool][HELD..], by);
        true
    }

    /// A block that was set aside is no inactive split any more.
    #[inline(never)]
    pub(super) fn split_gone(&mut self, pool: usize, size: u64) {
        let by = [1, size];
        add(&mut self.went[pool][HELD..], by);
        give(&mut self.room[pool][HELD..], by);
        give(&mut self.room[BOTH][HELD..], by);
    }

    /// Counts a block that the heap handed out for this lane. The caller saw to it that there is room.
    pub(super) fn allocated(&mut self, pool: usize, requested: u64, size: u64) {
        let counted = self.allocate(pool, requested, size, false);
        debug_assert!(counted, "there is room");
    }

    /// Counts a block that is given back.
    #[inline(always)]
    pub(super) fn freed(&mut self, pool: usize, requested: u64, size: u64) {
        let by = [1, requested, size];
        add(&mut self.went[pool], by);
        give(&mut self.room[pool], by);
        give(&mut self.room[BOTH], by);
    }

    /// A held block is counted by the heap from now on. It stays in what ever came here.
    pub(super) fn handed_over(&mut self, pool: usize, requested: u64, size: u64) {
        self.freed(pool, requested, size);
    }

    /// Whether there is room for so much more.
    pub(crate) fn may(&self, pool: usize, by: [u64; FIGURES]) -> bool {
        take(&self.room[pool], by).1 | take(&self.room[BOTH], by).1 >= 0
    }

    /// Allows more.
    pub(crate) fn allow(&mut self, more: &Figures) {
        for (room, more) in self.room.iter_mut().zip(more) {
            give(room, *more);
        }
    }

    /// Takes back what was allowed and is not used.
    pub(crate) fn tighten(&mut self) -> Figures {
        let room = std::mem::take(&mut self.room);
        room.map(|pool| pool.map(|room| room as u64))
    }

    /// What may be counted.
    #[cfg(test)]
    pub(crate) fn allowed(&self) -> Figures {
        let mut allowed = self.current();
        for (counted, room) in allowed.iter_mut().flatten().zip(self.room.iter().flatten()) {
            *counted += u64::try_from(*room).unwrap_or_default();
        }
        allowed
    }

    /// What is counted now.
    pub(crate) fn current(&self) -> Figures {
        let pool = |pool: usize| std::array::from_fn(|i| self.came[pool][i] - self.went[pool][i]);
        let (small, large): ([u64; FIGURES], [u64; FIGURES]) = (pool(0), pool(1));
        [small, large, std::array::from_fn(|i| small[i] + large[i])]
    }

    /// Blocks that were given back so far.
    pub(super) fn frees(&self) -> u64 {
        self.went[0][0] + self.went[1][0]
    }

    /// Adds what is counted here, peaks aside.
    pub(crate) fn add_to(&self, stats: &mut DeviceStats) {
        for (pool, stats) in [&mut stats.small, &mut stats.large].into_iter().enumerate() {
            for (at, figure) in PLACES {
                let came = self.came[pool][figure];
                let stat = &mut *stats.figures_mut()[at];
                stat.current += came - self.went[pool][figure];
                stat.allocated += came;
            }
        }
    }

    /// As the channel shows it.
    pub(super) fn pool(&self, pool: usize) -> LanePool {
        let figure = |i: usize| LaneStat {
            current: self.came[pool][i] - self.went[pool][i],
            allocated: self.came[pool][i],
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
