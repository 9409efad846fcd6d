//! Free blocks set aside by exact size, and the sorts of these sizes.

use super::quick::{END, Lists, Noted, SORTS, list_of, number_of_sort, sort_of, sorts_between};
use crate::size::class_size;

const MIB: u64 = 1 << 20;

#[test]
fn sorts_of_sizes_are_in_their_order_whatever_the_word() {
    let sizes: Vec<u64> = (20..47)
        .flat_map(|power| (8..16).map(move |part| part << (power - 3)))
        .collect();
    for (at, size) in sizes.iter().enumerate() {
        let mut words = [0; SORTS];
        let (word, bit) = sort_of(size + 512);
        words[word] = bit;
        let among = |from: usize, to: usize| sorts_between(sizes[from], sizes[to], |word| words[word]);
        assert_eq!(number_of_sort(*size), at, "{size}");
        assert!(among(0, sizes.len() - 1) && among(at, at) && among(at.saturating_sub(1), at));
        assert!(at == 0 || !among(0, at - 1));
        assert!(at + 1 == sizes.len() || !among(at + 1, sizes.len() - 1));
    }
    assert_eq!((number_of_sort(512), number_of_sort(MIB)), (0, 0));
}

#[test]
fn what_was_taken_is_forgotten_once_it_is_looked_for() {
    let (lists, mut noted) = (Lists::new(), Noted::default());
    noted.put(&lists, 8 * MIB, 0);
    noted.put(&lists, 24 * MIB, 1);
    assert!(lists.may_have_between(2 * MIB, 12 * MIB) && noted.look_between(&lists, 2 * MIB, 12 * MIB));
    lists.take(8 * MIB, END);
    assert!(lists.may_have_between(2 * MIB, 12 * MIB));
    assert!(!noted.look_between(&lists, 2 * MIB, 12 * MIB) && !lists.may_have_between(2 * MIB, 12 * MIB));
    assert!(noted.look_between(&lists, 2 * MIB, 32 * MIB));
    assert_eq!(noted.take_any(&lists, |_| END), Some(1));
    assert!(noted.take_any(&lists, |_| END).is_none() && !lists.may_have_between(2 * MIB, 32 * MIB));
}

/// Another thread may set a block aside just before its lane goes by class.
#[test]
fn a_block_that_is_there_when_a_lane_begins_to_go_by_class_is_for_nobody_until_it_is_taken_back() {
    // Its list is that of 0 bytes, too.
    let size = 610 * 512;
    assert_eq!(list_of(size), list_of(0));
    let (lists, mut noted) = (Lists::new(), Noted::default());
    noted.put(&lists, size, 7);
    lists.set_by_class(true);
    assert!(
        [0, size, class_size(size)]
            .iter()
            .all(|size| lists.first(*size).is_none())
    );
    assert!(!lists.takes(size) && !lists.takes(0));
    assert_eq!(noted.take_any(&lists, |_| END), Some(7));
    assert_eq!(noted.take_any(&lists, |_| END), None);
}
