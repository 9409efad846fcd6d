//! How much of its file system a channel takes.

use crate::format::{LANES_MAX, words};
use crate::layout::Layout;
use crate::options::Options;

/// What one channel takes of its file system at most, where it is to fit.
const PART: u64 = 16;
/// Bytes of a table that is too small to halve it.
const LITTLE: u64 = 64 << 10;

impl Options {
    /// Bytes of the file of such a channel. All of them are taken when it is made.
    pub fn file_len(&self) -> u64 {
        Layout::of(self).bytes()
    }

    /// The same where [`fit`](Options::fit) is looked at, in a file system of `total` bytes; 0 is one without a limit.
    pub fn file_len_within(&self, total: u64) -> u64 {
        self.layout_within(total).bytes()
    }

    pub(super) fn layout_within(&self, total: u64) -> Layout {
        let most = if self.fit && total > 0 { total / PART } else { u64::MAX };
        let mut smaller = self.clone();
        while smaller.file_len() > most && smaller.halve_largest() {}
        Layout::of(&smaller)
    }

    /// Halves the table that takes most. False if that is too small.
    fn halve_largest(&mut self) -> bool {
        // Of equals the last: blocks are the truth, events what led to it.
        let tables = [
            (words::SEGMENT, &mut self.segments),
            (words::BLOCK, &mut self.blocks),
            (words::EVENT, &mut self.events),
            (
                words::EVENT * (self.lanes as usize).min(LANES_MAX),
                &mut self.lane_events,
            ),
        ];
        let bytes = |(words, count): (usize, u32)| 8 * words as u64 * u64::from(count);
        let largest = tables.into_iter().max_by_key(|(words, count)| bytes((*words, **count)));
        match largest {
            Some((words, count)) if bytes((words, *count)) > LITTLE => {
                *count /= 2;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_takes_most_gives_way_in_a_small_file_system() {
        let options = Options::default();
        for total in [0, 1 << 40, PART * options.file_len()] {
            assert_eq!(options.file_len_within(total), options.file_len());
        }
        let small = options.layout_within(64 * MIB);
        assert!(small.bytes() <= 4 * MIB);
        let counts = [small.blocks.count, small.segments.count, small.lane_events.count / 8];
        assert_eq!(counts, [16_384, 4_096, 2_048]);
        // What somebody wants to have few of stays, and what is wanted of many things is as much as there is room for.
        let odd = Options {
            blocks: u32::MAX,
            segments: 3,
            ..options.clone()
        };
        let odd = odd.layout_within(64 * MIB);
        assert!(odd.bytes() <= 4 * MIB && odd.blocks.count >= 8_192 && odd.segments.count == 3);
        // What is left is too little to do without.
        let least = options.file_len_within(MIB);
        assert!((MIB / 8..MIB).contains(&least), "{least}");
        let exact = Options { fit: false, ..options };
        assert_eq!(exact.file_len_within(MIB), exact.file_len());
    }
}
