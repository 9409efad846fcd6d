//! What the events of a channel say there is: which blocks are held and which figures that makes.

use std::collections::{BTreeMap, VecDeque};

use gpumem_channel::{DeviceStats, Event, EventKind, PoolId, PoolStats, Stat, StringId};

use crate::workload::{stream_of, tag_of, waits};

/// A block that the program holds or held.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// The event that handed it out; its index is when.
    pub(crate) born: Event,
    /// Index of the event by which the program gave it back.
    pub(crate) freed: Option<u64>,
    /// Index of the event since which nothing uses it any more.
    pub(crate) gone: Option<u64>,
}

impl Held {
    fn end(&self) -> u64 {
        self.born.addr + self.born.size
    }
}

/// The figures after an event.
#[derive(Clone, Debug)]
struct Figures {
    stats: DeviceStats,
    /// Whether the publisher tells its figures before the event that follows this one.
    told: bool,
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
    stats: DeviceStats,
    /// The figures after every event since the ones that were shown last, and the number of events before the first of them.
    history: VecDeque<Figures>,
    shown: u64,
    tags: BTreeMap<&'static str, StringId>,
    pub(crate) last: Option<Event>,
}

impl Model {
    pub(crate) fn new() -> Model {
        let start = Figures {
            stats: DeviceStats::default(),
            told: true,
        };
        Model {
            history: [start].into(),
            ..Model::default()
        }
    }

    /// Takes the next event.
    pub(crate) fn take(&mut self, event: &Event) {
        assert_eq!(event.index, self.head, "an event is missing");
        if let Some(last) = &self.last {
            assert!(last.time <= event.time, "time went back");
        }
        use EventKind::*;
        match event.kind {
            Alloc => self.handed_out(event),
            Free => self.given_back(event),
            FreeCompleted => {
                let held = &self.active[&event.addr];
                assert!(
                    held.freed.is_some() && waits(held.born.requested),
                    "{event:?} after {held:?}"
                );
                self.came_free(event);
            }
            SegmentAlloc | SegmentMap => pool(&mut self.stats, event.pool).reserved_bytes.add(event.size),
            SegmentFree | SegmentUnmap => pool(&mut self.stats, event.pool).reserved_bytes.sub(event.size),
            OutOfMemory => self.stats.num_ooms += 1,
            Retry => self.stats.num_alloc_retries += 1,
            CacheRelease | Remap | Mark => {}
            Unknown(_) => panic!("{event:?}"),
        }
        note_peaks(&mut self.stats);
        self.history.push_back(Figures {
            stats: self.stats,
            told: matches!(
                event.kind,
                Alloc | Free | FreeCompleted | SegmentAlloc | SegmentMap | OutOfMemory
            ),
        });
        self.head += 1;
        self.last = Some(*event);
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
        let pool = pool(&mut self.stats, event.pool);
        for (figure, n) in [
            (&mut pool.allocation, 1),
            (&mut pool.active, 1),
            (&mut pool.requested_bytes, event.requested),
            (&mut pool.allocated_bytes, event.size),
            (&mut pool.active_bytes, event.size),
        ] {
            figure.add(n);
        }
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
        held.freed = Some(event.index);
        let pool = pool(&mut self.stats, event.pool);
        pool.allocation.sub(1);
        pool.allocated_bytes.sub(event.size);
        if !waits(event.requested) {
            self.came_free(event);
        }
    }

    fn came_free(&mut self, event: &Event) {
        let mut held = self.active.remove(&event.addr).unwrap();
        held.gone = Some(event.index);
        let pool = pool(&mut self.stats, event.pool);
        pool.active.sub(1);
        pool.active_bytes.sub(held.born.size);
        pool.requested_bytes.sub(held.born.requested);
        self.past.push(held);
    }

    /// What was shown as the figures must be the figures after some event, no earlier one than was shown before. Of a dead
    /// publisher: after the last but for the operation that its end interrupted.
    pub(crate) fn assert_figures(&mut self, shown: &DeviceStats, dead: bool) {
        let shown = told(shown);
        let matching = |(_, figures): &(usize, &Figures)| figures.stats == shown;
        let mut candidates = self.history.iter().enumerate();
        let found = if dead {
            candidates.rfind(matching)
        } else {
            candidates.find(matching)
        };
        let Some((at, _)) = found else {
            let newest = &self.stats;
            panic!(
                "figures that never were, after {} events:\n{shown:?}\nnewest:\n{newest:?}",
                self.head
            );
        };
        if dead {
            let behind = self.history.iter().skip(at + 1).filter(|figures| figures.told).count();
            assert!(behind <= 1, "the figures of a dead program are {behind} operations old");
        }
        self.history.drain(..at);
        self.shown += at as u64;
        assert_eq!(self.shown + self.history.len() as u64, self.head + 1);
    }

    /// Every block that may be shown as in use by a look that began after `before` events.
    pub(crate) fn in_use_since(&self, before: u64) -> impl Iterator<Item = &Held> {
        // What event n says was done is done once event n + 1 is there.
        let lately = move |held: &&Held| held.gone.is_some_and(|n| n + 1 >= before);
        self.active.values().chain(self.past.iter().filter(lately))
    }

    /// Forgets what no later look can show.
    pub(crate) fn looked(&mut self) {
        let head = self.head;
        self.past.retain(|held| held.gone.is_some_and(|n| n + 1 >= head));
    }

    /// Bytes taken from the driver, after the last event.
    pub(crate) fn reserved(&self) -> u64 {
        self.stats.small.reserved_bytes.current + self.stats.large.reserved_bytes.current
    }
}

fn pool(stats: &mut DeviceStats, pool: PoolId) -> &mut PoolStats {
    match pool {
        PoolId::SMALL => &mut stats.small,
        PoolId::LARGE => &mut stats.large,
        other => panic!("{other:?}"),
    }
}

/// The peaks of both pools together, where events tell them.
fn note_peaks(stats: &mut DeviceStats) {
    let (small, large) = (&stats.small, &stats.large);
    let both = |figure: fn(&PoolStats) -> &Stat| figure(small).current + figure(large).current;
    let now = [
        both(|p| &p.allocation),
        both(|p| &p.active),
        both(|p| &p.requested_bytes),
        both(|p| &p.allocated_bytes),
        both(|p| &p.active_bytes),
        0,
        both(|p| &p.reserved_bytes),
        0,
        0,
    ];
    for (peak, now) in stats.all_peaks.iter_mut().zip(now) {
        *peak = now.max(*peak);
    }
}

/// The figures without those that events do not tell.
fn told(stats: &DeviceStats) -> DeviceStats {
    let mut told = *stats;
    for pool in [&mut told.small, &mut told.large] {
        pool.segment = Stat::default();
        pool.inactive_split = Stat::default();
        pool.inactive_split_bytes = Stat::default();
    }
    for untold in [5, 7, 8] {
        told.all_peaks[untold] = 0;
    }
    (told.num_sync_all_streams, told.num_device_alloc, told.num_device_free) = (0, 0, 0);
    told
}
