//! Following a segment's list of blocks through the block table.

use std::sync::Arc;

use super::{Known, Mirror};
use crate::codec::{self, NO_SLOT};
use crate::record::{Block, Segment};
use crate::snapshot::SegmentMap;
use crate::source::Table;

/// The blocks of one segment as they are found, and where: the slot of each, and the sequence number of what was read there.
#[derive(Default)]
pub(super) struct Walk {
    blocks: Vec<Block>,
    places: Vec<(u32, u64)>,
}

/// How following a list ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The blocks tile the segment.
    Whole,
    /// They do not: some have no slot, or somebody lies.
    Broken,
    /// A block is being written right now, or is not yet counted.
    Torn,
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

    /// Follows the list that begins at slot `first`, over slots below `used`. Ends for any list, even for one that changes under
    /// our feet: no more slots are read than `budget` allows.
    fn follow(
        &mut self,
        table: &Table<'_>,
        used: usize,
        owner: u32,
        (segment, first): &(Segment, u32),
        budget: &mut usize,
    ) -> End {
        self.clear();
        let Some(end) = segment.addr.checked_add(segment.size) else {
            return End::Broken;
        };
        let (mut slot, mut addr) = (*first, segment.addr);
        while slot != NO_SLOT {
            let at = slot as usize;
            if at >= table.slots() {
                return End::Broken;
            }
            if at >= used || *budget == 0 {
                return End::Torn;
            }
            *budget -= 1;
            let Some((seq, words)) = table.read(at) else {
                return End::Torn;
            };
            let Some((block, next)) = codec::to_block(&words) else {
                return End::Broken;
            };
            let fits = block.segment == owner && block.addr == addr && block.size > 0;
            match addr.checked_add(block.size).filter(|&after| fits && after <= end) {
                Some(after) => addr = after,
                None => return End::Broken,
            }
            self.push(block, slot, seq);
            slot = next;
        }
        if addr == end { End::Whole } else { End::Broken }
    }
}

impl Mirror {
    /// Follows the lists of the segments that changed, as far as these have settled. Returns whether there is a new map.
    pub(super) fn follow(&mut self, table: &Table<'_>) -> bool {
        let mut changed = false;
        let mut broken = Vec::new();
        let mut walk = std::mem::take(&mut self.walk);
        // A slot is in one list; it may move to another while we look.
        let mut budget = 2 * self.blocks.len();
        for slot in std::mem::take(&mut self.dirty) {
            let i = slot as usize;
            if !self.settled(table, slot) {
                self.dirty.push(slot);
                continue;
            }
            let end = match &self.segments[i].record {
                Some(record) => walk.follow(table, self.blocks.len(), slot, record, &mut budget),
                None => End::Whole,
            };
            match end {
                End::Torn if !self.dead => self.dirty.push(slot),
                _ if !self.settled(table, slot) => self.dirty.push(slot),
                End::Whole => {
                    self.believe(slot, &walk, !self.segments[i].cut_off);
                    changed = true;
                }
                End::Torn | End::Broken => broken.push(slot),
            }
        }
        if !broken.is_empty() {
            changed |= self.salvage(table, &broken, &mut walk);
        }
        self.walk = walk;
        changed
    }

    /// Whether a segment's structure is still the one of its record, or will stay as it is.
    fn settled(&self, table: &Table<'_>, slot: u32) -> bool {
        self.dead || table.bracket(slot as usize) == self.seqs[slot as usize]
    }

    /// Makes what was found the segment's map.
    fn believe(&mut self, slot: u32, walk: &Walk, complete: bool) {
        let entry = &mut self.segments[slot as usize];
        entry.dirty = false;
        entry.draft = None;
        entry.map = entry.record.map(|(segment, _)| {
            for (at, &(block, seq)) in walk.places.iter().enumerate() {
                self.blocks[block as usize] = Known {
                    seq,
                    segment: slot,
                    at: at as u32,
                };
            }
            Arc::new(SegmentMap::new(slot, segment, walk.blocks.as_slice().into(), complete))
        });
    }

    /// Shows of segments without a whole list what is known: their blocks by address, without overlap. One pass for all of them.
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
            let Some((block, _)) = codec::to_block(&words) else {
                continue;
            };
            if let Some(part) = part_of.get(block.segment as usize).and_then(|&i| parts.get_mut(i)) {
                part.push((block, slot as u32, seq));
            }
        }
        let mut changed = false;
        for (&slot, mut part) in broken.iter().zip(parts) {
            // The slot that cannot be read may be what is missing.
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
