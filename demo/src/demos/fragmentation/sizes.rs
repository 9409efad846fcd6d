//! How large the blocks of the demo are for a budget.

use gpumem_text::units::MIB;

/// The blocks at the reference budget, in MiB.
const REFERENCE: [u64; 8] = [100, 200, 50, 300, 75, 150, 400, 25];
/// The request that fails: more than the largest hole (300), less than all holes (675).
const REFERENCE_REQUEST: u64 = 500;
/// The budget at which sizes are the reference ones. The blocks take 65 % of it; the rest is room for what a CUDA
/// process holds beside its allocator (about half a GiB of context).
const REFERENCE_BUDGET: u64 = 2048 * MIB;
/// What a block takes is a whole multiple of this, so that whole chunks come free: the granularity of physical memory on every
/// card so far.
pub(crate) const GRAIN: u64 = 2 * MIB;

/// The sizes of one run, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The blocks as they are asked for, in the order of their allocation. Those at odd places are the ones that are freed.
    pub blocks: [u64; 8],
    /// The large request.
    pub request: u64,
}

impl Sizes {
    /// The reference sizes scaled by `budget` / 2 GiB: the blocks in whole MiB, the request in whole `GRAIN`s.
    pub fn for_budget(budget: u64) -> Sizes {
        let scale = |mib: u64, unit: u64| {
            let units = (u128::from(mib * MIB) * u128::from(budget)).div_ceil(u128::from(REFERENCE_BUDGET * unit));
            // At most `budget` bytes, so it fits. Less than a grain would be served by another pool.
            (units as u64 * unit).max(GRAIN)
        };
        Sizes {
            blocks: REFERENCE.map(|mib| scale(mib, MIB)),
            request: scale(REFERENCE_REQUEST, GRAIN),
        }
    }

    /// What the blocks take: rounded up to `GRAIN`.
    pub fn taken(&self) -> [u64; 8] {
        self.blocks.map(|block| block.next_multiple_of(GRAIN))
    }

    /// What all blocks take together: the budget the allocator gets, so that it is full when they are allocated.
    pub fn total(&self) -> u64 {
        self.taken().iter().sum()
    }

    /// The blocks that stay, and what they take.
    pub fn kept(&self) -> impl Iterator<Item = (u64, u64)> {
        self.blocks.into_iter().zip(self.taken()).step_by(2)
    }

    /// The holes that the freed blocks leave.
    pub fn freed(&self) -> impl Iterator<Item = u64> {
        self.taken().into_iter().skip(1).step_by(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::MIN_BUDGET;
    use proptest::prelude::*;

    #[test]
    fn at_two_gib_the_sizes_are_those_of_the_description() {
        let sizes = Sizes::for_budget(REFERENCE_BUDGET);
        assert_eq!(sizes.blocks, [100, 200, 50, 300, 75, 150, 400, 25].map(|mib| mib * MIB));
        assert_eq!(
            sizes.taken(),
            [100, 200, 50, 300, 76, 150, 400, 26].map(|mib| mib * MIB)
        );
        assert_eq!(sizes.request / MIB, 500);
    }

    proptest! {
        /// What makes the demo honest at every budget: the failure is one of fragmentation, not of too little memory.
        #[test]
        fn the_request_is_larger_than_any_hole_and_smaller_than_their_sum(budget in MIN_BUDGET..1u64 << 50) {
            let sizes = Sizes::for_budget(budget);
            let holes: Vec<u64> = sizes.freed().collect();
            prop_assert!(holes.iter().all(|hole| *hole < sizes.request));
            prop_assert!(sizes.request < holes.iter().sum());
            prop_assert!(sizes.request.is_multiple_of(GRAIN) && sizes.blocks.iter().all(|size| *size >= GRAIN));
            prop_assert!(sizes.total() <= budget);
            // The workspace takes the place of the holes.
            let kept: u64 = sizes.kept().map(|(_, taken)| taken).sum();
            prop_assert!(kept + sizes.request <= sizes.total());
            prop_assert_eq!(kept + holes.iter().sum::<u64>(), sizes.total());
        }

        /// Rounding moves no size by more than a grain from its proportion.
        #[test]
        fn proportions_are_kept(budget in MIN_BUDGET..1u64 << 50) {
            let sizes = Sizes::for_budget(budget);
            for (size, mib) in sizes.blocks.into_iter().zip(REFERENCE) {
                let exact = mib as f64 * budget as f64 / 2048.0;
                prop_assert!((size as f64 - exact).abs() <= GRAIN as f64 * 1.001, "{size} is not near {exact}");
            }
        }
    }
}
