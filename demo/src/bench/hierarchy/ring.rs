//! The order of a ring of pointers.

/// Returns a random order in which a walk visits each of `nodes` nodes once before it is back: node `i` points to node `next[i]`.
///
/// This is Sattolo's algorithm, which makes every cyclic order equally likely. A shuffle alone would leave short cycles, and a
/// walk in one of them would see only a part of the working set.
pub(crate) fn random_cycle(nodes: u32, seed: u64) -> Vec<u32> {
    let mut next: Vec<u32> = (0..nodes).collect();
    let mut random = SplitMix(seed);
    for last in (1..next.len()).rev() {
        next.swap(last, random.below(last));
    }
    next
}

/// Returns the node after `hops` hops from `from`.
pub(crate) fn walk(next: &[u32], from: u32, hops: u32) -> Option<u32> {
    let (mut node, mut left) = (from, hops);
    // A plain loop: a run walks tens of millions of hops, and tests do so without optimisation.
    while left > 0 {
        node = *next.get(node as usize)?;
        left -= 1;
    }
    Some(node)
}

/// SplitMix64, a random number generator (Steele, Lea and Flood, 2014).
struct SplitMix(u64);

impl SplitMix {
    /// Returns a number below `limit`. Its bias is below 2^-32 for fewer than 2^32 nodes.
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        // The upper half of the product is the number scaled to the limit.
        ((u128::from(z) * limit as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn walk_visits_every_node_once(nodes in 1u32..3000, seed: u64) {
            let next = random_cycle(nodes, seed);
            let mut seen = vec![false; next.len()];
            let mut node = 0;
            for _ in 0..nodes {
                prop_assert!(!std::mem::replace(&mut seen[node as usize], true));
                node = next[node as usize];
            }
            prop_assert_eq!(node, 0);
        }
    }

    #[test]
    fn order_is_random_and_repeatable() {
        assert_eq!(random_cycle(1000, 1), random_cycle(1000, 1));
        assert_ne!(random_cycle(1000, 1), random_cycle(1000, 2));
        let next = random_cycle(100_000, 1);
        let near = next
            .iter()
            .zip(0u32..)
            .filter(|(next, at)| next.abs_diff(*at) < 1000)
            .count();
        // Of a random order 2 % of the neighbours are within 1000 nodes.
        assert!((1500..2500).contains(&near), "{near}");
        assert!(random_cycle(0, 1).is_empty());
    }

    #[test]
    fn walk_ends_where_the_pointers_lead() {
        assert_eq!(walk(&[2, 0, 1], 0, 0), Some(0));
        assert_eq!(walk(&[2, 0, 1], 0, 2), Some(1));
        assert_eq!(walk(&[2, 0, 1], 0, 300), Some(0));
        assert_eq!(walk(&[7], 0, 2), None);
    }
}
