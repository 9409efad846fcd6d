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
pub(super) struct Reach {
    known: Mutex<Known>,
    /// Held while a peer is named, which takes a driver call for each mapping. Whoever maps or unmaps meanwhile does not wait for it.
    naming: Mutex<()>,
}

#[derive(Debug)]
struct Known {
    /// The device itself, and its peers. One that is being named is among them.
    by: Arc<[AccessDesc]>,
    /// By address.
    mappings: BTreeMap<u64, Mapping>,
    /// How many there ever were.
    count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapping {
    bytes: u64,
    /// No other one ever has it, wherever that is.
    number: u64,
}

pub(super) fn access(location: Location) -> AccessDesc {
    AccessDesc {
        location,
        flags: READ_WRITE,
    }
}

impl Reach {
    pub(super) fn new(own: Location) -> Reach {
        let known = Known {
            by: [access(own)].into(),
            mappings: BTreeMap::new(),
            count: 0,
        };
        Reach {
            known: Mutex::new(known),
            naming: Mutex::new(()),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be called before the mapping is made accessible to [those](Reach::by) that reach it: a peer that is named in between is one of them,
    /// or reaches it by being named.
    pub(super) fn mapped(&self, addr: u64, bytes: u64) {
        let mut known = self.known();
        known.count += 1;
        let number = known.count;
        known.mappings.insert(addr, Mapping { bytes, number });
    }

    /// What is made accessible is so by these.
    pub(super) fn by(&self) -> Arc<[AccessDesc]> {
        Arc::clone(&self.known().by)
    }

    /// Mappings are about to go: these, to be [told of](Reach::mapped) again if they do not.
    pub(super) fn unmaps(&self, addr: u64, bytes: u64) -> Vec<(u64, u64)> {
        let mut known = self.known();
        let going = known.mappings.range(addr..addr + bytes);
        let going: Vec<_> = going.map(|(at, mapping)| (*at, mapping.bytes)).collect();
        for (at, _) in &going {
            known.mappings.remove(at);
        }
        going
    }

    /// Names a peer, once `grant` let it reach all that is mapped; else it is none, but may reach what was mapped meanwhile.
    pub(super) fn name(
        &self,
        peer: Location,
        mut grant: impl FnMut(u64, u64, &AccessDesc) -> Result<()>,
    ) -> Result<()> {
        let peer = access(peer);
        let is_peer = |one: &AccessDesc| one.location.id == peer.location.id;
        // Who finds it named may go on: all is granted then.
        let _naming = self.naming.lock().unwrap_or_else(PoisonError::into_inner);
        let mappings = {
            let mut known = self.known();
            if known.by.iter().any(is_peer) {
                return Ok(());
            }
            // What comes from now on is within its reach.
            known.by = known.by.iter().copied().chain([peer]).collect();
            known.mappings.clone()
        };
        for (addr, mapping) in mappings {
            let granted = grant(addr, mapping.bytes, &peer);
            // One that has gone meanwhile need not be reached.
            if granted.is_err() && self.known().mappings.get(&addr) == Some(&mapping) {
                let mut known = self.known();
                known.by = known.by.iter().copied().filter(|one| !is_peer(one)).collect();
                return granted;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::DeviceError;

    fn device(id: c_int) -> Location {
        Location { kind: 1, id }
    }

    fn named(reach: &Reach) -> Vec<c_int> {
        reach.by().iter().map(|one| one.location.id).collect()
    }

    fn refused() -> Result<()> {
        Err(DeviceError {
            call: "cuMemSetAccess",
            code: 1,
            name: "CUDA_ERROR_INVALID_VALUE".to_owned(),
        })
    }

    /// Whoever maps or unmaps in the middle of a naming would wait for ever here if that held their lock.
    #[test]
    fn a_peer_is_named_while_mappings_come_and_go() {
        let reach = Reach::new(device(0));
        (1..=3).for_each(|at| reach.mapped(at << 21, 1 << 21));
        let mut asked = Vec::new();
        let result = reach.name(device(1), |addr, bytes, _| {
            asked.push(addr >> 21);
            assert_eq!(bytes, 1 << 21);
            match addr >> 21 {
                1 => {
                    assert_eq!(reach.unmaps(2 << 21, 2 << 21).len(), 2);
                    reach.mapped(3 << 21, 1 << 21);
                    assert_eq!(named(&reach), [0, 1], "what comes meanwhile is reached");
                    Ok(())
                }
                // They went, and another one came in the place of one: it has the peer already.
                _ => refused(),
            }
        });
        assert_eq!((result, asked, named(&reach)), (Ok(()), vec![1, 2, 3], vec![0, 1]));
    }

    #[test]
    fn a_peer_that_may_not_reach_what_is_there_is_none() {
        let reach = Reach::new(device(0));
        reach.mapped(1 << 21, 1 << 21);
        assert_eq!(reach.name(device(1), |_, _, _| refused()), refused());
        assert_eq!(named(&reach), [0]);
        assert_eq!(reach.name(device(1), |_, _, _| Ok(())), Ok(()));
        assert_eq!(named(&reach), [0, 1]);
    }
}
