//! What records.

mod answers;

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use gpumem_channel::{Event, EventKind, StringId};

use super::entry::{Deed, Entry};
use super::lists::Lists;
use super::numbers::Numbers;
use super::owners::Owners;
use crate::heap::now;
use crate::spread::ByAddress;
use crate::stack::Stack;

/// A block that the program holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) size: u64,
    pub(crate) owner: u32,
    /// As an event's.
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
    /// The pieces of blocks that are live or wait, and of those that events in the ring are about.
    lists: Lists,
    marks: Numbers,
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
            peak: Peak {
                reserved,
                ..Peak::default()
            },
            steps: 0,
            caller: Stack::NONE,
            lists: Lists::new(),
            marks: Numbers::new("(other marks)"),
            began: (now(), u64::try_from(since_1970.as_nanos()).unwrap_or(0)),
        }
    }

    /// A block that was there before the history began: held, or given back and waiting for queued work. Of a stitched one with its
    /// pieces.
    pub(crate) fn found(&mut self, addr: u64, size: u64, tag: StringId, pieces: &[(u64, u64)], waits: bool) {
        let held = Held {
            size,
            owner: self.owners.number(tag, Stack::NONE),
            pieces: self.lists.refer(pieces),
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
            // Told by `mark`, or by the error; unknown ones are not made here.
            EventKind::Mark | EventKind::Advice | EventKind::Unknown(_) => return,
        };
        self.record(deed, event);
    }

    /// What happened, told as an event of the channel's.
    pub(crate) fn record(&mut self, deed: Deed, event: &Event) {
        self.record_about(deed, event, &[]);
    }

    /// The program was given a stitched block of these pieces.
    pub(crate) fn record_stitched(&mut self, event: &Event, pieces: &[(u64, u64)]) {
        self.record_about(Deed::Alloc, event, pieces);
    }

    fn record_about(&mut self, deed: Deed, event: &Event, pieces: &[(u64, u64)]) {
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
            pieces: self.lists.refer(pieces),
        };
        match deed {
            Deed::Alloc => {
                self.lists.refer_again(entry.pieces);
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
                    self.lists.refer_again(held.pieces);
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
            let Some(oldest) = self.ring.pop_front() else {
                return self.lists.let_go(entry.pieces);
            };
            self.lists.let_go(oldest.pieces);
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

    /// What an event tells of a block that its allocation told: from now on it is the event that refers to the pieces. A free without a
    /// stack of its own has that of the allocation, as PyTorch's.
    fn complete(&self, entry: &mut Entry, held: Held) {
        entry.pieces = held.pieces;
        if entry.deed == Deed::FreeCompleted || entry.stack == Stack::NONE {
            entry.stack = self.owners.who(held.owner).1;
        }
    }

    fn raise_peak(&mut self, time: u64) {
        if self.allocated > self.peak.allocated {
            self.set_peak(time);
        }
    }

    fn set_peak(&mut self, time: u64) {
        self.owners.peak();
        self.peak = Peak {
            time,
            allocated: self.allocated,
            reserved: self.reserved,
        };
    }

    /// The peak is what is held now.
    pub(crate) fn reset_peak(&mut self) {
        self.set_peak(now());
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The nth block at its address in a view.
    fn block(n: u64) -> Event {
        Event {
            addr: n << 21,
            size: 4096,
            ..Event::default()
        }
    }

    /// Its pieces, which no other block has.
    fn pieces(n: u64) -> [(u64, u64); 2] {
        [(n << 12, 1024), ((n << 12) + 2048, 3072)]
    }

    #[test]
    fn every_event_has_its_pieces_however_many_lists_there_were() {
        for (max_events, blocks) in [(64, 80_000), (1, 1000), (0, 1000)] {
            let mut recorder = Recorder::new(max_events, 0);
            let waits = |n: u64| n % 2 == 1;
            for n in [1, 2] {
                recorder.found(block(n).addr, block(n).size, StringId(0), &pieces(n), waits(n));
            }
            for n in 3..blocks {
                recorder.record_stitched(&block(n), &pieces(n));
                let deed = if waits(n - 1) { Deed::FreeRequested } else { Deed::Free };
                recorder.record(deed, &block(n - 1));
                if waits(n - 2) {
                    recorder.record(Deed::FreeCompleted, &block(n - 2));
                }
                if n % 1000 == 0 {
                    let past = recorder.past();
                    assert_eq!(past.entries.len(), max_events);
                    for entry in &past.entries {
                        assert_eq!(past.pieces[entry.pieces as usize][..], pieces(entry.addr >> 21));
                    }
                }
            }
            assert!(recorder.lists.bytes() < (max_events + 10) * 200);
            recorder.record(Deed::Free, &block(blocks - 1));
            recorder.record(Deed::FreeCompleted, &block(blocks - 2));
            (0..max_events).for_each(|_| recorder.mark("the end"));
            let past = recorder.past();
            assert!(
                past.pieces.iter().all(|pieces| pieces.is_empty()),
                "nothing refers to any"
            );
        }
    }
}
