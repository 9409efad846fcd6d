//! Requests of pools that may overflow: when they do, what that takes, and where it is counted.

use gpumem_alloc::device::Timeline;
use gpumem_alloc::{Allocator, Config, Overflow, Pool, PoolConfig, SegmentMode, Stream};

use crate::common::{MIB, of, start};

/// Streams that there are places for, outside of pools and in each of them.
const STREAMS: u64 = 4096;

fn tenant(alloc: &Allocator, budget: Option<u64>) -> Pool {
    let config = PoolConfig {
        budget,
        overflow: Overflow::Shared,
        ..PoolConfig::default()
    };
    alloc.pool("tenant", config).unwrap()
}

#[test]
fn a_pool_that_does_not_overflow_takes_no_place_outside() {
    let (_, alloc) = start(80 << 30, Timeline::Immediate, Config::default());
    let pool = tenant(&alloc, None);
    let held: Vec<_> = (0..STREAMS)
        .map_while(|n| pool.alloc::<u8>(12 * MIB, Stream(n)).ok())
        .collect();
    assert_eq!((held.len() as u64, pool.stats().num_overflows), (STREAMS, 0));
    let others: Vec<_> = (0..STREAMS)
        .map(|n| alloc.alloc::<u8>(512, Stream(STREAMS + n)))
        .collect();
    assert!(others.iter().all(Result::is_ok));
}

#[test]
fn where_everybody_has_all_places_a_pool_has_its_own() {
    let (_, alloc) = start(80 << 30, Timeline::Immediate, Config::default());
    let _held: Vec<_> = (0..STREAMS)
        .map_while(|n| alloc.alloc::<u8>(512, Stream(n)).ok())
        .collect();
    let pool = tenant(&alloc, None);
    drop(pool.alloc::<u8>(512, Stream(1 << 30)).unwrap());
}

#[test]
fn what_overflows_once_room_was_made_is_counted() {
    for segments in [SegmentMode::Plain, SegmentMode::Virtual, SegmentMode::Stitched] {
        let (_, alloc) = start(64 * MIB, Timeline::Immediate, of(segments));
        let pool = tenant(&alloc, Some(2 << 20));
        let _first = pool.alloc::<u8>(10 * MIB, Stream(0)).unwrap();
        assert_eq!(pool.stats().num_overflows, 1);
        let less = PoolConfig {
            priority: -1,
            ..PoolConfig::default()
        };
        let other = alloc.pool("other", less).unwrap();
        drop(other.alloc::<u8>(40 * MIB, Stream(0)).unwrap());
        let _second = pool.alloc::<u8>(30 * MIB, Stream(0)).unwrap();
        assert_eq!(
            (pool.stats().num_overflows, alloc.stats().num_alloc_retries),
            (2, 1),
            "{segments:?}"
        );
    }
}
