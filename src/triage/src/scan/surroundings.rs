//! What the rest of a text says of the device: its size, what was free, a limit of addresses.

use std::sync::LazyLock;

use regex::Regex;

use super::Strength;
use crate::diagnose::diagnose;
use crate::families::Judged;
use crate::text::{Log, bytes, pattern};
use crate::verdict::{Allocator, Verdict};

/// The size in a card's name.
static NAME: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)\b(?:A100|H100|H200|H20|A800|H800|V100|GH200|B200|MI\d{3}X?)[\w-]*?[- ](\d{2,3}) ?GB\b")
});
/// `nvidia-smi`: used and total.
static USED: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b(\d{1,6}) ?MiB ?[/,|] ?(\d{4,6}) ?MiB\b"));
static ADDRESSES: LazyLock<Regex> = LazyLock::new(|| pattern(r"ulimit-v\d{4,}|rlimit_as=?\d{6,}|vmem=\d+gb"));

/// What is known.
#[derive(Debug, Default)]
pub(super) struct Surroundings {
    total: Option<u64>,
    free: Option<u64>,
}

impl Surroundings {
    /// Reads a text. Devices of different sizes tell nothing of the one that failed.
    pub(super) fn of(log: &Log) -> Surroundings {
        let mut found = Surroundings::default();
        let (mut totals, mut used) = (Vec::new(), Vec::new());
        for line in log.all() {
            for captures in NAME.captures_iter(line) {
                // Names are in powers of ten, and more than the memory that programs can have.
                totals.extend(captures[1].parse::<u64>().map(|size| size << 30));
            }
            for captures in USED.captures_iter(line) {
                let size = |at: usize| bytes(&captures[at], "mib");
                if let (Some(taken), Some(total)) = (size(1), size(2))
                    && taken <= total
                {
                    used.push((taken, total));
                }
            }
        }
        if let [(taken, total)] = used[..] {
            found.total = Some(total);
            found.free = Some(total - taken);
        } else {
            totals.extend(used.iter().map(|(_, total)| *total));
            found.total = totals.iter().max().copied();
        }
        found
    }

    /// Judges a message without figures once more, with what the rest of the text says.
    pub(super) fn add_to(&self, judged: &mut Judged, before: &str) {
        if judged.verdict != Verdict::Incomplete {
            return;
        }
        if ADDRESSES.is_match(before) {
            judged.strength = Strength::Specific;
            judged.allocator = Allocator::AddressSpace;
            judged.verdict = Verdict::AddressSpace;
            judged.why =
                "the process may not have more virtual addresses, and CUDA reserves more than the card has".to_owned();
            return;
        }
        if judged.figures.requested.is_none() {
            return;
        }
        let mut figures = judged.figures.clone();
        figures.total = figures.total.or(self.total);
        figures.free = figures.free.or(self.free);
        let (verdict, why) = diagnose(&figures);
        if matches!(verdict, Verdict::RequestTooLarge | Verdict::NotCapacity) {
            judged.strength = Strength::Specific;
            (judged.verdict, judged.why, judged.figures) = (verdict, why, figures);
        }
    }
}
