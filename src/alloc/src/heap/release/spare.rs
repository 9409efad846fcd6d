//! What may go back to the driver: everything that is free and that no queued work uses. Nothing changes by looking for it.

use std::cell::LazyCell;
use std::collections::HashSet;

use gpumem_channel::{BlockState, SegmentKind};

use crate::free::Key;
use crate::heap::Heap;
use crate::heap::arena::COMMON;
use crate::heap::release::going::{Going, Staying};
use crate::heap::segment::{Chunk, Segment};
use crate::heap::stitch::view::{Part, Stale, View};
use crate::size::Class;

/// The part of all mappings that are kept which goes at a time. The request that needs the room waits for it: a driver takes some 20 µs
/// for each.
const AT_A_TIME: usize = 16;

impl Heap {
    /// Everything.
    pub(in crate::heap) fn spare(&self) -> Vec<Going> {
        let mut spare = self.spare_mappings();
        spare.extend(self.spare_in(|segment| self.arenas.may_shrink(segment.arena)));
        spare
    }

    /// Everything of an arena. Mappings are no pool's.
    pub(in crate::heap) fn spare_of(&self, arena: u16) -> Vec<Going> {
        let mut spare = match arena {
            COMMON => self.spare_mappings(),
            _ => Vec::new(),
        };
        spare.extend(self.spare_in(|segment| segment.arena == arena));
        spare
    }

    /// Of certain segments the free memory: plain ones that are wholly free, whole chunks of virtual ones that no view maps which stays.
    pub(in crate::heap) fn spare_in(&self, may: impl Fn(&Segment) -> bool) -> Vec<Going> {
        let mut spare = Vec::new();
        // All mappings and all free blocks, under the heap's lock: most often not needed, as pools live in plain segments.
        let known = LazyCell::new(|| (self.kept_by_views(), self.roomy()));
        for (slot, segment) in self.segments.iter().filter(|(_, segment)| may(segment)) {
            match segment.kind {
                SegmentKind::Virtual => self.spare_chunks(slot, segment, &known.1, &known.0, &mut spare),
                _ if self.is_free(segment) && self.is_unused(segment.first) => spare.push(Going::Plain {
                    slot,
                    addr: segment.addr,
                }),
                _ => {}
            }
        }
        spare
    }

    /// Of nobody's memory for blocks of some classes whole chunks, at least so many bytes if there are; and what maps them beside their home, or
    /// may: the device would not get them back before that is gone.
    pub(in crate::heap) fn spare_chunked(&self, bytes: u64, of: impl Fn(Class) -> bool) -> Vec<Going> {
        let mut left = bytes;
        let mut homes = HashSet::new();
        let mut spare = self.spare_in(|segment| of(segment.class) && segment.arena == COMMON);
        spare.retain_mut(|going| {
            let Going::Chunks { run, .. } = going else {
                return matches!(going, Going::Stale { .. });
            };
            run.retain(|(addr, chunk)| {
                let goes = left > 0 && homes.insert(*addr);
                left = left.saturating_sub(chunk.size);
                goes
            });
            !run.is_empty()
        });
        if homes.is_empty() {
            return Vec::new();
        }
        spare.extend(self.spare_views(|home| homes.contains(&home)));
        spare
    }

    /// Whether all of a plain segment is free.
    pub(in crate::heap) fn is_free(&self, segment: &Segment) -> bool {
        segment.first == segment.last && self.blocks[segment.first].state == BlockState::Free
    }

    /// Whether no queued work uses a free block. Others may have given it back while the device was waited for.
    pub(in crate::heap) fn is_unused(&self, b: u32) -> bool {
        let block = &self.blocks[b];
        self.streams.is_any(block.stream) || block.freed_at <= self.streams.line(block.stream).safe
    }

    /// Free blocks that a whole chunk may lie in, by segment and address. There may be very many smaller ones, and a request that is
    /// refused has this done.
    fn roomy(&self) -> Vec<(u32, Key)> {
        let mut roomy = Vec::new();
        for line in self.streams.indices().map(|at| self.streams.line(at)) {
            for index in &line.free {
                index.each_from(self.sizes.granularity, |key| {
                    roomy.push((self.blocks[key.block].segment, key));
                });
            }
        }
        roomy.sort_unstable_by_key(|(segment, key)| (*segment, key.addr));
        roomy
    }

    fn spare_chunks(
        &self,
        slot: u32,
        segment: &Segment,
        roomy: &[(u32, Key)],
        kept: &HashSet<u64>,
        spare: &mut Vec<Going>,
    ) {
        let stale = segment.stale.iter();
        spare.extend(stale.map(|(addr, bytes)| Going::Stale {
            slot,
            addr: *addr,
            bytes: *bytes,
        }));
        let mut left = segment.mapped;
        let its = &roomy[roomy.partition_point(|(of, _)| *of < slot)..];
        for (_, Key { addr, size, block }) in its.iter().take_while(|(of, _)| *of == slot) {
            if !self.is_unused(*block) {
                continue;
            }
            let within = segment.chunks_within(*addr, addr + size);
            let chunks: Vec<(u64, Chunk)> = within.filter(|(addr, _)| !kept.contains(addr)).collect();
            for run in chunks.chunk_by(|(addr, chunk), (next, _)| addr + chunk.size == *next) {
                left -= run.iter().map(|(_, chunk)| chunk.size).sum::<u64>();
                spare.push(Going::Chunks {
                    slot,
                    block: *block,
                    run: run.to_vec(),
                });
            }
        }
        if left == 0 {
            spare.push(range(slot, segment));
        }
    }

    /// The address space of a virtual segment, if it has no memory.
    pub(in crate::heap) fn spare_range(&self, slot: u32) -> Option<Going> {
        let segment = self.segments.get(slot)?;
        let empty = segment.kind == SegmentKind::Virtual && segment.size == 0 && segment.stale.is_empty();
        empty.then(|| range(slot, segment))
    }

    /// The same of all of them.
    pub(in crate::heap) fn spare_ranges(&self) -> Vec<Going> {
        let slots = self.segments.iter().map(|(slot, _)| slot);
        slots.filter_map(|slot| self.spare_range(slot)).collect()
    }

    /// Views, and what is left of some, and chunks of no segment.
    fn spare_mappings(&self) -> Vec<Going> {
        let mut spare = self.spare_views(|_| true);
        spare.extend(self.orphans.iter().map(|chunk| Going::Orphan(*chunk)));
        spare
    }

    /// Views, or parts of them, that map one of these chunks, given by where it is at home; and what is left of any.
    fn spare_views(&self, of: impl Fn(u64) -> bool) -> Vec<Going> {
        let stale = self.views.stale.iter().map(|left| Going::left(*left));
        let blocks = self.views.blocks_in();
        let views = self.done_views().flat_map(|(number, view)| {
            let maps = |part: &Part| view.homes_in(*part).any(&of);
            match blocks.get(&number) {
                None if view.homes().any(&of) => going_view(number, view),
                None => Vec::new(),
                Some(blocks) => {
                    let parts = view.parts_beside(blocks).into_iter();
                    going_parts(number, view, parts.filter(maps).collect())
                }
            }
        });
        stale.chain(views).collect()
    }

    /// Views that are known not to be used by queued work, but for the blocks in them.
    fn done_views(&self) -> impl Iterator<Item = (u32, &View)> {
        let safe = |stream: u16| self.streams.line(stream).safe;
        self.views.iter().filter(move |(_, view)| view.is_done(safe))
    }

    /// Views that go so that there is room for another one of so many mappings, the ones not used for longest first.
    pub(in crate::heap) fn views_beyond(&self, mappings: usize) -> Vec<Going> {
        if self.views.mappings + mappings <= self.views.most || self.capturing() {
            return Vec::new();
        }
        // Their ranges cannot go before what is left of their parts.
        let mut staying = Staying::default();
        let stale = self.views.stale.iter();
        stale.for_each(|left| staying.add(&Going::left(*left)));
        let whole = |view: &View| !staying.keeps(&Going::left(left_of(view, 0)));
        let idle = self.done_views().filter(|(_, view)| view.users == 0 && whole(view));
        let mut idle: Vec<(u32, &View)> = idle.collect();
        idle.sort_unstable_by_key(|(number, view)| (view.freed_at(), *number));
        let mut left = self.views.mappings + mappings;
        let goes = |(_, view): &(u32, &View)| {
            let goes = left > self.views.most - self.views.most / AT_A_TIME;
            left -= if goes { view.mappings() } else { 0 };
            goes
        };
        let idle = idle.into_iter().take_while(goes);
        idle.flat_map(|(number, view)| going_view(number, view)).collect()
    }

    /// Where the chunks are at home that views go on mapping, or that are mapped in the range of one that stays after a failure.
    fn kept_by_views(&self) -> HashSet<u64> {
        let safe = |stream: u16| self.streams.line(stream).safe;
        let blocks = self.views.blocks_in();
        let mut kept = HashSet::new();
        for (number, view) in self.views.iter() {
            let stays = match blocks.get(&number) {
                _ if !view.is_done(safe) => view.all_parts(),
                None => continue,
                Some(blocks) => view.parts_with(blocks),
            };
            kept.extend(&view.behind);
            kept.extend(stays.into_iter().flat_map(|part| view.homes_in(part)));
        }
        kept
    }
}

fn range(slot: u32, segment: &Segment) -> Going {
    Going::Range {
        slot,
        addr: segment.addr,
        bytes: segment.reservation,
    }
}

/// A view that is there: what it maps goes first where that is in several parts.
fn going_view(number: u32, view: &View) -> Vec<Going> {
    let parts = view.pieces_left();
    let left = left_of(view, if parts.is_some() { 0 } else { view.mapped });
    let mut going = going_parts(number, view, parts.unwrap_or_default());
    let view = Some(number);
    going.push(Going::View { view, left });
    going
}

/// A view of which so many bytes are mapped, from its beginning on.
fn left_of(view: &View, mapped: u64) -> Stale {
    let (range, bytes) = (view.range, view.room);
    Stale { range, bytes, mapped }
}

/// Parts of a view that is there.
fn going_parts(number: u32, view: &View, parts: Vec<Part>) -> Vec<Going> {
    let going = |part: Part| Going::Part {
        view: number,
        part,
        left: Stale {
            range: view.range + part.offset,
            bytes: 0,
            mapped: part.bytes,
        },
    };
    parts.into_iter().map(going).collect()
}

#[cfg(test)]
#[path = "spare_tests.rs"]
mod tests;
