//! The layout of a channel: computed for a new file from the rows of `section.rs`, or read back from a file
//! (`check.rs`).

mod check;

use crate::format::{IDENTITY, MAGIC, MIN_READER, Section, TOC, TOC_ENTRY, VERSION};
use crate::options::Options;
pub(crate) use crate::section::Layout;
use crate::section::{Row, SECTIONS};

impl Layout {
    /// Lays out a new channel.
    pub(crate) fn of(options: &Options) -> Layout {
        Layout::with(options, |row| row.listed || (row.count)(options) > 0)
    }

    /// Lays out a new channel that has the sections for which `has` returns true.
    fn with(options: &Options, has: impl Fn(&Row) -> bool) -> Layout {
        let rows = || SECTIONS.iter().filter(|row| has(row));
        let mut layout = Layout::default();
        let mut next = TOC + rows().count() * TOC_ENTRY;
        for row in rows() {
            let section = Section {
                start: next.next_multiple_of(row.align),
                stride: row.stride.map_or(row.words, |stride| stride(options)),
                count: (row.count)(options),
            };
            next = section.start + section.stride * section.count;
            *(row.place)(&mut layout) = section;
        }
        layout.len = next.next_multiple_of(8);
        layout
    }

    /// Returns the size of the whole file in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.len as u64 * 8
    }

    /// Returns the position of a section.
    pub(crate) fn section(mut self, row: &Row) -> Section {
        *(row.place)(&mut self)
    }

    /// Returns the event ring of a lane. Callers keep `lane` below the number of lanes.
    pub(crate) fn lane_ring(&self, lane: usize) -> Section {
        let count = self.lane_events.count / self.lanes.count;
        Section {
            start: self.lane_events.record(lane * count).start,
            count,
            ..self.lane_events
        }
    }

    /// Returns the header and table of contents of this layout, with zeros for the identity.
    pub(crate) fn header(&self) -> Vec<u64> {
        let mut header = vec![0; TOC];
        for row in SECTIONS {
            let section = self.section(row);
            if row.listed || section.count > 0 {
                header.extend([
                    row.kind,
                    section.start as u64 * 8,
                    (section.stride as u64 * 8) | (section.count as u64) << 32,
                    row.version,
                ]);
            }
        }
        header[0] = MAGIC;
        header[1] = VERSION;
        header[2] = MIN_READER;
        header[3] = self.bytes();
        header[4] = TOC as u64 * 8;
        header[5] = ((header.len() - TOC) / TOC_ENTRY) as u64;
        header[6] = IDENTITY as u64 * 8;
        header
    }
}

/// Sizes of the sections that every file has, for tests.
#[cfg(test)]
#[derive(Clone, Copy)]
pub(crate) struct Capacity {
    pub(crate) devices: u32,
    pub(crate) segments: u32,
    pub(crate) blocks: u32,
    pub(crate) events: u32,
    pub(crate) strings: u32,
    pub(crate) lanes: u32,
    pub(crate) lane_events: u32,
}

#[cfg(test)]
impl Layout {
    pub(crate) fn new(capacity: Capacity) -> Layout {
        let options = Options {
            devices: capacity.devices,
            segments: capacity.segments,
            blocks: capacity.blocks,
            events: capacity.events,
            strings: capacity.strings,
            lanes: capacity.lanes,
            lane_events: capacity.lane_events,
            ..Options::default()
        };
        Layout::with(&options, |row| row.listed)
    }
}
