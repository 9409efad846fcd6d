//! What records.

mod answers;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use gpumem_channel::{Event, EventKind, StringId};

use super::addresses::ByAddress;
use super::entry::{Deed, Entry};
use super::numbers::Numbers;
use super::owners::Owners;
use crate::heap::now;
use crate::stack::Stack;

/// A block that the program holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) size: u64,
    pub(crate) owner: u32,
    pieces: u32,
    /// The step in which it was allocated, from 1; 0 for before the history began.
    pub(crate) step: u64,
}

impl Held {
    /// Ends of steps that it has seen.
    pub(crate) fn outlived(&self, steps: u64) -> u64 {
        steps - self.step.saturating_sub(1)
    }
}

/// When the program held most.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peak {
    pub(crate) time: u64,
    pub(crate) allocated: u64,
    pub(crate) reserved: u64,
}

/// Addresses and bytes of the pieces of a stitched block.
pub(crate) type Pieces = Arc<[(u64, u64)]>;

/// The history of one heap.
#[derive(Debug)]
pub(crate) struct Recorder {
    max_events: usize,
    ring: VecDeque<Entry>,
    dropped: u64,
    pub(crate) owners: Owners,
    live: ByAddress<Held>,
    /// Blocks given back that queued work still uses.
    waiting: ByAddress<Held>,
    allocated: u64,
    reserved: u64,
    peak: Peak,
    pub(crate) steps: u64,
    /// Who does what is done now.
    pub(crate) caller: Stack,
    pieces: Numbers<[(u64, u64)]>,
    /// Pieces of the stitched block that the next event is about.
    next_pieces: u32,
    marks: Numbers<str>,
    /// When it began: by the clock of the events, and by the calendar (nanoseconds since 1970).
    began: (u64, u64),
}

impl Recorder {
    /// One that begins now, with this much memory from the driver.
    pub(crate) fn new(max_events: usize, reserved: u64) -> Recorder {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Recorder {
            max_events,
            ring: VecDeque::new(),
            dropped: 0,
            owners: Owners::new(),
            live: ByAddress::default(),
            waiting: ByAddress::default(),
            allocated: 0,
            reserved,
            peak: Peak::default(),
            steps: 0,
            caller: Stack::NONE,
            pieces: Numbers::new(Arc::new([])),
            next_pieces: 0,
            marks: Numbers::new("(other marks)".into()),
            began: (now(), u64::try_from(since_1970.as_nanos()).unwrap_or(0)),
        }
    }

    /// A block that was there before the history began: held, or given back and waiting for queued work. Of a stitched one with its
    /// pieces.
    pub(crate) fn found(&mut self, addr: u64, size: u64, tag: StringId, pieces: &[(u64, u64)], waits: bool) {
        self.about_pieces(pieces);
        let held = Held {
            size,
            owner: self.owners.number(tag, Stack::NONE),
            pieces: std::mem::take(&mut self.next_pieces),
            step: 0,
        };
        if waits {
            self.waiting.insert(addr, held);
        } else {
            self.hold(addr, held);
            self.raise_peak(self.began.0);
        }
    }

    /// What the heap tells the channel.
    pub(crate) fn event(&mut self, event: &Event) {
        let deed = match event.kind {
            EventKind::Alloc => Deed::Alloc,
            EventKind::Free => Deed::Free,
            EventKind::FreeCompleted => Deed::FreeCompleted,
            EventKind::SegmentAlloc => Deed::SegmentAlloc,
            EventKind::SegmentFree => Deed::SegmentFree,
            // Memory that moved was mapped where it is now, and is then unmapped where it was.
            EventKind::SegmentMap | EventKind::Remap => Deed::SegmentMap,
            EventKind::SegmentUnmap => Deed::SegmentUnmap,
            EventKind::CacheRelease => Deed::Release,
            EventKind::OutOfMemory => Deed::OutOfMemory,
            EventKind::Retry => Deed::Retry,
            // Told by `mark`; unknown ones are not made here.
            EventKind::Mark | EventKind::Unknown(_) => return,
        };
        self.record(deed, event);
    }

    /// What happened, told as an event of the channel's.
    pub(crate) fn record(&mut self, deed: Deed, event: &Event) {
        let mut entry = Entry {
            time: now(),
            addr: event.addr,
            size: event.size,
            requested: event.requested,
            stream: event.stream,
            deed,
            tag: event.tag,
            stack: self.caller,
            thread: thread(),
            pieces: std::mem::take(&mut self.next_pieces),
        };
        match deed {
            Deed::Alloc => {
                let owner = self.owners.number(entry.tag, entry.stack);
                let held = Held {
                    size: entry.size,
                    owner,
                    pieces: entry.pieces,
                    step: self.steps + 1,
                };
                self.hold(entry.addr, held);
                self.raise_peak(entry.time);
            }
            Deed::Free => {
                self.let_go(&mut entry);
            }
            Deed::FreeRequested => {
                if let Some(held) = self.let_go(&mut entry) {
                    self.waiting.insert(entry.addr, held);
                }
            }
            Deed::FreeCompleted => {
                if let Some(held) = self.waiting.remove(&entry.addr) {
                    self.complete(&mut entry, held);
                }
            }
            Deed::SegmentAlloc | Deed::SegmentMap => self.reserved += entry.size,
            Deed::SegmentFree | Deed::SegmentUnmap => self.reserved = self.reserved.saturating_sub(entry.size),
            _ => {}
        }
        self.push(entry);
    }

    /// Of memory that an event said is mapped no more, so much is reserved all the same: the driver did not take it.
    pub(crate) fn loose_added(&mut self, bytes: u64) {
        self.reserved += bytes;
    }

    /// That is mapped again, which an event tells, or went.
    pub(crate) fn loose_removed(&mut self, bytes: u64) {
        self.reserved = self.reserved.saturating_sub(bytes);
    }

    fn push(&mut self, entry: Entry) {
        // Where the program has no memory for a larger ring, this one is as large as it gets.
        if self.ring.len() >= self.max_events || self.ring.try_reserve(1).is_err() {
            self.dropped += 1;
            if self.ring.pop_front().is_none() {
                return;
            }
        }
        self.ring.push_back(entry);
    }

    fn hold(&mut self, addr: u64, held: Held) {
        self.owners.took(held.owner, held.size);
        self.allocated += held.size;
        self.live.insert(addr, held);
    }

    fn let_go(&mut self, entry: &mut Entry) -> Option<Held> {
        let held = self.live.remove(&entry.addr)?;
        self.owners.gave(held.owner, held.size);
        self.allocated -= held.size;
        self.complete(entry, held);
        Some(held)
    }

    /// What an event tells of a block that its allocation told. A free without a stack of its own has that of the allocation, as
    /// PyTorch's.
    fn complete(&self, entry: &mut Entry, held: Held) {
        entry.pieces = held.pieces;
        if entry.deed == Deed::FreeCompleted || entry.stack == Stack::NONE {
            entry.stack = self.owners.who(held.owner).1;
        }
    }

    fn raise_peak(&mut self, time: u64) {
        if self.allocated > self.peak.allocated {
            self.owners.peak();
            self.peak = Peak {
                time,
                allocated: self.allocated,
                reserved: self.reserved,
            };
        }
    }

    /// The next event is about a stitched block of these pieces.
    pub(crate) fn about_pieces(&mut self, pieces: &[(u64, u64)]) {
        self.next_pieces = if pieces.is_empty() {
            0
        } else {
            self.pieces.number(pieces)
        };
    }

    /// A mark of the program's.
    pub(crate) fn mark(&mut self, name: &str) {
        let tag = StringId(self.marks.number(name));
        self.record(
            Deed::Mark,
            &Event {
                tag,
                ..Event::default()
            },
        );
    }

    /// A step of the program's ends.
    pub(crate) fn step(&mut self) {
        self.steps += 1;
        self.owners.step();
        let size = self.steps;
        self.record(
            Deed::Step,
            &Event {
                size,
                ..Event::default()
            },
        );
    }
}

/// The kernel's number of this thread, which debuggers and profilers show.
fn thread() -> u32 {
    thread_local! {
        static THREAD: u32 = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    }
    THREAD.try_with(|thread| *thread).unwrap_or(0)
}
