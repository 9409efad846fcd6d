//! What can go wrong, with what we were doing and what the caller can do about it.

use gpumem_text::units::bytes_to_pib;

use crate::conf::ConfError;
use crate::report::OomReport;
use crate::size::MAX_REQUEST;

/// A driver call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} failed: {name} ({code})")]
#[non_exhaustive]
pub struct DeviceError {
    /// The call, as the driver names it.
    pub call: &'static str,
    /// The driver's error number (`CUresult`).
    pub code: i32,
    /// The driver's name for it.
    pub name: String,
}

impl DeviceError {
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    pub(crate) const OUT_OF_MEMORY: i32 = 2;

    /// What only a GPU has: `CUDA_ERROR_NOT_SUPPORTED`.
    pub(crate) fn not_here(call: &'static str) -> DeviceError {
        DeviceError {
            call,
            code: 801,
            name: "CUDA_ERROR_NOT_SUPPORTED".to_owned(),
        }
    }

    /// No error of the driver's: the call will be made without the heap's lock.
    pub(crate) const LATER: i32 = i32::MIN;

    /// Whether the device's context is gone, and its memory with it: `CUDA_ERROR_DEINITIALIZED`, as a process ends,
    /// `CUDA_ERROR_INVALID_CONTEXT`, `CUDA_ERROR_CONTEXT_IS_DESTROYED`.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.code, 4 | 201 | 709)
    }

    /// Whether the device had too little memory, as opposed to being in trouble.
    pub fn is_out_of_memory(&self) -> bool {
        self.code == DeviceError::OUT_OF_MEMORY
    }
}

/// Why an allocator call failed. The allocator is usable after every one of them, and unchanged but for these: a request that there is no
/// memory for may have waited for the device and given the cache back to the driver before it failed, unless it is larger than what the
/// device or the budget has beside what is held; one of a new stream that there is no place for may have waited for the device; and what
/// gives memory back or moves it (`release_cached`, `compact`, `join_holes`, and budgets that become smaller) keeps what it did before the
/// driver failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request does not fit. The report says what was tried and what would help.
    #[error("{0}")]
    OutOfMemory(Box<OomReport>),
    /// The size overflows, or no device could ever hold it.
    #[error("a request of {} is larger than any device ({} is the limit): check how the size is computed",
        too_large(*requested), bytes_to_pib(MAX_REQUEST))]
    TooLarge {
        /// Bytes asked for; `None` when even that number overflows.
        requested: Option<u64>,
    },
    /// A raw free of an address that this allocator did not hand out, or that was already freed.
    #[error("0x{addr:x} is not a live raw allocation of this allocator (foreign, or freed before)")]
    UnknownPointer {
        /// The address.
        addr: u64,
    },
    /// The driver's allocation behind a pointer was asked for, and there is none.
    #[error(
        "0x{addr:x} lies in memory that is mapped in chunks, which is no allocation of the driver's: it cannot be shared with other \
        processes (IPC). Use plain segments for that (SegmentMode::Plain, segments:plain)"
    )]
    NoBase {
        /// The address.
        addr: u64,
    },
    /// A [place](crate::Pool::alloc_raw_at) of a private pool was asked for that is not free, or not of such a pool.
    #[error("{} at 0x{addr:x} are not free in this private pool", bytes_to_pib(*bytes))]
    NotFree {
        /// Its first address.
        addr: u64,
        /// Its bytes.
        bytes: u64,
    },
    /// A graph is being captured, and what was asked for would end that.
    #[error(
        "a CUDA graph is being captured (a private pool is allocated to): memory cannot go back or move, and no stream can be \
        asked or waited for, before that ends"
    )]
    Capturing,
    /// A raw free that names another device than the allocator's.
    #[error("this allocator serves device {expected}, not device {given}")]
    WrongDevice {
        /// The allocator's device ordinal.
        expected: u32,
        /// The one the caller named.
        given: u32,
    },
    /// A copy between a host slice and a buffer of different lengths.
    #[error("copy of {host} elements to or from a buffer of {buffer}: the lengths must be equal")]
    LengthMismatch {
        /// Elements of the host slice.
        host: usize,
        /// Elements of the buffer.
        buffer: usize,
    },
    /// A copy to or from a part of a buffer that does not lie within it.
    #[error("copy of {host} elements at {offset} of a buffer of {buffer}: the part must lie within the buffer")]
    OutOfBounds {
        /// First element of the part.
        offset: usize,
        /// Elements of the host slice.
        host: usize,
        /// Elements of the buffer.
        buffer: usize,
    },
    /// The holes cannot be joined: there are no virtual segments.
    #[error("holes can only be joined in virtual segments: create the allocator with SegmentMode::Virtual")]
    NotVirtual,
    /// The holes cannot be joined: their whole chunks do not add up.
    #[error(
        "joining holes gives at most {}, {} were asked for: free more, or release the cache and allocate as much anew",
        bytes_to_pib(*available), bytes_to_pib(*requested)
    )]
    HolesTooSmall {
        /// Bytes asked for.
        requested: u64,
        /// Bytes that could be made contiguous.
        available: u64,
    },
    /// More streams than the allocator keeps apart: 4,096 in each pool, as many outside of pools, and 60,000 in all pools together, where a
    /// stream counts once for each pool that it was used with.
    #[error(
        "more than {limit} streams were used {}: streams that end are to be retired before (Allocator::retire_stream, \
        gpumem_retire_stream), and count for as long as something is held that was allocated for them",
        where_used(*in_all_pools)
    )]
    TooManyStreams {
        /// The limit that was met.
        limit: usize,
        /// Whether it is that of all pools together, or else that of one pool or of what is outside of pools.
        in_all_pools: bool,
    },
    /// CUDA's handle of the per-thread default streams was named, behind which is another stream in each thread, or there are too many threads that
    /// have [one](crate::Stream::per_thread).
    #[error(
        "the per-thread default stream (handle 2) is another stream in each thread: Stream::per_thread() is that of the calling one, for \
        4,096 threads at a time"
    )]
    PerThreadStream,
    /// The default stream was said to end.
    #[error("the default stream is never destroyed: only streams that the program made can be retired")]
    DefaultStream,
    /// The process forked: CUDA contexts do not survive that, so a child cannot use its parent's memory.
    #[error("this allocator belongs to the parent process: create a new one after fork()")]
    Forked,
    /// A setting that cannot work.
    #[error("{setting}: {reason}")]
    Config {
        /// The setting.
        setting: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A configuration that cannot be read.
    #[error(transparent)]
    Conf(#[from] ConfError),
    /// The device cannot be used.
    #[error("device {ordinal}: {reason}")]
    NoDevice {
        /// The ordinal asked for.
        ordinal: u32,
        /// Why, and what to check.
        reason: String,
    },
    /// The driver failed for another reason than memory.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Where too many streams were used.
fn where_used(in_all_pools: bool) -> &'static str {
    match in_all_pools {
        true => "with all pools of one allocator together, each counted once for each pool",
        false => "with one pool, or with one allocator outside of pools",
    }
}

/// A size beyond the limit: in bytes where it would be written as the limit is.
fn too_large(requested: Option<u64>) -> String {
    match requested {
        None => "2^64 bytes or more".to_owned(),
        Some(bytes) if bytes_to_pib(bytes) == bytes_to_pib(MAX_REQUEST) => format!("{bytes} bytes"),
        Some(bytes) => bytes_to_pib(bytes),
    }
}
