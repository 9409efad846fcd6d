use gpumem_probe::Memory;

use super::*;

fn sum(parts: &Partition) -> u128 {
    let (driver, host) = (parts.driver.unwrap_or(0), parts.host.unwrap_or(0));
    let known = [
        parts.allocated,
        parts.cached,
        parts.other,
        parts.managed,
        host,
        driver,
        parts.free,
    ];
    known.iter().map(|&n| u128::from(n)).sum()
}

#[test]
fn parts_add_up_for_any_figures() {
    let odd = [0, 1, 7, 100, 1 << 40, u64::MAX];
    let any = || odd.map(Some).into_iter().chain([None]);
    for total in odd {
        for (used, free) in any().flat_map(|used| any().map(move |free| (used, free))) {
            for reserved in any() {
                for (allocated, cached) in odd.iter().flat_map(|a| odd.map(|b| (*a, b))) {
                    let memory = Memory {
                        total,
                        used,
                        reserved,
                        free,
                        ..Memory::default()
                    };
                    for parts in [Partition::of_driver, Partition::of_host].map(|of| of(&memory, allocated, cached)) {
                        assert_eq!(sum(&parts), u128::from(total), "{memory:?} {allocated} {cached}");
                        let counted = used.is_some() || free.is_some();
                        let shared = parts.host.is_some();
                        assert_eq!(parts.driver.is_some(), reserved.is_some() && counted && !shared);
                    }
                    let parts = Partition::of_publishers(total, allocated, cached);
                    assert_eq!(sum(&parts), u128::from(total), "{total} {allocated} {cached}");
                }
            }
        }
    }
}

#[test]
fn contradicting_sources_are_marked_as_skewed() {
    let memory = Memory {
        total: 100,
        used: Some(40),
        reserved: Some(10),
        free: Some(50),
        ..Memory::default()
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
fn other_stays_when_publishers_change() {
    let memory = Memory {
        total: 100,
        used: Some(60),
        reserved: Some(5),
        free: Some(35),
        ..Memory::default()
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

/// Managed memory is a part of what others use, on a moment of the past too.
#[test]
fn parts_with_managed_memory_add_up() {
    let memory = Memory {
        total: 100,
        used: Some(60),
        reserved: Some(5),
        free: Some(35),
        ..Memory::default()
    };
    for at_most in [0, 7, 20, 21, u64::MAX] {
        let mut parts = Partition::of_driver(&memory, 20, 40);
        parts.set_managed(at_most);
        assert_eq!((sum(&parts), parts.managed), (100, at_most.min(20)));
        assert_eq!(parts.holding(20, 40), parts);
        for (allocated, reserved) in [(0, 0), (45, 50), (90, 90), (200, 200)] {
            let then = parts.holding(allocated, reserved);
            assert_eq!(sum(&then), 100, "{at_most} {then:?}");
            assert_eq!(then.managed, at_most.min(then.others()));
        }
    }
}

/// Otherwise an idle GPU of a host whose programs use 34 of 128 GB would show 34 GB in use.
#[test]
fn memory_of_host_programs_is_not_counted_as_the_gpus() {
    let memory = |used| Memory {
        total: 128,
        used,
        free: Some(90),
        ..Memory::default()
    };
    for (used, publishers, expected) in [
        (Some(0), (0, 0), (0, Some(38), 90)),
        (Some(20), (0, 0), (20, Some(18), 90)),
        (Some(20), (5, 15), (5, Some(18), 90)),
        // The processes and the host are counted at different moments.
        (Some(60), (0, 0), (60, Some(0), 68)),
        // Some processes are not counted.
        (None, (5, 15), (23, None, 90)),
    ] {
        let parts = Partition::of_host(&memory(used), publishers.0, publishers.1);
        assert_eq!(
            (parts.other, parts.host, parts.free),
            expected,
            "{used:?} {publishers:?}"
        );
        assert_eq!(sum(&parts), 128);
    }
}

#[test]
fn gap_in_driver_figures_does_not_change_free() {
    let memory = Memory {
        total: 100,
        used: Some(40),
        reserved: Some(5),
        free: Some(50),
        ..Memory::default()
    };
    let parts = Partition::of_driver(&memory, 0, 0);
    assert_eq!((parts.other, parts.driver, parts.free), (45, Some(5), 50));
}
