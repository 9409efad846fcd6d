//! Memory from the driver.

use std::collections::BTreeMap;

use gpumem_channel::{BlockState, EventKind, SegmentKind, StringId};

use super::allocate::Request;
use super::block::{Block, NIL};
use super::segment::{Chunk, Segment};
use super::{Heap, narrate};
use crate::error::DeviceError;
use crate::size::Class;

/// Where a virtual segment gets new memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) segment: u32,
    pub(super) addr: u64,
    /// Bytes that are missing there for the request, together with free neighbours.
    pub(super) missing: u64,
    /// Bytes of address space there.
    pub(super) room: u64,
}

impl Heap {
    /// Takes memory so that the request fits on its stream. `false`: the budget or the device does not allow it.
    pub(super) fn grow(&mut self, request: &Request) -> Result<bool, DeviceError> {
        let (want, least) = self.sizes.growth(request.class, request.size);
        if request.class == Class::Chunked {
            return self.grow_chunked(request, want);
        }
        for bytes in [want, least] {
            if !self.within_budget(bytes) {
                continue;
            }
            match self.driver.alloc(bytes) {
                Ok(addr) => {
                    self.add_plain(request, addr, bytes);
                    return Ok(true);
                }
                Err(error) if error.is_out_of_memory() => {}
                Err(error) => return Err(error),
            }
            if want == least {
                break;
            }
        }
        Ok(false)
    }

    fn within_budget(&self, bytes: u64) -> bool {
        bytes <= self.budget_left()
    }

    /// Bytes that the budget still allows to take.
    pub(super) fn budget_left(&self) -> u64 {
        let orphans: u64 = self.orphans.iter().map(|chunk| chunk.size).sum();
        let taken = self.ledger.reserved().saturating_add(orphans);
        self.budget.map_or(u64::MAX, |budget| budget.saturating_sub(taken))
    }

    fn add_plain(&mut self, request: &Request, addr: u64, bytes: u64) {
        let segment = self.segments.insert(Segment {
            mapped: bytes,
            size: bytes,
            ..empty(request, addr, bytes)
        });
        self.ledger.segment_added(request.class);
        self.ledger.reserved_added(request.class, bytes, 1);
        let b = self.blocks.insert(new_block(request, segment, addr, bytes));
        if let Some(segment) = self.segments.get_mut(segment) {
            (segment.first, segment.last) = (b, b);
        }
        self.tell_segment(EventKind::SegmentAlloc, segment, addr, bytes);
        self.outlet.segment_begin(segment);
        self.shelve(b);
        self.show(b);
        self.show_segment(segment);
        self.tell_figures();
    }

    fn grow_chunked(&mut self, request: &Request, want: u64) -> Result<bool, DeviceError> {
        let place = match self.best_place(request) {
            Some(place) => place,
            None => self.reserve(request)?,
        };
        let want = want.max(place.missing).min(place.room.max(place.missing));
        let mut outcome = Ok(false);
        for bytes in [want, place.missing] {
            if !self.within_budget(bytes) {
                continue;
            }
            match self.map_new(place.segment, place.addr, bytes) {
                Ok(chunks) => {
                    self.add_chunks(request, place, bytes, chunks);
                    return Ok(true);
                }
                Err(error) if error.is_out_of_memory() => {}
                Err(error) => outcome = Err(error),
            }
            if outcome.is_err() || want == place.missing {
                break;
            }
        }
        self.drop_if_empty(place.segment);
        outcome
    }

    /// The place on the request's stream that needs the least new memory: the end of a virtual segment or a hole in it,
    /// with the free blocks beside it.
    fn best_place(&self, request: &Request) -> Option<Place> {
        let size = request.size;
        let mut best: Option<Place> = None;
        let mut offer = |place: Place| {
            if best.is_none_or(|b| (place.missing, place.addr) < (b.missing, b.addr)) {
                best = Some(place);
            }
        };
        for (slot, segment) in self.segments.iter() {
            if segment.kind != SegmentKind::Virtual || segment.stream != request.stream {
                continue;
            }
            let room = segment.reservation - segment.size;
            let missing = size.saturating_sub(self.free_bytes_of(segment.last, request.stream));
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
                        missing: (size - left).min(block.size),
                        room: block.size,
                    });
                }
            }
        }
        best
    }

    /// Bytes of a block if it is free on a stream.
    pub(super) fn free_bytes_of(&self, b: u32, stream: u16) -> u64 {
        if b == NIL || self.blocks[b].state != BlockState::Free || self.blocks[b].stream != stream {
            return 0;
        }
        self.blocks[b].size
    }

    /// Reserves address space for a new virtual segment: twice the device, so that holes rarely run out of room.
    pub(super) fn reserve(&mut self, request: &Request) -> Result<Place, DeviceError> {
        let unit = self.sizes.granularity;
        let bytes = self
            .driver
            .info()
            .total
            .saturating_mul(2)
            .max(request.size * 2)
            .next_multiple_of(unit);
        let addr = self.driver.reserve(bytes)?;
        let segment = self.segments.insert(Segment {
            kind: SegmentKind::Virtual,
            ..empty(request, addr, bytes)
        });
        Ok(Place {
            segment,
            addr,
            missing: request.size,
            room: bytes,
        })
    }

    /// Maps new chunks at an address. All or nothing.
    fn map_new(&mut self, segment: u32, addr: u64, bytes: u64) -> Result<Vec<(u64, Chunk)>, DeviceError> {
        let mut mapped = Vec::new();
        let mut at = addr;
        let sizes: Vec<u64> = self.sizes.chunks(bytes).collect();
        let result = sizes.into_iter().try_for_each(|size| {
            let chunk = self.create(size)?;
            if let Err(error) = self.driver.map(at, size, chunk.handle) {
                self.discard(chunk);
                return Err(error);
            }
            mapped.push((at, chunk));
            at += size;
            Ok(())
        });
        match result.and_then(|()| self.driver.set_access(addr, bytes)) {
            Ok(()) => Ok(mapped),
            Err(error) => {
                for (at, chunk) in mapped {
                    self.unmap_or_remember(segment, at, chunk.size);
                    self.discard(chunk);
                }
                Err(error)
            }
        }
    }

    fn create(&mut self, size: u64) -> Result<Chunk, DeviceError> {
        if let Some(at) = self.orphans.iter().position(|orphan| orphan.size == size) {
            return Ok(self.orphans.swap_remove(at));
        }
        Ok(Chunk {
            handle: self.driver.create(size)?,
            size,
        })
    }

    /// Gives a chunk back to the driver, or keeps it for later if the driver does not take it.
    pub(super) fn discard(&mut self, chunk: Chunk) {
        if self.driver.release(chunk.handle).is_err() {
            self.orphans.push(chunk);
        }
    }

    /// Unmaps a range, or remembers never to use it again.
    pub(super) fn unmap_or_remember(&mut self, segment: u32, addr: u64, bytes: u64) {
        if self.driver.unmap(addr, bytes).is_err()
            && let Some(segment) = self.segments.get_mut(segment)
        {
            segment.stale.push((addr, bytes));
        }
    }

    fn add_chunks(&mut self, request: &Request, place: Place, bytes: u64, chunks: Vec<(u64, Chunk)>) {
        self.ledger.reserved_added(request.class, bytes, chunks.len() as u64);
        self.tell_segment(EventKind::SegmentMap, place.segment, place.addr, bytes);
        self.attach(request, place, bytes, chunks);
        self.tell_figures();
    }

    /// Turns freshly mapped memory into a free block of its segment.
    pub(super) fn attach(&mut self, request: &Request, place: Place, bytes: u64, chunks: Vec<(u64, Chunk)>) {
        let slot = place.segment;
        let Some(segment) = self.segments.get_mut(slot) else {
            return;
        };
        segment.chunks.extend(chunks);
        segment.mapped += bytes;
        self.outlet.segment_begin(slot);
        let b = match segment.holes.remove(&place.addr) {
            Some(hole) => {
                if self.blocks[hole].size > bytes {
                    let rest = self.cut(hole, bytes);
                    let addr = self.blocks[rest].addr;
                    if let Some(segment) = self.segments.get_mut(slot) {
                        segment.holes.insert(addr, rest);
                    }
                    self.show(rest);
                }
                let block = &mut self.blocks[hole];
                block.state = BlockState::Free;
                block.stream = request.stream;
                block.freed_at = 0;
                hole
            }
            None => self.append(request, slot, bytes),
        };
        self.recount_neighbours(b);
        let b = self.coalesce(b);
        self.show(b);
        self.show_segment(slot);
    }

    /// Adds a free block at the end of a virtual segment.
    fn append(&mut self, request: &Request, slot: u32, bytes: u64) -> u32 {
        let Some(segment) = self.segments.get_mut(slot) else {
            return NIL;
        };
        let (addr, last) = (segment.end(), segment.last);
        if segment.size == 0 {
            self.ledger.segment_added(request.class);
        }
        segment.size += bytes;
        let b = self.blocks.insert(Block {
            prev: last,
            ..new_block(request, slot, addr, bytes)
        });
        segment.last = b;
        if last == NIL {
            segment.first = b;
        } else {
            self.blocks[last].next = b;
            self.show(last);
        }
        b
    }
}

/// A plain segment without blocks.
fn empty(request: &Request, addr: u64, reservation: u64) -> Segment {
    Segment {
        addr,
        size: 0,
        reservation,
        mapped: 0,
        class: request.class,
        kind: SegmentKind::Plain,
        stream: request.stream,
        tag: request.tag,
        time: narrate::now(),
        first: NIL,
        last: NIL,
        chunks: BTreeMap::new(),
        holes: BTreeMap::new(),
        stale: Vec::new(),
    }
}

/// A free block over new memory.
fn new_block(request: &Request, segment: u32, addr: u64, size: u64) -> Block {
    Block {
        addr,
        size,
        requested: 0,
        freed_at: 0,
        segment,
        prev: NIL,
        next: NIL,
        tag: StringId(0),
        stream: request.stream,
        waits: 0,
        class: request.class,
        state: BlockState::Free,
        split_counted: false,
        uses: Vec::new(),
    }
}
