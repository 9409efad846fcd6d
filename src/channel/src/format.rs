//! Where everything lies in a channel file. All numbers are little-endian u64 words; offsets and lengths are in bytes.
//!
//! ```text
//! word 0..8    frozen for ever   magic, version, minimum reader version, file length, toc offset, toc entries, identity offset, 0
//! word 8..64   identity          who publishes (identity.rs)
//! word 64..    table of contents 4 words a section: kind, offset, stride | count << 32, version
//! sections     one row each in section.rs; 64-byte aligned (what lanes write: 128), never overlapping; unknown kinds are skipped, longer strides than known are accepted
//! ```

/// "gpumemch" as little-endian bytes.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"gpumemch");
/// Version this crate writes.
pub(crate) const VERSION: u64 = 2;
/// The oldest reader that understands what this crate writes. One of format 1 would show the figures without those of the lanes.
pub(crate) const MIN_READER: u64 = 2;

/// First word of the identity.
pub(crate) const IDENTITY: usize = 8;
/// Words of identity.
pub(crate) const IDENTITY_WORDS: usize = 56;
/// First word of the table of contents.
pub(crate) const TOC: usize = IDENTITY + IDENTITY_WORDS;
/// Words of one entry in the table of contents.
pub(crate) const TOC_ENTRY: usize = 4;
/// Bytes of the largest channel a reader opens.
pub(crate) const FILE_MAX: u64 = 1 << 30;

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
    /// Lanes opened so far. Files of format 1 have no such word, and no lanes.
    pub(crate) const LANES: usize = 8;
    /// Words.
    pub(crate) const WORDS: usize = 9;
}

/// Words of a lane's record.
pub(crate) mod lane {
    /// Events published on it so far.
    pub(crate) const EVENTS: usize = 0;
    /// [`OPEN`] or [`CLOSED`] in the lowest byte, and its device in the next.
    pub(crate) const STATE: usize = 1;
    /// The stream that it is about now.
    pub(crate) const STREAM: usize = 2;
    /// The first of its two cells of figures: not on the lines of the words above, which change with every event.
    pub(crate) const CELLS: usize = super::APART;

    /// Somebody publishes on it.
    pub(crate) const OPEN: u64 = 1;
    /// Somebody did.
    pub(crate) const CLOSED: u64 = 2;
}

/// Flags of an event.
pub(crate) mod flags {
    /// The block is an inactive split while it is free, of the small pool.
    pub(crate) const SPLIT: u8 = 1;
    /// What the event does to the figures follows from it.
    pub(crate) const FOLLOWS: u8 = 2;
    /// With the first: of the large pool.
    pub(crate) const SPLIT_IN_LARGE: u8 = 4;
}

/// Words that two writers keep between them: two cache lines, because processors fetch them in pairs.
pub(crate) const APART: usize = 16;
/// Lanes that one channel may have.
pub(crate) const LANES_MAX: usize = 63;

/// Words of one record of each kind, as this version writes them.
pub(crate) mod words {
    pub(crate) const DEVICE: usize = 24;
    pub(crate) const STATS_CELL: usize = 80;
    pub(crate) const STATS: usize = 2 * STATS_CELL;
    pub(crate) const SEGMENT: usize = 16;
    pub(crate) const BLOCK: usize = 8;
    pub(crate) const EVENT: usize = 8;
    pub(crate) const STRING: usize = 16;
    pub(crate) const LANE_CELL: usize = 24;
    pub(crate) const LANE: usize = super::lane::CELLS + 2 * LANE_CELL;
    const _: () = assert!(LANE.is_multiple_of(super::APART));
}

/// Where a section lies in one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Section {
    /// First word.
    pub(crate) start: usize,
    /// Words from one record to the next.
    pub(crate) stride: usize,
    /// Records. 0: the file has no such section.
    pub(crate) count: usize,
}

impl Section {
    /// The words of record `i`. Callers keep `i < count`.
    #[inline(always)]
    pub(crate) fn record(&self, i: usize) -> std::ops::Range<usize> {
        let start = self.start + i * self.stride;
        start..start + self.stride
    }
}
