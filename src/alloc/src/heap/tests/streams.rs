//! Streams that end: those of random programs, and what is left of very many.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::allocator::Allocator;
use crate::config::Config;
use crate::device::{Call, Sim, SimConfig, Timeline};
use crate::heap::streams::{LaneOf, MAX_IN_POOLS, MAX_STREAMS, SPARE};
use crate::heap::tests::heap_on;
use crate::heap::tests::pools::{Pools, unless_capturing};
use crate::heap::turn::Suspended;
use crate::heap::*;
use crate::pool::{Overflow, Pool, PoolConfig};
use crate::publish::Publish;
use crate::stream::Stream;
use crate::tag::Tag;

/// A stream of a random program: which of its three, and how many came before it in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::heap) struct Life {
    pub(in crate::heap) place: usize,
    number: u64,
}

/// The streams of a random program. The first is the default one.
#[derive(Debug)]
pub(in crate::heap) struct Lives {
    now: [(Stream, u64); 3],
    /// Handles of streams that were destroyed and did not come back.
    gone: Vec<Stream>,
}

impl Lives {
    pub(in crate::heap) fn new() -> Lives {
        Lives {
            now: [0, 1, 2].map(|handle| (Stream(handle), 0)),
            gone: Vec::new(),
        }
    }

    pub(in crate::heap) fn stream(&self, place: u64) -> Stream {
        self.now[place as usize].0
    }

    pub(in crate::heap) fn life(&self, place: u64) -> Life {
        let place = place as usize;
        let number = self.now[place].1;
        Life { place, number }
    }

    /// The stream, if it is still there.
    pub(in crate::heap) fn alive(&self, Life { place, number }: Life) -> Option<Stream> {
        let (stream, now) = self.now[place];
        (now == number).then_some(stream)
    }

    /// Some work is done, also on what was destroyed.
    pub(in crate::heap) fn advance(&self, sim: &Sim, place: u64, steps: u64) {
        for stream in self.gone.iter().chain([&self.stream(place)]) {
            sim.advance(*stream, steps);
        }
    }

    /// A stream was retired, if it could be. It is destroyed, and there is another one, which may have its handle.
    pub(in crate::heap) fn end(
        &mut self,
        retired: Result<(), Error>,
        sim: &Sim,
        pools: &Pools,
        (place, again): (u64, bool),
    ) {
        let (stream, number) = self.now[place as usize];
        if stream == Stream::DEFAULT {
            assert!(matches!(retired, Err(Error::DefaultStream)));
            return;
        }
        if unless_capturing(pools, retired).unwrap().is_none() {
            return;
        }
        sim.destroy_stream(stream);
        let next = match again {
            true => {
                sim.create_stream(stream);
                stream
            }
            false => {
                self.gone.push(stream);
                Stream(100 + 10 * number + place)
            }
        };
        self.now[place as usize] = (next, number + 1);
    }
}

/// What has streams have each other's memory without a wait for the device.
pub(in crate::heap) fn sharing() -> Config {
    Config {
        cross_stream_reuse: true,
        ..Config::default()
    }
}

/// A heap that is told to nobody, and its device.
pub(in crate::heap) fn heap(timeline: Timeline) -> (Sim, Heap) {
    let sim = Sim::new(SimConfig {
        timeline,
        ..SimConfig::default()
    });
    let heap = heap_on(&sim, sharing());
    (sim, heap)
}

/// Allocates as often as it takes for the size to be lent.
pub(in crate::heap) fn insist(heap: &mut Heap, stream: Stream) -> Grant {
    for _ in 0..4 {
        let grant = heap.allocate(4096, stream, Tag(0)).unwrap();
        give_back(heap, grant);
    }
    heap.allocate(4096, stream, Tag(0)).unwrap()
}

fn give_back(heap: &mut Heap, grant: Grant) {
    if !heap.front.free(grant.held, true) {
        heap.free(heap.front.block_of(grant.held).unwrap());
    }
}

fn has_lane(heap: &Heap, stream: Stream) -> bool {
    let mut named = heap.streams.named(stream);
    named.any(|at| matches!(heap.streams.line(at).lane, LaneOf::Some(_)))
}

/// Both handles that never were before and one that always comes back, with work that is done late.
#[test]
fn a_hundred_thousand_streams_leave_nothing_behind() {
    let (sim, mut heap) = heap(Timeline::After(50));
    let mut kept = heap.allocate(1 << 20, Stream::DEFAULT, Tag(0)).unwrap();
    for n in 1..=100_000u64 {
        let stream = Stream(if n % 2 == 0 { 8 } else { 1000 + n });
        let grant = heap.allocate(4096 + n % 7 * 512, stream, Tag(0)).unwrap();
        sim.enqueue(stream, grant.addr, grant.size);
        if n % 3 == 0 {
            heap.record_use(kept.block, stream, Default::default()).unwrap();
            heap.retire_stream(stream).unwrap();
            give_back(&mut heap, grant);
        } else {
            give_back(&mut heap, grant);
            heap.retire_stream(stream).unwrap();
        }
        sim.destroy_stream(stream);
        if n % 2 == 0 {
            sim.create_stream(stream);
        }
        if n % 100 == 0 {
            give_back(&mut heap, kept);
            kept = heap.allocate(1 << 20, Stream::DEFAULT, Tag(0)).unwrap();
        }
    }
    heap.check();
    let segment = heap.segments.get(heap.blocks[kept.block].segment).unwrap();
    let name = heap.streams.name(segment.stream);
    assert_eq!(name, Stream::DEFAULT, "who took it is there still");
    let lines = heap.streams.indices().len();
    assert!(lines <= 150, "{lines} lines");
    assert!(sim.live().events <= 20, "{} events", sim.live().events);
    let reserved = heap.stats().all().reserved_bytes.peak;
    assert!(reserved <= 4 << 20, "{reserved} bytes");
    assert_eq!(sim.violations(), Vec::<String>::new());
}

#[test]
fn the_lane_of_a_stream_that_has_ended_is_the_next_ones() {
    let (sim, mut heap) = heap(Timeline::Manual);
    let [first, second, third] = [11, 12, 13].map(Stream);
    let held = insist(&mut heap, first);
    let other = insist(&mut heap, second);
    let without = insist(&mut heap, third);
    assert!(has_lane(&heap, first) && has_lane(&heap, second) && !has_lane(&heap, third));
    let (taken, free) = (heap.stats().all().allocation.current, heap.free_blocks().count);
    heap.retire_stream(first).unwrap();
    sim.destroy_stream(first);
    heap.check();
    assert_eq!(heap.stats().all().allocation.current, taken);
    assert!(heap.free_blocks().count >= free && !has_lane(&heap, first));
    assert!(heap.front.grant(4096, first, Tag(0), true).is_none(), "it is gone");
    give_back(&mut heap, without);
    let mine = insist(&mut heap, third);
    assert!(has_lane(&heap, third));
    heap.check();
    // The number of the block in the lane is that of the stream before.
    for grant in [held, mine, other] {
        give_back(&mut heap, grant);
        heap.check();
    }
    assert_eq!(heap.stats().all().allocation.current, 0);
    assert_eq!(sim.violations(), Vec::<String>::new());
}

/// What was queued after a wait for the device began is not done when the wait is, also if its stream has ended since.
#[test]
fn a_wait_tells_nothing_of_what_came_after_it_began() {
    for (ends, free_later) in [(false, false), (true, false), (true, true)] {
        let (sim, mut heap) = heap(Timeline::Manual);
        heap.set_budget(Some(48 << 20)).unwrap();
        let [first, second] = [11, 12].map(Stream);
        let [busy, cached] = [(); 2].map(|()| heap.allocate(20 << 20, first, Tag(0)).unwrap());
        sim.enqueue(first, cached.addr, cached.size);
        heap.free(cached.block);
        let mut attempt = heap.attempt(COMMON, 24 << 20, second, Tag(0));
        let mut waited = false;
        while let Attempt::Suspended(suspended) = attempt {
            // The first one that takes long waits for the device.
            let waits = suspended.needs_turn() && !std::mem::replace(&mut waited, true);
            let made = suspended.run(&mut heap).unwrap();
            if waits {
                assert_eq!(sim.calls(Call::Synchronize), 1);
                sim.enqueue(first, busy.addr, busy.size);
                if !free_later {
                    heap.free(busy.block);
                }
                if ends {
                    heap.retire_stream(first).unwrap();
                    sim.destroy_stream(first);
                }
            }
            attempt = heap.resume(made);
        }
        let Attempt::Done(Ok(grant)) = attempt else {
            panic!("{attempt:?}");
        };
        assert!(!sim.busy_for(second, grant.addr, grant.size));
        if free_later {
            heap.free(busy.block);
        }
        // The next wait is for that, too.
        let grant = heap.allocate(22 << 20, second, Tag(0)).unwrap();
        assert!(!sim.busy_for(second, grant.addr, grant.size));
        assert_eq!(sim.calls(Call::Synchronize), 2);
        assert_eq!(sim.violations(), Vec::<String>::new());
    }
}

#[test]
fn only_streams_that_allocate_have_a_table_of_sizes() {
    let (_, mut heap) = heap(Timeline::Immediate);
    let grant = heap.allocate(4096, Stream(11), Tag(0)).unwrap();
    heap.record_use(grant.block, Stream(12), Default::default()).unwrap();
    heap.free(grant.block);
    let learns = |heap: &Heap, stream| {
        let at = heap.streams.named(Stream(stream)).next().unwrap();
        heap.streams.line(at).again.iter().any(|again| again.has_table())
    };
    assert!(learns(&heap, 11) && !learns(&heap, 12));
}

/// The table is as full as it may be, of streams that have ended and whose work is done.
#[test]
fn a_pool_is_made_where_ended_streams_take_all_places() {
    let sim = Sim::new(SimConfig::default());
    let alloc = Allocator::new(sim.device(), unpublished()).unwrap();
    let mut streams = Vec::new();
    while let Ok(buffer) = alloc.alloc::<u8>(512, Stream(streams.len() as u64 + 1)) {
        streams.push(buffer.stream());
    }
    for stream in streams {
        alloc.retire_stream(stream).unwrap();
    }
    let pool = alloc.pool("tenant", PoolConfig::default()).unwrap();
    drop(pool.alloc::<u8>(512, Stream(1)).unwrap());
}

/// What a pool is told once no stream more may be used with it, and with how many.
fn fill(pool: &Pool) -> (u64, Error) {
    let used = |n| Some((n - 1, pool.alloc::<u8>(512, Stream(n)).err()?));
    (1..).find_map(used).unwrap()
}

#[test]
fn a_pool_with_many_streams_leaves_everybody_else_theirs() {
    let sim = Sim::new(SimConfig::default());
    let alloc = Allocator::new(sim.device(), unpublished()).unwrap();
    let [noisy, other] = ["noisy", "other"].map(|name| alloc.pool(name, PoolConfig::default()).unwrap());
    let (streams, error) = fill(&noisy);
    assert_eq!(streams, MAX_STREAMS as u64);
    let told = "more than 256 streams were used with one pool, or with one allocator outside of pools: ";
    assert!(error.to_string().starts_with(told), "{error}");
    drop(alloc.alloc::<u8>(512, Stream(1 << 20)).unwrap());
    assert_eq!(fill(&other).0, MAX_STREAMS as u64);
    drop(alloc.private_pool().unwrap().alloc::<u8>(512, Stream(1)).unwrap());
}

/// Each has as many as it may, and there is a place for what is nobody's of every pool, if not for its streams.
#[test]
fn pools_that_take_all_places_leave_those_outside_and_say_which_limit_that_is() {
    let sim = Sim::new(SimConfig::default());
    let alloc = Allocator::new(sim.device(), unpublished()).unwrap();
    let make = |n| alloc.pool(&format!("tenant {n}"), PoolConfig::default()).unwrap();
    let pools: Vec<Pool> = (0..MAX_IN_POOLS / MAX_STREAMS).map(make).collect();
    for pool in &pools {
        assert_eq!(fill(pool).0, MAX_STREAMS as u64);
    }
    let (streams, error) = fill(&make(99));
    assert_eq!(streams, 0);
    assert!(
        error.to_string().contains("1024 streams were used with all pools"),
        "{error}"
    );
    drop(alloc.alloc::<u8>(512, Stream(1)).unwrap());
    drop(pools);
    assert_eq!(fill(&make(100)).0, MAX_STREAMS as u64);
}

/// What a pool's block was freed on is not a stream of everybody's, who have room for so many.
#[test]
fn a_free_that_names_the_streams_own_takes_no_place() {
    let sim = Sim::new(SimConfig::default());
    let alloc = Allocator::new(sim.device(), unpublished()).unwrap();
    let pool = alloc.pool("tenant", PoolConfig::default()).unwrap();
    let own = Stream(1 << 20);
    let ours = pool.alloc_raw(512, own).unwrap();
    let streams: Vec<_> = (1..).map_while(|n| alloc.alloc::<u8>(512, Stream(n)).ok()).collect();
    let other = alloc.free_raw_after(ours, 0, Stream(2 << 20));
    assert!(matches!(other, Err(Error::TooManyStreams { .. })), "{other:?}");
    alloc.free_raw_after(ours, 0, own).unwrap();
    assert_eq!(pool.stats().allocation.current, 0);
    drop(streams);
}

/// A request asks about what is left of a pool, and that goes back before it does: its line is no stream's then.
#[test]
fn nobody_asks_about_a_stream_of_a_pool_that_went_meanwhile() {
    let (sim, mut heap) = heap(Timeline::Manual);
    let pool = heap.add_arena(NewPool::Named("tenant"), PoolConfig::default()).unwrap();
    let grant = heap.allocate_in(pool, 512, Stream(1), Tag(0)).unwrap();
    sim.enqueue(Stream(1), grant.addr, 512);
    heap.take_back(grant.block);
    heap.close_arena(pool);
    let mine = suspended(heap.attempt(COMMON, 64 << 20, Stream(2), Tag(0)));
    assert!(!mine.needs_turn(), "it asks");
    sim.finish(Stream(1));
    heap.release_cached().unwrap();
    assert!(heap.arenas.get(pool).is_none(), "forgotten");
    let other = heap.allocate(512, Stream(3), Tag(0)).unwrap();
    heap.free(other.block);
    let asked = sim.total_calls();
    let made = mine.run(&mut heap).unwrap();
    assert_eq!(sim.total_calls(), asked);
    drop(heap.resume(made));
    assert_eq!(sim.violations(), Vec::<String>::new());
}

/// A request asks about more streams than it may call the driver for, and another thread is in a call meanwhile.
#[test]
fn nobody_calls_the_driver_without_the_turn_however_much_was_asked() {
    const MIB: u64 = 1 << 20;
    let (sim, mut heap) = heap(Timeline::Manual);
    let tag = Tag(0);
    for _ in 0..8 {
        let round = [150, 3, 5, 7, 4, 6, 9, 8].map(|mib| heap.allocate(mib * MIB, Stream(1), tag).unwrap().block);
        round.into_iter().for_each(|b| heap.free(b));
    }
    assert!(heap.layouts.repeats());
    heap.wait_for_device().unwrap();
    let others: Vec<Grant> = (100..170)
        .map(|stream| heap.allocate(2 * MIB, Stream(stream), tag).unwrap())
        .collect();
    for mib in [10, 42] {
        heap.allocate(mib * MIB, Stream(300), tag).unwrap();
    }
    let mut theirs = suspended(heap.attempt(COMMON, 900 * MIB, Stream(2), tag));
    while !theirs.needs_turn() {
        let made = theirs.run(&mut heap).unwrap();
        theirs = suspended(heap.resume(made));
    }
    heap.begin_call(&mut theirs);
    others[..66].iter().for_each(|grant| heap.free(grant.block));
    let maps = sim.calls(Call::Map);
    // It goes where it went in the rounds before, where all that was the others' lies now.
    let mut attempt = heap.attempt(COMMON, 150 * MIB, Stream(1), tag);
    let mut asked = 0;
    while let Attempt::Suspended(mine) = attempt {
        if mine.needs_turn() {
            break;
        }
        let made = mine.run(&mut heap).unwrap();
        asked += 1;
        attempt = heap.resume(made);
    }
    assert!(asked >= 64, "{asked}");
    assert_eq!(sim.calls(Call::Map), maps);
    let made = theirs.run(&mut heap).unwrap();
    heap.resume(made);
    assert_eq!(sim.violations(), [""; 0]);
}

/// A block that lives on was used by more streams than are kept apart, one after the other.
#[test]
fn streams_that_used_a_block_which_lives_on_are_forgotten() {
    let (_, mut heap) = heap(Timeline::Immediate);
    let grant = heap.allocate(4096, Stream(1), Tag(0)).unwrap();
    for n in 0..1000 {
        let stream = Stream(2 + n);
        if heap.record_use(grant.block, stream, Default::default()).is_err() {
            forget_streams(&mut heap).unwrap();
            heap.record_use(grant.block, stream, Default::default()).unwrap();
        }
        heap.retire_stream(stream).unwrap();
    }
    heap.check();
    heap.free(grant.block);
    heap.check();
    assert_eq!(heap.streams.pending, 0);
}

/// A server of many blocks makes a stream for each of its jobs: to find out which of these can be forgotten takes a look at all blocks.
#[test]
fn the_more_blocks_there_are_the_more_streams_that_have_ended_are_kept() {
    let (_, mut heap) = heap(Timeline::Immediate);
    let held: Vec<Grant> = (0..9000)
        .map(|_| heap.allocate(512, Stream::DEFAULT, Tag(0)).unwrap())
        .collect();
    // The first time that it is looked nothing is known.
    let kept = (1..100).map(|n| {
        heap.record_use(held[0].block, Stream(n), Default::default()).unwrap();
        heap.retire_stream(Stream(n)).unwrap();
        heap.streams.all_retired().len()
    });
    assert_eq!(kept.skip(3).max(), Some(SPARE + 9000 / 4096));
}

/// Its handle is that by which lanes know that they have no stream.
#[test]
fn a_stream_of_any_handle_is_a_stream() {
    let (_, mut heap) = heap(Timeline::Immediate);
    let last = insist(&mut heap, Stream(u64::MAX));
    let other = insist(&mut heap, Stream(1));
    assert!(!has_lane(&heap, Stream(u64::MAX)) && has_lane(&heap, Stream(1)));
    heap.check();
    give_back(&mut heap, last);
    give_back(&mut heap, other);
    heap.check();
}

/// A pool's request that overflows is suspended while its stream is destroyed: nobody asks the driver about that stream any more.
#[test]
fn a_request_that_overflows_does_not_bring_a_stream_back_that_has_ended() {
    let (sim, mut heap) = heap(Timeline::Manual);
    let config = PoolConfig {
        budget: Some(4 << 20),
        overflow: Overflow::Shared,
        priority: 0,
    };
    let pool = heap.add_arena(NewPool::Named("tenant"), config).unwrap();
    let mut theirs = suspended(heap.attempt(pool, 8 << 20, Stream(1), Tag(0)));
    heap.begin_call(&mut theirs);
    heap.retire_stream(Stream(1)).unwrap();
    sim.destroy_stream(Stream(1));
    let made = theirs.run(&mut heap).unwrap();
    let mut attempt = heap.resume(made);
    let result = loop {
        match attempt {
            Attempt::Done(result) => break result,
            Attempt::Suspended(mut next) => {
                if next.needs_turn() {
                    heap.begin_call(&mut next);
                }
                let made = next.run(&mut heap).unwrap();
                attempt = heap.resume(made);
            }
        }
        heap.check();
    };
    assert!(matches!(result, Err(Error::OutOfMemory(_))));
    assert_eq!(heap.streams.named(Stream(1)).count(), 0);
    // Its memory is there for others, who ask whose it was.
    heap.allocate(8 << 20, Stream(2), Tag(0)).unwrap();
    assert_eq!(sim.violations(), Vec::<String>::new());
}

fn suspended(attempt: Attempt) -> Box<Suspended> {
    match attempt {
        Attempt::Suspended(suspended) => suspended,
        Attempt::Done(result) => panic!("{result:?}"),
    }
}

fn unpublished() -> Config {
    Config {
        publish: Publish::Off,
        ..sharing()
    }
}
