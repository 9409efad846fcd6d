//! The driver's prefetch: which pages it adds to those that faulted.
//!
//! A binary tree lies over the 512 pages of a block. Each fault counts as its whole big page of 64 KiB. For each fault the driver
//! takes the largest node of the tree on the way up in which more than 51 % of the pages are resident at the destination, or
//! faulted (`compute_prefetch_region` and `grow_fault_granularity` in uvm_perf_prefetch.c).

use super::PAGES;
use super::mask::Mask;

/// Pages of a big page.
const BIG: usize = 16;
/// `uvm_perf_prefetch_threshold`.
const PERCENT: u32 = 51;

/// Returns the pages that are brought to a processor that holds `resident` and faulted on `faulted`, those among them.
pub(super) fn region(resident: Mask, faulted: Mask) -> Mask {
    let mut counted = resident;
    for first in (0..PAGES).step_by(BIG) {
        let big = Mask::range(first..first + BIG);
        if !big.and(faulted).is_empty() {
            counted = counted.or(big);
        }
    }
    let mut region = Mask::default();
    for page in faulted.pages() {
        // Faults that an earlier one's region covers would give the same region or a part of it.
        if !region.has(page) {
            region = region.or(around(counted, page));
        }
    }
    region
}

/// Returns the largest node around a page that is dense enough.
fn around(counted: Mask, page: usize) -> Mask {
    let mut region = Mask::one(page);
    let mut pages = BIG;
    while pages <= PAGES {
        let first = page / pages * pages;
        let node = Mask::range(first..first + pages);
        if counted.and(node).count() * 100 > pages as u32 * PERCENT {
            region = node;
        }
        pages *= 2;
    }
    region
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_fault_brings_its_big_page() {
        assert_eq!(region(Mask::default(), Mask::one(37)), Mask::range(32..48));
    }

    #[test]
    fn half_of_a_node_is_not_enough() {
        assert_eq!(region(Mask::range(0..16), Mask::one(16)), Mask::range(0..32));
        assert_eq!(region(Mask::default(), Mask::range(0..256)), Mask::range(0..256));
    }

    #[test]
    fn block_is_filled_once_more_than_half_of_it_has_faulted() {
        let mut faulted = Mask::default();
        (0..PAGES).step_by(2 * BIG).for_each(|page| faulted.set(page));
        assert_eq!(region(Mask::default(), faulted).count(), 256);
        faulted.set(BIG);
        assert_eq!(region(Mask::default(), faulted), Mask::all());
    }
}
