//! Where everything lies in a channel file. All numbers are little-endian u64 words; offsets and lengths are in bytes.
//!
//! ```text
//! word 0..8    frozen for ever   magic, version, minimum reader version, file length, toc offset, toc entries, identity offset, 0
//! word 8..64   identity          who publishes (identity.rs)
//! word 64..    table of contents 4 words a section: kind, offset, stride | count << 32, version
//! sections     64-byte aligned, never overlapping; unknown kinds are skipped, longer strides than known are accepted
//! ```

use crate::error::OpenError;

/// "gpumemch" as little-endian bytes.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"gpumemch");
/// Version this crate writes.
pub(crate) const VERSION: u64 = 1;
/// The oldest reader that understands what this crate writes.
pub(crate) const MIN_READER: u64 = 1;

/// First word of the identity.
pub(crate) const IDENTITY: usize = 8;
/// Words of identity.
pub(crate) const IDENTITY_WORDS: usize = 56;
/// First word of the table of contents.
pub(crate) const TOC: usize = IDENTITY + IDENTITY_WORDS;
/// Words of one entry in the table of contents.
pub(crate) const TOC_ENTRY: usize = 4;
/// Entries a reader is willing to look at.
const TOC_MAX: u64 = 64;
/// Bytes of the largest channel a reader opens.
pub(crate) const FILE_MAX: u64 = 1 << 30;

/// What a section holds. The numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Kind {
    /// Counters that only the publisher moves: see [`live`].
    Live = 1,
    /// One record per device.
    Devices = 2,
    /// Two alternating cells of figures per device.
    Stats = 3,
    /// One record per segment.
    Segments = 4,
    /// One record per block.
    Blocks = 5,
    /// One word per [`GROUP`] block slots: it changes whenever one of them does.
    Generations = 6,
    /// The event ring.
    Events = 7,
    /// Append-only strings.
    Strings = 8,
    /// Managed memory ranges. Reserved: written by no version so far.
    #[allow(dead_code, reason = "the number is taken so that no other section is given it")]
    Managed = 9,
}

/// Block slots that share a generation word.
pub(crate) const GROUP: usize = 1024;

/// Words of the live section.
pub(crate) mod live {
    /// Events published so far.
    pub(crate) const EVENTS: usize = 0;
    /// Block slots ever used: slots from here on are empty.
    pub(crate) const BLOCKS: usize = 1;
    /// Segment slots ever used.
    pub(crate) const SEGMENTS: usize = 2;
    /// Devices.
    pub(crate) const DEVICES: usize = 3;
    /// Strings.
    pub(crate) const STRINGS: usize = 4;
    /// Live blocks that found no slot.
    pub(crate) const UNTRACKED_BLOCKS: usize = 5;
    /// Bytes of those.
    pub(crate) const UNTRACKED_BYTES: usize = 6;
    /// 1 once the publisher said goodbye.
    pub(crate) const CLOSED: usize = 7;
    /// Words.
    pub(crate) const WORDS: usize = 8;
}

/// Words of one record of each kind, as this version writes them.
pub(crate) mod words {
    pub(crate) const DEVICE: usize = 24;
    pub(crate) const STATS_CELL: usize = 80;
    pub(crate) const STATS: usize = 2 * STATS_CELL;
    pub(crate) const SEGMENT: usize = 16;
    pub(crate) const BLOCK: usize = 8;
    pub(crate) const EVENT: usize = 8;
    pub(crate) const STRING: usize = 16;
}

/// A section: a table of equal records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Section {
    /// First word.
    pub(crate) start: usize,
    /// Words from one record to the next.
    pub(crate) stride: usize,
    /// Records.
    pub(crate) count: usize,
}

impl Section {
    /// The words of record `i`. Callers keep `i < count`.
    #[inline(always)]
    pub(crate) fn record(&self, i: usize) -> std::ops::Range<usize> {
        let start = self.start + i * self.stride;
        start..start + self.stride
    }

    fn words(&self) -> usize {
        self.stride * self.count
    }
}

/// How many records of each kind a channel has room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capacity {
    pub(crate) devices: usize,
    pub(crate) segments: usize,
    pub(crate) blocks: usize,
    pub(crate) events: usize,
    pub(crate) strings: usize,
}

/// Where the sections of one channel lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Words of the whole file.
    pub(crate) len: usize,
    pub(crate) live: Section,
    pub(crate) devices: Section,
    pub(crate) stats: Section,
    pub(crate) segments: Section,
    pub(crate) blocks: Section,
    pub(crate) generations: Section,
    pub(crate) events: Section,
    pub(crate) strings: Section,
}

/// The sections this version writes, in file order, with the least stride a reader needs of each.
const SECTIONS: [(Kind, usize); 8] = [
    (Kind::Live, 1),
    (Kind::Devices, words::DEVICE),
    (Kind::Stats, words::STATS),
    (Kind::Segments, words::SEGMENT),
    (Kind::Generations, 1),
    (Kind::Strings, words::STRING),
    (Kind::Events, words::EVENT),
    (Kind::Blocks, words::BLOCK),
];

impl Layout {
    fn section_mut(&mut self, kind: Kind) -> Option<&mut Section> {
        Some(match kind {
            Kind::Live => &mut self.live,
            Kind::Devices => &mut self.devices,
            Kind::Stats => &mut self.stats,
            Kind::Segments => &mut self.segments,
            Kind::Blocks => &mut self.blocks,
            Kind::Generations => &mut self.generations,
            Kind::Events => &mut self.events,
            Kind::Strings => &mut self.strings,
            Kind::Managed => return None,
        })
    }

    /// Lays out a new channel.
    pub(crate) fn new(capacity: Capacity) -> Layout {
        let mut layout = Layout::default();
        let mut next = (TOC + SECTIONS.len() * TOC_ENTRY).next_multiple_of(8);
        for (kind, stride) in SECTIONS {
            let count = match kind {
                Kind::Live => live::WORDS,
                Kind::Devices | Kind::Stats => capacity.devices,
                Kind::Segments => capacity.segments,
                Kind::Blocks => capacity.blocks,
                Kind::Generations => capacity.blocks.div_ceil(GROUP),
                Kind::Events => capacity.events.next_power_of_two(),
                Kind::Strings => capacity.strings,
                Kind::Managed => 0,
            };
            let section = Section {
                start: next,
                stride,
                count,
            };
            next = (next + section.words()).next_multiple_of(8);
            if let Some(place) = layout.section_mut(kind) {
                *place = section;
            }
        }
        layout.len = next;
        layout
    }

    /// The header and table of contents of this layout, identity left zero.
    pub(crate) fn header(&self) -> Vec<u64> {
        let mut header = vec![0; TOC + SECTIONS.len() * TOC_ENTRY];
        header[0] = MAGIC;
        header[1] = VERSION;
        header[2] = MIN_READER;
        header[3] = self.len as u64 * 8;
        header[4] = TOC as u64 * 8;
        header[5] = SECTIONS.len() as u64;
        header[6] = IDENTITY as u64 * 8;
        let mut layout = *self;
        for (i, (kind, _)) in SECTIONS.into_iter().enumerate() {
            let Some(section) = layout.section_mut(kind) else {
                continue;
            };
            let entry = &mut header[TOC + i * TOC_ENTRY..][..TOC_ENTRY];
            entry[0] = kind as u64;
            entry[1] = section.start as u64 * 8;
            entry[2] = (section.stride as u64 * 8) | (section.count as u64) << 32;
            entry[3] = 1;
        }
        header
    }

    /// Reads a layout back. Believes nothing: every offset, stride and count is checked against `file_len` bytes, sections must not
    /// overlap, and every section a reader needs must be there once.
    pub(crate) fn check(
        head: &[u64; 8],
        file_len: u64,
        read: impl Fn(usize, &mut [u64]) -> Result<(), OpenError>,
    ) -> Result<Layout, OpenError> {
        if head[0] != MAGIC {
            return Err(OpenError::NotAChannel);
        }
        if head[2] > VERSION {
            return Err(OpenError::TooNew {
                version: head[1],
                needs: head[2],
            });
        }
        let bad = OpenError::Malformed;
        let (len, toc, entries) = (head[3], head[4], head[5]);
        if len > file_len || !len.is_multiple_of(8) || len > FILE_MAX {
            return Err(bad("its length is not the file's"));
        }
        if entries > TOC_MAX || !toc.is_multiple_of(8) || toc > len || toc + entries * TOC_ENTRY as u64 * 8 > len {
            return Err(bad("its table of contents lies outside the file"));
        }
        if head[6] != IDENTITY as u64 * 8 || (IDENTITY + IDENTITY_WORDS) as u64 * 8 > len {
            return Err(bad("its identity lies outside the file"));
        }
        let mut table = vec![0; entries as usize * TOC_ENTRY];
        read(toc as usize / 8, &mut table)?;
        let mut layout = Layout {
            len: len as usize / 8,
            ..Layout::default()
        };
        let mut spans = vec![
            (0, (IDENTITY + IDENTITY_WORDS) as u64 * 8),
            (toc, toc + entries * TOC_ENTRY as u64 * 8),
        ];
        for entry in table.chunks_exact(TOC_ENTRY) {
            let (offset, stride, count) = (entry[1], entry[2] & 0xffff_ffff, entry[2] >> 32);
            // stride and count are below 2^32 each, so the product fits.
            let end = (stride * count).checked_add(offset).filter(|&end| end <= len);
            let Some(end) = end.filter(|_| offset.is_multiple_of(64) && stride.is_multiple_of(8)) else {
                return Err(bad("a section lies outside the file"));
            };
            spans.push((offset, end));
            let Some(&(kind, least)) = SECTIONS.iter().find(|(kind, _)| *kind as u64 == entry[0]) else {
                continue;
            };
            if (stride as usize) < least * 8 || count == 0 {
                return Err(bad("a section's records are too short"));
            }
            if let Some(place) = layout.section_mut(kind) {
                if place.count != 0 {
                    return Err(bad("a section is there twice"));
                }
                *place = Section {
                    start: offset as usize / 8,
                    stride: stride as usize / 8,
                    count: count as usize,
                };
            }
        }
        spans.retain(|span| span.0 != span.1);
        spans.sort_unstable();
        if spans.windows(2).any(|w| w[0].1 > w[1].0) {
            return Err(bad("its sections overlap"));
        }
        layout.check_counts()?;
        Ok(layout)
    }

    fn check_counts(&mut self) -> Result<(), OpenError> {
        let bad = OpenError::Malformed;
        for (kind, _) in SECTIONS {
            if self.section_mut(kind).is_some_and(|section| section.count == 0) {
                return Err(bad("a section is missing"));
            }
        }
        if self.live.count < live::WORDS || self.live.stride != 1 || self.generations.stride != 1 {
            return Err(bad("its counters are too short"));
        }
        if self.generations.count < self.blocks.count.div_ceil(GROUP) || self.stats.count < self.devices.count {
            return Err(bad("its sections do not fit each other"));
        }
        if !self.events.count.is_power_of_two() {
            return Err(bad("its event ring is no power of two"));
        }
        if self.devices.count > 256
            || self.blocks.count >= u32::MAX as usize
            || self.segments.count >= u32::MAX as usize
        {
            return Err(bad("a section is too large"));
        }
        Ok(())
    }
}
