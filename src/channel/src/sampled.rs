//! Publishers that sample another allocator, and so cannot publish each of its operations.

use crate::record::StringId;

/// When a publisher that samples another allocator did so last. Its figures and its blocks may be of different moments, and it has no
/// blocks while nobody looks at them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampled {
    /// When the figures were sampled: nanoseconds of `CLOCK_MONOTONIC`; 0 if they were not yet.
    pub figures_at: u64,
    /// When the segments and blocks were sampled; 0 if there are none.
    pub blocks_at: u64,
    /// Why blocks that somebody wants to see are not sampled; empty if they are.
    pub skipped: StringId,
    /// Why the events of a history that the program records are not published; empty if they are, or there is none.
    pub events_skipped: StringId,
}

impl Sampled {
    /// Returns why blocks are missing, if they are.
    pub fn skipped(&self) -> Option<StringId> {
        (self.skipped != StringId(0)).then_some(self.skipped)
    }
}
