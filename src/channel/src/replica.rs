//! A reader's replica of the block map, kept up to date by reading only what changed.
//!
//! Each block is stored once, in the maps that are handed out. For each slot of the block table the replica knows the
//! map and position of its block, and the sequence number of the state stored there. There are two kinds of change:
//! - **Structure.** A segment's sequence word changed: its list of blocks is followed again (`replica/walk.rs`), and
//!   accepted only if the word is the same even number before and after.
//! - **State.** A group's generation changed: each slot of the group whose own sequence word changed is read. Its block
//!   is replaced if its segment's word is still the one under which the list was followed.
//!
//! A round looks for both. What changed during a round is read again in the next one. A round over few changes is
//! short, so the segments of a busy publisher settle within a few rounds.

use std::ops::Range;
use std::sync::Arc;

use crate::codec::{self, SEGMENT_DATA};
use crate::error::ReadError;
use crate::format::{GROUP, live};
use crate::layout::Layout;
use crate::record::{Block, Segment};
use crate::snapshot::SegmentMap;
use crate::source::{Source, Table};
use generations::Generations;
use orphans::Orphans;

mod generations;
mod orphans;
#[cfg(test)]
mod tests;
mod walk;

/// Most rounds of one pass. What has not settled by then is read again in the next pass.
const ROUNDS: usize = 16;

/// The state of one segment slot.
#[derive(Default)]
struct Entry {
    /// The segment and the slot of its first block; `None` when empty.
    record: Option<(Segment, u32)>,
    /// Its list must be followed again.
    dirty: bool,
    /// Its publisher ended during a change: `record` is what was stored by then.
    cut_off: bool,
    /// The last consistent state.
    map: Option<Arc<SegmentMap>>,
    /// The same state while blocks of it are being replaced, until the end of the pass. Then `map` is `None`.
    draft: Option<SegmentMap>,
}

/// The state of one block slot.
#[derive(Clone, Copy)]
struct Known {
    /// Sequence number of the last state that was read.
    seq: u64,
    /// Slot of the segment whose map has the block, and its position there.
    segment: u32,
    at: u32,
}

const NOWHERE: Known = Known {
    seq: 0,
    segment: u32::MAX,
    at: u32::MAX,
};

/// The replica of a channel's block map.
#[derive(Default)]
pub(crate) struct Replica {
    segments: Vec<Entry>,
    /// Sequence number of each segment's record.
    seqs: Vec<u64>,
    blocks: Vec<Known>,
    generations: Generations,
    /// The segments marked as dirty, so that not all entries have to be searched.
    dirty: Vec<u32>,
    /// Segments with a block that could not be read.
    torn: Vec<u32>,
    /// Segments that have a draft.
    drafts: Vec<u32>,
    walks: Vec<walk::Walk>,
    orphans: Orphans,
    /// Whether the publisher had ended before the last pass.
    dead: bool,
}

impl Replica {
    /// Brings the replica up to date. Returns whether the structure of any segment changed. `dead` means that nothing
    /// writes any more: a segment that is in the middle of a change will stay so, and is shown as far as it was stored.
    pub(crate) fn refresh(&mut self, source: &mut Source, layout: &Layout, dead: bool) -> Result<bool, ReadError> {
        if dead && !self.dead {
            // A reader that opens the file now cannot see the states that were being replaced. This reader forgets them
            // too, so that both show the same.
            *self = Replica {
                dead,
                ..Replica::default()
            };
        }
        let mut changed = false;
        for _ in 0..ROUNDS {
            self.grow(source, layout)?;
            self.read_segments(source, layout)?;
            let groups = self.generations.changed(source, layout, self.blocks.len())?;
            let used = (self.blocks.len(), self.segments.len());
            source.copy_blocks(&layout.blocks, &layout.segments, &groups, used)?;
            let table = source.table(&layout.blocks, &layout.segments);
            changed |= self.follow(&table);
            self.read_blocks(&table, &groups, layout.segments.count);
            if self.dirty.is_empty() && self.torn.is_empty() {
                break;
            }
        }
        self.finish_drafts();
        Ok(changed)
    }

    /// Grows the tables to the slots in use. The counts are the publisher's claim, and limited to the sizes of the
    /// tables.
    fn grow(&mut self, source: &Source, layout: &Layout) -> Result<(), ReadError> {
        let used = |which| Ok::<_, ReadError>(source.load(layout.live.start + which)?.min(usize::MAX as u64) as usize);
        let blocks = used(live::BLOCKS)?.min(layout.blocks.count);
        let segments = used(live::SEGMENTS)?.min(layout.segments.count);
        // Everything published before the counts is visible after this fence.
        source.fence();
        if blocks > self.blocks.len() {
            // The last group was partly beyond the old end, and must be read again.
            let part = self.blocks.len() / GROUP;
            self.blocks.resize(blocks, NOWHERE);
            self.generations.forget(part);
        }
        if segments > self.segments.len() {
            self.segments.resize_with(segments, Entry::default);
            self.seqs.resize(segments, 0);
        }
        Ok(())
    }

    /// Marks a segment as dirty.
    fn mark(&mut self, slot: u32) {
        if let Some(entry) = self.segments.get_mut(slot as usize)
            && !std::mem::replace(&mut entry.dirty, true)
        {
            self.dirty.push(slot);
        }
    }

    fn read_segments(&mut self, source: &Source, layout: &Layout) -> Result<(), ReadError> {
        let mut changed = Vec::new();
        let seqs = &self.seqs;
        source.changed(
            &layout.segments,
            0..seqs.len(),
            |i| seqs[i],
            |i, record: Option<(u64, [u64; SEGMENT_DATA])>| changed.push((i, record)),
        )?;
        for (i, record) in changed {
            self.mark(i as u32);
            match record {
                Some((seq, words)) => {
                    self.seqs[i] = seq;
                    self.segments[i].record = codec::decode_segment(&words);
                }
                None if self.dead => self.read_cut_off(source, layout, i)?,
                None => {}
            }
        }
        source.fence();
        Ok(())
    }

    /// Accepts a record that will never be finished as it is. A record that was being made has no kind yet, and one
    /// that was being freed has no address any more: such a segment is gone.
    fn read_cut_off(&mut self, source: &Source, layout: &Layout, i: usize) -> Result<(), ReadError> {
        let mut record = [0; 1 + SEGMENT_DATA];
        source.copy(layout.segments.record(i).start, &mut record)?;
        let [seq, words @ ..] = record;
        self.seqs[i] = seq;
        let there = |(s, _): &(Segment, u32)| s.addr > 0 && s.mapped <= s.size;
        self.segments[i].record = codec::decode_segment(&words).filter(there);
        self.segments[i].cut_off = true;
        Ok(())
    }

    /// Reads the changed slots of these groups. `segments` is the size of the segment table.
    fn read_blocks(&mut self, table: &Table<'_>, groups: &[Range<usize>], segments: usize) {
        self.torn.clear();
        for slots in groups {
            // All sequence words are loaded first, without branches in between: they come from another core's cache,
            // and this way the loads overlap.
            let mut seqs = [0; GROUP];
            for (seq, slot) in seqs.iter_mut().zip(slots.clone()) {
                *seq = table.seq(slot);
            }
            let mut whole = true;
            for (slot, seq) in slots.clone().zip(seqs) {
                if seq != self.blocks[slot].seq {
                    whole &= self.read_block(table, slot, segments);
                }
            }
            // If the publisher is dead, an unfinished slot is not waited for.
            if whole || self.dead {
                self.generations.read(slots.start / GROUP);
            }
        }
        if self.dead {
            self.torn.clear();
        }
        self.torn.sort_unstable();
        self.torn.dedup();
    }

    /// Reads one slot and replaces its block in its map. Returns false if it could not be read.
    fn read_block(&mut self, table: &Table<'_>, slot: usize, segments: usize) -> bool {
        let Some((seq, words)) = table.read(slot) else {
            // A block that is in no map yet makes no map outdated.
            let owner = self.blocks[slot].segment;
            self.torn.extend((owner != NOWHERE.segment).then_some(owner));
            return false;
        };
        let known = &mut self.blocks[slot];
        known.seq = seq;
        let known = *known;
        let block = codec::decode_block(&words).map(|(block, _)| block);
        let orphan = block.as_ref().filter(|block| block.segment as usize >= segments);
        if orphan.is_some() || !self.orphans.is_empty() {
            self.orphans.set(slot, orphan);
        }
        let owner = block.map_or(known.segment, |block| block.segment);
        // Checked after the block was read: until then the segment had the structure of the map.
        let same = self
            .seqs
            .get(owner as usize)
            .is_some_and(|&seq| table.bracket(owner as usize) == seq);
        // An empty slot is in no list.
        let fits = same && block.is_none_or(|block| self.put(&block, known));
        if !fits {
            self.mark(owner);
        }
        true
    }

    /// Replaces a block of its segment's map. Returns false if the map has another block there.
    fn put(&mut self, block: &Block, known: Known) -> bool {
        let entry = &mut self.segments[block.segment as usize];
        if entry.dirty {
            // Its list will be followed anyway.
            return true;
        }
        let shown = entry.draft.as_ref().or(entry.map.as_deref());
        let there = shown.and_then(|map| map.blocks.get(known.at as usize));
        let fits = there.is_some_and(|there| (there.addr, there.size) == (block.addr, block.size));
        if !fits || known.segment != block.segment {
            return false;
        }
        if entry.draft.is_none() {
            // Copies the blocks only if a snapshot still uses them.
            entry.draft = entry.map.take().map(Arc::unwrap_or_clone);
            self.drafts.push(block.segment);
        }
        if let Some(draft) = &mut entry.draft {
            draft.replace(known.at as usize, block);
        }
        true
    }

    fn finish_drafts(&mut self) {
        for slot in self.drafts.drain(..) {
            let entry = &mut self.segments[slot as usize];
            if let Some(mut draft) = entry.draft.take() {
                draft.settle();
                entry.map = Some(Arc::new(draft));
            }
        }
    }

    /// Iterates over the newest consistent map of every segment.
    pub(crate) fn maps(&self) -> impl Iterator<Item = &Arc<SegmentMap>> {
        self.segments.iter().filter_map(|entry| entry.map.as_ref())
    }

    /// Returns the newest consistent map of a segment.
    pub(crate) fn map(&self, slot: u32) -> Option<&Arc<SegmentMap>> {
        self.segments.get(slot as usize)?.map.as_ref()
    }

    /// Whether the map of a segment is older than its published structure.
    pub(crate) fn is_behind(&self, slot: u32) -> bool {
        self.segments.get(slot as usize).is_some_and(|entry| entry.dirty)
    }

    /// Returns the number and bytes of the blocks whose segments have no slot.
    pub(crate) fn orphans(&self) -> (u64, u64) {
        self.orphans.counted()
    }

    /// Returns how many segments are older than their published structure.
    pub(crate) fn lagging(&self) -> u32 {
        let torn = self.torn.iter().filter(|&&torn| !self.is_behind(torn)).count();
        (self.dirty.len() + torn) as u32
    }
}
