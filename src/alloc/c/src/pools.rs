//! Private pools, by the numbers that PyTorch gives them.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gpumem::{Allocator, MempoolId, Pool, Route};

use crate::devices::{self, Place};
use crate::failure::Failure;

/// `c10::cuda::MempoolId_t`, a `std::pair` of two numbers.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PoolId {
    first: u64,
    second: u64,
}

/// The pools of a device.
pub(crate) struct Pools {
    /// Each was begun as often as it says and goes when it was released as often. Nobody calls the driver under this lock, or waits for who does.
    known: Mutex<Option<Known>>,
    /// Locked while one is made, for which what is left of others may have to go.
    making: Mutex<()>,
}

type Known = HashMap<PoolId, (Pool, u64)>;

impl Pools {
    pub(crate) const fn none() -> Pools {
        Pools {
            known: Mutex::new(None),
            making: Mutex::new(()),
        }
    }

    fn known(&self) -> MutexGuard<'_, Option<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pool of a number, which is begun once more.
    fn again(&self, id: PoolId) -> Option<Pool> {
        let mut known = self.known();
        let (pool, begun) = known.as_mut()?.get_mut(&id)?;
        *begun += 1;
        Some(pool.clone())
    }

    /// The same, or a new one.
    fn again_or_new(&self, id: PoolId, allocator: &Allocator) -> Result<Pool, Failure> {
        if let Some(pool) = self.again(id) {
            return Ok(pool);
        }
        // Who waits for the lock may be who the stack is told by.
        let _caller = allocator.keep_caller();
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = self.again(id) {
            return Ok(pool);
        }
        let pool = allocator.private_pool_with_id(id.into())?;
        self.known().get_or_insert_default().insert(id, (pool.clone(), 1));
        Ok(pool)
    }
}

/// Sends what a route says to a pool, which is made if there is none of that number.
pub(crate) fn begin(device: c_int, id: PoolId, route: Route) -> Result<(), Failure> {
    let place = place(device)?;
    let allocator = place.open(device)?;
    release_lost(place, allocator);
    let pool = place.pools.again_or_new(id, allocator)?;
    Ok(allocator.begin_allocate_to_pool(&pool, route)?)
}

/// Ends what was begun last for a pool.
pub(crate) fn end(device: c_int, id: PoolId) -> Result<(), Failure> {
    let place = place(device)?;
    let pool = find(place, id)?;
    match pool.allocator().end_allocate_to_pool(&pool)? {
        true => Ok(()),
        false => Err(Failure::misuse(format!(
            "nothing is allocated to pool {} now",
            MempoolId::from(id)
        ))),
    }
}

/// Takes back one beginning; with the last the pool goes.
pub(crate) fn release(device: c_int, id: PoolId) -> Result<(), Failure> {
    let place = place(device)?;
    let pool = find(place, id)?;
    release_one(place, id);
    // Gives memory back: not under the lock.
    drop(pool);
    Ok(())
}

/// Takes back the beginnings of captures that the calling thread began and that are over, which nobody ended: their graphs release no pool.
pub(crate) fn release_lost(place: &Place, allocator: &Allocator) {
    for MempoolId(first, second) in allocator.forget_lost_captures() {
        let id = PoolId { first, second };
        // It is there, unless the program took back more than it began.
        if let Ok(pool) = find(place, id) {
            release_one(place, id);
            // As above.
            drop(pool);
        }
    }
}

/// With the last of its beginnings a pool is nobody's. Who calls this has it still.
fn release_one(place: &Place, id: PoolId) {
    let mut known = place.pools.known();
    if let Some(known) = &mut *known
        && let Some((pool, begun)) = known.get_mut(&id)
    {
        *begun -= 1;
        if *begun == 0 {
            // Who begins one of this id from now on has another pool, whoever is still in this one.
            pool.give_up_name();
            known.remove(&id);
        }
    }
}

/// The pool of a number.
pub(crate) fn pool(device: c_int, id: PoolId) -> Result<Pool, Failure> {
    find(place(device)?, id)
}

/// How often a pool was begun and not released.
pub(crate) fn uses(device: c_int, id: PoolId) -> Result<u64, Failure> {
    let known = place(device)?.pools.known();
    Ok(known
        .as_ref()
        .and_then(|known| known.get(&id))
        .map_or(0, |(_, begun)| *begun))
}

/// The place of a device, unless this is a forked child: there its pools may be locked for ever by a thread that does not exist.
fn place(device: c_int) -> Result<&'static Place, Failure> {
    let place = devices::place(device)?;
    devices::not_forked()?;
    Ok(place)
}

fn find(place: &Place, id: PoolId) -> Result<Pool, Failure> {
    let known = place.pools.known();
    let found = known.as_ref().and_then(|known| known.get(&id));
    found
        .map(|(pool, _)| pool.clone())
        .ok_or_else(|| Failure::misuse(format!("no pool {} was begun on this device", MempoolId::from(id))))
}

impl From<PoolId> for MempoolId {
    fn from(id: PoolId) -> MempoolId {
        MempoolId(id.first, id.second)
    }
}
