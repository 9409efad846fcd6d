//! A device for tests, whose latencies are a function of the working set and whose bandwidths are constant.

use crate::rig::{Card, Chase, Chased, Clocks, Load, Moved, Place, Rig, RigError, Route, Stream};

pub(super) const SM_MHZ: u64 = 2000;
pub(super) const L1_REACH: u64 = 224 << 10;

/// The device.
pub(super) struct Fake {
    pub(super) card: Card,
    ring: Option<Ring>,
    /// The calls of the device so far.
    pub(super) calls: u32,
    /// Copies to and from the host fail.
    pub(super) no_host: bool,
    /// A peer whose memory cannot be had.
    pub(super) no_peer: Option<u32>,
    /// Chases end at the wrong node.
    pub(super) lost: bool,
}

/// A ring: where it is, its nodes in the order in which they follow each other, and the place of each node in that order.
struct Ring {
    place: Place,
    order: Vec<u32>,
    position: Vec<usize>,
}

impl Ring {
    fn new(place: Place, next: &[u32]) -> Ring {
        let (mut order, mut position) = (Vec::with_capacity(next.len()), vec![0; next.len()]);
        let mut node = 0;
        while order.len() < next.len() {
            position[node as usize] = order.len();
            order.push(node);
            node = next[node as usize];
        }
        Ring { place, order, position }
    }

    /// Returns the node after so many hops.
    fn after(&self, from: u32, hops: u32) -> Option<u32> {
        let at = self.position.get(from as usize)? + hops as usize;
        Some(self.order[at % self.order.len()])
    }
}

/// A card like an H100 with a small L2 cache, because rings of several times its size are laid without optimisation.
pub(super) fn card() -> Card {
    Card {
        name: "NVIDIA H100 80GB HBM3".into(),
        uuid: "GPU-6f5ae4c5-0001-abcd-ef10-203040506070".into(),
        compute_capability: (9, 0),
        driver: "580.159.04".into(),
        sms: 132,
        sm_mhz_max: Some(1980),
        memory_mhz_max: Some(2619),
        memory_bus_bits: Some(5120),
        memory_bytes: 80 << 30,
        l2_bytes: 4 << 20,
        shared_bytes_per_sm: 228 << 10,
        register_bytes_per_sm: 256 << 10,
        l2_persisting_max_bytes: Some(32 << 20),
        l2_persisting_bytes: Some(0),
        ecc: Some(true),
        peers: Vec::new(),
    }
}

impl Fake {
    pub(super) fn new() -> Fake {
        Fake {
            card: card(),
            ring: None,
            calls: 0,
            no_host: false,
            no_peer: None,
            lost: false,
        }
    }

    /// Returns the nanoseconds of a load.
    fn ns(&self, place: Place, bytes: u64, load: Load, sm: Option<u32>) -> u64 {
        let l2 = self.card.l2_bytes;
        match place {
            Place::Shared => 12,
            Place::Peer(number) => 700 + u64::from(number),
            Place::PinnedHost => 1000,
            Place::Device if bytes <= L1_REACH && load == Load::Ca => 17,
            // Every other SM is a little farther from the cache.
            Place::Device if bytes <= l2 * 45 / 100 => 150 + 2 * u64::from(sm.unwrap_or(0) / 8 % 2),
            Place::Device if bytes <= l2 * 9 / 10 => 270,
            Place::Device => 370,
        }
    }
}

fn clocks(ns: u64) -> Clocks {
    Clocks {
        cycles: ns * SM_MHZ / 1000,
        ns,
    }
}

impl Rig for Fake {
    fn card(&self) -> &Card {
        &self.card
    }

    fn lay(&mut self, place: Place, next: &[u32]) -> Result<(), RigError> {
        self.calls += 1;
        if self.no_peer.is_some_and(|peer| place == Place::Peer(peer)) {
            return Err(RigError("allocating memory of a peer failed".into()));
        }
        self.ring = Some(Ring::new(place, next));
        Ok(())
    }

    fn chase(&mut self, chase: Chase) -> Result<Chased, RigError> {
        self.calls += 1;
        let ring = self.ring.as_ref().ok_or_else(|| RigError("no ring".into()))?;
        let bytes = ring.order.len() as u64 * u64::from(ring.place.stride());
        let end = ring.after(chase.from, chase.warm + chase.hops);
        let end = end.ok_or_else(|| RigError("outside of the ring".into()))?;
        let ns = self.ns(ring.place, bytes, chase.load, chase.sm);
        Ok(Chased {
            clocks: clocks(ns * u64::from(chase.hops)),
            end: if self.lost { u32::MAX } else { end },
            sm: chase.sm.unwrap_or(0),
        })
    }

    fn chain(&mut self, steps: u32) -> Result<Clocks, RigError> {
        self.calls += 1;
        Ok(clocks(2 * u64::from(steps)))
    }

    fn stream(&mut self, stream: Stream) -> Result<Moved, RigError> {
        self.calls += 1;
        self.ring = None;
        // GB/s.
        let (bytes, rate) = match stream {
            Stream::Registers(_) => (400_000_000_000, 400_000),
            Stream::Shared(_) | Stream::L1(_) => (30_000_000_000, 30_000),
            Stream::Read { bytes, rounds } if bytes < self.card.l2_bytes => (bytes * u64::from(rounds), 6000),
            Stream::Read { bytes, .. } | Stream::Write { bytes } | Stream::Copy { bytes } => (bytes, 3000),
        };
        let on_sm = matches!(stream, Stream::Registers(_) | Stream::Shared(_) | Stream::L1(_));
        Ok(Moved {
            bytes,
            ns: bytes / rate,
            clocks: on_sm.then(|| clocks(bytes / rate)),
        })
    }

    fn copy(&mut self, route: Route, bytes: u64) -> Result<Moved, RigError> {
        self.calls += 1;
        self.ring = None;
        let (bytes, rate) = match route {
            Route::DeviceToDevice => (2 * bytes, 2900),
            Route::PeerToDevice(_) => (bytes, 200),
            Route::DeviceToPeer(_) => (bytes, 250),
            _ if self.no_host => return Err(RigError("allocating pinned memory of the host failed".into())),
            Route::PinnedToDevice | Route::DeviceToPinned => (bytes, 50),
            Route::PageableToDevice | Route::DeviceToPageable => (bytes, 10),
        };
        Ok(Moved {
            bytes,
            ns: bytes / rate,
            clocks: None,
        })
    }
}
