//! What a monitor makes of pools: each has its own free memory.
#![allow(clippy::unwrap_used)]

use super::tests::{MIB, eye, look, looking_for, start};
use super::*;
use crate::device::Call;
use crate::{Allocator, Buffer, Pool, PoolConfig, Publish, SegmentMode, Stream};

fn pools(allocator: &Allocator) -> Vec<Pool> {
    let make = |n| allocator.pool(&format!("tenant {n}"), PoolConfig::default()).unwrap();
    (0..8).map(make).collect()
}

/// So many blocks of a pool of which each second one is free again.
fn holes_in(pool: &Pool, count: usize) -> Vec<Buffer<u8>> {
    let blocks: Vec<Buffer<u8>> = (0..count)
        .map(|_| pool.alloc((16 * MIB) as usize, Stream(1)).unwrap())
        .collect();
    let held = blocks.into_iter().enumerate().filter(|(n, _)| n % 2 == 1);
    held.map(|(_, block)| block).collect()
}

#[test]
fn a_whole_segment_free_in_each_pool_is_no_fragmentation() {
    let (_, allocator) = start(SegmentMode::Stitched, Publish::Off);
    let (config, told) = looking_for(Action::Release);
    let mut eye = eye(&allocator, config);
    let pools = pools(&allocator);
    for pool in &pools {
        drop(pool.alloc::<u8>((20 * MIB) as usize, Stream(1)).unwrap());
    }
    assert!(
        allocator.free_blocks().fragmentation().unwrap() > 0.8,
        "by the definition"
    );
    look(&mut eye, 0..10);
    assert!(told.lock().unwrap().is_empty());
    assert!(pools.iter().all(|pool| pool.stats().reserved_bytes.current >= 20 * MIB));
}

#[test]
fn memory_in_pieces_is_told_though_it_is_of_several_pools() {
    let (_, allocator) = start(SegmentMode::Stitched, Publish::Off);
    let (config, told) = looking_for(Action::Release);
    let mut eye = eye(&allocator, config);
    let pools = pools(&allocator);
    let _held: Vec<_> = pools[..2].iter().map(|pool| holes_in(pool, 10)).collect();
    look(&mut eye, 0..10);
    let alerts = told.lock().unwrap();
    assert_eq!(alerts.len(), 1);
    let (alert, largest) = (&alerts[0], 16 * MIB);
    assert_eq!((alert.free.total, alert.free.largest), (160 * MIB, largest));
    assert_eq!((alert.largest_of_each, alert.ratio), (2 * largest, 0.8));
    let told =
        "80 % for 2 s: 160 MiB free in 10 blocks, the largest 16.0 MiB, those of all pools 32.0 MiB together; reserved";
    assert!(alert.to_string().contains(told), "{alert}");
}

#[test]
fn private_pools_keep_nobody_waiting_for_memory_that_cannot_go_back() {
    let (sim, allocator) = start(SegmentMode::Stitched, Publish::Off);
    let (config, told) = looking_for(Action::Release);
    let mut eye = eye(&allocator, config);
    let graph = allocator.private_pool().unwrap();
    let _held = holes_in(&graph, 20);
    let waits = sim.calls(Call::Synchronize);
    look(&mut eye, 0..60);
    assert!(told.lock().unwrap().is_empty());
    assert_eq!(sim.calls(Call::Synchronize), waits);
}
