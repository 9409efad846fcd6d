//! Where new memory goes.

use std::collections::BTreeMap;

use gpumem_channel::SegmentKind;

use crate::config::SegmentMode;
use crate::error::DeviceError;
use crate::heap::allocate::Request;
use crate::heap::block::NIL;
use crate::heap::segment::Segment;
use crate::heap::{Heap, narrate};
use crate::size::Class;
use crate::stream::Stream;

/// Address space of the home of views, as a multiple of that of other virtual segments: there is no second one, and what fits nowhere in it
/// is refused though the device has memory. Few blocks that stay for long leave no large hole in twice the device.
const HOME: u64 = 8;

/// Holes of a segment that are looked at, from the lowest address on: a program that gave back every other of its pages has tens of thousands,
/// and to look at all of them takes longer than the driver does for new memory. Address space is plenty.
const LOOKED_AT: usize = 4096;

/// Where a virtual segment gets new memory.
#[derive(Clone, Copy, Debug)]
pub(in crate::heap) struct Place {
    pub(in crate::heap) segment: u32,
    pub(in crate::heap) addr: u64,
    /// Bytes that are missing there for the request, together with free neighbours.
    pub(in crate::heap) missing: u64,
    /// Bytes of address space there.
    pub(in crate::heap) room: u64,
}

impl Heap {
    /// The place that needs the least new memory: the end of a virtual segment or a hole in it, with the free blocks beside it
    /// that the request's stream may have. Of very many holes it is one of the first, if one of these or an end will do
    /// and memory is not short.
    pub(in crate::heap) fn best_place(&self, request: &Request) -> Option<Place> {
        let among_first = self.best_place_among(request, LOOKED_AT);
        let has_room = |place: &Place| self.within_budget(place.missing) && !self.is_others(place.missing);
        among_first
            .filter(has_room)
            .or_else(|| self.best_place_among(request, usize::MAX))
    }

    /// The same of so many holes of each segment.
    pub(in crate::heap) fn best_place_among(&self, request: &Request, holes: usize) -> Option<Place> {
        let size = request.size;
        let mut best: Option<Place> = None;
        let mut offer = |place: Place| {
            if best.is_none_or(|b| (place.missing, place.addr) < (b.missing, b.addr)) {
                best = Some(place);
            }
        };
        for (slot, segment) in self.segments.iter() {
            if segment.kind != SegmentKind::Virtual || segment.class != request.class {
                continue;
            }
            let room = segment.reservation - segment.size;
            let unit = self.sizes.granularity;
            let missing = size.saturating_sub(self.free_bytes_of(segment.last, request.stream));
            let missing = missing.next_multiple_of(unit);
            if missing > 0 && missing <= room && !segment.is_stale(segment.end(), room) {
                offer(Place {
                    segment: slot,
                    addr: segment.end(),
                    missing,
                    room,
                });
            }
            for (addr, hole) in segment.holes.iter().take(holes) {
                let block = &self.blocks[*hole];
                let left = self.free_bytes_of(block.prev, request.stream);
                let right = self.free_bytes_of(block.next, request.stream);
                if left < size && left + block.size + right >= size && !segment.is_stale(*addr, block.size) {
                    offer(Place {
                        segment: slot,
                        addr: *addr,
                        missing: (size - left).next_multiple_of(unit).min(block.size),
                        room: block.size,
                    });
                }
            }
        }
        best
    }

    /// Address space of a new virtual segment: twice the device, so that holes rarely run out of room.
    pub(in crate::heap) fn range_for(&self, size: u64) -> u64 {
        let twice = self.driver.info().total.saturating_mul(2).max(size * 2);
        twice.next_multiple_of(self.sizes.granularity)
    }

    /// Reserves address space for a new virtual segment.
    pub(in crate::heap) fn reserve(&mut self, request: &Request) -> Result<Place, DeviceError> {
        let unit = self.sizes.granularity;
        let twice = self.range_for(request.size);
        let (addr, bytes) = match self.becomes_home(request) {
            true => match self.take_range(request, HOME * twice) {
                // Less does, too, where a limit is set on address space.
                Err(error) if error.is_out_of_memory() => (self.take_range(request, twice)?, twice),
                addr => (addr?, HOME * twice),
            },
            false => (self.take_range(request, twice)?, twice),
        };
        Ok(Place {
            segment: self.add_range(request, addr, bytes),
            addr,
            missing: request.size.next_multiple_of(unit),
            room: bytes,
        })
    }

    /// A virtual segment without memory yet.
    pub(in crate::heap) fn add_range(&mut self, request: &Request, addr: u64, bytes: u64) -> u32 {
        let segment = self.segments.insert(Segment {
            kind: SegmentKind::Virtual,
            ..empty(request, self.streams.name(request.stream), addr, bytes)
        });
        if self.becomes_home(request) {
            self.home = Some(segment);
        }
        segment
    }

    /// Whether a virtual segment that is taken for a request is the home of views.
    fn becomes_home(&self, request: &Request) -> bool {
        self.sizes.mode == SegmentMode::Stitched && request.class == Class::Chunked
    }
}

/// A plain segment without blocks.
pub(in crate::heap) fn empty(request: &Request, taken_for: Stream, addr: u64, reservation: u64) -> Segment {
    Segment {
        addr,
        size: 0,
        reservation,
        mapped: 0,
        class: request.class,
        kind: SegmentKind::Plain,
        arena: request.arena,
        stream: request.stream,
        taken_for,
        tag: request.tag,
        time: narrate::now(),
        used_at: 0,
        first: NIL,
        last: NIL,
        chunks: BTreeMap::new(),
        holes: BTreeMap::new(),
        cover: Vec::new(),
        borders: Vec::new(),
        stale: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::*;
    use crate::config::Config;
    use crate::device::{Sim, SimConfig};
    use crate::error::Error;
    use crate::heap::Grant;
    use crate::heap::tests::heap_on;
    use crate::report::Help;
    use crate::tag::Tag;

    const MIB: u64 = 1 << 20;
    const PAGES: usize = 4 * LOOKED_AT;

    fn allocate(heap: &mut Heap, size: u64) -> Grant {
        heap.allocate(size, Stream(1), Tag(0)).unwrap()
    }

    /// A program that gave back every other one of very many pages, and what it holds.
    fn with_very_many_holes(sim: &Sim) -> (Heap, Vec<Grant>) {
        let config = Config {
            segments: SegmentMode::Virtual,
            ..Config::default()
        };
        let mut heap = heap_on(sim, config);
        let held: Vec<_> = (0..PAGES).map(|_| allocate(&mut heap, 2 * MIB)).collect();
        (0..PAGES).step_by(2).for_each(|at| heap.free(held[at].block));
        heap.release_cached().unwrap();
        let holes = heap.segments.iter().map(|(_, segment)| segment.holes.len());
        assert!(holes.max() > Some(LOOKED_AT + LOOKED_AT / 2));
        (heap, held)
    }

    #[test]
    fn of_very_many_holes_only_some_are_looked_at_unless_none_of_these_will_do() {
        let sim = Sim::new(SimConfig::default());
        let (mut heap, held) = with_very_many_holes(&sim);
        let request = Heap::nobodys(4 * MIB, 4 * MIB);
        let look = |heap: &Heap| {
            let before = heap.streams.looks.get();
            let place = heap.best_place(&request).unwrap();
            (place.addr, heap.streams.looks.get() - before)
        };
        let (slot, end) = heap
            .segments
            .iter()
            .map(|(slot, segment)| (slot, segment.end()))
            .next()
            .unwrap();
        let (at, looks) = look(&heap);
        assert_eq!(at, end);
        assert!(looks <= 2 * LOOKED_AT + 2, "{looks} looks");
        // Of what is short the least is taken: one of the pages is given back, and lies beside a hole.
        let page = &held[PAGES - 5];
        heap.free(page.block);
        heap.drain_all();
        let request = Request { stream: 1, ..request };
        let place = |heap: &Heap| heap.best_place(&request).unwrap().addr;
        assert_eq!(place(&heap), end);
        heap.budget = Some(heap.ledger.reserved() + 2 * MIB);
        assert_eq!(place(&heap), page.addr - 2 * MIB);
        heap.budget = None;
        // Nothing can be mapped at the end any more.
        heap.segments.get_mut(slot).unwrap().stale.push((end, 2 * MIB));
        assert_eq!(place(&heap), page.addr - 2 * MIB);
        heap.check();
    }

    /// What others took is in no figure of ours.
    #[test]
    fn a_device_that_is_found_full_has_what_a_hole_behind_the_first_ones_needs() {
        let sim = Sim::new(SimConfig::default());
        let (mut heap, held) = with_very_many_holes(&sim);
        heap.release_on_oom = false;
        let page = &held[PAGES - 5];
        heap.free(page.block);
        let total = sim.device().driver.info().total;
        sim.set_used_by_others(total - heap.ledger.reserved() - 2 * MIB);
        assert_eq!(allocate(&mut heap, 4 * MIB).addr, page.addr - 2 * MIB);
        heap.check();
    }
    #[test]
    fn what_is_said_to_help_a_refused_request_is_what_the_best_of_all_holes_needs() {
        let sim = Sim::new(SimConfig::default());
        let (mut heap, _held) = with_very_many_holes(&sim);
        heap.release_on_oom = false;
        let [large, _behind, page] = [64, 64, 2].map(|mib| allocate(&mut heap, mib * MIB));
        // One of its two chunks goes, and the end of the other stays.
        heap.free(large.block);
        allocate(&mut heap, 30 * MIB);
        heap.release_cached().unwrap();
        heap.free(page.block);
        let total = sim.device().driver.info().total;
        sim.set_used_by_others(total - heap.ledger.reserved());
        let refused = heap.allocate(4 * MIB, Stream(1), Tag(0));
        let Err(Error::OutOfMemory(report)) = refused else {
            panic!("{refused:?}")
        };
        let release = Help::ReleaseCache { bytes: 2 * MIB };
        assert!(report.helps.contains(&release), "{:?}", report.helps);
        heap.release_cached().unwrap();
        allocate(&mut heap, 4 * MIB);
    }
}
