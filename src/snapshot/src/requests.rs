//! What the program asked its allocator for, as a trace tells it.

use std::collections::{BTreeMap, HashMap};
use std::slice;

use crate::ids::{TextId, ValueId};
use crate::names;
use crate::tables::{Tables, Value};
use crate::types::{Action, BlockState, Snapshot, TraceEntry};

/// The program wants a block or gives one back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which of both.
    pub kind: RequestKind,
    /// Where PyTorch's allocator had put the block: what joins a free to its allocation. Used again for later blocks.
    pub addr: u64,
    /// What the program asked for, in bytes; of a free, as its allocation had it.
    pub size: u64,
    /// The `cudaStream_t`, as a number.
    pub stream: i64,
    /// Microseconds since 1970; 0 if the file has no times.
    pub time_us: u64,
    /// It is in the trace. Otherwise it follows from what is: see [`Snapshot::requests`].
    pub recorded: bool,
}

/// What a program wants of an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// A block.
    Alloc,
    /// To give one back.
    Free,
}

impl Snapshot {
    /// The requests of a device, in the order of its trace.
    ///
    /// A free counts when the program made it (`free_requested`): that is what a caching allocator sees. That the GPU has done
    /// with the block (`free_completed`) is the allocator's own business; it counts only for a block whose `free_requested` is
    /// not there.
    ///
    /// The trace is a ring and may begin in the middle. Blocks that must have been there before (they are freed in the trace, and be it
    /// that only `free_completed` is left of that, or live at the end, and were never allocated in it) come first, in the order of their addresses, as allocations that
    /// are not `recorded`. So every free follows an allocation of its address, and no address is allocated twice at a time:
    /// where a trace lacks a free between two allocations, one that is not `recorded` comes before the second. A free of what is
    /// free already is no request: [`Snapshot::check_trace`] tells of it.
    ///
    /// Programs of `gpumem-alloc` may have blocks of pieces that lie apart, each of which is an event of its own and a block of its own. Such a
    /// block is one request, of what was asked for as a whole, at its first piece's address.
    ///
    /// Their blocks may be of another stream than their segment, too.
    ///
    /// A device without a trace has the blocks that live at the end; one that is not there has nothing.
    pub fn requests(&self, device: usize) -> Requests<'_> {
        let trace = self.device_traces.get(device).map_or(&[][..], Vec::as_slice);
        let start = trace.first().map_or(0, |entry| entry.time_us);
        let before = self.live_before(device, trace);
        let before = before.into_iter().map(|(addr, (size, stream))| Request {
            kind: RequestKind::Alloc,
            addr,
            size,
            stream,
            time_us: start,
            recorded: false,
        });
        Requests {
            before: before.collect::<Vec<_>>().into_iter(),
            trace: trace.iter(),
            tables: &self.tables,
            next: None,
            live: HashMap::new(),
        }
    }

    /// Size and stream of the blocks that were live before the trace begins, by address.
    fn live_before(&self, device: usize, trace: &[TraceEntry]) -> BTreeMap<u64, (u64, i64)> {
        let mut before = BTreeMap::new();
        let mut met = std::collections::HashSet::new();
        for entry in trace {
            let first = match entry.action {
                Action::Alloc | Action::FreeRequested | Action::FreeCompleted => met.insert(entry.addr),
                _ => false,
            };
            // A free that does not know its size frees a block of which nothing is known.
            if first
                && entry.action != Action::Alloc
                && entry.size > 0
                && let Some(size) = whole(&self.tables, entry.extra, entry.size)
            {
                before.insert(entry.addr, (size, entry.stream));
            }
        }
        let segments = self.segments.iter();
        for segment in segments.filter(|segment| usize::try_from(segment.device) == Ok(device)) {
            let blocks = segment.blocks.iter();
            for block in blocks.filter(|block| block.state == BlockState::ActiveAllocated) {
                if !met.contains(&block.address)
                    && let Some(size) = whole(&self.tables, block.extra, block.requested_size)
                {
                    let stream = match value(&self.tables, block.extra, names::STREAM) {
                        Some(Value::Int(stream)) => *stream,
                        _ => segment.stream,
                    };
                    before.insert(block.address, (size, stream));
                }
            }
        }
        before
    }
}

/// What was asked for of a block that says so much of itself, or of the block that this is the first piece of; `None` of another piece.
fn whole(tables: &Tables, extra: Option<ValueId>, size: u64) -> Option<u64> {
    if value(tables, extra, names::PART_OF).is_some() {
        return None;
    }
    match value(tables, extra, names::WHOLE) {
        Some(Value::Int(whole)) => Some(u64::try_from(*whole).unwrap_or(size)),
        Some(Value::Unsigned(whole)) => Some(*whole),
        _ => Some(size),
    }
}

/// What a dict of further keys has under a name.
fn value(tables: &Tables, extra: Option<ValueId>, name: TextId) -> Option<&Value> {
    let Value::Dict(pairs) = tables.get_value(extra?) else {
        return None;
    };
    let named = |(key, _): &&(ValueId, ValueId)| *tables.get_value(*key) == Value::Text(name);
    pairs.iter().find(named).map(|(_, value)| tables.get_value(*value))
}

/// The requests of a device: [`Snapshot::requests`].
#[derive(Clone, Debug)]
pub struct Requests<'a> {
    before: std::vec::IntoIter<Request>,
    trace: slice::Iter<'a, TraceEntry>,
    tables: &'a Tables,
    /// An allocation that waits for the free before it.
    next: Option<Request>,
    /// Sizes by address.
    live: HashMap<u64, u64>,
}

impl Iterator for Requests<'_> {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        if let Some(request) = self.before.next().or_else(|| self.next.take()) {
            self.live.insert(request.addr, request.size);
            return Some(request);
        }
        loop {
            let entry = self.trace.next()?;
            let request = |kind, size, recorded| Request {
                kind,
                addr: entry.addr,
                size,
                stream: entry.stream,
                time_us: entry.time_us,
                recorded,
            };
            match entry.action {
                Action::Alloc => {
                    let Some(size) = whole(self.tables, entry.extra, entry.size) else {
                        match self.live.remove(&entry.addr) {
                            Some(old) => return Some(request(RequestKind::Free, old, false)),
                            None => continue,
                        }
                    };
                    let alloc = request(RequestKind::Alloc, size, true);
                    let Some(old) = self.live.insert(entry.addr, size) else {
                        return Some(alloc);
                    };
                    self.next = Some(alloc);
                    return Some(request(RequestKind::Free, old, false));
                }
                Action::FreeRequested | Action::FreeCompleted => {
                    if let Some(size) = self.live.remove(&entry.addr) {
                        return Some(request(RequestKind::Free, size, true));
                    }
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::StackId;
    use crate::types::{Block, Segment, SegmentType};
    use RequestKind::{Alloc, Free};

    fn entry(action: Action, addr: u64, size: u64) -> TraceEntry {
        TraceEntry {
            action,
            addr,
            size,
            stream: 7,
            time_us: 1000 + addr,
            frames: None,
            compile_context: None,
            user_metadata: None,
            extra: None,
        }
    }

    fn snapshot(trace: Vec<TraceEntry>) -> Snapshot {
        let block = |address, state| Block {
            address,
            size: 512,
            requested_size: 500,
            state,
            frames: StackId::EMPTY,
            extra: None,
        };
        Snapshot {
            segments: vec![Segment {
                device: 0,
                address: 512,
                total_size: 1024,
                allocated_size: 512,
                active_size: 512,
                requested_size: 500,
                stream: 3,
                segment_type: SegmentType::Small,
                segment_pool_id: (0, 0),
                is_expandable: false,
                frames: StackId::EMPTY,
                blocks: vec![
                    block(512, BlockState::ActiveAllocated),
                    block(1024, BlockState::Inactive),
                ],
                extra: None,
            }],
            device_traces: vec![trace],
            ..Snapshot::default()
        }
    }

    fn told(snapshot: &Snapshot, device: usize) -> Vec<(RequestKind, u64, u64, bool)> {
        let requests = snapshot.requests(device);
        requests.map(|r| (r.kind, r.addr, r.size, r.recorded)).collect()
    }

    #[test]
    fn a_ring_that_begins_in_the_middle_has_its_first_blocks_first() {
        let snapshot = snapshot(vec![
            entry(Action::FreeCompleted, 99, 1),
            entry(Action::FreeRequested, 20, 2),
            entry(Action::SegmentAlloc, 20, 2),
            entry(Action::FreeCompleted, 20, 2),
            entry(Action::Alloc, 20, 4),
            entry(Action::FreeRequested, 20, 4),
        ]);
        let all = [
            (Alloc, 20, 2, false),
            (Alloc, 99, 1, false),
            (Alloc, 512, 500, false),
            (Free, 99, 1, true),
            (Free, 20, 2, true),
            (Alloc, 20, 4, true),
            (Free, 20, 4, true),
        ];
        assert_eq!(told(&snapshot, 0), all);
        let first = snapshot.requests(0).next();
        assert_eq!(first.map(|r| (r.stream, r.time_us)), Some((7, 1099)));
        assert_eq!(told(&snapshot, 1), []);
        assert_eq!(told(&snapshot, usize::MAX), []);
    }

    #[test]
    fn without_a_trace_there_are_the_blocks_of_the_end() {
        let mut snapshot = snapshot(Vec::new());
        assert_eq!(told(&snapshot, 0), [(Alloc, 512, 500, false)]);
        snapshot.device_traces.clear();
        assert_eq!(told(&snapshot, 0), [(Alloc, 512, 500, false)]);
        snapshot.segments[0].device = -1;
        assert_eq!(told(&snapshot, 0), []);
    }

    #[test]
    fn pieces_of_a_block_are_one_request() {
        let mut snapshot = snapshot(Vec::new());
        let mut piece = |action, addr, size, (key, value): (&str, i64)| TraceEntry {
            extra: Some(
                snapshot
                    .tables
                    .dict([("thread", Value::Int(1)), (key, Value::Int(value))]),
            ),
            ..entry(action, addr, size)
        };
        let first = ("whole", 100);
        snapshot.device_traces[0] = vec![
            entry(Action::Alloc, 70, 7),
            piece(Action::Alloc, 20, 60, first),
            piece(Action::Alloc, 70, 40, ("part_of", 20)),
            piece(Action::FreeRequested, 20, 60, first),
            piece(Action::FreeRequested, 70, 40, ("part_of", 20)),
            piece(Action::FreeCompleted, 20, 60, first),
            piece(Action::FreeCompleted, 70, 40, ("part_of", 20)),
            // Live before the trace begins.
            piece(Action::FreeRequested, 90, 60, ("whole", -1)),
            piece(Action::FreeRequested, 95, 40, ("part_of", 90)),
        ];
        let blocks = &mut snapshot.segments[0].blocks;
        blocks[0].extra = Some(snapshot.tables.dict([("whole", Value::Int(900))]));
        (blocks[1].state, blocks[1].extra) = (
            BlockState::ActiveAllocated,
            Some(snapshot.tables.dict([("part_of", Value::Int(512))])),
        );
        let all = [
            (Alloc, 90, 60, false),
            (Alloc, 512, 900, false),
            (Alloc, 70, 7, true),
            (Alloc, 20, 100, true),
            (Free, 70, 7, false),
            (Free, 20, 100, true),
            (Free, 90, 60, true),
        ];
        assert_eq!(told(&snapshot, 0), all);
    }

    #[test]
    fn an_address_is_live_once_at_a_time() {
        let snapshot = snapshot(vec![
            entry(Action::Alloc, 512, 1),
            entry(Action::Alloc, 512, 2),
            entry(Action::FreeCompleted, 512, 2),
            entry(Action::FreeRequested, 512, 2),
            entry(Action::FreeRequested, 512, 2),
        ]);
        let all = [
            (Alloc, 512, 1, true),
            (Free, 512, 1, false),
            (Alloc, 512, 2, true),
            (Free, 512, 2, true),
        ];
        assert_eq!(told(&snapshot, 0), all);
    }
}
