#![allow(clippy::unwrap_used)]

use super::*;

fn points(seconds: std::ops::RangeInclusive<u64>, allocated: impl Fn(u64) -> u64) -> VecDeque<Point> {
    let memory = |s| Partition {
        total: 100,
        allocated: allocated(s),
        free: 100 - allocated(s),
        ..Partition::default()
    };
    seconds
        .map(|s| Point {
            at: s * SECOND + 7,
            memory: memory(s),
        })
        .collect()
}

#[test]
fn the_graph_of_a_quiet_machine_moves_every_fifth_second() {
    let edges: Vec<u64> = (3..=15)
        .map(|end| right_edge(&points(1..=end, |_| 40)).unwrap())
        .collect();
    assert_eq!(edges, [3, 4, 5, 5, 5, 5, 5, 10, 10, 10, 10, 10, 15]);
}

#[test]
fn a_change_shows_at_once() {
    let changed = |at: u64| move |s: u64| if s >= at { 50 } else { 40 };
    for end in 11..=14 {
        assert_eq!(right_edge(&points(1..=end, changed(end))), Some(end));
        assert_eq!(right_edge(&points(1..=end, changed(11))), Some(end));
    }
    assert_eq!(right_edge(&points(1..=17, changed(11))), Some(15));
    assert_eq!(right_edge(&VecDeque::new()), None);
}
