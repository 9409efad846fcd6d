//! A model of the allocator that follows the events of a channel: which blocks are held, and the figures that result.

use std::collections::BTreeMap;

use gpumem_channel::{DeviceStats, Event, EventKind, PoolId, PoolStats, StringId};

use crate::workload::{stream_of, tag_of, waits};

/// A block that the program holds or has held.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// The event that handed it out.
    pub(crate) born: Event,
    /// The event with which the program freed it.
    pub(crate) freed: Option<When>,
    /// The event after which no stream uses it any more.
    pub(crate) gone: Option<When>,
}

/// An event: its ring, and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct When(Ring, u64);

impl When {
    pub(crate) fn of(event: &Event) -> When {
        When(event.lane, event.index)
    }
}

/// Number of events in each ring.
pub(crate) struct Heads(BTreeMap<Ring, u64>);

impl Heads {
    /// Returns whether an event is no longer the last of its ring.
    pub(crate) fn is_over(&self, When(ring, index): When) -> bool {
        self.0.get(&ring).is_some_and(|head| index + 1 < *head)
    }
}

/// The counters at some moment, without those operations that may still be in progress.
pub(crate) struct Before(Counters);

impl Held {
    fn end(&self) -> u64 {
        self.born.addr + self.born.size
    }
}

/// A writer's ring: the publisher's own, or a lane's.
type Ring = Option<u8>;

/// Counters that only grow: what was allocated, what was freed, and the events of each kind, for the small pool, the large pool, and
/// neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters([u64; 22]);

impl Counters {
    fn of(stats: &DeviceStats) -> Counters {
        let pool = |pool: &PoolStats| {
            [
                pool.allocation.allocated,
                pool.requested_bytes.allocated,
                pool.allocated_bytes.allocated,
                pool.allocation.freed(),
                pool.allocated_bytes.freed(),
                pool.active.freed(),
                pool.active_bytes.freed(),
                pool.requested_bytes.freed(),
                pool.reserved_bytes.allocated,
                pool.reserved_bytes.freed(),
            ]
        };
        let mut counters = [0; 22];
        counters[..10].copy_from_slice(&pool(&stats.small));
        counters[10..20].copy_from_slice(&pool(&stats.large));
        counters[20..].copy_from_slice(&[stats.num_ooms, stats.num_alloc_retries]);
        Counters(counters)
    }

    fn add(&mut self, other: &Counters) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, n)| *sum += n);
    }

    fn raise(&mut self, other: &Counters) {
        self.0
            .iter_mut()
            .zip(other.0)
            .for_each(|(most, n)| *most = n.max(*most));
    }
}

/// Returns what an event adds to the counters.
fn done_by(event: &Event) -> Counters {
    let mut counters = [0; 22];
    let pool = &mut counters[if event.pool == PoolId::SMALL { 0 } else { 10 }..][..10];
    let gone = [1, event.size, event.requested];
    match event.kind {
        EventKind::Alloc => pool[..3].copy_from_slice(&[1, event.requested, event.size]),
        EventKind::Free => {
            pool[3..5].copy_from_slice(&[1, event.size]);
            if !waits(event.requested) {
                pool[5..8].copy_from_slice(&gone);
            }
        }
        EventKind::FreeCompleted => pool[5..8].copy_from_slice(&gone),
        EventKind::SegmentAlloc | EventKind::SegmentMap => pool[8] = event.size,
        EventKind::SegmentFree | EventKind::SegmentUnmap => pool[9] = event.size,
        EventKind::OutOfMemory => counters[20] = 1,
        EventKind::Retry => counters[21] = 1,
        EventKind::CacheRelease | EventKind::Remap | EventKind::Mark | EventKind::Advice => {}
        EventKind::Unknown(_) => panic!("{event:?}"),
    }
    Counters(counters)
}

/// Returns whether a writer publishes its figures before the event that follows an event of this kind.
fn is_published(kind: EventKind) -> bool {
    use EventKind::*;
    matches!(
        kind,
        Alloc | Free | FreeCompleted | SegmentAlloc | SegmentMap | OutOfMemory
    )
}

/// What the events of a ring said so far.
#[derive(Default)]
struct Said {
    head: u64,
    time: u64,
    last: Option<EventKind>,
    /// What its last events added that the figures need not show yet.
    late: Counters,
}

/// The state that the events so far describe.
#[derive(Default)]
pub(crate) struct Model {
    /// Number of events so far.
    pub(crate) head: u64,
    /// Blocks that are held, or freed but still used by a stream, by address.
    active: BTreeMap<u64, Held>,
    /// Blocks that came free recently.
    past: Vec<Held>,
    rings: BTreeMap<Ring, Said>,
    counters: Counters,
    /// The most that one event added to each counter.
    most: Counters,
    /// The last figures that the reader showed.
    shown: Counters,
    tags: BTreeMap<&'static str, StringId>,
    pub(crate) last: BTreeMap<Ring, Event>,
}

impl Model {
    /// Takes the next event.
    pub(crate) fn take(&mut self, event: &Event) {
        let said = self.rings.entry(event.lane).or_default();
        assert_eq!(event.index, said.head, "an event is missing");
        assert!(said.time <= event.time, "time went back");
        said.time = event.time;
        if said.last.is_some_and(is_published) {
            said.late = Counters::default();
        }
        let done = done_by(event);
        said.late.add(&done);
        (said.head, said.last) = (said.head + 1, Some(event.kind));
        self.counters.add(&done);
        self.most.raise(&done);
        if event.kind == EventKind::Alloc {
            // A block that is passed from a lane to the heap is not counted for a moment, as if it were freed.
            for kind in [EventKind::Free, EventKind::FreeCompleted] {
                self.most.raise(&done_by(&Event { kind, ..*event }));
            }
        }
        match event.kind {
            EventKind::Alloc => self.handed_out(event),
            EventKind::Free => self.given_back(event),
            EventKind::FreeCompleted => {
                let held = &self.active[&event.addr];
                assert!(
                    held.freed.is_some() && waits(held.born.requested),
                    "{event:?} after {held:?}"
                );
                self.came_free(event);
            }
            _ => {}
        }
        self.head += 1;
        self.last.insert(event.lane, *event);
    }

    /// Returns the number of events in each ring so far.
    pub(crate) fn heads(&self) -> Heads {
        Heads(self.rings.iter().map(|(ring, said)| (*ring, said.head)).collect())
    }

    fn handed_out(&mut self, event: &Event) {
        assert!(
            event.requested > 0 && event.requested <= event.size && event.size.is_multiple_of(512),
            "{event:?}"
        );
        assert_eq!(event.stream, stream_of(event.requested), "a torn event: {event:?}");
        let tag = *self.tags.entry(tag_of(event.requested)).or_insert(event.tag);
        assert_eq!(event.tag, tag, "a torn event: {event:?}");
        let below = self.active.range(..event.addr + event.size).next_back();
        assert!(
            below.is_none_or(|(_, held)| held.end() <= event.addr),
            "{event:?} overlaps {below:?}"
        );
        let (born, freed, gone) = (*event, None, None);
        self.active.insert(event.addr, Held { born, freed, gone });
    }

    fn given_back(&mut self, event: &Event) {
        let held = self
            .active
            .get_mut(&event.addr)
            .unwrap_or_else(|| panic!("nobody holds {event:?}"));
        assert_eq!(held.freed, None, "freed twice: {event:?}");
        let same = |event: &Event| {
            (
                event.size,
                event.requested,
                event.stream,
                event.tag,
                event.segment,
                event.pool,
            )
        };
        assert_eq!(
            same(event),
            same(&held.born),
            "the freed block is not the one that was handed out"
        );
        held.freed = Some(When::of(event));
        if !waits(event.requested) {
            self.came_free(event);
        }
    }

    fn came_free(&mut self, event: &Event) {
        let mut held = self.active.remove(&event.addr).unwrap();
        held.gone = Some(When::of(event));
        self.past.push(held);
    }

    /// Checks the figures that a reader showed. They may lack what the last event of each ring added to the state `before` the read, and
    /// nothing else. They have nothing that the events did not say by now. A block that is being passed from a lane to the heap may be
    /// counted in one of them, in both or in neither, so the figures may differ by one operation.
    pub(crate) fn assert_figures(&mut self, shown: &DeviceStats, before: &Before) {
        let shown = Counters::of(shown);
        for (at, n) in shown.0.into_iter().enumerate() {
            let (least, most, one) = (before.0.0[at], self.counters.0[at], self.most.0[at]);
            assert!(
                n + one >= least && n <= most + one,
                "impossible figures after {} events: number {at} is {n}, not between {least} and {most}",
                self.head
            );
            assert!(n + one >= self.shown.0[at], "figures went back");
        }
        self.shown = shown;
    }

    /// Returns what every read that begins now must show at least.
    pub(crate) fn before(&self) -> Before {
        let mut least = self.counters;
        for said in self.rings.values() {
            least.0.iter_mut().zip(said.late.0).for_each(|(n, late)| *n -= late);
        }
        Before(least)
    }

    /// Returns every block that a read that began after these events may show as in use.
    pub(crate) fn in_use_since<'a>(&'a self, before: &'a Heads) -> impl Iterator<Item = &'a Held> {
        // The operation of an event is complete once its ring has another event.
        let lately = move |held: &&Held| held.gone.is_some_and(|when| !before.is_over(when));
        self.active.values().chain(self.past.iter().filter(lately))
    }

    /// Forgets the blocks that no later read can show.
    pub(crate) fn looked(&mut self) {
        let heads = self.heads();
        self.past
            .retain(|held| held.gone.is_some_and(|when| !heads.is_over(when)));
    }

    /// Returns the bytes taken from the driver after the last event.
    pub(crate) fn reserved(&self) -> u64 {
        let Counters(n) = self.counters;
        n[8] + n[18] - n[9] - n[19]
    }
}
