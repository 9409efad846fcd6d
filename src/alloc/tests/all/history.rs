//! History, peak, leaks and snapshots as a program uses them.

use std::collections::BTreeSet;
use std::hint::black_box;

use gpumem_alloc::device::{self, SimConfig};
use gpumem_alloc::{Allocator, Buffer, Config, Error, History, Publish, SegmentMode, Snapshot, Stack, Stacks, Stream};
use gpumem_snapshot::{Action, RequestKind};

const MIB: usize = 1 << 20;

fn allocator(config: Config) -> Allocator {
    let publish = Publish::Off;
    Allocator::new(device::sim(SimConfig::default()), Config { publish, ..config }).unwrap()
}

#[inline(never)]
fn forgets(alloc: &Allocator, kept: &mut Vec<Buffer<u8>>) {
    kept.push(alloc.alloc(MIB, Stream::DEFAULT).unwrap());
}

#[inline(never)]
fn weights(alloc: &Allocator) -> Vec<Buffer<u8>> {
    let _scope = gpumem_alloc::scope("weights");
    let mut weights = Vec::new();
    // An optimiser that knew how often would make a place of each.
    for _ in 0..black_box(4) {
        weights.push(alloc.alloc(18 * MIB, Stream::DEFAULT).unwrap());
    }
    weights
}

#[inline(never)]
fn activations(alloc: &Allocator, step: usize) -> Vec<Buffer<u8>> {
    let mut activations = Vec::new();
    for n in 1..black_box(4) {
        let bytes = n * (1 + step % 3) * MIB;
        activations.push(alloc.alloc(bytes, Stream::DEFAULT).unwrap());
    }
    activations
}

/// Whether the program's innermost function of a stack is this one.
fn is_in(stack: Stack, function: &str) -> bool {
    let frames = stack.frames();
    frames
        .first()
        .is_some_and(|frame| frame.name.rsplit("::").next() == Some(function))
}

#[test]
fn a_planted_leak_is_found_by_its_place_and_told_from_weights() {
    let alloc = allocator(Config::default());
    alloc.record_history(History::ON).unwrap();
    let _weights = weights(&alloc);
    let mut kept = Vec::new();
    for step in 0..40 {
        let busy = activations(&alloc, step);
        if step % 2 == 0 {
            forgets(&alloc, &mut kept);
        }
        drop(busy);
        alloc.step();
    }
    let report = alloc.leaks(10).unwrap();
    assert_eq!((report.steps, report.leaks.len()), (40, 2), "{report}");
    let [stays, leak] = &report.leaks[..] else {
        unreachable!()
    };
    assert!(is_in(stays.stack, "weights"), "{report}");
    assert_eq!((stays.tag.as_str(), stays.blocks, stays.grows), ("weights", 4, false));
    assert!(is_in(leak.stack, "forgets"), "{report}");
    // Fifteen of them were there when the last ten steps began, and half a MiB comes with each step.
    assert_eq!((leak.blocks, leak.grows, leak.oldest_step), (16, true, 1), "{report}");
    assert_eq!(leak.growth_per_step, Some(MIB as i64 / 2), "{report}");
    assert_eq!(report.suspects(), [leak]);
    let text = report.to_string();
    let grows = text
        .find("GROWS 512 KiB a step: 16.0 MiB, 16 blocks, from step 1 on")
        .unwrap();
    assert!(grows < text.find("stays: 72.0 MiB, 4 blocks").unwrap(), "{text}");
}

#[test]
fn a_history_in_which_nothing_was_held_has_no_peak() {
    let alloc = allocator(Config::default());
    alloc.record_history(History::ON).unwrap();
    let peak = alloc.peak().unwrap();
    assert_eq!((peak.ago.as_nanos(), peak.allocated), (0, 0));
    assert_eq!(
        peak.to_string(),
        "peak: nothing was held since the history began or peaks were reset\n"
    );
}

/// As after `reset_peaks`: nothing is held, and the cache is there.
#[test]
fn what_is_reserved_where_a_history_begins_is_told_though_nothing_is_held() {
    let alloc = allocator(Config::default());
    drop(alloc.alloc::<u8>(64 * MIB, Stream::DEFAULT).unwrap());
    let reserved = alloc.stats().all().reserved_bytes.current;
    alloc.record_history(History::ON).unwrap();
    let begun = alloc.peak().unwrap();
    assert_eq!((begun.allocated, begun.reserved), (0, reserved));
    alloc.reset_peaks();
    assert_eq!(alloc.peak().unwrap(), begun);
}

#[test]
fn the_owners_at_the_peak_are_those_of_that_moment() {
    let alloc = allocator(Config::default());
    let early: Buffer<u8> = alloc.alloc(3 * MIB, Stream::DEFAULT).unwrap();
    alloc
        .record_history(History::On {
            max_events: 0,
            stacks: Stacks::Alloc,
        })
        .unwrap();
    let weights = weights(&alloc);
    let busy = activations(&alloc, 2);
    drop(weights);
    drop(early);
    let _more = activations(&alloc, 0);
    drop(busy);
    let peak = alloc.peak().unwrap();
    assert_eq!(peak.allocated, 93 * MIB as u64);
    assert!(peak.reserved >= peak.allocated);
    let owners: Vec<_> = peak
        .owners
        .iter()
        .map(|o| (o.bytes / MIB as u64, o.blocks, o.tag.as_str()))
        .collect();
    assert_eq!(owners, [(72, 4, "weights"), (18, 3, ""), (3, 1, "")]);
    assert!(is_in(peak.owners[0].stack, "weights"), "{peak}");
    assert_eq!(peak.owners[2].stack, Stack::NONE, "held before the history began");
    assert!(peak.to_string().contains("weights"), "{peak}");
    let before = "1 block  (no tag)\n      (no call stack, as what was held before the history began)\n";
    assert_eq!(peak.to_string().matches(before).count(), 1, "{peak}");
    let figures = alloc.history().unwrap();
    assert_eq!(
        (figures.events, figures.dropped > 10),
        (0, true),
        "none are kept, and nothing of this needs them"
    );
}

/// Names are the program's, or come from what it reads; a terminal is the reader's.
#[test]
fn names_of_scopes_are_shown_without_what_a_terminal_heeds() {
    let alloc = allocator(Config::default());
    alloc.record_history(History::ON).unwrap();
    let name = "a\x1b[31m\nb\u{202e}c";
    let scope = gpumem_alloc::scope(name);
    let _held = alloc.alloc::<u8>(MIB, Stream::DEFAULT).unwrap();
    drop(scope);
    for _ in 0..10 {
        alloc.step();
    }
    let (peak, leaks) = (alloc.peak().unwrap(), alloc.leaks(5).unwrap());
    assert!(!peak.to_string().contains("no call stack"), "it has one: {peak}");
    assert_eq!((&*peak.owners[0].tag, &*leaks.leaks[0].tag), (name, name));
    for text in [peak.to_string(), leaks.to_string()] {
        assert!(text.contains("  a\u{fffd}[31m\u{fffd}b\u{fffd}c\n"), "{text:?}");
    }
}

#[test]
fn off_means_nothing_is_known() {
    let alloc = allocator(Config::default());
    alloc.step();
    assert!(alloc.history().is_none() && alloc.peak().is_none() && alloc.leaks(0).is_none());
    alloc.record_history(History::ON).unwrap();
    assert!(alloc.leaks(0).unwrap().to_string().contains("nothing"));
    alloc.record_history(History::Off).unwrap();
    assert!(alloc.history().is_none());
    let too_many = History::On {
        max_events: usize::MAX,
        stacks: Stacks::None,
    };
    assert!(matches!(alloc.record_history(too_many), Err(Error::Config { .. })));
}

#[test]
fn memory_for_the_history_is_bounded() {
    let alloc = allocator(Config::default());
    alloc
        .record_history(History::On {
            max_events: 1000,
            stacks: Stacks::All,
        })
        .unwrap();
    let mut before = 0;
    for round in 0..20 {
        for step in 0..1000 {
            alloc.mark("the same");
            drop(activations(&alloc, step));
        }
        let figures = alloc.history().unwrap();
        assert_eq!((figures.events, figures.held), (1000, 0));
        if round > 0 {
            assert_eq!(figures.bytes, before);
        }
        before = figures.bytes;
    }
}

fn random(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state as usize
}

/// Going back from what is there now, as PyTorch's viewer does: each event about a block is about memory of a segment of that moment.
fn events_lie_in_segments(snapshot: &Snapshot) {
    const CHUNK: u64 = 2 << 20;
    let chunks = |addr: u64, size: u64| addr / CHUNK..(addr + size).div_ceil(CHUNK);
    let segments = snapshot.segments.iter();
    let mut memory: BTreeSet<u64> = segments.flat_map(|s| chunks(s.address, s.total_size)).collect();
    for event in snapshot.device_traces[0].iter().rev() {
        let mut chunks = chunks(event.addr, event.size.max(1));
        match event.action {
            Action::Alloc | Action::FreeRequested | Action::FreeCompleted => {
                assert!(chunks.all(|chunk| memory.contains(&chunk)), "{event:?}");
            }
            Action::SegmentFree | Action::SegmentUnmap => memory.extend(chunks),
            Action::SegmentAlloc | Action::SegmentMap => chunks.for_each(|chunk| assert!(memory.remove(&chunk))),
            _ => {}
        }
    }
}

/// A program that never repeats itself: hardly two stitched blocks have the same pieces.
#[test]
fn pieces_are_told_of_as_many_stitched_blocks_as_there_are_events_and_of_no_more() {
    let max_events = 200;
    let alloc = allocator(Config::default());
    alloc
        .record_history(History::On {
            max_events,
            stacks: Stacks::None,
        })
        .unwrap();
    let mut state = 88_172_645_463_325_252;
    let mut held: Vec<Buffer<u8>> = Vec::new();
    for round in 0..12 {
        for _ in 0..max_events {
            while held.iter().map(Buffer::len).sum::<usize>() > 1 << 30 {
                drop(held.swap_remove(random(&mut state) % held.len()));
            }
            let bytes = MIB + random(&mut state) % (40 * MIB);
            held.push(alloc.alloc(bytes, Stream::DEFAULT).unwrap());
        }
        if round % 4 == 3 {
            held.truncate(10);
            alloc.compact().unwrap();
        }
        let snapshot = alloc.snapshot().unwrap();
        events_lie_in_segments(&snapshot);
        let trace = &snapshot.device_traces[0];
        assert!(trace.len() > max_events + max_events / 2, "many are of several pieces");
        let bytes = alloc.history().unwrap().bytes;
        assert!(bytes < 400 * max_events as u64, "{bytes}");
    }
}

#[test]
fn threads_are_told_apart_and_none_is_lost() {
    // A stitched block is told as its pieces.
    let alloc = allocator(Config {
        segments: SegmentMode::Plain,
        ..Config::default()
    });
    alloc
        .record_history(History::On {
            max_events: 100_000,
            stacks: Stacks::All,
        })
        .unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..1000).for_each(|step| drop(activations(&alloc, step))));
        }
    });
    assert_eq!(
        alloc
            .peak()
            .unwrap()
            .owners
            .iter()
            .map(|owner| owner.bytes)
            .sum::<u64>(),
        alloc.peak().unwrap().allocated
    );
    let snapshot = alloc.snapshot().unwrap();
    let requests = snapshot.requests(0).count();
    assert_eq!(requests, 4 * 1000 * 3 * 2);
}

/// What a snapshot says must survive our own reader, in both formats.
#[test]
fn snapshots_are_written_and_read_again() {
    let folder = tempfile::tempdir().unwrap();
    for segments in SegmentMode::ALL {
        let alloc = allocator(Config {
            segments,
            ..Config::default()
        });
        alloc
            .record_history(History::On {
                max_events: 5000,
                stacks: Stacks::All,
            })
            .unwrap();
        let _weights = weights(&alloc);
        for step in 0..10 {
            alloc.mark("forward");
            drop(activations(&alloc, step));
        }
        let _last = activations(&alloc, 1);
        let taken = alloc.snapshot().unwrap();
        assert_eq!(taken.check(), []);
        let stats = alloc.stats().all();
        let sum = |of: fn(&gpumem_snapshot::Segment) -> u64| taken.segments.iter().map(of).sum::<u64>();
        assert_eq!(sum(|s| s.total_size), stats.reserved_bytes.current);
        assert_eq!(sum(|s| s.allocated_size), stats.allocated_bytes.current);
        assert_eq!(sum(|s| s.requested_size), stats.requested_bytes.current);
        assert_eq!(taken.external_annotations.len(), 10);
        for name in ["shot.pickle", "shot.json"] {
            let path = folder.path().join(name);
            alloc.write_snapshot(&path).unwrap();
            let read = Snapshot::read(&path).unwrap();
            assert_eq!(read.check(), []);
            assert_eq!(read.device_traces[0].len(), taken.device_traces[0].len());
            let segments = |shot: &Snapshot| {
                shot.segments
                    .iter()
                    .map(|s| (s.address, s.blocks.len()))
                    .collect::<Vec<_>>()
            };
            assert_eq!(segments(&read), segments(&taken));
            let held = read
                .segments
                .iter()
                .flat_map(|s| &s.blocks)
                .find(|b| b.requested_size == 18 * MIB as u64)
                .unwrap();
            let frames = read
                .tables
                .get_stack(held.frames)
                .iter()
                .map(|f| read.tables.get_frame(*f).unwrap());
            let names: Vec<&str> = frames.map(|frame| read.tables.get_text(frame.name)).collect();
            assert!(names.iter().any(|name| name.ends_with("weights")), "{names:?}");
        }
        let left: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .flatten()
            .map(|f| f.file_name())
            .collect();
        assert_eq!(left.len(), 2, "no parts are left: {left:?}");
    }
}

/// A block of many pieces is what the program asked for once: with and without a history, from both formats.
#[test]
fn a_snapshot_has_one_request_for_a_stitched_block() {
    let folder = tempfile::tempdir().unwrap();
    for history in [History::ON, History::Off] {
        let alloc = allocator(Config {
            segments: SegmentMode::Stitched,
            history,
            ..Config::default()
        });
        let ask = |mib: usize| alloc.alloc::<u8>(mib * MIB, Stream::DEFAULT).unwrap();
        let mut held: Vec<_> = (0..40).map(|_| Some(ask(16))).collect();
        held.iter_mut().step_by(2).for_each(|block| *block = None);
        let large = ask(300);
        assert!(
            alloc.stats().all().reserved_bytes.current < 700 * MIB as u64,
            "it is stitched"
        );
        let recorded = history != History::Off;
        for name in ["shot.pickle", "shot.json"] {
            let path = folder.path().join(name);
            alloc.write_snapshot(&path).unwrap();
            let read = Snapshot::read(&path).unwrap();
            assert_eq!(read.check(), []);
            let requests = read
                .requests(0)
                .map(|request| (request.kind, request.size, request.recorded));
            let mut requests: Vec<_> = requests.collect();
            let of = |kind, mib: usize| (kind, (mib * MIB) as u64, recorded);
            let (asked, freed) = (RequestKind::Alloc, RequestKind::Free);
            let mut expected = [vec![of(asked, 16); 40], vec![of(freed, 16); 20], vec![of(asked, 300)]].concat();
            if !recorded {
                // In the order of addresses.
                requests.sort_unstable_by_key(|request| request.1);
                expected.drain(20..60);
            }
            assert_eq!(requests, expected, "{history:?}, {name}");
        }
        drop(large);
    }
}

/// Whoever replays it has each block on its own stream, whose segment is of another one.
#[test]
fn a_snapshot_says_which_stream_a_block_is_of() {
    let folder = tempfile::tempdir().unwrap();
    let (first, other) = (Stream(7), Stream(9));
    for segments in SegmentMode::ALL {
        let alloc = allocator(Config {
            segments,
            ..Config::default()
        });
        let ask = |mib: usize, stream| alloc.alloc::<u8>(mib * MIB, stream).unwrap();
        let _stays = ask(11, first);
        drop([ask(13, first), ask(15, first)]);
        let _on_both = [ask(17, other), ask(3, other), ask(5, first)];
        let taken = alloc.snapshot().unwrap();
        let abroad = taken.segments.iter().filter(|segment| segment.stream == 7);
        let abroad = abroad.flat_map(|segment| &segment.blocks).filter(|b| b.extra.is_some());
        assert!(
            segments != SegmentMode::Stitched || abroad.count() > 0,
            "a segment has both"
        );
        for name in ["shot.pickle", "shot.json"] {
            let path = folder.path().join(name);
            alloc.write_snapshot(&path).unwrap();
            let read = Snapshot::read(&path).unwrap();
            let requests = read.requests(0).map(|request| (request.size >> 20, request.stream));
            let mut requests: Vec<_> = requests.collect();
            requests.sort_unstable();
            assert_eq!(requests, [(3, 9), (5, 7), (11, 7), (17, 9)], "{segments:?}, {name}");
        }
    }
}

#[test]
fn without_a_history_a_snapshot_has_tags_for_stacks() {
    let alloc = allocator(Config::default());
    let _weights = weights(&alloc);
    let snapshot = alloc.snapshot().unwrap();
    assert_eq!(snapshot.check(), []);
    assert!(snapshot.device_traces[0].is_empty());
    let held = snapshot
        .segments
        .iter()
        .flat_map(|s| &s.blocks)
        .find(|b| b.state.active())
        .unwrap();
    let frame = *snapshot.tables.get_stack(held.frames).first().unwrap();
    let name = snapshot.tables.get_frame(frame).unwrap().name;
    assert_eq!(snapshot.tables.get_text(name), "tag: weights");
}
