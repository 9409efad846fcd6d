//! Private pools, by the numbers that PyTorch gives them.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use gpumem::{MempoolId, Pool, Route};

use crate::devices::{self, Place};
use crate::failure::Failure;

/// `c10::cuda::MempoolId_t`, a `std::pair` of two numbers.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PoolId {
    first: u64,
    second: u64,
}

/// The pools of a device. Each was begun as often as it says and goes when it was released as often.
pub(crate) type Pools = Mutex<Option<HashMap<PoolId, (Pool, u64)>>>;

/// Sends what a route says to a pool, which is made if there is none of that number.
pub(crate) fn begin(device: c_int, id: PoolId, route: Route) -> Result<(), Failure> {
    let place = place(device)?;
    let allocator = place.open(device)?;
    let pool = {
        let mut pools = place.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let pools = pools.get_or_insert_default();
        match pools.get_mut(&id) {
            Some((pool, begun)) => {
                *begun += 1;
                pool.clone()
            }
            None => {
                let pool = allocator.private_pool_with_id(id.into())?;
                pools.insert(id, (pool.clone(), 1));
                pool
            }
        }
    };
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
    let mut pools = place.pools.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pools) = &mut *pools
        && let Some((pool, begun)) = pools.get_mut(&id)
    {
        *begun -= 1;
        if *begun == 0 {
            // Who begins one of this id from now on has another pool, whoever is still in this one.
            pool.give_up_name();
            pools.remove(&id);
        }
    }
    drop(pools);
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

fn find(place: &Place, id: PoolId) -> Result<Pool, Failure> {
    let pools = place.pools.lock().unwrap_or_else(PoisonError::into_inner);
    let known = pools.as_ref().and_then(|pools| pools.get(&id));
    known
        .map(|(pool, _)| pool.clone())
        .ok_or_else(|| Failure::misuse(format!("no pool {} was begun on this device", MempoolId::from(id))))
}

impl From<PoolId> for MempoolId {
    fn from(id: PoolId) -> MempoolId {
        MempoolId(id.first, id.second)
    }
}
