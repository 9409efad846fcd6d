//! The sizes of stitched memory.

use super::{Class, Sizes, power};

/// New memory of up to so many units is one chunk.
const WHOLE: u64 = 3;
/// Chunks are of so many units at least, unless they have to be finer: a program takes its first memory when it is
/// small, and most grow.
const LEAST: u64 = 2;
/// Requests of up to so many units go to low addresses. They are hardly ever stitched themselves, and what lies
/// between them serves no larger request: so they lie close together, out of the way of those.
pub(super) const LOW: u64 = 4;
/// As fine as a request allows: where mapping costs a program little, whatever it has.
pub(crate) const FREELY: u64 = 1 << 32;
/// A chunk that is small enough in any case.
const NEAR_LIMIT: u64 = 4 << 20;

impl Sizes {
    /// Whether a request goes to a low address rather than where it fits best.
    #[inline(always)]
    pub(crate) fn goes_low(&self, class: Class, size: u64) -> bool {
        (class == Class::Chunked) & (size <= self.low_max)
    }

    /// [`chunk`](Sizes::chunk) where `reserved` is usually taken. Every chunk costs the same to map, whatever its size: so no less than
    /// 1/32 of all, and that no less than [`LEAST`] units, divided by `fineness`; and no request up to 1.5 GiB is of more than two dozens of
    /// them, or twice that where they are finer, or four times where they may be as fine as that (then chunks are as large as they get).
    pub(crate) fn stitched_chunk(&self, bytes: u64, reserved: u64, fineness: u64) -> u64 {
        let finer = match fineness {
            ..=1 => 1,
            2..FREELY => 2,
            _ => 4,
        };
        let of_request = power(bytes / 12) / finer;
        let of_all = power(reserved / 32).max(LEAST * self.granularity) / fineness;
        self.clamp_chunk(of_request.max(of_all))
    }

    /// The largest chunk of memory that a request takes where much is taken already: half of it at most, so that what is left of it
    /// when it is given back has whole chunks, even between others that are held.
    pub(crate) fn chunk_near_limit(&self, size: u64) -> u64 {
        self.clamp_chunk(power(size / 2).max(NEAR_LIMIT))
    }

    /// Splits `bytes` (a multiple of the granularity) into chunks of about `chunk` bytes: one that is up to half as large again costs
    /// less than two.
    pub(crate) fn stitched_chunks(&self, bytes: u64, chunk: u64) -> impl Iterator<Item = u64> {
        let granules = bytes / self.granularity;
        let most = (self.max_chunk / self.granularity).max(1);
        let chunk = if granules <= WHOLE { chunk.max(bytes) } else { chunk };
        let count = ((bytes + chunk / 2) / chunk).max(granules.div_ceil(most)).min(granules);
        let ends = move |i: u64| granules * i / count * self.granularity;
        (0..count).map(move |i| ends(i + 1) - ends(i)).filter(|size| *size > 0)
    }
}
