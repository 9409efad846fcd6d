//! The last request of a publisher that failed, and whether it has recovered.

use gpumem_channel::{Event, EventKind};

use super::Nanos;

/// The last request that failed on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RanOut {
    /// When.
    pub at: Nanos,
    /// Bytes it asked for.
    pub requested: u64,
    /// Bytes that the device had free then; `None` where that was not told. As much as was asked for: something else refused it, a budget
    /// or a pool's.
    pub device_free: Option<u64>,
    /// Bytes of the largest free block then; `None` when that was not seen, or says nothing because free blocks serve a request together.
    pub largest_free: Option<u64>,
    /// A request at least as large was served since.
    pub served: bool,
}

impl RanOut {
    /// What is known after an event, when the largest free block is `largest_free`. Events come in order.
    pub fn after(known: Option<RanOut>, event: &Event, largest_free: Option<u64>) -> Option<RanOut> {
        match event.kind {
            EventKind::OutOfMemory => Some(RanOut {
                at: event.time,
                requested: event.requested,
                device_free: (event.addr > 0).then_some(event.addr),
                largest_free,
                served: false,
            }),
            EventKind::Alloc => known.map(|ran_out| RanOut {
                served: ran_out.served || event.requested >= ran_out.requested,
                ..ran_out
            }),
            _ => known,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn event(time: Nanos, kind: EventKind, requested: u64) -> Event {
        Event {
            time,
            kind,
            requested,
            ..Event::default()
        }
    }

    #[test]
    fn is_over_once_as_much_was_served() {
        use EventKind::{Alloc, Free, OutOfMemory};
        let after = |events: &[Event]| {
            events
                .iter()
                .fold(None, |known, event| RanOut::after(known, event, Some(300)))
        };
        assert_eq!(after(&[event(1, Alloc, 500), event(2, Free, 500)]), None);
        let failed = [event(1, Alloc, 500), event(2, OutOfMemory, 500), event(3, Alloc, 499)];
        let known = after(&failed).unwrap();
        assert_eq!((known.at, known.requested, known.served), (2, 500, false));
        assert_eq!(known.largest_free, Some(300));
        let served = [&failed[..], &[event(4, Alloc, 500), event(5, Alloc, 1)]].concat();
        assert!(after(&served).unwrap().served);
        let again = [&served[..], &[event(6, OutOfMemory, 900)]].concat();
        let known = after(&again).unwrap();
        assert_eq!((known.at, known.requested, known.served), (6, 900, false));
        assert_eq!(known.device_free, None, "not told");
        let addr = 400;
        let told = Event {
            addr,
            ..event(7, OutOfMemory, 900)
        };
        assert_eq!(after(&[told]).unwrap().device_free, Some(addr));
    }
}
