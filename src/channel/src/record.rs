//! What a channel holds, as plain values: devices, segments, blocks, events.
//!
//! Enumerations read from a channel keep values they do not know ([`BlockState::Unknown`] and so on), so that an
//! older reader shows what a newer publisher wrote instead of refusing it.

/// A string of the channel's string table. `StringId(0)` is the empty string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StringId(pub u32);

/// Where a device's memory comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceKind {
    /// A CUDA device, joined to NVML by its UUID.
    #[default]
    Cuda,
    /// The simulated device. Every view labels it SIMULATED.
    Simulated,
    /// A kind newer than this reader.
    Unknown(u8),
}

/// A device as its publisher describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// The UUID's 16 bytes, as in `cuDeviceGetUuid`. The only key by which a device is joined to NVML.
    pub uuid: [u8; 16],
    /// CUDA or simulated.
    pub kind: DeviceKind,
    /// The publisher's own number for it (`CUDA_VISIBLE_DEVICES` renumbers): a label, never a key.
    pub ordinal: u32,
    /// Total memory in bytes as the publisher sees it.
    pub total: u64,
    /// Bytes of the smallest physical chunk (2 MiB on current cards).
    pub granularity: u64,
    /// The publisher's budget on this device in bytes; 0 means none.
    pub budget: u64,
    /// Marketing name.
    pub name: String,
}

/// Which of a device's pools a segment or block belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(pub u8);

impl PoolId {
    /// Requests up to 1 MiB.
    pub const SMALL: PoolId = PoolId(0);
    /// Everything larger.
    pub const LARGE: PoolId = PoolId(1);
}

/// How a segment's memory was taken from the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SegmentKind {
    /// One `cuMemAlloc`.
    #[default]
    Plain,
    /// A reserved address range with physical chunks mapped into it.
    Virtual,
    /// The same, and a request that no free block in it fits is served from several, mapped side by side elsewhere.
    Stitched,
    /// A kind newer than this reader.
    Unknown(u8),
}

/// Memory taken from the driver as one address range. Its blocks tile it exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// First address.
    pub addr: u64,
    /// Bytes of address range.
    pub size: u64,
    /// Bytes of physical memory behind it: `size` for plain segments, at most `size` for others.
    pub mapped: u64,
    /// Index into the channel's devices.
    pub device: u8,
    /// Pool whose requests it serves.
    pub pool: PoolId,
    /// How it was taken from the driver.
    pub kind: SegmentKind,
    /// The stream it was taken for (a raw `CUstream`, 0 is the default stream).
    pub stream: u64,
    /// Bytes per physical chunk; 0 for plain segments.
    pub chunk: u64,
    /// When it was taken: nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// Tag of the request that took it.
    pub tag: StringId,
    /// Name of the pool whose memory it is, apart from everybody else's (a tenant's, a CUDA graph's); empty: no pool's, or the
    /// string table was full.
    pub pool_name: StringId,
}

/// The stream of free memory that no queued work uses: any stream may take it at once. No driver has a stream of this name.
pub const NO_STREAM: u64 = u64::MAX;

/// Threads' own default streams (`CU_STREAM_PER_THREAD`): one number for each thread, as CUDA has one handle for all of them. No address, and so no
/// handle, is among them, and JSON readers tell them apart.
pub const PER_THREAD_STREAMS: std::ops::Range<u64> = 1 << 48..1 << 49;

/// What a block is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BlockState {
    /// In the cache, ready for reuse (PyTorch: `inactive`).
    #[default]
    Free,
    /// Held by the program (PyTorch: `active_allocated`).
    Allocated,
    /// Freed by the program, still in use by queued GPU work (PyTorch: `active_pending_free`). Of a block that is stitched from several
    /// pieces all are, and the first one has the figures of the request.
    PendingFree,
    /// Address range without physical memory (never in plain segments).
    Unmapped,
    /// In the cache like [`Free`](BlockState::Free), and set aside whole: for the next request of its size, so that it joins its free
    /// neighbours when a request of another size needs room; or for as long as it is on its way back to the driver, from which it
    /// joins them again if it is not taken.
    Quick,
    /// A further piece of a held block that is stitched from several; its first piece has the figures of the request.
    Part,
    /// A state newer than this reader.
    Unknown(u8),
}

/// A part of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// First address.
    pub addr: u64,
    /// Bytes.
    pub size: u64,
    /// Bytes the program asked for; 0 unless allocated or pending, and of the further pieces of a stitched block.
    pub requested: u64,
    /// Stream it was last allocated on; [`NO_STREAM`] once no queued work uses it. A handle, or one of
    /// [`PER_THREAD_STREAMS`].
    pub stream: u64,
    /// What it is doing.
    pub state: BlockState,
    /// Index into the channel's devices.
    pub device: u8,
    /// The pool that counts it: its segment's, or that of the request if that got memory of the other one.
    pub pool: PoolId,
    /// Slot of its segment.
    pub segment: u32,
    /// Who allocated it; empty when free.
    pub tag: StringId,
    /// When it entered this state: nanoseconds of `CLOCK_MONOTONIC`, as coarse as an [event's](Event::time).
    pub time: u64,
}

/// What happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// A block was handed to the program.
    #[default]
    Alloc,
    /// The program freed a block.
    Free,
    /// A freed block's queued GPU work is done; it can be reused.
    FreeCompleted,
    /// Memory was taken from the driver.
    SegmentAlloc,
    /// Memory was given back to the driver.
    SegmentFree,
    /// Physical chunks were mapped into a virtual segment.
    SegmentMap,
    /// Physical chunks were unmapped from a virtual segment.
    SegmentUnmap,
    /// The cache was released to the driver; `size` is what came free.
    CacheRelease,
    /// Free holes were joined by remapping; `size` is what is now contiguous.
    Remap,
    /// A request failed for want of memory; `requested` is what was asked, and `addr` how many bytes the device had free (0: not known).
    OutOfMemory,
    /// A request was retried after making room.
    Retry,
    /// A mark of the program's own, named by `tag` ("forward", "step 12"), or of [a monitor](MONITOR).
    Mark,
    /// What would have helped the last request that failed: words named by `tag` ("raise the budget by"), which `size` completes, the bytes
    /// that it takes at least (0: the words say all).
    Advice,
    /// A kind newer than this reader.
    Unknown(u8),
}

/// What names of marks begin with that are not the program's own but those of a monitor in its allocator ("monitor: tidied up").
pub const MONITOR: &str = "monitor: ";

/// One entry of the event ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Position in its ring since the channel began, from 0. Gaps are lost events.
    pub index: u64,
    /// Whose ring it is from: a lane's, by its number, or else the publisher's own.
    pub lane: Option<u8>,
    /// Nanoseconds of `CLOCK_MONOTONIC`, as coarse as the kernel's tick. Requests that hit the cache, and frees, in quick succession
    /// look at the clock once in four, so that up to three of them carry the time of one before: after a pause, that of before the
    /// pause. Blocks from 256 MiB and everything else have a look of their own.
    pub time: u64,
    /// What happened.
    pub kind: EventKind,
    /// Index into the channel's devices.
    pub device: u8,
    /// Pool it happened in.
    pub pool: PoolId,
    /// Address, where there is one. Of a request that failed what the device had free, if that is known.
    pub addr: u64,
    /// Bytes (rounded).
    pub size: u64,
    /// Bytes asked for.
    pub requested: u64,
    /// Stream.
    pub stream: u64,
    /// Who, or which mark.
    pub tag: StringId,
    /// Slot of the segment it happened in. Of a request that failed, which happened in none, the string with the name of its pool, if it
    /// has one.
    pub segment: u32,
    /// The pool that counts the block as an inactive split while it is free, if it is one.
    pub split: Option<PoolId>,
}
