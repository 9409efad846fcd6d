//! A reader's private copy of the block map, kept up to date by reading only what changed.
//!
//! A segment's structure is believed only if the segment's sequence word was the same even number before and after its blocks
//! were read. So a round is: read the segments' records, read the blocks of every group whose generation changed, look at the
//! sequence words again. Segments that changed in between are tried again in the next round; a round over little is short, so a
//! busy publisher's segments settle in a few.

mod build;

use std::ops::Range;
use std::sync::Arc;

use crate::codec::{self, SEGMENT_DATA};
use crate::error::ReadError;
use crate::layout::{GROUP, Layout, live, words};
use crate::record::Segment;
use crate::snapshot::SegmentMap;
use crate::source::Source;

/// Rounds of one pass. What has not settled by then is tried again in the next pass.
const ROUNDS: usize = 16;

/// How many slots of a table its publisher says to have used.
fn in_use(source: &Source, layout: &Layout, which: usize) -> Result<usize, ReadError> {
    Ok(usize::try_from(source.load(layout.live.start + which)?).unwrap_or(usize::MAX))
}

fn blocks_in_use(source: &Source, layout: &Layout) -> Result<usize, ReadError> {
    Ok(in_use(source, layout, live::BLOCKS)?.min(layout.blocks.count))
}

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
    /// Its publisher ended in the middle of a change: `record` is what was stored by then.
    cut_off: bool,
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
    /// This round could not read a slot of which nobody knows yet whose it is now.
    torn: bool,
    /// All was read after the publisher's end.
    last_read: bool,
}

impl Mirror {
    /// Brings the copy up to date. Returns whether any segment's map changed. `dead` says that nobody writes any more, so that what
    /// is stuck in the middle of a change will stay so and is shown as far as it goes.
    pub(crate) fn refresh(&mut self, source: &Source, layout: &Layout, dead: bool) -> Result<bool, ReadError> {
        let mut changed = false;
        for _ in 0..ROUNDS {
            self.grow(source, layout)?;
            self.read_segments(source, layout)?;
            if dead {
                self.read_cut_off(source, layout)?;
            }
            self.read_blocks(source, layout, dead)?;
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
        let blocks = blocks_in_use(source, layout)?;
        let segments = in_use(source, layout, live::SEGMENTS)?.min(layout.segments.count);
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

    /// Takes the records that will never be finished as they stand. One that was being made has no kind yet, one that was being
    /// given back no address any more: such a segment is gone.
    fn read_cut_off(&mut self, source: &Source, layout: &Layout) -> Result<(), ReadError> {
        for &slot in &self.dirty {
            let entry = &mut self.segments[slot as usize];
            if entry.unsettled {
                let mut record = [0; 1 + SEGMENT_DATA];
                source.copy(layout.segments.record(slot as usize).start, &mut record)?;
                let [seq, words @ ..] = record;
                (entry.seq, entry.cut_off) = (seq, true);
                let there = |(s, _): &(Segment, u32)| s.addr > 0 && s.mapped <= s.size;
                entry.record = codec::to_segment(&words).filter(there);
            }
        }
        Ok(())
    }

    fn read_blocks(&mut self, source: &Source, layout: &Layout, dead: bool) -> Result<(), ReadError> {
        self.torn = false;
        // A generation moves after its slots: that of a slot in which the publisher ended never does.
        let last = dead && !std::mem::replace(&mut self.last_read, dead);
        let mut now = vec![0; self.generations.len()];
        source.copy(layout.generations.start, &mut now)?;
        // Before the slots: a slot that changes later moves its generation again.
        source.fence();
        for (group, now) in now.into_iter().enumerate() {
            if now != self.generations[group] || last {
                let range = group * GROUP..((group + 1) * GROUP).min(self.blocks.len());
                if self.read_group(source, layout, range, dead)? {
                    self.generations[group] = now;
                } else {
                    self.torn = true;
                }
            }
        }
        // The segments' words are looked at again after everything above.
        source.fence();
        Ok(())
    }

    /// Reads the changed slots of one group. Returns false if one of them could not be read and the group has to be read again. A
    /// slot that nobody will finish writing is empty: what was there before may be long over.
    fn read_group(
        &mut self,
        source: &Source,
        layout: &Layout,
        range: Range<usize>,
        dead: bool,
    ) -> Result<bool, ReadError> {
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
                    if dead {
                        blocks[i] = [0; words::BLOCK - 1];
                    }
                    whole &= dead;
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

    /// Looks at the sequence words again: a segment whose word moved changed while its blocks were read. One that was read after
    /// the slots in use were counted may name slots that have come into use since.
    fn check_segments(&mut self, source: &Source, layout: &Layout) -> Result<(), ReadError> {
        let more_blocks = blocks_in_use(source, layout)? > self.blocks.len();
        for &slot in &self.dirty {
            let entry = &mut self.segments[slot as usize];
            let moved = source.load(layout.segments.record(slot as usize).start)? != entry.seq;
            entry.unsettled |= moved || more_blocks;
        }
        Ok(())
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
