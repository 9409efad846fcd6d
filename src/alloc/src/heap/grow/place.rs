//! Where new memory goes.

use std::collections::BTreeMap;

use gpumem_channel::SegmentKind;

use crate::config::SegmentMode;
use crate::error::DeviceError;
use crate::heap::ages::Ages;
use crate::heap::allocate::Request;
use crate::heap::block::NIL;
use crate::heap::segment::Segment;
use crate::heap::{Heap, narrate};
use crate::size::Class;
use crate::stream::Stream;

/// Address space of the home of views, as a multiple of that of other virtual segments: there is no second one, and what fits nowhere in it
/// is refused though the device has memory. Few blocks that stay for long leave no large hole in twice the device.
const HOME: u64 = 8;

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
    /// that the request's stream may have.
    pub(in crate::heap) fn best_place(&self, request: &Request) -> Option<Place> {
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
            for (addr, hole) in &segment.holes {
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
        ages: Ages::default(),
        borders: Vec::new(),
        stale: Vec::new(),
    }
}
