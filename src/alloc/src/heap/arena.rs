//! Arenas: the memory of a pool, apart from everybody else's. The first one is the common one.
//!
//! A segment belongs to one arena, and so do its blocks; free blocks are in lines of their arena only, and a request looks at lines of
//! its arena only. So nothing else has to be done for a pool's memory never to serve anybody else. Pools live in plain segments, which
//! are never remapped, whatever the others live in.
//!
//! A *private* arena is for CUDA graphs, which go on using addresses of freed blocks: while its pool lives nothing of it goes back to
//! the driver. What is left of an arena whose pool is gone goes back when it is found that nothing uses it any more.

use gpumem_channel::StringId;
use gpumem_text::clean;

mod fragments;
mod places;
mod shrink;

pub(crate) use shrink::{release_pool, set_pool_budget, shrink_closing};

use super::Heap;
use crate::error::Error;
use crate::pool::{MempoolId, Overflow, PoolConfig, PoolFigures};

/// The common arena.
pub(crate) const COMMON: u16 = 0;
/// Pools at the same time.
pub(super) const MAX_POOLS: usize = 1024;

/// A pool that is to have an arena.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NewPool<'a> {
    /// A tenant's, by its name.
    Named(&'a str),
    /// A CUDA graph's, by its id if that is somebody else's to choose.
    Private(Option<MempoolId>),
}

/// The memory of a pool.
#[derive(Debug)]
pub(super) struct Arena {
    pub(super) name: String,
    /// The channel's string of its name; of none without a channel.
    label: StringId,
    pub(super) id: MempoolId,
    pub(super) config: PoolConfig,
    pub(super) private: bool,
    /// Nobody holds its pool any more, and its name and id may be another's: requests that were sent there may be under way.
    given_up: bool,
    /// Its pool is gone.
    closing: bool,
    pub(super) figures: PoolFigures,
}

/// All arenas but the common one, which has nothing to remember. The arena of number `n` is at `n - 1`.
#[derive(Debug, Default)]
pub(super) struct Arenas(Vec<Option<Arena>>);

impl Arenas {
    /// The arena of a number; `None` for the common one.
    #[inline]
    pub(super) fn get(&self, arena: u16) -> Option<&Arena> {
        self.0.get(usize::from(arena).checked_sub(1)?)?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, arena: u16) -> Option<&mut Arena> {
        self.0.get_mut(usize::from(arena).checked_sub(1)?)?.as_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, &Arena)> {
        let all = (COMMON + 1..).zip(&self.0);
        all.filter_map(|(number, arena)| Some((number, arena.as_ref()?)))
    }

    /// Peaks of all pools are what there is now.
    pub(super) fn reset_peaks(&mut self) {
        for arena in self.0.iter_mut().flatten() {
            for stat in arena.figures.stats_mut() {
                stat.peak = stat.current;
            }
        }
    }

    /// Every number that an arena has or had.
    fn numbers(&self) -> std::ops::RangeInclusive<u16> {
        COMMON + 1..=self.0.len() as u16
    }

    fn remove(&mut self, arena: u16) {
        self.0[usize::from(arena) - 1] = None;
    }

    /// Those whose pool somebody holds.
    fn open(&self) -> impl Iterator<Item = &Arena> {
        self.iter().map(|(_, arena)| arena).filter(|arena| !arena.given_up)
    }

    fn has(&self, id: MempoolId) -> bool {
        self.open().any(|arena| arena.id == id)
    }

    /// An id that no pool has: of the first number from this one on that is free.
    fn vacant(&self, from: u16, id: fn(u64) -> MempoolId) -> MempoolId {
        let mut number = u64::from(from);
        while self.has(id(number)) {
            number += 1;
        }
        id(number)
    }

    /// The channel's string of the name of an arena's pool; empty for the common one.
    pub(super) fn label(&self, arena: u16) -> StringId {
        self.get(arena).map_or(StringId(0), |arena| arena.label)
    }

    /// Whether free memory of an arena may go back to the driver.
    pub(super) fn may_shrink(&self, arena: u16) -> bool {
        self.get(arena).is_none_or(|arena| !arena.private || arena.closing)
    }

    /// Bytes that an arena has beyond its budget.
    pub(super) fn beyond_budget(&self, arena: u16) -> u64 {
        self.get(arena).map_or(0, Arena::beyond)
    }

    fn priority(&self, arena: u16) -> i32 {
        self.get(arena).map_or(0, |arena| arena.config.priority)
    }

    /// Whose cache goes back so that a request of an arena may have memory, in this order: what is left of pools that are gone, then pools
    /// of lower priority. What is private takes from the common cache, too.
    pub(super) fn victims(&self, of: u16) -> Vec<u16> {
        let all = std::iter::once(COMMON).chain(self.iter().map(|(number, _)| number));
        let mut victims: Vec<u16> = all.filter(|number| self.gives_way(*number, of)).collect();
        let is_open = |number: u16| self.get(number).is_none_or(|arena| !arena.closing);
        victims.sort_by_key(|number| (is_open(*number), self.priority(*number)));
        victims
    }

    /// Whether an arena is among the [`victims`](Arenas::victims) of another one.
    pub(super) fn gives_way(&self, arena: u16, to: u16) -> bool {
        let of_private = arena == COMMON && self.get(to).is_some_and(|arena| arena.private);
        let lower = self.get(arena).is_some_and(|arena| arena.closing) || self.priority(arena) < self.priority(to);
        arena != to && self.may_shrink(arena) && (lower || of_private)
    }
}

impl Arena {
    /// Whether its pool is gone and nothing of it is used.
    pub(super) fn is_gone(&self) -> bool {
        self.closing && self.figures.active.current == 0
    }

    /// Bytes that it has beyond its budget.
    fn beyond(&self) -> u64 {
        let reserved = self.figures.reserved_bytes.current;
        self.config.budget.map_or(0, |budget| reserved.saturating_sub(budget))
    }

    fn left(&self) -> u64 {
        let reserved = self.figures.reserved_bytes.current;
        self.config
            .budget
            .map_or(u64::MAX, |budget| budget.saturating_sub(reserved))
    }
}

fn check_budget(name: &str, budget: Option<u64>) -> Result<(), Error> {
    match budget {
        Some(0) => Err(Error::Config {
            setting: "pool",
            reason: format!(
                "{}: 0 bytes leave no room for anything; use None for no budget",
                clean(name)
            ),
        }),
        _ => Ok(()),
    }
}

impl Heap {
    /// Makes an arena for a pool.
    pub(crate) fn add_arena(&mut self, pool: NewPool<'_>, config: PoolConfig) -> Result<u16, Error> {
        let fail = |reason: String| {
            Err(Error::Config {
                setting: "pool",
                reason,
            })
        };
        let vacant = self.arenas.0.iter().position(Option::is_none);
        let at = vacant.unwrap_or(self.arenas.0.len());
        let number = at as u16 + 1;
        // The channel has room for so many texts. Names by number come again; an id is what its program knows the pool by.
        let name = match pool {
            NewPool::Named(name) => name.to_owned(),
            NewPool::Private(None) => format!("private pool {number}"),
            NewPool::Private(Some(id)) => format!("pool {id}"),
        };
        check_budget(&name, config.budget)?;
        let id = match pool {
            // Where names are shown, none is that of memory which is no pool's.
            NewPool::Named("") => return fail("a pool needs a name".to_owned()),
            NewPool::Named(_) if self.arenas.open().any(|arena| !arena.private && arena.name == name) => {
                return fail(format!("there is a pool named {} already", clean(&name)));
            }
            NewPool::Private(Some(id)) if id == MempoolId::default() => {
                return fail(format!(
                    "the id {id} is that of memory which is no pool's: use another one"
                ));
            }
            NewPool::Private(Some(id)) if self.arenas.has(id) => {
                return fail(format!("there is a pool of id {id} already"));
            }
            NewPool::Private(Some(id)) => id,
            NewPool::Named(_) => self.arenas.vacant(number, |n| MempoolId(0, n)),
            NewPool::Private(None) => self.arenas.vacant(number, |n| MempoolId(n, 0)),
        };
        if at >= MAX_POOLS {
            return fail(format!("{}: there are {MAX_POOLS} pools already", clean(&name)));
        }
        if vacant.is_none() {
            self.arenas.0.push(None);
        }
        self.streams.open(number);
        self.arenas.0[at] = Some(Arena {
            label: self.labels.pool(&mut self.outlet, &name),
            name,
            id,
            config,
            private: matches!(pool, NewPool::Private(_)),
            given_up: false,
            closing: false,
            figures: PoolFigures::default(),
        });
        Ok(number)
    }

    /// Nobody holds the pool of an arena any more: another one may have its name and its id.
    pub(crate) fn give_up_arena(&mut self, arena: u16) {
        if let Some(arena) = self.arenas.get_mut(arena) {
            arena.given_up = true;
        }
    }

    /// Name and id of an arena's pool.
    pub(crate) fn name_of_arena(&self, arena: u16) -> (String, MempoolId) {
        let known = self.arenas.get(arena);
        known.map_or_else(Default::default, |arena| (arena.name.clone(), arena.id))
    }

    pub(crate) fn pool_figures(&self, arena: u16) -> PoolFigures {
        self.arenas
            .get(arena)
            .map_or_else(PoolFigures::default, |arena| arena.figures)
    }

    pub(crate) fn pool_budget(&self, arena: u16) -> Option<u64> {
        self.arenas.get(arena).and_then(|arena| arena.config.budget)
    }

    /// Sets the budget of an arena's pool. Whether it has more and that may go back.
    fn set_pool_budget_only(&mut self, arena: u16, budget: Option<u64>) -> Result<bool, Error> {
        let Some(its) = self.arenas.get_mut(arena) else {
            return Ok(false);
        };
        check_budget(&its.name, budget)?;
        its.config.budget = budget;
        Ok(!self.capturing() && self.arenas.may_shrink(arena) && self.arenas.beyond_budget(arena) > 0)
    }

    /// Bytes that a request's pool may still take; all there are outside of pools.
    pub(super) fn pool_left(&self, arena: u16) -> u64 {
        self.arenas.get(arena).map_or(u64::MAX, Arena::left)
    }

    /// Whether requests of a pool that it has no room for may have of everybody's memory.
    pub(super) fn overflows(&self, arena: u16) -> bool {
        self.arenas
            .get(arena)
            .is_some_and(|arena| arena.config.overflow == Overflow::Shared)
    }
}
