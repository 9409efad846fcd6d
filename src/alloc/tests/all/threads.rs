//! Threads at the same time, each on its stream, with a reader beside them.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

use gpumem_alloc::device::{Sim, SimConfig, Timeline};
use gpumem_alloc::{Allocator, Buffer, Config, History, Options, Publish, SegmentMode, Stream};
use gpumem_channel::{BlockState, Reader};

const THREADS: u64 = 4;
const ROUNDS: usize = 3_000;

/// Addresses that somebody holds, with their sizes.
#[derive(Default)]
struct Held(Mutex<BTreeMap<u64, u64>>);

impl Held {
    fn take(&self, buffer: &Buffer<u8>) {
        let (addr, bytes) = (buffer.device_ptr(), buffer.bytes());
        let mut held = self.0.lock().unwrap();
        let before = held.range(..addr + bytes).next_back();
        assert!(
            before.is_none_or(|(at, size)| at + size <= addr),
            "{addr:#x} is held by two"
        );
        held.insert(addr, bytes);
    }

    /// Before it is given back: afterwards somebody else may have it at once.
    fn give(&self, buffer: &Buffer<u8>) {
        assert!(self.0.lock().unwrap().remove(&buffer.device_ptr()).is_some());
    }
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// A size: mostly one of a few that come again and again, now and then any.
fn size(state: &mut u64) -> usize {
    let n = random(state);
    match n % 8 {
        0 => 1 + (n >> 8) as usize % (3 << 20),
        1 => 2 << 20,
        2 | 3 => 300_000,
        _ => 4096,
    }
}

/// One thread: holds a few buffers, gives some of them to whoever listens, notes now and then that another stream uses one.
fn work(alloc: &Allocator, me: u64, held: &Held, other: &mpsc::Sender<Buffer<u8>>, given: &mpsc::Receiver<Buffer<u8>>) {
    let mut state = 88_172_645_463_325_252 + me;
    let mut mine: Vec<Buffer<u8>> = Vec::new();
    for round in 0..ROUNDS {
        let _scope = (round % 3 == 0).then(|| gpumem_alloc::scope("threads"));
        let buffer = alloc.alloc::<u8>(size(&mut state), Stream(me)).unwrap();
        held.take(&buffer);
        mine.push(buffer);
        mine.extend(given.try_iter());
        while mine.len() > 6 {
            let at = random(&mut state) as usize % mine.len();
            let buffer = mine.swap_remove(at);
            match random(&mut state) % 16 {
                0 => other.send(buffer).unwrap(),
                1 => {
                    buffer.record_stream(Stream(me + 100)).unwrap();
                    held.give(&buffer);
                }
                _ => held.give(&buffer),
            }
        }
        if round % 1_000 == 999 && me == 0 {
            alloc.release_cached().unwrap();
        }
    }
    for buffer in mine {
        held.give(&buffer);
    }
}

fn all_at_once(segments: SegmentMode) {
    let dir = tempfile::Builder::new().tempdir_in("/dev/shm").unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let sim = Sim::new(SimConfig {
        timeline: Timeline::After(3),
        ..SimConfig::default()
    });
    let config = Config {
        segments,
        publish: Publish::On(Options {
            dir: Some(dir.path().to_owned()),
            ..Options::default()
        }),
        ..Config::default()
    };
    let alloc = Allocator::new(sim.device(), config).unwrap();
    let mut reader = Reader::open(&alloc.channel().unwrap()).unwrap();
    let (held, done) = (Held::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| mpsc::channel()).unzip();
        let workers: Vec<_> = (0..THREADS)
            .zip(receivers)
            .map(|(me, given)| {
                let other = senders[((me + 1) % THREADS) as usize].clone();
                let (alloc, held) = (&alloc, &held);
                scope.spawn(move || {
                    work(alloc, me, held, &other, &given);
                    given
                })
            })
            .collect();
        let done = &done;
        let watcher = scope.spawn(move || {
            let mut looks = 0;
            while !done.load(Ordering::Relaxed) || looks == 0 {
                let snapshot = reader.refresh().unwrap();
                let all = snapshot.devices[0].stats.unwrap().all();
                assert!(all.allocated_bytes.current <= all.allocated_bytes.peak);
                assert!(all.requested_bytes.current <= all.active_bytes.current);
                assert_eq!(snapshot.malformed_segments, 0);
                looks += 1;
            }
            reader
        });
        drop(senders);
        // What a thread was sent after it had ended is still held.
        let left: Vec<_> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        for buffer in left.iter().flat_map(mpsc::Receiver::try_iter) {
            held.give(&buffer);
        }
        done.store(true, Ordering::Relaxed);
        let mut reader = watcher.join().unwrap();
        assert!(held.0.lock().unwrap().is_empty());
        alloc.release_cached().unwrap();
        let snapshot = reader.refresh().unwrap();
        assert_eq!(snapshot.devices[0].stats.unwrap(), alloc.stats());
        let all = alloc.stats().all();
        assert_eq!(
            (all.allocation.current, all.active.current, all.requested_bytes.current),
            (0, 0, 0)
        );
        let blocks = snapshot.devices[0]
            .segments
            .iter()
            .flat_map(|segment| segment.blocks.iter());
        assert!(
            blocks
                .into_iter()
                .all(|block| matches!(block.state, BlockState::Free | BlockState::Unmapped))
        );
    });
    drop(alloc);
    assert_eq!(sim.live(), Default::default());
    assert_eq!(sim.violations(), Vec::<String>::new());
}

#[test]
fn plain_segments() {
    all_at_once(SegmentMode::Plain);
}

#[test]
fn virtual_segments() {
    all_at_once(SegmentMode::Virtual);
}

#[test]
fn stitched_memory() {
    all_at_once(SegmentMode::Stitched);
}

/// A history begins and ends while others allocate: nothing is counted twice or lost.
#[test]
fn a_history_begins_and_ends_meanwhile() {
    let sim = Sim::new(SimConfig::default());
    let config = Config {
        publish: Publish::Off,
        ..Config::default()
    };
    let alloc = Allocator::new(sim.device(), config).unwrap();
    std::thread::scope(|scope| {
        for me in 0..2 {
            let alloc = &alloc;
            scope.spawn(move || {
                let kept = alloc.alloc::<u8>(4096, Stream(me)).unwrap();
                for _ in 0..ROUNDS {
                    drop(alloc.alloc::<u8>(4096, Stream(me)).unwrap());
                }
                drop(kept);
            });
        }
        for round in 0..20 {
            alloc
                .record_history(if round % 2 == 0 { History::ON } else { History::Off })
                .unwrap();
        }
    });
    let all = alloc.stats().all();
    assert_eq!(
        (all.allocation.current, all.allocation.allocated),
        (0, 2 * (ROUNDS as u64 + 1))
    );
    drop(alloc);
    assert_eq!(sim.live(), Default::default());
}

/// The last buffer ends an allocator whose handles are gone, on whatever thread and however it was handed out.
#[test]
fn the_last_buffer_ends_the_heap() {
    let sim = Sim::new(SimConfig::default());
    let config = Config {
        publish: Publish::Off,
        ..Config::default()
    };
    let alloc = Allocator::new(sim.device(), config).unwrap();
    let mut held: Vec<_> = (0..8)
        .map(|n| alloc.alloc::<u8>(4096, Stream(n % 3)).unwrap())
        .collect();
    for _ in 0..10 {
        drop(held.remove(0));
        let stream = held[0].stream();
        held.push(alloc.alloc::<u8>(4096, stream).unwrap());
    }
    drop(alloc);
    assert!(sim.live().bytes > 0);
    std::thread::scope(|scope| {
        for buffer in held {
            scope.spawn(move || drop(buffer));
        }
    });
    assert_eq!(sim.live(), Default::default());
}

/// How many there are, and the most that there were.
#[derive(Default)]
struct Most {
    now: AtomicU64,
    most: AtomicU64,
}

impl Most {
    fn enter(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
    }

    fn leave(&self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
    }

    fn get(&self) -> u64 {
        self.most.load(Ordering::SeqCst)
    }
}

/// Threads that hold a block for a moment each take leave to count it from one another, and are served together when they wait for it.
#[test]
fn a_peak_is_between_what_was_surely_held_and_what_may_have_been() {
    const BYTES: usize = 4096;
    let config = Config {
        publish: Publish::Off,
        ..Config::default()
    };
    let alloc = Allocator::new(Sim::new(SimConfig::default()).device(), config).unwrap();
    // One stream after the other, so that there is leave for one block besides these.
    let kept: Vec<Buffer<u8>> = (0..2 * THREADS)
        .map(|stream| alloc.alloc(512, Stream(stream)).unwrap())
        .collect();
    for stream in 0..2 * THREADS {
        (0..100).for_each(|_| drop(alloc.alloc::<u8>(BYTES, Stream(stream)).unwrap()));
    }
    let before = kept.len() as u64;
    assert_eq!(alloc.stats().all().allocation.peak, before + 1);
    let (may_be, surely) = (Most::default(), Most::default());
    std::thread::scope(|scope| {
        for stream in 0..2 * THREADS {
            let (alloc, may_be, surely) = (&alloc, &may_be, &surely);
            scope.spawn(move || {
                for round in 0..20 * ROUNDS {
                    may_be.enter();
                    let buffer = alloc.alloc::<u8>(BYTES, Stream(stream)).unwrap();
                    surely.enter();
                    if round % 64 == 0 {
                        std::thread::yield_now();
                    }
                    surely.leave();
                    drop(buffer);
                    may_be.leave();
                }
            });
        }
    });
    let all = alloc.stats().all();
    let blocks = surely.get().max(1)..=may_be.get();
    let peak = all.allocation.peak - before;
    assert!(blocks.contains(&peak), "{peak} of {blocks:?}");
    for stat in [all.requested_bytes, all.allocated_bytes] {
        // Another moment may be that of the most bytes.
        let peak = stat.peak - 512 * before;
        assert!(blocks.contains(&peak.div_ceil(BYTES as u64)), "{peak} of {blocks:?}");
    }
    assert_eq!(all.allocation.current, before);
    assert_eq!(
        all.allocation.allocated,
        before + 2 * THREADS * (100 + 20 * ROUNDS as u64)
    );
    drop(kept);
    assert_eq!(alloc.stats().all().allocation.current, 0);
}
