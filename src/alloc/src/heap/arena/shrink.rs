//! Memory of pools goes back to the driver: when a pool is gone, when its program says so, when a request that matters more needs it.

use super::super::allocate::Request;
use super::super::{Grant, Heap};
use super::{Arena, COMMON};
use crate::error::{DeviceError, Error};

impl Heap {
    /// The pool of an arena is gone: what is free goes back, now as far as no queued work uses it, and else with the next release; what
    /// is held follows when it is freed.
    pub(crate) fn close_arena(&mut self, arena: u16) {
        if let Some(arena) = self.arenas.get_mut(arena) {
            arena.closing = true;
        }
        self.shrink_closing(arena);
    }

    /// The same for all such arenas.
    pub(in crate::heap) fn shrink_all_closing(&mut self) {
        let closing: Vec<u16> = self
            .arenas
            .iter()
            .filter(|(_, arena)| arena.closing)
            .map(|(n, _)| n)
            .collect();
        for arena in closing {
            self.shrink_closing(arena);
        }
    }

    /// Gives back what is left of an arena whose pool is gone, unless something uses it, and forgets the arena when it is empty.
    pub(in crate::heap) fn shrink_closing(&mut self, arena: u16) {
        if !self.arenas.get(arena).is_some_and(Arena::is_gone) || self.capturing() {
            return;
        }
        for stream in self.streams.of(arena).collect::<Vec<_>>() {
            if self.owns_free(stream) {
                self.probe(stream);
                self.disown(stream);
            }
        }
        let quiet = self.streams.of(arena).all(|stream| !self.owns_free(stream));
        if quiet {
            // What the driver does not take stays for the next release.
            let _ = self.release_arena(arena);
        }
    }

    /// Gives the free segments of one arena back, after the device was waited for.
    pub(in crate::heap) fn release_arena(&mut self, arena: u16) -> Result<u64, DeviceError> {
        let before = self.ledger.reserved();
        let slots: Vec<u32> = self
            .segments
            .iter()
            .filter(|(_, s)| s.arena == arena)
            .map(|(slot, _)| slot)
            .collect();
        let mut outcome = Ok(());
        for slot in slots {
            outcome = outcome.and(self.release_plain(slot));
        }
        let freed = before - self.ledger.reserved();
        if freed > 0 {
            self.tell_release(freed);
            self.tell_figures();
        }
        self.forget_empty_arenas();
        outcome.map(|()| freed)
    }

    /// Forgets arenas whose pool is gone and whose memory is, too.
    pub(in crate::heap) fn forget_empty_arenas(&mut self) {
        for at in 0..self.arenas.0.len() {
            let gone = |arena: &Arena| arena.is_gone() && arena.figures.segment.current == 0;
            if self.arenas.0[at].as_ref().is_some_and(gone) {
                self.arenas.0[at] = None;
                self.close_lines(at as u16 + 1);
            }
        }
    }

    fn close_lines(&mut self, arena: u16) {
        for line in self.streams.close(arena, self.frees) {
            self.driver.retire(line);
        }
    }

    /// Waits for the device and gives a pool's free segments back. Nothing of a private one.
    pub(crate) fn release_pool(&mut self, arena: u16) -> Result<u64, Error> {
        if !self.arenas.may_shrink(arena) {
            return Ok(0);
        }
        self.not_capturing()?;
        self.settle(None)?;
        Ok(self.release_arena(arena)?)
    }

    /// Gives back what others cached, the least important first, until the request fits. `None`: that was not enough, or is not what
    /// is missing.
    pub(in crate::heap) fn obtain_at_others_expense(&mut self, request: &Request) -> Result<Option<Grant>, Error> {
        let (_, least) = self.sizes.growth(request.class, request.size);
        for victim in self.arenas.victims(request.arena) {
            if self.pool_left(request.arena) < least {
                return Ok(None);
            }
            let freed = match victim {
                // What cannot be given back stays in the cache; whether the rest makes enough room shows at once.
                COMMON => self.release_common().unwrap_or(0),
                pool => self.release_arena(pool).unwrap_or(0),
            };
            if freed > 0
                && let Some(grant) = self.obtain(request)?
            {
                return Ok(Some(grant));
            }
        }
        Ok(None)
    }
}
