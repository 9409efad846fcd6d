//! What is left to be done when the heap's lock is let go of: the driver calls that a free needs, which may wait for those of others.

use crate::error::Error;
use crate::heap::Heap;
use crate::heap::ask::asking::Asking;
use crate::heap::ask::early::ask_early;
use crate::heap::ask::event::Event;
use crate::heap::ask::poll;
use crate::heap::turn::access::Access;

/// To be [run](run_errands) before the program goes on: a stream may be destroyed then that an event is to be recorded on.
#[derive(Debug, Default)]
pub(crate) struct Errands {
    /// Events that blocks wait for, to be recorded.
    events: Vec<(Event, Asking)>,
    /// Whether it is to be looked which of those that were recorded before are done.
    polls: bool,
    /// Streams that are to be [asked early](crate::heap::ask::early) how far they are.
    pub(super) early: Vec<u16>,
    /// Whether there is something [to be given back](Heap::take_closing).
    closes: bool,
}

/// Records events, and looks what is done. Whether there is something to be given back by who has the turn.
pub(crate) fn run_errands(on: &mut impl Access, errands: Box<Errands>) -> Result<bool, Error> {
    let (mut left, mut closes) = (Some(errands), false);
    while let Some(errands) = left.take() {
        closes |= errands.closes;
        let asks = errands.polls || !errands.early.is_empty();
        for (event, asking) in errands.events {
            event.record();
            drop(asking);
        }
        if !errands.early.is_empty() {
            ask_early(on, errands.early)?;
        }
        if errands.polls {
            poll(on)?;
        }
        if asks {
            left = on.heap(Heap::take_errands)?;
        }
    }
    Ok(closes)
}

impl Heap {
    /// Whether there are errands.
    #[inline(always)]
    pub(crate) fn has_errands(&self) -> bool {
        self.due
    }

    /// The errands, of whoever runs them.
    #[inline(always)]
    pub(crate) fn take_errands(&mut self) -> Option<Box<Errands>> {
        if self.due { Some(self.take_them()) } else { None }
    }

    #[cold]
    #[inline(never)]
    fn take_them(&mut self) -> Box<Errands> {
        self.due = false;
        Box::new(std::mem::take(&mut self.errands))
    }

    /// An event on a stream that is to be recorded.
    pub(in crate::heap) fn leave_event(&mut self, line: u16) -> Event {
        let stream = self.streams.name(line);
        let event = Event::new(&self.driver, stream);
        let asking = self.asked.begin(Some(stream));
        self.errands.events.push((event.clone(), asking));
        self.due = true;
        event
    }

    pub(in crate::heap) fn leave_poll(&mut self) {
        self.errands.polls = true;
        self.due = true;
    }

    /// A stream is to be asked early.
    pub(in crate::heap) fn leave_early(&mut self, line: u16) {
        if !self.errands.early.contains(&line) {
            self.errands.early.push(line);
        }
        self.due = true;
    }

    /// What is free of an arena whose pool is gone is to be given back. Who leaves that looks whether it is its turn; else who has that does
    /// it at its end.
    pub(in crate::heap) fn leave_closing(&mut self, arena: u16) {
        if !self.closing.contains(&arena) {
            self.closing.push(arena);
        }
        self.errands.closes = true;
        self.due = true;
    }

    /// Whether there are such.
    pub(crate) fn has_closing(&self) -> bool {
        !self.closing.is_empty()
    }

    /// All of them, for who has the turn.
    pub(crate) fn take_closing(&mut self) -> Vec<u16> {
        let Errands {
            events,
            polls,
            early,
            closes,
        } = &mut self.errands;
        *closes = false;
        // Nobody else is to come for it.
        self.due = *polls || !events.is_empty() || !early.is_empty();
        std::mem::take(&mut self.closing)
    }
}
