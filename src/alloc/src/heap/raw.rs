//! Blocks that were handed out as raw pointers, by address.

use std::hash::Hasher;

use gpumem_channel::SegmentKind;

use super::{Grant, Heap};
use crate::error::Error;
use crate::raw::Base;

impl Heap {
    pub(crate) fn add_raw(&mut self, grant: Grant) {
        self.raw.insert(grant.addr, grant.block);
    }

    /// Forgets a raw pointer; its block is still allocated.
    pub(crate) fn take_raw(&mut self, addr: u64) -> Result<u32, Error> {
        self.raw.remove(&addr).ok_or(Error::UnknownPointer { addr })
    }

    pub(crate) fn find_raw(&self, addr: u64) -> Result<u32, Error> {
        self.raw.get(&addr).copied().ok_or(Error::UnknownPointer { addr })
    }

    /// The plain segment of a raw pointer.
    pub(crate) fn base_of_raw(&self, addr: u64) -> Result<Base, Error> {
        let segment = self.segments.get(self.blocks[self.find_raw(addr)?].segment);
        match segment.filter(|segment| segment.kind == SegmentKind::Plain) {
            Some(segment) => Ok(Base {
                addr: segment.addr,
                bytes: segment.size,
            }),
            None => Err(Error::NoBase { addr }),
        }
    }
}

/// Addresses are multiples of 512 and well spread above that; one multiplication is hash enough.
#[derive(Debug, Default)]
pub(crate) struct AddressHasher(u64);

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
