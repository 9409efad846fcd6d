//! What simulated memory holds: extents of bytes or of a repeated word, so that filling gigabytes costs nothing.

use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Content {
    Bytes(Vec<u8>),
    /// A 32-bit word repeated over `len` bytes, aligned to the extent's start.
    Word {
        value: u32,
        len: u64,
    },
}

impl Content {
    fn len(&self) -> u64 {
        match self {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Word { len, .. } => *len,
        }
    }

    /// Copies what begins at `from` to `out`.
    fn copy_to(&self, from: u64, out: &mut [u8]) {
        match self {
            Content::Bytes(bytes) => out.copy_from_slice(&bytes[from as usize..][..out.len()]),
            Content::Word { value, .. } => repeat(rotated(*value, from), out),
        }
    }

    /// The part from `from` to `to`.
    fn part(&self, from: u64, to: u64) -> Content {
        match self {
            Content::Bytes(bytes) => Content::Bytes(bytes[from as usize..to as usize].to_vec()),
            Content::Word { value, .. } => Content::Word {
                value: rotated(*value, from),
                len: to - from,
            },
        }
    }
}

/// The word that repeats `value` when it is begun `from` bytes later.
fn rotated(value: u32, from: u64) -> u32 {
    value.rotate_right(8 * (from % 4) as u32)
}

/// Fills `out` with a word, in copies that double: memory speed, in builds without optimisation too.
fn repeat(value: u32, out: &mut [u8]) {
    let word = value.to_le_bytes();
    let mut done = word.len().min(out.len());
    out[..done].copy_from_slice(&word[..done]);
    while done < out.len() {
        let more = done.min(out.len() - done);
        out.copy_within(..more, done);
        done += more;
    }
}

/// One allocation's or chunk's contents by offset; what was never written reads as zero.
#[derive(Debug, Default)]
pub(super) struct Memory {
    extents: BTreeMap<u64, Content>,
}

impl Memory {
    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) {
        self.put(at, Content::Bytes(bytes.to_vec()));
    }

    pub(super) fn fill(&mut self, at: u64, value: u32, len: u64) {
        self.put(at, Content::Word { value, len });
    }

    pub(super) fn read(&self, at: u64, out: &mut [u8]) {
        let end = at + out.len() as u64;
        let first = self.extents.range(..=at).next_back().map_or(at, |(start, _)| *start);
        let mut done = at;
        for (start, content) in self.extents.range(first..end) {
            let (from, to) = (at.max(*start), end.min(start + content.len()));
            if from >= to {
                continue;
            }
            out[(done - at) as usize..(from - at) as usize].fill(0);
            content.copy_to(from - start, &mut out[(from - at) as usize..(to - at) as usize]);
            done = to;
        }
        out[(done - at) as usize..].fill(0);
    }

    fn put(&mut self, at: u64, content: Content) {
        let end = at + content.len();
        if at == end {
            return;
        }
        let first = self.extents.range(..at).next_back().map_or(at, |(start, _)| *start);
        let touched: Vec<u64> = self.extents.range(first..end).map(|(start, _)| *start).collect();
        for start in touched {
            let Some(old) = self.extents.remove(&start) else {
                continue;
            };
            let old_end = start + old.len();
            if start < at {
                self.extents.insert(start, old.part(0, at.min(old_end) - start));
            }
            if old_end > end {
                self.extents
                    .insert(end.max(start), old.part(end.max(start) - start, old_end - start));
            }
        }
        self.extents.insert(at, content);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Extents hold what an array would.
        #[test]
        fn same_as_an_array(ops in prop::collection::vec((0u64..200, 1u64..60, any::<u32>(), any::<bool>()), 1..40)) {
            let mut memory = Memory::default();
            let mut array = [0u8; 300];
            for (at, len, value, fill) in ops {
                let bytes: Vec<u8> = if fill {
                    memory.fill(at, value, len);
                    (0..len).map(|i| value.to_le_bytes()[(i % 4) as usize]).collect()
                } else {
                    let bytes: Vec<u8> = (0..len).map(|i| (value as u8).wrapping_add(i as u8)).collect();
                    memory.write(at, &bytes);
                    bytes
                };
                array[at as usize..(at + len) as usize].copy_from_slice(&bytes);
                let mut out = [9u8; 300];
                memory.read(0, &mut out);
                prop_assert_eq!(out, array);
                let (from, to) = (at as usize / 2, at as usize + 30);
                memory.read(from as u64, &mut out[from..to]);
                prop_assert_eq!(&out[from..to], &array[from..to]);
            }
        }
    }
}
