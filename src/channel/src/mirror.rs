//! A reader's private copy of the block map, kept up to date by reading only what changed.
//!
//! The blocks are kept once, in the maps that are handed out. Of a slot of the block table the mirror knows where in which map its
//! block is, and the sequence number of the state that is there. There are two kinds of change:
//! - **Structure.** A segment's sequence word moved: its list of blocks is followed anew (`mirror/walk.rs`), and believed only if
//!   the word is the same even number before and after.
//! - **State.** A group's generation moved: each slot of the group whose own sequence word moved is read, and put in its place if
//!   its segment's word still is the one under which the list was followed.
//!
//! A round looks for both. What changed while it was looked at is tried again in the next round; a round over little is short, so
//! a busy publisher's segments settle in a few.

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
use strays::Strays;

mod generations;
mod strays;
#[cfg(test)]
mod tests;
mod walk;

/// Rounds of one pass. What has not settled by then is tried again in the next pass.
const ROUNDS: usize = 16;

/// One segment slot.
#[derive(Default)]
struct Entry {
    /// The segment and the slot of its first block; `None` when empty.
    record: Option<(Segment, u32)>,
    /// Its list has to be followed anew.
    dirty: bool,
    /// Its publisher ended in the middle of a change: `record` is what was stored by then.
    cut_off: bool,
    /// The last consistent state ...
    map: Option<Arc<SegmentMap>>,
    /// ... or that state while blocks of it are replaced: until the end of the pass.
    draft: Option<SegmentMap>,
}

/// What is known of one block slot.
#[derive(Clone, Copy)]
struct Known {
    /// Sequence number of the state that was read last.
    seq: u64,
    /// Slot of the segment whose map has it, and where in the map.
    segment: u32,
    at: u32,
}

const NOWHERE: Known = Known {
    seq: 0,
    segment: u32::MAX,
    at: u32::MAX,
};

/// The copy.
#[derive(Default)]
pub(crate) struct Mirror {
    segments: Vec<Entry>,
    /// Sequence number of each segment's record.
    seqs: Vec<u64>,
    blocks: Vec<Known>,
    generations: Generations,
    /// The segments whose lists have to be followed anew: those whose entries say so, to be found without looking at all.
    dirty: Vec<u32>,
    /// Segments with a block that could not be read.
    torn: Vec<u32>,
    /// Segments with drafts.
    drafts: Vec<u32>,
    walks: Vec<walk::Walk>,
    strays: Strays,
    /// This is of after the publisher's end.
    dead: bool,
}

impl Mirror {
    /// Brings the copy up to date. Returns whether any segment's structure changed. `dead` says that nobody writes any more, so that
    /// what is stuck in the middle of a change will stay so and is shown as far as it goes.
    pub(crate) fn refresh(&mut self, source: &mut Source, layout: &Layout, dead: bool) -> Result<bool, ReadError> {
        if dead && !self.dead {
            // A reader that opens the file now does not see what its publisher was about to replace. This one forgets it, too.
            *self = Mirror {
                dead,
                ..Mirror::default()
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

    /// Makes room for the slots in use. The counts are the publisher's claim, limited by the tables' sizes.
    fn grow(&mut self, source: &Source, layout: &Layout) -> Result<(), ReadError> {
        let used = |which| Ok::<_, ReadError>(source.load(layout.live.start + which)?.min(usize::MAX as u64) as usize);
        let blocks = used(live::BLOCKS)?.min(layout.blocks.count);
        let segments = used(live::SEGMENTS)?.min(layout.segments.count);
        // What was published before the counts is visible from here on.
        source.fence();
        if blocks > self.blocks.len() {
            // The group that was in part beyond the end has to be read again up to the new one.
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

    /// Notes that a segment's list has to be followed anew.
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
                    self.segments[i].record = codec::to_segment(&words);
                }
                None if self.dead => self.read_cut_off(source, layout, i)?,
                None => {}
            }
        }
        source.fence();
        Ok(())
    }

    /// Takes a record that will never be finished as it stands. One that was being made has no kind yet, one that was being given
    /// back no address any more: such a segment is gone.
    fn read_cut_off(&mut self, source: &Source, layout: &Layout, i: usize) -> Result<(), ReadError> {
        let mut record = [0; 1 + SEGMENT_DATA];
        source.copy(layout.segments.record(i).start, &mut record)?;
        let [seq, words @ ..] = record;
        self.seqs[i] = seq;
        let there = |(s, _): &(Segment, u32)| s.addr > 0 && s.mapped <= s.size;
        self.segments[i].record = codec::to_segment(&words).filter(there);
        self.segments[i].cut_off = true;
        Ok(())
    }

    /// Reads the changed slots of these groups. `segments`: how many there is room for.
    fn read_blocks(&mut self, table: &Table<'_>, groups: &[Range<usize>], segments: usize) {
        self.torn.clear();
        for slots in groups {
            // All of them first, without a branch in between: they come from another core's cache, and wait for each other least
            // like this.
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
            // What nobody will finish writing is not waited for.
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

    /// Reads one slot and puts its block in its place. False if it could not be read.
    fn read_block(&mut self, table: &Table<'_>, slot: usize, segments: usize) -> bool {
        let Some((seq, words)) = table.read(slot) else {
            // A block that is in no map yet makes none late.
            let owner = self.blocks[slot].segment;
            self.torn.extend((owner != NOWHERE.segment).then_some(owner));
            return false;
        };
        let known = &mut self.blocks[slot];
        known.seq = seq;
        let known = *known;
        let block = codec::to_block(&words).map(|(block, _)| block);
        let stray = block.as_ref().filter(|block| block.segment as usize >= segments);
        if stray.is_some() || !self.strays.is_empty() {
            self.strays.set(slot, stray);
        }
        let owner = block.map_or(known.segment, |block| block.segment);
        // After the block was read: until then its segment's structure is the one that the map shows.
        let same = self
            .seqs
            .get(owner as usize)
            .is_some_and(|&seq| table.bracket(owner as usize) == seq);
        // A slot that was emptied before the list was followed is in no list.
        let fits = same && block.is_none_or(|block| self.put(&block, known));
        if !fits {
            self.mark(owner);
        }
        true
    }

    /// Replaces a block of its segment's map. False if it is not the one that is there.
    fn put(&mut self, block: &Block, known: Known) -> bool {
        let entry = &mut self.segments[block.segment as usize];
        if entry.dirty {
            // Its turn will come.
            return true;
        }
        let shown = entry.draft.as_ref().or(entry.map.as_deref());
        let there = shown.and_then(|map| map.blocks.get(known.at as usize));
        let fits = there.is_some_and(|there| (there.addr, there.size) == (block.addr, block.size));
        if !fits || known.segment != block.segment {
            return false;
        }
        if entry.draft.is_none() {
            // Copies the blocks only if somebody still looks at them.
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

    /// The newest consistent map of every segment.
    pub(crate) fn maps(&self) -> impl Iterator<Item = &Arc<SegmentMap>> {
        self.segments.iter().filter_map(|entry| entry.map.as_ref())
    }

    /// The newest consistent map of a segment.
    pub(crate) fn map(&self, slot: u32) -> Option<&Arc<SegmentMap>> {
        self.segments.get(slot as usize)?.map.as_ref()
    }

    /// Whether the map of a segment is behind what is published of its structure.
    pub(crate) fn is_behind(&self, slot: u32) -> bool {
        self.segments.get(slot as usize).is_some_and(|entry| entry.dirty)
    }

    /// How many blocks are of segments that have no slot, and their bytes.
    pub(crate) fn strays(&self) -> (u64, u64) {
        self.strays.counted()
    }

    /// How many segments are behind what is published.
    pub(crate) fn lagging(&self) -> u32 {
        let torn = self.torn.iter().filter(|&&torn| !self.is_behind(torn)).count();
        (self.dirty.len() + torn) as u32
    }
}
