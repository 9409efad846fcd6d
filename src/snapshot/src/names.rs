//! The known names of keys and values in snapshots. They are the first texts of every table, so that a key is
//! recognised by its number.

use crate::ids::TextId;

macro_rules! names {
    ($($name:ident = $text:literal,)*) => {
        #[expect(non_camel_case_types, clippy::upper_case_acronyms, reason = "only counts the names below")]
        enum Order { $($name,)* }
        $(pub(crate) const $name: TextId = TextId(Order::$name as u32);)*
        /// All names, in the order of their numbers.
        pub(crate) const ALL: &[&str] = &[$($text,)*];
    };
}

names! {
    SEGMENTS = "segments",
    DEVICE_TRACES = "device_traces",
    ALLOCATOR_SETTINGS = "allocator_settings",
    EXTERNAL_ANNOTATIONS = "external_annotations",
    DEVICE = "device",
    ADDRESS = "address",
    TOTAL_SIZE = "total_size",
    ALLOCATED_SIZE = "allocated_size",
    ACTIVE_SIZE = "active_size",
    REQUESTED_SIZE = "requested_size",
    STREAM = "stream",
    SEGMENT_TYPE = "segment_type",
    SEGMENT_POOL_ID = "segment_pool_id",
    IS_EXPANDABLE = "is_expandable",
    FRAMES = "frames",
    BLOCKS = "blocks",
    SMALL = "small",
    LARGE = "large",
    SIZE = "size",
    STATE = "state",
    HISTORY = "history",
    REAL_SIZE = "real_size",
    ACTIVE_ALLOCATED = "active_allocated",
    ACTIVE_PENDING_FREE = "active_pending_free",
    ACTIVE_AWAITING_FREE = "active_awaiting_free",
    INACTIVE = "inactive",
    ACTION = "action",
    ADDR = "addr",
    DEVICE_FREE = "device_free",
    TIME_US = "time_us",
    COMPILE_CONTEXT = "compile_context",
    USER_METADATA = "user_metadata",
    ALLOC = "alloc",
    FREE_REQUESTED = "free_requested",
    FREE_COMPLETED = "free_completed",
    SEGMENT_ALLOC = "segment_alloc",
    SEGMENT_FREE = "segment_free",
    SEGMENT_MAP = "segment_map",
    SEGMENT_UNMAP = "segment_unmap",
    SNAPSHOT = "snapshot",
    OOM = "oom",
    USER_DEFINED = "user_defined",
    ANNOTATE = "annotate",
    NAME = "name",
    FILENAME = "filename",
    LINE = "line",
    WHOLE = "whole",
    PART_OF = "part_of",
}
