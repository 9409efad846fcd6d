//! Random numbers that are the same in every run.

/// A xorshift generator.
pub struct Random(u64);

impl Random {
    /// Makes a generator. Each seed gives another sequence.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns any number.
    pub fn any(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.any() % n
    }
}
