//! How much somebody may count without passing a peak.

use super::Ledger;
#[cfg(test)]
use crate::counts::Figures;
use crate::counts::{BOTH, Counts, FIGURES, PLACES};

/// Where a figure is among those of the channel: twice the same where it is one of them only.
const SHOWN: [[usize; 2]; FIGURES] = {
    let mut shown = [[usize::MAX; 2]; FIGURES];
    let mut i = 0;
    while i < PLACES.len() {
        let (at, figure) = PLACES[i];
        shown[figure][1] = at;
        if shown[figure][0] == usize::MAX {
            shown[figure][0] = at;
        }
        i += 1;
    }
    shown
};

impl Ledger {
    /// Allows one who counts so much of a figure, as far as it is below the peak or what the heap may count and does not; some more at the
    /// same price. What it lacks then.
    pub(crate) fn allow(&mut self, counts: &mut Counts, row: usize, figure: usize, by: u64) -> u64 {
        let lack = counts.lacks(row, figure, by);
        if lack == 0 {
            return 0;
        }
        let mut found = self.take_below_peak(row, figure, lack);
        if found < lack {
            found += self.own.give_up(row, figure, lack - found);
        }
        counts.allow(row, figure, found);
        lack.saturating_sub(found)
    }

    /// The same for the heap.
    pub(crate) fn allow_own(&mut self, row: usize, figure: usize, by: u64) -> u64 {
        let lack = self.own.lacks(row, figure, by);
        if lack == 0 {
            return 0;
        }
        let below = self.take_below_peak(row, figure, lack);
        self.own.allow(row, figure, below);
        lack.saturating_sub(below)
    }

    /// Grants somebody what it lacks of a figure, and half of what is left then, as far as that is below the peak.
    fn take_below_peak(&mut self, row: usize, figure: usize, lack: u64) -> u64 {
        if self.spent[row][figure] {
            return 0;
        }
        let slack = self.slack(row, figure);
        let more = slack.min(lack + slack.saturating_sub(lack) / 2);
        self.granted[row][figure] += more;
        self.spent[row][figure] = more == slack;
        more
    }

    /// What is left below the peak, or the lower one of two.
    fn slack(&self, row: usize, figure: usize) -> u64 {
        let slack = SHOWN[figure].map(|at| self.peak(row, at).saturating_sub(self.counted(row, at, figure)));
        slack[0].min(slack[1])
    }

    /// Grants somebody so much more of a figure where nobody may count more than is counted: raises the peaks that this passes.
    #[cold]
    pub(crate) fn raise_peaks(&mut self, row: usize, figure: usize, more: u64) {
        self.granted[row][figure] += more;
        for (at, its) in PLACES {
            let counted = self.counted(row, at, figure);
            if its == figure && counted > self.peak(row, at) {
                match row {
                    0 => self.stats.small.figures_mut()[at].peak = counted,
                    1 => self.stats.large.figures_mut()[at].peak = counted,
                    _ => self.stats.all_peaks[at] = counted,
                }
                self.touch_cold();
            }
        }
    }

    /// Nobody may count more than is counted: for [`reset_peaks`](Ledger::reset_peaks), to which all who count come.
    pub(crate) fn take_leave(&mut self, counts: &mut Counts) {
        let less = counts.give_up_all();
        for (granted, less) in self.granted.as_flattened_mut().iter_mut().zip(less.as_flattened()) {
            *granted -= less;
        }
    }

    /// The peaks are what is counted now. How much memory is worth taking still goes by what there ever was.
    pub(crate) fn reset_peaks(&mut self) {
        (self.requested_before, self.small_before) = (self.requested_peak(0), self.small_peak());
        let mut own = self.own;
        self.take_leave(&mut own);
        self.own = own;
        for (at, figure) in PLACES {
            let [small, large, both] = [0, 1, BOTH].map(|row| self.counted(row, at, figure));
            self.stats.small.figures_mut()[at].peak = small;
            self.stats.large.figures_mut()[at].peak = large;
            self.stats.all_peaks[at] = both;
        }
        self.reset_cold_peaks();
        self.spent = Default::default();
        self.touch_cold();
    }

    fn peak(&self, row: usize, at: usize) -> u64 {
        match row {
            0 => self.stats.small.figures()[at].peak,
            1 => self.stats.large.figures()[at].peak,
            _ => self.stats.all_peaks[at],
        }
    }

    /// What is allowed of a figure of the channel's, with what waits.
    fn counted(&self, row: usize, at: usize, figure: usize) -> u64 {
        let waits = match row {
            BOTH => self.waiting[0].of(at) + self.waiting[1].of(at),
            pool => self.waiting[pool].of(at),
        };
        self.granted[row][figure] + waits
    }

    /// Panics unless lanes are allowed this, and nobody anything that passes a peak.
    #[cfg(test)]
    pub(crate) fn check_granted(&self, lanes: &Figures) {
        let own = self.own.allowed();
        let all: Figures = std::array::from_fn(|row| std::array::from_fn(|i| lanes[row][i] + own[row][i]));
        assert_eq!(self.granted, all);
        for (at, figure) in PLACES {
            for row in 0..=BOTH {
                assert!(self.counted(row, at, figure) <= self.peak(row, at));
                assert!(!self.spent[row][figure] || self.slack(row, figure) == 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gpumem_channel::PoolId;

    use super::*;
    use crate::counts::pool_number;

    /// A program that measures a part of itself is served as it was before.
    #[test]
    fn what_memory_is_taken_by_outlives_peaks() {
        let mut ledger = Ledger::default();
        let (small, large) = (512, 8 << 20);
        for (pool, size) in [(PoolId::SMALL, small), (PoolId::LARGE, large)] {
            let row = pool_number(pool);
            for (figure, by) in [1, size, size].into_iter().enumerate() {
                for row in [row, BOTH] {
                    ledger.raise_peaks(row, figure, by);
                    ledger.own.allow(row, figure, by);
                }
            }
            assert!(ledger.allocated(pool, size, size));
            ledger.freed(pool, size, size);
        }
        ledger.reset_peaks();
        assert_eq!(ledger.stats().all().requested_bytes.peak, 0);
        assert_eq!((ledger.requested_peak(0), ledger.small_peak()), (small + large, small));
        assert!(
            !ledger.allocated(PoolId::SMALL, small, small),
            "nobody may count without leave"
        );
    }
}
