//! Hashes of block ids.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Hashes a block id with a random multiplier. Ids in a file may be crafted to collide for a known multiplier. The standard
/// hasher is safe as well, but takes longer than the rest of reading a line.
pub(super) struct Spread {
    spread: u64,
    times: u64,
}

/// Makes the hashers of one map.
pub(super) struct Key {
    start: u64,
    times: u64,
}

impl Default for Key {
    fn default() -> Key {
        let random = RandomState::new();
        Key {
            start: random.hash_one(0),
            // An even multiplier would lose bits.
            times: random.hash_one(1) | 1,
        }
    }
}

impl BuildHasher for Key {
    type Hasher = Spread;

    fn build_hasher(&self) -> Spread {
        Spread {
            spread: self.start,
            times: self.times,
        }
    }
}

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.spread
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, n: u64) {
        let wide = u128::from(self.spread ^ n) * u128::from(self.times);
        self.spread = (wide >> 64) as u64 ^ wide as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The ids have the same lower bits with a well-known multiplier, that of the golden ratio.
    #[test]
    fn crafted_ids_do_not_collide() {
        let known = |n: u64| {
            let wide = u128::from(n) * 0x9e37_79b9_7f4a_7c15;
            (wide >> 64) as u64 ^ wide as u64
        };
        let crafted = (0..1u64 << 20).filter(|n| known(*n) % 1024 == 0);
        let key = Key::default();
        let places: Vec<u64> = crafted.map(|n| key.hash_one(n) % 1024).collect();
        let met: HashSet<u64> = places.iter().copied().collect();
        // If there are as many ids as places, random hashes hit 63 % of the places.
        assert!(places.len() > 900 && met.len() > 400, "{} {}", places.len(), met.len());
    }
}
