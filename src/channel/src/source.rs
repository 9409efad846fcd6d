//! Where a reader's words come from: a mapping of our own user's file, or `pread` of somebody else's.
//!
//! A mapped file can be cut short by its owner, and then touching it kills the reader. Our own user could do worse to us anyway;
//! another user's file is never mapped.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::cells::{self, Cell};
use crate::error::ReadError;
use crate::layout::Section;
use crate::map::Map;
use crate::seqlock;
use crate::word::{Word, Words};

/// Words of a file that are read at a time when it is not mapped.
const CHUNK_WORDS: usize = 4 * 1024;

/// A channel's words.
pub(crate) enum Source {
    Mapped(Map),
    Pread(File),
}

impl Source {
    /// Checks that nobody cut the file short of `words` words.
    pub(crate) fn check_len(&self, file: &File, words: usize) -> Result<(), ReadError> {
        match file.metadata()?.len() >= words as u64 * 8 {
            true => Ok(()),
            false => Err(ReadError::Truncated),
        }
    }

    /// Copies words from `start` on, in no particular order and with no promise of consistency.
    pub(crate) fn copy(&self, start: usize, out: &mut [u64]) -> Result<(), ReadError> {
        match self {
            Source::Mapped(map) => {
                let words = &map.words()[start..start + out.len()];
                for (to, from) in out.iter_mut().zip(words) {
                    *to = from.get();
                }
                Ok(())
            }
            Source::Pread(file) => pread(file, start, out),
        }
    }

    /// One word.
    pub(crate) fn load(&self, at: usize) -> Result<u64, ReadError> {
        let mut word = [0];
        self.copy(at, &mut word)?;
        Ok(word[0])
    }

    /// Orders what was read before against what is read after. Every `pread` is ordered against the next by the kernel.
    pub(crate) fn fence(&self) {
        <std::sync::atomic::AtomicU64 as Word>::acquire_fence();
    }

    /// The newest complete figures of a device's pair of cells.
    pub(crate) fn cells(&self, at: std::ops::Range<usize>) -> Result<Option<Cell>, ReadError> {
        match self {
            Source::Mapped(map) => Ok(cells::read(&map.words()[at])),
            Source::Pread(file) => {
                let mut copies = [const { Vec::new() }; 3];
                for copy in &mut copies {
                    copy.resize(at.len(), 0);
                    pread(file, at.start, copy)?;
                }
                Ok(cells::read_copies([&copies[0], &copies[1], &copies[2]]))
            }
        }
    }

    /// Reads the records `range` of a section whose sequence word is not what `known` says, and hands each to `changed` as (index,
    /// sequence number, words 1..). A record that could not be read consistently is handed over as `None`.
    pub(crate) fn changed<const N: usize>(
        &self,
        section: &Section,
        range: std::ops::Range<usize>,
        mut known: impl FnMut(usize) -> u64,
        mut changed: impl FnMut(usize, Option<(u64, [u64; N])>),
    ) -> Result<(), ReadError> {
        match self {
            Source::Mapped(map) => {
                let words = map.words();
                for i in range {
                    let record = &words[section.record(i)];
                    if record[0].get() != known(i) {
                        let mut data = [0; N];
                        let seq = seqlock::read(record, &mut data);
                        changed(i, seq.map(|seq| (seq, data)));
                    }
                }
            }
            Source::Pread(file) => {
                let at_once = (CHUNK_WORDS / section.stride).max(1);
                let mut copies = [const { Vec::new() }; 3];
                for start in range.clone().step_by(at_once) {
                    let count = at_once.min(range.end - start);
                    // Sequence words from the first and last copy, data from the middle one: whatever order the kernel copies in,
                    // the data was read between the two looks at the sequence word.
                    for copy in &mut copies {
                        copy.resize(count * section.stride, 0);
                        pread(file, section.record(start).start, copy)?;
                    }
                    for i in 0..count {
                        let record = i * section.stride;
                        let (before, after) = (copies[0][record], copies[2][record]);
                        if after == known(start + i) {
                            continue;
                        }
                        let mut data = [0; N];
                        data.copy_from_slice(&copies[1][record + 1..][..N]);
                        let stable = before == after && before & 1 == 0;
                        changed(start + i, stable.then_some((before, data)));
                    }
                }
            }
        }
        Ok(())
    }
}

fn pread(file: &File, start: usize, out: &mut [u64]) -> Result<(), ReadError> {
    let mut bytes = vec![0; out.len() * 8];
    file.read_exact_at(&mut bytes, start as u64 * 8)
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => ReadError::Truncated,
            _ => ReadError::Io(error),
        })?;
    for (word, bytes) in out.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = crate::text::word(bytes);
    }
    Ok(())
}
