//! The snapshot's values, under PyTorch's names. Sizes are bytes.

use std::collections::BTreeMap;

use crate::ids::{StackId, TextId, ValueId};
use crate::names;
use crate::tables::{Tables, Value};

/// What `torch.cuda.memory._snapshot()` returns: the allocator's state at one moment, and what it did before.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Segments of all devices, in the file's order.
    pub segments: Vec<Segment>,
    /// One list of events per device, oldest first. PyTorch keeps them in a ring: the first events may be lost.
    pub device_traces: Vec<Vec<TraceEntry>>,
    /// A dict of the allocator's settings; none in old files.
    pub allocator_settings: Option<ValueId>,
    /// What the program or the profiler marked; empty in old files.
    pub external_annotations: Vec<Annotation>,
    /// Keys of the file that are not known here (`host_segments`, `host_traces` of newer versions), with their values.
    pub extra: Vec<(TextId, ValueId)>,
    /// Where the numbers in all of this lead to.
    pub tables: Tables,
}

/// A range that the allocator took from the driver. Its blocks tile it.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// CUDA's index of the device. Old files: 0.
    pub device: i32,
    /// First byte.
    pub address: u64,
    /// Of the segment: the sum of its blocks' sizes.
    pub total_size: u64,
    /// Of blocks that the program holds. Old files: computed from the blocks.
    pub allocated_size: u64,
    /// Of blocks that the program holds or the GPU may still use. Old files: computed from the blocks.
    pub active_size: u64,
    /// What the program asked for, of the active blocks. Old files: computed from the blocks.
    pub requested_size: u64,
    /// The `cudaStream_t` it was made for, as a number. Old files: 0, the default stream.
    pub stream: i64,
    /// The pool of small or of large requests. Old files: small up to 2 MiB, PyTorch's size of a small segment.
    pub segment_type: SegmentType,
    /// The private pool it belongs to; (0, 0) is the common one, and the default for old files.
    pub segment_pool_id: (u64, u64),
    /// Can grow, being a reserved range. Old files: no.
    pub is_expandable: bool,
    /// Who made it take memory. Old files: empty.
    pub frames: StackId,
    /// In the order of their addresses.
    pub blocks: Vec<Block>,
    /// A dict of the keys that are not known here.
    pub extra: Option<ValueId>,
}

/// Which pool a segment is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentType {
    /// Requests up to 1 MiB.
    Small,
    /// All others.
    Large,
    /// A name that is not known here.
    Other(TextId),
}

/// A part of a segment.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// First byte. Old files: the end of the block before.
    pub address: u64,
    /// After rounding.
    pub size: u64,
    /// What the program asked for. Old files: from the block's history, else its size.
    pub requested_size: u64,
    /// Whose it is.
    pub state: BlockState,
    /// Who asked for it. Old files: from the block's history, else empty.
    pub frames: StackId,
    /// A dict of the keys that are not known here, `history` of old files among them.
    pub extra: Option<ValueId>,
}

/// Whose a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// The program's.
    ActiveAllocated,
    /// Freed by the program, perhaps still used by the GPU. Old files say `active_awaiting_free`.
    ActivePendingFree,
    /// The cache's.
    Inactive,
    /// A name that is not known here.
    Other(TextId),
}

impl BlockState {
    /// The program's or the GPU's.
    pub fn active(self) -> bool {
        matches!(self, BlockState::ActiveAllocated | BlockState::ActivePendingFree)
    }
}

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceEntry {
    /// What happened.
    pub action: Action,
    /// Of the block or segment. For [`Action::Oom`] the device's free bytes (`device_free` in files).
    pub addr: u64,
    /// Of a block: what the program asked for. Of a segment: its size, or that of the part mapped or unmapped.
    pub size: u64,
    /// The `cudaStream_t`, as a number.
    pub stream: i64,
    /// Microseconds since 1970; 0 if the file has none (old ones).
    pub time_us: u64,
    /// Who did it, if call stacks were recorded.
    pub frames: Option<StackId>,
    /// `torch.compile`'s context, `N/A` without one; none in old files.
    pub compile_context: Option<TextId>,
    /// What the program attached: a text or a dict; none in old files.
    pub user_metadata: Option<ValueId>,
    /// A dict of the keys that are not known here.
    pub extra: Option<ValueId>,
}

/// What an event tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The program was given a block.
    Alloc,
    /// The program gave a block back.
    FreeRequested,
    /// The GPU has done with it too: it can be given out again.
    FreeCompleted,
    /// Taken from the driver.
    SegmentAlloc,
    /// Given back to the driver.
    SegmentFree,
    /// An expandable segment grew.
    SegmentMap,
    /// An expandable segment lost a part.
    SegmentUnmap,
    /// A snapshot was taken.
    Snapshot,
    /// Out of memory.
    Oom,
    /// A range that the program names has begun or ended. Newer files tell of it in `external_annotations`.
    UserDefined,
    /// What a block is for was said after it was given out: `user_metadata` of the block at that address.
    Annotate,
    /// A name that is not known here.
    Other(TextId),
}

/// A mark: its own keys, and when and where it was set.
#[derive(Clone, Debug, PartialEq)]
pub struct Annotation {
    /// CUDA's index of the device.
    pub device: i32,
    /// Microseconds since 1970.
    pub time_us: u64,
    /// A dict of its other keys: `stage` (`START`, `END`) and `name` as PyTorch sets them.
    pub metadata: Option<ValueId>,
}

/// The enum's values and the names they have in files.
macro_rules! named {
    ($kind:ident { $($value:ident = $name:ident,)* }) => {
        impl $kind {
            /// Its name in files.
            pub fn name(self) -> TextId {
                match self {
                    $($kind::$value => names::$name,)*
                    $kind::Other(name) => name,
                }
            }

            /// What a name means.
            pub fn named(name: TextId) -> $kind {
                match name {
                    $(names::$name => $kind::$value,)*
                    other => $kind::Other(other),
                }
            }
        }
    };
}

named!(SegmentType { Small = SMALL, Large = LARGE, });
named!(Action {
    Alloc = ALLOC,
    FreeRequested = FREE_REQUESTED,
    FreeCompleted = FREE_COMPLETED,
    SegmentAlloc = SEGMENT_ALLOC,
    SegmentFree = SEGMENT_FREE,
    SegmentMap = SEGMENT_MAP,
    SegmentUnmap = SEGMENT_UNMAP,
    Snapshot = SNAPSHOT,
    Oom = OOM,
    UserDefined = USER_DEFINED,
    Annotate = ANNOTATE,
});
named!(BlockState {
    ActiveAllocated = ACTIVE_ALLOCATED,
    ActivePendingFree = ACTIVE_PENDING_FREE,
    Inactive = INACTIVE,
});

impl Snapshot {
    /// A setting of the allocator, by its name.
    pub fn setting(&self, name: &str) -> Option<&Value> {
        self.lookup(self.allocator_settings?, name)
    }

    /// What a dict has under a text.
    pub fn lookup(&self, dict: ValueId, key: &str) -> Option<&Value> {
        let Value::Dict(pairs) = self.tables.get_value(dict) else {
            return None;
        };
        let key = Value::Text(self.tables.find_text(key)?);
        let found = pairs.iter().find(|(name, _)| *self.tables.get_value(*name) == key);
        found.map(|(_, value)| self.tables.get_value(*value))
    }

    /// The keys that were not known here, by the thing they were on, with the number of times. They are kept, and written.
    pub fn unknown_keys(&self) -> BTreeMap<(&'static str, String), u64> {
        let mut counts = BTreeMap::new();
        let mut count = |on, name: String| *counts.entry((on, name)).or_insert(0) += 1;
        for (name, _) in &self.extra {
            count("snapshot", self.tables.get_text(*name).to_owned());
        }
        let segments = self.segments.iter().map(|s| ("segment", s.extra));
        let blocks = self.segments.iter().flat_map(|s| &s.blocks).map(|b| ("block", b.extra));
        let entries = self.device_traces.iter().flatten().map(|e| ("trace entry", e.extra));
        let frames = self.tables.all_frames().map(|f| ("frame", f.extra));
        for (on, extra) in segments.chain(blocks).chain(entries).chain(frames) {
            let Some(Value::Dict(pairs)) = extra.map(|extra| self.tables.get_value(extra)) else {
                continue;
            };
            for (key, _) in pairs.iter() {
                let name = match self.tables.get_value(*key) {
                    Value::Text(text) => self.tables.get_text(*text).to_owned(),
                    other => format!("{other:?}"),
                };
                count(on, name);
            }
        }
        counts
    }
}
