//! A hash for addresses, of blocks and of code, and lists of them, which nobody chooses who wants them to be alike: a multiplication each.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

pub(crate) type ByAddress<T> = HashMap<u64, T, Spread>;

pub(crate) type Spread = BuildHasherDefault<Words>;

#[derive(Debug, Default)]
pub(crate) struct Words(u64);

impl Hasher for Words {
    /// What is the same in all of them, as the last bits of blocks' addresses, is so in the product's last bits, too, and not in its first.
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        words.iter().for_each(|word| self.write_u64(u64::from_ne_bytes(*word)));
        rest.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(25) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}
