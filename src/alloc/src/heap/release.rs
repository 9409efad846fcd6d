//! Memory back to the driver.

pub(super) mod collect;
pub(super) mod compact;
pub(super) mod end;
pub(super) mod going;
pub(super) mod join;
pub(super) mod shift;
pub(super) mod spare;

use std::collections::HashSet;

use gpumem_channel::{BlockState, EventKind, StringId};

use super::Heap;
use super::block::NIL;
use super::segment::Chunk;
use super::turn::access::{Access, give_back, wait_for_device};
use crate::device::Handle;
use crate::error::Error;
use going::{Going, Went, span};

/// Waits for the device and gives every wholly free segment, and every whole free chunk of virtual ones, back. Returns the bytes that
/// came free. What the driver does not take stays in the cache; the first such failure is returned after everything else was tried.
pub(crate) fn release_cached(on: &mut impl Access) -> Result<u64, Error> {
    wait_for_device(on)?;
    let bytes = give_back(on, |heap| heap.spare())?;
    on.heap(Heap::cache_is_back)?;
    Ok(bytes)
}

impl Heap {
    /// Takes what is to go out of every index. To be called by who has the turn.
    pub(super) fn set_apart(&mut self, going: &mut [Going]) {
        self.set_apart_loose(going);
        // From the end: the part of a block in front of what is cut off keeps its number.
        for going in going.iter_mut().rev() {
            match going {
                Going::View { view: Some(view), .. } => drop(self.views.remove(*view)),
                Going::Part { view, part, .. } => self.views.cut(*view, *part),
                Going::Plain { slot, .. } => {
                    if let Some(segment) = self.segments.get(*slot) {
                        self.set_apart_part(*slot, segment.first, (segment.addr, segment.end()));
                    }
                }
                Going::Chunks { slot, block, run } => *block = self.set_apart_part(*slot, *block, span(run)),
                Going::View { view: None, .. } | Going::Orphan(_) | Going::Stale { .. } | Going::Range { .. } => {}
            }
        }
        self.tell_figures();
    }

    /// The same of what is in a list, by one look at each there: where the driver takes nothing there may be very many.
    fn set_apart_loose(&mut self, going: &[Going]) {
        let loose = |going: &&Going| matches!(going, Going::View { view: None, .. } | Going::Orphan(_));
        let loose: HashSet<(u8, u64)> = going.iter().filter(loose).map(Going::key).collect();
        let stays = |listed: Going| {
            #[cfg(test)]
            tests::LOOKS.set(tests::LOOKS.get() + 1);
            !loose.contains(&listed.key())
        };
        self.views.stale.retain(|left| stays(Going::left(*left)));
        self.orphans.retain(|chunk| stays(Going::Orphan(*chunk)));
    }

    /// Takes a part of a free block, or all of it. What is before it keeps the number.
    fn set_apart_part(&mut self, slot: u32, b: u32, part: (u64, u64)) -> u32 {
        self.outlet.segment_begin(slot);
        let part = self.take_part(b, part);
        self.hold_apart(part);
        self.outlet.segment_close(slot);
        part
    }

    /// A free block is in no index any more, and so nobody's to have.
    pub(super) fn hold_apart(&mut self, b: u32) {
        self.blocks[b].state = BlockState::Quick;
        self.apart += 1;
        self.show(b);
    }

    /// A block that was held apart is free again.
    pub(super) fn put_back(&mut self, b: u32) {
        self.apart -= 1;
        self.join_in(b);
    }

    /// Forgets what the driver took; what it did not take is free again. The bytes that the device got.
    pub(super) fn account_for(&mut self, went: Went) -> u64 {
        let before = self.ledger.reserved();
        let slots: Vec<u32> = went.taken.iter().chain(&went.refused).filter_map(Going::slot).collect();
        let orphans = went.orphans.iter().map(|chunk| chunk.handle).collect();
        for going in went.taken {
            self.forget(going, &orphans);
        }
        for going in went.refused {
            self.keep_after_all(going);
        }
        self.keep_loose(went.orphans);
        for slot in slots {
            self.trim(slot);
        }
        self.forget_empty_arenas();
        let freed = before - self.ledger.reserved();
        if freed > 0 {
            self.forget_failures();
            self.tell_release(freed);
        }
        self.tell_figures();
        freed
    }

    /// `orphans`: chunks that were unmapped and that the driver still has.
    fn forget(&mut self, going: Going, orphans: &HashSet<Handle>) {
        match going {
            Going::Stale { slot, addr, .. } => {
                if let Some(segment) = self.segments.get_mut(slot) {
                    segment.stale.retain(|(at, _)| *at != addr);
                }
            }
            Going::Plain { slot, addr } => self.forget_plain(slot, addr),
            Going::Chunks { slot, block, run } => self.forget_chunks(slot, block, &run, orphans),
            Going::Range { slot, .. } => {
                self.trim(slot);
                self.segments.remove(slot);
                if self.home == Some(slot) {
                    self.home = None;
                }
            }
            Going::Orphan(chunk) => self.forget_loose(chunk.size, 1),
            Going::View { .. } | Going::Part { .. } => {}
        }
    }

    fn keep_after_all(&mut self, going: Going) {
        match going {
            Going::View { left, .. } | Going::Part { left, .. } => self.views.stale.push(left),
            Going::Plain { slot, .. } => {
                if let Some(b) = self.segments.get(slot).map(|segment| segment.first) {
                    self.put_back(b);
                }
            }
            Going::Chunks { block, .. } => self.put_back(block),
            Going::Orphan(chunk) => self.orphans.push(chunk),
            Going::Stale { .. } | Going::Range { .. } => {}
        }
    }

    fn forget_plain(&mut self, slot: u32, addr: u64) {
        let Some(segment) = self.segments.get(slot) else { return };
        let (b, bytes, class, arena) = (segment.first, segment.size, segment.class, segment.arena);
        self.tell_segment(EventKind::SegmentFree, slot, addr, bytes, segment.tag);
        self.outlet.segment_begin(slot);
        self.apart -= 1;
        self.blocks.remove(b);
        self.outlet.clear_block(b);
        self.segments.remove(slot);
        self.outlet.segment_end(slot, None);
        self.ledger.segment_removed(class.pool());
        self.ledger.reserved_removed(class.pool(), bytes, 1);
        self.pool_released(arena, bytes);
    }

    fn forget_chunks(&mut self, slot: u32, block: u32, run: &[(u64, Chunk)], orphans: &HashSet<Handle>) {
        let (from, to) = span(run);
        // Those are counted when they go.
        let gone = run.iter().filter(|(_, chunk)| !orphans.contains(&chunk.handle)).count() as u64;
        self.tell_segment(EventKind::SegmentUnmap, slot, from, to - from, StringId(0));
        let Some(segment) = self.segments.get(slot) else { return };
        self.ledger.reserved_removed(segment.class.pool(), to - from, gone);
        self.hollow_out(slot, block, run);
        self.show_segment(slot);
    }

    /// Takes the memory out of a block that was held apart. Begins a bracket around the changes of its segment.
    pub(super) fn hollow_out(&mut self, slot: u32, block: u32, run: &[(u64, Chunk)]) {
        self.forget_borders(slot, run);
        let Some(segment) = self.segments.get_mut(slot) else {
            return;
        };
        for (addr, chunk) in run {
            segment.chunks.remove(addr);
            segment.mapped -= chunk.size;
        }
        self.outlet.segment_begin(slot);
        self.apart -= 1;
        // Addresses alone are nobody's.
        let any = self.streams.line(self.blocks[block].stream).any;
        let hole = &mut self.blocks[block];
        (hole.state, hole.stream) = (BlockState::Unmapped, any);
        let hole = self.merge_hole(slot, block);
        if let Some(segment) = self.segments.get_mut(slot) {
            segment.holes.insert(self.blocks[hole].addr, hole);
        }
        self.show(hole);
    }

    /// Merges a hole with the holes beside it.
    fn merge_hole(&mut self, slot: u32, mut hole: u32) -> u32 {
        let unmapped = |heap: &Heap, b: u32| b != NIL && heap.blocks[b].state == BlockState::Unmapped;
        let next = self.blocks[hole].next;
        if unmapped(self, next) {
            let addr = self.blocks[next].addr;
            self.segments.get_mut(slot).map(|segment| segment.holes.remove(&addr));
            self.swallow_next(hole);
        }
        let prev = self.blocks[hole].prev;
        if unmapped(self, prev) {
            self.swallow_next(prev);
            hole = prev;
        }
        hole
    }

    /// Gives the unmapped end of a virtual segment back to its reservation.
    pub(super) fn trim(&mut self, slot: u32) {
        let Some(segment) = self.segments.get_mut(slot) else {
            return;
        };
        let b = segment.last;
        if b == NIL || self.blocks[b].state != BlockState::Unmapped {
            return;
        }
        let (prev, addr, size) = (self.blocks[b].prev, self.blocks[b].addr, self.blocks[b].size);
        self.outlet.segment_begin(slot);
        segment.holes.remove(&addr);
        segment.size -= size;
        segment.last = prev;
        if prev == NIL {
            segment.first = NIL;
            self.ledger.segment_removed(segment.class.pool());
        } else {
            self.blocks[prev].next = NIL;
            self.show(prev);
        }
        self.uncover(b, addr, slot, NIL);
        self.blocks.remove(b);
        self.outlet.clear_block(b);
        self.show_segment(slot);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::cell::Cell;

    use crate::config::{Config, SegmentMode};
    use crate::device::{Call, Sim, SimConfig};
    use crate::heap::tests::heap_on;
    use crate::stream::Stream;
    use crate::tag::Tag;

    thread_local! {
        /// How often something in a list was looked at.
        pub(super) static LOOKS: Cell<usize> = const { Cell::new(0) };
    }

    /// The heap is locked while they are set apart.
    #[test]
    fn very_many_chunks_that_the_driver_keeps_are_not_looked_at_for_each_of_them() {
        const PAGE: u64 = 2 << 20;
        let sim = Sim::new(SimConfig::default());
        let config = Config {
            segments: SegmentMode::Virtual,
            max_chunk: PAGE,
            ..Config::default()
        };
        let mut heap = heap_on(&sim, config);
        let pages = (0..1000).map(|_| heap.allocate(PAGE, Stream(1), Tag(0)).unwrap().block);
        pages.collect::<Vec<u32>>().into_iter().for_each(|b| heap.free(b));
        sim.fail_next(Call::Release, u64::MAX);
        heap.release_cached().unwrap_err();
        assert_eq!(heap.orphans.len(), 1000);
        LOOKS.set(0);
        heap.release_cached().unwrap_err();
        assert_eq!((LOOKS.get(), heap.orphans.len()), (1000, 1000));
        sim.fail_next(Call::Release, 0);
        assert_eq!(heap.release_cached().unwrap(), 1000 * PAGE);
        heap.check();
        assert_eq!((sim.live().bytes, sim.violations()), (0, Vec::new()));
    }
}
