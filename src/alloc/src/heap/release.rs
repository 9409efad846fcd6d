//! Memory back to the driver.

use std::collections::HashSet;

use gpumem_channel::{BlockState, EventKind, SegmentKind};

use super::Heap;
use super::arena::COMMON;
use super::block::NIL;
use super::segment::Chunk;
use crate::error::{DeviceError, Error};

impl Heap {
    /// Waits for the device and gives every wholly free segment, and every whole free chunk of virtual ones, back.
    /// Returns the bytes that came free.
    pub(crate) fn release_cached(&mut self) -> Result<u64, Error> {
        self.not_capturing()?;
        // Waiting gives back what is left of pools that are gone.
        let before = self.ledger.reserved();
        self.settle(None)?;
        self.release_free()?;
        Ok(before - self.ledger.reserved())
    }

    /// The same after the device was waited for. What the driver does not take back stays in the cache; the first such
    /// failure is returned after everything else was tried.
    pub(super) fn release_free(&mut self) -> Result<u64, DeviceError> {
        self.release_where(|heap, arena| heap.arenas.may_shrink(arena))
    }

    /// The same for everything but pools.
    pub(super) fn release_common(&mut self) -> Result<u64, DeviceError> {
        self.release_where(|_, arena| arena == COMMON)
    }

    fn release_where(&mut self, may: impl Fn(&Heap, u16) -> bool) -> Result<u64, DeviceError> {
        let before = self.ledger.reserved();
        let mut outcome = self.drop_idle_views();
        let mapped_twice = outcome.is_err();
        let may = self.segments.iter().filter(|(_, segment)| may(self, segment.arena));
        let slots: Vec<(u32, SegmentKind)> = may.map(|(slot, s)| (slot, s.kind)).collect();
        for (slot, kind) in slots {
            let result = match kind {
                SegmentKind::Virtual if mapped_twice => Ok(()),
                SegmentKind::Virtual => self.release_chunks(slot),
                _ => self.release_plain(slot),
            };
            outcome = outcome.and(result);
        }
        for orphan in std::mem::take(&mut self.orphans) {
            self.discard(orphan);
        }
        self.forget_empty_arenas();
        let freed = before - self.ledger.reserved();
        if freed > 0 {
            self.tell_release(freed);
        }
        self.tell_figures();
        outcome.map(|()| freed)
    }

    pub(super) fn release_plain(&mut self, slot: u32) -> Result<(), DeviceError> {
        let Some(segment) = self.segments.get(slot) else {
            return Ok(());
        };
        let (b, addr, bytes, class) = (segment.first, segment.addr, segment.size, segment.class);
        let arena = segment.arena;
        if segment.first != segment.last || self.blocks[b].state != BlockState::Free {
            return Ok(());
        }
        self.driver.free(addr)?;
        self.forget_failures();
        self.tell_segment(EventKind::SegmentFree, slot, addr, bytes);
        self.outlet.segment_begin(slot);
        self.unshelve(b);
        self.blocks.remove(b);
        self.outlet.clear_block(b);
        self.segments.remove(slot);
        self.outlet.segment_end(slot, None);
        self.ledger.segment_removed(class.pool());
        self.ledger.reserved_removed(class.pool(), bytes, 1);
        self.pool_released(arena, bytes);
        Ok(())
    }

    /// Unmaps the whole free chunks of a virtual segment.
    fn release_chunks(&mut self, slot: u32) -> Result<(), DeviceError> {
        self.retry_stale(slot);
        let mut outcome = Ok(());
        let kept = self.views.mapped();
        for b in self.free_blocks_in(slot) {
            outcome = outcome.and(self.release_within(slot, b, &kept));
        }
        self.trim(slot);
        self.drop_if_empty(slot);
        outcome
    }

    fn free_blocks_in(&self, slot: u32) -> Vec<u32> {
        let mut found = Vec::new();
        let mut b = self.segments.get(slot).map_or(NIL, |segment| segment.first);
        while b != NIL {
            if self.blocks[b].state == BlockState::Free && self.is_unused(b) {
                found.push(b);
            }
            b = self.blocks[b].next;
        }
        found
    }

    /// Whether no queued work uses a free block. Others may have given it back while the device was waited for.
    pub(super) fn is_unused(&self, b: u32) -> bool {
        let block = &self.blocks[b];
        self.streams.is_any(block.stream) || block.freed_at <= self.streams.line(block.stream).safe
    }

    /// Unmaps the whole chunks in a free block, but for those that a view in use maps, too. One call does for those that lie side by
    /// side.
    fn release_within(&mut self, slot: u32, b: u32, kept: &HashSet<u64>) -> Result<(), DeviceError> {
        let Some(segment) = self.segments.get(slot) else {
            return Ok(());
        };
        let block = &self.blocks[b];
        let within = segment.chunks_within(block.addr, block.addr + block.size);
        let chunks: Vec<(u64, Chunk)> = within.filter(|(addr, _)| !kept.contains(addr)).collect();
        let mut left = Some(b);
        for run in chunks.chunk_by(|(addr, chunk), (next, _)| addr + chunk.size == *next) {
            let Some(b) = left else { break };
            left = self.release_run(slot, b, run)?;
        }
        Ok(())
    }

    /// Unmaps chunks that lie side by side in a free block. What is left of the block after them.
    fn release_run(&mut self, slot: u32, b: u32, run: &[(u64, Chunk)]) -> Result<Option<u32>, DeviceError> {
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            return Ok(Some(b));
        };
        let (from, to) = (first.0, last.0 + last.1.size);
        self.driver.unmap(from, to - from)?;
        self.forget_failures();
        let Some(segment) = self.segments.get_mut(slot) else {
            return Ok(None);
        };
        segment.mapped -= to - from;
        for (addr, _) in run {
            segment.chunks.remove(addr);
        }
        let class = segment.class;
        self.ledger.reserved_removed(class.pool(), to - from, run.len() as u64);
        for (_, chunk) in run {
            self.discard(*chunk);
        }
        self.tell_segment(EventKind::SegmentUnmap, slot, from, to - from);
        self.outlet.segment_begin(slot);
        let left = self.hollow(slot, b, from, to);
        self.show_segment(slot);
        Ok(left)
    }

    /// Takes the memory out of a part of a free block. Returns what is left of the block after that part.
    pub(super) fn hollow(&mut self, slot: u32, b: u32, from: u64, to: u64) -> Option<u32> {
        self.unshelve(b);
        let (addr, end) = (self.blocks[b].addr, self.blocks[b].addr + self.blocks[b].size);
        let mut hole = b;
        if from > addr {
            hole = self.cut(b, from - addr);
            self.shelve(b);
            self.show(b);
        }
        let rest = (to < end).then(|| self.cut(hole, to - from));
        // Addresses alone are nobody's.
        let any = self.streams.line(self.blocks[hole].stream).any;
        let block = &mut self.blocks[hole];
        (block.state, block.stream) = (BlockState::Unmapped, any);
        let hole = self.merge_hole(slot, hole);
        if let Some(segment) = self.segments.get_mut(slot) {
            segment.holes.insert(self.blocks[hole].addr, hole);
        }
        self.show(hole);
        if let Some(rest) = rest {
            self.shelve(rest);
            self.show(rest);
        }
        rest
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
        self.uncover(b, NIL);
        self.blocks.remove(b);
        self.outlet.clear_block(b);
        self.show_segment(slot);
    }

    /// Gives the reservation of a virtual segment without memory back. If the driver does not take it, the segment
    /// stays, empty, for the next growth.
    pub(super) fn drop_if_empty(&mut self, slot: u32) {
        let Some(segment) = self.segments.get(slot) else { return };
        if segment.kind == SegmentKind::Virtual
            && segment.size == 0
            && segment.stale.is_empty()
            && self.driver.unreserve(segment.addr, segment.reservation).is_ok()
        {
            self.segments.remove(slot);
            if self.home == Some(slot) {
                self.home = None;
            }
        }
    }

    fn retry_stale(&mut self, slot: u32) {
        let Some(segment) = self.segments.get_mut(slot) else {
            return;
        };
        for (addr, bytes) in std::mem::take(&mut segment.stale) {
            self.unmap_or_remember(slot, addr, bytes);
        }
    }
}

/// Nothing is left on the device: blocks that are still allocated have no owner any more.
impl Drop for Heap {
    fn drop(&mut self) {
        self.driver.capturing(false);
        // A device that cannot be waited for is lost, and its memory with it; freeing it is still right.
        let _ = self.driver.synchronize();
        self.drop_events();
        self.drop_all_views();
        let slots: Vec<u32> = self.segments.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            self.retry_stale(slot);
            let Some(segment) = self.segments.remove(slot) else {
                continue;
            };
            if segment.kind != SegmentKind::Virtual {
                let _ = self.driver.free(segment.addr);
                continue;
            }
            for (addr, chunk) in &segment.chunks {
                let _ = self.driver.unmap(*addr, chunk.size);
                self.discard(*chunk);
            }
            let _ = self.driver.unreserve(segment.addr, segment.reservation);
        }
        for orphan in std::mem::take(&mut self.orphans) {
            let _ = self.driver.release(orphan.handle);
        }
    }
}
