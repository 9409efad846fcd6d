//! The history as PyTorch's events and annotations.

use std::collections::HashMap;

use gpumem_channel::StringId;
use gpumem_snapshot::{Action, Annotation, TraceEntry, Value};

use super::{Wording, piece, stream};
use crate::heap::{Past, Picture};
use crate::history::{Deed, Entry};
use crate::stack::Stack;

/// By address: who made a segment, or the part of a virtual one that begins there.
pub(super) fn makers(picture: &Picture) -> HashMap<u64, (Stack, StringId)> {
    let entries = picture.past.iter().flat_map(|past| &past.entries);
    let made = entries.filter(|entry| matches!(entry.deed, Deed::SegmentAlloc | Deed::SegmentMap));
    made.map(|entry| (entry.addr, (entry.stack, entry.tag))).collect()
}

/// The events of a picture, and its marks.
pub(super) fn told(picture: &Picture, device: i32, wording: &mut Wording<'_>) -> (Vec<TraceEntry>, Vec<Annotation>) {
    let mut story = Story {
        device,
        wording,
        entries: Vec::new(),
        annotations: Vec::new(),
    };
    if let Some(past) = &picture.past {
        for entry in &past.entries {
            story.tell(past, entry);
        }
    }
    (story.entries, story.annotations)
}

struct Story<'a, 'b> {
    device: i32,
    wording: &'a mut Wording<'b>,
    entries: Vec<TraceEntry>,
    annotations: Vec<Annotation>,
}

impl Story<'_, '_> {
    fn tell(&mut self, past: &Past, entry: &Entry) {
        let time_us = (past.calendar + entry.time) / 1000;
        match entry.deed {
            Deed::Alloc => self.pieces_of(past, entry, &[Action::Alloc], time_us),
            Deed::Free => {
                let both = [Action::FreeRequested, Action::FreeCompleted];
                self.pieces_of(past, entry, &both, time_us);
            }
            Deed::FreeRequested => self.pieces_of(past, entry, &[Action::FreeRequested], time_us),
            Deed::FreeCompleted => self.pieces_of(past, entry, &[Action::FreeCompleted], time_us),
            Deed::SegmentAlloc => self.event(Action::SegmentAlloc, entry, entry.addr, entry.size, time_us),
            Deed::SegmentFree => self.event(Action::SegmentFree, entry, entry.addr, entry.size, time_us),
            Deed::SegmentMap => self.event(Action::SegmentMap, entry, entry.addr, entry.size, time_us),
            Deed::SegmentUnmap => self.event(Action::SegmentUnmap, entry, entry.addr, entry.size, time_us),
            Deed::OutOfMemory => self.event(Action::Oom, entry, entry.addr, entry.requested, time_us),
            Deed::Release => self.annotate("gpumem: cache released", time_us),
            Deed::Retry => self.annotate("gpumem: request served after making room", time_us),
            Deed::Mark => {
                let name = past.marks.get(entry.tag.0 as usize).or(past.marks.first());
                self.annotate(name.map_or("", |name| name), time_us);
            }
            Deed::Step => self.annotate(&format!("step {} ended", entry.size), time_us),
        }
    }

    /// An event about a block; about each piece of a stitched one, where it lies in its segment.
    fn pieces_of(&mut self, past: &Past, entry: &Entry, actions: &[Action], time_us: u64) {
        let pieces = past
            .pieces
            .get(entry.pieces as usize)
            .filter(|pieces| !pieces.is_empty());
        let Some(pieces) = pieces else {
            for action in actions {
                self.event(*action, entry, entry.addr, entry.requested, time_us);
            }
            return;
        };
        let (first, mut left) = (pieces[0].0, entry.requested);
        for (addr, size) in pieces.iter() {
            // Of one piece side by side, as of other blocks: else a viewer shows what was freed at once as waiting.
            for action in actions {
                let piece = piece(*addr, first, entry.requested);
                self.event_with(*action, entry, *addr, left.min(*size), time_us, Some(piece));
            }
            left = left.saturating_sub(*size);
        }
    }

    fn event(&mut self, action: Action, entry: &Entry, addr: u64, size: u64, time_us: u64) {
        self.event_with(action, entry, addr, size, time_us, None);
    }

    fn event_with(
        &mut self,
        action: Action,
        entry: &Entry,
        addr: u64,
        size: u64,
        time_us: u64,
        more: Option<(&'static str, Value)>,
    ) {
        let tag = self.wording.tag(entry.tag);
        let thread = ("thread", Value::Int(i64::from(entry.thread)));
        let event = TraceEntry {
            action,
            addr,
            size,
            stream: stream(entry.stream),
            time_us,
            frames: Some(self.wording.stack(entry.stack, entry.tag)),
            compile_context: Some(self.wording.tables.text("N/A")),
            user_metadata: Some(match tag {
                Some(tag) => self.wording.tables.value(Value::Text(tag)),
                None => {
                    let none = self.wording.tables.text("");
                    self.wording.tables.value(Value::Text(none))
                }
            }),
            extra: Some(self.wording.tables.dict([thread].into_iter().chain(more))),
        };
        self.entries.push(event);
    }

    /// A mark: something that begins, by PyTorch's names, and has no end.
    fn annotate(&mut self, name: &str, time_us: u64) {
        let tables = &mut self.wording.tables;
        let (stage, name) = (Value::Text(tables.text("START")), Value::Text(tables.text(name)));
        self.annotations.push(Annotation {
            device: self.device,
            time_us,
            metadata: Some(tables.dict([("stage", stage), ("name", name)])),
        });
    }
}
