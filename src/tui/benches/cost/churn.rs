//! A publisher that keeps a dashboard busy: many blocks that change all the time. It is a process of its own, which ends with its stdin.

use std::io::Read;
use std::time::{Duration, Instant};

use gpumem_channel::{
    Block, BlockState, Device, DeviceKind, DeviceStats, EventKind, Operation, Options, PoolId, Publisher, Segment,
    Split, Touched,
};

const SIZE: u64 = 64 << 10;
const REQUESTED: u64 = SIZE - 24;

/// The first argument of that process. The arguments of [`publish`] follow.
pub(crate) const WORD: &str = "churn";
const PER_SEGMENT: u32 = 1_000;

/// Publishes `blocks` blocks, of which `rate` change each second.
pub(crate) fn publish(blocks: u32, rate: u32) -> ! {
    let options = Options {
        blocks,
        segments: blocks.div_ceil(PER_SEGMENT),
        ..Options::default()
    };
    let mut publisher = Publisher::create(&options).expect("a channel");
    let total = u64::from(blocks) * SIZE * 2;
    publisher.set_device(
        0,
        &Device {
            kind: DeviceKind::Simulated,
            total,
            name: "Churn".into(),
            ..Device::default()
        },
    );

    let block = |i: u32, state| Block {
        addr: (1 << 40) + u64::from(i) * SIZE,
        size: SIZE,
        requested: if state == BlockState::Free { 0 } else { REQUESTED },
        segment: i / PER_SEGMENT,
        pool: PoolId::LARGE,
        state,
        ..Block::default()
    };
    let next = |i: u32| (i + 1 < blocks && !(i + 1).is_multiple_of(PER_SEGMENT)).then_some(i + 1);
    let mut stats = DeviceStats::default();
    for segment in 0..blocks.div_ceil(PER_SEGMENT) {
        let first = segment * PER_SEGMENT;
        let count = PER_SEGMENT.min(blocks - first);
        publisher.segment_begin(segment);
        for i in first..first + count {
            publisher.block(i, &block(i, BlockState::Free), next(i));
        }
        let size = u64::from(count) * SIZE;
        let addr = block(first, BlockState::Free).addr;
        let record = Segment {
            addr,
            size,
            mapped: size,
            pool: PoolId::LARGE,
            ..Segment::default()
        };
        publisher.segment_end(segment, Some((&record, Some(first))));
        stats.large.segment.add(1);
        stats.large.reserved_bytes.add(size);
    }
    stats.all_peaks = stats.large.figures().map(|stat| stat.peak);
    publisher.stats(0, &stats, Touched::ALL);
    println!(
        "{blocks} blocks, {rate} changes a second: {}",
        publisher.path().display()
    );

    std::thread::spawn(|| {
        // The end of stdin, or an error, ends the program.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let mut live = vec![false; blocks as usize];
    let mut random: u64 = 0x9e37_79b9_7f4a_7c15;
    let start = Instant::now();
    let mut done = 0;
    loop {
        // In steps of a hundredth of a second, so that a low rate costs next to nothing.
        let due = (start.elapsed().as_secs_f64() * rate as f64) as u64;
        for _ in done..due {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let i = (random % u64::from(blocks)) as u32;
            let alive = &mut live[i as usize];
            *alive = !*alive;
            let kind = if *alive { EventKind::Alloc } else { EventKind::Free };
            let state = if *alive {
                BlockState::Allocated
            } else {
                BlockState::Free
            };
            let large = &mut stats.large;
            let peak = large.allocation.peak;
            for (stat, amount) in [
                (&mut large.allocation, 1),
                (&mut large.active, 1),
                (&mut large.requested_bytes, REQUESTED),
                (&mut large.allocated_bytes, SIZE),
                (&mut large.active_bytes, SIZE),
            ] {
                if *alive { stat.add(amount) } else { stat.sub(amount) }
            }
            let mut touched = Touched::LARGE;
            if large.allocation.peak > peak {
                let peaks = large.figures_mut().map(|stat| stat.peak);
                stats.all_peaks = peaks;
                touched = touched.and(Touched::COLD);
            }
            let operation = Operation {
                kind,
                slot: i,
                state,
                block: &Block {
                    requested: REQUESTED,
                    ..block(i, state)
                },
                next: next(i),
                split: Split::NO,
            };
            if publisher.operation(&operation).figures_due || touched.has(Touched::COLD) {
                publisher.stats(0, &stats, touched);
            }
        }
        done = due;
        std::thread::sleep(Duration::from_millis(10));
    }
}
