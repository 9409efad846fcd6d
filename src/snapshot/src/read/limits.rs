//! How much a file may take of this machine, whatever it says.

use super::error::{Bound, ReadError};

const MIB: u64 = 1 << 20;

/// Bytes of memory that every file may take.
const LEAST: u64 = 64 * MIB;

/// Bytes of memory that a file may take beyond [`Limits::file_ratio`]: a compressed one of a megabyte may be a large one.
const LEAST_PACKED: u64 = 256 * MIB;

/// Values that every file may stand for.
const LEAST_VALUES: u64 = 4 << 20;

/// How much a snapshot may take of this machine.
///
/// Memory is what lives at a time while a file is read: its bytes, what they are unpacked to, what is made of them. Real files
/// take five times their unpacked size at most; a hostile one of a few kilobytes can ask for terabytes. Reading stops with an
/// error where a limit is reached. A file may take as much as the lowest of the three limits of memory allows: with the
/// defaults 0.2 GiB for 10 MB, 1.6 GiB for 100 MB, and 4 GiB for those of 260 MB and more, and never more than 0.5 GiB for one
/// that is compressed to a megabyte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the file, and of what gzip makes of it.
    pub input: u64,
    /// Bytes of what gzip makes of the file, for each of the file's, beyond 64 MiB. Real ones have 10 to 150.
    pub gzip_ratio: u64,
    /// Bytes of memory for each byte of the unpacked file, beyond 64 MiB.
    pub memory_ratio: u64,
    /// Bytes of memory for each byte of the file as it is, beyond 256 MiB: what a compressed one says that it unpacks to earns
    /// it no more.
    pub file_ratio: u64,
    /// Bytes of memory, whatever the file's size.
    pub memory: u64,
    /// Values for each byte of the unpacked file, beyond 4 million: those that are shared count wherever they stand.
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
    /// Bytes of memory that a file may take, however much it unpacks to.
    fn packed(&self, file: u64) -> u64 {
        let earned = file.saturating_mul(self.file_ratio).saturating_add(LEAST_PACKED);
        self.memory.min(earned)
    }

    /// Bytes that gzip may make of a file.
    pub(crate) fn unpacked(&self, file: u64) -> u64 {
        let most = self.input.min(self.packed(file));
        most.min(file.saturating_mul(self.gzip_ratio).saturating_add(LEAST))
    }

    /// For a file of a size, and of a size unpacked; the same for one that is not compressed.
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

/// Counts what lives of a file, before it does.
#[derive(Debug)]
pub(crate) struct Meter {
    used: u64,
    limit: u64,
    bound: Bound,
    values: u64,
    most_values: u64,
}

impl Meter {
    /// Bytes that are about to be taken.
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

    /// Bytes that were charged and are free again.
    pub(crate) fn give_back(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes as u64);
    }

    /// Makes room for so many more, and for twice as many as there were if there were some: appending stays linear.
    pub(crate) fn reserve<T>(&mut self, to: &mut Vec<T>, more: usize) -> Result<(), ReadError> {
        let (length, capacity) = (to.len(), to.capacity());
        if capacity - length < more {
            let wanted = (length + more).max(2 * capacity);
            // Both are there while one is copied to the other.
            self.charge(heap(wanted * size_of::<T>()))?;
            to.reserve_exact(wanted - length);
            self.give_back(heap(capacity * size_of::<T>()));
        }
        Ok(())
    }

    /// Appends one.
    pub(crate) fn push<T>(&mut self, to: &mut Vec<T>, thing: T) -> Result<(), ReadError> {
        self.reserve(to, 1)?;
        to.push(thing);
        Ok(())
    }

    /// Values that are about to be looked at or stood for, be it for the millionth time: they may take time and no memory.
    pub(crate) fn look(&mut self, values: u64) -> Result<(), ReadError> {
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

    /// Bytes that may live.
    #[cfg(test)]
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes that live now.
    #[cfg(test)]
    pub(crate) fn used(&self) -> u64 {
        self.used
    }
}

/// Bytes that the system's allocator takes for a request: its own word before it, and rounding.
pub(crate) const fn heap(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        1..=24 => 32,
        _ => bytes.saturating_add(8).next_multiple_of(16),
    }
}

/// Bytes of a vector's memory.
pub(crate) fn room<T>(vec: &Vec<T>) -> usize {
    heap(vec.capacity() * size_of::<T>())
}

/// Bytes of what is shared, with its counts.
pub(crate) fn shared<T>(things: &[T]) -> usize {
    heap(2 * size_of::<usize>() + size_of_val(things))
}

/// Bytes that one more thing takes in a hash map that grows, at worst: the map is just above half full, and beside it is the
/// half as large one that it was.
pub(crate) const fn in_map<T>() -> usize {
    4 * (size_of::<T>() + 1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// What the documentation of [`Limits`] says.
    #[test]
    fn a_file_earns_memory_by_its_own_size() {
        let limits = Limits::default();
        let plain = |size: u64| limits.meter(size, size).limit();
        assert!(plain(10_000_000) < 220 << 20 && plain(100_000_000) < 1700 << 20);
        assert_eq!((plain(270_000_000), plain(u64::MAX)), (4 << 30, 4 << 30));
        // Whatever it unpacks to.
        assert_eq!(limits.meter(1 << 20, u64::MAX).limit(), 512 << 20);
        assert!(limits.unpacked(1 << 20) < 512 << 20 && limits.unpacked(1 << 40) == 2 << 30);
        // Real ones take 80 bytes for each of theirs while that is less.
        assert!(limits.meter(30_000_000, 400_000_000).limit() > 80 * 30_000_000);
    }

    /// Only where that helps: a file that is not compressed cannot be unpacked, and none may take more than all may.
    #[test]
    fn a_limit_says_whether_it_is_one_of_a_compressed_file() {
        let said = |file, unpacked| {
            let full = Limits::default().meter(file, unpacked).charge(usize::MAX);
            full.unwrap_err().to_string().contains("unpack it first")
        };
        assert!(said(1 << 20, 100 << 20));
        assert!(!said(1 << 20, 1 << 20) && !said(100 << 20, 100 << 20) && !said(1 << 30, 2 << 30));
    }

    /// Which a long program's snapshot meets that is neither damaged nor hostile.
    #[test]
    fn the_limit_of_all_files_blames_none() {
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
        assert!(numbers.capacity() < 200_000, "it is refused before it is taken");
    }
}
