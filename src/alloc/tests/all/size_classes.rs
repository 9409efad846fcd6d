//! A program whose sizes are different each time, long enough that its small requests go by size class.

use gpumem_alloc::device::Timeline;
use gpumem_alloc::{Buffer, SegmentMode, Stream};

use crate::common::{of, start};

const LIVE: usize = 1000;

/// From 512 B to 32 MiB, as many of each power of two.
fn sizes() -> impl Iterator<Item = (usize, usize)> {
    let mut state = 88_172_645_463_325_252u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    std::iter::repeat_with(move || {
        let power = 1 << (9 + next() % 16);
        (power + next() % power, next() % LIVE)
    })
}

#[test]
fn blocks_of_a_size_class_are_counted_and_come_back_as_any_other() {
    let (_, alloc) = start(80 << 30, Timeline::default(), of(SegmentMode::Stitched));
    let mut live: Vec<Option<Buffer<u8>>> = (0..LIVE).map(|_| None).collect();
    let mut larger = 0;
    for (bytes, at) in sizes().take(30_000) {
        live[at] = None;
        let buffer = alloc.alloc::<u8>(bytes, Stream::DEFAULT).unwrap();
        let exact = bytes.next_multiple_of(512) as u64;
        let most = if exact > 1 << 20 { exact } else { exact + exact / 8 };
        assert!((exact..=most.max(exact)).contains(&buffer.allocated_bytes()));
        larger += usize::from(buffer.allocated_bytes() > exact);
        live[at] = Some(buffer);
    }
    assert!(larger > 5000, "{larger}");
    let stats = alloc.stats();
    let held = live.iter().flatten().map(Buffer::allocated_bytes).sum::<u64>();
    assert_eq!(stats.all().allocated_bytes.current, held);
    let (reserved, requested) = (stats.all().reserved_bytes.peak, stats.all_peaks[2]);
    assert!(reserved as f64 <= 1.12 * requested as f64, "{reserved} {requested}");

    let raw: Vec<u64> = sizes()
        .take(2000)
        .map(|(bytes, _)| alloc.alloc_raw(bytes as u64 % (1 << 20) + 1, Stream::DEFAULT).unwrap())
        .collect();
    for addr in raw {
        alloc.free_raw(addr).unwrap();
        assert!(alloc.free_raw(addr).is_err(), "it is given back once");
    }
    drop(live);
    assert_eq!(alloc.stats().all().allocated_bytes.current, 0);
    alloc.release_cached().unwrap();
    assert_eq!(alloc.stats().all().reserved_bytes.current, 0);
}

#[test]
fn a_buffer_of_no_bytes_is_none_of_a_class() {
    let (_, alloc) = start(80 << 30, Timeline::default(), of(SegmentMode::Stitched));
    let mut live: Vec<Option<Buffer<u8>>> = (0..LIVE).map(|_| None).collect();
    for (bytes, at) in sizes().take(30_000) {
        live[at] = None;
        live[at] = Some(alloc.alloc(bytes, Stream::DEFAULT).unwrap());
    }
    let by_class = |buffer: &&Buffer<u8>| buffer.allocated_bytes() > buffer.bytes().next_multiple_of(512);
    assert!(live.iter().flatten().any(|buffer| by_class(&buffer)));
    let empty = alloc.alloc::<u8>(0, Stream::DEFAULT).unwrap();
    assert_eq!((empty.device_ptr(), empty.allocated_bytes()), (0, 0));
    assert!(alloc.alloc::<u8>(usize::MAX, Stream::DEFAULT).is_err());
}
