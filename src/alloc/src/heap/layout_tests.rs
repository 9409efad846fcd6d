//! What is remembered, apart from a heap and in one.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;

use super::*;
use crate::config::{Config, SegmentMode};
use crate::device::{Call, Sim, SimConfig, Timeline};
use crate::heap::Heap;
use crate::heap::tests::heap_on;
use crate::stream::Stream;
use crate::tag::Tag;

const MIB: u64 = 1 << 20;

/// A heap whose memory was mapped once more just now.
fn remembering() -> Layouts {
    let mut layouts = Layouts::new(false);
    layouts.mapped(100);
    layouts
}

/// Asks for sizes and notes them at `base` and on; how many were expected there.
fn round(layouts: &mut Layouts, sizes: impl Iterator<Item = u64>, base: u64) -> usize {
    let place = |(i, size): (usize, u64)| {
        let expected = layouts.expect(1, size);
        layouts.note(1, size, Placement::Home(base + i as u64));
        usize::from(expected == Some(Placement::Home(base + i as u64)))
    };
    sizes.enumerate().map(place).sum()
}

#[test]
fn a_round_is_expected_from_the_third_one_on() {
    let mut layouts = remembering();
    let sizes = || (0..40).map(|i| (2 + i * 7919 % 1021) * MIB);
    assert_eq!(round(&mut layouts, sizes(), 0), 0, "nothing came before");
    assert!(
        round(&mut layouts, sizes(), 0) < 20,
        "first a whole round has to come again"
    );
    assert!(layouts.repeats());
    assert_eq!(round(&mut layouts, sizes(), 0), 40);
    // What is placed elsewhere is expected there.
    round(&mut layouts, sizes(), 1000);
    assert_eq!(round(&mut layouts, sizes(), 1000), 40);
}

#[test]
fn what_comes_otherwise_is_not_expected() {
    let mut layouts = remembering();
    let sizes = || (0..40).map(|i| (2 + i * 7919 % 1021) * MIB);
    for _ in 0..3 {
        round(&mut layouts, sizes(), 0);
    }
    assert_eq!(layouts.expect(1, 99 * MIB), None);
    layouts.note(1, 99 * MIB, Placement::Home(0));
    assert_eq!(layouts.expect(1, 2 * MIB), None, "nor what follows on it");
    assert_eq!(layouts.expect(2, 2 * MIB), None, "nor what another stream does");
    assert!(!layouts.repeats());
}

#[test]
fn memory_that_is_taken_ends_a_round() {
    let mut layouts = remembering();
    let sizes = || (0..40).map(|i| (2 + i * 7919 % 1021) * MIB);
    for _ in 0..3 {
        round(&mut layouts, sizes(), 0);
    }
    // Then it takes twice as many, until some came without.
    for rounds in [2, 2, 2] {
        layouts.grew();
        for i in 0..rounds {
            assert!(round(&mut layouts, sizes(), 0) < 20, "{i} of {rounds}");
        }
        assert_eq!(round(&mut layouts, sizes(), 0), 40, "after {rounds}");
    }
    for _ in 0..2 * MOST_ROUNDS {
        round(&mut layouts, sizes(), 0);
    }
    layouts.grew();
    assert!(round(&mut layouts, sizes(), 0) < 20);
    assert!(round(&mut layouts, sizes(), 0) < 20);
    assert_eq!(round(&mut layouts, sizes(), 0), 40);
}

/// A ring that is full keeps the last ones; a stream for which there is no room has none.
#[test]
fn memory_of_requests_is_bounded() {
    let mut layouts = remembering();
    let sizes = |n: u64| (0..n).map(|i| (2 + i * 7919 % 10_007) * MIB);
    for _ in 0..3 {
        round(&mut layouts, sizes(MOST as u64 + 10), 0);
    }
    assert_eq!(layouts.held, MOST);
    assert_eq!(layouts.expect(2, 2 * MIB), None);
    layouts.note(2, 2 * MIB, Placement::Home(0));
    assert_eq!((layouts.held, layouts.sequences[2].held()), (MOST, 0));
    layouts.mapped(MOST);
    for _ in 0..2 {
        round(&mut layouts, sizes(100), 0);
    }
    assert_eq!(round(&mut layouts, sizes(100), 0), 100, "a shorter round fits");
}

#[test]
fn remembering_ends_when_nothing_is_mapped_and_is_prolonged_more_each_time() {
    let mut layouts = Layouts::new(false);
    for times in [1, 2, 4, 8] {
        assert!(!layouts.remembers(2 * MIB));
        layouts.mapped(3);
        assert!(layouts.remembers(2 * MIB) && !layouts.remembers(SMALL_MAX));
        let requests = 3 * WORTH * times;
        for i in 0..requests {
            assert!(layouts.remembers(2 * MIB), "{i} of {requests}");
            layouts.note(0, 2 * MIB, Placement::Home(i));
        }
    }
}

/// A program of ever other sizes that maps a chunk now and then.
#[test]
fn what_never_comes_again_is_not_remembered_longer_each_time() {
    let mut layouts = Layouts::new(false);
    let mut sizes = (1..).map(|i| (i * 7919 % 1_000_003) * MIB);
    let mut stretch = |layouts: &mut Layouts| {
        layouts.mapped(1);
        let mut requests = 0;
        while layouts.remembers(2 * MIB) {
            round(layouts, sizes.by_ref().take(1), requests);
            requests += 1;
        }
        requests
    };
    let (mut all, mut longest) = (0, 0);
    while all < HOPELESS {
        let requests = stretch(&mut layouts);
        (all, longest) = (all + requests, longest.max(requests));
    }
    assert!(longest >= 8 * WORTH, "{longest}");
    for _ in 0..3 {
        assert_eq!(stretch(&mut layouts), WORTH, "no longer than the chunk is worth");
    }
    layouts.mapped(10);
    for expected in [0, 0, 40] {
        let comes = round(&mut layouts, (0..40).map(|i| (3 + i) * MIB), 0);
        assert!(
            comes >= expected,
            "what comes again after all is found: {comes} of {expected}"
        );
    }
    let mut on = (0..40).cycle().map(|i| (3 + i) * MIB);
    while layouts.remembers(2 * MIB) {
        round(&mut layouts, on.by_ref().take(1), 0);
    }
    assert!(stretch(&mut layouts) > WORTH, "and then it goes on for longer again");
}

/// A program of ever other sizes that mapped much at its beginning and nothing since.
#[test]
fn it_ends_once_no_round_can_come_again_that_is_remembered() {
    let mut layouts = Layouts::new(false);
    layouts.mapped(4 * MOST);
    let sizes = (1..).map(|i| (i * 7919 % 1_000_003) * MIB);
    let others = requests_until(&mut layouts, sizes, |layouts| !layouts.remembers(2 * MIB));
    assert_eq!(others, HOPELESS);
}

/// A round nearly as long as what can be remembered.
#[test]
fn it_goes_on_while_a_long_round_comes_again() {
    let mut layouts = Layouts::new(false);
    layouts.mapped(4 * MOST);
    let length = MOST as u64 - 50;
    let sizes = (0..length).map(|i| (2 + i * 7919 % 1_000_003) * MIB).cycle();
    let known = |layouts: &Layouts| layouts.sequences.iter().any(|sequence| sequence.in_round);
    let before = requests_until(&mut layouts, sizes, |layouts| {
        known(layouts) || !layouts.remembers(2 * MIB)
    });
    assert!(known(&layouts) && before > HOPELESS, "{before}");
}

/// Requests of these sizes until something holds.
fn requests_until(layouts: &mut Layouts, sizes: impl Iterator<Item = u64>, holds: impl Fn(&Layouts) -> bool) -> u64 {
    let mut requests = 0;
    for size in sizes {
        if holds(layouts) {
            break;
        }
        round(layouts, [size].into_iter(), requests);
        requests += 1;
    }
    requests
}

/// A round of requests, of which all blocks are freed at its end, that begins while others hold so many bytes; how many are expected
/// where they were, at `base` and on.
fn round_holding(layouts: &mut Layouts, held: u64, base: u64, frees: &mut u64) -> usize {
    let place = |i: u64| {
        let size = (2 + i * 7919 % 1021) * MIB;
        layouts.comes(Moment {
            blocks: i,
            bytes: held + i * 100 * MIB,
            requested: held + i * 100 * MIB,
            frees: *frees,
        });
        let expected = layouts.expect(1, size);
        layouts.note(1, size, Placement::Home(base + i));
        usize::from(expected == Some(Placement::Home(base + i)))
    };
    let found = (0..40).map(place).sum();
    *frees += 40;
    found
}

#[test]
fn a_round_is_expected_from_the_second_one_on_where_just_as_much_is_held_as_it_begins() {
    let (mut layouts, mut frees) = (remembering(), 0);
    assert_eq!(round_holding(&mut layouts, 0, 0, &mut frees), 0, "nothing came before");
    assert_eq!(round_holding(&mut layouts, 0, 0, &mut frees), 40);
    assert!(
        round_holding(&mut layouts, 2 * MIB, 0, &mut frees) > 20,
        "it goes on as it did before"
    );
    // What was in the way says that it does not, at the next beginning at the latest.
    layouts.grew();
    assert!(round_holding(&mut layouts, 0, 0, &mut frees) < 20);
}

#[test]
fn what_seemed_to_begin_as_before_ends_where_its_first_place_is_taken() {
    let (mut layouts, mut frees) = (remembering(), 0);
    round_holding(&mut layouts, 0, 0, &mut frees);
    layouts.comes(Moment {
        frees,
        ..Moment::default()
    });
    assert!(layouts.may_repeat(1));
    assert_eq!(layouts.expect(1, 2 * MIB), Some(Placement::Home(0)));
    layouts.was_taken(1);
    layouts.note(1, 2 * MIB, Placement::Home(77));
    assert_eq!(layouts.expect(1, (2 + 7919 % 1021) * MIB), None);
}

#[test]
fn what_begins_as_before_goes_on_where_few_places_are_taken() {
    let round = |layouts: &mut Layouts, frees: u64, taken: &[u64]| {
        let place = |i: u64| {
            let size = (2 + i * 7919 % 1021) * MIB;
            layouts.comes(Moment {
                bytes: i << 30,
                frees,
                ..Moment::default()
            });
            let there = layouts.expect(1, size);
            if taken.contains(&i) {
                layouts.was_taken(1);
            }
            layouts.note(1, size, there.unwrap_or(Placement::Home(i)));
            usize::from(there.is_some())
        };
        (0..200).map(place).sum::<usize>()
    };
    // The second of 23 is too many.
    for (taken, expected) in [([20, 40], 200), ([20, 22], 23)] {
        let mut layouts = remembering();
        assert_eq!(round(&mut layouts, 0, &[]), 0);
        assert_eq!(round(&mut layouts, 1, &taken), expected);
    }
}

/// What goes elsewhere is in the way of others: memory is of no use to the next round either.
#[test]
fn a_round_whose_places_are_taken_ends_and_is_waited_for_longer_each_time() {
    let mut layouts = remembering();
    let mut round = |n: u64, taken: bool| {
        layouts.mapped(100);
        let place = |i: u64| {
            let size = (2 + i * 7919 % 1021) * MIB;
            let there = layouts.expect(1, size);
            if there.is_some() & taken {
                layouts.was_taken(1);
            }
            layouts.note(1, size, Placement::Home(100 * n + i));
            usize::from(there.is_some())
        };
        (0..100).map(place).sum::<usize>()
    };
    let expected: Vec<usize> = (0..40).map(|n| round(n, true)).collect();
    assert!(
        expected.iter().all(|expected| *expected < 100),
        "each goes on for a round: {expected:?}"
    );
    let pauses: Vec<usize> = expected
        .split(|expected| *expected > 0)
        .map(<[usize]>::len)
        .filter(|rounds| *rounds > 0)
        .collect();
    assert_eq!(pauses[..5], [1, 1, 3, 7, 7], "{expected:?}");
    // Where they are free it goes on.
    let expected: Vec<usize> = (40..60).map(|n| round(n, false)).collect();
    assert_eq!(expected[10..], [100; 10], "{expected:?}");
}

/// Requests that come again in rounds of ten until they are forgotten, or so many.
fn requests_until_forgotten(layouts: &mut Layouts, most: u64) -> u64 {
    let sizes = (0..10).map(|i| (2 + i * 7919 % 1021) * MIB).cycle();
    let come = |layouts: &mut Layouts, size: &u64| {
        let remembers = layouts.remembers(*size);
        if remembers {
            round(layouts, [*size].into_iter(), size / MIB);
        }
        remembers
    };
    sizes.take(most as usize).take_while(|size| come(layouts, size)).count() as u64
}

#[test]
fn what_a_program_repeats_is_forgotten_later_and_only_where_that_costs_nothing() {
    let mut layouts = Layouts::new(false);
    layouts.mapped(30);
    let in_vain = 30 * WORTH;
    let requests = requests_until_forgotten(&mut layouts, u64::MAX);
    let later = in_vain * (IN_VAIN - 1)..in_vain * IN_VAIN;
    assert!(later.contains(&requests), "{requests}, not in {later:?}");
    // It has to map again for that: never more.
    layouts.mapped(1);
    let long = 2 * ROUNDS * MOST as u64 * IN_VAIN;
    assert_eq!(requests_until_forgotten(&mut layouts, long), long);
    // What it does not repeat is forgotten all the same.
    let others = (5000..5000 + 2 * FIRST).take_while(|i| {
        let remembers = layouts.remembers(i * MIB);
        if remembers {
            round(&mut layouts, [i * MIB].into_iter(), 0);
        }
        remembers
    });
    assert!(others.count() < 2 * FIRST as usize);
}

#[test]
fn what_goes_on_without_mapping_once_it_is_forgotten_is_not_remembered_again() {
    let mut layouts = Layouts::new(true);
    assert!(requests_until_forgotten(&mut layouts, u64::MAX) > FIRST);
    assert_eq!(requests_until_forgotten(&mut layouts, 10), 0);
}

/// A heap of stitched memory that keeps so many mappings of views.
fn stitched(sim: &Sim, mappings: usize) -> Heap {
    let config = Config {
        segments: SegmentMode::Stitched,
        cross_stream_reuse: true,
        ..Config::default()
    };
    let mut heap = heap_on(sim, config);
    heap.views.most = mappings;
    heap
}

/// Random sizes on so many streams, some of them small; blocks are freed in another order than they came.
fn random_round(heap: &mut Heap, seed: u64, streams: u64) {
    let mut state = seed;
    let mut random = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut held: HashMap<u64, u32> = HashMap::new();
    for i in 0..360 {
        let bytes = match random(6) {
            0 => 512 + random(64 << 10),
            _ => MIB + 1 + random(40 * MIB),
        };
        let grant = heap.allocate(bytes, Stream(random(streams)), Tag(0)).unwrap();
        held.insert(i, grant.block);
        if held.len() > 9 {
            let mut numbers: Vec<u64> = held.keys().copied().collect();
            numbers.sort_unstable();
            let block = held.remove(&numbers[random(10) as usize]).unwrap();
            heap.free(block);
        }
    }
    let mut left: Vec<(u64, u32)> = held.into_iter().collect();
    left.sort_unstable();
    left.into_iter().for_each(|(_, block)| heap.free(block));
    heap.check();
}

#[test]
fn a_loop_of_random_sizes_maps_nothing_from_its_second_round_on() {
    for seed in 0..20 {
        let sim = Sim::new(SimConfig::default());
        let mut heap = stitched(&sim, 1 << 14);
        let calls = || [Call::Create, Call::Map, Call::SetAccess, Call::Unmap].map(|call| sim.calls(call));
        let mut rounds = Vec::new();
        for _ in 0..6 {
            let before = calls();
            random_round(&mut heap, seed, 3);
            rounds.push(calls().iter().sum::<u64>() - before.iter().sum::<u64>());
        }
        assert!(rounds[0] > 0 && heap.layouts.repeats(), "{seed}: {rounds:?}");
        assert_eq!(rounds[1..], [0; 5], "{seed}: {rounds:?}");
    }
}

/// As best fit alone has it map for ever, it maps once more when it is forgotten, and is not forgotten again.
#[test]
fn a_loop_maps_again_once_at_most() {
    let mut again = 0;
    for seed in 0..8 {
        let sim = Sim::new(SimConfig::default());
        let mut heap = stitched(&sim, 1 << 14);
        let mut forget_and_go_on = |rounds: usize| {
            // As if nothing had been mapped for long.
            heap.layouts.left = 1;
            let before = sim.calls(Call::Map);
            (0..rounds).for_each(|_| random_round(&mut heap, seed, 3));
            sim.calls(Call::Map) - before
        };
        forget_and_go_on(6);
        if forget_and_go_on(8) > 0 {
            again += 1;
            for time in 0..3 {
                assert_eq!(forget_and_go_on(3), 0, "{seed}, {time}");
            }
        }
    }
    assert!(again > 0, "forgetting cost nothing, and this test says nothing");
}

/// A driver was seen to refuse more than half a million mappings, and a program that never repeats itself goes on mapping for ever.
#[test]
fn views_that_were_not_used_for_long_go_where_only_one_stream_is_used() {
    for timeline in [Timeline::Immediate, Timeline::Manual] {
        let sim = Sim::new(SimConfig {
            timeline,
            ..SimConfig::default()
        });
        let mut heap = stitched(&sim, 200);
        let mut most = 0;
        for seed in 0..60 {
            random_round(&mut heap, seed, 1);
            sim.finish(Stream(0));
            most = most.max(heap.views.mappings);
        }
        assert!((200..400).contains(&most), "{timeline:?}: {most} mappings");
    }
}
