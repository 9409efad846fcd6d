//! Memory of pools goes back to the driver: when a pool is gone, when its program says so, when a request that matters more needs it.

use gpumem_channel::SegmentKind;

use super::{Arena, COMMON, MAX_POOLS};
use crate::error::{DeviceError, Error};
use crate::heap::Heap;
use crate::heap::allocate::Request;
use crate::heap::ask::probe;
use crate::heap::release::going::Going;
use crate::heap::turn::access::{Access, give_back, settle};

/// Waits for the device and gives a pool's free segments back. Nothing of a private one.
pub(crate) fn release_pool(on: &mut impl Access, arena: u16) -> Result<u64, Error> {
    if !on.heap(|heap| heap.arenas.may_shrink(arena))? {
        return Ok(0);
    }
    on.heap(|heap| heap.not_capturing())??;
    settle(on)?;
    give_back(on, |heap| heap.spare_of(arena))
}

/// Sets the budget of an arena's pool. What it has beyond that goes back as far as nothing uses it; the rest keeps it from growing.
pub(crate) fn set_pool_budget(on: &mut impl Access, arena: u16, budget: Option<u64>) -> Result<(), Error> {
    if on.heap(|heap| heap.set_pool_budget_only(arena, budget))?? {
        settle(on)?;
        give_back(on, |heap| heap.spare_beyond(arena, heap.arenas.beyond_budget(arena)))?;
    }
    Ok(())
}

/// Looks whether nothing uses any more what is free of these arenas, whose pools are gone, and then gives it back and forgets those of which
/// nothing is left. What the driver does not take stays for the next release.
pub(crate) fn shrink_closing(on: &mut impl Access, arenas: &[u16]) -> Result<u64, Error> {
    probe(on, |heap| heap.lines_with_free(arenas))?;
    match on.heap(|heap| heap.disown_all_of(arenas))? {
        true => give_back(on, Heap::spare_of_closing),
        false => Ok(0),
    }
}

/// Pools that are gone at which one request looks before it takes memory: each may cost it a question to the driver.
const AT_A_TIME: usize = 16;

impl Heap {
    /// The pool of an arena is gone: what is free [is to go back](shrink_closing), now or once whoever calls the driver for long is done, as far
    /// as no queued work uses it, and else when it is looked at again: when [memory is taken](Heap::give_back_gone), when somebody asks what is
    /// done, when pools are too many, when captures end and with every release. What is held follows when it is freed.
    pub(crate) fn close_arena(&mut self, arena: u16) {
        if let Some(arena) = self.arenas.get_mut(arena) {
            arena.closing = true;
        }
        self.look_at_closing(arena);
    }

    /// The same for all such arenas.
    pub(crate) fn look_at_all_closing(&mut self) {
        let closing = self.arenas.iter().filter(|(_, arena)| arena.closing);
        for arena in closing.map(|(number, _)| number).collect::<Vec<_>>() {
            self.look_at_closing(arena);
        }
    }

    /// The same for one, if its pool is gone. What has no memory is forgotten at once: a capture would be waited for in vain, and where one
    /// always goes on, for ever.
    pub(in crate::heap) fn look_at_closing(&mut self, arena: u16) {
        if self.forget_empty_arena(arena) {
            return;
        }
        if self.arenas.get(arena).is_some_and(|arena| arena.closing) && !self.capturing() {
            self.leave_closing(arena);
        }
    }

    /// Whether there is no room for another pool until what is left of others goes back, for which the device is to be waited for.
    pub(crate) fn lacks_room_for_pool(&self) -> bool {
        !self.shares_across_streams && self.arenas.iter().count() >= MAX_POOLS
    }

    /// The same before a pool is made, if there is no room for another one.
    pub(crate) fn make_room_for_pool(&mut self) {
        if self.arenas.iter().count() >= MAX_POOLS {
            self.look_at_all_closing();
        }
    }

    /// What is left of pools that are gone goes back, if nothing uses it any more, before a request takes memory from the driver: for
    /// long that may be the only time that somebody looks.
    pub(in crate::heap) fn give_back_gone(&mut self, request: &Request) -> Result<(), Error> {
        let gone = self.arenas.iter().filter(|(_, arena)| arena.is_gone());
        let mut gone: Vec<u16> = gone.map(|(number, _)| number).collect();
        if gone.is_empty() || self.capturing() {
            return Ok(());
        }
        // Those that the last request did not look at come first.
        let last = self.looked_at_gone;
        gone.sort_unstable_by_key(|number| (*number <= last, *number));
        gone.truncate(AT_A_TIME);
        self.learn_for(request, &self.lines_to_learn_of(&gone))?;
        self.looked_at_gone = gone.last().copied().unwrap_or(last);
        if self.disown_all_of(&gone) {
            let spare = self.spare_of_closing();
            self.give_back_for(request, spare)?;
        }
        Ok(())
    }

    /// Lines of which something is free.
    fn lines_with_free(&self, arenas: &[u16]) -> Vec<u16> {
        let lines = arenas.iter().flat_map(|arena| self.streams.of(*arena));
        let mut lines: Vec<u16> = lines.filter(|line| self.owns_free(*line)).collect();
        // Arenas may be named twice.
        lines.sort_unstable();
        lines.dedup();
        lines
    }

    /// Those of which something is to be known before what is free goes back. Where the device is to be waited for, that is not done for what
    /// cannot go: a part of a segment.
    fn lines_to_learn_of(&self, arenas: &[u16]) -> Vec<u16> {
        let waits_for = |arena: &u16| {
            let mut segments = self.segments.iter().map(|(_, segment)| segment);
            segments.any(|segment| segment.arena == *arena && self.is_free(segment) && !self.is_unused(segment.first))
        };
        if self.shares_across_streams || arenas.iter().any(waits_for) {
            return self.lines_with_free(arenas);
        }
        Vec::new()
    }

    /// Whether one of the arenas has nothing any more that a stream may still use.
    fn disown_all_of(&mut self, arenas: &[u16]) -> bool {
        if self.capturing() {
            return false;
        }
        for line in self.lines_with_free(arenas) {
            self.disown(line);
        }
        let used = |arena: u16| self.streams.of(arena).any(|line| self.owns_free(line));
        arenas.iter().any(|arena| !used(*arena))
    }

    fn spare_of_closing(&mut self) -> Vec<Going> {
        match self.capturing() {
            true => Vec::new(),
            false => self.spare_in(|segment| self.arenas.get(segment.arena).is_some_and(|arena| arena.closing)),
        }
    }

    /// Forgets arenas whose pool is gone and whose memory is, too.
    pub(in crate::heap) fn forget_empty_arenas(&mut self) {
        for arena in self.arenas.numbers() {
            self.forget_empty_arena(arena);
        }
    }

    /// The same for one. Whether it was such.
    fn forget_empty_arena(&mut self, arena: u16) -> bool {
        let empty = |arena: &Arena| arena.is_gone() && arena.figures.segment.current == 0;
        if !self.arenas.get(arena).is_some_and(empty) {
            return false;
        }
        self.arenas.remove(arena);
        self.streams.close(arena, self.frees);
        true
    }

    /// Of which arenas something may go back to the driver, by number: one look at all segments, where there may be a thousand pools.
    fn arenas_with_spare(&self) -> Vec<bool> {
        let mut spares = vec![false; MAX_POOLS + 1];
        // Views and chunks that are mapped nowhere are of no segment.
        spares[usize::from(COMMON)] = true;
        for (_, segment) in self.segments.iter() {
            let plain = segment.kind == SegmentKind::Plain;
            spares[usize::from(segment.arena)] |= !plain || self.is_free(segment) && self.is_unused(segment.first);
        }
        spares
    }

    /// Gives something back that is less important than the pool which a request was sent to, though it may overflow: what others cached, the
    /// least important first; then what is cached where it looks for memory and is too large to be split; at last all of that, and what the
    /// pool cached that it overflows from. Whether the device got memory. To be called after the device was waited for.
    pub(in crate::heap) fn free_up(&mut self, request: &Request, sent_to: u16) -> Result<bool, DeviceError> {
        let (_, least) = self.sizes.growth(request.class, request.size);
        // Else that is not what is missing.
        if self.pool_left(request.arena) >= least {
            let spares = self.arenas_with_spare();
            let mut victims = self.arenas.victims(sent_to);
            victims.retain(|victim| spares[usize::from(*victim)]);
            for victim in victims {
                if self.give_back_for(request, self.spare_of(victim))? {
                    return Ok(true);
                }
            }
        }
        if self.give_back_for(request, self.spare_oversize(request))? || self.give_up_own(request, request.arena)? {
            return Ok(true);
        }
        Ok(sent_to != request.arena && self.give_up_own(request, sent_to)?)
    }

    fn give_up_own(&mut self, request: &Request, arena: u16) -> Result<bool, DeviceError> {
        match self.arenas.may_shrink(arena) {
            true => self.give_back_for(request, self.spare_of(arena)),
            false => Ok(false),
        }
    }
}
