//! The block sizes of the demo for a budget.

use gpumem_text::units::MIB;

/// The block sizes at the reference budget, in MiB.
const REFERENCE: [u64; 8] = [100, 200, 50, 300, 75, 150, 400, 25];
/// The request that fails, in MiB: more than the largest hole (300), less than all holes together (675).
const REFERENCE_REQUEST: u64 = 500;
/// The budget at which the sizes are the reference sizes. The blocks take 65 % of it; the rest is for what a CUDA process holds
/// besides its allocator (about half a GiB of context).
const REFERENCE_BUDGET: u64 = 2048 * MIB;
/// Blocks take multiples of this, so that freeing them frees whole chunks. It is the granularity of physical memory on every
/// GPU so far.
pub(crate) const GRANULARITY: u64 = 2 * MIB;
/// A small block takes this much from the driver at once, and may leave most of it free.
const LARGEST_REST: u64 = 20 * MIB;

/// The sizes of one run, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The requested block sizes in the order of allocation. Those at odd indices are freed.
    pub blocks: [u64; 8],
    /// The large request.
    pub request: u64,
}

impl Sizes {
    /// Returns the reference sizes scaled by `budget` / 2 GiB: the blocks in whole MiB, the request in whole `GRANULARITY`s.
    pub fn for_budget(budget: u64) -> Sizes {
        let scale = |mib: u64, unit: u64| {
            let units = (u128::from(mib * MIB) * u128::from(budget)).div_ceil(u128::from(REFERENCE_BUDGET * unit));
            // At most `budget` bytes, so it fits. A size below the granularity would be served by another pool.
            (units as u64 * unit).max(GRANULARITY)
        };
        Sizes {
            blocks: REFERENCE.map(|mib| scale(mib, MIB)),
            request: scale(REFERENCE_REQUEST, GRANULARITY),
        }
    }

    /// Returns what the blocks take: their sizes rounded up to `GRANULARITY`.
    pub fn taken(&self) -> [u64; 8] {
        self.blocks.map(|block| block.next_multiple_of(GRANULARITY))
    }

    /// Returns what all blocks take together. This is the allocator's budget, so that it is full when they are allocated.
    pub fn total(&self) -> u64 {
        self.taken().iter().sum()
    }

    /// Returns the most bytes of addresses that the demo uses in all its steps: those of the blocks, and those of the workspace
    /// and what is allocated beside it, with the rest of a chunk. The other fixes use fewer.
    pub fn map_bytes(&self) -> u64 {
        self.total() + (self.with_workspace() + LARGEST_REST).min(self.total())
    }

    /// Returns what the workspace and the blocks that stay take together.
    pub fn with_workspace(&self) -> u64 {
        self.request + self.kept().map(|(_, taken)| taken).sum::<u64>()
    }

    /// Returns the blocks that stay, and what they take.
    pub fn kept(&self) -> impl Iterator<Item = (u64, u64)> {
        self.blocks.into_iter().zip(self.taken()).step_by(2)
    }

    /// Returns the holes that the freed blocks leave.
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
    fn sizes_at_two_gib_are_the_reference_sizes() {
        let sizes = Sizes::for_budget(REFERENCE_BUDGET);
        assert_eq!(sizes.blocks, [100, 200, 50, 300, 75, 150, 400, 25].map(|mib| mib * MIB));
        assert_eq!(
            sizes.taken(),
            [100, 200, 50, 300, 76, 150, 400, 26].map(|mib| mib * MIB)
        );
        assert_eq!(sizes.request / MIB, 500);
    }

    proptest! {
        /// At every budget the request fails because of fragmentation, not for lack of memory.
        #[test]
        fn request_is_larger_than_any_hole_but_not_all_of_them(budget in MIN_BUDGET..1u64 << 50) {
            let sizes = Sizes::for_budget(budget);
            let holes: Vec<u64> = sizes.freed().collect();
            prop_assert!(holes.iter().all(|hole| *hole < sizes.request));
            prop_assert!(sizes.request < holes.iter().sum());
            prop_assert!(sizes.request.is_multiple_of(GRANULARITY) && sizes.blocks.iter().all(|size| *size >= GRANULARITY));
            prop_assert!(sizes.total() <= budget);
            // The workspace fits into the holes' memory.
            let kept: u64 = sizes.kept().map(|(_, taken)| taken).sum();
            prop_assert!(kept + sizes.request <= sizes.total());
            prop_assert_eq!(kept + holes.iter().sum::<u64>(), sizes.total());
        }

        /// Rounding changes no size by more than the granularity.
        #[test]
        fn proportions_are_kept(budget in MIN_BUDGET..1u64 << 50) {
            let sizes = Sizes::for_budget(budget);
            for (size, mib) in sizes.blocks.into_iter().zip(REFERENCE) {
                let exact = mib as f64 * budget as f64 / 2048.0;
                prop_assert!((size as f64 - exact).abs() <= GRANULARITY as f64 * 1.001, "{size} is not near {exact}");
            }
        }
    }
}
