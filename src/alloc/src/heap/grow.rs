//! Memory from the driver.

pub(super) mod fineness;
pub(super) mod place;

use gpumem_channel::{BlockState, EventKind};

use super::Heap;
use super::allocate::Request;
use super::block::{Block, NIL, VACANT};
use super::segment::{Chunk, Segment};
use crate::config::SegmentMode;
use crate::error::{DeviceError, Error};
use crate::size::{Class, STEP};
use place::{Place, empty};

/// The part of the device, or of the budget, from which on chunks are taken with a view to running out.
const MUCH: u64 = 4;

impl Heap {
    /// Takes memory so that the request fits on its stream. `false`: the budget or the device does not allow it.
    pub(super) fn grow(&mut self, request: &Request) -> Result<bool, Error> {
        self.give_back_gone(request)?;
        let (want, least) = self.sizes.growth(request.class, request.size);
        if matches!(request.class, Class::Chunked | Class::Fine) {
            return Ok(self.grow_chunked(request, want)?);
        }
        for bytes in [want, least] {
            if !self.within_budget(bytes) || bytes > self.pool_left(request.arena) {
                continue;
            }
            match self.take_plain(request, bytes) {
                Ok(addr) => {
                    self.add_plain(request, addr, bytes);
                    return Ok(true);
                }
                Err(error) if error.is_out_of_memory() => {}
                Err(error) => return Err(error.into()),
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
        let taken = self.ledger.reserved();
        self.budget.map_or(u64::MAX, |budget| budget.saturating_sub(taken))
    }

    pub(super) fn add_plain(&mut self, request: &Request, addr: u64, bytes: u64) {
        let segment = self.segments.insert(Segment {
            mapped: bytes,
            size: bytes,
            ..empty(request, self.streams.name(request.stream), addr, bytes)
        });
        self.ledger.segment_added(request.class.pool());
        self.ledger.reserved_added(request.class.pool(), bytes, 1);
        self.pool_reserved(request.arena, bytes);
        let b = self.blocks.insert(new_block(request, segment, addr, bytes));
        if let Some(segment) = self.segments.get_mut(segment) {
            (segment.first, segment.last) = (b, b);
        }
        self.tell_segment(EventKind::SegmentAlloc, segment, addr, bytes, request.tag);
        self.outlet.segment_begin(segment);
        self.shelve(b);
        self.show(b);
        self.show_segment(segment);
        self.tell_figures();
    }

    fn grow_chunked(&mut self, request: &Request, want: u64) -> Result<bool, DeviceError> {
        let place = match self.best_place(request) {
            Some(place) => place,
            // Views show places in one home: where it has none, because the driver left something there, there is none.
            None if request.class == Class::Chunked && self.home.is_some() => return Ok(false),
            None if !self.within_budget(request.size.next_multiple_of(self.sizes.granularity)) => return Ok(false),
            None => match self.reserve(request) {
                Ok(place) => place,
                Err(error) if error.is_out_of_memory() => return Ok(false),
                Err(error) => return Err(error),
            },
        };
        let want = match self.sizes.mode {
            SegmentMode::Stitched => {
                let reserved = self.ledger.reserved();
                let room = self.target(request).min(self.all_but_others()).saturating_sub(reserved);
                let step = (reserved / STEP).min(room) / self.sizes.granularity * self.sizes.granularity;
                step.clamp(place.missing, place.room.max(place.missing))
            }
            _ => want.max(place.missing).min(place.room.max(place.missing)),
        };
        let (mut outcome, mut refused) = (Ok(false), false);
        for bytes in [want, place.missing] {
            // The first attempt may have left something behind that it could not unmap.
            let blocked = self
                .segments
                .get(place.segment)
                .is_none_or(|s| s.is_stale(place.addr, bytes));
            if blocked || !self.within_budget(bytes) {
                continue;
            }
            match self.map_new(request, (place.segment, place.addr), bytes, bytes.max(request.size)) {
                Ok(chunks) => {
                    self.add_chunks(request, place, bytes, chunks);
                    self.note_grown();
                    return Ok(true);
                }
                Err(error) if error.is_out_of_memory() => refused = bytes == place.missing,
                // What is there for it is needed when it goes on.
                Err(error) if error.code == DeviceError::LATER => return Err(error),
                Err(error) => outcome = Err(error),
            }
            if outcome.is_err() || want == place.missing {
                break;
            }
        }
        if refused {
            self.note_full();
        }
        outcome
    }

    /// Takes at least `missing` bytes of new memory at the end of the home segment. `false`: not with the memory there is.
    pub(super) fn grow_end(&mut self, missing: u64, request: &Request) -> Result<bool, DeviceError> {
        let bytes = missing.next_multiple_of(self.sizes.granularity);
        let Some((slot, segment)) = self.home.and_then(|slot| Some((slot, self.segments.get(slot)?))) else {
            return Ok(false);
        };
        let place = Place {
            segment: slot,
            addr: segment.end(),
            missing: bytes,
            room: segment.reservation - segment.size,
        };
        if bytes > place.room || segment.is_stale(place.addr, bytes) || !self.within_budget(bytes) {
            return Ok(false);
        }
        match self.map_new(request, (slot, place.addr), bytes, request.size) {
            Ok(chunks) => {
                self.add_chunks(request, place, bytes, chunks);
                Ok(true)
            }
            Err(error) if error.is_out_of_memory() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Maps new chunks at a place, of the size that suits a request of `whole` bytes. All or nothing.
    fn map_new(
        &mut self,
        request: &Request,
        place: (u32, u64),
        bytes: u64,
        whole: u64,
    ) -> Result<Vec<(u64, Chunk)>, DeviceError> {
        // What the driver would say in the end, without a list of millions of chunks first.
        if request.size > self.driver.info().total {
            return Err(DeviceError {
                call: "cuMemCreate",
                code: DeviceError::OUT_OF_MEMORY,
                name: "CUDA_ERROR_OUT_OF_MEMORY".to_owned(),
            });
        }
        let sizes = match self.sizes.mode {
            SegmentMode::Stitched => {
                let reserved = self.ledger.reserved();
                let chunks = self.ledger.device_allocs() + bytes / self.sizes.granularity;
                let fineness = self.fineness.times(self.frees, chunks);
                // After a release there is little.
                let usual = reserved.max(self.expected_for_chunks());
                let mut chunk = self.sizes.stitched_chunk(whole, usual, fineness);
                let total = self.driver.info().total;
                let limit = self.budget.map_or(total, |budget| budget.min(total));
                // Pieces that are no whole chunks are lost to a request that finds no other memory.
                if request.class == Class::Chunked && reserved > limit / MUCH {
                    chunk = chunk.min(self.sizes.chunk_near_limit(request.size));
                }
                self.sizes.stitched_chunks(bytes, chunk).collect()
            }
            _ => self.sizes.chunks(bytes, self.sizes.chunk(whole)).collect(),
        };
        self.take_chunks(request, place, sizes)
    }

    /// Keeps chunks of no segment for later: the driver did not take them.
    pub(super) fn keep_loose(&mut self, chunks: Vec<Chunk>) {
        for chunk in &chunks {
            self.ledger.loose_added(chunk.size);
            if let Some(recorder) = self.outlet.recorder_mut() {
                recorder.loose_added(chunk.size);
            }
        }
        self.orphans.extend(chunks);
    }

    /// One of them became part of a segment, or went, in `calls` calls.
    pub(super) fn forget_loose(&mut self, bytes: u64, calls: u64) {
        self.ledger.loose_removed(bytes, calls);
        if let Some(recorder) = self.outlet.recorder_mut() {
            recorder.loose_removed(bytes);
        }
    }

    pub(super) fn add_chunks(&mut self, request: &Request, place: Place, bytes: u64, chunks: Vec<(u64, Chunk)>) {
        self.ledger
            .reserved_added(request.class.pool(), bytes, chunks.len() as u64);
        if request.class == Class::Chunked {
            let held = self.requested_peak(request.requested);
            self.fineness.grew(self.ledger.reserved(), held);
            self.layouts.grew();
        }
        self.tell_segment(EventKind::SegmentMap, place.segment, place.addr, bytes, request.tag);
        self.attach(request, place, bytes, chunks);
        self.tell_figures();
    }

    /// Turns freshly mapped memory into a free block of its segment.
    pub(super) fn attach(&mut self, request: &Request, place: Place, bytes: u64, chunks: Vec<(u64, Chunk)>) {
        let slot = place.segment;
        self.note_borders(slot, &chunks);
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
        self.note_age(b);
        let b = self.coalesce_with_all(b);
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
            self.ledger.segment_added(request.class.pool());
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
        self.cover(b, addr, slot);
        b
    }
}

/// A free block over new memory.
fn new_block(request: &Request, segment: u32, addr: u64, size: u64) -> Block {
    Block {
        addr,
        size,
        segment,
        stream: request.stream,
        class: request.class,
        pool: request.class.pool(),
        state: BlockState::Free,
        ..VACANT
    }
}
