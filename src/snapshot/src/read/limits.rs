//! How much a file may take of this machine, whatever it says.

use super::error::ReadError;

const MIB: u64 = 1 << 20;

/// What is appended to a full list doubles it: twice the thing, and once more while the old one is copied.
pub(crate) const GROWTH: usize = 3;

/// How much a snapshot may take of this machine.
///
/// Real files take a few times their unpacked size in memory; a hostile one of a few kilobytes can ask for terabytes. Reading
/// stops with an error where a limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the file, and of what gzip makes of it.
    pub input: u64,
    /// Bytes of what gzip makes of the file, for each of the file's, beyond 64 MiB. Real ones have 10 to 30.
    pub gzip_ratio: u64,
    /// Bytes of memory for each byte of the unpacked file, beyond 64 MiB.
    pub memory_ratio: u64,
    /// Bytes of memory, whatever the file's size.
    pub memory: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            input: 2048 * MIB,
            gzip_ratio: 200,
            memory_ratio: 64,
            memory: 8192 * MIB,
        }
    }
}

impl Limits {
    /// Bytes that gzip may make of a file.
    pub(crate) fn unpacked(&self, file: u64) -> u64 {
        self.input
            .min(file.saturating_mul(self.gzip_ratio).saturating_add(64 * MIB))
    }

    pub(crate) fn meter(&self, input: u64) -> Meter {
        let ratio = input.saturating_mul(self.memory_ratio).saturating_add(64 * MIB);
        Meter {
            used: 0,
            limit: self.memory.min(ratio),
        }
    }
}

/// Counts what is kept of a file. Charged before it is kept; what is dropped again is not given back, which only errs on the
/// safe side.
#[derive(Debug)]
pub(crate) struct Meter {
    used: u64,
    limit: u64,
}

impl Meter {
    pub(crate) fn charge(&mut self, bytes: usize) -> Result<(), ReadError> {
        self.used = self.used.saturating_add(bytes as u64);
        if self.used > self.limit {
            return Err(ReadError::Memory { limit: self.limit });
        }
        Ok(())
    }
}
