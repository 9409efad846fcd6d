//! Whether lending pays: a block that is lent costs more than one that is not, and saves most of the work each time its lane hands it
//! out by itself. Where blocks come back without that, or lanes have to ask for leave each time because the program is always near its
//! peak, nothing is lent for a while.

/// What lending to a lane cost before it is judged: blocks lent, and requests for one that took the heap all the same.
const TRIAL: u32 = 256;
/// Blocks that are given back to the heap before it is tried again.
const PAUSE: u64 = 1 << 14;

/// Of the small blocks of a stream, or of the large ones.
#[derive(Debug, Default)]
pub(in crate::heap) struct Trial {
    costs: u32,
    /// What the lane had handed out when the trial began.
    before: u64,
    /// The heap's free counter when lending is tried again.
    until: u64,
}

impl Trial {
    /// Whether blocks are lent.
    #[inline(always)]
    pub(in crate::heap) fn is_open(&self, frees: u64) -> bool {
        frees >= self.until
    }

    /// Its lane has handed out so many before.
    pub(in crate::heap) fn begin(&mut self, handed_out: u64) {
        self.before = handed_out;
    }

    /// Lending took the heap once more; its lane has handed out so many so far, which is not asked each time. Whether that is enough, and
    /// they come back.
    #[inline(always)]
    pub(in crate::heap) fn cost(&mut self, handed_out: impl FnOnce() -> u64, frees: u64) -> bool {
        self.costs += 1;
        self.costs >= TRIAL && self.judge(handed_out(), frees)
    }

    #[inline(never)]
    fn judge(&mut self, handed_out: u64, frees: u64) -> bool {
        let by_itself = handed_out.saturating_sub(self.before + u64::from(self.costs));
        let fails = by_itself * 10 < u64::from(self.costs) * 7;
        if fails {
            self.until = frees + PAUSE;
        }
        (self.costs, self.before) = (0, handed_out);
        fails
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lending_pauses_where_lanes_seldom_hand_out_by_themselves() {
        let mut trial = Trial::default();
        let mut handed_out = 0;
        for _ in 0..4 * TRIAL {
            handed_out += 2;
            assert!(!trial.cost(|| handed_out, 7));
        }
        assert!(trial.is_open(7));
        let ended = (1..=TRIAL).find(|_| {
            handed_out += 1;
            trial.cost(|| handed_out, 7)
        });
        assert_eq!(ended, Some(TRIAL));
        assert!(!trial.is_open(6 + PAUSE) && trial.is_open(7 + PAUSE));
    }
}
