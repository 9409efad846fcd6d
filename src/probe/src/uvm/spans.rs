//! Which pages of a range the CPU can reach, as runs of pages.

use std::ops::Range;

/// Pages of 4 KiB in the driver's block of 2 MiB.
pub const BLOCK_PAGES: u32 = 512;

/// Pages of one range that are present, all or some of them. Pages between spans are not present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First page, from the range's start.
    pub start: u32,
    /// Pages.
    pub len: u32,
    /// How many of them are present: all, but where many short runs were folded into one span.
    pub present: u32,
}

impl Span {
    fn end(self) -> u32 {
        self.start + self.len
    }
}

/// The pages of a range that are present, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans {
    /// Sorted, without overlap, none empty.
    spans: Vec<Span>,
    pages: u32,
    present: u32,
}

impl Spans {
    /// A range of `pages`, of which none is present yet.
    pub fn new(pages: u32) -> Spans {
        Spans {
            pages,
            ..Spans::default()
        }
    }

    /// Adds a run of present pages behind those that are there. What lies beyond the range, or before its own place, is left out.
    pub fn push(&mut self, run: Range<u32>) {
        let from = run.start.max(self.spans.last().map_or(0, |last| last.end()));
        let to = run.end.min(self.pages);
        if from >= to {
            return;
        }
        let len = to - from;
        self.present += len;
        match self.spans.last_mut() {
            Some(last) if last.end() == from && last.present == last.len => {
                last.len += len;
                last.present += len;
            }
            _ => self.spans.push(Span {
                start: from,
                len,
                present: len,
            }),
        }
    }

    /// Folds the spans of each block that has several into one, to save memory: pages one by one become a share of a block.
    pub(super) fn fold(&mut self) {
        let mut folded = Spans::new(self.pages);
        for span in &self.spans {
            let (mut start, mut left) = (span.start, span.present);
            while start < span.end() {
                let block_end = (start / BLOCK_PAGES + 1) * BLOCK_PAGES;
                let end = span.end().min(block_end);
                let present = if span.present == span.len { end - start } else { left };
                left = left.saturating_sub(present);
                folded.push_folded(start, end - start, present);
                start = end;
            }
        }
        folded.spans.shrink_to_fit();
        *self = folded;
    }

    fn push_folded(&mut self, start: u32, len: u32, present: u32) {
        self.present += present;
        let full = present == len;
        match self.spans.last_mut() {
            // A block that is present as a whole goes on with whole blocks.
            Some(last) if full && last.end() == start && last.len == last.present && last.start % BLOCK_PAGES == 0 => {
                last.len += len;
                last.present += len;
            }
            Some(last) if last.start / BLOCK_PAGES == start / BLOCK_PAGES => {
                last.len = start + len - last.start;
                last.present += present;
            }
            _ => self.spans.push(Span { start, len, present }),
        }
    }

    /// How many spans it takes.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether no page is present.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Pages of the range.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Pages that are present.
    pub fn present(&self) -> u32 {
        self.present
    }

    /// How many pages of a part of the range are present. Of folded spans their share, rounded down, but never 0 where one is.
    pub fn present_in(&self, part: Range<u32>) -> u32 {
        let first = self.spans.partition_point(|span| span.end() <= part.start);
        let within = self.spans[first..].iter().take_while(|span| span.start < part.end);
        let of = |span: &Span| {
            let both = span.end().min(part.end) - span.start.max(part.start);
            match both == span.len || span.present == span.len {
                true if span.present == span.len => both,
                true => span.present,
                false => (u64::from(span.present) * u64::from(both) / u64::from(span.len)).max(1) as u32,
            }
        };
        within.map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGES: u32 = 4 * BLOCK_PAGES;

    /// Whether each page is present, in runs of random lengths.
    fn pages() -> impl Strategy<Value = Vec<bool>> {
        prop::collection::vec((1..200usize, any::<bool>()), 1..40).prop_map(|runs| {
            let pages = runs.into_iter().flat_map(|(len, present)| vec![present; len]);
            let mut pages: Vec<bool> = pages.take(PAGES as usize).collect();
            pages.resize(PAGES as usize, false);
            pages
        })
    }

    fn spans(pages: &[bool]) -> Spans {
        let mut spans = Spans::new(pages.len() as u32);
        for (page, _) in (0..).zip(pages).filter(|(_, present)| **present) {
            spans.push(page..page + 1);
        }
        spans
    }

    fn count(pages: &[bool], part: Range<u32>) -> u32 {
        let part = &pages[part.start as usize..part.end as usize];
        part.iter().filter(|present| **present).count() as u32
    }

    proptest! {
        #[test]
        fn runs_count_as_pages_do(pages in pages(), a in 0..PAGES, b in 0..PAGES) {
            let part = a.min(b)..a.max(b);
            prop_assert_eq!(spans(&pages).present_in(part.clone()), count(&pages, part));
        }

        #[test]
        fn folding_keeps_every_block(pages in pages()) {
            let mut folded = spans(&pages);
            let before = folded.clone();
            folded.fold();
            prop_assert_eq!((folded.present(), folded.pages()), (before.present(), before.pages()));
            prop_assert!(folded.len() <= PAGES.div_ceil(BLOCK_PAGES) as usize * 2);
            for block in 0..PAGES / BLOCK_PAGES {
                let part = block * BLOCK_PAGES..(block + 1) * BLOCK_PAGES;
                prop_assert_eq!(folded.present_in(part.clone()), count(&pages, part));
            }
            prop_assert!(folded.spans.iter().all(|span| 0 < span.present && span.present <= span.len));
        }

        /// The kernel's answer is not believed: runs may be out of order, overlap, or lie beyond the range.
        #[test]
        fn no_run_makes_the_spans_overlap(runs in prop::collection::vec((any::<u32>(), any::<u32>()), 0..50)) {
            let mut spans = Spans::new(PAGES);
            for (start, end) in runs {
                spans.push(start..end);
            }
            prop_assert!(spans.present() <= PAGES);
            prop_assert!(spans.spans.is_sorted_by(|a, b| a.end() <= b.start));
        }
    }
}
