//! Arenas: the memory of a pool, apart from everybody else's. The first one is the common one.
//!
//! A segment belongs to one arena, and so do its blocks; free blocks are in lines of their arena only, and a request looks at lines of
//! its arena only. So nothing else has to be done for a pool's memory never to serve anybody else. Pools live in plain segments, which
//! are never remapped, whatever the others live in.
//!
//! A *private* arena is for CUDA graphs, which go on using addresses of freed blocks: while its pool lives nothing of it goes back to
//! the driver. What is left of an arena whose pool is gone goes back as soon as nothing uses it.

use super::allocate::Request;
use super::{Grant, Heap};
use crate::error::{DeviceError, Error};
use crate::pool::{Overflow, PoolConfig, PoolFigures};

/// The common arena.
pub(crate) const COMMON: u16 = 0;
/// Pools at the same time.
const MAX_POOLS: usize = 1024;

/// The memory of a pool.
#[derive(Debug)]
pub(super) struct Arena {
    pub(super) name: String,
    pub(super) config: PoolConfig,
    pub(super) private: bool,
    /// Its pool is gone.
    closing: bool,
    /// Blocks that were handed out and that something uses yet: the program, or queued work.
    pub(super) live: u64,
    pub(super) figures: PoolFigures,
}

/// All arenas but the common one, which has nothing to remember. The arena of number `n` is at `n - 1`.
#[derive(Debug, Default)]
pub(super) struct Arenas(Vec<Option<Arena>>);

impl Arenas {
    /// The arena of a number; `None` for the common one.
    pub(super) fn get(&self, arena: u16) -> Option<&Arena> {
        self.0.get(usize::from(arena).checked_sub(1)?)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, arena: u16) -> Option<&mut Arena> {
        self.0.get_mut(usize::from(arena).checked_sub(1)?)?.as_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, &Arena)> {
        let all = (COMMON + 1..).zip(&self.0);
        all.filter_map(|(number, arena)| Some((number, arena.as_ref()?)))
    }

    /// Whether free memory of an arena may go back to the driver.
    pub(super) fn may_shrink(&self, arena: u16) -> bool {
        self.get(arena).is_none_or(|arena| !arena.private || arena.closing)
    }

    fn priority(&self, arena: u16) -> i32 {
        self.get(arena).map_or(0, |arena| arena.config.priority)
    }

    /// Whose cache goes back so that a request of an arena may have memory, in this order: what is left of pools that are gone, then pools
    /// of lower priority. What is private takes from the common cache, too.
    fn victims(&self, of: u16) -> Vec<u16> {
        let mine = self.priority(of);
        let private = self.get(of).is_some_and(|arena| arena.private);
        let pools = self
            .iter()
            .map(|(number, arena)| (number, arena.config.priority, arena.closing));
        let mut victims: Vec<(bool, i32, u16)> = std::iter::once((COMMON, 0, false))
            .chain(pools)
            .filter(|(number, priority, closing)| {
                let lower = *priority < mine || (private && *number == COMMON);
                *number != of && self.may_shrink(*number) && (*closing || lower)
            })
            .map(|(number, priority, closing)| (!closing, priority, number))
            .collect();
        victims.sort_unstable();
        victims.into_iter().map(|(.., number)| number).collect()
    }
}

impl Arena {
    /// Whether its pool is gone and nothing of it is used.
    pub(super) fn is_gone(&self) -> bool {
        self.closing && self.live == 0
    }

    fn left(&self) -> u64 {
        let reserved = self.figures.reserved_bytes.current;
        self.config
            .budget
            .map_or(u64::MAX, |budget| budget.saturating_sub(reserved))
    }
}

impl Heap {
    /// Makes an arena for a pool.
    pub(crate) fn add_arena(&mut self, name: &str, config: PoolConfig, private: bool) -> Result<u16, Error> {
        let fail = |reason: String| {
            Err(Error::Config {
                setting: "pool",
                reason,
            })
        };
        if config.budget == Some(0) {
            return fail(format!(
                "{name}: 0 bytes leave no room for anything; use None for no budget"
            ));
        }
        if self
            .arenas
            .iter()
            .any(|(_, arena)| !arena.closing && arena.name == name)
        {
            return fail(format!("there is a pool named {name} already"));
        }
        let vacant = self.arenas.0.iter().position(Option::is_none);
        let at = vacant.unwrap_or(self.arenas.0.len());
        if at >= MAX_POOLS {
            return fail(format!("{name}: there are {MAX_POOLS} pools already"));
        }
        if vacant.is_none() {
            self.arenas.0.push(None);
        }
        let number = at as u16 + 1;
        self.streams.open(number)?;
        self.arenas.0[at] = Some(Arena {
            name: name.to_owned(),
            config,
            private,
            closing: false,
            live: 0,
            figures: PoolFigures::default(),
        });
        Ok(number)
    }

    /// The pool of an arena is gone: what is free goes back, now as far as no queued work uses it, and else with the next release; what
    /// is held follows when it is freed.
    pub(crate) fn close_arena(&mut self, arena: u16) {
        if let Some(arena) = self.arenas.get_mut(arena) {
            arena.closing = true;
        }
        self.shrink_closing(arena);
    }

    /// The same for all such arenas.
    pub(super) fn shrink_all_closing(&mut self) {
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
    pub(super) fn shrink_closing(&mut self, arena: u16) {
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
    pub(super) fn release_arena(&mut self, arena: u16) -> Result<u64, DeviceError> {
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
    pub(super) fn forget_empty_arenas(&mut self) {
        for at in 0..self.arenas.0.len() {
            let gone = |arena: &Arena| arena.is_gone() && arena.figures.segment.current == 0;
            if self.arenas.0[at].as_ref().is_some_and(gone) {
                self.arenas.0[at] = None;
                self.close_lines(at as u16 + 1);
            }
        }
    }

    fn close_lines(&mut self, arena: u16) {
        for line in self.streams.close(arena) {
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

    pub(crate) fn pool_figures(&self, arena: u16) -> PoolFigures {
        self.arenas
            .get(arena)
            .map_or_else(PoolFigures::default, |arena| arena.figures)
    }

    /// Bytes that a request's pool may still take; all there are outside of pools.
    pub(super) fn pool_left(&self, arena: u16) -> u64 {
        self.arenas.get(arena).map_or(u64::MAX, Arena::left)
    }

    /// Gives back what others cached, the least important first, until the request fits. `None`: that was not enough, or is not what
    /// is missing.
    pub(super) fn obtain_at_others_expense(&mut self, request: &Request) -> Result<Option<Grant>, Error> {
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

    /// Whether requests of a pool that it has no room for may have of everybody's memory.
    pub(super) fn overflows(&self, arena: u16) -> bool {
        self.arenas
            .get(arena)
            .is_some_and(|arena| arena.config.overflow == Overflow::Shared)
    }
}
