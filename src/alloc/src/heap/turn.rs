//! Long driver calls without the heap's lock.
//!
//! A request that needs the driver for long (new memory, a mapping, a wait for the device) is [suspended](Suspended) when it comes to
//! such a call: its thread lets go of the heap and makes the call. What that gave becomes part of the heap, as free memory or as a view, and
//! the request goes on from where [`Heap::allocate_slow`] begins. Meanwhile others use the heap: what they changed is seen, because
//! everything is looked at again. One thread at a time makes such calls: it has the *turn*, and who gives memory
//! back to the driver or moves it needs it, too. The turn comes before the heap's lock.

use std::sync::Arc;

use super::allocate::Request;
use super::arena::COMMON;
use super::call::{Call, Gave};
use super::map::places;
use super::place::Place;
use super::segment::Chunk;
use super::{Grant, Heap};
use crate::device::Driver;
use crate::error::{DeviceError, Error};
use crate::stack::Stack;
use crate::stream::Stream;
use crate::tag::Tag;

/// Calls of one request after which it goes on under the heap's lock: others keep taking what it calls for.
const MOST: usize = 64;

/// The calls that were made for one request.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Those that failed, and would again.
    failed: Vec<(Call, DeviceError)>,
    /// The call to be made next, and for what.
    wanted: Option<(Call, Request)>,
    /// The request that is to go on then, which may be another one: a pool's overflows.
    resumed: Option<Request>,
    /// Who asked, for the history: the stack that it goes on with is another one.
    caller: Stack,
    /// The device was just waited for, and what that tells is known.
    waited: bool,
    /// It was waited for when the free counter was this, and that is not known yet.
    waited_at: Option<u64>,
    /// That was done because nothing else helped.
    settled: bool,
    calls: usize,
}

/// A request that waits for a driver call.
#[derive(Debug)]
pub(crate) struct Suspended {
    call: Call,
    by: Request,
    turn: Box<Turn>,
    driver: Arc<dyn Driver>,
}

/// The same once the call was made.
#[derive(Debug)]
pub(crate) struct Made {
    call: Call,
    gave: Gave,
    result: Result<(), DeviceError>,
    by: Request,
    turn: Box<Turn>,
}

/// How far a request came.
#[derive(Debug)]
pub(crate) enum Attempt {
    Done(Result<Grant, Error>),
    /// Apart: most requests never are.
    Suspended(Box<Suspended>),
}

/// Not an error of the driver's: the request is suspended.
fn suspended() -> DeviceError {
    DeviceError {
        call: "a driver call without the heap's lock",
        code: DeviceError::LATER,
        name: "not made yet".to_owned(),
    }
}

impl Suspended {
    /// Makes the call. To be done by who has the turn and does not hold the heap's lock.
    pub(crate) fn run(self) -> Made {
        let Suspended {
            mut call,
            by,
            turn,
            driver,
        } = self;
        let (gave, result) = call.run(&*driver);
        Made {
            call,
            gave,
            result,
            by,
            turn,
        }
    }
}

impl Heap {
    /// [`allocate_in`](Heap::allocate_in) for who can let go of the heap while the driver is called.
    pub(crate) fn attempt(&mut self, arena: u16, requested: u64, stream: Stream, tag: Tag) -> Attempt {
        self.suspends = true;
        let result = self.allocate_in(arena, requested, stream, tag);
        self.conclude(result)
    }

    /// Goes on with a request whose call was made.
    pub(crate) fn resume(&mut self, made: Made) -> Attempt {
        let Made {
            call,
            gave,
            result,
            by,
            mut turn,
        } = made;
        self.suspended -= 1;
        match result {
            Ok(()) => {
                turn.waited |= matches!(call, Call::Synchronize { .. });
                self.keep(&by, &call, gave);
            }
            Err(error) => {
                self.undo(&call, gave);
                turn.failed.push((call, error));
            }
        }
        self.go_on(by, turn)
    }

    /// The same where the call was not made, because another thread had the turn: what that did is looked at first.
    pub(crate) fn resume_anew(&mut self, suspended: Suspended) -> Attempt {
        let Suspended { mut call, by, turn, .. } = suspended;
        self.suspended -= 1;
        if let Call::Map { spare, .. } = &mut call {
            self.orphans.append(spare);
        }
        self.go_on(by, turn)
    }

    fn go_on(&mut self, by: Request, mut turn: Box<Turn>) -> Attempt {
        let request = turn.resumed.take().unwrap_or(by);
        if turn.caller != Stack::NONE {
            self.attribute(turn.caller);
        }
        turn.calls += 1;
        // Who cannot agree with the others goes on alone.
        self.suspends = turn.calls < MOST;
        self.turn = Some(turn);
        let result = self.allocate_slow(&request);
        let result = self.after(result, &request);
        self.conclude(result)
    }

    /// What comes after a request was granted in the end.
    fn after(&mut self, result: Result<Grant, Error>, request: &Request) -> Result<Grant, Error> {
        let grant = result?;
        match request.arena {
            COMMON => self.note_placement(&grant, request),
            _ => self.pool_granted(grant.block),
        }
        Ok(grant)
    }

    #[inline(always)]
    fn conclude(&mut self, result: Result<Grant, Error>) -> Attempt {
        self.suspends = false;
        match self.turn.take() {
            None => Attempt::Done(result),
            Some(turn) => self.suspend(turn, result),
        }
    }

    #[cold]
    fn suspend(&mut self, mut turn: Box<Turn>, result: Result<Grant, Error>) -> Attempt {
        let Some((call, by)) = turn.wanted.take() else {
            return Attempt::Done(result);
        };
        self.suspended += 1;
        turn.caller = self.outlet.recorder().map_or(Stack::NONE, |recorder| recorder.caller);
        Attempt::Suspended(Box::new(Suspended {
            call,
            by,
            turn,
            driver: Arc::clone(&self.driver),
        }))
    }

    /// Notes which request is suspended, if it is.
    pub(super) fn note_suspended(&mut self, request: &Request) {
        if let Some(turn) = self.turn.as_mut().filter(|turn| turn.wanted.is_some()) {
            turn.resumed = Some(*request);
        }
    }

    /// Whether the device was waited for already, for the request that is being served.
    pub(super) fn is_settled(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.settled)
    }

    pub(super) fn note_settled(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.settled = true;
        }
        self.forget_failures();
    }

    /// There is more memory to be had than when calls failed.
    pub(super) fn forget_failures(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.failed.clear();
        }
    }

    /// Makes a call, or finds what it gave already, or else suspends the request.
    fn perform(&mut self, request: &Request, mut call: Call) -> Result<Gave, DeviceError> {
        let failed = self.turn.iter().flat_map(|turn| &turn.failed);
        if let Some((_, error)) = failed.into_iter().find(|(made, _)| made.is_like(&call)) {
            return Err(error.clone());
        }
        if let Call::Map { sizes, spare, .. } = &mut call {
            for size in sizes {
                let known = self.orphans.iter().position(|orphan| orphan.size == *size);
                spare.extend(known.map(|known| self.orphans.swap_remove(known)));
            }
        }
        if self.suspends {
            self.turn.get_or_insert_default().wanted = Some((call, *request));
            return Err(suspended());
        }
        let (gave, result) = call.run(&*self.driver);
        match result {
            Ok(()) => Ok(gave),
            Err(error) => {
                self.undo(&call, gave);
                Err(error)
            }
        }
    }

    /// Gives back what is left of a call that failed.
    fn undo(&mut self, call: &Call, gave: Gave) {
        match (call, gave) {
            (Call::Map { segment, .. }, Gave::Chunks { mapped, loose }) => {
                for (at, chunk) in mapped {
                    self.unmap_or_remember(*segment, at, chunk.size);
                    self.discard(chunk);
                }
                for chunk in loose {
                    self.discard(chunk);
                }
            }
            (_, Gave::Range(Some(stale))) => {
                // Remembered if it fails, too.
                let _ = self.give_range_back(stale);
            }
            (Call::Extend { view, addr, .. }, Gave::Mapped(mapped))
                if mapped > 0 && self.driver.unmap(*addr, mapped).is_err() =>
            {
                self.views.leave(*view, mapped);
            }
            _ => {}
        }
    }

    /// Makes what a call gave part of the heap.
    fn keep(&mut self, request: &Request, call: &Call, gave: Gave) {
        match (call, gave) {
            (Call::Alloc { bytes }, Gave::Addr(addr)) => self.add_plain(request, addr, *bytes),
            (Call::Reserve { bytes }, Gave::Addr(addr)) => {
                self.add_range(request, addr, *bytes);
            }
            (Call::Map { segment, addr, .. }, Gave::Chunks { mapped, loose }) => {
                self.orphans.extend(loose);
                let bytes = mapped.iter().map(|(_, chunk)| chunk.size).sum();
                let place = Place {
                    segment: *segment,
                    addr: *addr,
                    missing: bytes,
                    room: bytes,
                };
                self.add_chunks(request, place, bytes, mapped);
            }
            (Call::Extend { view, chunks, .. }, Gave::Mapped(_)) => {
                self.layouts.mapped(chunks.len());
                self.views.extend(*view, places(chunks));
            }
            (Call::View { chunks, .. }, Gave::Range(Some(stale))) => {
                self.layouts.mapped(chunks.len());
                self.views.insert(stale.range, stale.bytes, places(chunks));
            }
            (Call::Synchronize { .. }, Gave::Frees(frees)) => self.settled(frees),
            _ => {}
        }
    }

    /// Memory for a plain segment.
    pub(super) fn take_plain(&mut self, request: &Request, bytes: u64) -> Result<u64, DeviceError> {
        self.perform(request, Call::Alloc { bytes }).map(Gave::addr)
    }

    /// Address space.
    pub(super) fn take_range(&mut self, request: &Request, bytes: u64) -> Result<u64, DeviceError> {
        self.perform(request, Call::Reserve { bytes }).map(Gave::addr)
    }

    /// New chunks, mapped side by side. All or nothing.
    pub(super) fn take_chunks(
        &mut self,
        request: &Request,
        (segment, addr): (u32, u64),
        sizes: Vec<u64>,
    ) -> Result<Vec<(u64, Chunk)>, DeviceError> {
        let spare = Vec::new();
        let call = Call::Map {
            segment,
            addr,
            sizes,
            spare,
        };
        match self.perform(request, call)? {
            Gave::Chunks { mapped, loose } => {
                self.orphans.extend(loose);
                Ok(mapped)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Chunks of the home segment mapped side by side once more, in a range of `room` bytes: where.
    pub(super) fn take_view(
        &mut self,
        request: &Request,
        chunks: &[(u64, Chunk)],
        room: u64,
    ) -> Result<u64, DeviceError> {
        let chunks = chunks.to_vec();
        match self.perform(request, Call::View { chunks, room })? {
            Gave::Range(Some(stale)) => Ok(stale.range),
            _ => Ok(0),
        }
    }

    /// The same at the end of a view.
    pub(super) fn take_end(
        &mut self,
        request: &Request,
        (view, addr): (u32, u64),
        chunks: &[(u64, Chunk)],
    ) -> Result<(), DeviceError> {
        let chunks = chunks.to_vec();
        self.perform(request, Call::Extend { view, addr, chunks }).map(drop)
    }

    /// The device is about to be waited for without the heap's lock: its driver, and what is freed by then.
    pub(crate) fn begin_wait(&mut self) -> (Arc<dyn Driver>, u64) {
        self.mark_wait();
        (Arc::clone(&self.driver), self.frees)
    }

    /// Does something once that was done: it need not wait again.
    pub(crate) fn after_wait<R>(&mut self, frees: u64, work: impl FnOnce(&mut Heap) -> R) -> R {
        self.turn = Some(Box::new(Turn {
            waited_at: Some(frees),
            ..Turn::default()
        }));
        let result = work(self);
        self.turn = None;
        result
    }

    /// Whether the device was waited for, and what that tells is not known yet.
    pub(super) fn was_waited_for(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.waited_at.is_some())
    }

    /// Waits for the device. The free counter up to which it is done with everything; `None` if that was just done, and is known.
    pub(super) fn wait(&mut self, request: Option<&Request>) -> Result<Option<u64>, DeviceError> {
        let frees = self.frees;
        if let Some(turn) = &mut self.turn {
            if std::mem::take(&mut turn.waited) {
                return Ok(None);
            }
            if let Some(frees) = turn.waited_at.take() {
                return Ok(Some(frees));
            }
        }
        match request {
            Some(request) => drop(self.perform(request, Call::Synchronize { frees })?),
            None => self.driver.synchronize()?,
        }
        Ok(Some(frees))
    }
}
