//! What is left to be done when the heap's lock is let go of: the driver calls that a free needs, which may wait for those of others.

use crate::error::Error;
use crate::heap::Heap;
use crate::heap::ask::asking::Asking;
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
    /// Arenas whose pools are gone and of which nothing is held, to be given back.
    closing: Vec<u16>,
}

/// Records events, and looks what is done. Arenas to be given back by who has the turn.
pub(crate) fn run_errands(on: &mut impl Access, errands: Box<Errands>) -> Result<Vec<u16>, Error> {
    let (mut left, mut closing) = (Some(errands), Vec::new());
    while let Some(errands) = left.take() {
        closing.extend(errands.closing);
        for (event, asking) in errands.events {
            event.record();
            drop(asking);
        }
        if errands.polls {
            poll(on)?;
            left = on.heap(Heap::take_errands)?;
        }
    }
    Ok(closing)
}

impl Heap {
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

    pub(in crate::heap) fn leave_closing(&mut self, arena: u16) {
        self.errands.closing.push(arena);
        self.due = true;
    }
}
