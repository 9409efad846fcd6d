//! What the GPU still uses: freed blocks that wait for events, and how far each stream is known to be done.
//!
//! A block that other streams used waits for one event on each of them. The stream it was allocated on needs none: what
//! that stream does next is queued behind. Before another one takes what is free there, its stream is asked whether it is idle, and has
//! an event recorded if it is not.

use gpumem_channel::{BlockState, EventKind};

use super::Heap;
use super::allocate::Request;
use super::arena::COMMON;
use crate::error::DeviceError;
use crate::error::Error;
use crate::stream::Stream;

impl Heap {
    /// Notes that a stream uses an allocated block.
    pub(crate) fn record_use(&mut self, b: u32, stream: Stream) -> Result<(), Error> {
        let its = self.blocks[b].stream;
        let same = self.streams.name(its) == stream && !self.streams.line(its).is_retired();
        let stream = self.line_of(COMMON, stream)?;
        if !same {
            self.recall(b);
            let block = &mut self.blocks[b];
            block.used = true;
            let users = self.users.entry(b).or_default();
            if !users.contains(&stream) {
                users.push(stream);
            }
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

    /// Records an event on every other stream that used a freed block. A stream that takes no event any more (it was
    /// destroyed, say) is waited for by the next synchronisation of the device.
    #[cold]
    pub(super) fn wait_for_users(&mut self, b: u32) {
        let users = self.users.remove(&b).unwrap_or_default();
        for stream in &users {
            let event = match self.capturing() || self.streams.line(*stream).is_retired() {
                true => None,
                false => self.driver.record(self.streams.name(*stream)).ok(),
            };
            self.streams.line_mut(*stream).waiting.push_back((event, b));
        }
        let block = &mut self.blocks[b];
        block.used = false;
        block.state = BlockState::PendingFree;
        self.waits.insert(b, users.len());
        self.streams.pending += 1;
        self.tell_waiting(b);
    }

    /// Completes the pending blocks whose events are done.
    pub(crate) fn poll_pending(&mut self) {
        if self.streams.pending == 0 || self.capturing() {
            return;
        }
        for stream in self.streams.indices() {
            while let Some((Some(event), b)) = self.streams.line(stream).waiting.front().copied() {
                match self.driver.query(event) {
                    Ok(true) => {
                        self.driver.retire(event);
                        self.streams.line_mut(stream).waiting.pop_front();
                        self.waited(b);
                    }
                    Ok(false) => break,
                    Err(_) => {
                        self.driver.retire(event);
                        if let Some(front) = self.streams.line_mut(stream).waiting.front_mut() {
                            front.0 = None;
                        }
                    }
                }
            }
            if self.streams.line(stream).is_retired() {
                self.poll_retired(stream);
            }
        }
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
            self.pool_done(arena);
        }
    }

    /// Waits for the device, for a request that may be suspended meanwhile: afterwards no queued work uses what was freed before, pending
    /// blocks of that are free, and free ones are nobody's.
    pub(super) fn settle(&mut self, request: &Request) -> Result<(), DeviceError> {
        self.mark_wait();
        if let Some(frees) = self.wait(request)? {
            self.settled(frees);
        }
        Ok(())
    }

    /// What is given back from now on is not known to be done after a wait for the device that begins now.
    pub(super) fn mark_wait(&mut self) {
        self.drain_all();
        for stream in self.streams.indices() {
            self.tick(stream);
        }
    }

    /// The device is done with everything that was freed until the free counter was `frees`.
    pub(super) fn settled(&mut self, frees: u64) {
        self.ledger.synchronized();
        for stream in self.streams.indices() {
            while let Some((event, b)) = self.streams.line(stream).waiting.front().copied()
                && self.blocks[b].freed_at <= frees
            {
                self.streams.line_mut(stream).waiting.pop_front();
                if let Some(event) = event {
                    self.driver.retire(event);
                }
                self.waited(b);
            }
            let line = self.streams.line_mut(stream);
            // All that there ever will be of it was done before.
            let ended = line.retired.is_some_and(|at| at <= frees);
            line.safe = line.safe.max(if ended { u64::MAX } else { frees });
            if let Some((event, _)) = line.marker.take_if(|(_, count)| ended || *count <= frees) {
                self.driver.retire(event);
            }
        }
        // What other threads gave back meanwhile, and what waited.
        self.drain_all();
        for stream in self.streams.real().collect::<Vec<_>>() {
            self.disown(stream);
        }
        self.tell_figures();
    }

    /// Learns how far a stream is done, later by an event that it leaves there if the stream is busy.
    pub(super) fn probe(&mut self, stream: u16) {
        if self.capturing() || self.check_marker(stream) {
            return;
        }
        let line = self.streams.line(stream);
        if line.safe == self.frees || line.is_retired() {
            return;
        }
        self.tick(stream);
        let name = self.streams.name(stream);
        // An event takes even an idle stream some microseconds; that it is idle it says at once.
        match self.driver.is_idle(name) {
            Ok(true) => self.streams.line_mut(stream).safe = self.frees,
            Ok(false) => {
                let event = self.driver.record(name).ok();
                self.streams.line_mut(stream).marker = event.map(|event| (event, self.frees));
            }
            // A stream that takes no event keeps its blocks until the device is synchronised.
            Err(_) => {}
        }
    }

    /// Whether an event is still outstanding on the stream.
    pub(super) fn check_marker(&mut self, stream: u16) -> bool {
        let Some((event, count)) = self.streams.line(stream).marker else {
            return false;
        };
        let done = self.driver.query(event);
        if done == Ok(false) {
            return true;
        }
        self.driver.retire(event);
        let line = self.streams.line_mut(stream);
        line.marker = None;
        if done.is_ok() {
            line.safe = line.safe.max(count);
        }
        false
    }

    /// Gives all events back, before the heap goes.
    pub(super) fn drop_events(&mut self) {
        for stream in self.streams.indices() {
            let line = self.streams.line_mut(stream);
            let waiting = std::mem::take(&mut line.waiting)
                .into_iter()
                .filter_map(|(event, _)| event);
            for event in waiting.chain(line.marker.take().map(|(event, _)| event)) {
                self.driver.retire(event);
            }
        }
    }
}
