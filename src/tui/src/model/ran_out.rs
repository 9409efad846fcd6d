//! The last request of a publisher that failed, and whether the publisher has recovered.

use std::sync::Arc;

use gpumem_channel::{Event, EventKind};
use gpumem_text::units;

use super::Nanos;

/// The last request that failed on a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RanOut {
    /// When it failed. In the future if a publisher that ended had another clock.
    pub at: Nanos,
    /// Bytes it asked for.
    pub requested: u64,
    /// Its tag, if it has one.
    pub tag: Option<Arc<str>>,
    /// The name of the pool that it was made in, if that has one.
    pub pool: Option<Arc<str>>,
    /// Bytes that the device had free then; `None` if that was not reported. If the request would have fitted, something else
    /// refused it, such as a budget or the limit of a pool.
    pub device_free: Option<u64>,
    /// Bytes of the largest free block then; `None` if that is not known, or if free blocks can serve a request together.
    pub largest_free: Option<u64>,
    /// What would have helped, if that was reported: a text, and the bytes that belong to it (0 for none).
    pub advice: Option<(Arc<str>, u64)>,
    /// Whether a request at least as large has been served since.
    pub served: bool,
}

impl RanOut {
    /// Returns what would have helped, with its size, if that was reported.
    pub(crate) fn advised(&self) -> Option<String> {
        let (words, bytes) = self.advice.as_ref()?;
        if *bytes == 0 {
            return Some(words.to_string());
        }
        // Rounding up must not reach the size of the whole request.
        let over = self.requested.checked_sub(*bytes).map_or(u64::MAX, |left| left / 2);
        Some(format!("{words} {}", units::bytes_at_least(*bytes, over)))
    }

    /// Returns what is known after the next event of a channel. `strings` are the strings of the channel, and `largest_free` is
    /// the largest free block at that time.
    pub(crate) fn after(
        known: Option<RanOut>,
        event: &Event,
        strings: &[Arc<str>],
        largest_free: Option<u64>,
    ) -> Option<RanOut> {
        let name = |id: u32| strings.get(id as usize).filter(|name| !name.is_empty()).cloned();
        match event.kind {
            EventKind::OutOfMemory => Some(RanOut {
                at: event.time,
                requested: event.requested,
                tag: name(event.tag.0),
                pool: name(event.segment),
                device_free: (event.addr > 0).then_some(event.addr),
                // A block that fits was freed since, as PyTorch's are when its error is handled.
                largest_free: largest_free.filter(|largest| *largest < event.requested),
                advice: None,
                served: false,
            }),
            EventKind::Advice => known.map(|ran_out| RanOut {
                advice: name(event.tag.0).map(|words| (words, event.size)),
                ..ran_out
            }),
            EventKind::Alloc => known.map(|ran_out| RanOut {
                // A history is read late, so what comes after may have been before.
                served: ran_out.served || (event.requested >= ran_out.requested && event.time >= ran_out.at),
                ..ran_out
            }),
            _ => known,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use gpumem_channel::StringId;

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
    fn failure_is_over_once_as_much_was_served() {
        use EventKind::{Alloc, Free, OutOfMemory};
        let after = |events: &[Event]| {
            events
                .iter()
                .fold(None, |known, event| RanOut::after(known, event, &[], Some(300)))
        };
        assert_eq!(after(&[event(1, Alloc, 500), event(2, Free, 500)]), None);
        let failed = [event(1, Alloc, 500), event(2, OutOfMemory, 500), event(3, Alloc, 499)];
        let known = after(&failed).unwrap();
        assert_eq!((known.at, known.requested, known.served), (2, 500, false));
        assert_eq!(known.largest_free, Some(300));
        let earlier = [&failed[..], &[event(1, Alloc, 500)]].concat();
        assert!(!after(&earlier).unwrap().served, "it is told late");
        let served = [&failed[..], &[event(4, Alloc, 500), event(5, Alloc, 1)]].concat();
        assert!(after(&served).unwrap().served);
        let again = [&served[..], &[event(6, OutOfMemory, 900)]].concat();
        let known = after(&again).unwrap();
        assert_eq!((known.at, known.requested, known.served), (6, 900, false));
        assert_eq!(known.device_free, None, "not reported");
        let addr = 400;
        let reported = Event {
            addr,
            ..event(7, OutOfMemory, 900)
        };
        assert_eq!(after(&[reported]).unwrap().device_free, Some(addr));
    }

    #[test]
    fn advice_is_kept_until_the_next_request_fails() {
        let strings: [Arc<str>; 2] = ["", "raise the budget by"].map(Arc::from);
        let failed = RanOut::after(None, &event(1, EventKind::OutOfMemory, 500), &strings, None);
        let advice = |tag| Event {
            size: 300,
            tag: StringId(tag),
            ..event(2, EventKind::Advice, 500)
        };
        let helped = RanOut::after(failed.clone(), &advice(1), &strings, None).unwrap();
        assert_eq!(helped.advice, Some((strings[1].clone(), 300)));
        assert_eq!((helped.at, helped.requested), (1, 500));
        let no_words = RanOut::after(failed, &advice(2), &strings, None).unwrap();
        assert_eq!(no_words.advice, None);
        let again = RanOut::after(Some(helped), &event(3, EventKind::OutOfMemory, 900), &strings, None);
        assert_eq!(again.unwrap().advice, None);
        assert_eq!(RanOut::after(None, &advice(1), &strings, None), None);
    }

    #[test]
    fn tag_and_pool_of_the_request_are_known() {
        let strings: [Arc<str>; 3] = ["", "optimizer", "tenant"].map(Arc::from);
        let names = |tag, segment| {
            let event = Event {
                tag: StringId(tag),
                segment,
                ..event(1, EventKind::OutOfMemory, 500)
            };
            let known = RanOut::after(None, &event, &strings, None).unwrap();
            (known.tag, known.pool)
        };
        assert_eq!(names(1, 2), (Some(strings[1].clone()), Some(strings[2].clone())));
        assert_eq!(names(0, 0), (None, None), "it has none");
        assert_eq!(
            names(3, u32::MAX),
            (None, None),
            "not known, or not reported by the publisher"
        );
    }
}
