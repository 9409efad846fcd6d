#![allow(clippy::unwrap_used)]

use std::collections::{BTreeSet, HashMap};

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

#[test]
fn a_rank_is_the_key_in_order() {
    let top = crate::size::MAX_REQUEST * 2 - MIN_BLOCK;
    let sizes = [MIN_BLOCK, 2 * MIN_BLOCK, 1 << 20, top];
    let addrs = [0, 256, 1 << 32, (1 << 57) - 256, u64::MAX - 255];
    let blocks = [0, 1, u32::MAX - 1];
    let keys = sizes.iter().flat_map(|size| {
        let of = move |addr| {
            blocks.map(|block| Key {
                size: *size,
                addr,
                block,
            })
        };
        addrs.into_iter().flat_map(of)
    });
    let keys: Vec<Key> = keys.collect();
    assert!(keys.is_sorted());
    assert!(keys.iter().map(|key| key.rank()).is_sorted_by(|a, b| a < b));
    assert!(keys.iter().all(|key| Key::of(key.rank()) == *key));
    assert!(
        keys.iter()
            .all(|key| !is_none(key.rank()) && least(key.size) <= key.rank())
    );
    let smaller = keys.iter().filter(|key| key.size < top).count();
    assert_eq!(keys.partition_point(|key| key.rank() < least(top)), smaller);
}

#[test]
fn the_largest_blocks_are_looked_at_and_not_many_more_than_wanted() {
    let mut index = FreeIndex::new();
    for block in 0..10_000 {
        let (size, addr) = (u64::from(block % 1000 + 1) * 4096, u64::from(block) << 32);
        index.insert(Key { size, addr, block });
    }
    let mut seen = Vec::new();
    index.each_of_largest((100, 0), false, |key| {
        seen.push(key.size);
        true
    });
    // Ten of each size, and up to 32 sizes to a bin.
    assert!((100..100 + 320).contains(&seen.len()), "{}", seen.len());
    seen.sort_unstable();
    let largest = (0..seen.len() as u64).rev().map(|i| (1000 - i / 10) * 4096);
    assert_eq!(seen, largest.collect::<Vec<u64>>());
    seen.clear();
    index.each_of_largest((usize::MAX, 0), false, |key| {
        seen.push(key.size);
        true
    });
    assert_eq!(seen.len(), 10_000);
    // However many it takes.
    seen.clear();
    index.each_of_largest((100, 10 << 30), false, |key| {
        seen.push(key.size);
        true
    });
    assert!((2000..6000).contains(&seen.len()), "{}", seen.len());
    assert!(seen.iter().sum::<u64>() >= 10 << 30);
}

/// Pages of a cache are all of one size: no more of them are looked at than are of use.
#[test]
fn of_a_bin_of_very_many_only_so_many_are_looked_at() {
    let mut index = FreeIndex::new();
    for block in 0..40_000u32 {
        let addr = u64::from(block.reverse_bits()) << ALIGNMENT;
        let size = 2 << 20;
        index.insert(Key { size, addr, block });
    }
    let mut all = Vec::new();
    index.each(|key| all.push(key));
    all.sort_unstable();
    for (least, every, wanted) in [
        ((1000, 0), 1, 1000),
        ((10, 4096 << 20), 1, 2048),
        ((1000, 0), 16, 16_000),
    ] {
        let mut seen = Vec::new();
        index.each_of_largest(least, false, |key| {
            seen.push(key);
            seen.len().is_multiple_of(every)
        });
        // Those that a look at all of them would take.
        assert!(seen.iter().eq(all.iter().rev().take(wanted)), "{}", seen.len());
    }
    let mut seen = 0;
    index.each_of_largest((1000, 0), true, |_| {
        seen += 1;
        true
    });
    assert_eq!(seen, all.len());
}

/// All orders of some things.
fn orders<T: Copy>(of: &[T]) -> Vec<Vec<T>> {
    if of.is_empty() {
        return vec![Vec::new()];
    }
    let first = |at: usize| {
        let mut others = of.to_vec();
        let first = others.remove(at);
        orders(&others)
            .into_iter()
            .map(move |order| [vec![first], order].concat())
    };
    (0..of.len()).flat_map(first).collect()
}

#[test]
fn a_bin_of_many_knows_its_best_whatever_is_taken_out_first() {
    // More than a list holds, of three sizes of one bin.
    let keys = [0, 1, 2, 3, 4, 5].map(|n| Key {
        size: (64 + u64::from(n) % 3) * MIN_BLOCK,
        addr: u64::from(n) << 20,
        block: n,
    });
    for order in orders(&keys) {
        let mut index = FreeIndex::new();
        let mut places: HashMap<u32, Place> = keys.iter().map(|key| (key.block, index.insert(*key))).collect();
        let mut set: BTreeSet<Key> = keys.into_iter().collect();
        for key in order {
            places.insert(index.remove(key, places[&key.block]), places[&key.block]);
            set.remove(&key);
            for size in [64, 65, 66].map(|units| units * MIN_BLOCK) {
                let low = Key {
                    size,
                    addr: 0,
                    block: 0,
                };
                assert_eq!(index.best_fit(size).key(), set.range(low..).next().copied());
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u64),
    Remove(prop::sample::Index),
    /// What serves so many bytes.
    Fit(u64),
}

fn op() -> impl Strategy<Value = Op> {
    // Some bins come to have very many.
    let size = prop_oneof![Just(7u64), 64u64..68, 1u64..40, 1u64..4096, 1u64..4_000_000];
    prop_oneof![
        5 => size.clone().prop_map(Op::Insert),
        3 => any::<prop::sample::Index>().prop_map(Op::Remove),
        4 => (size, 0..MIN_BLOCK).prop_map(|(units, less)| Op::Fit(units * MIN_BLOCK - less)),
    ]
}

proptest! {
    /// The index answers as one sorted set would.
    #[test]
    fn same_as_a_sorted_set(ops in prop::collection::vec(op(), 1..1000)) {
        let mut index = FreeIndex::new();
        let (mut set, mut places) = (BTreeSet::new(), HashMap::new());
        for (i, op) in ops.into_iter().enumerate() {
            match op {
                Op::Insert(units) => {
                    // Neither addresses nor slots grow with time.
                    let addr = (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) & !255;
                    let key = Key { size: units * MIN_BLOCK, addr, block: (i as u32).reverse_bits() };
                    places.insert(key.block, index.insert(key));
                    set.insert(key);
                }
                Op::Remove(which) if !set.is_empty() => {
                    let key = *set.iter().nth(which.index(set.len())).unwrap();
                    let moved = index.remove(key, places[&key.block]);
                    places.insert(moved, places[&key.block]);
                    set.remove(&key);
                }
                Op::Remove(_) => {}
                Op::Fit(size) => {
                    let low = Key { size, addr: 0, block: 0 };
                    prop_assert_eq!(index.best_fit(size).key(), set.range(low..).next().copied());
                    let found = index.low_fit(size).key();
                    let nearest = set.range(low..).next();
                    prop_assert_eq!(found.is_some(), nearest.is_some());
                    if let (Some(found), Some(nearest)) = (found, nearest) {
                        prop_assert!(set.contains(&found) && found.size >= size);
                        prop_assert_eq!(found.size == size, nearest.size == size);
                        prop_assert!(found.addr <= nearest.addr || nearest.size == size);
                    }
                }
            }
            let mut all = Vec::new();
            index.each(|key| all.push(key));
            all.sort_unstable();
            prop_assert!(all.iter().eq(&set));
            for size in [all.len() as u64 * 11, 65, 1 << 20].map(|units| (units + 1) * MIN_BLOCK) {
                let mut large = Vec::new();
                index.each_from(size, |key| large.push(key));
                large.sort_unstable();
                prop_assert!(large.iter().eq(all.iter().filter(|key| key.size >= size)));
            }
            let largest = set.last().map_or(0, |key: &Key| key.size);
            prop_assert_eq!(index.largest_and_count(), (largest, set.len() as u64));
            prop_assert_eq!(index.is_empty(), set.is_empty());
        }
    }
}
