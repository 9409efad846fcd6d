//! Compaction: what is free and whole goes back, or lies side by side.

use std::time::{Duration, Instant};

use gpumem_channel::SegmentKind;

use crate::config::SegmentMode;
use crate::error::Error;
use crate::free::FreeBlocks;
use crate::heap::Heap;
use crate::heap::allocate::Request;
use crate::heap::ask::{poll, probe};
use crate::heap::block::NIL;
use crate::heap::release::join::{JoinReport, move_chunks};
use crate::heap::turn::access::{Access, give_back, settle};

/// What a compaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactReport {
    /// Bytes given back to the driver.
    pub released: u64,
    /// Bytes of physical memory that moved to another address; they were free.
    pub bytes_moved: u64,
    /// Physical chunks of them.
    pub chunks_moved: u64,
    /// Driver calls that moved chunks or gave address space back that they left, and one for each segment or chunk that was given back.
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

/// What is known of a compaction when it begins.
struct Begun {
    before: FreeBlocks,
    reserved: u64,
    freed: u64,
    busy: bool,
    mode: SegmentMode,
}

/// Gives wholly free plain segments back; joins the free chunks of virtual segments; gives those of stitched memory back, which is as good as
/// joined.
pub(crate) fn compact(on: &mut impl Access) -> Result<CompactReport, Error> {
    let started = Instant::now();
    on.heap(|heap| heap.not_capturing())??;
    poll(on)?;
    // What is set aside is among them: it joins its neighbours.
    let before = on.heap(|heap| heap.free_blocks())?;
    // Named in the visit that asks about them: between two of them their streams may end.
    probe(on, |heap| heap.unsure())?;
    let begun = on.heap(|heap| heap.begin_compaction(before))?;
    if begun.busy {
        settle(on)?;
    }
    let released = give_back(on, |heap| match begun.mode {
        SegmentMode::Stitched => heap.spare(),
        _ => heap.spare_in(|segment| segment.kind != SegmentKind::Virtual && heap.arenas.may_shrink(segment.arena)),
    });
    let mut moved = JoinReport::default();
    let joined = match begun.mode {
        SegmentMode::Virtual => move_chunks(on, Heap::scattered, &mut moved),
        _ => Ok(None),
    };
    let report = on.heap(|heap| heap.end_compaction(&begun, &moved, started))?;
    released?;
    match joined? {
        Some(refused) => Err(refused.into()),
        None => Ok(report),
    }
}

impl Heap {
    fn begin_compaction(&mut self, before: FreeBlocks) -> Begun {
        Begun {
            before,
            reserved: self.ledger.reserved(),
            freed: self.ledger.stats().num_device_free,
            busy: self.is_busy(),
            mode: self.sizes.mode,
        }
    }

    fn end_compaction(&mut self, begun: &Begun, moved: &JoinReport, started: Instant) -> CompactReport {
        self.tell_figures();
        CompactReport {
            released: begun.reserved - self.ledger.reserved(),
            bytes_moved: moved.bytes_moved,
            chunks_moved: moved.chunks_moved,
            driver_calls: moved.driver_calls + self.ledger.stats().num_device_free - begun.freed,
            waited: begun.busy,
            before: begun.before,
            after: self.free_blocks(),
            duration: started.elapsed(),
        }
    }

    /// Makes free memory nobody's as far as no queued work uses it. Whether work may still use some.
    fn is_busy(&mut self) -> bool {
        for stream in self.owners() {
            self.disown(stream);
        }
        self.streams.pending > 0 || !self.unsure().is_empty()
    }

    /// The streams whose queued work may use something free: memory, or a view.
    fn unsure(&self) -> Vec<u16> {
        let mut unsure = self.owners();
        unsure.extend(self.may_use(self.views.iter()));
        unsure.sort_unstable();
        unsure.dedup();
        unsure
    }

    /// The streams that have something free.
    fn owners(&self) -> Vec<u16> {
        self.streams.real().filter(|stream| self.owns_free(*stream)).collect()
    }

    pub(in crate::heap) fn owns_free(&self, stream: u16) -> bool {
        self.streams.line(stream).free.iter().any(|index| !index.is_empty())
    }

    /// All free chunks, unless they lie side by side.
    fn scattered(&mut self) -> Option<Request> {
        let whole: u64 = self.sources(NIL).iter().map(|source| source.chunk.size).sum();
        let request = Heap::nobodys(whole, whole);
        (whole > 0 && self.fit(&request).is_none()).then_some(request)
    }
}

#[cfg(test)]
#[path = "compact_tests.rs"]
mod tests;
