//! What the GPU still uses: freed blocks that wait for events, and how far each stream is known to be done.
//!
//! A block that other streams used waits for one event on each of them. The stream it was allocated on needs none: what
//! that stream does next is queued behind. Where [`cross_stream_reuse`](crate::Config::cross_stream_reuse) is on, a stream is asked whether it
//! is idle before another one takes what is free there, and has an event recorded if it is not. All that is asked without the heap's lock
//! (`ask`).
//!
//! Where streams may end untold, the stream that used a block may be gone when the block is freed. An event is recorded at the free on streams
//! that last only. On others it is recorded when the program names the stream again, and the driver says that it is the same one; until then
//! the block waits for the device.

use gpumem_channel::{BlockState, EventKind};

use super::Heap;
use super::allocate::Request;
use super::arena::COMMON;
use super::release::end::has_remains;
use super::streams::{ANY, Line};
use crate::error::DeviceError;
use crate::error::Error;
use crate::stream::Stream;

/// What is known of a stream that the program names in the call that is being served.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Named {
    /// The driver's [number](crate::device::Driver::stream_id) of it.
    pub(crate) id: Option<u64>,
    /// Whether it lives as long as the process.
    pub(crate) lasts: bool,
}

/// A stream that uses a block which was allocated on another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) line: u16,
    /// Which of the streams that had the handle one after the other.
    id: Option<u64>,
}

impl User {
    /// One of which nothing is known: all streams are waited for.
    const OF_ALL: User = User { line: ANY, id: None };

    /// Whether its stream is that of its line, which may be of another one of the same handle by now.
    pub(super) fn is_of(&self, line: &Line) -> bool {
        line.id == self.id || line.lasts && self.id.is_none()
    }
}

impl Heap {
    /// Whether the driver may be given the handle of a line's stream, whatever the program does with its streams.
    pub(super) fn is_known_to_live(&self, line: u16) -> bool {
        line != ANY
            && (!self.streams_may_end_untold || self.streams.line(line).lasts || self.streams.name(line).never_ends())
    }

    /// Whether a stream was named before.
    pub(crate) fn knows(&self, stream: Stream) -> bool {
        self.streams.named(stream).next().is_some()
    }

    /// Whether an allocated block is a stream's own.
    #[inline(always)]
    pub(crate) fn is_of(&self, b: u32, stream: Stream) -> bool {
        let its = self.blocks[b].stream;
        self.streams.name(its) == stream && !self.streams.line(its).is_retired()
    }

    /// Notes that a stream uses an allocated block. [Errands](Heap::take_errands) may be left.
    pub(crate) fn record_use(&mut self, b: u32, stream: Stream, named: Named) -> Result<(), Error> {
        if self.is_of(b, stream) {
            return Ok(());
        }
        let line = self.line_of(COMMON, stream)?;
        self.identify(line, named);
        let user = match self.is_known_to_live(line) {
            true => User {
                line,
                id: self.streams.line(line).id,
            },
            false if named.id.is_some() => User { line, id: named.id },
            false => User::OF_ALL,
        };
        self.add_user(b, user);
        Ok(())
    }

    fn add_user(&mut self, b: u32, user: User) {
        self.recall(b);
        self.blocks[b].used = true;
        let users = self.users.entry(b).or_default();
        if !users.contains(&user) {
            users.push(user);
        }
    }

    /// The program names the stream of a line: it is alive now, but may be another one than the line's was. Blocks that wait for the next
    /// event of the same stream have one recorded, and what waits for a stream of the same handle that is gone waits for the device.
    fn identify(&mut self, at: u16, named: Named) {
        if !self.streams_may_end_untold || self.streams.name(at).never_ends() {
            return;
        }
        let line = self.streams.line_mut(at);
        if named.id.is_none() {
            line.lasts |= named.lasts;
            return;
        }
        let before = std::mem::replace(&mut line.id, named.id);
        if before == named.id || before.is_none() && line.lasts {
            line.lasts |= named.lasts;
            return self.wait_for_all_before(at);
        }
        line.lasts = named.lasts;
        self.streams.abandon(at);
    }

    /// The same for a stream that memory is asked for, wherever that is to be of.
    pub(crate) fn identify_named(&mut self, stream: Stream, named: Named) {
        for at in self.streams.named(stream).collect::<Vec<_>>() {
            self.identify(at, named);
        }
    }

    /// What is known of a stream that was named for the first time.
    pub(crate) fn note_id(&mut self, stream: Stream, id: Option<u64>) {
        if self.streams_may_end_untold
            && !stream.never_ends()
            && let Some(at) = self.streams.known(stream)
        {
            self.streams.line_mut(at).id = id;
        }
    }

    /// Whether blocks wait for a stream's next event, which the program names now.
    pub(crate) fn awaits_name_of(&mut self, stream: Stream) -> bool {
        self.streams_may_end_untold
            && self.streams.pending > 0
            && !self.capturing()
            && self.streams.known(stream).is_some_and(|at| {
                let line = self.streams.line(at);
                !line.lasts && matches!(line.waiting.back(), Some((None, _)))
            })
    }

    /// Has an event recorded for those blocks that wait for the next one on a stream. It is that of the last of them: the others are done
    /// before.
    pub(super) fn wait_for_all_before(&mut self, at: u16) {
        if self.capturing() || !matches!(self.streams.line(at).waiting.back(), Some((None, _))) {
            return;
        }
        let event = self.leave_event(at);
        if let Some((waits, _)) = self.streams.line_mut(at).waiting.back_mut() {
            *waits = Some(event);
        }
    }

    /// The program gives a block back in the order of a stream. Who names the block's own stream as it was at its birth may say so when
    /// that has ended, too. Another one may be gone by now where streams end untold: it is not named to the driver.
    pub(crate) fn record_last_use(&mut self, b: u32, stream: Stream) -> Result<(), Error> {
        let its = self.blocks[b].stream;
        let ended = self.streams.name(its) == stream && self.streams.line(its).is_retired();
        if ended && self.streams.named(stream).next().is_none() {
            return Ok(());
        }
        if !self.streams_may_end_untold || self.is_of(b, stream) {
            return self.record_use(b, stream, Named::default());
        }
        let user = match self.streams.known(stream) {
            Some(line) => User {
                line,
                id: self.streams.line(line).id,
            },
            None => User::OF_ALL,
        };
        self.add_user(b, user);
        Ok(())
    }

    /// Has an event recorded on every other stream that used a freed block, once the heap's lock is let go of, and what waits looked at. A
    /// stream that takes no event now, or must not be named, is waited for by the next one that it takes, for another block or when no graph is
    /// captured any more, and if it takes none (it was destroyed, say) by the next synchronisation of the device.
    #[cold]
    pub(super) fn wait_for_users(&mut self, b: u32) {
        let users = self.users.remove(&b).unwrap_or_default();
        for user in &users {
            let at = user.line;
            let (line, lives) = (self.streams.line(at), self.is_known_to_live(at));
            // Another one that had the handle before, or nobody can tell.
            if !user.is_of(line) || !lives && user.id.is_none() {
                self.streams.wait_at(ANY, None, b);
                continue;
            }
            let takes_one = lives && !self.capturing() && !line.is_retired();
            let event = takes_one.then(|| self.leave_event(at));
            self.streams.wait_at(at, event, b);
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

    /// The same for what the request can do without: it goes on where the driver refuses to wait.
    pub(super) fn settle_if_it_can(&mut self, request: &Request) -> Result<(), DeviceError> {
        match self.settle(request) {
            Err(error) if error.code == DeviceError::LATER => Err(error),
            _ => Ok(()),
        }
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
            line.reached(if ended { u64::MAX } else { frees }, self.shares_across_streams);
            line.safe = line.safe.max(frees);
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
