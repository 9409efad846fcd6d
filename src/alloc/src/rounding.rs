//! Rounding to parts of powers of two: `roundup_power2_divisions`.

use crate::size::MIN_BLOCK;

/// Ranges that are told apart: from 1, 2, 4, ... MiB, up to 32 GiB and more. What is below 1 MiB belongs to the first.
const RANGES: usize = 16;
/// log2 of the lowest range's beginning.
const FIRST: u32 = 20;

/// Into how many equal parts the space between two powers of two is divided; requests are rounded up to the next part.
/// PyTorch's `roundup_power2_divisions`: sizes that vary a little become the same size, and find each other's blocks.
///
/// With 4 parts, 1,200 MiB become 1,280 MiB: the parts between 1,024 and 2,048 MiB are 256 MiB. `Divisions::default()`
/// rounds to 512 B only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Divisions {
    /// log2 of the parts, by range; 0: none.
    parts: [u8; RANGES],
}

impl Divisions {
    /// The same number of parts for every size. `None` unless it is a power of two.
    pub fn all(parts: u64) -> Option<Divisions> {
        parts.is_power_of_two().then(|| Divisions {
            parts: [parts.ilog2() as u8; RANGES],
        })
    }

    /// The same with another number of parts for sizes from `from_mib` MiB to twice that, both powers of two (0 parts: none).
    /// From 32 GiB on all sizes are one range. `None` if they are not.
    #[must_use = "it is returned, not changed"]
    pub fn with(mut self, from_mib: u64, parts: u64) -> Option<Divisions> {
        self.parts[Divisions::range(from_mib)?] = log2(parts)?;
        Some(self)
    }

    /// The same with another number of parts for all sizes below such a range.
    #[must_use = "it is returned, not changed"]
    pub fn with_below(mut self, from_mib: u64, parts: u64) -> Option<Divisions> {
        self.parts[..Divisions::range(from_mib)?].fill(log2(parts)?);
        Some(self)
    }

    /// The same with another number of parts for all sizes above such a range.
    #[must_use = "it is returned, not changed"]
    pub fn with_above(mut self, from_mib: u64, parts: u64) -> Option<Divisions> {
        self.parts[Divisions::range(from_mib)? + 1..].fill(log2(parts)?);
        Some(self)
    }

    fn range(from_mib: u64) -> Option<usize> {
        from_mib
            .is_power_of_two()
            .then(|| (from_mib.ilog2() as usize).min(RANGES - 1))
    }

    /// Whether anything is rounded to more than 512 B.
    pub(crate) fn is_on(&self) -> bool {
        *self != Divisions::default()
    }

    /// The size of block for a request of at least one byte and at most 2^62.
    #[inline(never)]
    pub(crate) fn round(&self, size: u64) -> u64 {
        let log = size.ilog2();
        let range = (log.saturating_sub(FIRST) as usize).min(RANGES - 1);
        let parts = u32::from(self.parts[range]);
        // The smallest block is no part: below that there is nothing to divide.
        let divides = parts > 0 && size >> parts >= MIN_BLOCK;
        size.next_multiple_of(if divides { 1 << (log - parts) } else { MIN_BLOCK })
    }
}

fn log2(parts: u64) -> Option<u8> {
    match parts {
        0 => Some(0),
        parts => parts.is_power_of_two().then(|| parts.ilog2() as u8),
    }
}

#[cfg(test)]
#[path = "rounding_tests.rs"]
mod tests;
