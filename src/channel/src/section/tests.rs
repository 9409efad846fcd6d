use std::collections::HashSet;

use super::*;

#[test]
fn kind_numbers_are_distinct() {
    let kinds: HashSet<u64> = SECTIONS.iter().map(|row| row.kind).collect();
    assert_eq!(kinds.len(), SECTIONS.len());
    assert!(!kinds.contains(&0), "a zeroed entry is not a section");
    // The writer relies on it.
    assert_eq!(SECTIONS.last().map(|row| row.kind), Some(5));
}

#[test]
fn every_row_has_its_own_field() {
    let mut layout = Layout::default();
    for (n, row) in SECTIONS.iter().enumerate() {
        (row.place)(&mut layout).count = n + 1;
    }
    let counts: Vec<usize> = SECTIONS.iter().map(|row| layout.section(row).count).collect();
    assert_eq!(counts, (1..=SECTIONS.len()).collect::<Vec<_>>());
}

#[test]
fn sections_are_contiguous_for_any_options() {
    let few = Options {
        blocks: 0,
        segments: 0,
        events: 0,
        strings: 0,
        devices: 0,
        lanes: 0,
        lane_events: 0,
        managed: 0,
        managed_blocks: 0,
        ..Options::default()
    };
    let many = Options {
        blocks: u32::MAX,
        segments: u32::MAX,
        events: u32::MAX,
        strings: u32::MAX,
        devices: u32::MAX,
        lanes: u32::MAX,
        lane_events: 1 << 10,
        managed: u32::MAX,
        managed_blocks: u32::MAX,
        sampled: true,
        ..Options::default()
    };
    for options in [few, Options::default(), many] {
        let layout = Layout::of(&options);
        let mut end = layout.header().len();
        for row in SECTIONS {
            let section = layout.section(row);
            assert!(row.optional || section.count > 0, "{}", row.kind);
            if section.count > 0 {
                assert!(
                    section.start >= end && section.start.is_multiple_of(row.align),
                    "{}",
                    row.kind
                );
                assert!(section.stride >= row.words, "{}", row.kind);
                end = section.record(section.count).start;
            }
        }
        assert_eq!(end.next_multiple_of(8), layout.len);
    }
}
