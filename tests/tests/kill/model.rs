//! What the events of a channel say there is: which blocks are held and which figures that makes.

use std::collections::BTreeMap;

use gpumem_channel::{DeviceStats, Event, EventKind, PoolId, PoolStats, StringId};

use crate::workload::{stream_of, tag_of, waits};

/// A block that the program holds or held.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// The event that handed it out.
    pub(crate) born: Event,
    /// The event by which the program gave it back.
    pub(crate) freed: Option<When>,
    /// The event since which nothing uses it any more.
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

/// Numbers of events by ring.
pub(crate) struct Heads(BTreeMap<Ring, u64>);

impl Heads {
    /// Whether an event is not the last of its ring any more.
    pub(crate) fn is_over(&self, When(ring, index): When) -> bool {
        self.0.get(&ring).is_some_and(|head| index + 1 < *head)
    }
}

/// What the events of a moment said, but for what may still be under way.
pub(crate) struct Before(Counters);

impl Held {
    fn end(&self) -> u64 {
        self.born.addr + self.born.size
    }
}

/// A writer's ring: the publisher's own, or a lane's.
type Ring = Option<u8>;

/// Counters that only grow, of the small pool, of the large one, and of neither: what came, what went, and what events there were.
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

/// What an event does to them.
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

/// Whether a writer tells its figures before the event that follows this one.
fn told(kind: EventKind) -> bool {
    use EventKind::*;
    matches!(
        kind,
        Alloc | Free | FreeCompleted | SegmentAlloc | SegmentMap | OutOfMemory
    )
}

/// What a ring said so far.
#[derive(Default)]
struct Said {
    head: u64,
    time: u64,
    last: Option<EventKind>,
    /// What its last events did that the figures need not show yet.
    late: Counters,
}

/// The state that the events so far describe.
#[derive(Default)]
pub(crate) struct Model {
    /// Events seen.
    pub(crate) head: u64,
    /// Blocks that are held or wait, by address.
    active: BTreeMap<u64, Held>,
    /// Blocks that came free lately.
    past: Vec<Held>,
    rings: BTreeMap<Ring, Said>,
    counters: Counters,
    /// The most that one event did.
    most: Counters,
    /// The figures that were shown last.
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
        if said.last.is_some_and(told) {
            said.late = Counters::default();
        }
        let done = done_by(event);
        said.late.add(&done);
        (said.head, said.last) = (said.head + 1, Some(event.kind));
        self.counters.add(&done);
        self.most.raise(&done);
        if event.kind == EventKind::Alloc {
            // What is handed over is not counted for a moment, as if it were given back.
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

    /// Events of every ring so far.
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
            "another block was freed than was handed out"
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

    /// What was shown as the figures may lack what each ring's last event says, and no more, of what the events said `before` the look;
    /// it has nothing that they did not say by now. What is handed from a lane to the heap may be shown with one or with the other, twice
    /// or not at all, for as long as that takes: one operation.
    pub(crate) fn assert_figures(&mut self, shown: &DeviceStats, before: &Before) {
        let shown = Counters::of(shown);
        for (at, n) in shown.0.into_iter().enumerate() {
            let (least, most, one) = (before.0.0[at], self.counters.0[at], self.most.0[at]);
            assert!(
                n + one >= least && n <= most + one,
                "figures that never were, after {} events: number {at} is {n}, of {least} to {most}",
                self.head
            );
            assert!(n + one >= self.shown.0[at], "figures went back");
        }
        self.shown = shown;
    }

    /// What every look that begins now must show.
    pub(crate) fn before(&self) -> Before {
        let mut least = self.counters;
        for said in self.rings.values() {
            least.0.iter_mut().zip(said.late.0).for_each(|(n, late)| *n -= late);
        }
        Before(least)
    }

    /// Every block that may be shown as in use by a look that began after these events.
    pub(crate) fn in_use_since<'a>(&'a self, before: &'a Heads) -> impl Iterator<Item = &'a Held> {
        // What an event says was done is done once its ring has another.
        let lately = move |held: &&Held| held.gone.is_some_and(|when| !before.is_over(when));
        self.active.values().chain(self.past.iter().filter(lately))
    }

    /// Forgets what no later look can show.
    pub(crate) fn looked(&mut self) {
        let heads = self.heads();
        self.past
            .retain(|held| held.gone.is_some_and(|when| !heads.is_over(when)));
    }

    /// Bytes taken from the driver, after the last event.
    pub(crate) fn reserved(&self) -> u64 {
        let Counters(n) = self.counters;
        n[8] + n[18] - n[9] - n[19]
    }
}
