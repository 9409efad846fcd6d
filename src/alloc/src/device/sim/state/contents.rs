//! Reading and writing through mappings.

use super::{State, error};
use crate::device::sim::memory::Memory;
use crate::device::{Call, Result};

const ILLEGAL_ADDRESS: (i32, &str) = (700, "CUDA_ERROR_ILLEGAL_ADDRESS");

impl State {
    /// Cuts a range at the borders of its mappings and hands each piece's memory to `visit` with the offset into it and
    /// the offset into the range.
    fn pieces(
        &mut self,
        addr: u64,
        len: u64,
        mut visit: impl FnMut(&mut Memory, u64, std::ops::Range<u64>),
    ) -> Result<()> {
        let mut at = addr;
        while at < addr + len {
            let Some((start, mapping)) = self
                .mappings
                .range(..=at)
                .next_back()
                .filter(|(s, m)| at < **s + m.size && m.access)
            else {
                return Err(error(Call::Copy, ILLEGAL_ADDRESS));
            };
            let end = (start + mapping.size).min(addr + len);
            let offset = at - start;
            if let Some(physical) = self.physical.get_mut(&mapping.physical) {
                visit(&mut physical.memory, offset, at - addr..end - addr);
            }
            at = end;
        }
        Ok(())
    }

    pub(in crate::device::sim) fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<()> {
        self.begin(Call::Copy, bytes.len() as u64, 0)?;
        self.pieces(addr, bytes.len() as u64, |memory, at, part| {
            memory.write(at, &bytes[part.start as usize..part.end as usize]);
        })
    }

    pub(in crate::device::sim) fn read(&mut self, addr: u64, bytes: &mut [u8]) -> Result<()> {
        self.begin(Call::Copy, bytes.len() as u64, 0)?;
        self.pieces(addr, bytes.len() as u64, |memory, at, part| {
            memory.read(at, &mut bytes[part.start as usize..part.end as usize]);
        })
    }

    pub(in crate::device::sim) fn fill(&mut self, addr: u64, value: u32, words: u64) -> Result<()> {
        self.begin(Call::Copy, 0, 0)?;
        self.pieces(addr, words * 4, |memory, at, part| {
            memory.fill(at, value, part.end - part.start)
        })
    }
}
