//! What the GPU still uses: freed blocks that wait for events, and how far each stream is known to be done.
//!
//! A block that other streams used waits for one event on each of them. The stream it was allocated on needs none: what
//! that stream does next is queued behind. Before another one takes what is free there, its stream is asked whether it is idle, and has
//! an event recorded if it is not. All that is asked without the heap's lock (`ask`).

use gpumem_channel::{BlockState, EventKind};

use super::Heap;
use super::allocate::Request;
use super::arena::COMMON;
use super::release::end::has_remains;
use crate::error::DeviceError;
use crate::error::Error;
use crate::stream::Stream;

impl Heap {
    /// Whether an allocated block is a stream's own.
    #[inline(always)]
    pub(crate) fn is_of(&self, b: u32, stream: Stream) -> bool {
        let its = self.blocks[b].stream;
        self.streams.name(its) == stream && !self.streams.line(its).is_retired()
    }

    /// Notes that a stream uses an allocated block.
    pub(crate) fn record_use(&mut self, b: u32, stream: Stream) -> Result<(), Error> {
        if self.is_of(b, stream) {
            return Ok(());
        }
        let stream = self.line_of(COMMON, stream)?;
        self.recall(b);
        let block = &mut self.blocks[b];
        block.used = true;
        let users = self.users.entry(b).or_default();
        if !users.contains(&stream) {
            users.push(stream);
        }
        Ok(())
    }

    /// The program gives a block back in the order of a stream. Who names the block's own stream as it was at its birth may say so when
    /// that has ended, too.
    pub(crate) fn record_last_use(&mut self, b: u32, stream: Stream) -> Result<(), Error> {
        let its = self.blocks[b].stream;
        let ended = self.streams.name(its) == stream && self.streams.line(its).is_retired();
        if ended && self.streams.named(stream).next().is_none() {
            return Ok(());
        }
        self.record_use(b, stream)
    }

    /// Has an event recorded on every other stream that used a freed block, once the heap's lock is let go of, and what waits looked at. A
    /// stream that takes no event now is waited for by the next one that it takes, for another block or when no graph is captured any more,
    /// and if it takes none (it was destroyed, say) by the next synchronisation of the device.
    #[cold]
    pub(super) fn wait_for_users(&mut self, b: u32) {
        let users = self.users.remove(&b).unwrap_or_default();
        for stream in &users {
            let event = match self.capturing() || self.streams.line(*stream).is_retired() {
                true => None,
                false => Some(self.leave_event(*stream)),
            };
            self.streams.wait_at(*stream, event, b);
        }
        let block = &mut self.blocks[b];
        block.used = false;
        block.state = BlockState::PendingFree;
        let stitched = block.stitched;
        let parts = self.views.take_parts(stitched);
        for part in &parts {
            self.blocks[*part].state = BlockState::PendingFree;
        }
        self.waits.insert(b, users.len());
        self.streams.pending += 1;
        self.tell_waiting(b, &parts);
        self.views.set_parts(stitched, parts);
        self.leave_poll();
    }

    /// One event of a pending block is done.
    pub(super) fn waited(&mut self, b: u32) {
        let left = self.waits.get(&b).map_or(0, |waits| waits - 1);
        if left > 0 {
            self.waits.insert(b, left);
        } else {
            self.waits.remove(&b);
            self.streams.pending -= 1;
            let size = self.size_of(b);
            let arena = self.arena_of(b);
            let block = &self.blocks[b];
            self.ledger.waited(block.pool, size, block.requested);
            self.complete(b, EventKind::FreeCompleted);
            self.pool_done(arena, size);
        }
    }

    /// Waits for the device, for a request that may be suspended meanwhile: afterwards no queued work uses what was freed before, pending
    /// blocks of that are free, and free ones are nobody's.
    pub(super) fn settle(&mut self, request: &Request) -> Result<(), DeviceError> {
        self.mark_wait();
        // Nothing was given back since the device was waited for, and nothing waits, nor does memory of an allocator that has ended.
        let settled = self.settled_at == self.frees && self.streams.pending == 0;
        if settled && !has_remains(self.driver.info().ordinal) {
            return Ok(());
        }
        if let Some(frees) = self.wait(request)? {
            self.settled(frees);
        }
        Ok(())
    }

    /// What is given back from now on is not known to be done after a wait for the device that begins now.
    pub(super) fn mark_wait(&mut self) {
        self.drain_all();
        for stream in self.streams.draining().to_vec() {
            self.tick(stream);
        }
    }

    /// The device is done with everything that was freed until the free counter was `frees`.
    pub(super) fn settled(&mut self, frees: u64) {
        self.ledger.synchronized();
        self.settled_at = self.settled_at.max(frees);
        for stream in self.streams.indices() {
            while let Some((_, b)) = self.streams.line(stream).waiting.front()
                && self.blocks[*b].freed_at <= frees
                && let Some((_, b)) = self.streams.line_mut(stream).waiting.pop_front()
            {
                self.waited(b);
            }
            let line = self.streams.line_mut(stream);
            // All that there ever will be of it was done before.
            let ended = line.retired.is_some_and(|at| at <= frees);
            line.safe = line.safe.max(if ended { u64::MAX } else { frees });
            line.later.take_if(|(_, count)| ended || *count <= frees);
            if line.marker.take_if(|(_, count)| ended || *count <= frees).is_some() {
                line.begin_later();
            }
        }
        // What other threads gave back meanwhile, and what waited.
        self.drain_all();
        for stream in self.streams.real().collect::<Vec<_>>() {
            self.disown(stream);
        }
        self.tell_figures();
    }
}
