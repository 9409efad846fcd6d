//! All lanes of a heap, found by stream without a lock.

use gpumem_channel::NO_STREAM;
use std::ops::Range;

use super::atomic::{AtomicU8, AtomicU64, Ordering};
use super::lock::{Biased, Inside};
use super::quick::Lists;
use super::wish::Wishing;
use super::{Held, Lane, Lent};
#[cfg(test)]
use crate::heap::Grant;
use crate::size::{MIN_BLOCK, Sizes, half};
use crate::stream::Stream;
use crate::tag::Tag;

/// Lanes of a heap. Further streams go to the heap itself.
pub(crate) const LANES: usize = if cfg!(test) { 2 } else { 8 };
/// No size: that of a request whose thread may not enter the lane.
pub(crate) const NOT_ENTERED: u64 = u64::MAX;
/// Places in the table of streams: a power of two, and most of them empty, so that the first look finds what is there.
pub(super) const PLACES: usize = 64;

/// A lane on cache lines of its own, as processors fetch two at a time; and what can be seen of it without its lock: the small blocks
/// and the large ones that it has set aside.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Apart {
    lane: Biased<Option<Lane>>,
    lists: Box<[Lists; 2]>,
}

impl Apart {
    /// Whether the calling thread may enter the lane.
    #[inline(always)]
    pub(crate) fn is_mine(&self) -> bool {
        self.lane.is_mine()
    }

    #[inline(never)]
    fn free_as_others(&self, at: u32, buffer: bool, stream: impl FnOnce(Stream) -> bool) -> bool {
        match self.lane.lock_as_others() {
            Some(mut lane) => self.free_in(&mut lane, at, buffer, stream),
            None => self.free_in(&mut self.lane.lock(), at, buffer, stream),
        }
    }

    /// Takes a block back, if the lane is of the right stream.
    #[inline(always)]
    fn free_in(&self, lane: &mut Option<Lane>, at: u32, buffer: bool, stream: impl FnOnce(Stream) -> bool) -> bool {
        let Some(lane) = lane.as_mut().filter(|lane| stream(lane.stream)) else {
            return false;
        };
        let freed = lane.free(&self.lists, at);
        lane.buffers -= i64::from(freed && buffer);
        freed
    }
}

/// The lanes in front of a heap.
#[derive(Debug)]
pub(crate) struct Front {
    /// Streams that have a lane, and which. Set under the heap's lock, the stream last.
    pub(super) streams: [AtomicU64; PLACES],
    pub(super) numbers: [AtomicU8; PLACES],
    /// Sizes from the first on are multiples of the second, a power of two.
    coarse: [AtomicU64; 2],
    pub(super) wishing: Wishing,
    /// Lanes that are there: the first ones. Changes under the heap's lock.
    count: AtomicU8,
    lanes: [Apart; LANES],
}

/// Where the search for a stream begins.
#[inline(always)]
pub(super) fn place_of(stream: Stream) -> usize {
    (stream.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PLACES.ilog2())) as usize
}

impl Front {
    pub(crate) fn new() -> Front {
        Front {
            streams: std::array::from_fn(|_| AtomicU64::new(NO_STREAM)),
            numbers: std::array::from_fn(|_| AtomicU8::new(0)),
            coarse: [AtomicU64::new(u64::MAX), AtomicU64::new(MIN_BLOCK)],
            wishing: Wishing::default(),
            count: AtomicU8::new(0),
            lanes: std::array::from_fn(|_| Apart {
                lane: Biased::new(None),
                // A constant, so that it is made where it stays: it is larger than some threads' stacks.
                lists: Box::new(const { [Lists::new(), Lists::new()] }),
            }),
        }
    }

    /// One for a heap without a home.
    #[cfg(test)]
    pub(crate) fn alone() -> &'static Front {
        Box::leak(Box::new(Front::new()))
    }

    /// Has requests rounded as the heap rounds them that these lanes will be in front of.
    pub(crate) fn round_as(&self, sizes: &Sizes) {
        for (part, value) in self.coarse.iter().zip(sizes.coarse()) {
            part.store(value, Ordering::Relaxed);
        }
    }

    /// The size of blocks that are lent for a request of so many bytes. What is too large comes to a size that none has.
    #[inline(always)]
    pub(crate) fn size_of(&self, bytes: u64) -> u64 {
        let size = bytes.wrapping_add(MIN_BLOCK - 1) & !(MIN_BLOCK - 1);
        let [from, unit] = [0, 1].map(|part| self.coarse[part].load(Ordering::Relaxed));
        if size >= from {
            return size.wrapping_add(unit - 1) & !(unit - 1);
        }
        size
    }

    /// The number of a stream's lane.
    #[inline(always)]
    pub(super) fn number_of(&self, stream: Stream) -> Option<u8> {
        let mut place = place_of(stream);
        loop {
            // Its number was stored before.
            match self.streams[place].load(Ordering::Acquire) {
                NO_STREAM => return None,
                found if found == stream.0 => return Some(self.numbers[place].load(Ordering::Relaxed)),
                _ => place = (place + 1) % PLACES,
            }
        }
    }

    /// Where a stream's lane is that has a block set aside for a request that comes to this [size](Front::size_of), and the block's size:
    /// a moment ago.
    #[inline(always)]
    pub(crate) fn look(&self, asked: u64, stream: Stream) -> Option<(&Apart, u64)> {
        let apart = &self.lanes[usize::from(self.number_of(stream)?)];
        let lists = &apart.lists[half(asked)];
        let size = lists.block_size(asked);
        lists.first(size)?;
        Some((apart, size))
    }

    /// A block of so many bytes that is [set aside](Front::look) in a stream's lane. Else the size of one that the lane has and may not hand
    /// out by itself: then it keeps a [wish](super::Wish), which the heap has to be told of; or 0; or [`NOT_ENTERED`].
    #[inline(always)]
    pub(crate) fn allocate_by<'a>(
        &self,
        apart: &'a Apart,
        (bytes, size): (u64, u64),
        stream: Stream,
        (tag, buffer): (Tag, bool),
        enter: impl FnOnce(&'a Biased<Option<Lane>>) -> Option<Inside<'a, Option<Lane>>>,
    ) -> Result<Lent, u64> {
        let mut lane = enter(&apart.lane).ok_or(NOT_ENTERED)?;
        // It may have become another stream's since it was found.
        let lane = lane.as_mut().filter(|lane| lane.stream == stream).ok_or(0u64)?;
        match lane.allocate(&apart.lists[half(size)], bytes, size, tag) {
            Some(lent) => {
                lane.buffers += i64::from(buffer);
                Ok(lent)
            }
            None => Err(size * u64::from(lane.keep((bytes, size), tag, &self.wishing))),
        }
    }

    /// [`allocate_by`](Front::allocate_by), whether the thread may enter or not.
    #[cfg(test)]
    pub(crate) fn allocate(
        &self,
        (bytes, asked): (u64, u64),
        stream: Stream,
        tag: Tag,
        buffer: bool,
    ) -> Result<Lent, u64> {
        let (apart, size) = self.look(asked, stream).ok_or(0u64)?;
        self.allocate_by(apart, (bytes, size), stream, (tag, buffer), |lane| Some(lane.lock()))
    }

    /// [`allocate`](Front::allocate), with all that the heap knows of the block.
    #[cfg(test)]
    pub(crate) fn grant(&self, bytes: u64, stream: Stream, tag: Tag, buffer: bool) -> Option<Grant> {
        let lent = self.allocate((bytes, self.size_of(bytes)), stream, tag, buffer).ok()?;
        self.all_of(lent)
    }

    #[cfg(test)]
    pub(crate) fn all_of(&self, Lent { addr, held }: Lent) -> Option<Grant> {
        Some(Grant {
            block: self.block_of(held)?,
            addr,
            size: self.lent_bytes(held)?,
            held,
        })
    }

    /// Whether the calling thread may enter the lane that a block is lent to.
    #[inline(always)]
    pub(crate) fn may_free_entered(&self, held: Held) -> bool {
        held.lane()
            .is_some_and(|(number, _)| self.lanes[usize::from(number)].is_mine())
    }

    /// Takes a buffer's block back that is lent to a lane. Whether that was enough; `None` for a thread that may not enter it.
    #[inline(always)]
    pub(crate) fn free_by<'a>(
        &'a self,
        held: Held,
        enter: impl FnOnce(&'a Biased<Option<Lane>>) -> Option<Inside<'a, Option<Lane>>>,
    ) -> Option<bool> {
        let Some((number, at)) = held.lane() else {
            return Some(false);
        };
        let apart = &self.lanes[usize::from(number)];
        let mut lane = enter(&apart.lane)?;
        Some(apart.free_in(&mut lane, at, true, |_| true))
    }

    /// Takes a block back that is lent to a lane. Whether that was enough.
    #[inline(always)]
    pub(crate) fn free(&self, held: Held, buffer: bool) -> bool {
        self.free_if(held, buffer, |_| true)
    }

    /// The same of a block that is no buffer, if it is lent to the lane of this stream.
    #[inline(always)]
    pub(crate) fn free_after(&self, held: Held, stream: Stream) -> bool {
        self.free_if(held, false, |its| its == stream)
    }

    #[inline(always)]
    fn free_if(&self, held: Held, buffer: bool, stream: impl FnOnce(Stream) -> bool) -> bool {
        let Some((number, at)) = held.lane() else {
            return false;
        };
        let apart = &self.lanes[usize::from(number)];
        match apart.lane.enter() {
            Some(mut lane) => apart.free_in(&mut lane, at, buffer, stream),
            None => apart.free_as_others(at, buffer, stream),
        }
    }

    /// The bytes of a held block that is lent to a lane.
    pub(crate) fn lent_bytes(&self, held: Held) -> Option<u64> {
        let (number, at) = held.lane()?;
        self.with(number, |lane| Some(lane.record(at)?.size)).flatten()
    }

    /// The block of the heap that a held one is.
    pub(crate) fn block_of(&self, held: Held) -> Option<u32> {
        match held.lane() {
            Some((number, at)) => self
                .with(number, |lane| lane.record(at).map(|record| record.block))
                .flatten(),
            None => held.block(),
        }
    }

    // What follows is done under the heap's lock.

    /// Whether a lane has anything set aside, small or large.
    #[inline(always)]
    pub(crate) fn has_aside(&self, number: u8, half: usize) -> bool {
        !self.lanes[usize::from(number)].lists[half].is_empty()
    }

    /// Has requests for small blocks of a lane get those of their size class, or of just their size again. What is set aside is to
    /// be taken from it then.
    pub(crate) fn set_by_class(&self, number: u8, by_class: bool) {
        let _lane = self.lock(number);
        self.lanes[usize::from(number)].lists[0].set_by_class(by_class);
    }

    /// Whether a lane has a block of this size set aside.
    #[inline(always)]
    pub(crate) fn has(&self, number: u8, size: u64) -> bool {
        self.lanes[usize::from(number)].lists[half(size)].first(size).is_some()
    }

    /// Whether a lane may have a large block of a size in between set aside.
    #[inline(always)]
    pub(crate) fn may_have_between(&self, number: u8, from: u64, to: u64) -> bool {
        self.lanes[usize::from(number)].lists[1].may_have_between(from, to)
            && self.with(number, |lane| lane.look_between(from, to)) == Some(true)
    }

    /// Does something with a lane that is there.
    pub(crate) fn with<R>(&self, number: u8, work: impl FnOnce(&mut Lane) -> R) -> Option<R> {
        self.lock(number).as_mut().map(work)
    }

    /// The same if the calling thread may enter it.
    #[inline(always)]
    pub(crate) fn with_mine<R>(&self, number: u8, work: impl FnOnce(&mut Lane) -> R) -> Option<R> {
        self.lanes[usize::from(number)].lane.enter()?.as_mut().map(work)
    }

    pub(super) fn lock(&self, number: u8) -> Inside<'_, Option<Lane>> {
        self.lanes[usize::from(number)].lane.lock()
    }

    pub(super) fn lists_of(&'static self, number: u8) -> &'static [Lists; 2] {
        &self.lanes[usize::from(number)].lists
    }

    /// Does something with every lane that is there.
    pub(crate) fn each(&self, mut work: impl FnMut(&mut Lane)) {
        for number in self.numbers() {
            self.with(number, &mut work);
        }
    }

    /// Numbers of the lanes that are there.
    pub(crate) fn numbers(&self) -> Range<u8> {
        0..self.count.load(Ordering::Relaxed)
    }

    /// One more is there.
    pub(super) fn came(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends all lanes.
    pub(crate) fn clear(&self) {
        for stream in &self.streams {
            stream.store(NO_STREAM, Ordering::Release);
        }
        self.count.store(0, Ordering::Relaxed);
        for number in 0..LANES as u8 {
            let mut lane = self.lock(number);
            *lane = None;
            self.lanes[usize::from(number)].lists.iter().for_each(Lists::clear);
        }
    }

    /// Buffers handed out by lanes less those given back there.
    pub(crate) fn buffers(&self) -> i64 {
        let mut buffers = 0;
        self.each(|lane| buffers += lane.buffers);
        buffers
    }
}
