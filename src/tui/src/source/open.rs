//! One open channel, from its first pass to its black box.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use gpumem_channel::{Event, EventKind, Found, Life, Reader, Snapshot};

use super::marks;
use crate::clock;
use crate::model::{
    Channel, ChannelKey, ChannelSample, DeviceKey, Figures, Held, MAX_MARKS, Nanos, Problem, ProblemKind, RanOut,
};

/// A channel. A living one is read anew with every pass. A dead one does not change: its black box was read
/// once, its figures are kept, and its blocks only as long as somebody looks at them. There may be many black boxes.
pub(super) struct Open {
    found: Found,
    /// `None` once the publisher is dead.
    reader: Option<Reader>,
    /// The newest good state. `None` only before the first good pass.
    newest: Option<Channel>,
    /// The last request that failed on each device.
    ran_out: Vec<Option<RanOut>>,
    /// When its newest event was, or a pass that saw it alive.
    last_sign: Option<Nanos>,
    /// `newest` has the blocks.
    full: bool,
    /// Devices of it that are read at most.
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

    /// Whether it has a file open, which it has until its publisher is dead.
    pub(super) fn holds_file(&self) -> bool {
        self.reader.is_some()
    }

    /// Whether its file was removed while its publisher lives. As of the newest pass: publishers do not remove their files when they end.
    pub(super) fn is_removed_alive(&self) -> bool {
        let lives = self.newest.as_ref().is_none_or(|c| c.snapshot.life == Life::Alive);
        lives
            && self
                .reader
                .as_ref()
                .is_some_and(|reader| reader.is_removed().unwrap_or(false))
    }

    /// Where it was found.
    pub(super) fn path(&self) -> &Path {
        &self.found.path
    }

    /// What reads it; `None` where nobody has to any more.
    pub(super) fn reader(&mut self) -> Option<&mut Reader> {
        self.reader.as_mut()
    }

    /// Reads what changed; keeps what it had where that fails, and says so. `selected`: its blocks are wanted.
    pub(super) fn pass(&mut self, key: ChannelKey, selected: bool, sample: &mut ChannelSample) {
        if self.reader.is_none() && selected && !self.full {
            // A black box that was swept away meanwhile stays as it is known.
            self.reader = self.found.open().ok();
            if let (Some(reader), Some(most)) = (&mut self.reader, self.devices) {
                reader.limit_devices(most);
            }
        }
        if let Some(reader) = &mut self.reader {
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

    /// Adds what a living publisher holds now to the sums of its devices. What cannot be read now is left to the next
    /// pass to tell.
    pub(super) fn glance(&mut self, key: ChannelKey, held: &mut BTreeMap<DeviceKey, Held>) {
        let Some(Ok(snapshot)) = self.reader.as_mut().map(Reader::glance) else {
            return;
        };
        for (index, map) in snapshot.devices.iter().enumerate() {
            // What the newest pass found to be worth nothing cannot be seen from here, where its blocks are not read.
            let figures = self.newest.as_ref().and_then(|newest| newest.figures.get(index));
            let worthless = map.contradiction.is_some() || figures.is_some_and(Option::is_none);
            let counts = snapshot.life == Life::Alive && !worthless;
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
        let mut figures: Vec<Option<Figures>> = devices.map(|map| Figures::of(map, &snapshot.strings)).collect();
        // What happened before anybody looked is no news, but for when it ended and which request failed last.
        if !(dead && known_dead) {
            self.follow(key, &snapshot, &figures, sample);
        } else if self.newest.is_none() {
            self.find_last_signs(&snapshot);
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

    /// When the newest event was of a program that ended before anybody looked, and which request failed last.
    fn find_last_signs(&mut self, snapshot: &Snapshot) {
        let Some(reader) = &mut self.reader else { return };
        let (newest, ran_out) = (&mut self.last_sign, &mut self.ran_out);
        let now = clock::now();
        // Of a file that fails nothing is known.
        let _ = reader.each_event(|event| {
            *newest = (*newest).max(past(event.time, now));
            if let Some(known) = ran_out.get_mut(event.device as usize) {
                // The largest free block then nobody saw.
                *known = RanOut::after(known.take(), event, &snapshot.strings, None);
            }
        });
    }

    /// Follows the events since the last pass: which are worth a mark, and which requests failed.
    fn follow(&mut self, key: ChannelKey, snapshot: &Snapshot, now: &[Option<Figures>], sample: &mut ChannelSample) {
        let Some(reader) = &mut self.reader else { return };
        let before = sample.marks.len();
        // Each mark is filed by who answers the keys: another user may not make as many as it likes.
        let most = if self.devices.is_some() {
            MAX_MARKS / 8
        } else {
            2 * MAX_MARKS
        };
        let mut dropped = 0u64;
        // At the first pass events are of any age, and the figures of now are not those of then. Where memory is stitched no single block
        // is what a request lacked.
        let first = self.newest.is_none();
        let largest_free = |device: usize| {
            let figures = now.get(device).and_then(Option::as_ref);
            figures.filter(|f| !first && !f.stitched).map(|f| f.largest_free)
        };
        // Which devices had a request fail since the last pass.
        let mut fresh = vec![false; self.ran_out.len()];
        let newest = &mut self.last_sign;
        let now = clock::now();
        let followed = reader.each_event(|event| {
            // It has happened: with a clock of its own, as in a time namespace, it is dated when it is seen.
            let event = &Event {
                time: event.time.min(now),
                ..*event
            };
            *newest = (*newest).max(Some(event.time));
            let device = usize::from(event.device);
            if let (Some(known), Some(fresh)) = (self.ran_out.get_mut(device), fresh.get_mut(device)) {
                *known = RanOut::after(known.take(), event, &snapshot.strings, largest_free(device));
                *fresh |= event.kind == EventKind::OutOfMemory;
                if let (Some(known), true, true) = (known, *fresh, changes_what_is_free(event.kind)) {
                    known.largest_free = None;
                }
            }
            if let Some(mark) = marks::of(key, snapshot, event) {
                // The history does the same; but what is dropped here for want of room may be a failed request.
                let latest = sample.marks.get_mut(before..).into_iter().flatten().rev();
                if latest.take_while(|m| m.goes_on_in(&mark)).any(|m| m.take_in(&mark)) {
                    return;
                }
                if sample.marks.len() - before >= most {
                    sample.marks.drain(before..before + most / 2);
                    dropped += (most / 2) as u64;
                }
                sample.marks.push(mark);
            }
        });
        // A file that fails is told of by the next pass. What was overwritten before anybody looked is not lost to who looks now.
        // That they are not known is told all the same.
        let dropped = if self.devices.is_some() { dropped } else { 0 };
        let lost = followed.unwrap_or(0).saturating_add(dropped);
        sample
            .lost
            .extend((lost > 0).then_some((key, if first { 0 } else { lost })));
    }
}

/// A time of a black box, unless it is to come: then it is of another clock, as a time namespace has one, and when it was is not known.
fn past(time: Nanos, now: Nanos) -> Option<Nanos> {
    (time <= now).then_some(time)
}

/// Whether another block may be the largest free one after such an event.
fn changes_what_is_free(kind: EventKind) -> bool {
    !matches!(
        kind,
        EventKind::OutOfMemory | EventKind::Retry | EventKind::Mark | EventKind::Advice
    )
}

/// The same without its segments; the figures stay.
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
