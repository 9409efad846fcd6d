//! Performs the steps of the plan on a device.

use super::Watch;
use super::arithmetic::{gb_per_s, median, mhz, per_hop, range};
use super::plan::SAMPLES;
use super::report::{Bandwidth, Latency, Rung};
use super::ring::{random_cycle, walk};
use super::step::{Purpose, Step, nodes};
use crate::bench::error::{BenchError, Stop};
use crate::rig::{Chase, Clocks, LINE, Moved, Place, Rig, RigError, Stream};

/// The seed of the rings' order: each run measures the same one.
const SEED: u64 = 1;
/// Loads of a launch that only warms.
const WARM_HOPS: u32 = 1 << 16;
/// Working sets beyond this are in no L1: the largest has 256 KiB.
const MOST_L1: u64 = 1 << 20;
/// Launches that bring the clocks up: a few hundred milliseconds of full load.
const WARM_LAUNCHES: u32 = 300;

/// What a step gives.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Figure {
    /// Nothing: it only warmed.
    Warm,
    /// A latency, and the SM's clock in MHz meanwhile.
    Latency(Latency, f64),
    /// A bandwidth.
    Bandwidth(Bandwidth),
    /// It could not be measured, and why. The rest can.
    Missing(String),
}

/// Performs steps on a device.
pub(super) struct Bench<'a> {
    rig: &'a mut dyn Rig,
    /// The ring that was laid last: where it is, and its order.
    ring: Option<(Place, Vec<u32>)>,
}

impl<'a> Bench<'a> {
    pub(super) fn new(rig: &'a mut dyn Rig) -> Bench<'a> {
        Bench { rig, ring: None }
    }

    /// Performs one step. Asks `watch` before every call of the device whether to go on.
    pub(super) fn perform(&mut self, step: Step, watch: &dyn Watch) -> Result<Figure, Stop> {
        match step {
            Step::WarmUp => self.warm_up(watch),
            Step::Chain { steps } => self.chain(steps, watch),
            Step::Chase {
                of,
                place,
                load,
                bytes,
                hops,
                sm,
            } => {
                let done = self.chase(
                    place,
                    bytes,
                    Chase {
                        from: 0,
                        warm: warm_hops(place, bytes),
                        hops,
                        load,
                        sm,
                    },
                    watch,
                );
                optional(done, matches!(of, Purpose::Level(Rung::Peer | Rung::PinnedHost)))
            }
            Step::Stream { what, stream, .. } => {
                self.bandwidth(what, working_set(stream), |rig| rig.stream(stream), watch)
            }
            Step::Copy {
                rung,
                what,
                route,
                bytes,
            } => {
                let done = self.bandwidth(what, bytes, |rig| rig.copy(route, bytes), watch);
                optional(done, rung != Rung::Device)
            }
        }
    }

    fn warm_up(&mut self, watch: &dyn Watch) -> Result<Figure, Stop> {
        for _ in 0..WARM_LAUNCHES {
            watch.go_on()?;
            self.rig.stream(Stream::Registers(1 << 13))?;
        }
        Ok(Figure::Warm)
    }

    fn chain(&mut self, steps: u32, watch: &dyn Watch) -> Result<Figure, Stop> {
        let mut samples = Vec::new();
        for _ in 0..SAMPLES {
            watch.go_on()?;
            samples.push(self.rig.chain(steps)?);
        }
        let latency = Latency {
            order: "dependent chain".to_owned(),
            load: "fma.rn.f32".to_owned(),
            hops: steps,
            ..Latency::default()
        };
        in_figures(&samples, latency)
    }

    fn chase(&mut self, place: Place, bytes: u64, chase: Chase, watch: &dyn Watch) -> Result<Figure, Stop> {
        let next = self.lay(place, bytes, watch)?;
        let launches = warm_launches(place, next.len(), self.rig.card().l2_bytes);
        let mut from = 0;
        let mut samples = Vec::new();
        let mut ran_on = 0;
        for launch in 0..launches + SAMPLES {
            watch.go_on()?;
            let counts = launch >= launches;
            let chase = Chase {
                from,
                hops: if counts { chase.hops } else { WARM_HOPS },
                ..chase
            };
            let chased = self.rig.chase(chase)?;
            let expected = walk(&next, from, chase.warm.saturating_add(chase.hops));
            if expected != Some(chased.end) {
                let why = format!("a pointer chase ended at node {}, not {expected:?}", chased.end);
                return Err(BenchError::Device(why).into());
            }
            // A chase in shared memory brings its ring with it, and always begins at its first node.
            from = if place == Place::Shared { 0 } else { chased.end };
            if counts {
                samples.push(chased.clocks);
                ran_on = chased.sm;
            }
        }
        self.ring = Some((place, next));
        let latency = Latency {
            order: "random cycle".to_owned(),
            load: chase.load.name().to_owned(),
            hops: chase.hops,
            bytes,
            stride: place.stride(),
            sm: ran_on,
            ..Latency::default()
        };
        in_figures(&samples, latency)
    }

    /// Lays a ring, unless it is there, and returns its order.
    fn lay(&mut self, place: Place, bytes: u64, watch: &dyn Watch) -> Result<Vec<u32>, Stop> {
        let nodes = nodes(place, bytes);
        match self.ring.take() {
            Some((there, next)) if there == place && u32::try_from(next.len()) == Ok(nodes) => Ok(next),
            _ => {
                watch.go_on()?;
                let next = random_cycle(nodes, SEED);
                watch.go_on()?;
                self.rig.lay(place, &next)?;
                Ok(next)
            }
        }
    }

    fn bandwidth(
        &mut self,
        what: &str,
        bytes: u64,
        mut run: impl FnMut(&mut dyn Rig) -> Result<Moved, RigError>,
        watch: &dyn Watch,
    ) -> Result<Figure, Stop> {
        // Kernels and copies overwrite the ring.
        self.ring = None;
        let mut samples = Vec::new();
        // The first one warms.
        for sample in 0..=SAMPLES {
            watch.go_on()?;
            let moved = run(self.rig)?;
            if sample > 0 {
                samples.push(moved);
            }
        }
        let rates: Vec<f64> = samples.iter().filter_map(|moved| gb_per_s(*moved)).collect();
        let (Some((_, best)), Some(middle)) = (range(&rates), median(&rates)) else {
            return Err(BenchError::Device("the device's clock stands still".to_owned()).into());
        };
        let sms = f64::from(self.rig.card().sms);
        let clocks: Vec<f64> = samples.iter().filter_map(|moved| mhz(moved.clocks?)).collect();
        Ok(Figure::Bandwidth(Bandwidth {
            what: what.to_owned(),
            gb_per_s: best,
            median_gb_per_s: middle,
            samples: SAMPLES,
            bytes,
            per_cycle_and_sm: median(&clocks).map(|mhz| middle / sms / mhz * 1e3),
        }))
    }
}

/// Returns how many loads warm L1 in each launch: each node of a working set that could fit into it once.
fn warm_hops(place: Place, bytes: u64) -> u32 {
    match place {
        Place::Device if bytes <= MOST_L1 => nodes(place, bytes).next_multiple_of(16),
        Place::Device => 16,
        Place::Shared | Place::Peer(_) | Place::PinnedHost => 0,
    }
}

/// Returns how many launches warm the caches before anything counts: they load each node once, or as many as L2 has lines.
fn warm_launches(place: Place, nodes: usize, l2_bytes: u64) -> u32 {
    let lines = l2_bytes / u64::from(LINE);
    match place {
        Place::Device => {
            let hops = lines.saturating_add(lines / 4).min(nodes as u64);
            u32::try_from(hops.div_ceil(WARM_HOPS.into())).unwrap_or(u32::MAX - SAMPLES)
        }
        Place::Shared | Place::Peer(_) | Place::PinnedHost => 0,
    }
}

fn working_set(stream: Stream) -> u64 {
    match stream {
        Stream::Registers(_) => 0,
        Stream::Shared(_) | Stream::L1(_) => 64 << 10,
        Stream::Read { bytes, .. } | Stream::Write { bytes } | Stream::Copy { bytes } => bytes,
    }
}

fn in_figures(samples: &[Clocks], latency: Latency) -> Result<Figure, Stop> {
    let hops: Vec<(f64, f64)> = samples
        .iter()
        .filter_map(|clocks| per_hop(*clocks, latency.hops))
        .collect();
    let cycles: Vec<f64> = hops.iter().map(|(cycles, _)| *cycles).collect();
    let ns: Vec<f64> = hops.iter().map(|(_, ns)| *ns).collect();
    let clocks: Vec<f64> = samples.iter().filter_map(|clocks| mhz(*clocks)).collect();
    let found = median(&cycles).zip(median(&ns)).zip(range(&ns)).zip(median(&clocks));
    let Some((((cycles, ns), (least_ns, most_ns)), mhz)) = found else {
        return Err(BenchError::Device("the device's clock stands still".to_owned()).into());
    };
    let latency = Latency {
        cycles,
        ns,
        least_ns,
        most_ns,
        samples: SAMPLES,
        ..latency
    };
    Ok(Figure::Latency(latency, mhz))
}

/// Turns an error of the device into a missing figure, if the rest can be measured without it.
fn optional(done: Result<Figure, Stop>, optional: bool) -> Result<Figure, Stop> {
    match done {
        Err(Stop::Error(BenchError::Device(why))) if optional => Ok(Figure::Missing(why)),
        done => done,
    }
}
