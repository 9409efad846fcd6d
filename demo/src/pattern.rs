//! The pattern that the kernels write and check, as the host computes it. `kernels/pattern.cuh` has the same function.

/// Returns the word at `index` of a range filled with `seed`: SplitMix64's output function.
pub fn pattern(seed: u64, index: u64) -> u64 {
    let z = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The result of checking a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Words compared.
    pub words: u64,
    /// Words that differ from the pattern.
    pub mismatches: u64,
    /// Index of the first word that differs.
    pub first: Option<u64>,
}

impl Checked {
    /// Checks whether every word equals the pattern.
    pub fn intact(&self) -> bool {
        self.mismatches == 0
    }

    /// Adds up two checks; `first` is that of the first range with a mismatch.
    pub fn and(self, other: Checked) -> Checked {
        Checked {
            words: self.words + other.words,
            mismatches: self.mismatches + other.mismatches,
            first: self.first.or(other.first),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs of SplitMix64 seeded with 1234567, from its reference implementation.
    #[test]
    fn pattern_is_splitmix64() {
        let expected: [u64; 3] = [6457827717110365317, 3203168211198807973, 9817491932198370423];
        for (index, word) in expected.into_iter().enumerate() {
            assert_eq!(pattern(1234567, index as u64), word);
        }
    }
}
