#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

#[test]
fn bins_grow_with_size_and_stay_in_range() {
    let mut last = 0;
    for units in 1..100_000u64 {
        let bin = bin_of(units * MIN_BLOCK);
        assert!(bin == last || bin == last + 1, "{units}: {last} then {bin}");
        last = bin;
    }
    assert!(bin_of(crate::size::MAX_REQUEST * 2) < BINS);
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u64),
    Remove(prop::sample::Index),
    Fit(u64),
}

fn op() -> impl Strategy<Value = Op> {
    // Some bins come to have very many.
    let size = prop_oneof![Just(7u64), 64u64..68, 1u64..40, 1u64..4096, 1u64..4_000_000];
    prop_oneof![
        5 => size.clone().prop_map(Op::Insert),
        3 => any::<prop::sample::Index>().prop_map(Op::Remove),
        4 => size.prop_map(Op::Fit),
    ]
}

proptest! {
    /// The index answers as one sorted set would.
    #[test]
    fn same_as_a_sorted_set(ops in prop::collection::vec(op(), 1..1000)) {
        let mut index = FreeIndex::new();
        let mut set = BTreeSet::new();
        for (i, op) in ops.into_iter().enumerate() {
            match op {
                Op::Insert(units) => {
                    let key = Key { size: units * MIN_BLOCK, addr: (i as u64) << 30, block: i as u32 };
                    index.insert(key);
                    set.insert(key);
                }
                Op::Remove(which) if !set.is_empty() => {
                    let key = *set.iter().nth(which.index(set.len())).unwrap();
                    index.remove(key);
                    set.remove(&key);
                }
                Op::Remove(_) => {}
                Op::Fit(units) => {
                    let low = Key { size: units * MIN_BLOCK, addr: 0, block: 0 };
                    prop_assert_eq!(index.best_fit(low.size), set.range(low..).next().copied());
                    prop_assert!(index.at_least(low.size).eq(set.range(low..).copied()));
                }
            }
        }
    }
}
