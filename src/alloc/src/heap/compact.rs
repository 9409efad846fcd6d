//! Compaction: what is free and whole goes back, or lies side by side.

use std::time::{Duration, Instant};

use gpumem_channel::{PoolId, SegmentKind, StringId};

use super::Heap;
use super::allocate::Request;
use super::arena::COMMON;
use super::block::NIL;
use super::join::JoinReport;
use super::streams::ANY;
use crate::config::SegmentMode;
use crate::error::{DeviceError, Error};
use crate::free::FreeBlocks;
use crate::size::Class;

/// What a compaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactReport {
    /// Bytes given back to the driver.
    pub released: u64,
    /// Bytes of physical memory that moved to another address; they were free.
    pub bytes_moved: u64,
    /// Physical chunks of them.
    pub chunks_moved: u64,
    /// Driver calls that moved chunks, and one for each segment or chunk that was given back.
    pub driver_calls: u64,
    /// Whether the device had to be waited for: queued work still used free memory, or might use it.
    pub waited: bool,
    /// The free blocks before. What was waited for is not among them.
    pub before: FreeBlocks,
    /// The free blocks afterwards.
    pub after: FreeBlocks,
    /// Time it took.
    pub duration: Duration,
}

impl Heap {
    /// Gives wholly free plain segments back; joins the free chunks of virtual segments; gives those of stitched memory back, which is
    /// as good as joined.
    pub(crate) fn compact(&mut self) -> Result<CompactReport, Error> {
        self.not_capturing()?;
        let started = Instant::now();
        let (reserved, freed) = (self.ledger.reserved(), self.ledger.stats().num_device_free);
        self.poll_pending();
        let before = self.free_blocks();
        let waited = self.quiet()?;
        let mut moved = JoinReport::default();
        let released = match self.sizes.mode {
            SegmentMode::Stitched => self.release_free().map(drop),
            _ => self.release_whole(),
        };
        let joined = match self.sizes.mode {
            SegmentMode::Virtual => self.join_all(&mut moved),
            _ => Ok(()),
        };
        self.tell_figures();
        released?;
        joined?;
        Ok(CompactReport {
            released: reserved - self.ledger.reserved(),
            bytes_moved: moved.bytes_moved,
            chunks_moved: moved.chunks_moved,
            driver_calls: moved.driver_calls + self.ledger.stats().num_device_free - freed,
            waited,
            before,
            after: self.free_blocks(),
            duration: started.elapsed(),
        })
    }

    /// Makes all free memory nobody's, and waits for the device if that takes it. Whether it was waited for.
    fn quiet(&mut self) -> Result<bool, DeviceError> {
        let wait = self.was_waited_for() || self.is_busy();
        if wait {
            self.settle(None)?;
        }
        Ok(wait)
    }

    /// Makes free memory nobody's as far as no queued work uses it. Whether work may still use some.
    pub(crate) fn is_busy(&mut self) -> bool {
        self.drain_all();
        for stream in self.streams.real().collect::<Vec<_>>() {
            if self.owns_free(stream) {
                self.probe(stream);
                self.disown(stream);
            }
        }
        let owned = self.streams.real().any(|stream| self.owns_free(stream));
        // A view may still be in use that no block is in.
        owned || self.streams.pending > 0 || self.sizes.mode == SegmentMode::Stitched
    }

    pub(super) fn owns_free(&self, stream: u16) -> bool {
        self.streams.line(stream).free.iter().any(|index| !index.is_empty())
    }

    /// Gives every wholly free plain segment back. The first failure is returned after everything else was tried.
    fn release_whole(&mut self) -> Result<(), DeviceError> {
        let before = self.ledger.reserved();
        let plain = |(slot, segment): (u32, &super::segment::Segment)| {
            (segment.kind != SegmentKind::Virtual && self.arenas.may_shrink(segment.arena)).then_some(slot)
        };
        let slots: Vec<u32> = self.segments.iter().filter_map(plain).collect();
        let mut outcome = Ok(());
        for slot in slots {
            outcome = outcome.and(self.release_plain(slot));
        }
        if self.ledger.reserved() < before {
            self.tell_release(before - self.ledger.reserved());
        }
        self.forget_empty_arenas();
        outcome
    }

    /// Maps all free chunks side by side, unless they lie so.
    fn join_all(&mut self, report: &mut JoinReport) -> Result<(), Error> {
        let whole: u64 = self.sources(NIL).iter().map(|source| source.chunk.size).sum();
        let request = Request {
            requested: whole,
            size: whole,
            class: Class::Chunked,
            pool: PoolId::LARGE,
            stream: ANY,
            arena: COMMON,
            tag: StringId(0),
            name: crate::tag::Tag(0),
        };
        if whole == 0 || self.fit(&request).is_some() {
            return Ok(());
        }
        self.move_chunks(&request, report)
    }
}

#[cfg(test)]
#[path = "compact_tests.rs"]
mod tests;
