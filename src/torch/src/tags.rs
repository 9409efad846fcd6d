//! Which tag the program was in at which time.

use std::collections::VecDeque;

use gpumem_channel::StringId;

/// Changes that are kept: some hours of a training loop with a few tags a step. The history of PyTorch reaches less far back.
const MAX_CHANGES: usize = 1 << 16;

/// The tags of a program over time. Times are microseconds since 1970, as in PyTorch's history.
#[derive(Debug, Default)]
pub(crate) struct Tags {
    /// From when on which tag, oldest first.
    changes: VecDeque<(u64, StringId)>,
}

impl Tags {
    /// Notes that a tag begins at a time. The empty one means that no tag does.
    pub(crate) fn begin(&mut self, at: u64, tag: StringId) {
        // The clock may have been set back.
        let at = self.changes.back().map_or(at, |(last, _)| at.max(*last));
        if self.changes.len() == MAX_CHANGES {
            self.changes.pop_front();
        }
        self.changes.push_back((at, tag));
    }

    /// Returns the tag at a time; the empty one if none is known.
    pub(crate) fn at(&self, time: u64) -> StringId {
        let after = self.changes.partition_point(|(from, _)| *from <= time);
        let change = after.checked_sub(1).and_then(|at| self.changes.get(at));
        change.map_or(StringId(0), |(_, tag)| *tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_lasts_until_the_next_one() {
        let mut tags = Tags::default();
        assert_eq!(tags.at(5), StringId(0));
        for (at, tag) in [(10, 1), (20, 2), (30, 0), (25, 3)] {
            tags.begin(at, StringId(tag));
        }
        let found = [9, 10, 19, 20, 29].map(|time| tags.at(time).0);
        assert_eq!(found, [0, 1, 1, 2, 2]);
        assert_eq!(tags.at(30), StringId(3), "the clock was set back");
    }

    #[test]
    fn old_changes_are_forgotten() {
        let mut tags = Tags::default();
        for at in 0..MAX_CHANGES as u64 + 7 {
            tags.begin(at, StringId(1));
        }
        assert_eq!(tags.changes.len(), MAX_CHANGES);
        assert_eq!((tags.at(6), tags.at(7)), (StringId(0), StringId(1)));
    }
}
