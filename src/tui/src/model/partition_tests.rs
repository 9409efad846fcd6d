use gpumem_probe::Memory;

use super::*;

fn sum(parts: &Partition) -> u128 {
    let driver = parts.driver.unwrap_or(0);
    [parts.allocated, parts.cached, parts.other, driver, parts.free]
        .iter()
        .map(|&n| u128::from(n))
        .sum()
}

#[test]
fn adds_up_whatever_the_sources_claim() {
    let odd = [0, 1, 7, 100, 101, 1 << 40, u64::MAX - 1, u64::MAX];
    for total in odd {
        for used in odd {
            for reserved in odd.map(Some).into_iter().chain([None]) {
                for (allocated, cached) in odd.iter().flat_map(|a| odd.map(|b| (*a, b))) {
                    let memory = Memory {
                        total,
                        used,
                        reserved,
                        free: 0,
                    };
                    let parts = Partition::of_driver(&memory, allocated, cached);
                    assert_eq!(sum(&parts), u128::from(total), "{memory:?} {allocated} {cached}");
                    assert_eq!(parts.driver.is_some(), reserved.is_some());
                    let parts = Partition::of_publishers(total, allocated, cached);
                    assert_eq!(sum(&parts), u128::from(total), "{total} {allocated} {cached}");
                }
            }
        }
    }
}

#[test]
fn says_when_the_sources_contradict_each_other() {
    let memory = Memory {
        total: 100,
        used: 40,
        reserved: Some(10),
        free: 50,
    };
    let cases = [
        // (allocated, reserved) -> (allocated, cached, other, free, skewed)
        ((10, 30), (10, 20, 10, 50, false)),
        ((10, 40), (10, 30, 0, 50, false)),
        ((10, 45), (10, 35, 0, 45, true)),
        ((45, 40), (45, 0, 0, 45, true)),
        ((95, 99), (90, 0, 0, 0, true)),
    ];
    for ((allocated, reserved), expected) in cases {
        let p = Partition::of_driver(&memory, allocated, reserved);
        let got = (p.allocated, p.cached, p.other, p.free, p.skewed);
        assert_eq!(got, expected, "allocated {allocated}, reserved {reserved}");
    }
}

#[test]
fn what_others_hold_stays_when_publishers_are_looked_at_again() {
    let memory = Memory {
        total: 100,
        used: 60,
        reserved: Some(5),
        free: 35,
    };
    let then = Partition::of_driver(&memory, 20, 40);
    assert_eq!(then.holding(20, 40), then);
    let (more, less) = (then.holding(45, 50), then.holding(0, 10));
    assert_eq!((more.allocated, more.cached, more.other, more.free), (45, 5, 20, 25));
    assert_eq!((less.allocated, less.cached, less.other, less.free), (0, 10, 20, 65));
    let most = then.holding(90, 90);
    assert_eq!(
        (most.allocated, most.other, most.free, most.driver),
        (90, 5, 0, Some(5))
    );
}
