//! Follows a segment's list of blocks through the block table.

use std::sync::Arc;

use super::{Known, Replica};
use crate::codec::{self, NO_SLOT};
use crate::record::{Block, Segment};
use crate::snapshot::SegmentMap;
use crate::source::Table;

/// Number of lists that are followed at the same time. Each step of a list waits for memory, and these waits overlap.
const AT_ONCE: usize = 8;

/// The result of following a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The blocks tile the segment.
    Whole,
    /// They do not: some have no slot, or the list is wrong.
    Broken,
    /// A block is being written right now, or is not counted yet.
    Torn,
}

/// A list being followed: the blocks found so far, with the slot of each and the sequence number that was read there.
#[derive(Default)]
pub(super) struct Walk {
    blocks: Vec<Block>,
    places: Vec<(u32, u64)>,
    owner: u32,
    /// Slot of the next block.
    slot: u32,
    /// Where the next block must begin, and where the segment ends.
    addr: u64,
    segment_end: u64,
}

impl Walk {
    fn clear(&mut self) {
        self.blocks.clear();
        self.places.clear();
    }

    fn push(&mut self, block: Block, slot: u32, seq: u64) {
        self.blocks.push(block);
        self.places.push((slot, seq));
    }

    /// Starts before the first block of a segment.
    fn begin(&mut self, owner: u32, (segment, first): &(Segment, u32)) {
        self.clear();
        (self.owner, self.slot, self.addr) = (owner, *first, segment.addr);
        // No blocks can tile a segment whose end overflows.
        self.segment_end = segment.addr.checked_add(segment.size).unwrap_or(0);
    }

    /// Goes one block further, through slots below `used`. Returns the result at the end of the list. Every list ends,
    /// even one that changes meanwhile, because `budget` limits the number of slots read.
    #[inline]
    fn step(&mut self, table: &Table<'_>, used: usize, budget: &mut usize) -> Option<End> {
        let slot = self.slot as usize;
        if self.slot == NO_SLOT {
            let whole = self.addr == self.segment_end;
            return Some(if whole { End::Whole } else { End::Broken });
        }
        if slot >= table.slots() {
            return Some(End::Broken);
        }
        if slot >= used || *budget == 0 {
            return Some(End::Torn);
        }
        *budget -= 1;
        let Some((seq, words)) = table.read(slot) else {
            return Some(End::Torn);
        };
        let Some((block, next)) = codec::decode_block(&words) else {
            return Some(End::Broken);
        };
        let fits = block.segment == self.owner && block.addr == self.addr && block.size > 0;
        let after = block.addr.checked_add(block.size);
        let Some(after) = after.filter(|&after| fits && after <= self.segment_end) else {
            return Some(End::Broken);
        };
        self.push(block, self.slot, seq);
        (self.slot, self.addr) = (next, after);
        if (next as usize) < used {
            table.prefetch(next as usize);
        }
        None
    }
}

impl Replica {
    /// Follows the lists of the segments that changed, if they have settled. Returns whether there is a new map.
    pub(super) fn follow(&mut self, table: &Table<'_>) -> bool {
        let mut changed = false;
        let mut broken = Vec::new();
        let mut walks = std::mem::take(&mut self.walks);
        walks.resize_with(AT_ONCE, Walk::default);
        // A slot is in one list, but may move to another meanwhile.
        let mut budget = 2 * self.blocks.len();
        let mut dirty = std::mem::take(&mut self.dirty);
        let (settled, moving): (Vec<u32>, Vec<u32>) = dirty.drain(..).partition(|&slot| self.settled(table, slot));
        self.dirty = moving;
        for group in settled.chunks(AT_ONCE) {
            let mut ends = [None; AT_ONCE];
            for (slot, (walk, end)) in group.iter().zip(walks.iter_mut().zip(&mut ends)) {
                match &self.segments[*slot as usize].record {
                    Some(record) => walk.begin(*slot, record),
                    None => *end = Some(End::Whole),
                }
            }
            while ends[..group.len()].contains(&None) {
                for (walk, end) in walks.iter_mut().zip(&mut ends[..group.len()]) {
                    if end.is_none() {
                        *end = walk.step(table, self.blocks.len(), &mut budget);
                    }
                }
            }
            for (&slot, (walk, end)) in group.iter().zip(walks.iter().zip(ends)) {
                match end {
                    Some(End::Torn) if !self.dead => self.dirty.push(slot),
                    _ if !self.settled(table, slot) => self.dirty.push(slot),
                    Some(End::Whole) => {
                        self.believe(slot, walk, !self.segments[slot as usize].cut_off);
                        changed = true;
                    }
                    _ => broken.push(slot),
                }
            }
        }
        if !broken.is_empty() {
            changed |= self.salvage(table, &broken, &mut walks[0]);
        }
        self.walks = walks;
        changed
    }

    /// Whether a segment's structure still matches its record, or will never change again.
    fn settled(&self, table: &Table<'_>, slot: u32) -> bool {
        self.dead || table.bracket(slot as usize) == self.seqs[slot as usize]
    }

    /// Makes the blocks found the segment's map.
    fn believe(&mut self, slot: u32, walk: &Walk, complete: bool) {
        let entry = &mut self.segments[slot as usize];
        entry.dirty = false;
        entry.draft = None;
        entry.map = entry.record.map(|(segment, _)| {
            for (at, &(block, seq)) in walk.places.iter().enumerate() {
                if !self.orphans.is_empty() {
                    self.orphans.set(block as usize, None);
                }
                self.blocks[block as usize] = Known {
                    seq,
                    segment: slot,
                    at: at as u32,
                };
            }
            Arc::new(SegmentMap::new(slot, segment, walk.blocks.as_slice().into(), complete))
        });
    }

    /// Makes maps of the known blocks of segments without a complete list: by address, without overlap. One pass over
    /// the slots for all of them.
    fn salvage(&mut self, table: &Table<'_>, broken: &[u32], walk: &mut Walk) -> bool {
        let mut parts: Vec<Vec<(Block, u32, u64)>> = vec![Vec::new(); broken.len()];
        let mut part_of = vec![usize::MAX; self.segments.len()];
        for (i, slot) in broken.iter().enumerate() {
            part_of[*slot as usize] = i;
        }
        let mut torn = false;
        for slot in 0..self.blocks.len() {
            let Some((seq, words)) = table.read(slot) else {
                torn = true;
                continue;
            };
            let Some((block, _)) = codec::decode_block(&words) else {
                continue;
            };
            if let Some(part) = part_of.get(block.segment as usize).and_then(|&i| parts.get_mut(i)) {
                part.push((block, slot as u32, seq));
            }
        }
        let mut changed = false;
        for (&slot, mut part) in broken.iter().zip(parts) {
            // The slot that cannot be read may be the missing block.
            if torn && !self.dead || !self.settled(table, slot) {
                self.dirty.push(slot);
                continue;
            }
            let Some((segment, _)) = self.segments[slot as usize].record else {
                continue;
            };
            part.sort_unstable_by_key(|(block, ..)| block.addr);
            walk.clear();
            let mut from = segment.addr;
            let end = segment.addr.saturating_add(segment.size);
            for (block, at, seq) in part {
                let after = block.addr.checked_add(block.size);
                if let Some(after) = after.filter(|&after| block.addr >= from && after <= end && block.size > 0) {
                    walk.push(block, at, seq);
                    from = after;
                }
            }
            self.believe(slot, walk, false);
            changed = true;
        }
        changed
    }
}
