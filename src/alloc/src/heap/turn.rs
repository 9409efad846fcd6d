//! Driver calls of requests without the heap's lock.
//!
//! A request that needs the driver (new memory, a mapping, a wait for the device) is [suspended](Suspended) when it comes to
//! such a call: its thread lets go of the heap and makes the call. What that gave becomes part of the heap, as free memory or as a view, and
//! the request goes on from where [`Heap::allocate_slow`] begins, or where it went before if that is what it asked about. Meanwhile others use the heap: what they changed is seen, because
//! everything is looked at again. One thread at a time makes the calls that take long: it has the *turn*, which comes before the heap's lock.
//! Operations that are no requests have it, too, but go on where they were (`access`). Who only asks something does not need it.

pub(super) mod access;
pub(super) mod call;
pub(super) mod perform;

use std::collections::HashSet;
use std::sync::Arc;

use super::allocate::Request;
use super::arena::COMMON;
use super::layout::Placement;
use super::release::going::Going;
use super::{Grant, Heap};
use crate::device::{Driver, MemoryInfo};
use crate::error::{DeviceError, Error};
use crate::stack::Stack;
use crate::stream::Stream;
use crate::tag::Tag;
use access::Access;
use call::{Ask, Call, Gave};

/// Calls of one request after which it goes on under the heap's lock: others keep taking what it calls for.
const MOST: usize = 64;

/// What a request does that needs the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Calls {
    /// It calls it, under the heap's lock.
    #[default]
    Here,
    /// It is suspended.
    Suspends,
    /// It comes back once it is known what it [wonders](super::ask::wonder).
    Wonders,
}

/// The calls that were made for one request.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Those that failed, and would again.
    pub(super) failed: Vec<(Call, DeviceError)>,
    /// What the driver did not take back, by its key.
    refused: HashSet<(u8, u64)>,
    /// The call to be made next, and for what.
    pub(super) wanted: Option<(Call, Request)>,
    /// The request that is to go on then, which may be another one: a pool's overflows.
    resumed: Option<Request>,
    /// Where that went before, if it is to go there.
    pub(super) before: Option<Placement>,
    /// Who asked, for the history: the stack that it goes on with is another one.
    caller: Stack,
    /// The device was just waited for, and what that tells is known.
    waited: bool,
    /// That was done because nothing else helped.
    settled: bool,
    /// What was asked since the last of these calls: which pending blocks are free, and how far streams are.
    pub(super) polled: bool,
    pub(super) probed: Vec<u16>,
    /// What the device said it has, for the report.
    pub(super) memory: Option<MemoryInfo>,
    /// Something was given back, so there is more memory to be had.
    made_room: bool,
    /// The free counter when it was suspended first, and whether it began anew for what was given back since.
    frees: Option<u64>,
    anew: bool,
    calls: usize,
}

/// A request that waits for a driver call.
#[derive(Debug)]
pub(crate) struct Suspended {
    call: Call,
    by: Request,
    progress: Box<Progress>,
    driver: Arc<dyn Driver>,
}

/// The same once the call was made.
#[derive(Debug)]
pub(crate) struct Made {
    call: Call,
    gave: Gave,
    result: Result<(), DeviceError>,
    by: Request,
    progress: Box<Progress>,
}

/// How far a request came.
#[derive(Debug)]
pub(crate) enum Attempt {
    Done(Result<Grant, Error>),
    /// Apart: most requests never are.
    Suspended(Box<Suspended>),
}

/// Not an error of the driver's: the request is suspended.
pub(super) fn suspended() -> DeviceError {
    DeviceError {
        call: "a driver call without the heap's lock",
        code: DeviceError::LATER,
        name: "not made yet".to_owned(),
    }
}

impl Progress {
    /// The lines that a request knows while it is suspended: its own, and that of its pool.
    fn lines(&self, by: &Request) -> impl Iterator<Item = u16> + use<> {
        let resumed = self.resumed.map(|request| request.stream);
        std::iter::once(by.stream).chain(resumed)
    }
}

impl Suspended {
    /// Whether the call is to be made by who has the turn.
    pub(crate) fn needs_turn(&self) -> bool {
        self.call.needs_turn()
    }

    /// Whether it is a question that is over at once, and after which nothing is refused.
    pub(crate) fn asks(&self) -> bool {
        matches!(self.call, Call::Ask(_))
    }

    /// What is given back until the request goes on is seen by it, and is no reason to begin anew later.
    pub(crate) fn forget_frees(&mut self) {
        (self.progress.frees, self.progress.polled) = (None, false);
        self.progress.probed.clear();
    }

    /// Makes the call. To be done by who does not hold the heap's lock, but goes `on`.
    pub(crate) fn run(self, on: &mut impl Access) -> Result<Made, Error> {
        let Suspended {
            mut call,
            by,
            progress,
            driver,
        } = self;
        if let Call::Ask(ask) = &call {
            ask.ask(on)?;
        }
        let (gave, result) = call.run(&*driver);
        Ok(Made {
            call,
            gave,
            result,
            by,
            progress,
        })
    }
}

impl Heap {
    /// [`allocate_in`](Heap::allocate_in) for who can let go of the heap while the driver is called.
    pub(crate) fn attempt(&mut self, arena: u16, requested: u64, stream: Stream, tag: Tag) -> Attempt {
        self.calls = Calls::Suspends;
        let result = self.allocate_in(arena, requested, stream, tag);
        self.conclude(result)
    }

    /// What a suspended call needs of the heap is its own now. To be called by who has the turn: nobody else is kept from it.
    pub(crate) fn begin_call(&mut self, suspended: &mut Suspended) {
        self.prepare(&mut suspended.call);
    }

    /// Goes on with a request whose call was made.
    pub(crate) fn resume(&mut self, made: Made) -> Attempt {
        let Made {
            call,
            gave,
            result,
            by,
            progress,
        } = made;
        self.come_back(&by, progress);
        // Nothing helped before that was asked for the report, but others may have given something back meanwhile.
        let fails = matches!(call, Call::Memory) && !self.begins_anew();
        let in_turn = call.needs_turn();
        match result {
            Ok(()) => self.keep(&by, &call, gave),
            Err(error) => {
                self.undo(&call, gave);
                if let Some(progress) = &mut self.progress {
                    progress.failed.push((call, error));
                }
            }
        }
        self.go_on(by, fails, in_turn)
    }

    /// A request is suspended no more.
    fn come_back(&mut self, by: &Request, progress: Box<Progress>) {
        for line in progress.lines(by) {
            if let Some(at) = self.suspended.iter().position(|known| *known == line) {
                self.suspended.swap_remove(at);
            }
        }
        self.progress = Some(progress);
    }

    /// Whether something was given back while the driver was called for the request that is being served: then all is tried once more.
    fn begins_anew(&mut self) -> bool {
        self.drain_all();
        let frees = self.frees;
        let Some(progress) = self.progress.as_mut().filter(|progress| !progress.anew) else {
            return false;
        };
        progress.anew = progress.frees.is_some_and(|before| before != frees);
        if progress.anew {
            (progress.settled, progress.polled, progress.made_room) = (false, false, false);
            progress.probed.clear();
            progress.memory = None;
        }
        progress.anew
    }

    /// The same where the call was not made, because another thread had the turn, or the [program was asked](Suspended::forget_frees) to give
    /// back first: what that did is looked at.
    pub(crate) fn resume_anew(&mut self, suspended: Suspended) -> Attempt {
        self.come_back(&suspended.by, suspended.progress);
        self.go_on(suspended.by, false, true)
    }

    /// `in_turn`: by who has the turn.
    fn go_on(&mut self, by: Request, fails: bool, in_turn: bool) -> Attempt {
        let progress = self.progress.get_or_insert_default();
        let request = progress.resumed.take().unwrap_or(by);
        // Who asks something has no turn yet, and must not call the driver for long.
        progress.calls += usize::from(in_turn);
        // Who cannot agree with the others goes on alone.
        let (alone, before, caller) = (progress.calls >= MOST, progress.before.take(), progress.caller);
        self.calls = if alone { Calls::Here } else { Calls::Suspends };
        if caller != Stack::NONE {
            self.attribute(caller);
        }
        let result = match (fails, before) {
            (true, _) => self.fail(&request),
            (false, None) => self.allocate_slow(&request),
            (false, before) => self.allocate_there(before, &request),
        };
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
        self.calls = Calls::Here;
        match self.progress.take() {
            None => Attempt::Done(result),
            Some(progress) => self.suspend(progress, result),
        }
    }

    #[cold]
    fn suspend(&mut self, mut progress: Box<Progress>, result: Result<Grant, Error>) -> Attempt {
        let Some((call, by)) = progress.wanted.take() else {
            return Attempt::Done(result);
        };
        self.suspended.extend(progress.lines(&by));
        progress.frees.get_or_insert(self.frees);
        progress.caller = self.outlet.recorder().map_or(Stack::NONE, |recorder| recorder.caller);
        Attempt::Suspended(Box::new(Suspended {
            call,
            by,
            progress,
            driver: Arc::clone(&self.driver),
        }))
    }

    /// Notes which request is suspended, if it is.
    pub(super) fn note_suspended(&mut self, request: &Request) {
        if let Some(progress) = self.progress.as_mut().filter(|progress| progress.wanted.is_some()) {
            progress.resumed = Some(*request);
        }
    }

    /// Whether the request is suspended for a call after which it is not refused yet. What that call is about was chosen, and must stay as
    /// it is until the call [begins](Heap::begin_call).
    pub(super) fn is_to_go_on(&self) -> bool {
        let wanted = self.progress.as_ref().and_then(|progress| progress.wanted.as_ref());
        wanted.is_some_and(|(call, _)| !matches!(call, Call::Memory))
    }

    /// That was asked for the request that is being served.
    pub(super) fn note_asked(&mut self, ask: &Ask) {
        if let Some(progress) = &mut self.progress {
            match ask {
                Ask::Poll => progress.polled = true,
                Ask::Probe(lines) => progress.probed.extend(lines),
            }
        }
    }

    pub(super) fn note_memory(&mut self, memory: MemoryInfo) {
        if let Some(progress) = &mut self.progress {
            progress.memory = Some(memory);
        }
    }

    /// Whether the device was waited for already, for the request that is being served.
    pub(super) fn is_settled(&self) -> bool {
        self.progress.as_ref().is_some_and(|progress| progress.settled)
    }

    /// Whether something was given back for the request that is being served.
    pub(super) fn has_made_room(&self) -> bool {
        self.progress.as_ref().is_some_and(|progress| progress.made_room)
    }

    /// Whether the driver did not take that back when it was tried for the request that is being served.
    pub(super) fn was_refused(&self, going: &Going) -> bool {
        self.progress
            .as_ref()
            .is_some_and(|progress| progress.refused.contains(&going.key()))
    }

    /// Something was given back for that request.
    pub(super) fn note_gone(&mut self, refused: impl Iterator<Item = (u8, u64)>) {
        if let Some(progress) = &mut self.progress {
            progress.made_room = true;
            progress.refused.extend(refused);
        }
    }

    /// The device was waited for, and what that tells is known.
    pub(super) fn note_waited(&mut self) {
        if let Some(progress) = &mut self.progress {
            progress.waited = true;
        }
    }

    /// Whether that was so a moment ago. To be asked once.
    pub(super) fn has_waited(&mut self) -> bool {
        let progress = self.progress.as_mut();
        progress.is_some_and(|progress| std::mem::take(&mut progress.waited))
    }

    pub(super) fn note_settled(&mut self) {
        if let Some(progress) = &mut self.progress {
            progress.settled = true;
        }
        self.forget_failures();
    }

    /// There is more memory to be had than when calls failed.
    pub(super) fn forget_failures(&mut self) {
        if let Some(progress) = &mut self.progress {
            progress.failed.clear();
        }
    }
}
