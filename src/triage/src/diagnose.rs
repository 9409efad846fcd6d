//! From figures to a verdict.
//!
//! The order matters: a request that is larger than the device says nothing of fragmentation, and other processes come before it.

use gpumem_text::units::bytes as text;

use crate::pytorch::Figures;
use crate::verdict::Verdict;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// A context, cuBLAS's workspace and a few kernels stay below this.
const OUTSIDE: u64 = 3 * GIB / 2;
/// The largest GPU has 288 GB. What is larger fits none.
pub(crate) const LARGEST_DEVICE: u64 = 300 * GIB;

/// Finds the verdict for the figures of an allocator that reserves and caches, and says why.
pub fn diagnose(figures: &Figures) -> (Verdict, String) {
    let Some(requested) = figures.requested else {
        return (
            Verdict::Incomplete,
            "the text does not say what was asked for".to_owned(),
        );
    };
    if requested > figures.total.unwrap_or(LARGEST_DEVICE) {
        let whole = figures
            .total
            .map_or("any GPU".to_owned(), |total| format!("the device ({})", text(total)));
        let why = format!(
            "{} were asked for at once, more than {whole} has: a shape or a batch is wrong",
            text(requested)
        );
        return (Verdict::RequestTooLarge, why);
    }
    let (Some(total), Some(free)) = (figures.total, figures.free) else {
        return without_free(figures, requested);
    };
    if free > total {
        let why = format!("{} free of {} in total is impossible", text(free), text(total));
        return (Verdict::Inconsistent, why);
    }
    if let Some(verdict) = process_limit(figures, requested, total) {
        return verdict;
    }
    if free > requested && free - requested > (64 * MIB).max(total / 100) {
        let why = format!("{} were free, and a request for {} failed", text(free), text(requested));
        return (Verdict::NotCapacity, why);
    }
    let (Some(allocated), Some(unallocated)) = (figures.allocated, figures.unallocated) else {
        return foreign_only(figures, total);
    };
    by_holder(figures, requested, total, free, allocated, unallocated)
}

/// The limit that `set_per_process_memory_fraction` sets.
fn process_limit(figures: &Figures, requested: u64, total: u64) -> Option<(Verdict, String)> {
    let allowed = figures.allowed.filter(|allowed| *allowed < total)?;
    let (allocated, unallocated) = (figures.allocated?, figures.unallocated.unwrap_or(0));
    let needed = allocated.saturating_add(requested);
    if needed > allowed {
        let why = format!(
            "{} are allocated and {} were asked for, but the process may have {}",
            text(allocated),
            text(requested),
            text(allowed)
        );
        return Some((Verdict::ProcessLimit, why));
    }
    if needed.saturating_add(unallocated) > allowed {
        let why = format!(
            "{} of the {} that the process may have are cached, and not in one piece",
            text(unallocated),
            text(allowed)
        );
        return Some((Verdict::Fragmentation, why));
    }
    None
}

fn by_holder(
    figures: &Figures,
    requested: u64,
    total: u64,
    free: u64,
    allocated: u64,
    unallocated: u64,
) -> (Verdict, String) {
    let reserved = allocated.saturating_add(unallocated);
    let outside = total.saturating_sub(free).saturating_sub(reserved);
    let own = figures.this_process.map(|bytes| bytes.saturating_sub(reserved));
    let listed: u64 = figures
        .others
        .iter()
        .fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes));
    let foreign = match own {
        Some(own) => outside.saturating_sub(own),
        // Without its own figure some of the rest is this process's context.
        None if listed > 0 => listed.min(outside),
        None => outside,
    };
    let pools = figures.private_pools.unwrap_or(0);
    if pools > allocated / 4 && pools > 0 {
        let why = format!(
            "{} of {} are in private pools, as those of CUDA graphs",
            text(pools),
            text(allocated)
        );
        return (Verdict::GraphPools, why);
    }
    if foreign > reserved && foreign > GIB / 2 {
        let largest = figures.others.iter().max_by_key(|(_, bytes)| *bytes);
        let most = largest.map_or(String::new(), |(pid, bytes)| {
            format!(", process {pid} alone {}", text(*bytes))
        });
        let why = format!(
            "other processes use {} of {}{most}; this process's allocator reserves {}",
            text(foreign),
            text(total),
            text(reserved)
        );
        return (Verdict::OtherProcess, why);
    }
    if requested <= free.saturating_add(unallocated) {
        let why = format!(
            "{} are reserved and unallocated and {} free: more than the {} that were asked for, in smaller pieces",
            text(unallocated),
            text(free),
            text(requested)
        );
        return (Verdict::Fragmentation, why);
    }
    if own.is_some_and(|own| own > OUTSIDE) {
        let why = format!("this process uses {} outside of its allocator", text(own.unwrap_or(0)));
        return (Verdict::OutsideAllocator, why);
    }
    let why = format!(
        "{} of {} are allocated, and {} more were asked for",
        text(allocated),
        text(total),
        text(requested)
    );
    (Verdict::Exhausted, why)
}

/// Only total and free are known: whether others have most of it is, too, if they are listed.
fn foreign_only(figures: &Figures, total: u64) -> (Verdict, String) {
    let listed: u64 = figures
        .others
        .iter()
        .fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes));
    if listed > total / 2 && figures.this_process.is_some_and(|own| own < listed) {
        let why = format!("other processes have {} of {}", text(listed), text(total));
        return (Verdict::OtherProcess, why);
    }
    (
        Verdict::Incomplete,
        "how much was allocated and how much cached is cut off".to_owned(),
    )
}

/// XPU says what is allocated, and not what is free.
fn without_free(figures: &Figures, requested: u64) -> (Verdict, String) {
    if let (Some(total), Some(allocated), Some(unallocated)) = (figures.total, figures.allocated, figures.unallocated) {
        if unallocated >= requested {
            let why = format!(
                "{} are cached, more than the {} that were asked for",
                text(unallocated),
                text(requested)
            );
            return (Verdict::Fragmentation, why);
        }
        if allocated.saturating_add(requested) > total - total / 20 {
            let why = format!(
                "{} of {} are allocated, and {} more were asked for",
                text(allocated),
                text(total),
                text(requested)
            );
            return (Verdict::Exhausted, why);
        }
    }
    (Verdict::Incomplete, "the figures are cut off".to_owned())
}
