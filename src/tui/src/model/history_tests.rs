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
fn is_bounded_and_ignores_a_clock_that_jumps_back() {
    let mut history = History::default();
    for i in 1..2000 {
        history.push(point(i * SECOND, 1));
    }
    history.push(point(5 * SECOND, 99));
    assert_eq!((history.seconds.len(), history.long.len()), (SECONDS, LONG_SAMPLES));
    assert_eq!(history.long.back().map(|p| p.at), Some(1999 * SECOND));
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
