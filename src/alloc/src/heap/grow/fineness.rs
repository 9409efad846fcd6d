//! How fine new chunks are.
//!
//! Large chunks cost least to map, but a stitched block is made of whole ones: what is free in pieces smaller than a chunk does not serve
//! it, and then more is reserved than the program needs. When that happens new chunks are made smaller, and larger again as the program
//! grows without it.

use crate::size::{FREELY, SLACK};

/// What is reserved beyond what the program ever held, as a part of that: above it new chunks are half as large.
const EXCESS: u64 = 48;

/// Up to so many bytes reserved a part of them says nothing.
pub(in crate::heap) const FEW: u64 = 128 << 20;

/// The part of the usual size that chunks come down to in that way.
const FINEST: u64 = 4;

/// Where a program gives back so many blocks for each chunk that it takes, what it does takes longer than mapping, also with chunks of one
/// granule: some 40 µs for each. Servers are so, whose caches grow with every token. From half as many on 4 % more would be mapped for them, for
/// nothing: on 139 of them that batch as they go, and on 440 variations of other programs, just as much is reserved.
const CHEAP: u64 = 160;

/// Whether mapping costs a program little that gave back `frees` blocks and took `chunks`.
pub(in crate::heap) fn is_cheap(frees: u64, chunks: u64) -> bool {
    frees / CHEAP > chunks
}

/// By how much new chunks are smaller than usual.
#[derive(Clone, Copy, Debug)]
pub(in crate::heap) struct Fineness {
    /// A power of two.
    times: u64,
    /// Bytes that were reserved when that changed.
    since: u64,
}

impl Default for Fineness {
    fn default() -> Fineness {
        Fineness { times: 1, since: 0 }
    }
}

impl Fineness {
    /// For another `bytes` of granules, where a program gave back `frees` blocks and took `chunks`.
    pub(in crate::heap) fn times(self, frees: u64, chunks: u64) -> u64 {
        match is_cheap(frees, chunks) {
            true => FREELY,
            false => self.times,
        }
    }

    /// Memory was taken for a large request: so much is reserved now, and so much the program ever held.
    pub(in crate::heap) fn grew(&mut self, reserved: u64, held: u64) {
        let excessive = reserved > held + held / EXCESS && reserved > FEW;
        // One row of large requests says it once.
        if excessive && reserved >= self.since + self.since / 10 {
            self.times = (self.times * 2).min(FINEST);
            self.since = reserved;
        }
        if self.times > 1 && reserved <= held + held / SLACK && reserved >= self.since + self.since / 10 {
            self.times /= 2;
            self.since = reserved;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn chunks_are_finer_after_excess_and_coarser_after_growth_without() {
        let mut fineness = Fineness::default();
        let steps = [
            ("too little to say", 120, 60, 1),
            ("no excess", 200, 197, 1),
            ("excess", 200, 195, 2),
            ("the same one", 210, 190, 2),
            ("another one", 240, 220, 4),
            ("no more than allowed, but soon after", 260, 259, 4),
            ("after growth without", 360, 358, 2),
            ("and again", 800, 798, 1),
            ("never coarser than usual", 1600, 1598, 1),
        ];
        for (what, reserved, held, times) in steps {
            fineness.grew(reserved * MIB, held * MIB);
            assert_eq!(fineness.times(0, 1), times, "{what}");
        }
        for i in 0..20 {
            fineness.grew((2000 + 1000 * i) * MIB, 1000 * MIB);
        }
        assert_eq!(fineness.times(0, 1), FINEST);
    }

    #[test]
    fn chunks_are_as_fine_as_a_request_allows_where_mapping_costs_a_program_little() {
        let fineness = Fineness::default();
        assert_eq!(fineness.times(CHEAP * 10, 10), 1);
        assert_eq!(fineness.times(CHEAP * 11, 10), FREELY);
        // What it takes counts: it pays for what it maps with what it does.
        assert_eq!(fineness.times(CHEAP * 11, 11), 1);
    }
}
