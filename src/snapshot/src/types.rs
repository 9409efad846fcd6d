//! The types of a snapshot, under PyTorch's names. Sizes are in bytes. "Old files" means files of old PyTorch versions.

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
    /// A dict of the allocator's settings; `None` in old files.
    pub allocator_settings: Option<ValueId>,
    /// Marks of the program or the profiler; empty in old files.
    pub external_annotations: Vec<Annotation>,
    /// Unknown keys of the file (`host_segments`, `host_traces` of newer versions), with their values.
    pub extra: Vec<(TextId, ValueId)>,
    /// The tables to which all numbers in the snapshot refer.
    pub tables: Tables,
}

/// An address range that the allocator got from the driver. Its blocks tile it.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// CUDA's index of the device. Old files: 0.
    pub device: i32,
    /// First byte.
    pub address: u64,
    /// Size of the segment, which is the sum of its blocks' sizes.
    pub total_size: u64,
    /// Sum of the blocks that the program holds. Old files: computed from the blocks.
    pub allocated_size: u64,
    /// Sum of the blocks that the program holds or the GPU may still use. Old files: computed from the blocks.
    pub active_size: u64,
    /// Requested bytes of the active blocks. Old files: computed from the blocks.
    pub requested_size: u64,
    /// The `cudaStream_t` it was made for, as a number. Old files: 0, the default stream.
    pub stream: i64,
    /// The pool of small or of large requests. Old files: small up to 2 MiB, PyTorch's size of a small segment.
    pub segment_type: SegmentType,
    /// The private pool it belongs to; (0, 0) is the common one, and the default for old files.
    pub segment_pool_id: (u64, u64),
    /// Whether it is a reserved range that can grow. Old files: false.
    pub is_expandable: bool,
    /// Call stack of its allocation. Old files: empty.
    pub frames: StackId,
    /// Its blocks in address order.
    pub blocks: Vec<Block>,
    /// A dict of the unknown keys.
    pub extra: Option<ValueId>,
}

/// The pool of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentType {
    /// Requests up to 1 MiB.
    Small,
    /// Larger requests.
    Large,
    /// An unknown name.
    Other(TextId),
}

/// A part of a segment.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// First byte. Old files: the end of the block before.
    pub address: u64,
    /// Size after rounding.
    pub size: u64,
    /// Size that the program requested. Old files: from the block's history, else its size.
    pub requested_size: u64,
    /// State of the block.
    pub state: BlockState,
    /// Call stack of its request. Old files: from the block's history, else empty.
    pub frames: StackId,
    /// A dict of the unknown keys, including `history` of old files.
    pub extra: Option<ValueId>,
}

/// The state of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// Held by the program.
    ActiveAllocated,
    /// Freed by the program, perhaps still used by the GPU. Old files say `active_awaiting_free`.
    ActivePendingFree,
    /// Free, in the cache.
    Inactive,
    /// An unknown name.
    Other(TextId),
}

impl BlockState {
    /// Whether the program holds it or the GPU may still use it.
    pub fn active(self) -> bool {
        matches!(self, BlockState::ActiveAllocated | BlockState::ActivePendingFree)
    }
}

/// One entry of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceEntry {
    /// The kind of the event.
    pub action: Action,
    /// Address of the block or segment. For [`Action::Oom`] the device's free bytes (`device_free` in files).
    pub addr: u64,
    /// For a block, the size that the program requested. For a segment, its size, or that of the part mapped or
    /// unmapped.
    pub size: u64,
    /// The `cudaStream_t`, as a number.
    pub stream: i64,
    /// Microseconds since 1970; 0 in old files, which have none.
    pub time_us: u64,
    /// Call stack, if call stacks were recorded.
    pub frames: Option<StackId>,
    /// `torch.compile`'s context, `N/A` without one; `None` in old files.
    pub compile_context: Option<TextId>,
    /// Metadata of the program: a text or a dict; `None` in old files.
    pub user_metadata: Option<ValueId>,
    /// A dict of the unknown keys.
    pub extra: Option<ValueId>,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The program allocated a block.
    Alloc,
    /// The program freed a block.
    FreeRequested,
    /// The GPU no longer uses the block either, so it can be reused.
    FreeCompleted,
    /// A segment was allocated from the driver.
    SegmentAlloc,
    /// A segment was returned to the driver.
    SegmentFree,
    /// An expandable segment grew.
    SegmentMap,
    /// A part of an expandable segment was unmapped.
    SegmentUnmap,
    /// A snapshot was taken.
    Snapshot,
    /// A request failed for lack of memory.
    Oom,
    /// A range named by the program began or ended. Newer files have these in `external_annotations`.
    UserDefined,
    /// Metadata was attached to a block after its allocation: `user_metadata` of the block at that address.
    Annotate,
    /// An unknown name.
    Other(TextId),
}

/// A mark: its time, its device, and its other keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Annotation {
    /// CUDA's index of the device.
    pub device: i32,
    /// Microseconds since 1970.
    pub time_us: u64,
    /// A dict of its other keys: `stage` (`START`, `END`) and `name` as PyTorch sets them.
    pub metadata: Option<ValueId>,
}

/// Maps the enum's variants to their names in files.
macro_rules! named {
    ($kind:ident { $($value:ident = $name:ident,)* }) => {
        impl $kind {
            /// Returns its name in files.
            pub fn name(self) -> TextId {
                match self {
                    $($kind::$value => names::$name,)*
                    $kind::Other(name) => name,
                }
            }

            /// Returns the variant of a name in files.
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
    /// Returns a setting of the allocator by its name.
    pub fn setting(&self, name: &str) -> Option<&Value> {
        self.lookup(self.allocator_settings?, name)
    }

    /// Returns the value of a key in a dict.
    pub fn lookup(&self, dict: ValueId, key: &str) -> Option<&Value> {
        let Value::Dict(pairs) = self.tables.get_value(dict) else {
            return None;
        };
        let key = Value::Text(self.tables.find_text(key)?);
        let found = pairs.iter().find(|(name, _)| *self.tables.get_value(*name) == key);
        found.map(|(_, value)| self.tables.get_value(*value))
    }

    /// Counts the unknown keys by the kind of object that had them. They are kept, and written again.
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
