//! Joining holes: the physical chunks of scattered free blocks, mapped side by side. Nothing is copied; live blocks keep
//! their addresses and contents.
//!
//! What moves is set apart first, and so is the free block that it is to lie beside, so that the driver can be called without the heap's lock
//! (`shift`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use gpumem_channel::{BlockState, SegmentKind, StringId};

use crate::config::SegmentMode;
use crate::error::{DeviceError, Error};
use crate::heap::Heap;
use crate::heap::allocate::Request;
use crate::heap::arena::COMMON;
use crate::heap::block::NIL;
use crate::heap::grow::place::Place;
use crate::heap::release::going::Going;
use crate::heap::release::shift::Shift;
use crate::heap::segment::Chunk;
use crate::heap::streams::ANY;
use crate::heap::turn::access::{Access, give_back, settle};
use crate::size::Class;
use crate::stream::Stream;
use crate::tag::Tag;

/// What joining holes did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JoinReport {
    /// Bytes of the free block that now serves the request; at least what was asked for, or 0 if another thread has it already.
    pub contiguous: u64,
    /// Physical chunks that moved; 0 when a large enough block was free already.
    pub chunks_moved: u64,
    /// Bytes of them.
    pub bytes_moved: u64,
    /// Driver calls made: the wait for the device is among them, and those that gave address space back.
    pub driver_calls: u64,
    /// Time it took.
    pub duration: Duration,
}

/// A chunk in a free block.
#[derive(Clone, Copy, Debug)]
pub(in crate::heap) struct Source {
    segment: u32,
    block: u32,
    addr: u64,
    pub(in crate::heap) chunk: Chunk,
}

/// What is to be done first so that chunks lie side by side.
enum Step {
    /// They do.
    Nothing,
    /// Address space is missing: so many bytes.
    Reserve(u64),
    Shift(Shift),
}

/// Makes `bytes` contiguous and free on a stream, from the whole chunks of free blocks.
pub(crate) fn join(on: &mut impl Access, bytes: u64, stream: Stream) -> Result<JoinReport, Error> {
    let started = Instant::now();
    on.heap(|heap| heap.wanted(bytes, stream))??;
    settle(on)?;
    let mut report = JoinReport {
        driver_calls: 1,
        ..JoinReport::default()
    };
    let missing = |heap: &mut Heap| {
        let request = heap.wanted(bytes, stream).ok()?;
        heap.fit(&request).is_none().then(|| Heap::nobodys(bytes, request.size))
    };
    // What stays mapped where it was, too, is free at its new place all the same.
    let _ = move_chunks(on, missing, &mut report)?;
    on.heap(|heap| {
        let request = heap.wanted(bytes, stream)?;
        report.contiguous = heap.fit(&request).map_or(0, |key| key.size);
        report.duration = started.elapsed();
        heap.tell_figures();
        Ok(report)
    })?
}

/// Moves free chunks so that what is missing is there, if something is. Why what moved could not be unmapped from where it was, if that is so.
pub(in crate::heap) fn move_chunks(
    on: &mut impl Access,
    missing: impl Fn(&mut Heap) -> Option<Request>,
    report: &mut JoinReport,
) -> Result<Option<DeviceError>, Error> {
    let moved = shift_chunks(on, missing, report);
    let mut ranges = 0;
    // Address space that the driver does not take is of use to the next growth.
    give_back(on, |heap| {
        let spare = heap.spare_ranges();
        ranges = spare.len() as u64;
        spare
    })?;
    report.driver_calls += ranges;
    moved
}

fn shift_chunks(
    on: &mut impl Access,
    missing: impl Fn(&mut Heap) -> Option<Request>,
    report: &mut JoinReport,
) -> Result<Option<DeviceError>, Error> {
    let (driver, step) = on.heap(|heap| (Arc::clone(&heap.driver), heap.begin_shift(&missing)))?;
    let mut step = step?;
    if let Step::Reserve(bytes) = step {
        report.driver_calls += 1;
        let addr = driver.reserve(bytes)?;
        step = on.heap(|heap| {
            heap.add_range(&Heap::nobodys(bytes, bytes), addr, bytes);
            heap.begin_shift(&missing)
        })??;
    }
    let Step::Shift(mut shift) = step else { return Ok(None) };
    let outcome = shift.run(&*driver);
    let refused = shift.refused.take();
    report.driver_calls += shift.calls;
    if outcome.is_ok() {
        report.chunks_moved = shift.chunks().count() as u64;
        report.bytes_moved = shift.bytes();
    }
    on.heap(|heap| heap.end_shift(shift, outcome.is_ok()))?;
    outcome?;
    Ok(refused)
}

impl Heap {
    /// Whether holes can be [joined](join) for a stream now, which is known from then on.
    pub(crate) fn may_join(&mut self, bytes: u64, stream: Stream) -> Result<(), Error> {
        self.wanted(bytes, stream).map(drop)
    }

    /// What a request for these bytes would be.
    fn wanted(&mut self, bytes: u64, stream: Stream) -> Result<Request, Error> {
        if self.sizes.mode != SegmentMode::Virtual {
            return Err(Error::NotVirtual);
        }
        self.not_capturing()?;
        let (size, _) = self.sizes.round(bytes.max(self.sizes.granularity))?;
        Ok(Request {
            stream: self.line_of(COMMON, stream)?,
            ..Heap::nobodys(bytes, size)
        })
    }

    /// A request for chunks that is of no stream.
    pub(in crate::heap) fn nobodys(requested: u64, size: u64) -> Request {
        Request::common(requested, (size, Class::Chunked), ANY, (Tag(0), StringId(0)))
    }

    /// Chooses chunks for what is missing, and sets them apart.
    fn begin_shift(&mut self, missing: impl Fn(&mut Heap) -> Option<Request>) -> Result<Step, Error> {
        // What others gave back since the device was waited for, and that no queued work uses all the same.
        for stream in self.streams.real().collect::<Vec<_>>() {
            self.disown(stream);
        }
        let Some(request) = missing(self) else {
            return Ok(Step::Nothing);
        };
        let end = self.widest_end(&request);
        let beside = end
            .and_then(|place| self.segments.get(place.segment))
            .map_or(NIL, |segment| segment.last);
        let missing = end.map_or(request.size, |place| place.missing);
        let sources = self.sources(beside);
        let total: u64 = sources.iter().map(|source| source.chunk.size).sum();
        if total < missing {
            let available = total + (request.size - missing);
            return Err(Error::HolesTooSmall {
                requested: request.size,
                available,
            });
        }
        let Some(place) = end else {
            let chunks = sources.iter().map(|source| source.chunk.size);
            let all = request.size + chunks.max().unwrap_or(0);
            return Ok(Step::Reserve(self.range_for(all)));
        };
        let mut moving = runs(choose(sources, missing));
        self.set_apart(&mut moving);
        let beside = (place.missing < request.size).then_some(beside);
        if let Some(b) = beside {
            self.unshelve(b);
            self.hold_apart(b);
        }
        Ok(Step::Shift(Shift::new(place, moving, beside)))
    }

    /// The end of the virtual segment that already has most free memory there.
    fn widest_end(&self, request: &Request) -> Option<Place> {
        let chunks = self.segments.iter().flat_map(|(_, segment)| segment.chunks.values());
        let largest = chunks.map(|chunk| chunk.size).max().unwrap_or(0);
        let ends = self.segments.iter().filter_map(|(slot, segment)| {
            let fits = segment.kind == SegmentKind::Virtual;
            let missing = request.size - self.free_bytes_of(segment.last, ANY).min(request.size);
            let room = segment.reservation - segment.size;
            // One chunk more than is missing may be mapped there.
            let enough = missing + largest <= room && !segment.is_stale(segment.end(), room);
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
    pub(in crate::heap) fn sources(&self, keep: u32) -> Vec<Source> {
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
}

/// Chunks of a block that lie side by side.
fn runs(mut chunks: Vec<Source>) -> Vec<Going> {
    chunks.sort_unstable_by_key(|source| (source.segment, source.addr));
    let beside = |left: &Source, right: &Source| {
        left.segment == right.segment && left.block == right.block && left.addr + left.chunk.size == right.addr
    };
    let runs = chunks.chunk_by(beside).filter_map(|run| {
        let Source { segment, block, .. } = *run.first()?;
        Some(Going::Chunks {
            slot: segment,
            block,
            run: run.iter().map(|source| (source.addr, source.chunk)).collect(),
        })
    });
    runs.collect()
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
