//! Addresses as keys of a table.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

pub(super) type ByAddress<T> = HashMap<u64, T, BuildHasherDefault<AddressHasher>>;

/// Addresses are multiples of 512, mostly, and well spread above that; one multiplication is hash enough.
#[derive(Debug, Default)]
pub(super) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte) ^ self.0);
        }
    }

    fn write_u64(&mut self, n: u64) {
        let mixed = (n >> 9).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}
