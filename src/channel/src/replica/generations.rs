//! The generation words, which tell which groups of block slots changed. The publisher and each lane have their own.

use std::ops::Range;

use crate::error::ReadError;
use crate::format::GROUP;
use crate::layout::Layout;
use crate::source::Source;

/// The generation words of one writer.
#[derive(Default)]
struct Row {
    /// Their values when all slots of their group had been read.
    known: Vec<u64>,
    /// Their values in this round.
    now: Vec<u64>,
}

/// The generation words of the publisher and of each open lane.
#[derive(Default)]
pub(super) struct Generations {
    rows: Vec<Row>,
}

impl Generations {
    /// Reads the words of the first `slots` slots. Returns the groups with slots that changed.
    pub(super) fn changed(
        &mut self,
        source: &Source,
        layout: &Layout,
        slots: usize,
    ) -> Result<Vec<Range<usize>>, ReadError> {
        let groups = slots.div_ceil(GROUP);
        self.rows
            .resize_with(1 + source.lanes(&layout.live, &layout.lanes)?, Row::default);
        for (n, row) in self.rows.iter_mut().enumerate() {
            row.known.resize(groups, 0);
            row.now.resize(groups, 0);
            let start = match n.checked_sub(1) {
                None => layout.generations.start,
                Some(lane) => layout.lane_generations.record(lane).start,
            };
            source.copy(start, &mut row.now)?;
        }
        // Read before the slots: a slot that changes later changes its generation again.
        source.fence();
        let mut changed = Vec::new();
        for row in self.rows.iter().filter(|row| row.known != row.now) {
            let words = row.known.iter().zip(&row.now).enumerate();
            changed.extend(words.filter(|(_, (known, now))| known != now).map(|(group, _)| group));
        }
        changed.sort_unstable();
        changed.dedup();
        let range = |group: usize| group * GROUP..((group + 1) * GROUP).min(slots);
        Ok(changed.into_iter().map(range).collect())
    }

    /// Records that all slots of a group have been read.
    pub(super) fn read(&mut self, group: usize) {
        for row in &mut self.rows {
            row.known[group] = row.now[group];
        }
    }

    /// Records that a group must be read again.
    pub(super) fn forget(&mut self, group: usize) {
        if let Some(known) = self.rows.first_mut().and_then(|row| row.known.get_mut(group)) {
            *known = 0;
        }
    }
}
