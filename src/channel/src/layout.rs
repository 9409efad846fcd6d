//! Where everything lies in a channel file. All numbers are little-endian u64 words; offsets and lengths are in bytes.
//!
//! ```text
//! word 0..8    frozen for ever   magic, version, minimum reader version, file length, toc offset, toc entries, identity offset, 0
//! word 8..64   identity          who publishes (identity.rs)
//! word 64..    table of contents 4 words a section: kind, offset, stride | count << 32, version
//! sections     64-byte aligned (what lanes write: 128), never overlapping; unknown kinds are skipped, longer strides than known are accepted
//! ```

mod check;

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
    /// Per lane: see [`lane`], and two alternating cells of figures.
    Lanes = 10,
    /// Per lane: one word per [`GROUP`] block slots, which changes whenever the lane changes one of them.
    LaneGenerations = 11,
    /// The event rings of the lanes, all of one size, one after the other.
    LaneEvents = 12,
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
    pub(crate) lanes: usize,
    pub(crate) lane_events: usize,
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
    pub(crate) lanes: Section,
    pub(crate) lane_generations: Section,
    pub(crate) lane_events: Section,
}

/// The sections this version writes, in file order, with the least stride a reader needs of each.
const SECTIONS: [(Kind, usize); 11] = [
    (Kind::Live, 1),
    (Kind::Devices, words::DEVICE),
    (Kind::Stats, words::STATS),
    (Kind::Segments, words::SEGMENT),
    (Kind::Generations, 1),
    (Kind::Strings, words::STRING),
    (Kind::Lanes, words::LANE),
    (Kind::LaneGenerations, 1),
    (Kind::LaneEvents, words::EVENT),
    (Kind::Events, words::EVENT),
    (Kind::Blocks, words::BLOCK),
];

impl Kind {
    /// Whether a channel can be without it.
    fn is_of_lanes(self) -> bool {
        matches!(self, Kind::Lanes | Kind::LaneGenerations | Kind::LaneEvents)
    }
}

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
            Kind::Lanes => &mut self.lanes,
            Kind::LaneGenerations => &mut self.lane_generations,
            Kind::LaneEvents => &mut self.lane_events,
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
                Kind::Lanes | Kind::LaneGenerations => capacity.lanes,
                Kind::LaneEvents => capacity.lanes * capacity.lane_events.next_power_of_two(),
                Kind::Managed => 0,
            };
            let stride = match kind {
                Kind::LaneGenerations => capacity.blocks.div_ceil(GROUP).next_multiple_of(APART),
                _ => stride,
            };
            let start = next.next_multiple_of(if kind.is_of_lanes() { APART } else { 8 });
            let section = Section { start, stride, count };
            next = (start + section.words()).next_multiple_of(8);
            if let Some(place) = layout.section_mut(kind) {
                *place = section;
            }
        }
        layout.len = next;
        layout
    }

    /// Bytes of the whole file.
    pub(crate) fn bytes(&self) -> u64 {
        self.len as u64 * 8
    }

    /// The event ring of a lane. Callers keep `lane` below the number of lanes.
    pub(crate) fn lane_ring(&self, lane: usize) -> Section {
        let count = self.lane_events.count / self.lanes.count;
        Section {
            start: self.lane_events.record(lane * count).start,
            count,
            ..self.lane_events
        }
    }

    /// The header and table of contents of this layout, identity left zero.
    pub(crate) fn header(&self) -> Vec<u64> {
        let mut header = vec![0; TOC + SECTIONS.len() * TOC_ENTRY];
        header[0] = MAGIC;
        header[1] = VERSION;
        header[2] = MIN_READER;
        header[3] = self.bytes();
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
}
