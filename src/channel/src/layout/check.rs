//! Reads a layout back from an untrusted file.

use super::{Layout, SECTIONS};
use crate::error::OpenError;
use crate::format::{FILE_MAX, GROUP, IDENTITY, IDENTITY_WORDS, MAGIC, Section, TOC_ENTRY, VERSION, live};

/// Most entries of a table of contents that a reader accepts.
const TOC_MAX: u64 = 64;
/// Most lanes that a reader accepts: an event names its lane in a byte.
const LANES_MOST: usize = 255;

impl Layout {
    /// Reads a layout back. Trusts nothing: every offset, stride and count is checked against `file_len` bytes,
    /// sections must not overlap, and every section that a reader needs must be there once.
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
            // `stride` and `count` are below 2^32 each, so the product fits.
            let end = (stride * count).checked_add(offset).filter(|&end| end <= len);
            let Some(end) = end.filter(|_| offset.is_multiple_of(64) && stride.is_multiple_of(8)) else {
                return Err(bad("a section lies outside the file"));
            };
            spans.push((offset, end));
            let Some(row) = SECTIONS.iter().find(|row| row.kind == entry[0]) else {
                continue;
            };
            if count == 0 && row.optional {
                continue;
            }
            if (stride as usize) < row.words * 8 || count == 0 {
                return Err(bad("a section's records are too short"));
            }
            let place = (row.place)(&mut layout);
            if place.count != 0 {
                return Err(bad("a section is there twice"));
            }
            *place = Section {
                start: offset as usize / 8,
                stride: stride as usize / 8,
                count: count as usize,
            };
        }
        spans.retain(|span| span.0 != span.1);
        spans.sort_unstable();
        if spans.windows(2).any(|w| w[0].1 > w[1].0) {
            return Err(bad("its sections overlap"));
        }
        layout.check_counts()?;
        Ok(layout)
    }

    fn check_counts(&self) -> Result<(), OpenError> {
        let bad = OpenError::Malformed;
        if SECTIONS.iter().any(|row| !row.optional && self.section(row).count == 0) {
            return Err(bad("a section is missing"));
        }
        if self.live.count < live::LANES || self.live.stride != 1 || self.generations.stride != 1 {
            return Err(bad("its counters are too short"));
        }
        if self.generations.count < self.blocks.count.div_ceil(GROUP) || self.stats.count < self.devices.count {
            return Err(bad("its sections do not fit each other"));
        }
        if !self.events.count.is_power_of_two() {
            return Err(bad("the size of its event ring is not a power of two"));
        }
        if self.devices.count > 256
            || self.blocks.count >= u32::MAX as usize
            || self.segments.count >= u32::MAX as usize
        {
            return Err(bad("a section is too large"));
        }
        self.check_lanes()
    }

    /// Checks the sections of the lanes. A channel without a lane section has no lanes, whatever other sections it has.
    fn check_lanes(&self) -> Result<(), OpenError> {
        let bad = OpenError::Malformed;
        let (lanes, rows) = (self.lanes.count, self.lane_generations);
        if lanes == 0 {
            return Ok(());
        }
        if lanes > LANES_MOST || self.live.count <= live::LANES {
            return Err(bad("it has too many lanes"));
        }
        if rows.count < lanes || rows.stride < self.blocks.count.div_ceil(GROUP) {
            return Err(bad("its lanes do not fit its blocks"));
        }
        let rings = self.lane_events.count;
        if !rings.is_multiple_of(lanes) || !(rings / lanes).is_power_of_two() {
            return Err(bad("the size of a lane's event ring is not a power of two"));
        }
        Ok(())
    }
}
