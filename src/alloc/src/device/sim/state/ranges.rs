//! Reserved address ranges and the chunks mapped into them.

use super::{GRANULARITY, Mapping, State};
use crate::device::{Call, Result};

impl State {
    pub(in crate::device::sim) fn reserve(&mut self, bytes: u64) -> Result<u64> {
        self.begin(Call::Reserve, bytes, 0)?;
        if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
            return self.violation(Call::Reserve, format!("{bytes} bytes are not whole pages"));
        }
        let addr = self.new_range(bytes);
        self.ranges.insert(addr, bytes);
        Ok(addr)
    }

    pub(in crate::device::sim) fn unreserve(&mut self, addr: u64, bytes: u64) -> Result<()> {
        self.begin(Call::Unreserve, bytes, 0)?;
        if self.ranges.get(&addr) != Some(&bytes) {
            return self.violation(
                Call::Unreserve,
                format!("0x{addr:x} is not a reserved range of {bytes} bytes"),
            );
        }
        if self.mappings.range(addr..addr + bytes).next().is_some() {
            return self.violation(Call::Unreserve, format!("0x{addr:x} still has mappings"));
        }
        self.ranges.remove(&addr);
        Ok(())
    }

    pub(in crate::device::sim) fn create(&mut self, bytes: u64) -> Result<u64> {
        self.begin(Call::Create, bytes, 1)?;
        if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
            return self.violation(Call::Create, format!("{bytes} bytes are not whole pages"));
        }
        self.new_physical(Call::Create, bytes)
    }

    pub(in crate::device::sim) fn release(&mut self, id: u64) -> Result<()> {
        self.begin(Call::Release, 0, 1)?;
        match self.physical.get_mut(&id) {
            Some(physical) if !physical.released => physical.released = true,
            _ => return self.violation(Call::Release, format!("handle {id} is not alive")),
        }
        self.drop_if_unused(id);
        Ok(())
    }

    pub(in crate::device::sim) fn map(&mut self, addr: u64, bytes: u64, id: u64) -> Result<()> {
        self.begin(Call::Map, bytes, 1)?;
        let reserved = self
            .ranges
            .range(..=addr)
            .next_back()
            .is_some_and(|(s, len)| addr + bytes <= s + len);
        let free = self
            .mappings
            .range(..addr + bytes)
            .next_back()
            .is_none_or(|(s, m)| s + m.size <= addr);
        match self.physical.get_mut(&id) {
            Some(physical) if physical.size == bytes && !physical.released && reserved && free => {
                physical.mappings += 1;
                self.mappings.insert(
                    addr,
                    Mapping {
                        size: bytes,
                        physical: id,
                        access: false,
                    },
                );
                Ok(())
            }
            _ => self.violation(Call::Map, format!("handle {id} of {bytes} bytes at 0x{addr:x}")),
        }
    }

    /// Start addresses of the mappings that tile a range; `None` when they do not.
    fn tiles(&self, addr: u64, bytes: u64) -> Option<Vec<u64>> {
        let mut at = addr;
        let mut found = Vec::new();
        while at < addr + bytes {
            let mapping = self.mappings.get(&at)?;
            found.push(at);
            at += mapping.size;
        }
        (at == addr + bytes && !found.iter().any(|a| self.plain.contains(a))).then_some(found)
    }

    pub(in crate::device::sim) fn set_access(&mut self, addr: u64, bytes: u64) -> Result<()> {
        let tiles = self.tiles(addr, bytes);
        self.begin(Call::SetAccess, bytes, tiles.as_ref().map_or(1, |t| t.len() as u64))?;
        let Some(tiles) = tiles else {
            return self.violation(Call::SetAccess, format!("0x{addr:x} is not wholly mapped"));
        };
        for tile in tiles {
            self.mappings.entry(tile).and_modify(|m| m.access = true);
        }
        Ok(())
    }

    pub(in crate::device::sim) fn unmap(&mut self, addr: u64, bytes: u64) -> Result<()> {
        let tiles = self.tiles(addr, bytes);
        self.begin(Call::Unmap, bytes, tiles.as_ref().map_or(1, |t| t.len() as u64))?;
        let Some(tiles) = tiles else {
            return self.violation(Call::Unmap, format!("0x{addr:x} is not whole mappings"));
        };
        if self.busy(addr, bytes) {
            self.violations.push(format!("cuMemUnmap: queued work uses 0x{addr:x}"));
        }
        for tile in tiles {
            if let Some(mapping) = self.mappings.remove(&tile) {
                self.physical.entry(mapping.physical).and_modify(|p| p.mappings -= 1);
                self.drop_if_unused(mapping.physical);
            }
        }
        Ok(())
    }
}
