//! Every driver call fails at every place where it is made: nothing leaks, nothing is counted twice, and the next
//! request works.
#![allow(clippy::unwrap_used, clippy::panic)]

use proptest::prelude::*;

use crate::device::{Call, Live, Sim, SimConfig, Timeline};
use crate::heap::tests::model::World;
use crate::heap::tests::program::{config, program};
use crate::heap::tests::{campaign, heap_on};
use crate::heap::*;
use crate::pool::{Overflow, PoolConfig};
use crate::stream::Stream;
use crate::tag::Tag;

const MIB: u64 = 1 << 20;

/// A program that makes every kind of driver call but those of views: growth, cross-stream frees, release, joining.
pub(in crate::heap) fn everything(heap: &mut Heap, sim: &Sim) -> Result<(), Error> {
    let mut held = Vec::new();
    let result = (|| {
        for mib in [1, 30, 6, 40, 8, 16, 40, 4] {
            let grant = heap.allocate(mib * MIB, Stream(mib % 2), Tag(0))?;
            // A stream that is busy is asked for an event.
            sim.enqueue(Stream(mib % 2), grant.addr, grant.size);
            heap.record_use(grant.block, Stream(7), Default::default())?;
            held.push(grant.block);
        }
        let mut i = 0;
        held.retain(|block| {
            i += 1;
            if i % 2 == 0 {
                heap.free(*block);
            }
            i % 2 == 1
        });
        sim.finish(Stream(7));
        heap.poll_pending();
        match heap.join(44 * MIB, Stream(0)) {
            Ok(_) | Err(Error::NotVirtual | Error::HolesTooSmall { .. }) => {}
            Err(error) => return Err(error),
        }
        held.push(heap.allocate(20 * MIB, Stream(3), Tag(0))?.block);
        heap.retire_stream(Stream(1))?;
        sim.destroy_stream(Stream(1));
        sim.create_stream(Stream(1));
        heap.compact()?;
        heap.release_cached()?;
        pools(heap, sim)?;
        held.push(heap.allocate(50 * MIB, Stream(1), Tag(0))?.block);
        Ok(())
    })();
    for block in held {
        heap.free(block);
    }
    result
}

/// Pools that grow, capture, overflow, take from each other, and go while something of them is held.
fn pools(heap: &mut Heap, sim: &Sim) -> Result<(), Error> {
    let tenant = PoolConfig {
        budget: Some(40 * MIB),
        overflow: Overflow::Shared,
        priority: -1,
    };
    let arenas = [
        heap.add_arena(NewPool::Private(None), PoolConfig::default())?,
        heap.add_arena(NewPool::Named("tenant"), tenant)?,
    ];
    let mut held = Vec::new();
    let result = (|| {
        heap.begin_capture();
        for (arena, mib) in [(0, 1), (0, 30), (1, 8), (0, 6)] {
            held.push(heap.allocate_in(arenas[arena], mib * MIB, Stream(0), Tag(0))?.block);
        }
        heap.record_use(held[0], Stream(7), Default::default())?;
        heap.free(held.remove(0));
        heap.end_capture();
        held.push(heap.allocate_in(arenas[1], 36 * MIB, Stream(1), Tag(0))?.block);
        sim.finish(Stream(7));
        heap.free(held.remove(1));
        heap.free(held.remove(2));
        // More than the device has, unless caches go back, the tenant's among them.
        let free = 512 * MIB - heap.ledger.reserved();
        held.push(heap.allocate_in(arenas[0], free + 8 * MIB, Stream(1), Tag(0))?.block);
        Ok(())
    })();
    while heap.capturing() {
        heap.end_capture();
    }
    for arena in arenas {
        heap.close_arena(arena);
    }
    for block in held {
        heap.free(block);
    }
    result.and(heap.shrink_closing().map(drop))
}

/// The same for views, on a heap that has held nothing so far: pieces that lie apart are mapped side by side, and others behind them.
pub(in crate::heap) fn stitching(heap: &mut Heap, _: &Sim) -> Result<(), Error> {
    let mut held = Vec::new();
    let result = (|| {
        for _ in 0..10 {
            held.push(heap.allocate(6 * MIB, Stream(0), Tag(0))?.block);
        }
        (0..5).for_each(|at| heap.free(held.remove(at)));
        for mib in [12, 18] {
            let grant = heap.allocate(mib * MIB, Stream(0), Tag(0))?;
            heap.free(grant.block);
        }
        Ok(())
    })();
    held.into_iter().for_each(|block| heap.free(block));
    result
}

fn fail_everywhere(segments: SegmentMode, out_of_memory: bool) {
    fail_each(segments, out_of_memory, everything);
}

/// Each call of a program fails once.
fn fail_each(segments: SegmentMode, out_of_memory: bool, program: fn(&mut Heap, &Sim) -> Result<(), Error>) {
    for skip in 0.. {
        let sim = Sim::new(SimConfig {
            total: 512 * MIB,
            timeline: Timeline::Manual,
            ..SimConfig::default()
        });
        let config = Config {
            segments,
            max_chunk: 8 * MIB,
            ..Config::default()
        };
        let mut heap = heap_on(&sim, config);
        sim.fail_after(skip, out_of_memory);
        let result = program(&mut heap, &sim);
        let not_reached = sim.clear_failure();
        heap.check();
        assert!(
            matches!(result, Ok(()) | Err(Error::Device(_) | Error::OutOfMemory(_))),
            "call {skip}: {result:?}"
        );
        program(&mut heap, &sim).unwrap_or_else(|error| panic!("after call {skip} failed: {error}"));
        heap.check();
        heap.release_cached().unwrap();
        heap.check();
        assert_eq!(heap.stats().all().reserved_bytes.current, 0, "call {skip}");
        assert_eq!(
            sim.live().bytes,
            0,
            "after call {skip} failed, memory is lost: {:?}",
            sim.live()
        );
        drop(heap);
        assert_eq!(sim.live(), Live::default(), "call {skip}");
        assert_eq!(sim.violations(), Vec::<String>::new(), "call {skip}");
        if not_reached {
            assert!(skip > 20, "the program makes too few calls to mean anything: {skip}");
            return;
        }
    }
}

#[test]
fn every_call_fails_once_on_plain_segments() {
    fail_everywhere(SegmentMode::Plain, false);
    fail_everywhere(SegmentMode::Plain, true);
}

#[test]
fn every_call_fails_once_on_virtual_segments() {
    fail_everywhere(SegmentMode::Virtual, false);
    fail_everywhere(SegmentMode::Virtual, true);
}

#[test]
fn every_call_fails_once_on_stitched_memory() {
    fail_everywhere(SegmentMode::Stitched, false);
    fail_everywhere(SegmentMode::Stitched, true);
}

/// What could not be mapped is served from new memory where the driver has some.
#[test]
fn every_call_fails_once_where_pieces_are_stitched() {
    fail_each(SegmentMode::Stitched, false, stitching);
    fail_each(SegmentMode::Stitched, true, stitching);
}

#[test]
fn a_chunk_that_the_driver_does_not_take_is_reserved_until_it_does() {
    for segments in [SegmentMode::Virtual, SegmentMode::Stitched] {
        let sim = Sim::new(SimConfig::default());
        let config = Config {
            segments,
            ..Config::default()
        };
        let mut heap = heap_on(&sim, config);
        let take = |heap: &mut Heap| heap.allocate(30 * MIB, Stream(0), Tag(0)).unwrap().block;
        let block = take(&mut heap);
        heap.free(block);
        let had = sim.live().bytes;
        let reserved = |heap: &mut Heap| {
            heap.check();
            let (all, free) = (heap.stats().all(), heap.free_blocks().total);
            let counted = all.allocated_bytes.current + free + heap.ledger.loose();
            assert_eq!(all.reserved_bytes.current, counted);
            counted
        };
        for _ in 0..2 {
            sim.fail_next(Call::Release, u64::MAX);
            assert!(matches!(heap.release_cached(), Err(Error::Device(_))));
            assert_eq!((reserved(&mut heap), sim.live().bytes), (had, had));
            assert_eq!(heap.ledger.loose(), had, "nobody can have it");
        }
        // What it is used for again is not counted twice.
        let block = take(&mut heap);
        assert_eq!((reserved(&mut heap), sim.live().bytes), (had, had));
        heap.free(block);
        assert!(heap.release_cached().is_err());
        sim.fail_next(Call::Release, 0);
        assert_eq!(heap.release_cached().unwrap(), had);
        assert_eq!((reserved(&mut heap), sim.live().bytes), (0, 0));
    }
}

/// The memory lives until it is mapped nowhere, whoever has let go of it.
#[test]
fn what_could_not_be_unmapped_again_is_reserved_until_it_is() {
    for segments in [SegmentMode::Virtual, SegmentMode::Stitched] {
        let sim = Sim::new(SimConfig {
            total: 30 * MIB,
            used_by_others: 20 * MIB,
            ..SimConfig::default()
        });
        let config = Config {
            segments,
            max_chunk: 2 * MIB,
            ..Config::default()
        };
        let mut heap = heap_on(&sim, config);
        let agree = |heap: &mut Heap| {
            heap.check();
            let reserved = heap.stats().all().reserved_bytes.current;
            assert_eq!(reserved, sim.live().bytes, "{segments:?}");
            reserved
        };
        sim.fail_next(Call::Unmap, u64::MAX);
        assert!(heap.allocate(16 * MIB, Stream(0), Tag(0)).is_err());
        assert_eq!(agree(&mut heap), 10 * MIB);
        assert!(heap.release_cached().is_err());
        assert_eq!(agree(&mut heap), 10 * MIB);
        sim.fail_next(Call::Unmap, 0);
        assert_eq!(heap.release_cached().unwrap(), 10 * MIB);
        assert_eq!(agree(&mut heap), 0);
        let grant = heap.allocate(6 * MIB, Stream(0), Tag(0)).unwrap();
        heap.free(grant.block);
        agree(&mut heap);
        drop(heap);
        assert_eq!((sim.live(), sim.violations()), (Live::default(), vec![]));
    }
}

/// The driver has not taken it back, whether the history began before that or afterwards.
#[test]
fn a_history_counts_a_chunk_that_the_driver_does_not_take_once() {
    for late in [false, true] {
        let sim = Sim::new(SimConfig::default());
        let config = Config {
            segments: SegmentMode::Virtual,
            ..Config::default()
        };
        let mut heap = heap_on(&sim, config);
        let record = |heap: &mut Heap| heap.record_history(crate::history::History::ON).unwrap();
        let take = |heap: &mut Heap| heap.allocate(30 * MIB, Stream(0), Tag(0)).unwrap().block;
        let told = |heap: &Heap| heap.outlet().recorder().unwrap().totals();
        let block = take(&mut heap);
        if !late {
            record(&mut heap);
        }
        heap.free(block);
        let had = sim.live().bytes;
        sim.fail_next(Call::Release, u64::MAX);
        assert!(heap.release_cached().is_err());
        if late {
            record(&mut heap);
        }
        assert_eq!(told(&heap), (0, had));
        let block = take(&mut heap);
        assert_eq!((told(&heap).1, heap.peak_report().unwrap().reserved), (had, had));
        heap.free(block);
        assert!(heap.release_cached().is_err());
        sim.fail_next(Call::Release, 0);
        heap.release_cached().unwrap();
        assert_eq!(told(&heap), (0, 0));
    }
}

/// A growth that runs out of memory half-way and cannot undo itself: the next attempt must go elsewhere.
#[test]
fn what_could_not_be_undone_is_not_mapped_over() {
    let sim = Sim::new(SimConfig {
        total: 10 * MIB,
        ..SimConfig::default()
    });
    let config = Config {
        segments: SegmentMode::Virtual,
        ..Config::default()
    };
    let mut heap = heap_on(&sim, config);
    // 20 MiB are wanted: a reservation, five chunks of 2 MiB created and mapped, a sixth that does not fit. What follows is
    // the first unmap.
    sim.fail_after(12, false);
    let grant = heap.allocate(4 * MIB, Stream::DEFAULT, Tag(0)).unwrap();
    assert!(!sim.clear_failure(), "the failure happened");
    assert_eq!(sim.violations(), Vec::<String>::new());
    heap.check();
    heap.free(grant.block);
    drop(heap);
    assert_eq!(sim.live(), Live::default());
}

/// What fails in a random program.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// One call of a step.
    Once { skip: u64, out_of_memory: bool },
    /// The next calls of a kind, whenever they come.
    Next { call: Call, times: u64 },
}

fn fault() -> impl Strategy<Value = Fault> {
    // The test's own calls are copies.
    let calls = Call::ALL.into_iter().filter(|call| *call != Call::Copy);
    prop_oneof![
        (0u64..12, any::<bool>()).prop_map(|(skip, out_of_memory)| Fault::Once { skip, out_of_memory }),
        (prop::sample::select(calls.collect::<Vec<_>>()), 1u64..8)
            .prop_map(|(call, times)| Fault::Next { call, times }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: campaign(200), ..ProptestConfig::default() })]

    /// The same over random programs with several failures each.
    #[test]
    fn random_programs_survive_failures(
        config in config(),
        ops in program(80),
        faults in prop::collection::vec((0usize..80, fault()), 1..12),
    ) {
        let mut world = World::new(&config, Timeline::Manual);
        world.faulty = true;
        for (i, op) in ops.iter().enumerate() {
            for (_, fault) in faults.iter().filter(|fault| fault.0 == i) {
                match *fault {
                    Fault::Once { skip, out_of_memory } => world.sim.fail_after(skip, out_of_memory),
                    Fault::Next { call, times } => world.sim.fail_next(call, times),
                }
            }
            match world.step(op) {
                Ok(()) | Err(Error::Device(_)) => {}
                Err(error) => panic!("{op:?}: {error}"),
            }
            world.sim.clear_failure();
            world.judge_all();
            world.judge_contents();
        }
        Call::ALL.into_iter().for_each(|call| world.sim.fail_next(call, 0));
        world.end();
    }
}

/// The same at the end of the home segment: until the driver takes back what is left there, nothing is mapped behind it, and no
/// second home begins.
#[test]
fn what_could_not_be_undone_begins_no_second_home() {
    let sim = Sim::new(SimConfig {
        total: 14 * MIB,
        used_by_others: 4 * MIB,
        ..SimConfig::default()
    });
    let config = Config {
        segments: SegmentMode::Stitched,
        release_on_oom: false,
        ..Config::default()
    };
    let mut heap = heap_on(&sim, config);
    let first = heap.allocate(4 * MIB, Stream::DEFAULT, Tag(0)).unwrap();
    // One chunk of 4 MiB is created and mapped, a second does not fit. What follows is the first unmap.
    sim.fail_after(3, false);
    let short = |heap: &mut Heap, mib: u64| {
        let refused = heap.allocate(mib * MIB, Stream::DEFAULT, Tag(0));
        assert!(matches!(refused, Err(Error::OutOfMemory(_))), "{refused:?}");
        heap.check();
    };
    short(&mut heap, 8);
    assert!(!sim.clear_failure(), "the failure happened");
    short(&mut heap, 4);
    heap.release_cached().unwrap();
    let second = heap.allocate(6 * MIB, Stream::DEFAULT, Tag(0)).unwrap();
    heap.check();
    for grant in [first, second] {
        heap.free(grant.block);
    }
    drop(heap);
    assert_eq!(sim.live(), Live::default());
    assert_eq!(sim.violations(), Vec::<String>::new());
}
