//! Requests that a lane has a block for and no leave to count it.
//!
//! Peaks are exact, so a block that would pass one takes the heap, which takes leave from where it is not used or raises the peak. Threads
//! that each hold a block for nanoseconds would take it from each other for ever: hardly ever are all of their blocks seen held at the same
//! time. So a request says what it wants before it waits for the heap, and who has that serves all who wait: what they get is held at the same
//! time, and the peak rises to that at once.

use std::ops::Range;

use gpumem_channel::StringId;

use super::atomic::{AtomicBool, Ordering};
use super::front::{Front, LANES};
use super::{Lane, Lent};
use crate::size::half;
use crate::stream::Stream;
use crate::tag::Tag;

/// A request that a lane refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) requested: u64,
    pub(crate) size: u64,
    pub(crate) stream: Stream,
    pub(crate) tag: Tag,
}

/// The one wish that a lane can keep, and what came of it. Who has it takes it away again.
#[derive(Debug, Default)]
pub(super) enum Kept {
    #[default]
    Nothing,
    Wish(Wish),
    Served(Wish, Lent),
}

/// Lanes that keep a wish, and perhaps some that did.
#[derive(Debug, Default)]
pub(super) struct Wishing([AtomicBool; LANES]);

impl Wishing {
    fn add(&self, lane: u8) {
        self.0[usize::from(lane)].store(true, Ordering::Relaxed);
    }

    /// Takes one of so many lanes out. What it keeps is to be looked at then.
    #[inline(always)]
    fn take(&self, lanes: Range<u8>) -> Option<u8> {
        let wishing = |lane: &u8| self.0[usize::from(*lane)].load(Ordering::Relaxed);
        let mut lanes = lanes;
        let lane = lanes.find(wishing)?;
        // A wish that is said meanwhile is seen by that look: its lane's lock is in between.
        self.0[usize::from(lane)].store(false, Ordering::Relaxed);
        Some(lane)
    }
}

impl Lane {
    /// Keeps the wish for a block that is there and was refused, if it keeps none. Whether it does.
    #[cold]
    #[inline(never)]
    pub(super) fn keep(&mut self, (requested, size): (u64, u64), tag: Tag, wishing: &Wishing) -> bool {
        let keeps = self.has(size) && matches!(self.kept, Kept::Nothing);
        if keeps {
            let stream = self.stream;
            self.kept = Kept::Wish(Wish {
                requested,
                size,
                stream,
                tag,
            });
            wishing.add(self.number);
        }
        keeps
    }

    fn has(&self, size: u64) -> bool {
        self.lists[half(size)].first(size).is_some()
    }

    /// What is wished for here and can be had: the block may have gone meanwhile, or the lane to another stream.
    pub(crate) fn wish(&self) -> Option<Wish> {
        match self.kept {
            Kept::Wish(wish) if wish.stream == self.stream && self.has(wish.size) => Some(wish),
            _ => None,
        }
    }

    /// Hands out the block that is wished for.
    pub(crate) fn serve(&mut self, wish: Wish, string: StringId) {
        self.learn(wish.tag, string);
        let lent = self.allocate(&self.lists[half(wish.size)], wish.requested, wish.size, wish.tag);
        if let Some(lent) = lent {
            self.kept = Kept::Served(wish, lent);
        }
    }

    /// What came of a wish, for who had it: nothing, and the wish is taken away, or a block.
    pub(crate) fn take_wished(&mut self, wish: &Wish, buffer: bool) -> Option<Option<Lent>> {
        let lent = match self.kept {
            Kept::Wish(its) if its == *wish => None,
            Kept::Served(its, lent) if its == *wish => Some(lent),
            _ => return None,
        };
        self.kept = Kept::Nothing;
        self.buffers += i64::from(buffer && lent.is_some());
        Some(lent)
    }
}

impl Front {
    /// A lane that may keep a wish, each time another one, as long as there are any.
    pub(crate) fn next_wishing(&self) -> Option<u8> {
        self.wishing.take(self.numbers())
    }

    /// What came of a wish that is not waited for any more.
    pub(crate) fn take_wished(&self, wish: &Wish, buffer: bool) -> Option<Lent> {
        let take = |lane| self.with(lane, |lane| lane.take_wished(wish, buffer)).flatten();
        let taken = self.number_of(wish.stream).and_then(take);
        // Its lane may have become another stream's, and keep what came of it all the same.
        taken.or_else(|| self.numbers().find_map(take))?
    }

    /// Whether something came of a wish that is waited for.
    #[cfg(test)]
    pub(crate) fn is_served(&self, wish: &Wish) -> bool {
        let served = |lane: &mut Lane| matches!(&lane.kept, Kept::Served(its, _) if its == wish);
        self.numbers().any(|lane| self.with(lane, served) == Some(true))
    }
}
