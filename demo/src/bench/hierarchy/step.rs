//! A step of the plan.

use gpumem_text::units::bytes_to_pib;

use super::plan::SAMPLES;
use super::report::Rung;
use crate::rig::{LINE, Load, Place, Route, Stream};

/// A measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    /// Brings the clocks up. No figure.
    WarmUp,
    /// Latency of registers.
    Chain {
        /// Multiply-adds of a sample.
        steps: u32,
    },
    /// Latency by pointer chase.
    Chase {
        /// What the figure is for.
        of: Purpose,
        /// Where the ring is.
        place: Place,
        /// The load.
        load: Load,
        /// Working set.
        bytes: u64,
        /// Loads of a sample.
        hops: u32,
        /// The SM to run on, if it matters.
        sm: Option<u32>,
    },
    /// Bandwidth of a kernel.
    Stream {
        /// The level.
        rung: Rung,
        /// What it does, as [`super::report::Bandwidth::what`] has it.
        what: &'static str,
        /// The kernel.
        stream: Stream,
    },
    /// Bandwidth of the driver's copy.
    Copy {
        /// The level.
        rung: Rung,
        /// As in `Stream`.
        what: &'static str,
        /// Between which memories.
        route: Route,
        /// How much.
        bytes: u64,
    },
}

/// What a latency is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A level's own figure.
    Level(Rung),
    /// A level's figure by another method.
    Other(Rung),
    /// A point of the curve.
    Curve,
    /// An SM of the spread.
    Spread,
}

impl Step {
    /// Returns the level that the figure is of, with the number of a peer. `None` for steps of the curve and the spread.
    pub(super) fn level(self) -> Option<(Rung, Option<u32>)> {
        match self {
            Step::WarmUp => None,
            Step::Chain { .. } => Some((Rung::Registers, None)),
            Step::Chase { of, place, .. } => match (of, place) {
                (Purpose::Level(rung) | Purpose::Other(rung), Place::Peer(number)) => Some((rung, Some(number))),
                (Purpose::Level(rung) | Purpose::Other(rung), _) => Some((rung, None)),
                (Purpose::Curve | Purpose::Spread, _) => None,
            },
            Step::Stream { rung, .. } => Some((rung, None)),
            Step::Copy { rung, route, .. } => match route {
                Route::PeerToDevice(number) | Route::DeviceToPeer(number) => Some((rung, Some(number))),
                _ => Some((rung, None)),
            },
        }
    }

    /// Returns a rough guess of how long the step takes, in milliseconds, for the estimate of the time left.
    pub(super) fn guess_ms(self) -> u64 {
        match self {
            Step::WarmUp => 300,
            Step::Chain { .. } => 20,
            Step::Chase { place, bytes, hops, .. } => {
                let (ns, warm) = match place {
                    Place::Shared => (15, 0),
                    Place::Device if bytes <= 4 << 20 => (100, bytes / u64::from(LINE)),
                    Place::Device => (400, (bytes / u64::from(LINE)).min(500_000)),
                    Place::Peer(_) | Place::PinnedHost => (1500, 0),
                };
                let laying = bytes / u64::from(place.stride()) * 40;
                (laying + ns * (warm + u64::from(SAMPLES) * u64::from(hops))) / 1_000_000
            }
            Step::Stream { .. } => 10,
            Step::Copy { .. } => 60,
        }
    }

    /// Returns what is being measured, for people.
    pub(super) fn title(self) -> String {
        let level = || self.level().map(|(rung, peer)| rung.title_of(peer)).unwrap_or_default();
        match self {
            Step::WarmUp => "bringing the clocks up".to_owned(),
            Step::Chase {
                of: Purpose::Curve,
                bytes,
                ..
            } => format!("latency of {}", bytes_to_pib(bytes)),
            Step::Chase {
                of: Purpose::Spread,
                sm,
                ..
            } => format!("latency of L2 on SM {}", sm.unwrap_or_default()),
            Step::Chain { .. } | Step::Chase { .. } => format!("latency of {}", level()),
            Step::Stream { what, .. } | Step::Copy { what, .. } => format!("bandwidth of {}, {what}", level()),
        }
    }
}

/// Nodes of a working set.
pub(super) fn nodes(place: Place, bytes: u64) -> u32 {
    u32::try_from(bytes / u64::from(place.stride())).unwrap_or(u32::MAX)
}
