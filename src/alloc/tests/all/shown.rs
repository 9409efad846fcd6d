//! What others see is what the allocator says, also where the channel is full, and of streams that have ended or that others wait for.

use std::os::unix::fs::PermissionsExt;

use gpumem_alloc::device::{Sim, SimConfig, Timeline};
use gpumem_alloc::{Allocator, Config, History, Options, PoolConfig, Publish, SegmentMode, Stacks, Stream};
use gpumem_channel::{EventKind, Reader};

const MIB: usize = 1 << 20;

/// An allocator whose channel is as large as these say, and a reader of that.
fn publishing(options: Options, config: Config) -> (Sim, Allocator, Reader) {
    let private = std::fs::Permissions::from_mode(0o700);
    let dir = tempfile::Builder::new()
        .permissions(private)
        .tempdir_in("/dev/shm")
        .unwrap();
    let publish = Publish::On(Options {
        dir: Some(dir.path().to_owned()),
        ..options
    });
    let sim = Sim::new(SimConfig {
        timeline: Timeline::Manual,
        ..SimConfig::default()
    });
    let alloc = Allocator::new(sim.device(), Config { publish, ..config }).unwrap();
    let reader = Reader::open(&alloc.channel().unwrap()).unwrap();
    (sim, alloc, reader)
}

#[test]
fn what_a_stream_left_is_not_shown_as_one_with_what_is_its_successors() {
    let config = Config {
        segments: SegmentMode::Plain,
        ..Config::default()
    };
    let (sim, alloc, mut reader) = publishing(Options::default(), config);
    let mut shown = || {
        let free = alloc.free_blocks();
        let sums = reader.refresh().unwrap().devices[0].free();
        assert_eq!(
            (sums.count, sums.largest, sums.bytes),
            (free.count, free.largest, free.total)
        );
        free.count
    };
    let stream = Stream(5);
    let left = alloc.alloc::<u8>(6 * MIB, stream).unwrap();
    // What lies behind is nobody's.
    alloc.release_cached().unwrap();
    sim.enqueue(stream, left.device_ptr(), left.bytes());
    alloc.retire_stream(stream).unwrap();
    sim.destroy_stream(stream);
    sim.create_stream(stream);
    let its = alloc.alloc::<u8>(6 * MIB, stream).unwrap();
    assert_eq!(its.device_ptr(), left.device_ptr() + left.bytes());
    drop((left, its));
    assert_eq!(shown(), 3, "the work of the one is not done");
    sim.finish(stream);
    alloc.release_cached().unwrap();
    assert_eq!(shown(), 0);
}

#[test]
fn names_that_the_channel_has_no_room_for_are_told_apart_by_the_history_and_snapshots() {
    let options = Options {
        strings: 3,
        ..Options::default()
    };
    let config = Config {
        history: History::On {
            max_events: 100,
            stacks: Stacks::None,
        },
        ..Config::default()
    };
    let (_, alloc, mut reader) = publishing(options, config);
    for name in ["dataset", "tokenizer"] {
        let _scope = alloc.scope(name);
        drop(alloc.alloc::<u8>(1000, Stream::DEFAULT).unwrap());
    }
    let names = ["", "weights", "activations"];
    let _held = names.map(|name| {
        let _scope = alloc.scope(name);
        alloc.alloc::<u8>(MIB, Stream::DEFAULT).unwrap()
    });
    let mut leaks: Vec<_> = alloc.leaks(0).unwrap().leaks;
    leaks.sort_by_key(|leak| names.iter().position(|name| *name == leak.tag));
    let told: Vec<_> = leaks.iter().map(|leak| (leak.tag.as_str(), leak.blocks)).collect();
    assert_eq!(told, names.map(|name| (name, 1)));
    assert_eq!(alloc.peak().unwrap().owners.len(), names.len());
    let snapshot = alloc.snapshot().unwrap();
    let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
    let tagged = blocks.filter(|block| block.state.active() && block.extra.is_some());
    assert_eq!(tagged.count(), 2);
    // To others they have no name.
    let shown = reader.refresh().unwrap();
    assert!(
        shown.devices[0]
            .blocks()
            .all(|block| shown.string(block.tag).is_empty())
    );
}

#[test]
fn tags_that_the_channel_has_no_room_for_are_the_other_ones() {
    let options = Options {
        strings: 16,
        ..Options::default()
    };
    let (_, alloc, mut reader) = publishing(options, Config::default());
    let held = |n: u64| {
        let _scope = alloc.scope(&format!("tag {n}"));
        alloc.alloc::<u8>(n as usize * MIB, Stream::DEFAULT).unwrap()
    };
    let _held: Vec<_> = (1..=20).map(held).collect();
    let mut tag_of = |mib: u64| {
        let shown = reader.refresh().unwrap();
        let held = shown.devices[0].blocks().find(|block| block.requested == mib << 20);
        shown.string(held.unwrap().tag).to_owned()
    };
    let tags = [1, 14, 15, 20].map(&mut tag_of);
    assert_eq!(tags, ["tag 1", "tag 14", "(other tags)", "(other tags)"]);
    // A history tells new ones apart.
    alloc.record_history(History::ON).unwrap();
    let _more = held(20);
    let mut leaks: Vec<String> = alloc.leaks(0).unwrap().leaks.into_iter().map(|leak| leak.tag).collect();
    leaks.sort();
    leaks.dedup();
    assert!(leaks.contains(&"(other tags)".to_owned()) && leaks.contains(&"tag 20".to_owned()));
    assert!(!leaks.contains(&"tag 15".to_owned()), "held before");
}

/// Whichever of them comes first.
#[test]
fn tags_leave_room_for_advice_and_advice_for_the_other_tags() {
    for before in 60..64 {
        let options = Options {
            strings: 64,
            ..Options::default()
        };
        let config = Config {
            budget: Some(256 << 20),
            ..Config::default()
        };
        let (_, alloc, mut reader) = publishing(options, config);
        let held = |n: u64| {
            let _scope = alloc.scope(&format!("tag {n}"));
            alloc.alloc::<u8>(MIB, Stream::DEFAULT).unwrap()
        };
        let _held: Vec<_> = (1..=before).map(held).collect();
        assert!(alloc.alloc::<u8>(300 * MIB, Stream::DEFAULT).is_err());
        let _others: Vec<_> = (64..70).map(held).collect();
        let shown = reader.refresh().unwrap();
        let events = reader.events().unwrap().events;
        let told = events.iter().find(|event| event.kind == EventKind::Advice).unwrap();
        assert!(shown.string(told.tag).starts_with("raise the budget"));
        let tags = shown.devices[0].blocks().map(|block| shown.string(block.tag));
        assert!(tags.filter(|tag| *tag == "(other tags)").count() >= 6, "{before}");
    }
}

#[test]
fn names_of_pools_that_come_and_go_leave_room_for_tags() {
    let options = Options {
        strings: 32,
        ..Options::default()
    };
    let (_, alloc, mut reader) = publishing(options, Config::default());
    let make = |n: u64| alloc.pool(&format!("session {n}"), PoolConfig::default()).unwrap();
    (0..100).for_each(|n| drop(make(n)));
    let pools = [make(100), make(3)];
    let _held = [7, 9].map(|mib| {
        let _scope = alloc.scope(&format!("weights {mib}"));
        alloc.alloc::<u8>(mib * MIB, Stream::DEFAULT).unwrap()
    });
    let _theirs = pools
        .each_ref()
        .map(|pool| pool.alloc::<u8>(MIB, Stream::DEFAULT).unwrap());
    let shown = reader.refresh().unwrap();
    let tags = shown.devices[0].blocks().map(|block| shown.string(block.tag));
    assert_eq!(tags.filter(|tag| tag.starts_with("weights")).count(), 2);
    let segments = &shown.devices[0].segments;
    let names = segments.iter().map(|map| shown.string(map.segment.pool_name));
    let mut names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    assert_eq!(names, ["(other pools)", "session 3"]);
}

#[test]
fn marks_leave_room_for_the_names_of_who_holds_memory() {
    let options = Options {
        strings: 16,
        ..Options::default()
    };
    let (_, alloc, mut reader) = publishing(options, Config::default());
    (0..100).for_each(|step| alloc.mark(&format!("step {step}")));
    let _scope = alloc.scope("evaluation");
    let _held = alloc.alloc::<u8>(30 * MIB, Stream::DEFAULT).unwrap();
    alloc.mark("step 3");
    let shown = reader.refresh().unwrap();
    let held = shown.devices[0].blocks().find(|block| block.requested > 0).unwrap();
    assert_eq!(shown.string(held.tag), "evaluation");
    let events = reader.events().unwrap().events;
    let marks = events.iter().filter(|event| event.kind == EventKind::Mark);
    let named: Vec<&str> = marks
        .map(|mark| shown.string(mark.tag))
        .filter(|name| !name.is_empty())
        .collect();
    assert_eq!((named.len(), named.last()), (13, Some(&"step 3")));
}

#[test]
fn memory_of_segments_beyond_the_table_is_counted() {
    let options = Options {
        segments: 2,
        ..Options::default()
    };
    let config = Config {
        segments: SegmentMode::Plain,
        ..Config::default()
    };
    let (_, alloc, mut reader) = publishing(options, config);
    let mut add_up = || {
        let snapshot = reader.refresh().unwrap();
        let shown: u64 = snapshot.devices[0].blocks().map(|block| block.size).sum();
        let reserved = alloc.stats().all().reserved_bytes.current;
        assert_eq!(shown + snapshot.untracked_bytes, reserved);
        snapshot.untracked_blocks
    };
    let mut buffers: Vec<_> = (0..5)
        .map(|_| alloc.alloc::<u8>(30 * MIB, Stream::DEFAULT).unwrap())
        .collect();
    assert_eq!(add_up(), 3);
    for size in [3 * MIB, 12 * MIB, 30 * MIB] {
        // Of those that are not shown, too.
        drop(buffers.remove(3));
        buffers.push(alloc.alloc(size, Stream::DEFAULT).unwrap());
        add_up();
    }
    drop(buffers);
    alloc.release_cached().unwrap();
    assert_eq!(add_up(), 0);
}
