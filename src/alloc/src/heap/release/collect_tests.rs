#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::config::Config;
use crate::device::{Call, Sim, SimConfig, Timeline};
use crate::error::Error;
use crate::heap::COMMON;
use crate::heap::tests::heap_on;
use crate::stream::Stream;
use crate::tag::Tag;

const MIB: u64 = 1 << 20;

fn start(total_mib: u64, config: Config) -> (Sim, Heap) {
    let sim = Sim::new(SimConfig {
        total: total_mib * MIB,
        timeline: Timeline::Manual,
        ..SimConfig::default()
    });
    let heap = heap_on(&sim, config);
    (sim, heap)
}

fn take(heap: &mut Heap, mib: u64) -> u32 {
    heap.allocate(mib * MIB, Stream(1), Tag(0)).unwrap().block
}

/// Lets 50 frees pass, without new memory but for the first time.
fn pass(heap: &mut Heap) {
    for _ in 0..50 {
        let small = take(heap, 1);
        heap.free(small);
    }
}

fn reserved(heap: &mut Heap) -> u64 {
    heap.check();
    heap.stats().all().reserved_bytes.current / MIB
}

/// Half of 400 MiB may be reserved before idle segments go.
fn collecting() -> Config {
    Config {
        budget: Some(400 * MIB),
        garbage_collection_threshold: Some(0.5),
        ..Config::default()
    }
}

#[test]
fn segments_that_are_idle_for_longest_go_before_new_memory_comes() {
    let (_, mut heap) = start(1000, collecting());
    pass(&mut heap);
    let (old, young, live) = (take(&mut heap, 60), take(&mut heap, 70), take(&mut heap, 80));
    heap.free(old);
    pass(&mut heap);
    heap.free(young);
    assert_eq!(reserved(&mut heap), 212);
    let more = take(&mut heap, 100);
    assert_eq!(reserved(&mut heap), 252, "60 MiB went, 100 came");
    let kept = take(&mut heap, 70);
    assert_eq!(reserved(&mut heap), 252, "the younger one is still there");
    [live, more, kept].into_iter().for_each(|block| heap.free(block));
}

#[test]
fn nothing_goes_below_the_threshold_or_from_segments_in_use() {
    let (sim, mut heap) = start(1000, collecting());
    let held = [take(&mut heap, 60), take(&mut heap, 60)];
    heap.free(held[0]);
    let more = take(&mut heap, 80);
    assert_eq!(
        (reserved(&mut heap), sim.calls(Call::Synchronize)),
        (200, 0),
        "at the threshold, not above"
    );
    let again = take(&mut heap, 60);
    let last = take(&mut heap, 20);
    assert_eq!((reserved(&mut heap), sim.calls(Call::Synchronize)), (220, 0));
    let beyond = take(&mut heap, 20);
    assert_eq!(
        (reserved(&mut heap), sim.calls(Call::Synchronize)),
        (240, 0),
        "nothing is idle"
    );
    [held[1], more, again, last, beyond]
        .into_iter()
        .for_each(|block| heap.free(block));
}

/// Age is the same whether or not the device was waited for in between.
#[test]
fn a_segment_that_became_nobodys_keeps_its_age() {
    let (_, mut heap) = start(1000, collecting());
    pass(&mut heap);
    let (old, young) = (take(&mut heap, 100), take(&mut heap, 110));
    heap.free(old);
    heap.wait_for_device().unwrap();
    pass(&mut heap);
    heap.free(young);
    heap.wait_for_device().unwrap();
    let ages: Vec<u64> = heap.idle(COMMON).map(|segment| segment.age).collect();
    assert_eq!(ages, [51, 0]);
}

/// Work that is queued on a freed block is waited for before its segment goes.
#[test]
fn segments_that_the_gpu_still_uses_are_waited_for() {
    let (sim, mut heap) = start(1000, collecting());
    let grant = heap.allocate(250 * MIB, Stream(1), Tag(0)).unwrap();
    sim.enqueue(Stream(1), grant.addr, grant.size);
    heap.free(grant.block);
    let other = heap.allocate(30 * MIB, Stream(2), Tag(0)).unwrap();
    assert_eq!(sim.violations(), Vec::<String>::new());
    assert_eq!(sim.calls(Call::Synchronize), 1);
    heap.free(other.block);
}

/// What the driver does not take back stays, and the request is served all the same.
#[test]
fn a_segment_that_cannot_be_freed_stays() {
    let (sim, mut heap) = start(1000, collecting());
    let old = take(&mut heap, 240);
    heap.free(old);
    sim.fail_after(1, false);
    let new = take(&mut heap, 60 + 240);
    assert!(!sim.clear_failure(), "the free failed");
    assert_eq!(
        reserved(&mut heap),
        300,
        "after another attempt, when the budget was full"
    );
    heap.free(new);
}

fn limited(release_on_oom: bool) -> Config {
    Config {
        max_split_size: Some(32 * MIB),
        release_on_oom,
        ..Config::default()
    }
}

#[test]
fn large_blocks_are_kept_whole_for_large_requests() {
    let (_, mut heap) = start(1000, limited(true));
    let large = take(&mut heap, 100);
    heap.free(large);
    let small = take(&mut heap, 30);
    assert_eq!(reserved(&mut heap), 130, "not cut off the large one");
    let near = take(&mut heap, 81);
    assert_eq!(reserved(&mut heap), 130, "20 MiB less than the block");
    heap.free(near);
    let far = take(&mut heap, 80);
    assert_eq!(reserved(&mut heap), 210);
    [small, far].into_iter().for_each(|block| heap.free(block));
}

/// Before everything goes, one large block goes that makes the room.
#[test]
fn one_large_block_makes_room_for_a_small_request() {
    let (sim, mut heap) = start(300, limited(true));
    let held = [100, 90, 80, 30].map(|mib| take(&mut heap, mib));
    held.into_iter().for_each(|block| heap.free(block));
    let small = take(&mut heap, 31);
    assert_eq!(
        (reserved(&mut heap), sim.calls(Call::Free)),
        (252, 1),
        "the smallest that is large enough"
    );
    let more = take(&mut heap, 180);
    assert_eq!(
        reserved(&mut heap),
        32 + 180 + 30,
        "both of the large ones, not the one of 30 MiB"
    );
    [small, more].into_iter().for_each(|block| heap.free(block));

    let (_, mut heap) = start(100, limited(false));
    let all = take(&mut heap, 100);
    heap.free(all);
    let Err(Error::OutOfMemory(report)) = heap.allocate(10 * MIB, Stream(1), Tag(0)) else {
        unreachable!("there is no memory left")
    };
    assert_eq!(
        report.largest_free, 0,
        "a block that may not be split is none for this request"
    );
    assert_eq!(report.helps, [crate::Help::ReleaseCache { bytes: 100 * MIB }]);
}

/// PyTorch's loop, word by word.
fn naive(idle: &[Idle], target: u64) -> Vec<usize> {
    let (mut gone, mut reclaimed) = (Vec::new(), 0);
    let mut total_age: u64 = idle.iter().map(|segment| segment.age).sum();
    let mut count = idle.len();
    let mut freed = true;
    while reclaimed < target && freed && count > 0 {
        let threshold = total_age as f64 / count as f64;
        freed = false;
        for (at, segment) in idle.iter().enumerate() {
            if !gone.contains(&at) && segment.age as f64 >= threshold {
                freed = true;
                reclaimed += segment.bytes;
                total_age -= segment.age;
                count -= 1;
                gone.push(at);
            }
        }
    }
    gone
}

proptest! {
    #[test]
    fn what_goes_is_what_pytorch_would_free(
        segments in prop::collection::vec((1u64..100, 0u64..1000), 0..20),
        target in 0u64..1500,
    ) {
        let idle: Vec<Idle> = (0..).zip(segments).map(|(slot, (bytes, age))| Idle { slot, block: 0, addr: 0, bytes, age }).collect();
        prop_assert_eq!(oldest(&idle, target), naive(&idle, target));
    }
}
