//! Which pages the CPU can reach, and the driver's policy.

use gpumem_probe::{ManagedMemory, ManagedRange, PAGE, Root, UvmPolicy};

use crate::stage::Stage;

pub(crate) fn pages() {
    const START: u64 = 0x7000_0000_0000;
    const PAGES: u64 = 2048;
    let stage = Stage::new("");
    let mut target = stage.target();
    // The driver's own mapping, at a low address.
    target.say(&format!("map {} 512", 0x2_0000_0000u64));
    target.say(&format!("map {START} {PAGES}"));
    let mut memory = ManagedMemory::new(Root::at(stage.root()));
    let map = memory.map(target.pid()).unwrap();
    let range = ManagedRange {
        start: START,
        end: START + PAGES * PAGE,
    };
    assert_eq!((&map.ranges[..], map.left_out), (&[range][..], 0));

    // Counts the present pages of each group of 256.
    let mut present = |pid| {
        let read = memory.residency(pid, &map.ranges).unwrap();
        let spans = &read[0].spans;
        [0, 1, 2, 3, 4, 5, 6, 7].map(|part| spans.present_in(256 * part..256 * (part + 1)))
    };
    assert_eq!(present(target.pid()), [0; 8]);
    target.say(&format!("touch {START} 0 1024"));
    assert_eq!(present(target.pid()), [256, 256, 256, 256, 0, 0, 0, 0]);
    target.say(&format!("leave {START} 256 512"));
    assert_eq!(present(target.pid()), [256, 0, 256, 256, 0, 0, 0, 0]);
    target.say(&format!("touch {START} 300 301"));
    assert_eq!(present(target.pid()), [256, 1, 256, 256, 0, 0, 0, 0]);
    // Residency needs no tracker.
    assert_eq!(stage.fake.requests().unwrap(), []);
}

/// The module's parameters were recorded on a machine with an H200.
pub(crate) fn recorded_policy() {
    let stage = Stage::new("");
    let expected = UvmPolicy {
        prefetch: Some(true),
        prefetch_threshold: Some(51),
        thrashing: Some(true),
        thrashing_threshold: Some(3),
        thrashing_lapse: Some(500),
        access_counters: Some(-1),
        hmm_disabled: Some(false),
        ats: Some(true),
    };
    assert_eq!(UvmPolicy::read(&Root::at(stage.root())), Some(expected));
}
