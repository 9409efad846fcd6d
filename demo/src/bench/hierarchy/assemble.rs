//! Makes a report of the figures.

use super::arithmetic::{median, range};
use super::curve::{l1_reach, region};
use super::perform::Figure;
use super::published::{LUO, published};
use super::report::{Card, Level, Peer, Point, Region, Report, Rung, SCHEMA, Spread};
use super::step::{Purpose, Step};

/// A card whose far L2 takes at most this many times as long as the near one shows no second step.
const ONE_PART: f64 = 1.15;

/// Returns the report of a run without its date, duration, budget and time to load.
pub(super) fn report(card: &Card, figures: &[(Step, Figure)]) -> Report {
    let mut curve = curve(figures);
    let reach = l1_reach(&curve).unwrap_or(0);
    for point in &mut curve {
        point.region = region(point.bytes, reach, card.l2_bytes);
    }
    let clocks: Vec<f64> = figures
        .iter()
        .filter_map(|(_, figure)| match figure {
            Figure::Latency(_, mhz) => Some(*mhz),
            _ => None,
        })
        .collect();
    let peers = card.peers.iter().map(|peer| (Rung::Peer, Some(peer.device)));
    let others = Rung::ALL.into_iter().filter(|rung| *rung != Rung::Peer);
    let mut rungs: Vec<_> = others.map(|rung| (rung, None)).chain(peers).collect();
    rungs.sort_unstable();
    let mut levels: Vec<Level> = rungs.into_iter().map(|of| level(card, of, reach, figures)).collect();
    add_notes(card, &mut levels);
    Report {
        schema: SCHEMA.to_owned(),
        card: card.clone(),
        sm_mhz: median(&clocks).unwrap_or(0.0),
        levels,
        curve,
        spread: spread(figures),
        ..Report::default()
    }
}

fn curve(figures: &[(Step, Figure)]) -> Vec<Point> {
    let point = |(step, figure): &(Step, Figure)| match (step, figure) {
        (Step::Chase { of: Purpose::Curve, .. }, Figure::Latency(latency, _)) => Some(Point {
            bytes: latency.bytes,
            ns: latency.ns,
            cycles: latency.cycles,
            region: Region::Between,
        }),
        _ => None,
    };
    let mut points: Vec<Point> = figures.iter().filter_map(point).collect();
    points.sort_by_key(|point| point.bytes);
    points
}

fn spread(figures: &[(Step, Figure)]) -> Option<Spread> {
    let mut found = Spread::default();
    for (step, figure) in figures {
        if let (
            Step::Chase {
                of: Purpose::Spread, ..
            },
            Figure::Latency(latency, _),
        ) = (step, figure)
        {
            found.bytes = latency.bytes;
            found.by_sm.push((latency.sm, latency.ns));
        }
    }
    let ns: Vec<f64> = found.by_sm.iter().map(|(_, ns)| *ns).collect();
    (found.least_ns, found.most_ns) = range(&ns)?;
    found.median_ns = median(&ns)?;
    Some(found)
}

fn level(card: &Card, of: (Rung, Option<u32>), l1_reach: u64, figures: &[(Step, Figure)]) -> Level {
    let (rung, peer) = of;
    let known = |bytes: u64| (bytes > 0).then_some(bytes);
    let bytes_per_sm = match rung {
        Rung::Registers => known(card.register_bytes_per_sm),
        Rung::Shared => known(card.shared_bytes_per_sm),
        Rung::L1 => known(l1_reach),
        _ => None,
    };
    let bytes = match rung {
        Rung::L2Near | Rung::L2Far => known(card.l2_bytes),
        Rung::Device => known(card.memory_bytes),
        _ => bytes_per_sm.map(|bytes| bytes.saturating_mul(card.sms.into())),
    };
    let mut level = Level {
        rung,
        peer,
        bytes_per_sm,
        bytes,
        latency: None,
        other_latencies: Vec::new(),
        bandwidths: Vec::new(),
        note: String::new(),
        published: published(rung, card.compute_capability),
    };
    for (step, figure) in figures {
        if step.level() != Some(of) {
            continue;
        }
        let other = matches!(
            step,
            Step::Chase {
                of: Purpose::Other(_),
                ..
            }
        );
        match figure {
            Figure::Latency(latency, _) if other => level.other_latencies.push(latency.clone()),
            Figure::Latency(latency, _) => level.latency = Some(latency.clone()),
            Figure::Bandwidth(bandwidth) => level.bandwidths.push(bandwidth.clone()),
            Figure::Missing(why) => level.note.clone_from(why),
            Figure::Warm => {}
        }
    }
    level
}

/// Says why figures are missing, and what is to know about the others, where nothing is said yet.
fn add_notes(card: &Card, levels: &mut [Level]) {
    let ns = |rung| {
        let level = levels.iter().find(|level: &&Level| level.rung == rung)?;
        level.latency.as_ref().map(|latency| latency.ns)
    };
    let one_part = ns(Rung::L2Near)
        .zip(ns(Rung::L2Far))
        .is_some_and(|(near, far)| far <= near * ONE_PART);
    for level in levels.iter_mut().filter(|level| level.note.is_empty()) {
        let note = match level.rung {
            Rung::Registers => "Latency of a multiply-add whose operand is the result of the one before.",
            Rung::Shared if level.published.iter().any(|figure| figure.source == LUO) => {
                "The published figure includes index arithmetic, as the indexed load does."
            }
            Rung::L1 => "Size: the largest working set of the curve that L1 served.",
            Rung::L2Far if one_part => "As fast as the near part: this L2 shows no second step.",
            Rung::L2Far | Rung::L2Near | Rung::Device if level.latency.is_none() => {
                "Latency not measured: the budget does not hold the working set. Ask for more (--budget)."
            }
            Rung::Peer => {
                let peer = card.peers.iter().find(|peer| Some(peer.device) == level.peer);
                level.note = peer.map(link).unwrap_or_default();
                continue;
            }
            Rung::PageableHost => "No latency: kernels cannot reach it. The driver copies it through pinned memory.",
            Rung::Disk => "Not measured: a reference.",
            _ => continue,
        };
        note.clone_into(&mut level.note);
    }
}

/// Returns what the driver says of the link to a peer.
fn link(peer: &Peer) -> String {
    let rank = match peer.performance_rank {
        Some(rank) => format!("performance rank {rank} (0 is the fastest)"),
        None => "performance rank unknown".to_owned(),
    };
    let atomics = match peer.native_atomics {
        Some(true) => "native atomics, which NVLink has",
        Some(false) => "no native atomics, as over PCIe",
        None => "native atomics unknown",
    };
    format!("{}. The link: {rank}, {atomics}.", peer.name)
}
