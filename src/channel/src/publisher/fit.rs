//! Limits how much of its file system a channel takes.

use crate::format::{LANES_MAX, words};
use crate::layout::Layout;
use crate::options::Options;

/// A channel with [`Options::fit`] takes at most one part in this many of its file system.
const PART: u64 = 16;
/// Tables of at most this many bytes are not halved.
const LITTLE: u64 = 64 << 10;

impl Options {
    /// Returns the size in bytes of the file of such a channel. All of it is allocated at creation.
    pub fn file_len(&self) -> u64 {
        Layout::of(self).bytes()
    }

    /// Returns the size of the file in a file system of `total` bytes, taking [`fit`](Options::fit) into account; 0
    /// means a file system without a limit.
    pub fn file_len_within(&self, total: u64) -> u64 {
        self.layout_within(total).bytes()
    }

    pub(super) fn layout_within(&self, total: u64) -> Layout {
        let most = if self.fit && total > 0 { total / PART } else { u64::MAX };
        let mut smaller = self.clone();
        while smaller.file_len() > most && smaller.halve_largest() {}
        Layout::of(&smaller)
    }

    /// Halves the largest table. Returns false if that is too small to be halved.
    fn halve_largest(&mut self) -> bool {
        // Of equally large tables the last one is halved: blocks matter more than events.
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
    fn largest_table_shrinks_in_a_small_file_system() {
        let options = Options::default();
        for total in [0, 1 << 40, PART * options.file_len()] {
            assert_eq!(options.file_len_within(total), options.file_len());
        }
        let small = options.layout_within(64 * MIB);
        assert!(small.bytes() <= 4 * MIB);
        let counts = [small.blocks.count, small.segments.count, small.lane_events.count / 8];
        assert_eq!(counts, [16_384, 4_096, 2_048]);
        // Small tables keep their size, and the large one becomes as large as fits.
        let odd = Options {
            blocks: u32::MAX,
            segments: 3,
            ..options.clone()
        };
        let odd = odd.layout_within(64 * MIB);
        assert!(odd.bytes() <= 4 * MIB && odd.blocks.count >= 8_192 && odd.segments.count == 3);
        // The remaining tables are too small to be halved.
        let least = options.file_len_within(MIB);
        assert!((MIB / 8..MIB).contains(&least), "{least}");
        let exact = Options { fit: false, ..options };
        assert_eq!(exact.file_len_within(MIB), exact.file_len());
    }
}
