#![allow(clippy::unwrap_used)]

use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};

use gpumem_channel::{Block, BlockState, Device, DeviceStats, Options, Publisher, Segment, SegmentKind, Touched};

use super::*;
use crate::model::{MarkKind, SECOND};

/// Creates a publisher in its own directory, with one segment of one free block.
fn publisher(name: &str) -> (PathBuf, Publisher) {
    publisher_of(name, SegmentKind::Plain)
}

fn publisher_of(name: &str, kind: SegmentKind) -> (PathBuf, Publisher) {
    let dir = PathBuf::from(format!("/dev/shm/gpumem-open-test-{name}-{}", std::process::id()));
    std::fs::DirBuilder::new().mode(0o700).create(&dir).unwrap();
    let options = Options {
        dir: Some(dir.clone()),
        blocks: 1024,
        segments: 64,
        events: 64,
        ..Options::default()
    };
    let mut publisher = Publisher::create(&options).unwrap();
    publisher.set_device(
        0,
        &Device {
            total: 1 << 30,
            ..Device::default()
        },
    );
    let segment = Segment {
        addr: 1 << 21,
        size: 1 << 21,
        mapped: 1 << 21,
        kind,
        ..Segment::default()
    };
    let block = Block {
        addr: 1 << 21,
        size: 1 << 21,
        state: BlockState::Free,
        ..Block::default()
    };
    publisher.segment_begin(0);
    publisher.block(0, &block, None);
    publisher.segment_end(0, Some((&segment, Some(0))));
    let mut stats = DeviceStats::default();
    stats.large.segment.add(1);
    stats.large.reserved_bytes.add(1 << 21);
    stats.all_peaks = stats.large.figures().map(|stat| stat.peak);
    publisher.stats(0, &stats, Touched::ALL);
    (dir, publisher)
}

/// Opens a channel that was not read before.
fn opened(path: &Path) -> Open {
    let found = Found::named(path).unwrap();
    let reader = found.open().unwrap();
    Open::new(found, reader, None)
}

fn pass(open: &mut Open, selected: bool) -> Channel {
    let mut sample = ChannelSample::default();
    open.pass(ChannelKey(1, 2), selected, &mut sample);
    assert_eq!(sample.problems, []);
    sample.channels.remove(0)
}

#[test]
fn failed_request_is_kept_until_as_much_is_served() {
    let (dir, mut publisher) = publisher("oom");
    let mut open = opened(publisher.path());
    pass(&mut open, false);
    let mut tell = |kind, requested| {
        publisher.event(&Event {
            kind,
            requested,
            ..Event::default()
        });
        pass(&mut open, false).figures[0]
            .as_ref()
            .unwrap()
            .ran_out
            .clone()
            .unwrap()
    };
    let failed = tell(EventKind::OutOfMemory, 3 << 21);
    assert_eq!(
        (failed.requested, failed.largest_free, failed.served),
        (3 << 21, Some(1 << 21), false)
    );
    assert!(!tell(EventKind::Alloc, 1 << 21).served);
    assert!(tell(EventKind::Alloc, 3 << 21).served);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn largest_free_block_is_shown_only_if_it_was_the_limit() {
    use EventKind::{Alloc, Free, Mark, OutOfMemory};
    let told = |name: &str, segments, kinds: &[EventKind]| {
        let (dir, mut publisher) = publisher_of(name, segments);
        let mut open = opened(publisher.path());
        pass(&mut open, false);
        for &kind in kinds {
            publisher.event(&Event {
                kind,
                requested: if kind == OutOfMemory { 3 << 20 } else { 1 << 20 },
                ..Event::default()
            });
        }
        let ran_out = pass(&mut open, false).figures[0]
            .as_ref()
            .unwrap()
            .ran_out
            .clone()
            .unwrap();
        std::fs::remove_dir_all(dir).unwrap();
        ran_out.largest_free
    };
    let plain = SegmentKind::Plain;
    assert_eq!(told("lacked", plain, &[Free, OutOfMemory, Mark]), Some(2 << 20));
    assert_eq!(
        told("freed", plain, &[OutOfMemory, Free]),
        None,
        "it may be from after the free"
    );
    assert_eq!(told("taken", plain, &[OutOfMemory, Alloc]), None);
    assert_eq!(told("again", plain, &[OutOfMemory, Free, OutOfMemory]), Some(2 << 20));
    assert_eq!(
        told("stitched", SegmentKind::Stitched, &[OutOfMemory]),
        None,
        "several serve one request"
    );
}

/// Otherwise they would be phases of the program.
#[test]
fn monitor_marks_are_not_phases() {
    let (dir, mut publisher) = publisher("monitor");
    let mut open = opened(publisher.path());
    pass(&mut open, false);
    let names = [
        ("forward", 0),
        ("monitor: fragmented", 0),
        ("a monitor: mine", 0),
        ("step", 41),
    ];
    for (name, size) in names {
        let tag = publisher.intern_mark(name);
        publisher.event(&Event {
            kind: EventKind::Mark,
            tag,
            size,
            ..Event::default()
        });
    }
    let mut sample = ChannelSample::default();
    open.pass(ChannelKey(1, 2), false, &mut sample);
    let told: Vec<_> = sample
        .marks
        .iter()
        .map(|mark| (mark.kind, &*mark.text, mark.number))
        .collect();
    assert_eq!(
        told,
        [
            (MarkKind::Phase, "forward", 0),
            (MarkKind::Monitor, "fragmented", 0),
            (MarkKind::Phase, "a monitor: mine", 0),
            (MarkKind::Phase, "step", 41)
        ]
    );
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn virtual_segments_are_marked_like_plain_ones() {
    use EventKind::{SegmentAlloc, SegmentFree, SegmentMap, SegmentUnmap};
    let (dir, mut publisher) = publisher("marks");
    let mut open = opened(publisher.path());
    pass(&mut open, false);
    for (kind, size) in [(SegmentAlloc, 1), (SegmentMap, 2), (SegmentFree, 4), (SegmentUnmap, 8)] {
        publisher.event(&Event {
            kind,
            size,
            ..Event::default()
        });
    }
    let mut sample = ChannelSample::default();
    open.pass(ChannelKey(1, 2), false, &mut sample);
    let sum = |kind: MarkKind| -> u64 { sample.marks.iter().filter(|m| m.kind == kind).map(|m| m.bytes).sum() };
    assert_eq!((sum(MarkKind::SegmentTaken), sum(MarkKind::SegmentFreed)), (3, 12));
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn glance_sums_live_publishers() {
    let (dir, publisher) = publisher("glance");
    let path = publisher.path().to_owned();
    let mut open = opened(&path);
    let mut held = BTreeMap::new();
    open.glance(ChannelKey(1, 2), &mut held);
    open.glance(ChannelKey(1, 2), &mut held);
    assert_eq!(held.len(), 1, "one device");
    assert_eq!(
        held.values().map(|h| (h.allocated, h.reserved)).next().unwrap(),
        (0, 2 << 21),
        "read twice, so counted twice"
    );
    drop(publisher);
    held.clear();
    open.glance(ChannelKey(1, 2), &mut held);
    assert!(held.is_empty(), "the dead hold nothing");
    assert_eq!(
        pass(&mut open, false).snapshot.life,
        Life::Closed,
        "the next pass reports the end"
    );
    std::fs::remove_dir_all(dir).unwrap();
}

/// A channel that is opened late has overwritten most of its events.
#[test]
fn events_overwritten_before_the_first_pass_are_not_lost() {
    let (dir, mut publisher) = publisher("late");
    let mut open = opened(publisher.path());
    let mut lost = || {
        (0..200).for_each(|_| publisher.event(&Event::default()));
        let mut sample = ChannelSample::default();
        open.pass(ChannelKey(1, 2), false, &mut sample);
        sample.lost.iter().map(|&(_, count)| count).collect::<Vec<_>>()
    };
    assert_eq!(lost(), [0], "that there were some is reported");
    assert!(lost()[0] >= 100);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn black_box_says_when_its_program_was_last_alive() {
    let (dir, silent) = publisher("sign");
    let path = silent.path().to_owned();
    let mut early = opened(&path);
    let living = pass(&mut early, false);
    assert_eq!(living.last_sign, None, "it lives");
    drop(silent);
    let mut late = opened(&path);
    assert_eq!(pass(&mut late, false).last_sign, None, "it has no events");
    assert_eq!(
        pass(&mut early, false).last_sign,
        Some(living.read_at),
        "it was seen alive"
    );
    std::fs::remove_dir_all(dir).unwrap();
    let (dir, mut busy) = publisher("signs");
    let path = busy.path().to_owned();
    busy.event(&Event::default());
    drop(busy);
    let mut late = opened(&path);
    let event = pass(&mut late, false);
    assert!(event.last_sign.unwrap() < event.read_at);
    assert_eq!(pass(&mut late, true).last_sign, event.last_sign, "it keeps it");
    std::fs::remove_dir_all(dir).unwrap();
}

/// The program is in a time namespace whose clock is ahead of ours by days.
#[test]
fn black_box_of_another_clock_has_no_end_time() {
    const AHEAD: u64 = 11 * 24 * 3600 * SECOND;
    let (dir, mut publisher) = publisher("ahead");
    let path = publisher.path().to_owned();
    let mut seen = opened(&path);
    let living = pass(&mut seen, false);
    let before = clock::now();
    publisher.event(&Event {
        kind: EventKind::OutOfMemory,
        requested: 7 << 20,
        ..Event::default()
    });
    // Events are timed by the coarse clock, which may lag by a tick of the kernel.
    let times = before - SECOND / 20..=clock::now();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let mut changed = 0;
    for (i, word) in std::fs::read(&path).unwrap().chunks_exact(8).enumerate() {
        let word = u64::from_le_bytes(word.try_into().unwrap());
        if times.contains(&word) {
            file.write_all_at(&(word + AHEAD).to_le_bytes(), 8 * i as u64).unwrap();
            changed += 1;
        }
    }
    assert!(changed > 0, "this test changes nothing");
    let failed = |channel: &Channel| channel.figures[0].as_ref().unwrap().ran_out.clone().unwrap().at;
    let now = pass(&mut seen, false);
    assert!(
        (living.read_at..=clock::now()).contains(&failed(&now)),
        "it was seen to happen"
    );
    drop(publisher);
    let ended = pass(&mut seen, false).last_sign.unwrap();
    assert!((now.read_at..=clock::now()).contains(&ended), "it was seen alive");
    let mut late = opened(&path);
    assert_eq!(pass(&mut late, false).last_sign, None, "it is not known");
    std::fs::remove_dir_all(dir).unwrap();
}

/// The channel is opened only after the program has ended.
#[test]
fn black_box_has_the_last_failed_request() {
    let (dir, mut publisher) = publisher("failed");
    let path = publisher.path().to_owned();
    for requested in [3 << 20, 7 << 20] {
        publisher.event(&Event {
            kind: EventKind::OutOfMemory,
            requested,
            ..Event::default()
        });
    }
    publisher.event(&Event {
        kind: EventKind::Alloc,
        requested: 5 << 20,
        ..Event::default()
    });
    drop(publisher);
    let mut late = opened(&path);
    let last = pass(&mut late, false).figures[0]
        .as_ref()
        .unwrap()
        .ran_out
        .clone()
        .unwrap();
    assert_eq!((last.requested, last.largest_free, last.served), (7 << 20, None, false));
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn black_box_keeps_figures_and_loads_blocks_on_demand() {
    let (dir, publisher) = publisher("box");
    let path = publisher.path().to_owned();
    let mut open = opened(&path);
    let largest = |c: &Channel| c.figures[0].as_ref().unwrap().largest_free;
    let segments = |c: &Channel| c.snapshot.devices[0].segments.len();
    let living = pass(&mut open, false);
    assert_eq!(
        (living.snapshot.life, segments(&living), largest(&living)),
        (Life::Alive, 1, 1 << 21)
    );
    drop(publisher);
    for (selected, kept) in [(false, 0), (true, 1), (true, 1), (false, 0)] {
        let dead = pass(&mut open, selected);
        assert_eq!(
            (dead.snapshot.life, segments(&dead), largest(&dead)),
            (Life::Closed, kept, 1 << 21)
        );
        assert!(open.reader.is_none(), "nothing stays mapped");
    }
    std::fs::remove_dir_all(dir).unwrap();
    assert_eq!(
        segments(&pass(&mut open, true)),
        0,
        "removed, so only its figures are left"
    );
}

#[test]
fn figures_that_contradict_blocks_are_in_no_glance() {
    let (dir, mut publisher) = publisher("contradiction");
    let path = publisher.path().to_owned();
    let mut open = opened(&path);
    let held = |open: &mut Open| {
        let mut held = BTreeMap::new();
        open.glance(ChannelKey(1, 2), &mut held);
        held.len()
    };
    assert!(pass(&mut open, false).figures[0].is_some());
    assert_eq!(held(&mut open), 1);
    // The block of 2 MiB is still free.
    let mut stats = DeviceStats::default();
    stats.large.reserved_bytes.add(1 << 20);
    stats.all_peaks = stats.large.figures().map(|stat| stat.peak);
    publisher.stats(0, &stats, Touched::ALL);
    let channel = pass(&mut open, false);
    assert!(channel.figures[0].is_none());
    assert_eq!(
        channel.snapshot.devices[0].contradiction,
        Some("its free blocks are more than it has cached")
    );
    assert_eq!(held(&mut open), 0);
    std::fs::remove_dir_all(dir).unwrap();
}

/// Marks and steps of a program that took 2 MiB, held 1 MiB for a while and was killed with the rest of its memory.
#[test]
fn program_that_died_before_the_first_pass_tells_its_story() {
    let (dir, mut publisher) = publisher("story");
    let path = publisher.path().to_owned();
    let mut tell = |kind, size| {
        publisher.event(&Event {
            kind,
            size,
            ..Event::default()
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    tell(EventKind::SegmentAlloc, 2 << 20);
    tell(EventKind::Alloc, 1 << 20);
    tell(EventKind::OutOfMemory, 0);
    tell(EventKind::Free, 1 << 20);
    let story = |path: &Path| {
        let mut sample = ChannelSample::default();
        let mut open = opened(path);
        open.pass(ChannelKey(1, 2), false, &mut sample);
        let marks: Vec<MarkKind> = sample.marks.iter().map(|mark| mark.kind).collect();
        let held = |past: &(_, Past)| -> Vec<(u64, u64)> {
            let steps = past.1.steps.iter();
            steps.map(|step| (step.allocated >> 20, step.reserved >> 20)).collect()
        };
        let again = sample.clone();
        open.pass(ChannelKey(1, 2), false, &mut sample);
        assert_eq!((&again.marks, &again.past), (&sample.marks, &sample.past), "told once");
        (marks, sample.past.iter().map(held).collect::<Vec<_>>(), sample)
    };
    use MarkKind::{Died, Exited, OutOfMemory, SegmentTaken};
    let (marks, past, _) = story(&path);
    assert_eq!(marks, [SegmentTaken, OutOfMemory]);
    assert_eq!(past, [[(0, 2), (1, 2), (0, 2)]], "until now");
    let copy = dir.join("1-1-1.gpumem");
    std::fs::copy(&path, &copy).unwrap();
    let (marks, past, sample) = story(&copy);
    assert_eq!(marks, [SegmentTaken, OutOfMemory, Died]);
    let (last, died) = (sample.past[0].1.steps.last().unwrap(), sample.marks[2].at);
    assert_eq!(past, [[(0, 2), (1, 2)]], "until the last event");
    assert_eq!((last.until, died), (died, sample.channels[0].last_sign.unwrap()));
    drop(publisher);
    assert_eq!(story(&path).0, [SegmentTaken, OutOfMemory, Exited]);
    std::fs::remove_dir_all(dir).unwrap();
}
