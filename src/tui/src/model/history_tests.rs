use super::*;
use crate::model::{ChannelKey, DeviceKey, Owner};

fn point(at: Nanos, allocated: u64) -> Point {
    Point {
        at,
        memory: Partition {
            total: 100,
            allocated,
            free: 100 - allocated,
            ..Partition::default()
        },
    }
}

#[test]
fn a_second_keeps_its_highest_sample() {
    let mut history = History::default();
    for (tenth, used) in [(0, 10), (3, 60), (9, 20), (10, 5), (12, 7)] {
        history.push(point(tenth * SECOND / 10, used));
    }
    let used: Vec<_> = history.seconds.iter().map(|p| p.memory.used()).collect();
    assert_eq!(used, [60, 7]);
    assert_eq!(history.long.len(), 5);
}

#[test]
fn points_are_bounded_and_sorted_in_any_order() {
    let mut history = History::default();
    for i in 1..2000 {
        history.push(point(i * SECOND, 1));
    }
    history.push(point(5 * SECOND, 99));
    assert_eq!((history.seconds.len(), history.long.len()), (MAX_POINTS, MAX_POINTS));
    history.push(point(1990 * SECOND + 7, 99));
    history.push(point(1990 * SECOND + 7, 50));
    assert_eq!((history.seconds.len(), history.long.len()), (MAX_POINTS, MAX_POINTS));
    assert!(
        history
            .long
            .iter()
            .zip(history.long.iter().skip(1))
            .all(|(a, b)| a.at < b.at)
    );
    let late = history.seconds.iter().find(|p| p.at / SECOND == 1990);
    assert_eq!(late.map(|p| p.memory.allocated), Some(99));
}

#[test]
fn seconds_reach_further_back_than_samples() {
    let mut history = History::default();
    for fifth in 0..5 * 700 {
        history.push(point((fifth + 1) * SECOND / 5, fifth % 40));
    }
    assert!(history.tops().zip(history.tops().skip(1)).all(|(a, b)| a.0 < b.0));
    assert_eq!(history.reach() / SECOND, 598);
    let newest = 700 * SECOND;
    let fine = history.tops().filter(|p| p.0 > newest - 60 * SECOND).count();
    let coarse = history.tops().filter(|p| p.0 <= newest - 540 * SECOND).count();
    assert_eq!((fine, coarse), (300, 60));
}

fn mark(at: u64, kind: MarkKind, bytes: u64) -> Mark {
    let owner = Owner::Channel(ChannelKey(0, 0));
    let process = ProcessId {
        device: DeviceKey::NvmlIndex(0),
        owner,
    };
    Mark {
        at,
        kind,
        process,
        bytes,
        number: 0,
        text: "".into(),
    }
}

#[test]
fn marks_are_kept_by_time() {
    let mut history = History::default();
    for at in [5, 1, 3] {
        history.mark(mark(at, MarkKind::Phase, 0));
    }
    assert_eq!(history.marks.iter().map(|m| m.at).collect::<Vec<_>>(), [1, 3, 5]);
}

#[test]
fn memory_taken_for_tags_in_turn_is_one_mark_each() {
    let mut history = History::default();
    for (at, text) in [(10, "a"), (20, "b"), (30, "a"), (40, "b"), (50, "a"), (SECOND, "a")] {
        history.mark(Mark {
            text: text.into(),
            ..mark(at, MarkKind::SegmentTaken, at)
        });
    }
    let marks: Vec<_> = history.marks.iter().map(|m| (m.at, &*m.text, m.bytes)).collect();
    assert_eq!(marks, [(40, "b", 60), (50, "a", 90), (SECOND, "a", SECOND)]);
}

#[test]
fn memory_taken_in_pieces_is_one_mark_a_second() {
    use MarkKind::{OutOfMemory, SegmentFreed, SegmentTaken};
    let mut history = History::default();
    for (at, kind, bytes) in [
        (10, SegmentTaken, 1),
        (20, SegmentTaken, 2),
        (30, SegmentFreed, 4),
        (40, SegmentTaken, 8),
        (SECOND + 1, SegmentTaken, u64::MAX),
        (SECOND + 2, SegmentTaken, 16),
        (SECOND + 3, OutOfMemory, 32),
        (SECOND + 4, OutOfMemory, 32),
    ] {
        history.mark(mark(at, kind, bytes));
    }
    let marks: Vec<_> = history.marks.iter().map(|m| (m.at, m.kind, m.bytes)).collect();
    let expected = [
        (20, SegmentTaken, 3),
        (30, SegmentFreed, 4),
        (40, SegmentTaken, 8),
        (SECOND + 2, SegmentTaken, u64::MAX),
        (SECOND + 3, OutOfMemory, 32),
        (SECOND + 4, OutOfMemory, 32),
    ];
    assert_eq!((marks, history.marks_lost), (expected.to_vec(), 0));
}

#[test]
fn routine_marks_do_not_displace_a_failed_request() {
    let mut history = History::default();
    history.mark(mark(1, MarkKind::OutOfMemory, 7));
    for second in 1..=2 * MAX_MARKS as u64 {
        history.mark(mark(second * SECOND, MarkKind::SegmentTaken, 1));
    }
    assert_eq!(
        (history.marks.len(), history.marks[0].kind),
        (MAX_MARKS, MarkKind::OutOfMemory)
    );
    assert_eq!((history.marks_lost, history.marks_dropped), (0, MAX_MARKS as u64 + 1));
    assert_eq!(
        history.marks[1].at,
        (MAX_MARKS as u64 + 2) * SECOND,
        "the oldest of the others was dropped"
    );
}

/// Programs may mark every step.
#[test]
fn phases_do_not_displace_memory_events() {
    let mut history = History::default();
    history.mark(mark(1, MarkKind::OutOfMemory, 7));
    history.mark(mark(2, MarkKind::CacheReleased, 7));
    history.mark(mark(3, MarkKind::SegmentTaken, 7));
    for at in 0..2 * MAX_MARKS as u64 {
        history.mark(mark(10 + at, MarkKind::Phase, 0));
    }
    let kinds: Vec<_> = history.marks.iter().take(4).map(|mark| mark.kind).collect();
    let first = [
        MarkKind::OutOfMemory,
        MarkKind::CacheReleased,
        MarkKind::SegmentTaken,
        MarkKind::Phase,
    ];
    assert_eq!((kinds, history.marks.len()), (first.to_vec(), MAX_MARKS));
    assert_eq!(history.dropped_until, 0, "only phases were dropped");
    // Among the other kinds, failed requests are dropped last.
    for at in 0..2 * MAX_MARKS as u64 {
        history.mark(mark(10_000 + at, MarkKind::Retry, 0));
    }
    assert_eq!(
        (history.marks[0].kind, history.marks[1].kind),
        (MarkKind::OutOfMemory, MarkKind::Retry)
    );
    assert!(
        (10_000..12_000).contains(&history.dropped_until),
        "{}",
        history.dropped_until
    );
}

/// Returns the edge after a device's memory was sampled every second from 1 to `end`.
fn edge(end: u64, allocated: impl Fn(u64) -> u64) -> Option<u64> {
    let mut history = History::default();
    for second in 1..=end {
        let memory = Partition {
            total: 100,
            allocated: allocated(second),
            free: 100 - allocated(second),
            ..Partition::default()
        };
        let at = second * SECOND + 7;
        history.push(Point { at, memory });
    }
    history.edge()
}

#[test]
fn edge_of_an_idle_machine_moves_every_fifth_second() {
    let edges: Vec<u64> = (3..=15).filter_map(|end| edge(end, |_| 40)).collect();
    assert_eq!(edges, [3, 4, 5, 5, 5, 5, 5, 10, 10, 10, 10, 10, 15]);
    assert_eq!(History::default().edge(), None);
}

#[test]
fn a_change_moves_the_edge_at_once() {
    let changed = |at: u64| move |s: u64| if s >= at { 50 } else { 40 };
    for end in 11..=14 {
        assert_eq!(edge(end, changed(end)), Some(end));
        assert_eq!(edge(end, changed(11)), Some(end));
    }
    assert_eq!(edge(17, changed(11)), Some(15));
}

/// Samples are forgotten before seconds are.
#[test]
fn second_keeps_the_least_and_the_most_of_its_samples() {
    let mut history = History::default();
    for tenth in 0..2 * MAX_POINTS as u64 {
        let memory = Partition {
            total: 100,
            allocated: [7, 90, 1, 50, 4][tenth as usize % 5],
            ..Partition::default()
        };
        let at = 1000 * SECOND + tenth * SECOND / 5;
        history.push(Point { at, memory });
    }
    let oldest = history.tops().next();
    let oldest = oldest.map(|(at, tops)| (at / SECOND, tops.least[0], tops.most[0]));
    assert_eq!(oldest, Some((1000, 1, 90)));
}
