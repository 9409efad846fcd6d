//! Checks a snapshot for inconsistencies.

mod trace;

use std::collections::BTreeMap;
use std::ops::Range;

use crate::types::{Action, Block, BlockState, Segment, SegmentType, Snapshot};

/// An inconsistency that never occurs in PyTorch's own snapshots. Segments, blocks and entries are given by their
/// indices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A block does not begin where the previous one ends. `_memory_viz` ignores addresses and assumes that it does.
    #[error("segment {segment}, block {block}: begins at {address:#x}, the one before ends at {end:#x}")]
    Tiling {
        /// The segment.
        segment: usize,
        /// The block.
        block: usize,
        /// Its address.
        address: u64,
        /// The end of the previous block.
        end: u64,
    },
    /// The segment's end is beyond 2^64.
    #[error("segment {segment}: {size} bytes from {address:#x} on is more than there are addresses")]
    Range {
        /// The segment.
        segment: usize,
        /// Its address.
        address: u64,
        /// Its size.
        size: u64,
    },
    /// A sum in the segment differs from that of its blocks. `_memory_viz` fails if it is `total_size`.
    #[error("segment {segment}: {name} is {said}, its blocks have {blocks}")]
    Sum {
        /// The segment.
        segment: usize,
        /// The key of the sum.
        name: &'static str,
        /// The sum in the segment.
        said: u64,
        /// The sum of the blocks.
        blocks: u128,
    },
    /// A block is empty, or smaller than its request.
    #[error("segment {segment}, block {block}: {requested} bytes requested in a block of {size}")]
    Size {
        /// The segment.
        segment: usize,
        /// The block.
        block: usize,
        /// The requested size.
        requested: u64,
        /// The block's size.
        size: u64,
    },
    /// Two segments of a device share memory.
    #[error("segments {segment} and {other} overlap")]
    Overlap {
        /// The segment with the higher address.
        segment: usize,
        /// The other segment.
        other: usize,
    },
    /// A block is freed that was already freed.
    #[error(
        "device {device}, entry {entry}: frees {address:#x}, which entry {before} freed; nothing was allocated there since"
    )]
    FreedTwice {
        /// The device.
        device: usize,
        /// The entry of its trace.
        entry: usize,
        /// The block's address.
        address: u64,
        /// The entry that freed it.
        before: usize,
    },
    /// A block is freed with another size than it was allocated with.
    #[error(
        "device {device}, entry {entry}: frees {size} bytes at {address:#x}, where entry {before} allocated {allocated}"
    )]
    FreeSize {
        /// The device.
        device: usize,
        /// The entry of its trace.
        entry: usize,
        /// The block's address.
        address: u64,
        /// The size in this entry.
        size: u64,
        /// The entry that allocated it.
        before: usize,
        /// The size in the allocating entry.
        allocated: u64,
    },
    /// A block's state, a segment's type or an event's action is not one of PyTorch's.
    #[error("{count} times the {what} {name:?}, which is not known")]
    Unknown {
        /// The kind of name: block state, segment type or action.
        what: &'static str,
        /// Its name in the file.
        name: String,
        /// How often it occurs.
        count: u64,
    },
}

impl Snapshot {
    /// Returns the inconsistencies; none for what PyTorch writes. They include the viewers' own checks.
    pub fn check(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (index, segment) in self.segments.iter().enumerate() {
            blocks(index, segment, &mut problems);
            sums(index, segment, &mut problems);
        }
        self.overlaps(&mut problems);
        for (device, trace) in self.device_traces.iter().enumerate() {
            problems.extend(trace::contradictions(device, trace));
        }
        self.unknown_names(&mut problems);
        problems
    }

    fn overlaps(&self, problems: &mut Vec<Problem>) {
        let range = |s: &Segment| s.address..s.address.saturating_add(s.total_size);
        let mut order: Vec<usize> = (0..self.segments.len()).collect();
        order.sort_by_key(|index| (self.segments[*index].device, self.segments[*index].address));
        // The range with the highest end so far: a large segment may overlap many.
        let mut furthest: Option<(i32, usize, Range<u64>)> = None;
        for index in order {
            let segment = &self.segments[index];
            let range = range(segment);
            match &furthest {
                Some((device, other, before)) if *device == segment.device => {
                    if range.start < before.end {
                        problems.push(Problem::Overlap {
                            segment: index,
                            other: *other,
                        });
                    }
                    if range.end > before.end {
                        furthest = Some((segment.device, index, range));
                    }
                }
                _ => furthest = Some((segment.device, index, range)),
            }
        }
    }

    fn unknown_names(&self, problems: &mut Vec<Problem>) {
        let mut counts = BTreeMap::new();
        let mut count = |what, name| *counts.entry((what, self.tables.get_text(name))).or_insert(0) += 1;
        for segment in &self.segments {
            if let SegmentType::Other(name) = segment.segment_type {
                count("segment type", name);
            }
            for block in &segment.blocks {
                if let BlockState::Other(name) = block.state {
                    count("block state", name);
                }
            }
        }
        for entry in self.device_traces.iter().flatten() {
            if let Action::Other(name) = entry.action {
                count("action", name);
            }
        }
        problems.extend(counts.into_iter().map(|((what, name), count)| Problem::Unknown {
            what,
            name: name.to_owned(),
            count,
        }));
    }
}

fn blocks(index: usize, segment: &Segment, problems: &mut Vec<Problem>) {
    let (address, size) = (segment.address, segment.total_size);
    if address.checked_add(size).is_none() {
        problems.push(Problem::Range {
            segment: index,
            address,
            size,
        });
    }
    let mut end = address;
    for (place, block) in segment.blocks.iter().enumerate() {
        if block.address != end {
            problems.push(Problem::Tiling {
                segment: index,
                block: place,
                address: block.address,
                end,
            });
        }
        // In some versions a free block keeps the size of its last request.
        if block.size == 0 || block.state.active() && block.requested_size > block.size {
            problems.push(Problem::Size {
                segment: index,
                block: place,
                requested: block.requested_size,
                size: block.size,
            });
        }
        end = block.address.saturating_add(block.size);
    }
}

fn sums(index: usize, segment: &Segment, problems: &mut Vec<Problem>) {
    let sum = |of: fn(&Block) -> u64, when: fn(BlockState) -> bool| -> u128 {
        let counted = segment.blocks.iter().filter(|block| when(block.state));
        counted.map(|block| u128::from(of(block))).sum()
    };
    let allocated = |state| state == BlockState::ActiveAllocated;
    let sums = [
        ("total_size", segment.total_size, sum(|b| b.size, |_| true)),
        ("allocated_size", segment.allocated_size, sum(|b| b.size, allocated)),
        ("active_size", segment.active_size, sum(|b| b.size, BlockState::active)),
        (
            "requested_size",
            segment.requested_size,
            sum(|b| b.requested_size, BlockState::active),
        ),
    ];
    for (name, said, blocks) in sums {
        if u128::from(said) != blocks {
            problems.push(Problem::Sum {
                segment: index,
                name,
                said,
                blocks,
            });
        }
    }
}
