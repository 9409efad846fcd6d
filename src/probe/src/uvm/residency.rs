//! Which pages of a process's managed memory the CPU can reach, from `/proc/PID/pagemap`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::spans::Spans;
use super::sys::{self, PageRegion};
use super::{ManagedRange, PAGE};

/// Runs that the kernel may return in one call: 24 KiB.
const REGIONS: usize = 1024;
/// Spans of one process that are kept page by page: 768 KiB. Beyond that they are folded into blocks.
const MOST_SPANS: usize = 64 << 10;
/// Pages that are read at once where the kernel has no scan: 64 KiB.
const CHUNK: usize = 8 << 10;
/// A page of the table is present (`Documentation/admin-guide/mm/pagemap.rst`).
const PRESENT: u64 = 1 << 63;
/// Bytes of one range that are looked at: the pages must be countable in 32 bits.
const MOST_BYTES: u64 = u32::MAX as u64 * PAGE;

/// A managed range and which of its pages the CPU can reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resident {
    /// The range.
    pub range: ManagedRange,
    /// Its pages that are present.
    pub spans: Spans,
}

/// Reads a process's page table.
#[derive(Debug)]
pub(super) struct Reader {
    regions: Vec<PageRegion>,
    /// Whether the kernel has `PAGEMAP_SCAN`: it is tried once.
    scans: bool,
}

impl Default for Reader {
    fn default() -> Self {
        Reader {
            regions: Vec::new(),
            scans: true,
        }
    }
}

impl Reader {
    /// A reader that never scans, as on Linux before 6.7.
    #[cfg(test)]
    fn without_scan() -> Reader {
        Reader {
            scans: false,
            ..Reader::default()
        }
    }

    /// Looks up every page of `ranges`.
    ///
    /// # Errors
    /// When the table cannot be read. A range that is unmapped meanwhile is no error: its pages are not present.
    pub(super) fn read(&mut self, pagemap: &File, ranges: &[ManagedRange]) -> io::Result<Vec<Resident>> {
        let mut found = Vec::with_capacity(ranges.len());
        let mut spent = 0;
        for &range in ranges {
            let end = range.end.min(range.start.saturating_add(MOST_BYTES));
            let range = ManagedRange { end, ..range };
            let mut spans = Spans::new((range.bytes() / PAGE) as u32);
            self.read_range(pagemap, range, &mut spans, MOST_SPANS.saturating_sub(spent))?;
            spent += spans.len();
            found.push(Resident { range, spans });
        }
        Ok(found)
    }

    fn read_range(&mut self, pagemap: &File, range: ManagedRange, spans: &mut Spans, room: usize) -> io::Result<()> {
        if self.scans {
            match self.scan(pagemap, range, spans, room) {
                Err(e) if e.raw_os_error() == Some(libc::ENOTTY) => self.scans = false,
                done => return done,
            }
        }
        let mut chunk = vec![0; CHUNK * 8];
        let mut limit = room;
        let pages = u64::from(spans.pages());
        let mut page = 0;
        while page < pages {
            let count = (pages - page).min(CHUNK as u64) as usize;
            let at = (range.start / PAGE + page) * 8;
            let read = pagemap.read_at(&mut chunk[..count * 8], at)? / 8;
            if read == 0 {
                return Ok(());
            }
            for (n, entry) in (page as u32..).zip(chunk[..read * 8].chunks_exact(8)) {
                let entry = u64::from_ne_bytes(entry.try_into().unwrap_or_default());
                if entry & PRESENT != 0 {
                    spans.push(n..n + 1);
                }
            }
            page += read as u64;
            limit = fold_beyond(spans, limit);
        }
        Ok(())
    }

    fn scan(&mut self, pagemap: &File, range: ManagedRange, spans: &mut Spans, room: usize) -> io::Result<()> {
        self.regions.resize(REGIONS, PageRegion::default());
        let mut limit = room;
        let mut from = range.start;
        while from < range.end {
            let (count, walked) = sys::scan_present(pagemap, (from, range.end), &mut self.regions)?;
            for region in &self.regions[..count] {
                let page = |address: u64| (address.clamp(range.start, range.end) - range.start) / PAGE;
                spans.push(page(region.start) as u32..page(region.end) as u32);
            }
            if walked <= from {
                // A kernel that makes no progress would keep this loop running for ever.
                return Err(io::ErrorKind::InvalidData.into());
            }
            from = walked;
            limit = fold_beyond(spans, limit);
        }
        Ok(())
    }
}

/// Folds the spans once there are more than `limit`. Returns the next limit, because folding again after each run would take too long.
fn fold_beyond(spans: &mut Spans, limit: usize) -> usize {
    if spans.len() <= limit {
        return limit;
    }
    spans.fold();
    limit.max(spans.len() + MOST_SPANS / 4)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::Ordering;

    use super::super::sys::Shared;
    use super::*;

    /// Memory of this process that is mapped and not touched yet.
    struct Mapping(Shared);

    impl Mapping {
        fn new(pages: usize) -> Mapping {
            Mapping(Shared::anonymous(pages * PAGE as usize).unwrap())
        }

        fn touch(&self, page: usize) {
            self.0.words()[page * PAGE as usize / 8].store(1, Ordering::Relaxed);
        }

        fn range(&self) -> ManagedRange {
            let start = self.0.address();
            ManagedRange {
                start,
                end: start + self.0.words().len() as u64 * 8,
            }
        }
    }

    fn both() -> [Reader; 2] {
        [Reader::default(), Reader::without_scan()]
    }

    #[test]
    fn touched_pages_are_present() {
        let mapping = Mapping::new(3000);
        let touched = [0, 1, 2, 511, 512, 1024, 2047, 2999];
        touched.iter().for_each(|&page| mapping.touch(page));
        let pagemap = File::open("/proc/self/pagemap").unwrap();
        for mut reader in both() {
            let [resident] = &reader.read(&pagemap, &[mapping.range()]).unwrap()[..] else {
                unreachable!("one range was asked for")
            };
            let present = |page: &u32| resident.spans.present_in(*page..page + 1) == 1;
            let found: Vec<u32> = (0..3000).filter(present).collect();
            assert_eq!(found, touched.map(|page| page as u32));
        }
    }

    /// A map may claim more than there is memory for. `/dev/null` takes the place of a page table without entries.
    #[test]
    fn a_range_is_cut_where_its_pages_cannot_be_counted() {
        let nothing = File::open("/dev/null").unwrap();
        let start = 1 << 40;
        let range = |bytes| ManagedRange {
            start,
            end: start + bytes,
        };
        for mut reader in both() {
            let found = reader.read(&nothing, &[range(MOST_BYTES + PAGE)]).unwrap();
            assert_eq!(found[0].range, range(MOST_BYTES));
            assert_eq!((found[0].spans.pages(), found[0].spans.present()), (u32::MAX, 0));
        }
    }

    /// A checkerboard is the worst case: a run for every other page.
    #[test]
    fn many_runs_are_folded_into_blocks() {
        let pages = 2 * MOST_SPANS + 4096;
        let mapping = Mapping::new(pages);
        (0..pages).step_by(2).for_each(|page| mapping.touch(page));
        let pagemap = File::open("/proc/self/pagemap").unwrap();
        for mut reader in both() {
            let found = reader.read(&pagemap, &[mapping.range()]).unwrap();
            let spans = &found[0].spans;
            assert!(spans.len() <= MOST_SPANS, "{}", spans.len());
            assert_eq!(spans.present() as usize, pages / 2);
            assert_eq!(spans.present_in(0..512), 256);
        }
    }
}
