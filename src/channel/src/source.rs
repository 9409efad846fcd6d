//! The source of a reader's words: a mapping of this user's file, or `pread` of another user's.
//!
//! The owner of a mapped file can truncate it, and then touching it kills the reader. This user's own files are mapped,
//! because this user could do worse to the reader anyway. Files of other users are never mapped. Neither are files
//! found outside this user's own directories: the root of a container can be uid 0 here.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::cells::{self, Cell, Decode};
use crate::error::ReadError;
use crate::format::{Section, live, words};
use crate::map::Map;
use crate::seqlock;
use crate::word::{Word, Words};

/// Number of words read at a time from a file that is not mapped.
const CHUNK_WORDS: usize = 4 * 1024;

/// A channel's words.
pub(crate) enum Source {
    Mapped(Map),
    Pread {
        file: Arc<File>,
        /// The copied part of the block table. Lists of blocks jump around in the table, so reading it step by step
        /// would take a system call each.
        blocks: Vec<AtomicU64>,
        /// The segments' sequence words, read after the blocks.
        brackets: Vec<u64>,
    },
}

/// The block table of a source, and the words that bracket changes of structure.
pub(crate) struct Table<'a> {
    blocks: &'a [AtomicU64],
    stride: usize,
    slots: usize,
    brackets: Brackets<'a>,
}

enum Brackets<'a> {
    Live { words: &'a [AtomicU64], stride: usize },
    Copied(&'a [u64]),
}

impl Table<'_> {
    /// Returns the number of slots. In a copy only slots in use can be read.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// Returns the sequence word of slot `i`, which must be in use.
    #[inline(always)]
    pub(crate) fn seq(&self, i: usize) -> u64 {
        self.blocks[i * self.stride].get()
    }

    /// Reads the sequence number and words 1.. of slot `i`, which must be in use. Returns `None` if it cannot be read
    /// consistently.
    #[inline(always)]
    pub(crate) fn read(&self, i: usize) -> Option<(u64, [u64; words::BLOCK - 1])> {
        let mut data = [0; words::BLOCK - 1];
        let record = &self.blocks[i * self.stride..][..words::BLOCK];
        seqlock::read(record, &mut data).map(|seq| (seq, data))
    }

    /// Prefetches slot `i`, which must be in use.
    #[inline(always)]
    pub(crate) fn prefetch(&self, i: usize) {
        crate::map::prefetch(&self.blocks[i * self.stride], 0);
    }

    /// Returns the sequence word of segment `i`. It is no older than any block read before, because that read ended
    /// with a fence.
    #[inline(always)]
    pub(crate) fn bracket(&self, i: usize) -> u64 {
        match self.brackets {
            Brackets::Live { words, stride } => words[i * stride].get(),
            Brackets::Copied(words) => words[i],
        }
    }
}

/// Returns the words of a section.
fn section<'a>(words: &'a [AtomicU64], section: &Section) -> &'a [AtomicU64] {
    &words[section.start..][..section.count * section.stride]
}

impl Source {
    /// Makes a source that reads with `pread`.
    pub(crate) fn by_pread(file: Arc<File>) -> Source {
        Source::Pread {
            file,
            blocks: Vec::new(),
            brackets: Vec::new(),
        }
    }

    /// Updates the copies of these groups of block slots, and then reads the segments' sequence words. `used` is the
    /// number of blocks and segments in use. A mapped source needs no copies.
    pub(crate) fn copy_blocks(
        &mut self,
        table: &Section,
        segments: &Section,
        groups: &[Range<usize>],
        used: (usize, usize),
    ) -> Result<(), ReadError> {
        let Source::Pread { blocks, .. } = self else {
            return Ok(());
        };
        let mut copy = std::mem::take(blocks);
        copy.resize_with(used.0 * words::BLOCK, AtomicU64::default);
        for slots in groups {
            let seqs: Vec<u64> = slots.clone().map(|slot| copy[slot * words::BLOCK].get()).collect();
            self.changed(
                table,
                slots.clone(),
                |slot| seqs[slot - slots.start],
                |slot, record: Option<(u64, [u64; words::BLOCK - 1])>| {
                    // An odd number: it could not be read.
                    let (seq, data) = record.unwrap_or((1, [0; words::BLOCK - 1]));
                    let to = &copy[slot * words::BLOCK..][..words::BLOCK];
                    to[0].put(seq);
                    to[1..].iter().zip(data).for_each(|(to, word)| to.put(word));
                },
            )?;
        }
        let mut records = vec![0; used.1 * segments.stride];
        self.copy(segments.start, &mut records)?;
        if let Source::Pread { blocks, brackets, .. } = self {
            *blocks = copy;
            brackets.clear();
            brackets.extend(records.iter().step_by(segments.stride));
        }
        Ok(())
    }

    /// Returns the block table, and the sequence words of the segments.
    pub(crate) fn table(&self, table: &Section, segments: &Section) -> Table<'_> {
        match self {
            Source::Mapped(map) => Table {
                blocks: section(map.words(), table),
                stride: table.stride,
                slots: table.count,
                brackets: Brackets::Live {
                    words: section(map.words(), segments),
                    stride: segments.stride,
                },
            },
            Source::Pread { blocks, brackets, .. } => Table {
                blocks,
                stride: words::BLOCK,
                slots: table.count,
                brackets: Brackets::Copied(brackets),
            },
        }
    }

    /// Checks that the file was not truncated to fewer than `words` words.
    pub(crate) fn check_len(&self, file: &File, words: usize) -> Result<(), ReadError> {
        // A forked child has no mapping.
        let gone = matches!(self, Source::Mapped(map) if map.words().is_empty());
        match !gone && file.metadata()?.len() >= words as u64 * 8 {
            true => Ok(()),
            false => Err(ReadError::Truncated),
        }
    }

    /// Copies words from `start` on, in no particular order and without any guarantee of consistency.
    pub(crate) fn copy(&self, start: usize, out: &mut [u64]) -> Result<(), ReadError> {
        match self {
            Source::Mapped(map) => {
                let words = &map.words()[start..start + out.len()];
                for (to, from) in out.iter_mut().zip(words) {
                    *to = from.get();
                }
                Ok(())
            }
            Source::Pread { file, .. } => pread(file, start, out),
        }
    }

    /// Reads one word.
    pub(crate) fn load(&self, at: usize) -> Result<u64, ReadError> {
        let mut word = [0];
        self.copy(at, &mut word)?;
        Ok(word[0])
    }

    /// Returns the number of lanes opened. Everything published before they were opened is visible afterwards.
    pub(crate) fn lanes(&self, counters: &Section, lanes: &Section) -> Result<usize, ReadError> {
        // A file of format 1 has no such word.
        if lanes.count == 0 {
            return Ok(0);
        }
        let opened = self.load(counters.start + live::LANES)?;
        self.fence();
        Ok(lanes.count.min(opened as usize))
    }

    /// Orders earlier reads before later ones. The kernel orders every `pread` before the next.
    pub(crate) fn fence(&self) {
        <std::sync::atomic::AtomicU64 as Word>::acquire_fence();
    }

    /// Reads the newest complete figures of a pair of cells, each of a sequence word and `N` more words.
    pub(crate) fn cells<const N: usize>(&self, start: usize, decode: Decode<N>) -> Result<Option<Cell>, ReadError> {
        let at = start..start + 2 * (1 + N);
        match self {
            Source::Mapped(map) => Ok(cells::read(&map.words()[at], decode)),
            Source::Pread { file, .. } => {
                let mut copies = [const { Vec::new() }; 3];
                for copy in &mut copies {
                    copy.resize(at.len(), 0);
                    pread(file, at.start, copy)?;
                }
                Ok(cells::read_copies([&copies[0], &copies[1], &copies[2]], decode))
            }
        }
    }

    /// Reads those records in `range` of a section whose sequence word differs from `known`, and passes each to
    /// `changed` as (index, sequence number, words 1..). A record that could not be read consistently is passed as
    /// `None`.
    pub(crate) fn changed<const N: usize>(
        &self,
        section: &Section,
        range: Range<usize>,
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
            Source::Pread { file, .. } => {
                let at_once = (CHUNK_WORDS / section.stride).max(1);
                let mut copies = [const { Vec::new() }; 3];
                for start in range.clone().step_by(at_once) {
                    let count = at_once.min(range.end - start);
                    // Sequence words come from the first and last copy, data from the middle one: in whatever order the
                    // kernel copies, the data was read between the two reads of the sequence word.
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
