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
fn is_bounded_and_sorted_whatever_order_samplers_hand_over() {
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
fn reaches_back_by_seconds_beyond_the_samples() {
    let mut history = History::default();
    for fifth in 0..5 * 700 {
        history.push(point((fifth + 1) * SECOND / 5, fifth % 40));
    }
    assert!(history.points().zip(history.points().skip(1)).all(|(a, b)| a.at < b.at));
    assert_eq!(history.reach() / SECOND, 598);
    let newest = 700 * SECOND;
    let fine = history.points().filter(|p| p.at > newest - 60 * SECOND).count();
    let coarse = history.points().filter(|p| p.at <= newest - 540 * SECOND).count();
    assert_eq!((fine, coarse), (300, 60));
}

#[test]
fn marks_are_kept_by_time() {
    let owner = Owner::Channel(ChannelKey(0, 0));
    let process = ProcessId {
        device: DeviceKey::NvmlIndex(0),
        owner,
    };
    let mut history = History::default();
    for at in [5, 1, 3] {
        history.mark(Mark {
            at,
            kind: MarkKind::Phase,
            process,
            bytes: 0,
            text: "".into(),
        });
    }
    assert_eq!(history.marks.iter().map(|m| m.at).collect::<Vec<_>>(), [1, 3, 5]);
}
