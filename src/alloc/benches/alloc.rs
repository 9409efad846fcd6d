//! Allocation and free of cached blocks, with publishing off and on: `cargo bench -p gpumem-alloc`.
//!
//! The device is simulated: a cached block needs no driver call, so the numbers are those of a real GPU. References, measured
//! on an H100 host: PyTorch's caching allocator (C++) 602 to 962 ns, 1,822 ns with 1,000 live blocks of random sizes;
//! `cudaMallocAsync` 1,380 ns.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "criterion's macros; a bench that cannot set up must stop"
)]

use std::fs::Permissions;
use std::hint::black_box;
use std::os::unix::fs::PermissionsExt;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use gpumem_alloc::device::{self, SimConfig};
use gpumem_alloc::{Allocator, Buffer, Config, History, Options, PoolConfig, Publish, SegmentMode, Stacks, Stream};
use tempfile::{Builder, TempDir};

const MIB: usize = 1 << 20;

/// An allocator and the directory it publishes in: a bench does not appear among the user's channels.
fn allocator(publishing: bool, segments: SegmentMode) -> (Allocator, Option<TempDir>) {
    let private = Permissions::from_mode(0o700);
    let dir = publishing.then(|| Builder::new().permissions(private).tempdir_in("/dev/shm").unwrap());
    let publish = match &dir {
        Some(dir) => Publish::On(Options {
            dir: Some(dir.path().to_owned()),
            ..Options::default()
        }),
        None => Publish::Off,
    };
    let alloc = Allocator::new(
        device::sim(SimConfig::default()),
        Config {
            publish,
            segments,
            ..Config::default()
        },
    )
    .unwrap();
    assert_eq!(
        alloc.channel().is_ok(),
        publishing,
        "a bench of publishing needs a channel: {:?}",
        alloc.channel()
    );
    (alloc, dir)
}

fn modes() -> [(&'static str, bool); 2] {
    [("off", false), ("on", true)]
}

/// One size, again and again: allocate, free.
fn cached(c: &mut Criterion) {
    for (name, bytes) in [("512B", 512), ("1MiB", MIB), ("64MiB", 64 * MIB)] {
        let mut group = c.benchmark_group(format!("cached/{name}"));
        for (mode, publish) in modes() {
            let (alloc, _dir) = allocator(publish, SegmentMode::Auto);
            // Live neighbours keep the block from merging, as in a busy heap.
            let mut live: Vec<Buffer<u8>> = (0..3).map(|_| alloc.alloc(bytes, Stream::DEFAULT).unwrap()).collect();
            drop(live.remove(1));
            group.bench_function(format!("publish={mode}"), |b| {
                b.iter(|| drop(black_box(alloc.alloc::<u8>(black_box(bytes), Stream::DEFAULT).unwrap())));
            });
        }
        group.finish();
    }
}

/// The same from a pool, which sets nothing aside: every allocation cuts a block and every free joins it again.
fn pool(c: &mut Criterion) {
    for (name, bytes) in [("512B", 512), ("64MiB", 64 * MIB)] {
        let mut group = c.benchmark_group(format!("pool/{name}"));
        for (mode, publish) in modes() {
            let (alloc, _dir) = allocator(publish, SegmentMode::Auto);
            let pool = alloc.pool("tenant", PoolConfig::default()).unwrap();
            let _live: Buffer<u8> = pool.alloc(bytes, Stream::DEFAULT).unwrap();
            group.bench_function(format!("publish={mode}"), |b| {
                b.iter(|| drop(black_box(pool.alloc::<u8>(black_box(bytes), Stream::DEFAULT).unwrap())));
            });
        }
        group.finish();
    }
}

/// The same from everybody's memory where no size comes again: four changes of structure a pair.
fn split_and_join(c: &mut Criterion) {
    let mut group = c.benchmark_group("split_and_join/4KiB");
    for (mode, publish) in modes() {
        let (alloc, _dir) = allocator(publish, SegmentMode::Auto);
        group.bench_function(format!("publish={mode}"), |b| {
            // Another size each time: none comes again, so that nothing is set aside.
            let mut bytes = 4096;
            b.iter(|| {
                bytes = 4096 + (bytes + 512) % 262_144;
                drop(black_box(alloc.alloc::<u8>(black_box(bytes), Stream::DEFAULT).unwrap()));
            });
        });
    }
    group.finish();
}

/// A small generator, so that runs are alike: xorshift.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// 512 B to 32 MiB, every octave as likely.
    fn size(&mut self) -> usize {
        let octave = 9 + self.next() % 16;
        ((1u64 << octave) + self.next() % (1 << octave)) as usize
    }
}

/// 1,000 live blocks of random sizes: free one, allocate one; and what the figure of the free blocks between them costs.
fn random(c: &mut Criterion) {
    let mut group = c.benchmark_group("random_1000_live");
    for (mode, publish) in modes() {
        for (segments, kind) in [(SegmentMode::Plain, "plain"), (SegmentMode::Stitched, "stitched")] {
            let (alloc, _dir) = allocator(publish, segments);
            let mut random = Random(88_172_645_463_325_252);
            let mut live: Vec<Option<Buffer<u8>>> = (0..1000)
                .map(|_| Some(alloc.alloc(random.size(), Stream::DEFAULT).unwrap()))
                .collect();
            let mut draw = || ((random.next() % 1000) as usize, random.size());
            let mut step = |(at, bytes): (usize, usize)| {
                live[at] = None;
                live[at] = Some(alloc.alloc(bytes, Stream::DEFAULT).unwrap());
            };
            for _ in 0..200_000 {
                step(draw());
            }
            group.bench_function(format!("{kind}/publish={mode}"), |b| {
                b.iter_batched(&mut draw, &mut step, BatchSize::SmallInput);
            });
            if !publish {
                group.bench_function(format!("{kind}/free_blocks"), |b| {
                    b.iter(|| black_box(alloc.free_blocks()))
                });
            }
        }
    }
    group.finish();
}

#[inline(never)]
fn deep(calls: u32, work: &mut dyn FnMut()) -> u32 {
    if calls == 0 {
        work();
        return 0;
    }
    black_box(deep(calls - 1, work)) + 1
}

/// What a history costs a cached pair, from twenty calls deep. PyTorch's takes 2 µs for an event.
fn recorded(c: &mut Criterion) {
    let mut group = c.benchmark_group("recorded/1MiB");
    for (name, stacks) in [
        ("off", None),
        ("stacks=none", Some(Stacks::None)),
        ("stacks=alloc", Some(Stacks::Alloc)),
        ("stacks=all", Some(Stacks::All)),
    ] {
        let (alloc, _dir) = allocator(true, SegmentMode::Plain);
        if let Some(stacks) = stacks {
            let max_events = 200_000;
            alloc.record_history(History::On { max_events, stacks }).unwrap();
        }
        group.bench_function(name, |b| {
            deep(20, &mut || {
                b.iter(|| drop(black_box(alloc.alloc::<u8>(black_box(MIB), Stream::DEFAULT).unwrap())));
            });
        });
    }
    group.finish();
}

/// Threads on streams of their own, each with a cached block: time for one allocation and one free over all of them, so that
/// eight threads that do not wait for each other take an eighth of what one does, on as many processors. What the machine itself
/// leaves of that the same threads show that have an allocator each, and share nothing.
fn threads(c: &mut Criterion) {
    let mut group = c.benchmark_group("threads/4KiB");
    for (mode, publish) in modes() {
        for threads in [1u32, 2, 4, 8] {
            let (alloc, _dir) = allocator(publish, SegmentMode::Auto);
            let shared: Vec<_> = (0..threads).map(|stream| (&alloc, Stream(stream.into()))).collect();
            group.bench_function(format!("{threads}/publish={mode}"), |b| {
                b.iter_custom(|rounds| side_by_side(&shared, rounds) / threads);
            });
        }
        let allocators: Vec<_> = (0..8).map(|_| allocator(publish, SegmentMode::Auto)).collect();
        let apart: Vec<_> = allocators.iter().map(|(alloc, _)| (alloc, Stream::DEFAULT)).collect();
        for threads in [1usize, 8] {
            group.bench_function(format!("{threads}_allocators/publish={mode}"), |b| {
                b.iter_custom(|rounds| side_by_side(&apart[..threads], rounds) / threads as u32);
            });
        }
    }
    group.finish();
}

/// How long it takes a thread for each of these until every one did so many rounds, from when the first begins.
fn side_by_side(places: &[(&Allocator, Stream)], rounds: u64) -> Duration {
    let ready = Barrier::new(places.len());
    let times = |(alloc, stream): (&Allocator, Stream)| {
        let round = || drop(black_box(alloc.alloc::<u8>(black_box(4096), stream).unwrap()));
        (0..100).for_each(|_| round());
        ready.wait();
        let start = Instant::now();
        (0..rounds).for_each(|_| round());
        (start, Instant::now())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = places.iter().map(|place| scope.spawn(|| times(*place))).collect();
        let times: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let first = times.iter().map(|(start, _)| *start).min();
        let last = times.iter().map(|(_, end)| *end).max();
        last.zip(first)
            .map_or(Duration::ZERO, |(last, first)| last.duration_since(first))
    })
}

/// Two threads that take turns on one stream, as PyTorch's forward and backward passes do: neither has the lane for itself.
fn turns(c: &mut Criterion) {
    let mut group = c.benchmark_group("turns/4KiB");
    for (mode, publish) in modes() {
        let (alloc, _dir) = allocator(publish, SegmentMode::Auto);
        group.bench_function(format!("publish={mode}"), |b| {
            b.iter_custom(|rounds| in_turns(&alloc, rounds));
        });
    }
    group.finish();
}

/// How long it takes two threads to do so many rounds of one allocation and one free, a thousand at a time, but for handing over.
fn in_turns(alloc: &Allocator, rounds: u64) -> Duration {
    const TURN: u64 = 1000;
    let begun = AtomicU64::new(0);
    let play = |thread: u64| {
        let mut took = Duration::ZERO;
        for turn in (0..rounds.div_ceil(TURN)).filter(|turn| turn % 2 == thread) {
            while begun.load(Ordering::Acquire) != turn {
                std::hint::spin_loop();
            }
            let start = Instant::now();
            for _ in turn * TURN..rounds.min((turn + 1) * TURN) {
                drop(black_box(alloc.alloc::<u8>(black_box(4096), Stream::DEFAULT).unwrap()));
            }
            took += start.elapsed();
            begun.store(turn + 1, Ordering::Release);
        }
        took
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| play(1));
        play(0) + other.join().unwrap()
    })
}

criterion_group!(benches, cached, pool, split_and_join, random, recorded, threads, turns);
criterion_main!(benches);
