//! The block map of one process on one device, ready to draw.

use std::sync::Arc;

use gpumem_channel::{Block, SegmentMap, StringId};

use super::process::ProcessId;

/// Free blocks counted by size: bucket `i` holds sizes of `2^i` up to, not including, `2^(i+1)` bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Histogram {
    /// Blocks per bucket.
    pub count: [u32; 64],
    /// Bytes per bucket.
    pub bytes: [u64; 64],
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            count: [0; 64],
            bytes: [0; 64],
        }
    }
}

impl Histogram {
    /// Counts a block, unless its size is 0.
    fn add(&mut self, size: u64) {
        if let Some(bucket) = size.checked_ilog2() {
            let bucket = bucket as usize;
            self.count[bucket] = self.count[bucket].saturating_add(1);
            self.bytes[bucket] = self.bytes[bucket].saturating_add(size);
        }
    }

    /// Returns the first and the last bucket in use.
    pub(crate) fn range(&self) -> Option<(usize, usize)> {
        let first = self.count.iter().position(|&n| n > 0)?;
        let last = self.count.iter().rposition(|&n| n > 0)?;
        Some((first, last))
    }
}

/// The segments and blocks of one process on one device.
#[derive(Clone, Debug)]
pub(crate) struct BlockMap {
    /// The process and device.
    pub process: ProcessId,
    /// Segments by address, each with its blocks by address. A segment that is mostly unmapped is replaced by its
    /// [runs with memory](super::mapped()).
    pub segments: Vec<Arc<SegmentMap>>,
    /// The channel's strings, for tags and pool names.
    pub strings: Arc<[Arc<str>]>,
    /// Bytes of all segments' address ranges.
    pub bytes: u64,
    /// Number of blocks.
    pub blocks: usize,
    /// Bytes of unmapped addresses that are left out.
    pub left_out: u64,
    /// Number and bytes of the blocks that did not fit into the channel's table.
    pub untracked: (u64, u64),
    /// When the channel was read.
    pub read_at: super::Nanos,
    /// The time up to which the map is known to be right. For a black box that is the program's last sign of life, if known.
    pub until: Option<super::Nanos>,
}

impl BlockMap {
    /// Returns how long a block has been in its state, or had been when the program of a black box ended.
    pub(crate) fn age(&self, block: &Block) -> Option<super::Nanos> {
        Some(self.until?.saturating_sub(block.time))
    }

    /// Returns the block that contains `addr`, with the index of its segment.
    pub(crate) fn at(&self, addr: u64) -> Option<(usize, &Block)> {
        let i = self
            .segments
            .partition_point(|s| s.segment.addr <= addr)
            .checked_sub(1)?;
        let blocks = &self.segments[i].blocks;
        let block = &blocks[blocks.partition_point(|b| b.addr <= addr).checked_sub(1)?];
        (addr - block.addr < block.size).then_some((i, block))
    }

    /// Returns the number, from 1, of the published segment that the one at an index belongs to, and how many there are.
    pub(crate) fn number(&self, segment: usize) -> (usize, usize) {
        let count = |segments: &[Arc<SegmentMap>]| segments.chunk_by(|a, b| a.slot == b.slot).count();
        (count(&self.segments[..=segment]), count(&self.segments))
    }

    /// Returns the number of published segments.
    pub(crate) fn published(&self) -> usize {
        self.segments.len().checked_sub(1).map_or(0, |last| self.number(last).1)
    }

    /// Returns the block at `addr`, else the first one that begins after it, else the last.
    pub(crate) fn nearest(&self, addr: u64) -> Option<(usize, &Block)> {
        self.at(addr).or_else(|| {
            let mut all = self
                .segments
                .iter()
                .enumerate()
                .flat_map(|(i, s)| s.blocks.iter().map(move |b| (i, b)));
            let after = all.by_ref().find(|(_, b)| b.addr >= addr);
            after.or_else(|| self.last())
        })
    }

    /// Returns the first block, with the index of its segment.
    pub(crate) fn first(&self) -> Option<(usize, &Block)> {
        self.segments
            .iter()
            .enumerate()
            .find_map(|(i, s)| s.blocks.first().map(|b| (i, b)))
    }

    /// Returns the last block, with the index of its segment.
    pub(crate) fn last(&self) -> Option<(usize, &Block)> {
        self.segments
            .iter()
            .enumerate()
            .rev()
            .find_map(|(i, s)| s.blocks.last().map(|b| (i, b)))
    }

    /// Counts the free blocks by size. Visits every block, so it is called only where the result is drawn.
    pub(crate) fn free_sizes(&self) -> Histogram {
        let mut sizes = Histogram::default();
        for segment in &self.segments {
            gpumem_channel::free_sizes(&segment.blocks).for_each(|bytes| sizes.add(bytes));
        }
        sizes
    }

    /// Bytes of the largest segment.
    #[cfg(test)]
    pub(crate) fn largest_segment(&self) -> u64 {
        self.segments.iter().map(|s| s.segment.size).max().unwrap_or(0)
    }

    /// Returns the text of a tag or pool name; empty if there is none.
    pub(crate) fn string(&self, id: StringId) -> &str {
        self.strings.get(id.0 as usize).map_or("", |s| s)
    }
}
