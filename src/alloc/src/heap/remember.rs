//! The history: begun, told what the channel is not told, asked.

use std::collections::HashMap;
use std::time::Duration;

use gpumem_channel::{BlockState, Event, EventKind, Split, StringId};

use super::Heap;
use super::allocate::Request;
use super::block::{Blocks, NIL};
use super::narrate::now;
use super::stitch::view::Stitched;
use crate::error::Error;
use crate::history::{Deed, History, HistoryFigures, Leak, LeakReport, Owner, PeakReport, Recorder};
use crate::stack::Stack;
use crate::tag::{self, Tag};

/// The names of tags by the numbers they have in this heap.
pub(super) type Names = HashMap<StringId, String>;

impl Heap {
    /// Begins the history anew, or ends it. Blocks that are held then count as held from the beginning, by nobody known but their tag.
    pub(crate) fn record_history(&mut self, history: History) -> Result<(), Error> {
        history.check()?;
        let History::On { max_events, .. } = history else {
            self.outlet.record(None);
            return Ok(());
        };
        // Lanes tell no history.
        self.set_lending(false);
        let mut recorder = Recorder::new(max_events, self.ledger.reserved());
        for (_, segment) in self.segments.iter() {
            let mut b = segment.first;
            while b != NIL {
                self.find_for(&mut recorder, b);
                b = self.blocks[b].next;
            }
        }
        self.outlet.record(Some(recorder));
        self.tell_tags_apart();
        Ok(())
    }

    /// Tells a new history of a block that is there.
    fn find_for(&self, recorder: &mut Recorder, b: u32) {
        let block = &self.blocks[b];
        let waits = block.state == BlockState::PendingFree;
        if !waits && block.state != BlockState::Allocated {
            return;
        }
        match self.views.stitched(block.stitched) {
            // The first piece tells of the whole.
            Some(whole) if whole.parts.first() == Some(&b) => {
                let parts = parts_of(&self.blocks, whole);
                recorder.found(whole.addr, whole.size, block.tag, &parts, waits);
            }
            Some(_) => {}
            None => recorder.found(block.addr, block.size, block.tag, &[], waits),
        }
    }

    /// Who does what is done until the next call.
    pub(crate) fn attribute(&mut self, caller: Stack) {
        if let Some(recorder) = self.outlet.recorder_mut() {
            recorder.caller = caller;
        }
    }

    /// What [`Heap::tell_operation`] tells, where there is a history. A function of its own, so that what it needs in memory stays in
    /// registers elsewhere.
    #[cold]
    #[inline(never)]
    pub(super) fn tell_recorded(&mut self, kind: EventKind, b: u32, split: Split) {
        let event = self.event_of(kind, b);
        if let Some(recorder) = self.outlet.recorder_mut() {
            recorder.event(&event);
        }
        self.tell_operation(kind, self.blocks[b].state, b, split);
    }

    /// A stitched block was handed out.
    pub(super) fn record_stitched(&mut self, stitched: u32, request: &Request) {
        let Some(recorder) = self.outlet.recorder_mut() else {
            return;
        };
        let Some(whole) = self.views.stitched(stitched) else {
            return;
        };
        let event = Event {
            addr: whole.addr,
            size: whole.size,
            requested: request.requested,
            stream: self.streams.name(request.stream).0,
            tag: request.tag,
            ..Event::default()
        };
        recorder.record_stitched(&event, &parts_of(&self.blocks, whole));
    }

    /// Memory of a segment is not mapped at a place any more: the channel knows from the event of where it is now.
    pub(super) fn record_moved(&mut self, slot: u32, addr: u64, size: u64) {
        if let (Some(recorder), Some(segment)) = (self.outlet.recorder_mut(), self.segments.get(slot)) {
            let event = Event {
                addr,
                size,
                stream: segment.taken_for.0,
                ..Event::default()
            };
            recorder.record(Deed::SegmentUnmap, &event);
        }
    }

    /// A step of the program's ends.
    pub(crate) fn step(&mut self) {
        if let Some(recorder) = self.outlet.recorder_mut() {
            recorder.step();
        }
    }

    pub(crate) fn history_figures(&self) -> Option<HistoryFigures> {
        self.outlet.recorder().map(Recorder::figures)
    }

    pub(super) fn names(&self) -> Names {
        let known = self
            .tags
            .iter()
            .enumerate()
            .filter_map(|(n, id)| Some((n as u32, (*id)?)));
        let mut names: Names = known.map(|(n, id)| (id, tag::name(Tag(n)))).collect();
        if let Some(other) = self.labels.other_tags() {
            names.insert(other, tag::OTHER.to_owned());
        }
        names
    }

    pub(crate) fn peak_report(&self) -> Option<PeakReport> {
        let recorder = self.outlet.recorder()?;
        let names = self.names();
        let (peak, owners) = recorder.peak();
        let mut owners: Vec<Owner> = owners
            .into_iter()
            .map(|(tag, stack, owned)| Owner {
                tag: names.get(&tag).cloned().unwrap_or_default(),
                stack,
                bytes: owned.bytes,
                blocks: owned.blocks,
            })
            .collect();
        owners.sort_by(|a, b| (b.bytes, &a.tag, a.stack).cmp(&(a.bytes, &b.tag, b.stack)));
        Some(PeakReport {
            ago: match peak.allocated {
                0 => Duration::ZERO,
                _ => Duration::from_nanos(now().saturating_sub(peak.time)),
            },
            allocated: peak.allocated,
            reserved: peak.reserved,
            owners,
        })
    }

    pub(crate) fn leak_report(&self, min_steps: u64) -> Option<LeakReport> {
        let recorder = self.outlet.recorder()?;
        let names = self.names();
        let steps = recorder.steps;
        let mut by_owner: HashMap<u32, Leak> = HashMap::new();
        for (_, held) in recorder.held().filter(|(_, held)| held.outlived(steps) >= min_steps) {
            let leak = by_owner.entry(held.owner).or_insert_with(|| {
                let (tag, stack) = recorder.owners.who(held.owner);
                let grown = recorder.growth(held.owner);
                let owned = recorder.owners.now(held.owner);
                Leak {
                    tag: names.get(&tag).cloned().unwrap_or_default(),
                    stack,
                    blocks: 0,
                    bytes: 0,
                    held_blocks: owned.blocks,
                    held_bytes: owned.bytes,
                    oldest_step: u64::MAX,
                    growth_per_step: grown.map(|grown| grown.per_step),
                    grows: grown.is_some_and(|grown| grown.steadily),
                }
            });
            leak.blocks += 1;
            leak.bytes += held.size;
            leak.oldest_step = leak.oldest_step.min(held.step);
        }
        let mut leaks: Vec<Leak> = by_owner.into_values().collect();
        leaks.sort_by(|a, b| (b.bytes, &a.tag, a.stack).cmp(&(a.bytes, &b.tag, b.stack)));
        Some(LeakReport {
            steps,
            min_steps,
            leaks,
        })
    }
}

/// Addresses and bytes of the parts of a stitched block.
fn parts_of(blocks: &Blocks, whole: &Stitched) -> Vec<(u64, u64)> {
    whole.parts.iter().map(|b| (blocks[*b].addr, blocks[*b].size)).collect()
}
