//! What the history is asked for.

mod text;

use std::time::Duration;

use crate::stack::Stack;

/// What the history holds and takes. It counts from the moment it was switched on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HistoryFigures {
    /// Events kept.
    pub events: u64,
    /// Events that were dropped for newer ones.
    pub dropped: u64,
    /// Blocks that the program holds.
    pub held: u64,
    /// Call stacks with tags, told apart.
    pub owners: u64,
    /// Steps that ended.
    pub steps: u64,
    /// Bytes of host memory for all that.
    pub bytes: u64,
    /// Call stacks kept by the process, for all its allocators and until its end.
    pub stacks: u64,
    /// Bytes of host memory for these.
    pub stack_bytes: u64,
}

/// Who held memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Owner {
    /// The scope in which it was allocated; empty for none.
    pub tag: String,
    /// Where in the program. [`Stack::NONE`] for what was held before the history began, and without stacks.
    pub stack: Stack,
    /// Bytes, after rounding.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
}

/// Who held the memory when the program held most, since the history was switched on or peaks were
/// reset: exact, whatever events were dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeakReport {
    /// How long ago; 0 if nothing was held since the history began or peaks were reset.
    pub ago: Duration,
    /// Bytes held then, after rounding: the sum over the owners.
    pub allocated: u64,
    /// Bytes taken from the driver then.
    pub reserved: u64,
    /// Who held them, most first.
    pub owners: Vec<Owner>,
}

/// Blocks that outlived some steps, from one place in the program.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leak {
    /// The scope in which they were allocated; empty for none.
    pub tag: String,
    /// Where in the program.
    pub stack: Stack,
    /// Blocks that outlived the steps.
    pub blocks: u64,
    /// Their bytes, after rounding.
    pub bytes: u64,
    /// All blocks that this place holds now, younger ones among them.
    pub held_blocks: u64,
    /// Their bytes, after rounding.
    pub held_bytes: u64,
    /// The step in which the oldest was allocated, from 1; 0 for what was held when the history began.
    pub oldest_step: u64,
    /// Bytes more a step of everything that this place holds, over the last 64 steps at most, or over all of them if it
    /// [grows](Leak::grows) over these only; `None` for fewer than 8 steps.
    pub growth_per_step: Option<i64>,
    /// Whether they grow all the time, as a leak does: the least held at the end of a step was more in each quarter of the last 64
    /// steps than in the one before, or, for what leaks with one step of many, in each quarter of all steps, and in the end of the last
    /// one than in its beginning. What was allocated once and stays (weights) does not, nor what comes and goes.
    pub grows: bool,
}

/// Blocks that outlived some steps.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeakReport {
    /// Steps that ended since the history was switched on.
    pub steps: u64,
    /// Steps that a block had to outlive.
    pub min_steps: u64,
    /// Where they were allocated, most bytes first.
    pub leaks: Vec<Leak>,
}

impl LeakReport {
    /// Those that grow, the fastest first.
    pub fn suspects(&self) -> Vec<&Leak> {
        let mut grow: Vec<&Leak> = self.leaks.iter().filter(|leak| leak.grows).collect();
        grow.sort_by_key(|leak| std::cmp::Reverse(leak.growth_per_step));
        grow
    }
}
