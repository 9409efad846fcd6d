//! Programs whose small sizes are different each time, and programs whose sizes come again.
#![allow(clippy::unwrap_used)]

use gpumem_channel::StringId;
use proptest::prelude::*;

use super::*;
use crate::config::{Config, SegmentMode};
use crate::device::{Sim, SimConfig};
use crate::heap::Grant;
use crate::heap::tests::heap_on;
use crate::size::{SMALL_MAX, class_size};
use crate::stream::Stream;
use crate::tag::Tag;

const MIB: u64 = 1 << 20;
const STREAM: Stream = Stream(1);

fn heap(budget: Option<u64>) -> Heap {
    let config = Config {
        budget,
        ..Config::default()
    };
    heap_on(&Sim::new(SimConfig::default()), config)
}

/// Numbers that look random, the same each time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// From 512 B to 1 MiB, as many of each power of two.
    fn small(&mut self) -> u64 {
        let power = 1 << (9 + self.next() % 11);
        power + self.next() % power
    }
}

/// What a program holds, and how many of its requests a lane served without the heap.
#[derive(Default)]
struct Program {
    held: Vec<Grant>,
    by_lane: usize,
}

impl Program {
    fn ask(&mut self, heap: &mut Heap, bytes: u64) {
        let grant = match heap.lend_quick(bytes, STREAM, Tag(0), false) {
            Some(grant) => {
                self.by_lane += 1;
                grant
            }
            None => heap
                .allocate_short(bytes, STREAM, Tag(0), |grant| grant)
                .unwrap_or_else(|| heap.allocate(bytes, STREAM, Tag(0)).unwrap()),
        };
        assert!(grant.size >= bytes && grant.size <= class_size(bytes.next_multiple_of(512)));
        self.held.push(grant);
    }

    fn give_back(&mut self, heap: &mut Heap, at: usize) {
        let grant = self.held.swap_remove(at);
        if !heap.front.free(grant.held, false) {
            heap.free(heap.front.block_of(grant.held).unwrap());
        }
    }

    /// Gives one of 200 blocks back and asks for another one, so often. How many of these requests a lane served.
    fn go_on(&mut self, heap: &mut Heap, times: usize, numbers: &mut Numbers) -> usize {
        let before = self.by_lane;
        for _ in 0..times {
            let bytes = numbers.small();
            self.ask(heap, bytes);
            if self.held.len() > 200 {
                let at = numbers.next() as usize % self.held.len();
                self.give_back(heap, at);
            }
        }
        self.by_lane - before
    }

    fn end(mut self, heap: &mut Heap) {
        while !self.held.is_empty() {
            self.give_back(heap, 0);
        }
    }
}

fn by_class(heap: &Heap) -> bool {
    heap.streams
        .real()
        .any(|stream| heap.streams.line(stream).classes.is_on())
}

/// Large blocks that a program holds beside its small ones, which are a small part of all then.
fn hold_large(heap: &mut Heap, mib: u64) -> Vec<u32> {
    let large = |_| heap.allocate(64 * MIB, STREAM, Tag(0)).unwrap().block;
    (0..mib / 64).map(large).collect()
}

#[test]
fn sizes_that_are_different_each_time_are_served_by_lanes() {
    let (mut heap, mut program, mut numbers) = (heap(None), Program::default(), Numbers(88_172_645_463_325_252));
    hold_large(&mut heap, 1024);
    program.go_on(&mut heap, 4000, &mut numbers);
    let of_thousand = program.go_on(&mut heap, 1000, &mut numbers);
    assert!(by_class(&heap) && of_thousand > 900, "{of_thousand}");
    heap.check();
    program.end(&mut heap);
    heap.check();
}

#[test]
fn sizes_that_come_again_stay_what_they_are() {
    let (mut heap, mut program) = (heap(None), Program::default());
    for _ in 0..1000 {
        for bytes in [4096, 33 << 10, 777 << 10] {
            program.ask(&mut heap, bytes);
        }
        while !program.held.is_empty() {
            program.give_back(&mut heap, 0);
        }
    }
    assert!(!by_class(&heap));
    program.ask(&mut heap, 33 << 10);
    assert_eq!(program.held[0].size, 33 << 10);
}

/// A server whose caches are small blocks: an eighth of each would be lost to rounding.
#[test]
fn where_small_requests_are_much_of_all_they_do_not_go_by_class() {
    for (large, few) in [(1024, true), (256, false)] {
        let (mut heap, mut program, mut numbers) = (heap(None), Program::default(), Numbers(88_172_645_463_325_252));
        hold_large(&mut heap, large);
        program.go_on(&mut heap, 4000, &mut numbers);
        assert_eq!(
            by_class(&heap),
            few,
            "{} of {large} MiB",
            heap.ledger.small_peak() / MIB
        );
    }
}

/// Where all that a program holds is small there is no memory to spare for it, lanes lack blocks as before, and it is left.
#[test]
fn where_classes_do_not_help_they_are_left_for_longer_and_longer() {
    let mut classes = Classes::default();
    let mut frees = 0;
    let mut pauses = Vec::new();
    let mut ended = 0;
    while pauses.len() < 9 {
        frees += 1;
        if !classes.asked() {
            continue;
        }
        match classes.judge(0, frees) {
            Verdict::Begin => {
                pauses.push(frees - ended);
                classes.on = true;
                classes.windows = 0;
            }
            Verdict::End => {
                ended = frees;
                classes.on = false;
            }
            Verdict::Stay => {}
        }
    }
    let pause = |n: u32| PAUSE * (1 << n).min(MOST_TIMES);
    for (n, pair) in pauses[1..].iter().enumerate() {
        let expected = pause(n as u32);
        assert!((expected..=expected + u64::from(WINDOW)).contains(pair), "{pauses:?}");
    }
}

#[test]
fn where_lanes_serve_most_by_class_it_stays_so() {
    let mut classes = Classes {
        on: true,
        ..Classes::default()
    };
    let mut handed_out = 0;
    for _ in 0..10 * SETTLED * WINDOW {
        handed_out += 4;
        if classes.asked() {
            assert_eq!(classes.judge(handed_out, 7), Verdict::Stay);
        }
    }
}

/// At the peak small requests need memory of their own; later it would only be more than the program ever needs.
#[test]
fn small_requests_spread_while_memory_is_short_and_not_beside_much_that_is_free() {
    let (mut heap, mut program, mut numbers) = (heap(None), Program::default(), Numbers(88_172_645_463_325_252));
    let large = hold_large(&mut heap, 4096);
    let stream = heap.streams.index(STREAM).unwrap();
    while heap.streams.line(stream).classes.windows < SPREAD {
        program.go_on(&mut heap, 1, &mut numbers);
    }
    let (size, class) = heap.sizes.round(MIB / 2).unwrap();
    let request = Request::common(size, (size, class), stream, (Tag(0), StringId(0)));
    let reserved = heap.ledger.reserved();
    // What the program ever held: what is reserved is enough, or more than that.
    let peaks = [reserved, reserved - reserved / 24];
    assert_eq!(peaks.map(|peak| heap.may_spread(&request, peak)), [true, true]);
    large[..3].iter().for_each(|b| heap.free(*b));
    assert_eq!(peaks.map(|peak| heap.may_spread(&request, peak)), [true, false]);
    // A program that repeats itself needs its places, but not at any price.
    while !heap.layouts.repeats_for_long() {
        let round = [64, 3, 20, 7].map(|mib| heap.allocate(mib * MIB, STREAM, Tag(0)).unwrap().block);
        round.iter().for_each(|b| heap.free(*b));
    }
    let peaks = [reserved - reserved / 24, reserved - reserved / 16];
    assert_eq!(peaks.map(|peak| heap.may_spread(&request, peak)), [true, false]);
}

/// What lanes have set aside for small requests of any size is given up before memory is said to have run out.
#[test]
fn what_is_set_aside_by_class_comes_back_when_memory_runs_out() {
    let budget = 1100 * MIB;
    let (mut heap, mut program, mut numbers) = (heap(Some(budget)), Program::default(), Numbers(7));
    let large: Vec<u32> = (0..16)
        .map(|_| heap.allocate(64 * MIB, STREAM, Tag(0)).unwrap().block)
        .collect();
    program.go_on(&mut heap, 4000, &mut numbers);
    assert!(by_class(&heap));
    program.end(&mut heap);
    for b in large {
        heap.free(b);
    }
    let all = heap.allocate(budget - 2 * MIB, STREAM, Tag(0)).unwrap();
    heap.check();
    heap.free(all.block);
}

/// Elsewhere the heap hands out blocks of exactly a size, and lanes are to look for these.
#[test]
fn only_stitched_memory_goes_by_class() {
    for segments in [SegmentMode::Plain, SegmentMode::Virtual] {
        let config = Config {
            segments,
            ..Config::default()
        };
        let mut heap = heap_on(&Sim::new(SimConfig::default()), config);
        let (mut program, mut numbers) = (Program::default(), Numbers(7));
        hold_large(&mut heap, 1024);
        program.go_on(&mut heap, 4000, &mut numbers);
        assert!(!by_class(&heap), "{segments:?}");
        for _ in 0..100 {
            let bytes = numbers.small();
            program.ask(&mut heap, bytes);
            let size = program.held.last().unwrap().size;
            assert_eq!(size, bytes.next_multiple_of(512), "{segments:?}");
        }
        program.end(&mut heap);
        heap.check();
    }
}

/// A history is told every request by the heap itself, which lends nothing meanwhile.
#[test]
fn while_nothing_is_lent_sizes_are_exact_and_by_class_again_afterwards() {
    let (mut heap, mut program, mut numbers) = (heap(None), Program::default(), Numbers(7));
    hold_large(&mut heap, 1024);
    program.go_on(&mut heap, 4000, &mut numbers);
    let mut size_now = |heap: &mut Heap| {
        program.ask(heap, 33 << 10);
        program.held.last().unwrap().size >> 10
    };
    assert_eq!(size_now(&mut heap), 36);
    heap.set_lending(false);
    assert_eq!(size_now(&mut heap), 33);
    heap.check();
    heap.set_lending(true);
    assert_eq!(size_now(&mut heap), 36);
    program.end(&mut heap);
    heap.check();
}

/// The stream that has a lane next has sizes of its own.
#[test]
fn a_lane_goes_to_the_next_stream_as_it_was_at_first() {
    let (mut heap, mut program, mut numbers) = (heap(None), Program::default(), Numbers(7));
    hold_large(&mut heap, 1024);
    program.go_on(&mut heap, 4000, &mut numbers);
    assert!(by_class(&heap));
    heap.retire_stream(STREAM).unwrap();
    program.end(&mut heap);
    let mut next = Program::default();
    for _ in 0..100 {
        next.ask(&mut heap, 33 << 10);
        assert_eq!(next.held[0].size, 33 << 10);
        next.give_back(&mut heap, 0);
    }
    assert!(next.by_lane > 50 && !by_class(&heap));
    heap.check();
}

#[test]
fn what_a_lane_did_for_another_stream_is_not_judged_again() {
    let (mut heap, mut program, mut numbers) = (heap(None), Program::default(), Numbers(7));
    hold_large(&mut heap, 1024);
    for _ in 0..4000 {
        program.ask(&mut heap, 33 << 10);
        program.give_back(&mut heap, 0);
    }
    assert!(program.by_lane > 3000 && !by_class(&heap));
    heap.retire_stream(STREAM).unwrap();
    let mut next = Program::default();
    next.go_on(&mut heap, WINDOW as usize + 20, &mut numbers);
    assert!(by_class(&heap));
    heap.check();
}

proptest! {
    #[test]
    fn a_class_is_an_eighth_above_a_size_at_most_and_its_own(units in 1..=SMALL_MAX / 512) {
        let size = units * 512;
        let class = class_size(size);
        prop_assert!(class >= size && class <= (size + size / 8).max(size + 511) && class <= SMALL_MAX);
        prop_assert!(class.is_multiple_of(512));
        prop_assert_eq!(class_size(class), class);
        prop_assert!(class_size(size + 512) >= class);
    }

    /// Random programs that are served by class, then by size, then by class again, with the cache given back in between: blocks lie apart,
    /// figures are those of a list of them.
    #[test]
    fn random_programs_by_class_count_what_they_hold(
        seed in 1u64..,
        ops in prop::collection::vec(0..200usize, 400..1600),
        large in 0..12u64,
    ) {
        let (mut heap, mut program, mut numbers) = (heap(None), Program::default(), Numbers(seed));
        hold_large(&mut heap, 64 * large);
        for op in ops {
            match op {
                0 => {
                    heap.release_cached().unwrap();
                }
                1..90 if !program.held.is_empty() => {
                    let at = numbers.next() as usize % program.held.len();
                    program.give_back(&mut heap, at);
                }
                _ => {
                    let bytes = numbers.small();
                    program.ask(&mut heap, bytes);
                }
            }
            let held: u64 = program.held.iter().map(|grant| grant.size).sum();
            prop_assert_eq!(heap.stats().small.allocated_bytes.current, held);
        }
        heap.check();
        let mut places: Vec<(u64, u64)> = program.held.iter().map(|grant| (grant.addr, grant.addr + grant.size)).collect();
        places.sort_unstable();
        prop_assert!(places.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        program.end(&mut heap);
        heap.check();
        prop_assert_eq!(heap.stats().small.allocated_bytes.current, 0);
    }
}
