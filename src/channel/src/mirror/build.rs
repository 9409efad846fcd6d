//! From the copied records to maps: what is shown of a segment.

use std::sync::Arc;

use super::{Entry, Mirror};
use crate::codec::{self, NO_SLOT};
use crate::record::{Block, Segment};
use crate::snapshot::SegmentMap;

impl Mirror {
    /// Builds the maps of the segments that settled.
    pub(super) fn build(&mut self, dead: bool) -> bool {
        let mut changed = false;
        let mut broken = Vec::new();
        let dirty = std::mem::take(&mut self.dirty);
        for slot in dirty {
            if self.segments[slot as usize].unsettled && !dead {
                self.dirty.push(slot);
                continue;
            }
            let mut entry = std::mem::take(&mut self.segments[slot as usize]);
            let map = entry.record.and_then(|(segment, first)| {
                let blocks = self.same_places(slot, &entry).or_else(|| {
                    entry.ordered = entry.seq;
                    self.walk(slot, &segment, first, &mut entry.order)
                });
                if blocks.is_none() {
                    broken.push((slot, segment));
                }
                Some(Arc::new(SegmentMap {
                    slot,
                    segment,
                    blocks: blocks?,
                    complete: !entry.cut_off,
                }))
            });
            // The slot that cannot be read may be what is missing.
            if self.torn && !dead && broken.pop_if(|(last, _)| *last == slot).is_some() {
                self.dirty.push(slot);
            } else {
                changed = true;
                entry.dirty = false;
                entry.map = map;
            }
            self.segments[slot as usize] = entry;
        }
        self.salvage(&broken);
        changed
    }

    /// The blocks of a segment whose structure is the one its last map was built from. `None` if it is not, or if a block moved all
    /// the same.
    fn same_places(&self, slot: u32, entry: &Entry) -> Option<Arc<[Block]>> {
        let old = entry
            .map
            .as_ref()
            .filter(|map| map.complete && entry.ordered == entry.seq)?;
        let mut moved = old.blocks.len() != entry.order.len();
        // One pass, one allocation: this is most of what a reader does while a publisher is busy.
        let blocks =
            old.blocks
                .iter()
                .zip(&entry.order)
                .map(|(old, &at)| match codec::to_block(&self.blocks[at as usize]) {
                    Some((new, _)) if (new.addr, new.size, new.segment) == (old.addr, old.size, slot) => new,
                    _ => {
                        moved = true;
                        *old
                    }
                });
        let blocks = blocks.collect();
        (!moved).then_some(blocks)
    }

    /// Follows a segment's list of blocks and notes their slots in `order`. `None` unless they tile it. Ends for any list:
    /// addresses strictly grow along it, so no slot is met twice.
    fn walk(&self, slot: u32, segment: &Segment, first: u32, order: &mut Vec<u32>) -> Option<Arc<[Block]>> {
        let end = segment.addr.checked_add(segment.size)?;
        let (mut at, mut addr) = (first, segment.addr);
        order.clear();
        while at != NO_SLOT {
            let (block, next) = codec::to_block(self.blocks.get(at as usize)?)?;
            let fits = block.segment == slot && block.addr == addr && block.size > 0;
            addr = addr.checked_add(block.size).filter(|&addr| fits && addr <= end)?;
            order.push(at);
            at = next;
        }
        let blocks = order
            .iter()
            .map(|&at| codec::to_block(&self.blocks[at as usize]).map_or_else(Block::default, |b| b.0));
        (addr == end).then(|| blocks.collect())
    }

    /// Shows of segments without a whole list what is known: their blocks by address, without overlap. One pass for all of them.
    fn salvage(&mut self, broken: &[(u32, Segment)]) {
        if broken.is_empty() {
            return;
        }
        let mut parts: Vec<Vec<Block>> = vec![Vec::new(); broken.len()];
        let mut place = vec![usize::MAX; self.segments.len()];
        for (i, (slot, _)) in broken.iter().enumerate() {
            place[*slot as usize] = i;
        }
        for (block, _) in self.blocks.iter().filter_map(codec::to_block) {
            if let Some(part) = place.get(block.segment as usize).and_then(|&i| parts.get_mut(i)) {
                part.push(block);
            }
        }
        for ((slot, segment), mut blocks) in broken.iter().zip(parts) {
            blocks.sort_unstable_by_key(|block| block.addr);
            let mut from = segment.addr;
            let end = segment.addr.saturating_add(segment.size);
            blocks.retain(|block| {
                let after = block
                    .addr
                    .checked_add(block.size)
                    .filter(|&after| block.addr >= from && after <= end && block.size > 0);
                from = after.unwrap_or(from);
                after.is_some()
            });
            let map = SegmentMap {
                slot: *slot,
                segment: *segment,
                blocks: blocks.into(),
                complete: false,
            };
            self.segments[*slot as usize].map = Some(Arc::new(map));
        }
    }
}
