//! What publishing costs the publisher and what reading costs the reader: `cargo bench -p gpumem-channel`.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "criterion's macros; a bench that cannot set up must stop"
)]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use gpumem_channel::{
    Block, BlockState, Device, DeviceKind, DeviceStats, EventKind, LaneFigures, Operation, Options, PoolId, Publisher,
    Reader, Segment, Split, Touched,
};

const BLOCKS: u32 = 100_000;
const PER_SEGMENT: u32 = 100;

fn publisher(dir: &tempfile::TempDir) -> Publisher {
    let options = Options {
        dir: Some(dir.path().join("channels")),
        blocks: BLOCKS,
        ..Options::default()
    };
    let mut publisher = Publisher::create(&options).unwrap();
    publisher.set_device(
        0,
        &Device {
            kind: DeviceKind::Simulated,
            total: 80 << 30,
            ..Device::default()
        },
    );
    publisher
}

fn block(slot: u32, state: BlockState) -> Block {
    let addr = (1 << 40) + u64::from(slot) * 4096;
    Block {
        addr,
        size: 4096,
        requested: 4000,
        segment: slot / PER_SEGMENT,
        pool: PoolId::SMALL,
        state,
        ..Block::default()
    }
}

/// Returns slots in another order than the addresses, as in a heap that has been in use for a while.
fn slot(i: u32) -> u32 {
    (u64::from(i) * 7_919 % u64::from(BLOCKS)) as u32
}

fn fill(publisher: &mut Publisher) {
    for segment in 0..BLOCKS / PER_SEGMENT {
        publisher.segment_begin(segment);
        let first = segment * PER_SEGMENT;
        for i in first..first + PER_SEGMENT {
            let next = (i + 1 < first + PER_SEGMENT).then(|| slot(i + 1));
            assert!(publisher.block(
                slot(i),
                &Block {
                    segment,
                    ..block(i, BlockState::Free)
                },
                next
            ));
        }
        let addr = block(first, BlockState::Free).addr;
        let size = u64::from(PER_SEGMENT) * 4096;
        publisher.segment_end(
            segment,
            Some((
                &Segment {
                    addr,
                    size,
                    mapped: size,
                    ..Segment::default()
                },
                Some(slot(first)),
            )),
        );
    }
}

fn publishing(c: &mut Criterion) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut publisher = publisher(&dir);
    fill(&mut publisher);
    let mut stats = DeviceStats::default();
    c.bench_function("publish/allocate and free a cached block", |b| {
        b.iter(|| {
            for (kind, state) in [
                (EventKind::Alloc, BlockState::Allocated),
                (EventKind::Free, BlockState::Free),
            ] {
                stats.small.allocation.add(1);
                let block = black_box(block(7, state));
                let operation = Operation {
                    kind,
                    slot: slot(7),
                    state,
                    block: &block,
                    next: Some(slot(8)),
                    split: Split::NO,
                };
                if publisher.operation(&operation).figures_due {
                    publisher.stats(0, black_box(&stats), Touched::SMALL);
                }
            }
        });
    });
    let mut lane = publisher.lane(0, 7).unwrap();
    let mut figures = LaneFigures::default();
    c.bench_function("publish/the same on a lane", |b| {
        b.iter(|| {
            for (kind, state) in [
                (EventKind::Alloc, BlockState::Allocated),
                (EventKind::Free, BlockState::Free),
            ] {
                figures.small.allocation.current += 1;
                let block = black_box(block(7, state));
                let operation = Operation {
                    kind,
                    slot: slot(7),
                    state,
                    block: &block,
                    next: Some(slot(8)),
                    split: Split::NO,
                };
                if lane.operation(&operation).figures_due {
                    lane.figures(black_box(&figures));
                }
            }
        });
    });
    c.bench_function("publish/two clock readings of these", |b| {
        b.iter(|| {
            for _ in 0..2 {
                black_box(rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse));
            }
        });
    });
}

fn reading(c: &mut Criterion) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut publisher = publisher(&dir);
    fill(&mut publisher);
    c.bench_function("read/first pass over 100,000 blocks", |b| {
        b.iter_with_large_drop(|| {
            let mut reader = Reader::open(publisher.path()).unwrap();
            let snapshot = reader.refresh().unwrap();
            (reader, snapshot)
        });
    });
    let mut reader = Reader::open(publisher.path()).unwrap();
    assert_eq!(reader.refresh().unwrap().devices[0].blocks().count(), BLOCKS as usize);
    c.bench_function("read/pass with nothing changed", |b| {
        b.iter(|| reader.refresh().unwrap())
    });
    c.bench_function("read/events with none new", |b| b.iter(|| reader.events().unwrap()));
    let lanes: Vec<_> = std::iter::from_fn(|| publisher.lane(0, 7)).collect();
    assert_eq!(reader.refresh().unwrap().lanes.len(), 8);
    c.bench_function("read/pass with nothing changed, with eight lanes", |b| {
        b.iter(|| reader.refresh().unwrap())
    });
    c.bench_function("read/events with none new, of eight lanes", |b| {
        b.iter(|| reader.events().unwrap())
    });
    drop(lanes);
    for (name, shows) in [
        ("read/pass with all 100,000 blocks changed", false),
        ("read/the same while the previous snapshot is kept", true),
    ] {
        let mut flip = BlockState::Free;
        let mut shown = None;
        c.bench_function(name, |b| {
            b.iter_custom(|rounds| {
                let mut total = std::time::Duration::ZERO;
                for _ in 0..rounds {
                    flip = if flip == BlockState::Free {
                        BlockState::Allocated
                    } else {
                        BlockState::Free
                    };
                    for i in 0..BLOCKS {
                        let next = ((i + 1) % PER_SEGMENT != 0).then(|| slot(i + 1));
                        publisher.block(slot(i), &block(i, flip), next);
                    }
                    let start = std::time::Instant::now();
                    let snapshot = reader.refresh().unwrap();
                    total += start.elapsed();
                    assert_eq!(snapshot.devices[0].segments[500].blocks[50].state, flip);
                    shown = shows.then_some(snapshot);
                }
                total
            });
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(std::time::Duration::from_millis(500)).measurement_time(std::time::Duration::from_secs(2));
    targets = publishing, reading
}
criterion_main!(benches);
