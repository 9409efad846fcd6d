//! The budget of a demo.

use gpumem_text::units::{MIB, bytes_to_pib};

/// The budget when none is given, in bytes.
pub(crate) const USUAL_BUDGET: u64 = 2048 * MIB;
/// The smallest budget, in bytes. With it every block of the demo `fragmentation` is served by the large pool.
pub const MIN_BUDGET: u64 = 128 * MIB;

/// The managed memory of a demo when no size is given, in bytes.
const USUAL_MANAGED: u64 = 256 * MIB;

/// Why a budget is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// Too small for the demo to show what it promises.
    #[error("a budget of {} is too small: at least {} are needed", bytes_to_pib(*asked), bytes_to_pib(*least))]
    TooSmall {
        /// The requested bytes.
        asked: u64,
        /// The least number of bytes.
        least: u64,
    },
    /// More than the simulated device has.
    #[error("a budget of {} is more than the simulated device has: {}", bytes_to_pib(*asked), bytes_to_pib(*most))]
    TooLargeToSimulate {
        /// The requested bytes.
        asked: u64,
        /// The device's memory in bytes.
        most: u64,
    },
    /// More than a tenth of the free memory of a GPU that may have other users.
    #[error(
        "a budget of {} is more than a tenth of the {} free on this device: ask for {} or less",
        bytes_to_pib(*asked), bytes_to_pib(*free), bytes_to_pib(*most)
    )]
    TooLarge {
        /// The requested bytes.
        asked: u64,
        /// Free memory of the device in bytes.
        free: u64,
        /// The largest possible budget in bytes.
        most: u64,
    },
    /// More managed memory than the budget.
    #[error("{} of managed memory are more than the budget of {}: ask for less (--size)", bytes_to_pib(*asked), bytes_to_pib(*budget))]
    ManagedOverBudget {
        /// The requested bytes.
        asked: u64,
        /// The budget in bytes.
        budget: u64,
    },
    /// More managed memory than half of what is free on a GPU. When a GPU is short of memory for managed pages, everybody who
    /// uses it waits.
    #[error(
        "{} of managed memory are more than half of the {} free on this device: ask for {} or less (--size), free memory on it or \
         take --device sim", bytes_to_pib(*asked), bytes_to_pib(*free), bytes_to_pib(*most)
    )]
    TooMuchManaged {
        /// The requested bytes.
        asked: u64,
        /// Free memory of the device in bytes.
        free: u64,
        /// The most bytes that are possible.
        most: u64,
    },
    /// No budget was requested, and a tenth of the free memory is too little.
    #[error(
        "a tenth of the {} free on this device is too little for the demo, which needs {}: free memory on it or take \
         --device sim", bytes_to_pib(*free), bytes_to_pib(*least)
    )]
    DeviceFull {
        /// Free memory of the device in bytes.
        free: u64,
        /// The least number of bytes.
        least: u64,
    },
}

/// Returns the budget of a run on a real device with `free` bytes free: the requested one, or 2 GiB. It is at most a tenth of
/// the free memory, so that a demo on a shared GPU does not take memory that another program is about to need.
///
/// # Errors
/// When the requested budget is not possible. Without a request the budget shrinks to fit, down to [`MIN_BUDGET`].
pub(crate) fn budget(asked: Option<u64>, free: u64) -> Result<u64, BudgetError> {
    let most = free / 10;
    match at_least(asked)? {
        Some(asked) if asked > most => Err(BudgetError::TooLarge { asked, free, most }),
        Some(asked) => Ok(asked),
        None if most < MIN_BUDGET => Err(BudgetError::DeviceFull {
            free,
            least: MIN_BUDGET,
        }),
        None => Ok(USUAL_BUDGET.min(most)),
    }
}

/// Returns the budget of a run on a simulated device of `total` bytes, which has no other users: the requested one, or
/// `usual`.
///
/// # Errors
/// When the requested budget is less than [`MIN_BUDGET`], or more than there is.
pub(crate) fn simulated_budget(asked: Option<u64>, usual: u64, total: u64) -> Result<u64, BudgetError> {
    match at_least(asked)? {
        Some(asked) if asked > total => Err(BudgetError::TooLargeToSimulate { asked, most: total }),
        asked => Ok(asked.unwrap_or(usual)),
    }
}

/// Returns the bytes of managed memory for a demo: the requested ones, or 256 MiB within the budget. `free` are the bytes free on a
/// real device, of which it is at most half.
///
/// # Errors
/// When it does not fit.
pub(crate) fn managed_size(asked: Option<u64>, budget: Option<u64>, free: Option<u64>) -> Result<u64, BudgetError> {
    let budget = at_least(budget)?;
    let size = asked.unwrap_or_else(|| budget.unwrap_or(u64::MAX).min(USUAL_MANAGED));
    let most = free.map(|free| free / 2);
    match (budget, free.zip(most)) {
        (Some(budget), _) if size > budget => Err(BudgetError::ManagedOverBudget { asked: size, budget }),
        (_, Some((free, most))) if size > most => Err(BudgetError::TooMuchManaged {
            asked: size,
            free,
            most,
        }),
        _ => Ok(size),
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

    #[test]
    fn budget_is_at_most_a_tenth_of_the_free_memory() {
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
    fn simulated_device_may_be_used_whole() {
        let gib = 1024 * MIB;
        assert_eq!(simulated_budget(None, 75 * gib, 80 * gib), Ok(75 * gib));
        assert_eq!(simulated_budget(Some(80 * gib), 75 * gib, 80 * gib), Ok(80 * gib));
        let too_large = simulated_budget(Some(81 * gib), 75 * gib, 80 * gib).map_err(|error| error.to_string());
        let why = "a budget of 81.0 GiB is more than the simulated device has: 80.0 GiB";
        assert_eq!(too_large, Err(why.to_owned()));
        assert!(simulated_budget(Some(1), gib, 80 * gib).is_err());
    }

    #[test]
    fn managed_memory_is_at_most_half_of_what_is_free() {
        let gib = 1024 * MIB;
        assert_eq!(managed_size(None, None, Some(80 * gib)), Ok(256 * MIB));
        assert_eq!(managed_size(None, Some(MIN_BUDGET), None), Ok(MIN_BUDGET));
        assert_eq!(managed_size(Some(gib), None, Some(2 * gib)), Ok(gib));
        let too_much = managed_size(Some(gib), None, Some(gib)).map_err(|error| error.to_string());
        let why = "1.0 GiB of managed memory are more than half of the 1.0 GiB free on this device: ask for 512 MiB or less \
                   (--size), free memory on it or take --device sim";
        assert_eq!(too_much, Err(why.to_owned()));
        assert!(managed_size(None, None, Some(256 * MIB)).is_err());
        assert!(managed_size(Some(gib), Some(512 * MIB), None).is_err());
    }
}
