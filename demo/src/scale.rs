//! How large the blocks of the fragmentation demo are for a budget.

use gpumem_text::units::{MIB, bytes_to_pib};

/// The blocks at the reference budget, in MiB.
const REFERENCE: [u64; 8] = [100, 200, 50, 300, 75, 150, 400, 25];
/// The request that fails: more than the largest hole (300), less than all holes (675).
const REFERENCE_REQUEST: u64 = 500;
/// The budget at which sizes are the reference ones. The blocks take 65 % of it; the rest is room for what a CUDA
/// process holds beside its allocator (about half a GiB of context).
pub const REFERENCE_BUDGET: u64 = 2048 * MIB;
/// What a block takes is a whole multiple of this, so that whole chunks come free: the granularity of physical memory on every
/// card so far.
pub const GRAIN: u64 = 2 * MIB;
/// The smallest budget at which the smallest block is still one that the large pool serves.
pub const MIN_BUDGET: u64 = 128 * MIB;

/// The sizes of one run, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The blocks as they are asked for, in the order of their allocation. Those at odd places are the ones that are freed.
    pub blocks: [u64; 8],
    /// The large request.
    pub request: u64,
}

impl Sizes {
    /// The reference sizes scaled by `budget` / 2 GiB: the blocks in whole MiB, the request in whole [`GRAIN`]s.
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

    /// What the blocks take: rounded up to [`GRAIN`].
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

/// A budget that cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// Too small for the demo to be what it says.
    #[error("a budget of {} is too small: at least {} are needed", bytes_to_pib(*asked), bytes_to_pib(*least))]
    TooSmall {
        /// What was asked for.
        asked: u64,
        /// What is needed.
        least: u64,
    },
    /// More than the simulated device has.
    #[error("a budget of {} is more than the simulated device has: {}", bytes_to_pib(*asked), bytes_to_pib(*most))]
    TooLargeToSimulate {
        /// What was asked for.
        asked: u64,
        /// The device's memory.
        most: u64,
    },
    /// More than a tenth of what is free on a card that may have other users.
    #[error(
        "a budget of {} is more than a tenth of the {} free on this device: ask for {} or less",
        bytes_to_pib(*asked), bytes_to_pib(*free), bytes_to_pib(*most)
    )]
    TooLarge {
        /// What was asked for.
        asked: u64,
        /// Free memory of the device.
        free: u64,
        /// The most that can be asked for.
        most: u64,
    },
    /// Nothing was asked for, and a tenth of the free memory is too little.
    #[error(
        "a tenth of the {} free on this device is too little for the demo, which needs {}: free memory on it or take \
         --device sim", bytes_to_pib(*free), bytes_to_pib(*least)
    )]
    DeviceFull {
        /// Free memory of the device.
        free: u64,
        /// What is needed.
        least: u64,
    },
}

/// The budget of a run on a real device with `free` bytes free: what was asked for, or 2 GiB, and never more than a tenth of
/// the free memory, so that a demo on a shared card takes nothing that another program is about to need.
///
/// # Errors
/// When what was asked for is not to be had. Without a wish the budget shrinks to fit, down to [`MIN_BUDGET`].
pub fn budget(asked: Option<u64>, free: u64) -> Result<u64, BudgetError> {
    let most = free / 10;
    match at_least(asked)? {
        Some(asked) if asked > most => Err(BudgetError::TooLarge { asked, free, most }),
        Some(asked) => Ok(asked),
        None if most < MIN_BUDGET => Err(BudgetError::DeviceFull {
            free,
            least: MIN_BUDGET,
        }),
        None => Ok(REFERENCE_BUDGET.min(most)),
    }
}

/// The budget of a run on a simulated device of `total` bytes, which is nobody else's: what was asked for, or `usual`.
///
/// # Errors
/// When what was asked for is less than [`MIN_BUDGET`], or more than there is.
pub fn simulated_budget(asked: Option<u64>, usual: u64, total: u64) -> Result<u64, BudgetError> {
    match at_least(asked)? {
        Some(asked) if asked > total => Err(BudgetError::TooLargeToSimulate { asked, most: total }),
        asked => Ok(asked.unwrap_or(usual)),
    }
}

fn at_least(asked: Option<u64>) -> Result<Option<u64>, BudgetError> {
    match asked {
        Some(asked) if asked < MIN_BUDGET => Err(BudgetError::TooSmall {
            asked,
            least: MIN_BUDGET,
        }),
        asked => Ok(asked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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

    #[test]
    fn a_budget_is_a_tenth_of_the_free_memory_at_most() {
        let gib = 1024 * MIB;
        assert_eq!(budget(None, 80 * gib), Ok(2 * gib));
        assert_eq!(budget(None, 10 * gib), Ok(gib));
        assert_eq!(budget(Some(8 * gib), 80 * gib), Ok(8 * gib));
        let too_large = BudgetError::TooLarge {
            asked: 9 * gib,
            free: 80 * gib,
            most: 8 * gib,
        };
        assert_eq!(budget(Some(9 * gib), 80 * gib), Err(too_large));
        assert_eq!(
            too_large.to_string(),
            "a budget of 9.0 GiB is more than a tenth of the 80.0 GiB free on this device: ask for 8.0 GiB or less"
        );
        assert!(matches!(budget(Some(0), 80 * gib), Err(BudgetError::TooSmall { .. })));
        assert!(matches!(budget(None, gib), Err(BudgetError::DeviceFull { .. })));
    }

    #[test]
    fn a_simulated_device_may_be_used_whole() {
        let gib = 1024 * MIB;
        assert_eq!(simulated_budget(None, 75 * gib, 80 * gib), Ok(75 * gib));
        assert_eq!(simulated_budget(Some(80 * gib), 75 * gib, 80 * gib), Ok(80 * gib));
        let too_large = simulated_budget(Some(81 * gib), 75 * gib, 80 * gib).map_err(|error| error.to_string());
        let why = "a budget of 81.0 GiB is more than the simulated device has: 80.0 GiB";
        assert_eq!(too_large, Err(why.to_owned()));
        assert!(simulated_budget(Some(1), gib, 80 * gib).is_err());
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
