//! The budget of a benchmark.

use gpumem_text::units::MIB;

use super::error::BenchError;

/// The budget when none is given, in bytes.
const USUAL: u64 = 1024 * MIB;
/// The smallest budget, in bytes. It holds a working set beyond the L2 cache of most cards.
const LEAST: u64 = 128 * MIB;

/// Returns the bytes of device memory for a benchmark: the requested ones, or 1 GiB. It is at most a quarter of the `free` bytes,
/// because another program may need the rest before the benchmark has ended, a minute at most.
///
/// # Errors
/// When the requested budget is not possible. Without a request the budget shrinks to fit, down to 128 MiB.
pub(crate) fn budget(asked: Option<u64>, free: u64) -> Result<u64, BenchError> {
    let most = free / 4;
    match asked {
        Some(asked) if asked < LEAST => Err(BenchError::TooSmall { asked, least: LEAST }),
        Some(asked) if asked > most => Err(BenchError::TooLarge { asked, free }),
        Some(asked) => Ok(asked),
        None if most < LEAST => Err(BenchError::DeviceFull { free, least: LEAST }),
        None => Ok(USUAL.min(most)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_is_at_most_a_quarter_of_the_free_memory() {
        let gib = 1024 * MIB;
        assert!(matches!(budget(None, 80 * gib), Ok(bytes) if bytes == gib));
        assert!(matches!(budget(None, 2 * gib), Ok(bytes) if bytes == gib / 2));
        assert!(matches!(budget(Some(20 * gib), 80 * gib), Ok(bytes) if bytes == 20 * gib));
        assert!(matches!(
            budget(Some(21 * gib), 80 * gib),
            Err(BenchError::TooLarge { .. })
        ));
        assert!(matches!(budget(Some(0), 80 * gib), Err(BenchError::TooSmall { .. })));
        assert!(matches!(budget(None, 511 * MIB), Err(BenchError::DeviceFull { .. })));
    }
}
