//! How many bytes a request becomes, and how many are taken from the driver for it.
//!
//! The constants of plain and virtual segments are PyTorch's (`c10/cuda/CUDACachingAllocator.h`), so that figures can be compared; those of
//! stitched memory and of size classes are ours.

mod stitched;

use gpumem_channel::PoolId;

pub(crate) use stitched::FREELY;

use crate::config::{Config, SegmentMode};
use crate::error::Error;
use crate::rounding::Divisions;

pub(crate) const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Every block is a multiple of this.
pub(crate) const MIN_BLOCK: u64 = 512;
/// Largest request of the small pool.
pub(crate) const SMALL_MAX: u64 = MIB;
/// Segment of the small pool.
pub(crate) const SMALL_SEGMENT: u64 = 2 * MIB;
/// Requests below this share segments of [`MID_SEGMENT`].
pub(crate) const MID_MAX: u64 = 10 * MIB;
/// Segment shared by requests from 1 to 10 MiB.
pub(crate) const MID_SEGMENT: u64 = 20 * MIB;
/// Larger segments are multiples of this; also the granularity of physical memory on current cards.
pub(crate) const LARGE_ROUND: u64 = 2 * MIB;
/// Where memory is stitched: the part of what a program ever held that may be reserved beyond that before a request is stitched.
pub(crate) const SLACK: u64 = 70;
/// The same before memory for small blocks goes back for it, though this takes longer.
pub(crate) const TOO_MUCH: u64 = 28;
/// The part of what a program ever held that small requests have memory of their own for in any case.
pub(crate) const FINE: u64 = 100;
/// And the part of what is reserved that is taken at a time, within that.
pub(crate) const STEP: u64 = 25;
/// The part of what a program ever held that it may take more so that one chunk less has to be mapped.
pub(crate) const MAPPING: u64 = 8000;
/// Classes of small sizes to each power of two.
const CLASSES_TO_POWER: u64 = 8;
/// Largest request that is tried at all: half of a 48-bit address space. Anything above is a computation gone wrong.
pub(crate) const MAX_REQUEST: u64 = 1 << 47;
/// Largest physical chunk that is created by default. A map costs the same whatever its size, but only whole chunks
/// can be moved or given back.
pub(crate) const MAX_CHUNK: u64 = 64 * MIB;

/// Which blocks may share a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Class {
    /// Up to 1 MiB.
    Small = 0,
    /// Over 1 MiB, in segments taken by one plain allocation.
    Large = 1,
    /// In virtual segments: from 2 MiB and aligned to chunk borders, or over 1 MiB where memory is stitched.
    Chunked = 2,
    /// Up to 1 MiB, in a virtual segment of its own.
    Fine = 3,
}

/// The pool that counts a block of `size` bytes while it is held.
#[inline]
pub(crate) fn pool_of(size: u64) -> PoolId {
    if size <= SMALL_MAX {
        PoolId::SMALL
    } else {
        PoolId::LARGE
    }
}

/// Number of classes.
pub(crate) const CLASSES: usize = 4;

impl Class {
    #[inline(always)]
    pub(crate) fn pool(self) -> PoolId {
        match self {
            Class::Small | Class::Fine => PoolId::SMALL,
            Class::Large | Class::Chunked => PoolId::LARGE,
        }
    }

    /// Whether a block of it is pinned in its segment by neighbours. In a virtual segment none is: its chunks can be given back from
    /// anywhere.
    #[inline(always)]
    pub(crate) fn pins(self) -> bool {
        matches!(self, Class::Small | Class::Large)
    }
}

/// The sizes of one device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) mode: SegmentMode,
    /// Unit of virtual segments: a power of two, at least [`LARGE_ROUND`].
    pub(crate) granularity: u64,
    pub(crate) max_chunk: u64,
    /// Larger plain blocks are not split, and do not serve requests below this: `u64::MAX` for none.
    max_split: u64,
    /// What such a block may be larger than its request.
    max_rounding: u64,
    /// Large requests up to this go to low addresses: 0 where none do.
    low_max: u64,
    /// Requests above this go the long way: all of them where sizes are rounded to more than 512 B.
    quick_max: u64,
    /// What is less than that is left with the block whose rest it is: by class.
    least_rest: [u64; CLASSES],
    divisions: Divisions,
}

impl Sizes {
    /// What a configuration that was [checked](Config::check) makes of a device's `granularity`.
    pub(crate) fn new(config: &Config, granularity: u64) -> Sizes {
        Sizes {
            mode: config.segments,
            granularity,
            max_chunk: config.max_chunk,
            // A segment is rounded up to this, and one for a request below the limit must not be above it.
            max_split: config.max_split_size.map_or(u64::MAX, |limit| {
                limit.checked_next_multiple_of(LARGE_ROUND).unwrap_or(u64::MAX)
            }),
            max_rounding: config.max_non_split_rounding,
            low_max: match (config.segments, config.max_split_size) {
                (SegmentMode::Stitched, None) => stitched::LOW * granularity,
                _ => 0,
            },
            quick_max: if config.roundup_power2_divisions.is_on() {
                0
            } else {
                MAX_REQUEST
            },
            least_rest: [Class::Small, Class::Large, Class::Chunked, Class::Fine].map(|class| match class {
                Class::Small | Class::Fine => MIN_BLOCK,
                Class::Large => SMALL_MAX + 1,
                Class::Chunked if config.segments == SegmentMode::Virtual => granularity,
                Class::Chunked => MIN_BLOCK,
            }),
            divisions: config.roundup_power2_divisions,
        }
    }

    /// The block size and class of a request of at least one byte.
    #[inline]
    pub(crate) fn round(&self, requested: u64) -> Result<(u64, Class), Error> {
        if requested > MAX_REQUEST {
            return Err(Error::TooLarge {
                requested: Some(requested),
            });
        }
        let size = match self.quick_max {
            0 => self.divisions.round(requested),
            _ => requested.next_multiple_of(MIN_BLOCK),
        };
        if size <= SMALL_MAX {
            return Ok((size, self.small()));
        }
        if self.mode == SegmentMode::Stitched {
            return Ok((size, Class::Chunked));
        }
        if self.mode == SegmentMode::Virtual && size >= self.granularity {
            return Ok((size.next_multiple_of(self.granularity), Class::Chunked));
        }
        Ok((size, Class::Large))
    }

    /// The same where memory is plain, whatever the mode is.
    pub(crate) fn round_plain(&self, requested: u64) -> Result<(u64, Class), Error> {
        let mode = SegmentMode::Plain;
        Sizes { mode, ..*self }.round(requested)
    }

    /// The same without a word about what is wrong, or why it takes longer. 0 bytes are no block's.
    #[inline(always)]
    pub(crate) fn round_quick(&self, requested: u64) -> Option<(u64, Class)> {
        let size = self.quick_size(requested)?;
        // Small ones and others come in any order: no branch.
        let of = |small, large| if size <= SMALL_MAX { small } else { large };
        Some(match self.mode {
            SegmentMode::Stitched => (size, of(Class::Fine, Class::Chunked)),
            SegmentMode::Virtual if size >= self.granularity => (
                (size + (self.granularity - 1)) & !(self.granularity - 1),
                Class::Chunked,
            ),
            _ => (size, of(Class::Small, Class::Large)),
        })
    }

    /// The same where memory is plain, whatever the mode is.
    #[inline(always)]
    pub(crate) fn round_plain_quick(&self, requested: u64) -> Option<(u64, Class)> {
        let size = self.quick_size(requested)?;
        let class = if size <= SMALL_MAX { Class::Small } else { Class::Large };
        Some((size, class))
    }

    #[inline(always)]
    fn quick_size(&self, requested: u64) -> Option<u64> {
        // Of 0 bytes nothing is left but the largest number there is: one comparison is of both.
        if requested.wrapping_sub(1) >= self.quick_max {
            return None;
        }
        Some((requested + (MIN_BLOCK - 1)) & !(MIN_BLOCK - 1))
    }

    /// The number of the granule that an offset in a virtual segment lies in.
    #[inline(always)]
    pub(crate) fn granule(&self, offset: u64) -> usize {
        // A power of two: no division.
        (offset >> self.granularity.trailing_zeros()) as usize
    }

    /// The size from which on blocks are multiples of the second, whatever was asked for.
    pub(crate) fn coarse(&self) -> [u64; 2] {
        match self.mode {
            SegmentMode::Virtual => [self.granularity, self.granularity],
            _ => [u64::MAX, MIN_BLOCK],
        }
    }

    /// The class of small requests.
    #[inline(always)]
    fn small(&self) -> Class {
        match self.mode {
            SegmentMode::Stitched => Class::Fine,
            _ => Class::Small,
        }
    }

    /// Whether a request for `size` bytes may take a free block that is at least as large.
    #[inline(always)]
    pub(crate) fn takes(&self, size: u64, block: u64) -> bool {
        block <= self.max_split || self.takes_large(size, block)
    }

    #[cold]
    fn takes_large(&self, size: u64, block: u64) -> bool {
        size > self.max_split && block - size < self.max_rounding
    }

    /// Whether what is left of a free block after a request for `size` bytes is worth a block of its own.
    #[inline(always)]
    pub(crate) fn splits(&self, class: Class, size: u64, rest: u64) -> bool {
        rest >= self.least_rest[class as usize] && (class != Class::Large || size <= self.max_split)
    }

    /// Bytes to take from the driver for a block of `size`: the amount that serves later requests too, then the least
    /// that serves this one.
    pub(crate) fn growth(&self, class: Class, size: u64) -> (u64, u64) {
        match class {
            Class::Small => (SMALL_SEGMENT, SMALL_SEGMENT),
            Class::Large if size < MID_MAX => (MID_SEGMENT, size.next_multiple_of(LARGE_ROUND)),
            Class::Large => (size.next_multiple_of(LARGE_ROUND), size.next_multiple_of(LARGE_ROUND)),
            Class::Chunked if self.mode != SegmentMode::Stitched && size < MID_MAX => {
                (MID_SEGMENT.next_multiple_of(self.granularity), size)
            }
            Class::Chunked | Class::Fine => (size, size),
        }
    }

    /// The chunk size for `bytes` of new physical memory: about an eighth of it, a power of two between the granularity and the
    /// largest chunk, so that a hole of that size consists of whole chunks but for its edges.
    pub(crate) fn chunk(&self, bytes: u64) -> u64 {
        self.clamp_chunk(power(bytes / 8))
    }

    fn clamp_chunk(&self, bytes: u64) -> u64 {
        bytes.clamp(self.granularity, self.max_chunk.max(self.granularity))
    }

    /// Splits `bytes` (a multiple of the granularity) into chunks of at most `chunk` bytes, largest first.
    pub(crate) fn chunks(&self, bytes: u64, mut chunk: u64) -> impl Iterator<Item = u64> {
        let mut left = bytes;
        let granularity = self.granularity;
        std::iter::from_fn(move || {
            while chunk > left && chunk > granularity {
                chunk /= 2;
            }
            (left >= granularity).then(|| {
                left -= chunk;
                chunk
            })
        })
    }
}

/// The largest power of two that is no larger, 1 for 0.
fn power(bytes: u64) -> u64 {
    1 << (63 - bytes.max(1).leading_zeros())
}

/// The size class of a small block's size: up to an eighth larger. That of none is none.
#[inline(always)]
pub(crate) fn class_size(size: u64) -> u64 {
    // Of the power of two that it lies above.
    let power = 1 << (63 - size.wrapping_sub(1).leading_zeros());
    let unit = (power / CLASSES_TO_POWER).max(MIN_BLOCK);
    (size + (unit - 1)) & !(unit - 1)
}

/// Bytes of `len` values of `T`.
pub(crate) fn bytes_of<T>(len: usize) -> Result<u64, Error> {
    let Some(bytes) = len.checked_mul(std::mem::size_of::<T>()) else {
        return Err(Error::TooLarge { requested: None });
    };
    Ok(bytes as u64)
}

/// Which of two of anything, one for small blocks and one for large ones, is that of a size.
#[inline(always)]
pub(crate) fn half(size: u64) -> usize {
    usize::from(size > SMALL_MAX)
}

#[cfg(test)]
#[path = "size_tests.rs"]
mod tests;
