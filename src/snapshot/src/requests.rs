//! The requests that the program made to its allocator, derived from a trace.

use std::collections::{BTreeMap, HashMap};
use std::slice;

use crate::ids::{TextId, ValueId};
use crate::names;
use crate::tables::{Tables, Value};
use crate::types::{Action, BlockState, Snapshot, TraceEntry};

/// An allocation or a free by the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Allocation or free.
    pub kind: RequestKind,
    /// The address at which PyTorch's allocator placed the block. It joins a free to its allocation, and is reused for
    /// later blocks.
    pub addr: u64,
    /// The requested size in bytes; for a free, that of its allocation.
    pub size: u64,
    /// The `cudaStream_t`, as a number.
    pub stream: i64,
    /// Microseconds since 1970; 0 if the file has no times.
    pub time_us: u64,
    /// Whether it is in the trace. Otherwise it was inferred: see [`Snapshot::requests`].
    pub recorded: bool,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// The program allocates a block.
    Alloc,
    /// The program frees a block.
    Free,
}

impl Snapshot {
    /// Returns the requests of a device, in the order of its trace.
    ///
    /// A free is placed where the program made it (`free_requested`), because that is what a caching allocator sees.
    /// The entry for its completion by the GPU (`free_completed`) is used only if the block's `free_requested` is
    /// missing.
    ///
    /// The trace is a ring and may begin in the middle. Blocks that must have existed before it come first, by address,
    /// as allocations that are not `recorded`. These are blocks that are freed in the trace (even if only
    /// `free_completed` is left) or live at the end, and were never allocated in it. So every free follows an
    /// allocation of its address, and no address is allocated twice at a time: if a free between two allocations is
    /// missing, one that is not `recorded` is inserted before the second. A free of a free block is not a request;
    /// [`Snapshot::check_trace`] reports it.
    ///
    /// Programs that use `gpumem-alloc` may have blocks of several separate pieces, each with its own event and block.
    /// Such a block is one request of the whole size, at the address of its first piece.
    ///
    /// In these programs a block may also have another stream than its segment.
    ///
    /// A device without a trace has the blocks that are live at the end; an unknown device has no requests.
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

    /// Returns size and stream of the blocks that were live before the trace begins, by address.
    fn live_before(&self, device: usize, trace: &[TraceEntry]) -> BTreeMap<u64, (u64, i64)> {
        let mut before = BTreeMap::new();
        let mut met = std::collections::HashSet::new();
        for entry in trace {
            let first = match entry.action {
                Action::Alloc | Action::FreeRequested | Action::FreeCompleted => met.insert(entry.addr),
                _ => false,
            };
            // The size of a free without a size is unknown.
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

/// Returns the requested size of a block, or of the whole block if this is its first piece; `None` for other pieces.
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

/// Returns the value of a name in a dict of extra keys.
fn value(tables: &Tables, extra: Option<ValueId>, name: TextId) -> Option<&Value> {
    let Value::Dict(pairs) = tables.get_value(extra?) else {
        return None;
    };
    let named = |(key, _): &&(ValueId, ValueId)| *tables.get_value(*key) == Value::Text(name);
    pairs.iter().find(named).map(|(_, value)| tables.get_value(*value))
}

/// Iterates over the requests of a device: see [`Snapshot::requests`].
#[derive(Clone, Debug)]
pub struct Requests<'a> {
    before: std::vec::IntoIter<Request>,
    trace: slice::Iter<'a, TraceEntry>,
    tables: &'a Tables,
    /// An allocation before which an inferred free is returned.
    next: Option<Request>,
    /// Sizes of the live blocks by address.
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
    fn blocks_older_than_the_trace_come_first() {
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
    fn without_a_trace_the_live_blocks_are_requests() {
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
            // Was live before the trace begins.
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
    fn address_is_live_once_at_a_time() {
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
