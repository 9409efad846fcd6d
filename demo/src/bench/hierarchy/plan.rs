//! What is measured, in order, with which working sets.

use super::arithmetic::fraction;
use super::report::Rung;
use super::step::{Purpose, Step};
use crate::rig::{Card, LINE, Load, Place, Route, Stream};

/// Samples of each figure.
pub(super) const SAMPLES: u32 = 7;

/// Loads of a sample where a level's figure is measured: more than a million in seven samples.
const LEVEL_HOPS: u32 = 1 << 18;
/// Loads of a sample of the curve and of the spread.
const CURVE_HOPS: u32 = 1 << 16;
/// Loads of a sample of the host's or a peer's memory, each of which takes a microsecond or more.
const HOST_HOPS: u32 = 1 << 14;
/// Dependent multiply-adds of a sample.
const CHAIN_STEPS: u32 = 1 << 20;

/// Working set within L1, on every card since Volta.
const L1_BYTES: u64 = 32 << 10;
/// Working set within shared memory.
const SHARED_BYTES: u64 = 32 << 10;
/// Working set of the spread: as many SMs are measured one after another, it is small, and larger than any L1.
const SPREAD_BYTES: u64 = 4 << 20;
/// SMs of the spread, at most.
const SPREAD_SMS: u32 = 16;
/// Largest working set of the curve.
const CURVE_MOST: u64 = 512 << 20;
/// Bytes that are copied from and to the host, and the ring there; the least of a peer GPU.
const HOST_BYTES: u64 = 64 << 20;

/// Near L2: D3 of the sources has H100's at 22 of 50 MB and below.
const NEAR: f64 = 0.3;
/// Far L2: between 70 % and 85 %.
const FAR: f64 = 0.77;
/// Largest share of L2 that counts as near.
pub(super) const NEAR_MOST: f64 = 0.44;
/// The shares of L2 that count as far.
pub(super) const FAR_RANGE: (f64, f64) = (0.70, 0.85);
/// How many times L2 a working set in device memory has, at least.
pub(super) const DEVICE_LEAST: u64 = 4;

/// Returns everything that is measured on a card with this much memory to use.
pub(super) fn steps(card: &Card, budget: u64) -> Vec<Step> {
    let mut steps = vec![Step::WarmUp, Step::Chain { steps: CHAIN_STEPS }];
    steps.extend(latencies(card, budget));
    steps.extend(bandwidths(card, budget));
    steps.extend(card.peers.iter().flat_map(|peer| peer_steps(card, peer.device, budget)));
    steps.extend(curve_sizes(card, budget).into_iter().map(|bytes| Step::Chase {
        of: Purpose::Curve,
        place: Place::Device,
        load: Load::Ca,
        bytes,
        hops: CURVE_HOPS,
        sm: None,
    }));
    steps.extend(spread_sms(card.sms).map(|sm| Step::Chase {
        of: Purpose::Spread,
        place: Place::Device,
        load: Load::Cg,
        bytes: SPREAD_BYTES.min(fraction(card.l2_bytes, NEAR, LINE.into())),
        hops: CURVE_HOPS,
        sm: Some(sm),
    }));
    steps
}

fn latencies(card: &Card, budget: u64) -> Vec<Step> {
    let in_l2 = |share| fraction(card.l2_bytes, share, LINE.into());
    let of_level = |rung, place, load, bytes, hops| Step::Chase {
        of: Purpose::Level(rung),
        place,
        load,
        bytes,
        hops,
        sm: None,
    };
    let mut steps = vec![
        of_level(Rung::Shared, Place::Shared, Load::Shared, SHARED_BYTES, LEVEL_HOPS),
        Step::Chase {
            of: Purpose::Other(Rung::Shared),
            place: Place::Shared,
            load: Load::SharedIndex,
            bytes: SHARED_BYTES,
            hops: LEVEL_HOPS,
            sm: None,
        },
        of_level(Rung::L1, Place::Device, Load::Ca, L1_BYTES, LEVEL_HOPS),
    ];
    let most = largest_ring(budget);
    let device = [
        (Rung::L2Near, in_l2(NEAR)),
        (Rung::L2Far, in_l2(FAR)),
        (Rung::Device, device_ring(card, budget)),
    ];
    for (rung, bytes) in device {
        // A smaller ring would be in the cache above. The level's note says that it was left out.
        let enough = rung != Rung::Device || bytes >= card.l2_bytes.saturating_mul(DEVICE_LEAST);
        if bytes <= most && enough {
            steps.push(of_level(rung, Place::Device, Load::Cg, bytes, LEVEL_HOPS));
        }
    }
    steps.push(of_level(
        Rung::PinnedHost,
        Place::PinnedHost,
        Load::Cg,
        HOST_BYTES,
        HOST_HOPS,
    ));
    steps
}

fn bandwidths(card: &Card, budget: u64) -> Vec<Step> {
    let stream = |rung, what, stream| Step::Stream { rung, what, stream };
    let copy = |rung, what, route, bytes| Step::Copy {
        rung,
        what,
        route,
        bytes,
    };
    let (near, far) = (
        fraction(card.l2_bytes, NEAR, 1 << 20),
        fraction(card.l2_bytes, FAR, 1 << 20),
    );
    // Eight times L2 for each half of a copy.
    let all = budget.min(card.l2_bytes.saturating_mul(16)) >> 20 << 20;
    let host = HOST_BYTES.min(all);
    vec![
        stream(Rung::Registers, "multiply-add", Stream::Registers(1 << 13)),
        stream(Rung::Shared, "read", Stream::Shared(1 << 12)),
        stream(Rung::L1, "read", Stream::L1(1 << 12)),
        stream(
            Rung::L2Near,
            "read",
            Stream::Read {
                bytes: near.min(all),
                rounds: 200,
            },
        ),
        stream(
            Rung::L2Far,
            "read",
            Stream::Read {
                bytes: far.min(all),
                rounds: 100,
            },
        ),
        stream(Rung::Device, "write", Stream::Write { bytes: all }),
        stream(Rung::Device, "read", Stream::Read { bytes: all, rounds: 1 }),
        stream(Rung::Device, "copy", Stream::Copy { bytes: all }),
        copy(Rung::Device, "driver copy", Route::DeviceToDevice, all / 2),
        copy(Rung::PinnedHost, "to device", Route::PinnedToDevice, host),
        copy(Rung::PinnedHost, "from device", Route::DeviceToPinned, host),
        copy(Rung::PageableHost, "to device", Route::PageableToDevice, host),
        copy(Rung::PageableHost, "from device", Route::DeviceToPageable, host),
    ]
}

/// Returns the steps of a peer GPU. Its working set is beyond an L2 cache of this card's size, which a card of the same kind has.
fn peer_steps(card: &Card, number: u32, budget: u64) -> [Step; 3] {
    let bytes = card.l2_bytes.saturating_mul(DEVICE_LEAST).max(HOST_BYTES);
    let bytes = bytes.min(largest_ring(budget));
    let copy = |what, route| Step::Copy {
        rung: Rung::Peer,
        what,
        route,
        bytes,
    };
    [
        Step::Chase {
            of: Purpose::Level(Rung::Peer),
            place: Place::Peer(number),
            load: Load::Cg,
            bytes,
            hops: HOST_HOPS,
            sm: None,
        },
        copy("from peer", Route::PeerToDevice(number)),
        copy("to peer", Route::DeviceToPeer(number)),
    ]
}

/// Returns the largest ring that fits into the budget with its order, which takes 4 bytes a node.
fn largest_ring(budget: u64) -> u64 {
    let line = u64::from(LINE);
    budget.saturating_sub(64) / (line + 4) * line
}

/// Returns the working set for device memory.
fn device_ring(card: &Card, budget: u64) -> u64 {
    let wanted = CURVE_MOST.max(card.l2_bytes.saturating_mul(DEVICE_LEAST));
    wanted.min(largest_ring(budget))
}

/// Returns the working sets of the curve: closest where the steps are, at the end of L1 and around the halves of L2.
fn curve_sizes(card: &Card, budget: u64) -> Vec<u64> {
    const KIB: [u64; 13] = [16, 32, 64, 96, 128, 160, 192, 224, 256, 384, 1024, 2048, 4096];
    const SHARES: [f64; 11] = [0.2, 0.35, 0.44, 0.5, 0.6, 0.7, 0.77, 0.85, 1.0, 1.5, 2.0];
    let in_l2 = SHARES.map(|share| fraction(card.l2_bytes, share, LINE.into()));
    let beyond = [card.l2_bytes.saturating_mul(DEVICE_LEAST), device_ring(card, budget)];
    let below = KIB.into_iter().map(|kib| kib << 10).filter(|bytes| *bytes < in_l2[0]);
    let most = largest_ring(budget);
    let mut sizes: Vec<u64> = below
        .chain(in_l2)
        .chain(beyond)
        .map(|bytes| bytes / u64::from(LINE) * u64::from(LINE))
        .filter(|bytes| (1..=most).contains(bytes))
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Returns SMs spread evenly over all of them.
fn spread_sms(sms: u32) -> impl Iterator<Item = u32> {
    let count = sms.min(SPREAD_SMS);
    (0..count).map(move |at| at * sms / count.max(1))
}
