//! Reuse across streams.
//!
//! A block freed on stream A may be used by others once the device was waited for after the free: then it is nobody's
//! ([`ANY`](super::streams::ANY)), and any stream may take it at once. Where [`cross_stream_reuse`](crate::Config::cross_stream_reuse) is on,
//! that A was idle after the free is enough, or that an event is done which A recorded after it. A stream's own free block swallows what is
//! nobody's beside it; what is old in it becomes nobody's again ([`Ages`](super::ages::Ages)).

use gpumem_channel::BlockState;

use super::Heap;
use super::allocate::Request;
use super::arena::COMMON;
use super::block::{Block, NIL};
use crate::error::Error;
use crate::free::Key;

/// How many blocks on each side are looked at that may join one, where memory is short. The heap is locked meanwhile, and all free blocks
/// are looked at in this way.
pub(super) const FAR: usize = 64;
/// And where pieces are joined by stitching, too: what is nobody's stays so as far as can be.
pub(super) const NEAR: usize = 1;

/// The part of what is reserved, and of the device, that is worth a wait for the device.
const KEPT: u64 = 4;
const OF_DEVICE: u64 = 16;

impl Heap {
    /// Looks how far the other streams are, and takes from them what they do not use any more. Whether there was anything.
    pub(super) fn reclaim(&mut self, request: &Request) -> Result<bool, Error> {
        let stream = request.stream;
        let arena = self.streams.line(stream).arena;
        let waits = self.much_waits_for_device(request);
        if waits {
            self.settle_if_it_can(request)?;
        }
        let others = self.streams.of(arena);
        let others: Vec<u16> = others
            .filter(|other| *other != stream && self.owns_free(*other))
            .collect();
        self.ask_how_far_for(request, &others)?;
        if arena == COMMON && self.shares_across_streams {
            let mut safe = others.iter().map(|other| self.streams.line(*other).safe);
            self.behind = safe.any(|safe| safe < self.frees);
        }
        Ok(others
            .into_iter()
            .fold(waits, |found, other| self.disown(other) | found))
    }

    /// Whether so much waits for the device that it is worth a wait: enough for a request, and a part of all that is reserved and of the device,
    /// so that waits are few. That is what streams keep that have ended, and what was used by streams that may be gone. A program that starts a
    /// thread for each task, or has the streams of another library use its memory, would take all of the device otherwise.
    fn much_waits_for_device(&self, request: &Request) -> bool {
        let device = self.driver.info().total;
        let much = (self.ledger.reserved() / KEPT)
            .max(device / OF_DEVICE)
            .max(request.size);
        let ended = self.streams.all_retired();
        if self.capturing() {
            return false;
        }
        let arena = self.streams.line(request.stream).arena;
        let lines = ended.iter().map(|at| self.streams.line(*at));
        let kept = lines.filter(|line| line.arena == arena && !line.given_up && !self.shares_across_streams);
        let kept: u64 = kept.flat_map(|line| &line.free).map(|index| index.bytes()).sum();
        if kept + self.ledger.pending() < much {
            return false;
        }
        let waiting = self.streams.indices().flat_map(|at| &self.streams.line(at).waiting);
        let used = waiting
            .filter(|(event, _)| event.is_none())
            .map(|(_, b)| self.size_of(*b));
        kept + used.sum::<u64>() >= much
    }

    /// Makes the free blocks of a stream that it is known not to use any more nobody's. Whether there was one.
    pub(super) fn disown(&mut self, stream: u16) -> bool {
        let mut done = std::mem::take(&mut self.disowned);
        let line = self.streams.line(stream);
        let (any, safe) = (line.any, line.safe);
        for index in &line.free {
            index.each(|key| {
                let block = &self.blocks[key.block];
                if block.freed_at <= safe {
                    done.push((block.segment, key.block));
                }
            });
        }
        self.cut_out_old(stream, safe, &mut done);
        for run in done.chunk_by_mut(|a, b| a.0 == b.0) {
            let segment = run[0].0;
            for (_, b) in &mut *run {
                // What is left of one that old parts were cut out of.
                if self.blocks[*b].freed_at > safe {
                    continue;
                }
                // Blocks of one stream are never neighbours, so none of them goes on the way. What is nobody's joins the like only: a
                // neighbour that its stream still uses would take it back.
                self.unshelve(*b);
                let block = &mut self.blocks[*b];
                if let Some(segment) = self.segments.get_mut(segment) {
                    segment.used_at = segment.used_at.max(block.freed_at);
                }
                block.stream = any;
                block.freed_at = 0;
                self.note_age(*b);
                *b = self.coalesce_quietly(*b);
            }
            self.tell_free(segment, run.iter().map(|(_, b)| *b));
        }
        self.tell_rest(false);
        let found = !done.is_empty();
        done.clear();
        self.disowned = done;
        found
    }

    /// Lets the stream's free blocks swallow what is nobody's beside them, and what is its own behind that, if one of them grows large enough
    /// by so many blocks on each side: the smallest that does. Whether one did.
    pub(super) fn absorb(&mut self, request: &Request, far: usize) -> bool {
        let class = request.class as usize;
        let line = self.streams.line(request.stream);
        let (any, own) = (line.any, &line.free[class]);
        let nobodys = &self.streams.line(any).free[class];
        if own.is_empty() || nobodys.is_empty() || own.bytes() + nobodys.bytes() < request.size {
            return false;
        }
        // Where all of a row together would be too short no block has to be looked at.
        let [own_largest, largest] = [own, nobodys].map(|index| index.largest_and_count().0);
        if own_largest + 2 * far as u64 * own_largest.max(largest) < request.size {
            return false;
        }
        let mut best: Option<Key> = None;
        let mut consider = |b: u32| {
            let grown = self.grown(b, request.stream, far);
            if let Some((key, size)) = grown
                && size >= request.size
                && size > key.size
            {
                best = Some(best.map_or(key, |best| best.min(key)));
            }
        };
        // By those of which there are fewer.
        match nobodys.len() < own.len() {
            true => nobodys.each(|key| {
                let block = &self.blocks[key.block];
                [block.prev, block.next].into_iter().for_each(&mut consider);
            }),
            false => own.each(|key| consider(key.block)),
        }
        let Some(Key { block, .. }) = best else {
            return false;
        };
        let segment = self.blocks[block].segment;
        self.outlet.segment_begin(segment);
        self.unshelve(block);
        let b = self.coalesce_with_all(block);
        self.show(b);
        self.outlet.segment_close(segment);
        self.tell_rest(false);
        true
    }

    /// A block if it is a free one of a stream, and its size with what is nobody's beside it, and what is the stream's or nobody's behind
    /// that: those would join it, too.
    fn grown(&self, b: u32, stream: u16, far: usize) -> Option<(Key, u64)> {
        let block = (b != NIL).then(|| &self.blocks[b])?;
        let own = block.state == BlockState::Free && block.stream == stream;
        let along = |next: fn(&Block) -> u32| {
            let row = std::iter::successors(Some(next(block)), |b| Some(next(self.blocks.get(*b)?)));
            let bytes = row.take(far).map(|b| self.free_bytes_of(b, stream));
            bytes.take_while(|bytes| *bytes > 0).sum::<u64>()
        };
        own.then(|| {
            (
                block.key(b),
                block.size + along(|block| block.prev) + along(|block| block.next),
            )
        })
    }

    /// Bytes of a block if a stream may have it at once.
    pub(super) fn free_bytes_of(&self, b: u32, stream: u16) -> u64 {
        if b == NIL {
            return 0;
        }
        let block = &self.blocks[b];
        let its = block.stream == stream || self.streams.line(stream).any == block.stream;
        let may = block.state == BlockState::Free && its;
        if may { block.size } else { 0 }
    }
}
