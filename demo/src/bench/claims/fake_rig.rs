//! The rig of `bench hierarchy` for tests of claims: its times are about those of an H100 at 2 GHz.

use crate::bench::hierarchy::ring::walk;
use crate::rig::{Card, Chase, Chased, Clocks, Moved, Place, Rig, RigError, Route, Stream};

/// The rig.
pub(super) struct FakeRig {
    pub(super) card: Card,
    ring: Option<(Place, Vec<u32>)>,
}

impl FakeRig {
    pub(super) fn new(card: Card) -> FakeRig {
        FakeRig { card, ring: None }
    }
}

fn clocks(ns: u64) -> Clocks {
    Clocks { cycles: 2 * ns, ns }
}

impl Rig for FakeRig {
    fn card(&self) -> &Card {
        &self.card
    }

    fn lay(&mut self, place: Place, next: &[u32]) -> Result<(), RigError> {
        self.ring = Some((place, next.to_vec()));
        Ok(())
    }

    fn chase(&mut self, chase: Chase) -> Result<Chased, RigError> {
        let (place, next) = self.ring.as_ref().ok_or_else(|| RigError("no ring".into()))?;
        let bytes = next.len() as u64 * u64::from(place.stride());
        let ns = match place {
            Place::Shared => 12,
            _ if bytes <= self.card.l2_bytes => 140,
            _ => 330,
        };
        let end = walk(next, chase.from, chase.warm + chase.hops);
        Ok(Chased {
            clocks: clocks(ns * u64::from(chase.hops)),
            end: end.ok_or_else(|| RigError("outside of the ring".into()))?,
            sm: 0,
        })
    }

    fn chain(&mut self, steps: u32) -> Result<Clocks, RigError> {
        Ok(clocks(2 * u64::from(steps)))
    }

    fn stream(&mut self, stream: Stream) -> Result<Moved, RigError> {
        match stream {
            Stream::Read { bytes, .. } => Ok(Moved {
                bytes,
                ns: bytes / 3000,
                clocks: None,
            }),
            _ => Err(RigError("no claim needs it".into())),
        }
    }

    fn copy(&mut self, _route: Route, bytes: u64) -> Result<Moved, RigError> {
        Ok(Moved {
            bytes,
            ns: bytes / 55,
            clocks: None,
        })
    }
}
