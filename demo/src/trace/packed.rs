//! How many rows a compressed file may have.

use std::cell::Cell;
use std::io::{Read, Result};

/// Rows that every compressed file may have.
const LEAST: u64 = 4 << 20;
/// Rows that it may have for each of its bytes beyond [`LEAST`]. Recorded programs have a third of one, and gzip can make two hundred.
/// A file of a megabyte takes 0.2 GiB for its operations so, and less than half of one with its blocks: names that differ take room in it.
const PER_BYTE: u64 = 8;

/// Rows that a file may have of which so many bytes were read.
pub(super) fn most_rows(packed: u64) -> u64 {
    packed.saturating_mul(PER_BYTE).saturating_add(LEAST)
}

/// A file whose bytes are counted as they are read: of a pipe nobody knows the size before.
pub(super) struct Counted<'a, R> {
    pub(super) from: R,
    pub(super) bytes: &'a Cell<u64>,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, to: &mut [u8]) -> Result<usize> {
        let read = self.from.read(to)?;
        self.bytes.set(self.bytes.get() + read as u64);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten times what recorded programs have, 2.7 to 5 bytes of a compressed file for each row; and 16 bytes of memory for each.
    #[test]
    fn real_files_have_room_and_small_ones_do_not_take_gigabytes() {
        for packed in [1_000, 2_091_362, 1 << 30] {
            assert!(most_rows(packed) > 10 * packed * 10 / 27);
        }
        assert!(most_rows(1 << 20) * 16 < 200 << 20);
        assert_eq!(most_rows(u64::MAX), u64::MAX);
    }
}
