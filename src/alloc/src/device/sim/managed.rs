//! Managed memory of the simulated device: an address range, and contents that are the host's. Nothing moves.

use std::sync::Arc;

use crate::device::managed::{ALIGNMENT, Advice, Location, ManagedMemory};
use crate::device::{Driver, Result};
use crate::stream::Stream;

#[derive(Debug)]
pub(super) struct Allocation {
    driver: Arc<dyn Driver>,
    addr: u64,
    /// Bytes of the address range.
    reserved: u64,
    bytes: usize,
    /// Untouched pages of it take no memory.
    contents: Vec<u8>,
}

impl Allocation {
    pub(super) fn new(driver: Arc<dyn Driver>, bytes: u64) -> Result<Allocation> {
        let reserved = bytes.next_multiple_of(driver.info().granularity.max(1));
        let addr = driver.reserve(reserved)?;
        Ok(Allocation {
            driver,
            addr,
            reserved,
            bytes: bytes as usize,
            contents: vec![0; bytes as usize + ALIGNMENT],
        })
    }
}

impl ManagedMemory for Allocation {
    fn addr(&self) -> u64 {
        self.addr
    }

    fn prefetch(&self, _: u64, _: u64, _: Location, _: Stream) -> Result<()> {
        Ok(())
    }

    fn advise(&self, _: Advice) -> Result<()> {
        Ok(())
    }

    fn discard(&mut self, _: u64, _: u64, _: Stream) -> Result<()> {
        Ok(())
    }

    fn host(&mut self) -> Result<&mut [u8]> {
        let first = self.contents.as_ptr().align_offset(ALIGNMENT);
        Ok(&mut self.contents[first..first + self.bytes])
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // Only an address range that is mapped is refused.
        let _ = self.driver.unreserve(self.addr, self.reserved);
    }
}
