//! A hash for addresses of code and lists of them, which nobody chooses who wants them to be alike.

use std::hash::{BuildHasherDefault, Hasher};

pub(super) type Spread = BuildHasherDefault<Words>;

#[derive(Default)]
pub(super) struct Words(u64);

impl Hasher for Words {
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
