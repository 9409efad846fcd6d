//! Private pools, by the numbers that PyTorch gives them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::c_int;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

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
#[derive(Debug)]
pub(crate) struct Pools {
    known: Mutex<Option<HashMap<PoolId, Known>>>,
    /// One was made, or could not be.
    settled: Condvar,
}

/// A pool of a number.
#[derive(Debug)]
enum Known {
    /// A thread is about to make it, which can take as long as the driver takes: the lock is not held meanwhile. Who wants the same one waits
    /// for it, as there cannot be two of a number.
    Coming,
    /// It was begun so often, and goes when it was released as often.
    There(Pool, u64),
}

impl Known {
    fn there(&self) -> Option<&Pool> {
        match self {
            Known::Coming => None,
            Known::There(pool, _) => Some(pool),
        }
    }
}

/// That a pool is coming; over when this is dropped.
struct Coming<'a> {
    pools: &'a Pools,
    id: PoolId,
}

impl Pools {
    pub(crate) const fn new() -> Pools {
        Pools {
            known: Mutex::new(None),
            settled: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<HashMap<PoolId, Known>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the pool of a number once more, or lets the caller make it.
    fn begin(&self, id: PoolId) -> Result<Pool, Coming<'_>> {
        let mut known = self.lock();
        loop {
            match known.get_or_insert_default().entry(id) {
                Entry::Vacant(entry) => {
                    entry.insert(Known::Coming);
                    return Err(Coming { pools: self, id });
                }
                Entry::Occupied(mut entry) => {
                    if let Known::There(pool, begun) = entry.get_mut() {
                        *begun += 1;
                        return Ok(pool.clone());
                    }
                }
            }
            known = self.settled.wait(known).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn find(&self, id: PoolId) -> Result<Pool, Failure> {
        let known = self.lock();
        let pool = known.as_ref().and_then(|known| known.get(&id)?.there());
        pool.cloned()
            .ok_or_else(|| Failure::misuse(format!("no pool {} was begun on this device", MempoolId::from(id))))
    }
}

impl Coming<'_> {
    fn make(self, allocator: &Allocator) -> Result<Pool, Failure> {
        let pool = allocator.private_pool_with_id(self.id.into())?;
        if let Some(known) = &mut *self.pools.lock() {
            known.insert(self.id, Known::There(pool.clone(), 1));
        }
        Ok(pool)
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        if let Some(known) = &mut *self.pools.lock()
            && let Some(Known::Coming) = known.get(&self.id)
        {
            // It could not be made. Who waited for it tries it in turn.
            known.remove(&self.id);
        }
        self.pools.settled.notify_all();
    }
}

/// Sends what a route says to a pool, which is made if there is none of that number.
pub(crate) fn begin(device: c_int, id: PoolId, route: Route) -> Result<(), Failure> {
    let place = place(device)?;
    let allocator = place.open(device)?;
    let pool = match place.pools.begin(id) {
        Ok(pool) => pool,
        Err(coming) => coming.make(allocator)?,
    };
    Ok(allocator.begin_allocate_to_pool(&pool, route)?)
}

/// Ends what was begun last for a pool.
pub(crate) fn end(device: c_int, id: PoolId) -> Result<(), Failure> {
    let pool = place(device)?.pools.find(id)?;
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
    let pools = &place(device)?.pools;
    let pool = pools.find(id)?;
    let mut locked = pools.lock();
    if let Some(known) = &mut *locked
        && let Some(Known::There(pool, begun)) = known.get_mut(&id)
    {
        *begun -= 1;
        if *begun == 0 {
            // Who begins one of this id from now on has another pool, whoever is still in this one.
            pool.give_up_name();
            known.remove(&id);
        }
    }
    drop(locked);
    // Gives memory back: not under the lock.
    drop(pool);
    Ok(())
}

/// The place of a device, unless this is a forked child: there its pools may be locked for ever by a thread that does not exist.
fn place(device: c_int) -> Result<&'static Place, Failure> {
    let place = devices::place(device)?;
    devices::not_forked()?;
    Ok(place)
}

impl From<PoolId> for MempoolId {
    fn from(id: PoolId) -> MempoolId {
        MempoolId(id.first, id.second)
    }
}
