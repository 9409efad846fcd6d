//! The sections of a channel, one row of a table each.
//!
//! A section is a table of equal records. Its row has the number of its kind, its version, the words of a record, how
//! many records a new file has, and whether a file may lack it. Everything else follows from the rows: the positions of
//! the sections in a new file and its table of contents (`layout.rs`), the checks of an untrusted file
//! (`layout/check.rs`), and the field of `Layout` through which writer and reader find the records.
//!
//! # Compatibility of files and readers
//! - A reader skips unknown kinds anywhere in the table of contents.
//! - A file may lack an optional section. A reader that knows the section then reports its data as not known.
//! - Records may grow at their end: a reader uses the words of each record that it knows, and refuses shorter records.
//!
//! # Adding a section
//! These files of this crate change; those of managed memory are an example:
//! 1. `NAME.rs`, new: the record as a plain type.
//! 2. `section/NAME.rs`, new: the record as words, a function that reads all of them into a [`Snapshot`]
//!    (`Source::changed` reads guarded records), and their tests.
//! 3. `section.rs`: a row before that of the blocks, `..OPTIONAL`, with the next free number and that function.
//! 4. `publisher/NAME.rs`, new: a method of [`Publisher`](crate::Publisher) that stores one (`Publisher::record` guards
//!    it with its sequence word).
//! 5. `snapshot.rs`: a field, which is `None` if the file has no such section: missing data is not zero.
//! 6. `options.rs`: the number of records, if the program is to choose it. A default of none keeps the files of programs
//!    that do not use the section as they are.
//!
//! The number of a kind is never used again, and the meaning of a word never changes.

use crate::error::ReadError;
use crate::format::{APART, GROUP, LANES_MAX, Section, live, words};
use crate::options::Options;
use crate::snapshot::Snapshot;
use crate::source::Source;

pub(crate) mod managed;
pub(crate) mod outside;
pub(crate) mod past;
pub(crate) mod sampled;
#[cfg(test)]
mod tests;

/// Reads a section into its part of a snapshot. Called only if the file has the section.
pub(crate) type Read = fn(&Source, &Section, &mut Snapshot) -> Result<(), ReadError>;

/// The description of a section.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    /// Its number in the format.
    pub(crate) kind: u64,
    /// Version of its records, incremented when they grow. Readers ignore it and use the stride.
    pub(crate) version: u64,
    /// Words of a record that this version writes, and the least that a reader needs.
    pub(crate) words: usize,
    /// Words from one record to the next in a new file, if they depend on the options.
    pub(crate) stride: Option<fn(&Options) -> usize>,
    /// Number of records in a new file.
    pub(crate) count: fn(&Options) -> usize,
    /// Whether a file may lack it.
    pub(crate) optional: bool,
    /// Whether the table of contents of a new file lists it even if it has no records.
    pub(crate) listed: bool,
    /// Alignment of its start in words.
    pub(crate) align: usize,
    /// Reads it at every [refresh](crate::Reader::refresh). `None` if the reader has its own code for it.
    pub(crate) read: Option<Read>,
    /// Its field of [`Layout`], filled in by `sections!`.
    pub(crate) place: fn(&mut Layout) -> &mut Section,
}

/// Defaults of a section that every file has. The rows fill in the kind and the count.
const REQUIRED: Row = Row {
    kind: 0,
    version: 1,
    words: 1,
    stride: None,
    count: |_| 0,
    optional: false,
    listed: true,
    align: 8,
    read: None,
    place: |layout| &mut layout.live,
};

/// Defaults of a section that was added later, or is used by some programs only.
const OPTIONAL: Row = Row {
    optional: true,
    listed: false,
    ..REQUIRED
};

/// Defaults of a section that lanes write, on their own cache lines. These sections were added in format 2, and all of
/// its files list them.
const OF_LANES: Row = Row {
    listed: true,
    align: APART,
    ..OPTIONAL
};

/// Makes [`Layout`] and [`SECTIONS`] from the rows.
macro_rules! sections {
    ($($(#[$doc:meta])* $name:ident: $row:expr;)*) => {
        /// The positions of the sections of one channel.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct Layout {
            /// Length of the whole file in words.
            pub(crate) len: usize,
            $($(#[$doc])* pub(crate) $name: Section,)*
        }

        /// All sections, in file order.
        pub(crate) const SECTIONS: &[Row] = &[$(Row { place: |layout| &mut layout.$name, ..$row },)*];
    };
}

sections! {
    /// Counters that only the publisher changes: see [`live`].
    live: Row { kind: 1, count: |_| live::WORDS, ..REQUIRED };
    /// One record per device.
    devices: Row { kind: 2, words: words::DEVICE, count: devices, ..REQUIRED };
    /// Two alternating cells of figures per device.
    stats: Row { kind: 3, words: words::STATS, count: devices, ..REQUIRED };
    /// One record per segment.
    segments: Row { kind: 4, words: words::SEGMENT, count: |o| o.segments.clamp(1, 1 << 20) as usize, ..REQUIRED };
    /// One word per [`GROUP`] block slots: it changes whenever one of them does.
    generations: Row { kind: 6, count: groups, ..REQUIRED };
    /// Append-only strings.
    strings: Row { kind: 8, words: words::STRING, count: |o| o.strings.clamp(1, 1 << 16) as usize, ..REQUIRED };
    /// Per lane: see [`lane`](crate::format::lane), and two alternating cells of figures.
    lanes: Row { kind: 10, words: words::LANE, count: lanes, ..OF_LANES };
    /// Per lane: one word per [`GROUP`] block slots, which changes whenever the lane changes one of them.
    lane_generations: Row { kind: 11, stride: Some(|o| groups(o).next_multiple_of(APART)), count: lanes, ..OF_LANES };
    /// The event rings of the lanes, all of one size, one after the other.
    lane_events: Row { kind: 12, words: words::EVENT, count: |o| lanes(o) * ring(o.lane_events, 1 << 17), ..OF_LANES };
    /// The event ring.
    events: Row { kind: 7, words: words::EVENT, count: |o| ring(o.events, 1 << 20), ..REQUIRED };
    /// One record per range of managed memory.
    managed: Row { kind: 9, words: managed::RANGE_WORDS, count: managed_ranges, read: Some(managed::read_ranges), ..OPTIONAL };
    /// One record of figures of managed memory.
    managed_figures: Row {
        kind: 13,
        words: managed::FIGURES_WORDS,
        count: |o| managed_ranges(o).min(1),
        read: Some(managed::read_figures),
        ..OPTIONAL
    };
    /// One record per block of managed memory.
    managed_blocks: Row { kind: 14, words: managed::BLOCK_WORDS, count: |o| o.managed_blocks.min(1 << 15) as usize, read: Some(managed::read_blocks), ..OPTIONAL };
    /// One record, of publishers that sample another allocator.
    sampled: Row { kind: 15, words: sampled::WORDS, count: |o| o.sampled.into(), read: Some(sampled::read), ..OPTIONAL };
    /// One record per device, of publishers that know what their process uses outside of the allocator.
    outside: Row { kind: 16, words: outside::WORDS, count: |o| if o.sampled { devices(o) } else { 0 }, read: Some(outside::read), ..OPTIONAL };
    /// A ring of earlier figures, of publishers that sample another allocator.
    past: Row { kind: 17, words: past::WORDS, count: |o| if o.sampled { past::PAST } else { 0 }, ..OPTIONAL };
    /// One record per block. It must be last, so that a slot beyond the table is beyond the end of the file.
    blocks: Row { kind: 5, words: words::BLOCK, count: blocks, ..REQUIRED };
}

fn managed_ranges(options: &Options) -> usize {
    options.managed.min(1 << 12) as usize
}

fn devices(options: &Options) -> usize {
    options.devices.clamp(1, 256) as usize
}

fn blocks(options: &Options) -> usize {
    options.blocks.clamp(1, 1 << 22) as usize
}

fn groups(options: &Options) -> usize {
    blocks(options).div_ceil(GROUP)
}

fn lanes(options: &Options) -> usize {
    (options.lanes as usize).min(LANES_MAX)
}

/// Returns the size of a ring for which `events` were requested.
fn ring(events: u32, most: u32) -> usize {
    (events.clamp(16, most) as usize).next_power_of_two()
}
