//! Which devices reach what is mapped here.
//!
//! Memory of `cuMemAlloc` is within reach of each device whose context was given peer access. Mapped memory is not: each mapping names the
//! devices that reach it. So those that are there are known, for a device that is named later.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Result;
use super::api::{AccessDesc, Location};

const READ_WRITE: c_int = 3;

#[derive(Debug)]
pub(super) struct Reach(Mutex<Known>);

#[derive(Debug)]
struct Known {
    /// The device itself, and its peers.
    by: Arc<[AccessDesc]>,
    /// Bytes of each mapping, by address.
    mappings: BTreeMap<u64, u64>,
}

fn access(location: Location) -> AccessDesc {
    AccessDesc {
        location,
        flags: READ_WRITE,
    }
}

impl Reach {
    pub(super) fn new(own: Location) -> Reach {
        Reach(Mutex::new(Known {
            by: [access(own)].into(),
            mappings: BTreeMap::new(),
        }))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be called before the mapping is made accessible to [those](Reach::by) that reach it: a peer that is named in between is one of them,
    /// or reaches it by being named.
    pub(super) fn mapped(&self, addr: u64, bytes: u64) {
        self.known().mappings.insert(addr, bytes);
    }

    /// What is made accessible is so by these.
    pub(super) fn by(&self) -> Arc<[AccessDesc]> {
        Arc::clone(&self.known().by)
    }

    /// Mappings are about to go: these, to be [told of](Reach::mapped) again if they do not.
    pub(super) fn unmaps(&self, addr: u64, bytes: u64) -> Vec<(u64, u64)> {
        let mut known = self.known();
        let going = known.mappings.range(addr..addr + bytes);
        let going: Vec<_> = going.map(|(at, bytes)| (*at, *bytes)).collect();
        for (at, _) in &going {
            known.mappings.remove(at);
        }
        going
    }

    /// Names a peer, once `grant` let it reach all that is mapped. Who maps or unmaps meanwhile waits for that.
    pub(super) fn name(
        &self,
        peer: Location,
        mut grant: impl FnMut(u64, u64, &AccessDesc) -> Result<()>,
    ) -> Result<()> {
        let peer = access(peer);
        let mut known = self.known();
        if known.by.iter().any(|one| one.location.id == peer.location.id) {
            return Ok(());
        }
        for (addr, bytes) in &known.mappings {
            grant(*addr, *bytes, &peer)?;
        }
        known.by = known.by.iter().copied().chain([peer]).collect();
        Ok(())
    }
}
