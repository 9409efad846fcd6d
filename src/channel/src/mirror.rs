//! A reader's private copy of the block map, kept up to date by reading only what changed.
//!
//! A segment's structure is believed only if the segment's sequence word was the same even number before and after its blocks
//! were read. So a round is: read the segments' records, read the blocks of every group whose generation changed, look at the
//! sequence words again. Segments that changed in between are tried again in the next round; a round over little is short, so a
//! busy publisher's segments settle in a few.

use std::ops::Range;
use std::sync::Arc;

use crate::codec::{self, NO_SLOT, SEGMENT_DATA};
use crate::error::ReadError;
use crate::layout::{GROUP, Layout, live, words};
use crate::record::{Block, Segment};
use crate::snapshot::SegmentMap;
use crate::source::Source;

/// Rounds of one pass. What has not settled by then is tried again in the next pass.
const ROUNDS: usize = 16;

type BlockWords = [u64; words::BLOCK - 1];

/// One segment slot.
#[derive(Default)]
struct Entry {
    /// Sequence number of `record`.
    seq: u64,
    /// The segment and the slot of its first block; `None` when empty.
    record: Option<(Segment, u32)>,
    /// Its blocks changed since `map` was built.
    dirty: bool,
    /// This round could not read it, or a block of it.
    unsettled: bool,
    /// The last consistent state.
    map: Option<Arc<SegmentMap>>,
    /// The slots of its blocks by address, and the sequence number under which they were put in order: while that stays, blocks
    /// change their state but not their place.
    order: Vec<u32>,
    ordered: u64,
}

/// The copy.
#[derive(Default)]
pub(crate) struct Mirror {
    segments: Vec<Entry>,
    seqs: Vec<u64>,
    blocks: Vec<BlockWords>,
    generations: Vec<u64>,
    dirty: Vec<u32>,
}

impl Mirror {
    /// Brings the copy up to date. Returns whether any segment's map changed. `dead` says that nobody writes any more, so that what
    /// is stuck in the middle of a change will stay so and is shown as far as it goes.
    pub(crate) fn refresh(&mut self, source: &Source, layout: &Layout, dead: bool) -> Result<bool, ReadError> {
        let mut changed = false;
        for _ in 0..ROUNDS {
            self.grow(source, layout)?;
            self.read_segments(source, layout)?;
            self.read_blocks(source, layout)?;
            if self.dirty.is_empty() {
                return Ok(changed);
            }
            self.check_segments(source, layout)?;
            changed |= self.build(dead);
            if self.dirty.is_empty() {
                return Ok(changed);
            }
        }
        Ok(changed)
    }

    /// Makes room for the slots in use. The counts are the publisher's claim, limited by the tables' sizes.
    fn grow(&mut self, source: &Source, layout: &Layout) -> Result<(), ReadError> {
        let used = |which| Ok::<_, ReadError>(source.load(layout.live.start + which)?.min(usize::MAX as u64) as usize);
        let blocks = used(live::BLOCKS)?.min(layout.blocks.count);
        let segments = used(live::SEGMENTS)?.min(layout.segments.count);
        // What was published before the counts is visible from here on.
        source.fence();
        if blocks > self.blocks.len() {
            self.seqs.resize(blocks, 0);
            self.blocks.resize(blocks, [0; words::BLOCK - 1]);
            self.generations.resize(blocks.div_ceil(GROUP), 0);
            // The group that was in part beyond the end has to be read again up to the new one.
            if let Some(last) = self.generations.last_mut() {
                *last = 0;
            }
        }
        if segments > self.segments.len() {
            self.segments.resize_with(segments, Entry::default);
        }
        Ok(())
    }

    fn mark(segments: &mut [Entry], dirty: &mut Vec<u32>, slot: u32, unsettled: bool) {
        if let Some(entry) = segments.get_mut(slot as usize) {
            entry.unsettled |= unsettled;
            if !std::mem::replace(&mut entry.dirty, true) {
                dirty.push(slot);
            }
        }
    }

    fn read_segments(&mut self, source: &Source, layout: &Layout) -> Result<(), ReadError> {
        let (segments, dirty) = (&mut self.segments, &mut self.dirty);
        for &slot in &*dirty {
            segments[slot as usize].unsettled = false;
        }
        let known: Vec<u64> = segments.iter().map(|entry| entry.seq).collect();
        let range = 0..segments.len();
        source.changed(
            &layout.segments,
            range,
            |i| known[i],
            |i, record: Option<(u64, [u64; SEGMENT_DATA])>| {
                Self::mark(segments, dirty, i as u32, record.is_none());
                if let Some((seq, words)) = record {
                    segments[i].seq = seq;
                    segments[i].record = codec::to_segment(&words);
                }
            },
        )?;
        source.fence();
        Ok(())
    }

    fn read_blocks(&mut self, source: &Source, layout: &Layout) -> Result<(), ReadError> {
        let mut now = vec![0; self.generations.len()];
        source.copy(layout.generations.start, &mut now)?;
        // Before the slots: a slot that changes later moves its generation again.
        source.fence();
        for (group, now) in now.into_iter().enumerate() {
            if now != self.generations[group] {
                let range = group * GROUP..((group + 1) * GROUP).min(self.blocks.len());
                if self.read_group(source, layout, range)? {
                    self.generations[group] = now;
                }
            }
        }
        // The segments' words are looked at again after everything above.
        source.fence();
        Ok(())
    }

    /// Reads the changed slots of one group. Returns false if one of them could not be read and the group has to be read again.
    fn read_group(&mut self, source: &Source, layout: &Layout, range: Range<usize>) -> Result<bool, ReadError> {
        let Mirror {
            segments,
            seqs,
            blocks,
            dirty,
            ..
        } = self;
        let mut whole = true;
        let known: Vec<u64> = seqs[range.clone()].to_vec();
        let start = range.start;
        source.changed(
            &layout.blocks,
            range,
            |i| known[i - start],
            |i, record: Option<(u64, BlockWords)>| {
                if let Some(owner) = codec::block_segment(&blocks[i]) {
                    Self::mark(segments, dirty, owner, record.is_none());
                }
                let Some((seq, words)) = record else {
                    whole = false;
                    return;
                };
                seqs[i] = seq;
                blocks[i] = words;
                if let Some(owner) = codec::block_segment(&words) {
                    Self::mark(segments, dirty, owner, false);
                }
            },
        )?;
        Ok(whole)
    }

    /// Looks at the sequence words again: a segment whose word moved changed while its blocks were read.
    fn check_segments(&mut self, source: &Source, layout: &Layout) -> Result<(), ReadError> {
        for &slot in &self.dirty {
            let entry = &mut self.segments[slot as usize];
            entry.unsettled |= source.load(layout.segments.record(slot as usize).start)? != entry.seq;
        }
        Ok(())
    }

    /// Builds the maps of the segments that settled.
    fn build(&mut self, dead: bool) -> bool {
        let mut changed = false;
        let mut broken = Vec::new();
        let dirty = std::mem::take(&mut self.dirty);
        for slot in dirty {
            if self.segments[slot as usize].unsettled && !dead {
                self.dirty.push(slot);
                continue;
            }
            changed = true;
            let mut entry = std::mem::take(&mut self.segments[slot as usize]);
            entry.dirty = false;
            entry.map = entry.record.and_then(|(segment, first)| {
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
                    complete: true,
                }))
            });
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

    /// The newest consistent map of every segment.
    pub(crate) fn maps(&self) -> impl Iterator<Item = &Arc<SegmentMap>> {
        self.segments.iter().filter_map(|entry| entry.map.as_ref())
    }

    /// How many segments are behind what is published.
    pub(crate) fn lagging(&self) -> u32 {
        self.dirty.len() as u32
    }
}
