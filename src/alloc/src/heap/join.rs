//! Joining holes: the physical chunks of scattered free blocks, mapped side by side. Nothing is copied; live blocks keep
//! their addresses and contents.
//!
//! A chunk is first mapped at its new address as well (one chunk may be mapped twice) and unmapped from the old one only
//! when the new range is complete, so that a failure on the way changes nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gpumem_channel::{BlockState, EventKind, PoolId, SegmentKind, StringId};

use super::Heap;
use super::allocate::Request;
use super::arena::COMMON;
use super::block::NIL;
use super::place::Place;
use super::segment::Chunk;
use crate::config::SegmentMode;
use crate::error::{DeviceError, Error};
use crate::size::Class;
use crate::stream::Stream;
use crate::tag::Tag;

/// What joining holes did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JoinReport {
    /// Bytes of the free block that now serves the request; at least what was asked for.
    pub contiguous: u64,
    /// Physical chunks that moved; 0 when a large enough block was free already.
    pub chunks_moved: u64,
    /// Bytes of them.
    pub bytes_moved: u64,
    /// Driver calls made, the wait for the device included.
    pub driver_calls: u64,
    /// Time it took.
    pub duration: Duration,
}

/// A chunk in a free block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    segment: u32,
    block: u32,
    addr: u64,
    pub(super) chunk: Chunk,
}

impl Heap {
    /// Whether there are holes to be joined.
    pub(crate) fn joins_holes(&self) -> bool {
        self.sizes.mode == SegmentMode::Virtual
    }

    /// Makes `bytes` contiguous and free on a stream, from the whole chunks of free blocks.
    pub(crate) fn join(&mut self, bytes: u64, stream: Stream) -> Result<JoinReport, Error> {
        if !self.joins_holes() {
            return Err(Error::NotVirtual);
        }
        self.not_capturing()?;
        let started = Instant::now();
        let (size, _) = self.sizes.round(bytes.max(self.sizes.granularity))?;
        let stream = self.streams.index(stream)?;
        let request = Request {
            requested: bytes,
            size,
            class: Class::Chunked,
            pool: PoolId::LARGE,
            stream,
            arena: COMMON,
            tag: StringId(0),
            name: Tag(0),
        };
        self.settle(None)?;
        let mut report = JoinReport {
            driver_calls: 1,
            ..JoinReport::default()
        };
        if self.fit(&request).is_none() {
            self.move_chunks(&request, &mut report)?;
        }
        let largest = self.fit(&request);
        report.contiguous = largest.map_or(0, |key| key.size);
        report.duration = started.elapsed();
        self.tell_figures();
        Ok(report)
    }

    pub(super) fn move_chunks(&mut self, request: &Request, report: &mut JoinReport) -> Result<(), Error> {
        let end = self.widest_end(request);
        let keep = end
            .and_then(|place| self.segments.get(place.segment))
            .map_or(NIL, |segment| segment.last);
        let missing = end.map_or(request.size, |place| place.missing);
        let sources = self.sources(keep);
        let total: u64 = sources.iter().map(|source| source.chunk.size).sum();
        if total < missing {
            let available = total + (request.size - missing);
            return Err(Error::HolesTooSmall {
                requested: request.size,
                available,
            });
        }
        let moving = choose(sources, missing);
        let place = match end {
            Some(place) => place,
            None => {
                report.driver_calls += 1;
                self.reserve(request)?
            }
        };
        let mapped = self.map_again(place, &moving, report);
        let chunks = match mapped {
            Ok(chunks) => chunks,
            Err(error) => {
                self.drop_if_empty(place.segment);
                return Err(error.into());
            }
        };
        let bytes: u64 = moving.iter().map(|source| source.chunk.size).sum();
        report.chunks_moved = moving.len() as u64;
        report.bytes_moved = bytes;
        self.tell_segment(EventKind::Remap, place.segment, place.addr, bytes);
        self.hollow_out(&moving, report);
        self.attach(request, place, bytes, chunks);
        Ok(())
    }

    /// The end of the virtual segment that already has most free memory there.
    fn widest_end(&self, request: &Request) -> Option<Place> {
        let ends = self.segments.iter().filter_map(|(slot, segment)| {
            let fits = segment.kind == SegmentKind::Virtual;
            let missing = request.size - self.free_bytes_of(segment.last, request.stream).min(request.size);
            let room = segment.reservation - segment.size;
            // One chunk more than is missing may be mapped there.
            let enough = missing + self.sizes.max_chunk <= room && !segment.is_stale(segment.end(), room);
            (fits && enough).then(|| Place {
                segment: slot,
                addr: segment.end(),
                missing,
                room,
            })
        });
        ends.min_by_key(|place| (place.missing, place.addr))
    }

    /// Every chunk that lies wholly in a free block that no queued work uses, but those of the block `keep`.
    pub(super) fn sources(&self, keep: u32) -> Vec<Source> {
        let mut sources = Vec::new();
        for (slot, segment) in self.segments.iter().filter(|(_, s)| s.kind == SegmentKind::Virtual) {
            let mut b = segment.first;
            while b != NIL {
                let block = &self.blocks[b];
                if block.state == BlockState::Free && b != keep && self.is_unused(b) {
                    let within = segment.chunks_within(block.addr, block.addr + block.size);
                    sources.extend(within.map(|(addr, chunk)| Source {
                        segment: slot,
                        block: b,
                        addr,
                        chunk,
                    }));
                }
                b = block.next;
            }
        }
        sources
    }

    /// Maps the chunks side by side at their new place. All or nothing.
    fn map_again(
        &mut self,
        place: Place,
        moving: &[Source],
        report: &mut JoinReport,
    ) -> Result<Vec<(u64, Chunk)>, DeviceError> {
        let mut at = place.addr;
        let mut mapped = Vec::with_capacity(moving.len());
        let mut result = Ok(());
        for source in moving {
            report.driver_calls += 1;
            result = self.driver.map(at, source.chunk.size, source.chunk.handle);
            if result.is_err() {
                break;
            }
            mapped.push((at, source.chunk));
            at += source.chunk.size;
        }
        report.driver_calls += 1;
        match result.and_then(|()| self.driver.set_access(place.addr, at - place.addr)) {
            Ok(()) => Ok(mapped),
            Err(error) => {
                for (at, chunk) in mapped {
                    self.unmap_or_remember(place.segment, at, chunk.size);
                }
                Err(error)
            }
        }
    }

    /// Unmaps the chunks from where they were and takes the memory out of those blocks.
    fn hollow_out(&mut self, moving: &[Source], report: &mut JoinReport) {
        let mut by_block: BTreeMap<(u32, u32), Vec<(u64, u64)>> = BTreeMap::new();
        for source in moving {
            let (from, to) = (source.addr, source.addr + source.chunk.size);
            by_block
                .entry((source.segment, source.block))
                .or_default()
                .push((from, to));
            if let Some(segment) = self.segments.get_mut(source.segment) {
                segment.chunks.remove(&from);
                segment.mapped -= source.chunk.size;
            }
        }
        for ((slot, block), mut parts) in by_block {
            parts.sort_unstable();
            self.outlet.segment_begin(slot);
            let mut b = Some(block);
            for run in parts.chunk_by(|left, right| left.1 == right.0) {
                let (Some(block), Some(first), Some(last)) = (b, run.first(), run.last()) else {
                    break;
                };
                report.driver_calls += 1;
                self.unmap_run(slot, run);
                b = self.hollow(slot, block, first.0, last.1);
            }
            self.show_segment(slot);
            self.trim(slot);
            self.drop_if_empty(slot);
        }
    }

    fn unmap_run(&mut self, slot: u32, run: &[(u64, u64)]) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            return;
        };
        self.unmap_or_remember(slot, first.0, last.1 - first.0);
        self.record_moved(first.0, last.1 - first.0);
    }
}

/// The fewest chunks that hold `missing` bytes: the largest that still fit, then the smallest that fills the rest.
fn choose(mut sources: Vec<Source>, missing: u64) -> Vec<Source> {
    sources.sort_by_key(|source| (std::cmp::Reverse(source.chunk.size), source.segment, source.addr));
    let mut left = missing;
    let (mut chosen, skipped): (Vec<Source>, Vec<Source>) = sources.into_iter().partition(|source| {
        let fits = source.chunk.size <= left;
        if fits {
            left -= source.chunk.size;
        }
        fits
    });
    if left > 0 {
        chosen.extend(skipped.last());
    }
    chosen
}
