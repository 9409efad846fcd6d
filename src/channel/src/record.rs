//! The contents of a channel as plain values: devices, segments, blocks, events.
//!
//! Enumerations read from a channel keep unknown values ([`BlockState::Unknown`] and so on), so that an older reader
//! can show what a newer publisher wrote.

/// The number of a string in the channel's string table. `StringId(0)` is the empty string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StringId(pub u32);

/// The kind of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceKind {
    /// A CUDA device, joined to NVML by its UUID.
    #[default]
    Cuda,
    /// A simulated device. Every view labels it SIMULATED.
    Simulated,
    /// A kind that this reader does not know.
    Unknown(u8),
}

/// A device as its publisher describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// The 16 bytes of the UUID, as from `cuDeviceGetUuid`. The only key that joins a device to NVML.
    pub uuid: [u8; 16],
    /// Whether the device is CUDA's or simulated.
    pub kind: DeviceKind,
    /// The publisher's own number of the device: a label, never a key, because `CUDA_VISIBLE_DEVICES` renumbers
    /// devices.
    pub ordinal: u32,
    /// Total memory in bytes according to the publisher.
    pub total: u64,
    /// Size of the smallest physical chunk in bytes (2 MiB on current cards).
    pub granularity: u64,
    /// The publisher's budget on this device in bytes; 0 means none.
    pub budget: u64,
    /// Marketing name of the device.
    pub name: String,
}

/// The pool of a device to which a segment or block belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(pub u8);

impl PoolId {
    /// The pool for requests up to 1 MiB.
    pub const SMALL: PoolId = PoolId(0);
    /// The pool for larger requests.
    pub const LARGE: PoolId = PoolId(1);
}

/// How a segment's memory was allocated from the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SegmentKind {
    /// One `cuMemAlloc`.
    #[default]
    Plain,
    /// A reserved address range with physical chunks mapped into it.
    Virtual,
    /// Like [`SegmentKind::Virtual`]; a request that fits no single free block may be served from several, mapped side
    /// by side elsewhere.
    Stitched,
    /// A kind that this reader does not know.
    Unknown(u8),
}

/// Memory allocated from the driver as one address range. Its blocks tile it exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// First address.
    pub addr: u64,
    /// Size of the address range in bytes.
    pub size: u64,
    /// Bytes of physical memory mapped into it: `size` for plain segments, at most `size` for others.
    pub mapped: u64,
    /// Index into the channel's devices.
    pub device: u8,
    /// The pool whose requests it serves.
    pub pool: PoolId,
    /// How it was allocated from the driver.
    pub kind: SegmentKind,
    /// The stream for which it was allocated (a raw `CUstream`; 0 is the default stream).
    pub stream: u64,
    /// Size of a physical chunk in bytes; 0 for plain segments.
    pub chunk: u64,
    /// When it was allocated: nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// Tag of the request for which it was allocated.
    pub tag: StringId,
    /// Name of the separate pool that owns the memory (of a tenant or a CUDA graph); empty if there is none, or the
    /// string table was full.
    pub pool_name: StringId,
}

/// The stream of free memory that no queued work uses: any stream may use it at once. No driver has a stream with this
/// handle.
pub const NO_STREAM: u64 = u64::MAX;

/// Numbers of the threads' own default streams (`CU_STREAM_PER_THREAD`): one number for each thread, because CUDA has
/// one handle for all of them. The range contains no address, and so no handle, and its numbers are exact in JSON.
pub const PER_THREAD_STREAMS: std::ops::Range<u64> = 1 << 48..1 << 49;

/// The state of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BlockState {
    /// In the cache, ready for reuse (PyTorch: `inactive`).
    #[default]
    Free,
    /// Held by the program (PyTorch: `active_allocated`).
    Allocated,
    /// Freed by the program, but still in use by queued GPU work (PyTorch: `active_pending_free`). All pieces of a
    /// stitched block have this state, and the first piece has the figures of the request.
    PendingFree,
    /// An address range without physical memory (never in plain segments).
    Unmapped,
    /// In the cache like [`Free`](BlockState::Free), but set aside without being merged with its free neighbours. It is
    /// kept for the next request of its size, and is merged when a request of another size needs space. Or it is about
    /// to be returned to the driver, and is merged again if that does not happen.
    Quick,
    /// A piece of a held stitched block other than the first one, which has the figures of the request.
    Part,
    /// A state that this reader does not know.
    Unknown(u8),
}

/// A contiguous part of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// First address.
    pub addr: u64,
    /// Bytes.
    pub size: u64,
    /// Bytes that the program requested; 0 unless allocated or pending, and 0 for all but the first piece of a stitched
    /// block.
    pub requested: u64,
    /// The stream on which it was last allocated: a handle, or one of [`PER_THREAD_STREAMS`]. [`NO_STREAM`] once it is
    /// free and no queued work uses it.
    pub stream: u64,
    /// The state of the block.
    pub state: BlockState,
    /// Index into the channel's devices.
    pub device: u8,
    /// The pool that counts it: its segment's, or that of the request if the request got memory of the other pool.
    pub pool: PoolId,
    /// Slot of its segment.
    pub segment: u32,
    /// The tag under which it was allocated; empty when free.
    pub tag: StringId,
    /// When it entered this state: nanoseconds of `CLOCK_MONOTONIC`, with the resolution of an [event's
    /// time](Event::time).
    pub time: u64,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// A block was handed to the program.
    #[default]
    Alloc,
    /// The program freed a block.
    Free,
    /// A freed block's queued GPU work is done; it can be reused.
    FreeCompleted,
    /// Memory was allocated from the driver.
    SegmentAlloc,
    /// Memory was returned to the driver.
    SegmentFree,
    /// Physical chunks were mapped into a virtual segment.
    SegmentMap,
    /// Physical chunks were unmapped from a virtual segment.
    SegmentUnmap,
    /// The cache was released to the driver; `size` is the number of bytes released.
    CacheRelease,
    /// Free holes were joined by remapping; `size` is the number of bytes that are now contiguous.
    Remap,
    /// A request failed for lack of memory; `requested` is its size in bytes, and `addr` how many bytes the device had
    /// free (0: not known).
    OutOfMemory,
    /// A request was retried after memory was freed for it.
    Retry,
    /// A mark named by `tag`, made by the program ("forward", "step 12") or by [a monitor](MONITOR). A `size` above 0 is a number that
    /// belongs to the name: that of a step, say.
    Mark,
    /// Advice on the last request that failed: the text of `tag` ("raise the budget by") followed by `size`, the least
    /// number of bytes needed (0: the text is complete).
    Advice,
    /// A kind that this reader does not know.
    Unknown(u8),
}

/// Prefix of marks made by a monitor in the program's allocator and not by the program ("monitor: tidied up").
pub const MONITOR: &str = "monitor: ";

/// One entry of the event ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Number of the event in its ring, from 0. Gaps are lost events.
    pub index: u64,
    /// The number of the lane whose ring it is from; `None` for the publisher's ring.
    pub lane: Option<u8>,
    /// Nanoseconds of `CLOCK_MONOTONIC`, with the resolution of the kernel's tick. In quick succession only every
    /// fourth cache hit or free reads the clock, so up to three of them have the time of an earlier one. After a pause
    /// that is the time before the pause. Blocks from 256 MiB, and all other events, read the clock themselves.
    pub time: u64,
    /// The kind of the event.
    pub kind: EventKind,
    /// Index into the channel's devices.
    pub device: u8,
    /// The pool in which it happened.
    pub pool: PoolId,
    /// Address, if there is one. For a request that failed, the bytes that the device had free, if known.
    pub addr: u64,
    /// Size in bytes, after rounding.
    pub size: u64,
    /// Bytes that the program requested.
    pub requested: u64,
    /// The stream, as in [`Block::stream`].
    pub stream: u64,
    /// The tag of the request, or the name of the mark.
    pub tag: StringId,
    /// Slot of the segment in which it happened. For a request that failed, the string id of its pool's name, if it has
    /// one.
    pub segment: u32,
    /// The pool that counts the block as an inactive split while it is free, if any.
    pub split: Option<PoolId>,
}
