//! Limits on the memory and time for reading a file, whatever it claims.

use super::error::{Bound, ReadError};

const MIB: u64 = 1 << 20;

/// Bytes of memory that every file may take.
const LEAST: u64 = 64 * MIB;

/// Bytes of memory that a file may take in addition to [`Limits::file_ratio`]: a compressed file of a megabyte may have
/// much content.
const LEAST_PACKED: u64 = 256 * MIB;

/// Number of values that every file may have when expanded.
const LEAST_VALUES: u64 = 4 << 20;

/// Limits on the resources for reading a snapshot.
///
/// Memory means all that is allocated at a time while a file is read: its bytes, the unpacked bytes, and the objects
/// made from them. Real files take at most five times their unpacked size; a hostile file of a few kilobytes can ask
/// for terabytes. Reading stops with an error when a limit is reached. The lowest of the three memory limits applies:
/// with the defaults 0.2 GiB for 10 MB, 1.6 GiB for 100 MB, and 4 GiB for 260 MB and more, and never more than 0.5 GiB
/// for a file compressed to a megabyte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of the file, and of its unpacked content.
    pub input: u64,
    /// Most unpacked bytes for each byte of a gzip file, in addition to 64 MiB. Real files have 10 to 150.
    pub gzip_ratio: u64,
    /// Most bytes of memory for each byte of the unpacked file, in addition to 64 MiB.
    pub memory_ratio: u64,
    /// Most bytes of memory for each byte of the file on disk, in addition to 256 MiB. A compressed file does not get
    /// more memory by unpacking to more.
    pub file_ratio: u64,
    /// Most bytes of memory, whatever the file's size.
    pub memory: u64,
    /// Most values for each byte of the unpacked file, in addition to 4 million. Shared values count each time they
    /// occur.
    pub values_ratio: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            input: 2048 * MIB,
            gzip_ratio: 200,
            memory_ratio: 16,
            file_ratio: 256,
            memory: 4096 * MIB,
            values_ratio: 4,
        }
    }
}

impl Limits {
    /// Returns the bytes of memory that a file may take, however much it unpacks to.
    fn packed(&self, file: u64) -> u64 {
        let earned = file.saturating_mul(self.file_ratio).saturating_add(LEAST_PACKED);
        self.memory.min(earned)
    }

    /// Returns the most bytes that a file may unpack to.
    pub(crate) fn unpacked(&self, file: u64) -> u64 {
        let most = self.input.min(self.packed(file));
        most.min(file.saturating_mul(self.gzip_ratio).saturating_add(LEAST))
    }

    /// Makes a meter for a file from its size and its unpacked size, which are equal for an uncompressed file.
    pub(crate) fn meter(&self, file: u64, unpacked: u64) -> Meter {
        let earned = unpacked.saturating_mul(self.memory_ratio).saturating_add(LEAST);
        let packed = self.packed(file);
        Meter {
            used: 0,
            limit: packed.min(earned),
            bound: match packed.min(earned) {
                limit if limit == self.memory => Bound::Any,
                limit if limit < earned => Bound::Compressed,
                _ => Bound::Content,
            },
            values: 0,
            most_values: unpacked.saturating_mul(self.values_ratio).saturating_add(LEAST_VALUES),
        }
    }
}

/// Counts the memory of a file, before it is allocated.
#[derive(Debug)]
pub(crate) struct Meter {
    used: u64,
    limit: u64,
    bound: Bound,
    values: u64,
    most_values: u64,
}

impl Meter {
    /// Counts bytes that are about to be allocated.
    pub(crate) fn charge(&mut self, bytes: usize) -> Result<(), ReadError> {
        self.used = self.used.saturating_add(bytes as u64);
        if self.used > self.limit {
            let place = String::new();
            return Err(ReadError::Memory {
                place,
                limit: self.limit,
                bound: self.bound,
            });
        }
        Ok(())
    }

    /// Uncounts bytes that were charged and have been freed.
    pub(crate) fn release(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes as u64);
    }

    /// Reserves space for `more` items, and at least doubles the capacity of a non-empty vector, so that appending
    /// stays linear.
    pub(crate) fn reserve<T>(&mut self, to: &mut Vec<T>, more: usize) -> Result<(), ReadError> {
        let (length, capacity) = (to.len(), to.capacity());
        if capacity - length < more {
            let wanted = (length + more).max(2 * capacity);
            // Both buffers exist while one is copied to the other.
            self.charge(heap(wanted * size_of::<T>()))?;
            to.reserve_exact(wanted - length);
            self.release(heap(capacity * size_of::<T>()));
        }
        Ok(())
    }

    /// Appends an item.
    pub(crate) fn push<T>(&mut self, to: &mut Vec<T>, thing: T) -> Result<(), ReadError> {
        self.reserve(to, 1)?;
        to.push(thing);
        Ok(())
    }

    /// Counts values that are about to be visited, each time they are: visits take time even if they take no memory.
    pub(crate) fn visit(&mut self, values: u64) -> Result<(), ReadError> {
        self.values = self.values.saturating_add(values);
        if self.values > self.most_values {
            let place = String::new();
            return Err(ReadError::Shared {
                place,
                limit: self.most_values,
            });
        }
        Ok(())
    }

    /// Returns the most bytes that may be allocated.
    #[cfg(test)]
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the bytes that are allocated now.
    #[cfg(test)]
    pub(crate) fn used(&self) -> u64 {
        self.used
    }
}

/// Returns the bytes that the system's allocator takes for a request: its header word, and rounding.
pub(crate) const fn heap(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        1..=24 => 32,
        _ => bytes.saturating_add(8).next_multiple_of(16),
    }
}

/// Returns the bytes of a vector's memory.
pub(crate) fn room<T>(vec: &Vec<T>) -> usize {
    heap(vec.capacity() * size_of::<T>())
}

/// Returns the bytes of an `Arc` slice, with its counters.
pub(crate) fn shared<T>(things: &[T]) -> usize {
    heap(2 * size_of::<usize>() + size_of_val(things))
}

/// Returns the most bytes that one more item takes in a growing hash map: the map is just above half full, and the old
/// one of half the size still exists.
pub(crate) const fn in_map<T>() -> usize {
    4 * (size_of::<T>() + 1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// The figures in the documentation of [`Limits`].
    #[test]
    fn memory_limit_depends_on_the_files_own_size() {
        let limits = Limits::default();
        let plain = |size: u64| limits.meter(size, size).limit();
        assert!(plain(10_000_000) < 220 << 20 && plain(100_000_000) < 1700 << 20);
        assert_eq!((plain(270_000_000), plain(u64::MAX)), (4 << 30, 4 << 30));
        // However much it unpacks to.
        assert_eq!(limits.meter(1 << 20, u64::MAX).limit(), 512 << 20);
        assert!(limits.unpacked(1 << 20) < 512 << 20 && limits.unpacked(1 << 40) == 2 << 30);
        // Real files may take 80 bytes per byte while that is less.
        assert!(limits.meter(30_000_000, 400_000_000).limit() > 80 * 30_000_000);
    }

    /// The advice to unpack is given only if it helps: not for an uncompressed file, and not at the limit for all
    /// files.
    #[test]
    fn limit_of_a_compressed_file_is_named() {
        let said = |file, unpacked| {
            let full = Limits::default().meter(file, unpacked).charge(usize::MAX);
            full.unwrap_err().to_string().contains("unpack it first")
        };
        assert!(said(1 << 20, 100 << 20));
        assert!(!said(1 << 20, 1 << 20) && !said(100 << 20, 100 << 20) && !said(1 << 30, 2 << 30));
    }

    /// A snapshot of a long program may reach this limit although it is neither damaged nor hostile.
    #[test]
    fn limit_for_all_files_does_not_blame_the_file() {
        let said = |file, unpacked| {
            let full = Limits::default().meter(file, unpacked).charge(usize::MAX);
            full.unwrap_err().to_string()
        };
        for (file, unpacked) in [(700_000_000, 700_000_000), (70_000_000, 700_000_000)] {
            assert_eq!(
                said(file, unpacked),
                "the snapshot: the content takes more than 4294967296 bytes of memory, as much as any snapshot may take: record \
                 fewer events (max_entries of _record_memory_history())"
            );
        }
        assert!(said(1 << 20, 1 << 20).ends_with("too much for a file of its size: damaged or hostile?"));
    }

    #[test]
    fn vectors_are_counted_as_they_grow() {
        let mut meter = Limits::default().meter(0, 0);
        let mut numbers = Vec::new();
        for n in 0..100_000u64 {
            meter.push(&mut numbers, n).unwrap();
            assert_eq!(meter.used(), room(&numbers) as u64);
        }
        assert!(numbers.capacity() < 200_000);
        let most = meter.limit();
        assert!(meter.reserve(&mut numbers, most as usize / 8).is_err());
        assert!(numbers.capacity() < 200_000, "it is refused before it is allocated");
    }
}
