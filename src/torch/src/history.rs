//! What PyTorch's history of operations says, where the program records one: events, and when and for what each block was allocated.
//!
//! The history is a ring, and each snapshot has all of it. An entry that was in the snapshot before is told by its place: a snapshot
//! leaves an entry of its own, and what comes after that is new. If that entry is gone, operations were lost. A block is then known
//! no more, unless it has the size and the line of the one that was known at its address.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use gpumem_channel::{Event, EventKind, PoolId, Publisher, StringId};
use gpumem_snapshot::{self as snapshot, Action, StackId, TraceEntry};

use crate::line::Lines;
use crate::tags::Tags;

/// PyTorch's limit of small requests, and its size of a segment for them, in bytes (`kSmallSize`, `kSmallBuffer`).
const SMALL_REQUEST: u64 = 1 << 20;
const SMALL_SEGMENT: u64 = 2 << 20;

/// What is known of blocks.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// By PyTorch's number of the device.
    devices: HashMap<u8, Past>,
}

#[derive(Debug, Default)]
struct Past {
    /// Time of the last snapshot's own entry.
    newest: u64,
    /// The blocks that were allocated, by address.
    known: HashMap<u64, Known>,
}

/// What is known of an allocated block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// Bytes that were requested.
    requested: u64,
    /// What it is for: the program's tag at the time, else the line of Python that allocated it; empty if neither is known.
    pub(crate) tag: StringId,
    /// When it was allocated, in nanoseconds of `CLOCK_MONOTONIC`; 0 if that is not known.
    pub(crate) time: u64,
    /// The line.
    line: StringId,
}

/// An active block of a snapshot.
struct Active {
    requested: u64,
    line: StringId,
}

/// The publisher's clock beside PyTorch's.
#[derive(Clone, Copy)]
struct Clocks {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    monotonic: u64,
    /// Nanoseconds since 1970.
    unix: u64,
}

impl Clocks {
    fn read(publisher: &mut Publisher) -> Clocks {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clocks {
            monotonic: publisher.now(),
            unix: u64::try_from(unix.as_nanos()).unwrap_or(0),
        }
    }

    /// Returns the monotonic time of microseconds since 1970. It is not in the future.
    fn monotonic(self, time_us: u64) -> u64 {
        let ago = self.unix.saturating_sub(time_us.saturating_mul(1000));
        self.monotonic.saturating_sub(ago)
    }
}

impl History {
    /// Publishes the events since the last snapshot, and learns of blocks.
    pub(crate) fn take(&mut self, publisher: &mut Publisher, snapshot: &snapshot::Snapshot, tags: &Tags, torch: &str) {
        let mut stacks = snapshot
            .segments
            .iter()
            .flat_map(|segment| &segment.blocks)
            .map(|block| block.frames);
        if stacks.all(|stack| stack == StackId::EMPTY) && snapshot.device_traces.iter().all(Vec::is_empty) {
            // There is no history.
            self.devices.clear();
            return;
        }
        let clocks = Clocks::read(publisher);
        let mut lines = Lines::new(snapshot, torch);
        let mut active: HashMap<u8, HashMap<u64, Active>> = HashMap::new();
        for segment in &snapshot.segments {
            let Ok(device) = u8::try_from(segment.device) else {
                continue;
            };
            let of_device = active.entry(device).or_default();
            for block in segment.blocks.iter().filter(|block| block.state.active()) {
                let line = intern_line(publisher, &mut lines, block.frames);
                let requested = block.requested_size;
                of_device.insert(block.address, Active { requested, line });
            }
        }
        self.devices.retain(|device, _| active.contains_key(device));
        for (device, active) in &active {
            let past = self.devices.entry(*device).or_default();
            let trace = snapshot
                .device_traces
                .get(usize::from(*device))
                .map_or(&[][..], Vec::as_slice);
            let new = past.find_new(trace);
            if new.is_none() {
                past.known
                    .retain(|addr, known| active.get(addr).is_some_and(|block| known.is_still(block)));
            }
            for entry in &trace[new.unwrap_or(0)..] {
                past.follow(publisher, *device, entry, clocks, tags, &mut lines);
            }
            past.newest = trace.last().map_or(past.newest, |entry| entry.time_us);
            past.known.retain(|addr, _| active.contains_key(addr));
            for (addr, block) in active {
                past.known.entry(*addr).or_insert(Known {
                    requested: block.requested,
                    tag: block.line,
                    time: 0,
                    line: block.line,
                });
            }
        }
    }

    /// Returns what is known of an active block.
    pub(crate) fn of(&self, device: u8, block: &snapshot::Block) -> Known {
        let known = self
            .devices
            .get(&device)
            .and_then(|past| past.known.get(&block.address));
        known.copied().unwrap_or_default()
    }
}

impl Past {
    /// Returns the place of the first entry after the last snapshot's. `None` if that is lost.
    fn find_new(&self, trace: &[TraceEntry]) -> Option<usize> {
        let seen = |entry: &TraceEntry| entry.action == Action::Snapshot && entry.time_us == self.newest;
        trace.iter().rposition(seen).map(|at| at + 1)
    }

    fn follow(
        &mut self,
        publisher: &mut Publisher,
        device: u8,
        entry: &TraceEntry,
        clocks: Clocks,
        tags: &Tags,
        lines: &mut Lines<'_>,
    ) {
        let Some(kind) = kind_of(entry.action) else { return };
        let time = clocks.monotonic(entry.time_us);
        let tag = match kind {
            EventKind::Alloc => {
                let line = entry
                    .frames
                    .map_or(StringId(0), |stack| intern_line(publisher, lines, stack));
                let tag = tags.at(entry.time_us);
                let tag = if tag == StringId(0) { line } else { tag };
                let known = Known {
                    requested: entry.size,
                    tag,
                    time,
                    line,
                };
                self.known.insert(entry.addr, known);
                tag
            }
            EventKind::FreeCompleted => self.known.remove(&entry.addr).unwrap_or_default().tag,
            EventKind::Free => self.known.get(&entry.addr).copied().unwrap_or_default().tag,
            _ => tags.at(entry.time_us),
        };
        let of_block = matches!(kind, EventKind::Alloc | EventKind::Free | EventKind::FreeCompleted);
        let small = if of_block { SMALL_REQUEST } else { SMALL_SEGMENT };
        publisher.past_event(&Event {
            kind,
            time,
            device,
            pool: if entry.size <= small {
                PoolId::SMALL
            } else {
                PoolId::LARGE
            },
            addr: entry.addr,
            size: entry.size,
            requested: if of_block { entry.size } else { 0 },
            stream: entry.stream as u64,
            tag,
            ..Event::default()
        });
    }
}

impl Known {
    /// Checks whether an active block at its address is most likely the same, although operations were lost.
    fn is_still(&self, block: &Active) -> bool {
        self.requested == block.requested && self.line == block.line && self.line != StringId(0)
    }
}

/// Returns the kind of an entry that is published. Failed requests are told by the observer.
fn kind_of(action: Action) -> Option<EventKind> {
    Some(match action {
        Action::Alloc => EventKind::Alloc,
        Action::FreeRequested => EventKind::Free,
        Action::FreeCompleted => EventKind::FreeCompleted,
        Action::SegmentAlloc => EventKind::SegmentAlloc,
        Action::SegmentFree => EventKind::SegmentFree,
        Action::SegmentMap => EventKind::SegmentMap,
        Action::SegmentUnmap => EventKind::SegmentUnmap,
        Action::Oom | Action::Snapshot | Action::UserDefined | Action::Annotate | Action::Other(_) => return None,
    })
}

/// Returns the number of a call stack's line. A quarter of the table of strings is kept for others.
fn intern_line(publisher: &mut Publisher, lines: &mut Lines<'_>, stack: StackId) -> StringId {
    lines.of(stack).map_or(StringId(0), |line| publisher.intern_mark(line))
}
