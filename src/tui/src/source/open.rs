//! One open channel, from its first read until after its program has ended.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use gpumem_channel::{Event, EventKind, Found, Life, Reader, Snapshot};

use super::marks;
use super::past::{self, Changes};
use crate::clock;
use crate::model::{
    Channel, ChannelKey, ChannelSample, DeviceKey, Figures, Held, MAX_MARKS, Nanos, Past, Problem, ProblemKind, RanOut,
};

/// A channel that was opened.
///
/// While its publisher lives, every pass reads it. The black box of a dead publisher does not change: it is read once, and
/// its figures are kept. Its blocks are kept only while they are shown, since there may be many black boxes.
pub(super) struct Open {
    found: Found,
    /// `None` once the publisher is dead.
    reader: Option<Reader>,
    /// The newest state that was read without error. `None` only before the first such pass.
    newest: Option<Channel>,
    /// The last request that failed on each device.
    ran_out: Vec<Option<RanOut>>,
    /// When it was last known to be alive: the time of its newest event, or of a pass that found it alive.
    last_sign: Option<Nanos>,
    /// Whether `newest` has the blocks.
    full: bool,
    /// The most devices that are read of it; `None` for no limit.
    devices: Option<usize>,
}

impl Open {
    pub(super) fn new(found: Found, reader: Reader, devices: Option<usize>) -> Open {
        Open {
            found,
            reader: Some(reader),
            newest: None,
            ran_out: Vec::new(),
            last_sign: None,
            full: false,
            devices,
        }
    }

    /// Checks whether it holds an open file, which it does until its publisher is dead.
    pub(super) fn holds_file(&self) -> bool {
        self.reader.is_some()
    }

    /// Checks whether its file was removed although its publisher was alive at the newest pass. Publishers do not remove their
    /// files when they end.
    pub(super) fn is_removed_alive(&self) -> bool {
        let lives = self.newest.as_ref().is_none_or(|c| c.snapshot.life == Life::Alive);
        lives
            && self
                .reader
                .as_ref()
                .is_some_and(|reader| reader.is_removed().unwrap_or(false))
    }

    /// Returns the path it was found at.
    pub(super) fn path(&self) -> &Path {
        &self.found.path
    }

    /// Returns its reader; `None` once the publisher is dead.
    pub(super) fn reader(&mut self) -> Option<&mut Reader> {
        self.reader.as_mut()
    }

    /// Reads what changed and adds the channel to `sample`. When reading fails, the previous state is kept and marked with the
    /// error. `selected` asks for its blocks.
    pub(super) fn pass(&mut self, key: ChannelKey, selected: bool, sample: &mut ChannelSample) {
        if self.reader.is_none() && selected && !self.full {
            // If the black box was removed meanwhile, what was read of it before is kept.
            self.reader = self.found.open().ok();
            if let (Some(reader), Some(most)) = (&mut self.reader, self.devices) {
                reader.limit_devices(most);
            }
        }
        if let Some(reader) = &mut self.reader {
            let samples = |newest: &Channel| newest.snapshot.sampled.is_some();
            if selected && self.newest.as_ref().is_some_and(samples) {
                // Its blocks are published only on request. Whose file it is not, who is not root either, sees none.
                let _ = reader.want_blocks();
            }
            match reader.refresh() {
                Ok(snapshot) => self.take(key, snapshot, sample),
                Err(error) => match &mut self.newest {
                    Some(channel) => channel.error = Some(error.to_string()),
                    None => sample.problems.push(Problem {
                        file: format!("of {}", reader.identity().program),
                        kind: ProblemKind::File,
                        text: error.to_string(),
                    }),
                },
            }
        }
        if self.reader.is_none() && self.full && !selected {
            self.newest = self.newest.take().map(without_blocks);
            self.full = false;
        }
        sample.channels.extend(self.newest.clone());
    }

    /// Adds what a living publisher holds now to the sums of its devices. Read errors are ignored here; the next pass reports
    /// them.
    pub(super) fn glance(&mut self, key: ChannelKey, held: &mut BTreeMap<DeviceKey, Held>) {
        let Some(Ok(snapshot)) = self.reader.as_mut().map(Reader::glance) else {
            return;
        };
        for (index, map) in snapshot.devices.iter().enumerate() {
            // A glance does not read the blocks, so it cannot find every contradiction that the newest pass found.
            let figures = self.newest.as_ref().and_then(|newest| newest.figures.get(index));
            let inconsistent = map.contradiction.is_some() || figures.is_some_and(Option::is_none);
            let counts = snapshot.life == Life::Alive && !inconsistent;
            let Some(stats) = map.stats.as_ref().filter(|_| counts) else {
                continue;
            };
            let device = DeviceKey::of(key, index, &map.device);
            let (allocated, reserved) = (stats.all().allocated_bytes.current, stats.all().reserved_bytes.current);
            let sum = held.entry(device).or_insert(Held {
                device,
                allocated: 0,
                reserved: 0,
            });
            sum.allocated = sum.allocated.saturating_add(allocated);
            sum.reserved = sum.reserved.saturating_add(reserved);
        }
    }

    fn take(&mut self, key: ChannelKey, snapshot: Snapshot, sample: &mut ChannelSample) {
        let dead = snapshot.life != Life::Alive;
        let known_dead = self.newest.as_ref().is_none_or(|c| c.snapshot.life != Life::Alive);
        self.ran_out.resize(snapshot.devices.len(), None);
        let devices = snapshot.devices.iter();
        let mut figures: Vec<Option<Figures>> = devices
            .map(|map| Figures::of(map, &snapshot.strings, snapshot.sampled.as_ref()))
            .collect();
        // What is dead does not change any more.
        if !(dead && known_dead) || self.newest.is_none() {
            self.follow(key, &snapshot, &figures, sample);
            if dead {
                self.mark_end(key, &snapshot, sample);
            }
        }
        if !dead {
            self.last_sign = Some(snapshot.read_at);
        }
        for (figures, ran_out) in figures.iter_mut().zip(&self.ran_out) {
            if let Some(figures) = figures {
                figures.ran_out.clone_from(ran_out);
            }
        }
        let read_at = snapshot.read_at;
        self.newest = Some(Channel {
            key,
            pid: None,
            disputed: None,
            snapshot: Arc::new(snapshot),
            figures: figures.into(),
            error: None,
            read_at,
            last_sign: self.last_sign.filter(|_| dead),
        });
        self.full = true;
        if dead {
            self.reader = None;
        }
    }

    /// Marks the end of a program on each device that it used.
    fn mark_end(&self, key: ChannelKey, snapshot: &Snapshot, sample: &mut ChannelSample) {
        let Some(at) = self.last_sign else { return };
        let used = snapshot
            .devices
            .iter()
            .enumerate()
            .filter(|(_, map)| map.stats.is_some());
        let ends = used.map(|(index, map)| marks::of_end(key, (index, map), snapshot.life, at));
        sample.marks.extend(ends);
    }

    /// Goes through the events since the last pass: collects marks, failed requests, and at the first pass what was held before it.
    fn follow(&mut self, key: ChannelKey, snapshot: &Snapshot, now: &[Option<Figures>], sample: &mut ChannelSample) {
        let Some(reader) = &mut self.reader else { return };
        let before = sample.marks.len();
        // The thread that answers keys files each mark, so another user's channel gets only a few of them.
        let most = if self.devices.is_some() {
            MAX_MARKS / 8
        } else {
            2 * MAX_MARKS
        };
        let mut dropped = 0u64;
        // At the first pass events may be old, and the current figures do not belong to them. In stitched segments a request
        // does not need a single large block.
        let first = self.newest.is_none();
        let largest_free = |device: usize| {
            let figures = now.get(device).and_then(Option::as_ref);
            figures.filter(|f| !first && !f.stitched).and_then(Figures::largest)
        };
        // Devices on which a request failed since the last pass.
        let mut fresh = vec![false; self.ran_out.len()];
        let newest = &mut self.last_sign;
        let now = clock::now();
        let known_dead = first && snapshot.life != Life::Alive;
        let mut changes = Changes::default();
        let followed = reader.each_event(|event| {
            // A publisher in a time namespace may have a clock that is ahead. Its events get the time at which they are read. If it has
            // ended, their time is not known.
            let is_past = event.time <= now;
            let event = &Event {
                time: if known_dead { event.time } else { event.time.min(now) },
                ..*event
            };
            if is_past || !known_dead {
                *newest = (*newest).max(Some(event.time));
            }
            if first && event.time <= snapshot.read_at {
                changes.see(event, event.time);
            }
            let device = usize::from(event.device);
            if let (Some(known), Some(fresh)) = (self.ran_out.get_mut(device), fresh.get_mut(device)) {
                *known = RanOut::after(known.take(), event, &snapshot.strings, largest_free(device));
                *fresh |= event.kind == EventKind::OutOfMemory;
                if let (Some(known), true, true) = (known, *fresh, changes_what_is_free(event.kind)) {
                    known.largest_free = None;
                }
            }
            if !is_past && known_dead {
                return;
            }
            if let Some(mark) = marks::of(key, snapshot, event) {
                // The history merges marks, too. Merging here as well avoids that a failed request is dropped when there are too many.
                let latest = sample.marks.get_mut(before..).into_iter().flatten().rev();
                if latest
                    .take_while(|m| m.is_continued_by(&mark))
                    .any(|m| m.merge_next(&mark))
                {
                    return;
                }
                if sample.marks.len() - before >= most {
                    sample.marks.drain(before..before + most / 2);
                    dropped += (most / 2) as u64;
                }
                sample.marks.push(mark);
            }
        });
        // A file that fails is reported by the next pass. Events that were overwritten before the first pass do not count as
        // lost, but that some were is reported.
        let end = if known_dead {
            self.last_sign
        } else {
            Some(snapshot.read_at)
        };
        let kept = match first && snapshot.sampled.is_some() {
            // A file that fails is reported by the next pass.
            true => reader.past_figures().unwrap_or_default(),
            false => Vec::new(),
        };
        for (index, map) in snapshot.devices.iter().enumerate() {
            if let (true, Some(end), Some(stats), Ok(number)) = (first, end, &map.stats, u8::try_from(index)) {
                let stats = stats.all();
                let held = (stats.allocated_bytes.current, stats.reserved_bytes.current);
                let steps = match kept.is_empty() {
                    true => changes.steps(number, held, end, snapshot.sampled.is_some()),
                    false => past::sampled(&kept, number, end),
                };
                if !steps.is_empty() {
                    let device = DeviceKey::of(key, index, &map.device);
                    sample.past.push((key, Past { device, steps }));
                }
            }
        }
        let dropped = if self.devices.is_some() { dropped } else { 0 };
        let lost = followed.unwrap_or(0).saturating_add(dropped);
        sample
            .lost
            .extend((lost > 0).then_some((key, if first { 0 } else { lost })));
    }
}

/// Checks whether an event of this kind can change the largest free block.
fn changes_what_is_free(kind: EventKind) -> bool {
    !matches!(
        kind,
        EventKind::OutOfMemory | EventKind::Retry | EventKind::Mark | EventKind::Advice
    )
}

/// Returns the channel without its segments; the figures stay.
fn without_blocks(channel: Channel) -> Channel {
    let mut snapshot = (*channel.snapshot).clone();
    snapshot
        .devices
        .iter_mut()
        .for_each(|device| device.segments = Vec::new());
    Channel {
        snapshot: Arc::new(snapshot),
        ..channel
    }
}

#[cfg(test)]
#[path = "open_tests.rs"]
mod tests;
