//! The layout of a channel file. All numbers are little-endian u64 words; offsets and lengths are in bytes.
//!
//! ```text
//! word 0..8    frozen for ever   magic, version, minimum reader version, file length, toc offset, toc entries, identity offset, 0
//! word 8..64   identity          the publisher (identity.rs)
//! word 64..    table of contents 4 words a section: kind, offset, stride | count << 32, version
//! sections     one row each in section.rs; 64-byte aligned (what lanes write: 128), never overlapping; unknown kinds are skipped, longer strides than known are accepted
//! ```

/// "gpumemch" as little-endian bytes.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"gpumemch");
/// Format version that this crate writes.
pub(crate) const VERSION: u64 = 2;
/// Format version of the oldest reader that understands what this crate writes. A reader of format 1 would omit the
/// figures of the lanes.
pub(crate) const MIN_READER: u64 = 2;

/// First word of the identity.
pub(crate) const IDENTITY: usize = 8;
/// Length of the identity in words.
pub(crate) const IDENTITY_WORDS: usize = 56;
/// First word of the table of contents.
pub(crate) const TOC: usize = IDENTITY + IDENTITY_WORDS;
/// Length in words of an entry in the table of contents.
pub(crate) const TOC_ENTRY: usize = 4;
/// Size in bytes of the largest channel that a reader opens.
pub(crate) const FILE_MAX: u64 = 1 << 30;

/// Block slots that share a generation word.
pub(crate) const GROUP: usize = 1024;

/// Words of the live section, by index.
pub(crate) mod live {
    /// Number of events published so far by the publisher.
    pub(crate) const EVENTS: usize = 0;
    /// Number of block slots ever used: later slots are empty.
    pub(crate) const BLOCKS: usize = 1;
    /// Number of segment slots ever used.
    pub(crate) const SEGMENTS: usize = 2;
    /// Number of devices.
    pub(crate) const DEVICES: usize = 3;
    /// Number of strings.
    pub(crate) const STRINGS: usize = 4;
    /// Number of live blocks without a slot.
    pub(crate) const UNTRACKED_BLOCKS: usize = 5;
    /// Bytes of the live blocks without a slot.
    pub(crate) const UNTRACKED_BYTES: usize = 6;
    /// 1 once the publisher has closed the channel.
    pub(crate) const CLOSED: usize = 7;
    /// Number of lanes opened so far. Files of format 1 have no such word, and no lanes.
    pub(crate) const LANES: usize = 8;
    /// Length of the section in words.
    pub(crate) const WORDS: usize = 9;
}

/// Words of a lane's record, by index.
pub(crate) mod lane {
    /// Number of events published on it so far.
    pub(crate) const EVENTS: usize = 0;
    /// [`OPEN`] or [`CLOSED`] in the lowest byte, and its device in the next.
    pub(crate) const STATE: usize = 1;
    /// The stream that the lane currently publishes.
    pub(crate) const STREAM: usize = 2;
    /// The first of its two cells of figures. They are not on the cache lines of the words above, which change with
    /// every event.
    pub(crate) const CELLS: usize = super::APART;

    /// State of a lane that is in use.
    pub(crate) const OPEN: u64 = 1;
    /// State of a lane that was closed.
    pub(crate) const CLOSED: u64 = 2;
}

/// Flags of an event.
pub(crate) mod flags {
    /// The block is an inactive split of the small pool while it is free.
    pub(crate) const SPLIT: u8 = 1;
    /// The event's effect on the figures follows from it.
    pub(crate) const FOLLOWS: u8 = 2;
    /// Together with [`SPLIT`]: the inactive split is of the large pool.
    pub(crate) const SPLIT_IN_LARGE: u8 = 4;
}

/// Distance in words between data of two writers: two cache lines, because processors fetch them in pairs.
pub(crate) const APART: usize = 16;
/// Most lanes of one channel.
pub(crate) const LANES_MAX: usize = 63;

/// Length in words of a record of each kind, as this version writes it.
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

/// Position of a section in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Section {
    /// First word.
    pub(crate) start: usize,
    /// Distance in words from one record to the next.
    pub(crate) stride: usize,
    /// Number of records; 0 if the file has no such section.
    pub(crate) count: usize,
}

impl Section {
    /// Returns the words of record `i`. Callers ensure `i < count`.
    #[inline(always)]
    pub(crate) fn record(&self, i: usize) -> std::ops::Range<usize> {
        let start = self.start + i * self.stride;
        start..start + self.stride
    }
}
