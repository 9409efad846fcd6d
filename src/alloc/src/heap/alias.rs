//! Aliases: address ranges at which chunks are mapped a second time, so that free pieces that lie apart are one block there.
//!
//! Physical memory has one home each, in the one virtual segment; what is free and what is held is said there. A stitched block is
//! held as several pieces at home and used at its alias's address. When it is freed its pieces are free like any others, and
//! the alias stays, mapped: the next request of the same size takes it, if all its pieces are free by then, without a driver
//! call. So a loop that does the same again maps nothing.

use std::collections::HashMap;

use super::Heap;
use super::block::NIL;
use super::streams::ANY;
use crate::error::DeviceError;

/// Mappings of aliases that are kept for later. Beyond that the ones not used for longest go: address space is plenty, but a
/// driver was seen to refuse more than half a million mappings.
const MAX_MAPPINGS: usize = 65_536;

/// Chunks mapped side by side.
#[derive(Debug)]
pub(super) struct Alias {
    /// The address range: where it begins, its bytes, and its mappings.
    range: u64,
    bytes: u64,
    mappings: usize,
    /// The block in it.
    pub(super) addr: u64,
    pub(super) size: u64,
    /// Where its pieces are at home.
    pub(super) pieces: Vec<Piece>,
    /// The blocks of the pieces while it is held; empty otherwise.
    pub(super) parts: Vec<u32>,
    /// The heap's free counter when it was freed last, and by which stream.
    freed_at: u64,
    stream: u16,
}

/// A part of the home segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) addr: u64,
    pub(super) size: u64,
}

impl Alias {
    pub(super) fn new(range: u64, bytes: u64, mappings: usize, addr: u64, pieces: Vec<Piece>) -> Alias {
        Alias {
            range,
            bytes,
            mappings,
            addr,
            size: pieces.iter().map(|piece| piece.size).sum(),
            pieces,
            parts: Vec::new(),
            freed_at: 0,
            stream: ANY,
        }
    }

    /// Work that was queued on a stream until now may use it.
    pub(super) fn freed(&mut self, at: u64, stream: u16) {
        (self.freed_at, self.stream) = (at, stream);
    }
}

/// What is left of an alias when the driver fails.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stale {
    /// The reserved range and its bytes.
    pub(super) range: u64,
    pub(super) bytes: u64,
    /// Bytes from its beginning that are mapped.
    pub(super) mapped: u64,
}

/// All aliases of a heap.
#[derive(Debug, Default)]
pub(super) struct Aliases {
    slots: Vec<Option<Alias>>,
    by_size: HashMap<u64, Vec<u32>>,
    mappings: usize,
    /// Ranges that could not be unmapped or given back: tried again at every release.
    stale: Vec<Stale>,
}

impl Aliases {
    pub(super) fn get(&self, alias: u32) -> Option<&Alias> {
        self.slots.get(alias as usize).and_then(Option::as_ref)
    }

    pub(super) fn get_mut(&mut self, alias: u32) -> Option<&mut Alias> {
        self.slots.get_mut(alias as usize).and_then(Option::as_mut)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_size.is_empty()
    }

    /// The aliases of blocks of `size` bytes, the newest last.
    pub(super) fn of_size(&self, size: u64) -> &[u32] {
        self.by_size.get(&size).map_or(&[], Vec::as_slice)
    }

    pub(super) fn insert(&mut self, alias: Alias) -> u32 {
        let at = self.slots.iter().position(Option::is_none).unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.mappings += alias.mappings;
        self.by_size.entry(alias.size).or_default().push(at as u32);
        self.slots[at] = Some(alias);
        at as u32
    }

    fn remove(&mut self, alias: u32) -> Option<Alias> {
        let gone = self.slots.get_mut(alias as usize)?.take()?;
        self.mappings -= gone.mappings;
        if let Some(same) = self.by_size.get_mut(&gone.size) {
            same.retain(|other| *other != alias);
            if same.is_empty() {
                self.by_size.remove(&gone.size);
            }
        }
        Some(gone)
    }

    /// Those that no block uses.
    fn idle(&self) -> impl Iterator<Item = (u32, &Alias)> {
        let all = self.slots.iter().enumerate();
        all.filter_map(|(i, alias)| {
            alias
                .as_ref()
                .filter(|alias| alias.parts.is_empty())
                .map(|alias| (i as u32, alias))
        })
    }

    /// All of them.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Alias)> {
        let all = self.slots.iter().enumerate();
        all.filter_map(|(i, alias)| alias.as_ref().map(|alias| (i as u32, alias)))
    }
}

impl Heap {
    /// Unmaps the aliases that no block uses. To be called when no queued work uses them. Memory that is mapped anywhere is not
    /// free for the device, so an error means that nothing of the home segment can be given back now.
    pub(super) fn drop_idle_aliases(&mut self) -> Result<(), DeviceError> {
        let mut outcome = Ok(());
        for stale in std::mem::take(&mut self.aliases.stale) {
            outcome = outcome.and(self.give_range_back(stale));
        }
        let idle: Vec<u32> = self.aliases.idle().map(|(alias, _)| alias).collect();
        for alias in idle {
            outcome = outcome.and(self.drop_alias(alias));
        }
        outcome
    }

    /// Makes room for another alias, from those that are known not to be used by queued work.
    pub(super) fn limit_aliases(&mut self, mappings: usize) {
        if self.aliases.mappings + mappings <= MAX_MAPPINGS {
            return;
        }
        let done = |alias: &Alias| alias.freed_at <= self.streams.line(alias.stream).safe;
        let mut idle: Vec<(u64, u32)> = self
            .aliases
            .idle()
            .filter(|(_, alias)| done(alias))
            .map(|(i, alias)| (alias.freed_at, i))
            .collect();
        idle.sort_unstable();
        for (_, alias) in idle {
            if self.aliases.mappings + mappings <= MAX_MAPPINGS / 2 {
                break;
            }
            // What fails is remembered.
            let _ = self.drop_alias(alias);
        }
    }

    fn drop_alias(&mut self, alias: u32) -> Result<(), DeviceError> {
        match self.aliases.remove(alias) {
            Some(Alias { range, bytes, .. }) => self.give_range_back(Stale {
                range,
                bytes,
                mapped: bytes,
            }),
            None => Ok(()),
        }
    }

    /// Unmaps what is mapped in a range and gives the range back. What fails is tried again at the next release; an error is
    /// only what is still mapped.
    pub(super) fn give_range_back(&mut self, mut left: Stale) -> Result<(), DeviceError> {
        if left.mapped > 0 {
            if let Err(error) = self.driver.unmap(left.range, left.mapped) {
                self.aliases.stale.push(left);
                return Err(error);
            }
            left.mapped = 0;
        }
        if self.driver.unreserve(left.range, left.bytes).is_err() {
            self.aliases.stale.push(left);
        }
        Ok(())
    }

    /// Unmaps everything, at the end of the heap.
    pub(super) fn drop_all_aliases(&mut self) {
        for alias in 0..self.aliases.slots.len() as u32 {
            let _ = self.drop_alias(alias);
        }
        let _ = self.drop_idle_aliases();
    }

    /// Whether a piece lies in a free block that the stream may have at once.
    pub(super) fn is_free_for(&self, home: u32, piece: Piece, stream: u16) -> bool {
        self.block_at(home, piece.addr).is_some_and(|b| {
            let block = &self.blocks[b];
            piece.addr + piece.size <= block.addr + block.size && self.free_bytes_of(b, stream) > 0
        })
    }

    /// The block of a segment that an address lies in.
    pub(super) fn block_at(&self, segment: u32, addr: u64) -> Option<u32> {
        let segment = self.segments.get(segment)?;
        let granule = (addr.checked_sub(segment.addr)? / self.sizes.granularity) as usize;
        let mut b = *segment.cover.get(granule)?;
        while b != NIL {
            let block = &self.blocks[b];
            if addr < block.addr + block.size {
                return (addr >= block.addr).then_some(b);
            }
            b = block.next;
        }
        None
    }

    /// Notes for every granule of the home segment that begins in a block that it does.
    #[inline]
    pub(super) fn cover(&mut self, b: u32) {
        let block = &self.blocks[b];
        if self.home != Some(block.segment) {
            return;
        }
        if let Some(segment) = self.segments.get_mut(block.segment) {
            let unit = self.sizes.granularity;
            let from = (block.addr - segment.addr).div_ceil(unit) as usize;
            let to = (block.addr + block.size - segment.addr).div_ceil(unit) as usize;
            if to > segment.cover.len() {
                segment.cover.resize(to, NIL);
            }
            segment.cover[from..to].fill(b);
        }
    }
}
