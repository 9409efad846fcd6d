//! What others see: tags, marks, events in their order; and a program that has no channel, or forks.
#![allow(unsafe_code, reason = "fork has no safe interface")]
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt;

use gpumem_alloc::device::{Sim, SimConfig, Timeline};
use gpumem_alloc::{
    Allocator, Buffer, Config, Error, MonitorConfig, Options, PoolConfig, Publish, SegmentMode, Stream,
};
use gpumem_channel::{BlockState, DeviceKind, EventKind, Life, Reader, StringId};

const MIB: usize = 1 << 20;

fn dir() -> tempfile::TempDir {
    let private = std::fs::Permissions::from_mode(0o700);
    tempfile::Builder::new()
        .permissions(private)
        .tempdir_in("/dev/shm")
        .unwrap()
}

fn publishing(dir: &tempfile::TempDir, blocks: u32) -> (Allocator, Reader) {
    publishing_on(&Sim::new(SimConfig::default()), SegmentMode::Virtual, dir, blocks)
}

fn publishing_on(sim: &Sim, segments: SegmentMode, dir: &tempfile::TempDir, blocks: u32) -> (Allocator, Reader) {
    let options = Options {
        dir: Some(dir.path().to_owned()),
        blocks,
        events: 1024,
        ..Options::default()
    };
    let config = Config {
        publish: Publish::On(options),
        segments,
        budget: Some(256 << 20),
        ..Config::default()
    };
    let alloc = Allocator::new(sim.device(), config).unwrap();
    let reader = Reader::open(&alloc.channel().unwrap()).unwrap();
    (alloc, reader)
}

#[test]
fn tags_marks_and_events_arrive_in_order() {
    let dir = dir();
    let (alloc, mut reader) = publishing(&dir, 1024);
    alloc.mark("step 1");
    let scope = alloc.scope("forward");
    let buffer = alloc.alloc::<u8>(30 * MIB, Stream(5)).unwrap();
    drop(scope);
    let snapshot = reader.refresh().unwrap();
    let device = &snapshot.devices[0];
    assert_eq!(
        (device.device.kind, device.device.budget),
        (DeviceKind::Simulated, 256 << 20)
    );
    let block = device
        .blocks()
        .find(|block| block.state == BlockState::Allocated)
        .unwrap();
    assert_eq!(
        (snapshot.string(block.tag), block.stream, block.requested),
        ("forward", 5, 30 << 20)
    );
    buffer.record_stream(Stream(6)).unwrap();
    drop(buffer);
    alloc.release_cached().unwrap();
    assert!(alloc.alloc::<u8>(300 * MIB, Stream(5)).is_err());
    let snapshot = reader.refresh().unwrap();
    let events = reader.events().unwrap();
    let kinds: Vec<EventKind> = events.events.iter().map(|event| event.kind).collect();
    use EventKind::*;
    let expected = [
        Mark,
        SegmentMap,
        Alloc,
        Free,
        FreeCompleted,
        SegmentUnmap,
        CacheRelease,
        OutOfMemory,
        Advice,
    ];
    assert_eq!(kinds, expected);
    assert_eq!(snapshot.string(events.events[0].tag), "step 1");
    assert_eq!(snapshot.string(events.events[2].tag), "forward");
    assert_eq!(
        (events.events[3].requested, events.events[7].requested),
        (30 << 20, 300 << 20)
    );
    assert_eq!(snapshot.devices[0].stats, Some(alloc.stats()));
    drop(alloc);
    assert_eq!(reader.refresh().unwrap().life, Life::Closed);
}

#[test]
fn a_request_that_fails_is_told_with_its_tag_and_its_pool() {
    let dir = dir();
    let (alloc, mut reader) = publishing(&dir, 1024);
    let budget = PoolConfig {
        budget: Some(32 << 20),
        ..PoolConfig::default()
    };
    let pool = alloc.pool("tenant", budget).unwrap();
    let scope = alloc.scope("batch");
    assert!(pool.alloc::<u8>(64 * MIB, Stream(5)).is_err());
    drop(scope);
    assert!(alloc.alloc::<u8>(300 * MIB, Stream(5)).is_err());
    let snapshot = reader.refresh().unwrap();
    let events = reader.events().unwrap().events;
    let failed = events.iter().filter(|event| event.kind == EventKind::OutOfMemory);
    let told: Vec<_> = failed
        .map(|event| (snapshot.string(event.tag), snapshot.string(StringId(event.segment))))
        .collect();
    assert_eq!(told, [("batch", "tenant"), ("", "")]);
    let advice = events.iter().filter(|event| event.kind == EventKind::Advice);
    let told: Vec<_> = advice.map(|event| (snapshot.string(event.tag), event.size)).collect();
    let expected = [
        ("raise the pool's budget by", 32 << 20),
        ("raise the budget by", 44 << 20),
    ];
    assert_eq!(told, expected);
}

#[test]
fn memory_that_a_segment_takes_later_is_told_with_the_tag_of_who_needed_it() {
    let dir = dir();
    let (alloc, mut reader) = publishing(&dir, 1024);
    let held = ["weights", "activations"].map(|tag| {
        let _scope = alloc.scope(tag);
        alloc.alloc::<u8>(30 * MIB, Stream::DEFAULT).unwrap()
    });
    drop(held);
    alloc.release_cached().unwrap();
    let snapshot = reader.refresh().unwrap();
    let events = reader.events().unwrap().events;
    let tags = |kind| -> Vec<&str> {
        let events = events.iter().filter(|event| event.kind == kind);
        events.map(|event| snapshot.string(event.tag)).collect()
    };
    assert_eq!(tags(EventKind::SegmentMap), ["weights", "activations"]);
    assert_eq!(tags(EventKind::SegmentUnmap), [""], "nobody's any more");
}

/// All of its pieces are what the whole is: held, waiting, cached.
#[test]
fn every_piece_of_a_stitched_block_waits_for_who_uses_it() {
    let dir = dir();
    let sim = Sim::new(SimConfig {
        timeline: Timeline::Manual,
        ..SimConfig::default()
    });
    let (alloc, mut reader) = publishing_on(&sim, SegmentMode::Stitched, &dir, 1024);
    let mut blocks: Vec<_> = (0..8)
        .map(|_| Some(alloc.alloc::<u8>(20 * MIB, Stream(1)).unwrap()))
        .collect();
    for hole in blocks.iter_mut().step_by(2) {
        *hole = None;
    }
    let scope = alloc.scope("batch");
    let stitched = alloc.alloc::<u8>(60 * MIB, Stream(1)).unwrap();
    drop(scope);
    assert_eq!(alloc.stats().all().reserved_bytes.current, 160 << 20, "no new memory");
    // Number and bytes of blocks of that tag by state, and what they say was asked for.
    let mut told = |state| {
        let snapshot = reader.refresh().unwrap().clone();
        let of_state = snapshot.devices[0].blocks().filter(|block| block.state == state);
        of_state
            .filter(|block| snapshot.string(block.tag) == "batch")
            .fold((0, 0, 0), |(n, bytes, requested), block| {
                (n + 1, bytes + block.size, requested + block.requested)
            })
    };
    let (first, further) = (told(BlockState::Allocated), told(BlockState::Part));
    assert_eq!((first.0, first.2, further.2), (1, 60 << 20, 0));
    assert!(further.0 > 0 && first.1 + further.1 == 60 << 20);
    stitched.record_stream(Stream(2)).unwrap();
    sim.enqueue(Stream(2), stitched.device_ptr(), 60 << 20);
    drop(stitched);
    assert_eq!((told(BlockState::Allocated).0, told(BlockState::Part).0), (0, 0));
    assert_eq!(told(BlockState::PendingFree), (1 + further.0, 60 << 20, 60 << 20));
    let snapshot = alloc.snapshot().unwrap();
    let waiting = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
    let waiting = waiting.filter(|block| block.state == gpumem_snapshot::BlockState::ActivePendingFree);
    assert_eq!(waiting.map(|block| block.size).sum::<u64>(), 60 << 20);
    sim.finish(Stream(2));
    let again = alloc.alloc::<u8>(60 * MIB, Stream(1)).unwrap();
    assert_eq!(told(BlockState::PendingFree).0, 0);
    drop(again);
}

#[test]
fn blocks_beyond_the_table_are_counted() {
    let dir = dir();
    let (alloc, mut reader) = publishing(&dir, 4);
    let buffers: Vec<_> = (0..10)
        .map(|_| alloc.alloc::<u8>(512, Stream::DEFAULT).unwrap())
        .collect();
    let snapshot = reader.refresh().unwrap();
    // Ten blocks and the free rest of the segment, in a table of four.
    assert_eq!(snapshot.untracked_blocks, 7);
    let shown: u64 = snapshot.devices[0].blocks().map(|block| block.size).sum();
    assert_eq!(shown + snapshot.untracked_bytes, 2 << 20);
    drop(buffers);
    // Looks at the free blocks as requests find them: joined.
    assert_eq!(alloc.free_blocks().count, 1);
    let snapshot = reader.refresh().unwrap();
    assert_eq!((snapshot.untracked_blocks, snapshot.untracked_bytes), (0, 0));
}

/// Holes of virtual segments that lie side by side become one.
#[test]
fn holes_beyond_the_table_that_became_one_are_counted_once() {
    let dir = dir();
    let (alloc, mut reader) = publishing(&dir, 2);
    let mut buffers: Vec<_> = (0..6)
        .map(|_| Some(alloc.alloc::<u8>(20 * MIB, Stream::DEFAULT).unwrap()))
        .collect();
    // The last one is held: what is before it stays in the segment.
    for hole in [4, 2, 3] {
        buffers[hole] = None;
        alloc.release_cached().unwrap();
    }
    assert_eq!(alloc.stats().all().reserved_bytes.current, 60 << 20);
    let snapshot = reader.refresh().unwrap();
    // Two are shown; a hole of 60 MiB and the last one are not.
    assert_eq!((snapshot.untracked_blocks, snapshot.untracked_bytes), (2, 80 << 20));
}

/// Readers follow the events that came after a lane's figures were published last: there must be no more of these than are kept.
#[test]
fn figures_are_right_after_more_blocks_came_or_went_in_a_row_than_a_lane_keeps_events() {
    let dir = dir();
    let options = Options {
        dir: Some(dir.path().to_owned()),
        lane_events: 64,
        ..Options::default()
    };
    let config = Config {
        publish: Publish::On(options),
        ..Config::default()
    };
    let alloc = Allocator::new(Sim::new(SimConfig::default()).device(), config).unwrap();
    let mut reader = Reader::open(&alloc.channel().unwrap()).unwrap();
    let mut current = || {
        let stats = reader.refresh().unwrap().devices[0].stats.unwrap();
        stats.all().allocation.current
    };
    for _ in 0..10 {
        let blocks: Vec<_> = (0..300).map(|_| alloc.alloc::<u8>(512, Stream(5)).unwrap()).collect();
        assert_eq!(current(), 300);
        drop(blocks);
        assert_eq!(current(), 0);
    }
    let lanes = reader.refresh().unwrap().lanes;
    assert!(lanes.iter().any(|lane| lane.event_count > 1000), "{lanes:?}");
}

#[test]
fn without_a_channel_the_allocator_works_and_says_why() {
    let options = Options {
        dir: Some("/nowhere/at/all".into()),
        ..Options::default()
    };
    let config = Config {
        publish: Publish::On(options),
        ..Config::default()
    };
    let alloc = Allocator::new(Sim::new(SimConfig::default()).device(), config).unwrap();
    assert!(alloc.channel().unwrap_err().contains("/nowhere/at/all"));
    assert_eq!(alloc.alloc::<f32>(100, Stream::DEFAULT).unwrap().len(), 100);
}

#[test]
fn a_channel_that_is_ended_early_is_no_black_box() {
    let dir = dir();
    let (alloc, mut reader) = publishing(&dir, 1024);
    let buffer = alloc.alloc::<u8>(MIB, Stream::DEFAULT).unwrap();
    alloc.stop_publishing();
    assert_eq!(reader.refresh().unwrap().life, Life::Closed);
    alloc.stop_publishing();
    alloc.mark("nobody hears it");
    drop((buffer, alloc.alloc::<u8>(MIB, Stream::DEFAULT).unwrap()));
    assert_eq!(alloc.stats().all().allocation.current, 0);
}

/// A child of a process that embeds the allocator: it must be able to drop what it inherited, and never to hang.
#[test]
fn a_forked_child_touches_nothing() {
    // SAFETY: shares nothing with the child, of which is said below what it does.
    child_touches_nothing(|| unsafe { libc::fork() });
}

/// The same where the C library does not know that it is one.
#[test]
fn a_child_in_which_no_handler_ran_touches_nothing() {
    // SAFETY: as above.
    child_touches_nothing(|| unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } as libc::pid_t);
}

fn child_touches_nothing(fork: fn() -> libc::pid_t) {
    let dir = dir();
    let (alloc, mut reader) = publishing(&dir, 1024);
    let buffer = alloc.alloc::<u8>(30 * MIB, Stream::DEFAULT).unwrap();
    // A size that comes again and again: the stream's lane has it.
    let small = || alloc.alloc::<u8>(1000, Stream::DEFAULT).unwrap();
    (0..20).for_each(|_| drop(small()));
    let small = small();
    let monitor = alloc.monitor(MonitorConfig::default()).unwrap();
    let before = alloc.stats();
    let child = fork();
    // The child calls only this library's functions, whose forked paths take no lock and do not allocate, and _exit.
    if child == 0 {
        let refused = matches!(alloc.alloc_raw(512, Stream::DEFAULT), Err(Error::Forked))
            && matches!(alloc.reserve(0, Stream::DEFAULT), Err(Error::Forked))
            && matches!(alloc.release_cached(), Err(Error::Forked))
            && [&buffer, &small].map(Buffer::allocated_bytes) == [30 << 20, 1024]
            && !monitor.is_running();
        drop(monitor);
        drop((buffer, small));
        drop(alloc);
        // SAFETY: ends the child without running the test harness's exit handlers.
        unsafe { libc::_exit(if refused { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: waits for the child made above; `status` is valid for writes.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child ended in order");
    assert!(monitor.is_running(), "the parent's is its own");
    assert_eq!(alloc.stats(), before);
    assert_eq!(
        reader.refresh().unwrap().life,
        Life::Alive,
        "the parent's channel is untouched"
    );
    drop((buffer, small));
    assert_eq!(alloc.stats().all().allocation.current, 0);
}

/// However many marks there are, who begins to look has figures.
#[test]
fn marks_leave_figures_for_a_reader_that_comes_later() {
    for lanes in [0, 8] {
        let dir = dir();
        let options = Options {
            dir: Some(dir.path().to_owned()),
            events: 64,
            lanes,
            ..Options::default()
        };
        let config = Config {
            publish: Publish::On(options),
            ..Config::default()
        };
        let alloc = Allocator::new(Sim::new(SimConfig::default()).device(), config).unwrap();
        let _held = alloc.alloc::<u8>(50 * MIB, Stream(0)).unwrap();
        for _ in 0..200 {
            alloc.mark("step");
            drop(alloc.alloc::<u8>(5000, Stream(0)).unwrap());
        }
        (0..100).for_each(|_| alloc.mark("step"));
        let path = alloc.channel().unwrap();
        let snapshot = Reader::open(&path).unwrap().refresh().unwrap();
        assert_eq!(snapshot.devices[0].stats, Some(alloc.stats()), "{lanes} lanes");
    }
}
