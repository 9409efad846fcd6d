//! Limits the number of rows of a compressed file.

use std::cell::Cell;
use std::io::{Read, Result};

/// The rows that every compressed file may have.
const LEAST: u64 = 4 << 20;
/// Further rows allowed per byte of the file. Recorded programs have a third of a row per byte, and gzip can produce two
/// hundred. With this limit a file of a megabyte takes 0.2 GiB for its operations, and less than half a GiB including its
/// blocks, because different ids take space in the file.
const PER_BYTE: u64 = 8;

/// Returns the rows that a compressed file may have once `packed` bytes of it have been read.
pub(super) fn most_rows(packed: u64) -> u64 {
    packed.saturating_mul(PER_BYTE).saturating_add(LEAST)
}

/// A reader that counts its bytes, because the size of a pipe is not known in advance.
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

    /// The limit is ten times what recorded programs have: 2.7 to 5 bytes of a compressed file, and 16 bytes of memory, per row.
    #[test]
    fn real_files_fit_and_small_ones_do_not_take_gigabytes() {
        for packed in [1_000, 2_091_362, 1 << 30] {
            assert!(most_rows(packed) > 10 * packed * 10 / 27);
        }
        assert!(most_rows(1 << 20) * 16 < 200 << 20);
        assert_eq!(most_rows(u64::MAX), u64::MAX);
    }
}
