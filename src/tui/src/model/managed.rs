//! Managed (unified) memory of processes: how much there is, where its pages are, and how they move.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use gpumem_probe::{BLOCK, BlockMoves, Counters, Events, PAGE, PARTS, Resident, Target, UvmPolicy};

use super::managed_published::{PublishedManaged, PublishedRange};
use super::map_layout::Extents;
use super::views::View;
use super::{Model, Nanos, SECOND};

/// Whether the driver's trackers may be attached to processes (`--uvm`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tracking {
    /// While the Unified view shows a process.
    #[default]
    Shown,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What the source of managed memory is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ManagedRequest {
    /// Every process that may have managed memory.
    pub processes: Vec<Target>,
    /// Whether the pages of a simulated device are shown, which its channel has.
    pub simulated: bool,
    /// The process whose pages are shown one by one.
    pub shown: Option<Target>,
    /// The processes whose counters are wanted.
    pub counted: Vec<Target>,
    /// Whether a view shows them.
    pub is_shown: bool,
    /// The process whose events are asked for: the shown one, or none.
    pub causes: Option<Target>,
}

/// A sample of managed memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct ManagedSample {
    /// The processes that were read.
    pub processes: BTreeMap<Target, ManagedProcess>,
    /// The driver's policy; `None` where its module is not loaded.
    pub policy: Option<UvmPolicy>,
    /// Why presence in the CPU's page table does not tell where a page is on this machine, if it does not.
    pub coherent: Option<Arc<str>>,
    /// Events of the process for which they were requested.
    pub causes: Option<(Target, Causes)>,
}

/// A process's managed memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ManagedProcess {
    /// Its size, or a message that says why it is not known.
    pub sums: Result<ManagedSums, String>,
    /// Where its pages are, of the process that is shown.
    pub pages: Option<Arc<Pages>>,
    /// Sums of its pages by place, as far as they are known.
    pub places: Places,
    /// The driver's counters.
    pub counting: Counting,
}

/// Sums over a process's managed ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ManagedSums {
    /// Ranges.
    pub ranges: usize,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Bytes that the CPU can reach; the rest is on a GPU, evicted to the host's memory, or was never touched.
    pub on_cpu: u64,
    /// What likely allocated it.
    pub origin: Origin,
}

/// What likely allocated managed memory, judged by the libraries that its program has loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Not known.
    #[default]
    Unknown,
    /// PyTorch is loaded, which does not use managed memory itself.
    PyTorch,
    /// bitsandbytes is loaded, whose paged optimizers use managed memory.
    PagedOptimizer,
}

impl ManagedSums {
    /// The most that can be on GPUs, in bytes.
    pub(crate) fn not_on_cpu(&self) -> u64 {
        self.bytes.saturating_sub(self.on_cpu)
    }

    /// The share that the CPU can reach, from 0 to 1; `None` where there is nothing.
    pub(crate) fn cpu_share(&self) -> Option<f64> {
        (self.bytes > 0).then(|| self.on_cpu as f64 / self.bytes as f64)
    }
}

/// Where the pages of a process were at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pages {
    /// When they were looked at.
    pub at: Nanos,
    /// Its ranges, in order.
    pub ranges: Vec<Resident>,
    /// Ranges that are not among them.
    pub left_out: usize,
}

impl Extents for Pages {
    const LEAST_CELL: u64 = PAGE;
    const CELL_STEP: u64 = PAGE;

    fn count(&self) -> usize {
        self.ranges.len()
    }

    fn extent(&self, index: usize) -> (u64, u64) {
        let range = self.ranges[index].range;
        (range.start, range.bytes())
    }
}

impl Pages {
    /// Returns the range that contains an address, else the next one, else the last.
    pub(crate) fn nearest(&self, addr: u64) -> Option<usize> {
        let behind = self.ranges.partition_point(|resident| resident.range.end <= addr);
        Some(behind.min(self.ranges.len().checked_sub(1)?))
    }

    /// Returns the bytes of the part `from..to` of a range, by place.
    pub(crate) fn places(&self, range: usize, (from, to): (u64, u64), causes: Option<&Causes>) -> Places {
        let Resident { range, spans } = &self.ranges[range];
        // A cell holds whole pages.
        let (from, to) = (from - from % PAGE, to.saturating_add(PAGE - 1) / PAGE * PAGE);
        let (from, to) = (from.max(range.start), to.min(range.end));
        if from >= to {
            return Places::default();
        }
        let present = |from: u64, to: u64| {
            let page = |addr: u64| ((addr - range.start) / PAGE) as u32;
            u64::from(spans.present_in(page(from)..page(to))) * PAGE
        };
        let cpu = present(from, to);
        let mut places = Places {
            cpu,
            elsewhere: to - from - cpu,
            ..Places::default()
        };
        let Some(known) = causes.and_then(Causes::known) else {
            return places;
        };
        let mut start = from - from % BLOCK;
        while start < to && places.elsewhere > 0 {
            let (begin, end) = (start.max(from), (start + BLOCK).min(to));
            if let Some(block) = known.block(start) {
                places.add(block, (begin, end), present);
            }
            start += BLOCK;
        }
        places
    }

    /// Sums up the bytes of all ranges by place.
    pub(crate) fn sums(&self, causes: Option<&Causes>) -> Places {
        (0..self.ranges.len()).fold(Places::default(), |sum, n| {
            let range = self.ranges[n].range;
            let places = self.places(n, (range.start, range.end), causes);
            Places {
                cpu: sum.cpu + places.cpu,
                gpu: sum.gpu + places.gpu,
                evicted: sum.evicted + places.evicted,
                prefetched: sum.prefetched + places.prefetched,
                elsewhere: sum.elsewhere + places.elsewhere,
            }
        })
    }
}

/// Bytes by place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    /// The CPU can reach them.
    pub cpu: u64,
    /// They went to a GPU and are not known to have left it.
    pub gpu: u64,
    /// Their last migration was an eviction to the host's memory.
    pub evicted: u64,
    /// Their last migration was a prefetch call to the CPU, which has not touched them since.
    pub prefetched: u64,
    /// On a GPU, in the host's memory, or never touched: not known.
    pub elsewhere: u64,
}

impl Places {
    /// Takes the bytes of a part of a block that the CPU cannot reach from those that are not known, by where they went last.
    fn add(&mut self, block: &BlockMoves, (begin, end): (u64, u64), present: impl Fn(u64, u64) -> u64) {
        let part = BLOCK / PARTS;
        let (first, last) = ((begin - block.start) / part, (end - 1 - block.start) / part);
        let nothing_present = present(begin, end) == 0;
        for n in first..=last {
            let (from, to) = (
                (block.start + n * part).max(begin),
                (block.start + (n + 1) * part).min(end),
            );
            let bytes = to - from - if nothing_present { 0 } else { present(from, to) };
            let bit = 1 << n;
            let place = match () {
                // A part that was mapped for the CPU and is not present any more has left it since.
                () if (block.on_gpu | block.mapped) & bit != 0 => &mut self.gpu,
                () if block.evicted & bit != 0 => &mut self.evicted,
                () if block.prefetched & bit != 0 => &mut self.prefetched,
                () => continue,
            };
            *place += bytes;
            self.elsewhere -= bytes;
        }
    }
}

/// The state of a process's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Counting {
    /// They are not attached.
    #[default]
    Off,
    /// They are being attached.
    Pending,
    /// What they counted since they were attached.
    On(Counters),
    /// They cannot be attached. The message says why, and which permission is missing.
    Refused(String),
}

/// Why memory of one process moved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Causes {
    /// The driver is asked to deliver events.
    #[default]
    Pending,
    /// What they said until now.
    On(Box<KnownCauses>),
    /// They are not delivered. The message says why.
    Refused(String),
}

/// What events said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownCauses {
    /// Sums, blocks and processors.
    pub events: Events,
    /// Index of each block in `events.blocks`, by its first address.
    places: HashMap<u64, usize>,
}

impl KnownCauses {
    /// Indexes the blocks of `events`.
    pub(crate) fn new(events: Events) -> KnownCauses {
        let places = events
            .blocks
            .iter()
            .enumerate()
            .map(|(n, block)| (block.start, n))
            .collect();
        KnownCauses { events, places }
    }

    /// Returns the bytes whose last migration was an eviction.
    pub(crate) fn evicted_bytes(&self) -> u64 {
        let parts = self
            .events
            .blocks
            .iter()
            .map(|block| u64::from(block.evicted.count_ones()));
        parts.sum::<u64>() * (BLOCK / PARTS)
    }

    /// The block that begins at an address.
    pub(crate) fn block(&self, start: u64) -> Option<&BlockMoves> {
        self.events.blocks.get(*self.places.get(&start)?)
    }
}

impl Causes {
    /// What is known, once anything is.
    pub(crate) fn known(&self) -> Option<&KnownCauses> {
        match self {
            Causes::On(known) => Some(known),
            Causes::Pending | Causes::Refused(_) => None,
        }
    }
}

/// Points of counters that are kept of a process: a minute at four a second.
const MOST_POINTS: usize = 240;
/// The time over which a rate is taken.
const WINDOW: Nanos = SECOND;

/// Bytes that move within a second in a burst of migrations.
const BURST: u64 = 64 << 20;

/// The past of a process's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CounterHistory {
    points: VecDeque<(Nanos, Counters)>,
    /// Whether a burst of migrations goes on.
    moving: bool,
}

/// Bytes and faults a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    /// Bytes to GPUs.
    pub to_gpu: f64,
    /// Bytes to the CPU.
    pub to_cpu: f64,
    /// Faults of the CPU.
    pub cpu_faults: f64,
    /// Faults of GPUs.
    pub gpu_faults: f64,
}

impl CounterHistory {
    /// Adds what was counted at a moment. Returns the bytes a second if a burst of migrations began. Counters that shrink are
    /// another tracker's, and begin anew.
    pub(crate) fn push(&mut self, at: Nanos, counters: Counters) -> Option<u64> {
        if let Some((last, before)) = self.points.back() {
            let shrank = counters.to_gpu < before.to_gpu
                || counters.to_cpu < before.to_cpu
                || counters.cpu_faults < before.cpu_faults
                || counters.gpu_faults < before.gpu_faults;
            if shrank {
                self.points.clear();
            } else if at <= *last {
                return None;
            }
        }
        if self.points.len() == MOST_POINTS {
            self.points.pop_front();
        }
        self.points.push_back((at, counters));
        // A rate, because two points can be further apart than a second.
        let rates = self.rates()?;
        let bytes = (rates.to_gpu + rates.to_cpu) as u64;
        let was_moving = self.moving;
        // A burst ends only when little moves, so that one that stutters is one.
        self.moving = bytes >= if was_moving { BURST / 8 } else { BURST };
        (self.moving && !was_moving).then_some(bytes)
    }

    /// Rates over the newest second; `None` before there are two points.
    pub(crate) fn rates(&self) -> Option<Rates> {
        let &(now, newest) = self.points.back()?;
        let old = self.points.iter().rev().skip(1);
        let since = old.clone().find(|(at, _)| now - at >= WINDOW).or(old.last())?;
        Some(between(*since, (now, newest)))
    }

    /// What was counted within so long, and over how long that really is.
    pub(crate) fn within(&self, time: Nanos) -> Option<(Nanos, Counters)> {
        let &(now, newest) = self.points.back()?;
        let &(then, oldest) = self.points.iter().find(|(at, _)| now - at <= time)?;
        Some((now - then, difference(oldest, newest)))
    }

    /// Rates between each two points, with the time of the later one, oldest first.
    pub(crate) fn steps(&self) -> impl DoubleEndedIterator<Item = (Nanos, Rates)> {
        let later = self.points.iter().skip(1);
        self.points.iter().zip(later).map(|(a, b)| (b.0, between(*a, *b)))
    }
}

fn difference(old: Counters, new: Counters) -> Counters {
    Counters {
        to_gpu: new.to_gpu.saturating_sub(old.to_gpu),
        to_cpu: new.to_cpu.saturating_sub(old.to_cpu),
        cpu_faults: new.cpu_faults.saturating_sub(old.cpu_faults),
        gpu_faults: new.gpu_faults.saturating_sub(old.gpu_faults),
    }
}

fn between((then, old): (Nanos, Counters), (now, new): (Nanos, Counters)) -> Rates {
    let seconds = now.saturating_sub(then).max(1) as f64 / SECOND as f64;
    let moved = difference(old, new);
    Rates {
        to_gpu: moved.to_gpu as f64 / seconds,
        to_cpu: moved.to_cpu as f64 / seconds,
        cpu_faults: moved.cpu_faults as f64 / seconds,
        gpu_faults: moved.gpu_faults as f64 / seconds,
    }
}

/// Everything known of managed memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct ManagedWorld {
    /// The newest sample.
    pub sample: ManagedSample,
    /// What processes publish of their managed memory.
    pub published: BTreeMap<Target, PublishedManaged>,
    /// The past of counters that are attached, and of simulated devices.
    pub past: BTreeMap<Target, CounterHistory>,
}

impl ManagedWorld {
    /// Takes a sample from `at`. The past of counters that are not attached any more is forgotten. Returns the processes in which a
    /// burst of migrations began, with its bytes.
    pub(crate) fn take(&mut self, at: Nanos, sample: ManagedSample) -> Vec<(Target, u64)> {
        let mut began = Vec::new();
        let published = &self.published;
        self.past.retain(|target, _| {
            let process = sample.processes.get(target).or_else(|| simulated(published, target));
            process.is_some_and(|process| matches!(process.counting, Counting::On(_)))
        });
        for (target, process) in &sample.processes {
            if let Counting::On(counters) = process.counting {
                let past = self.past.entry(*target).or_default();
                began.extend(past.push(at, counters).map(|bytes| (*target, bytes)));
            }
        }
        self.sample = sample;
        began
    }

    /// Takes what processes publish now. Counters of simulated devices are continued.
    pub(crate) fn publish(&mut self, at: Nanos, published: BTreeMap<Target, PublishedManaged>) {
        for (target, its) in &published {
            if let Some((process, _)) = &its.simulated
                && let Counting::On(counters) = process.counting
            {
                // A burst of a model is no news on the timeline: its demo marks its steps there.
                let _ = self.past.entry(*target).or_default().push(at, counters);
            }
        }
        let gone = |target: &Target| self.is_simulated(*target) && !published.contains_key(target);
        let gone: Vec<Target> = self.published.keys().copied().filter(gone).collect();
        self.past.retain(|target, _| !gone.contains(target));
        self.published = published;
    }

    /// Checks whether the memory of a process is known only because its device is simulated.
    pub(crate) fn is_simulated(&self, target: Target) -> bool {
        !self.sample.processes.contains_key(&target) && simulated(&self.published, &target).is_some()
    }

    /// The managed memory of a process: as it was observed, or as its simulated device has it.
    pub(crate) fn process(&self, target: Target) -> Option<&ManagedProcess> {
        let observed = self.sample.processes.get(&target);
        observed.or_else(|| simulated(&self.published, &target))
    }

    /// All processes whose managed memory was looked at, and those of simulated devices.
    fn processes(&self) -> impl Iterator<Item = (&Target, &ManagedProcess)> {
        let observed = &self.sample.processes;
        let simulated = self.published.iter().filter_map(|(target, its)| {
            let (process, _) = its.simulated.as_ref()?;
            (!observed.contains_key(target)).then_some((target, process))
        });
        observed.iter().chain(simulated)
    }

    /// The processes that have managed memory.
    pub(crate) fn with_memory(&self) -> impl Iterator<Item = (&Target, &ManagedProcess, ManagedSums)> {
        self.processes().filter_map(|(target, process)| {
            let sums = *process.sums.as_ref().ok()?;
            (sums.bytes > 0).then_some((target, process, sums))
        })
    }

    /// The process of a pid, if it was looked at or publishes.
    pub(crate) fn of_pid(&self, pid: u32) -> Option<(&Target, &ManagedProcess)> {
        let from = Target { pid, start_time: 0 };
        let observed = self.sample.processes.range(from..).next();
        let observed = observed.filter(|(target, _)| target.pid == pid);
        observed.or_else(|| {
            let published = self.published.range(from..).next();
            let (target, its) = published.filter(|(target, _)| target.pid == pid)?;
            Some((target, &its.simulated.as_ref()?.0))
        })
    }

    /// The causes that are known of a process.
    pub(crate) fn causes_of(&self, target: Target) -> Option<&Causes> {
        if self.is_simulated(target) {
            let (_, causes) = self.published.get(&target)?.simulated.as_ref()?;
            return Some(causes);
        }
        let (of, causes) = self.sample.causes.as_ref()?;
        (*of == target).then_some(causes)
    }

    /// The published range of a process that contains an address.
    pub(crate) fn published_range(&self, pid: u32, addr: u64) -> Option<&PublishedRange> {
        let from = Target { pid, start_time: 0 };
        let mut its = self.published.range(from..).take_while(|(target, _)| target.pid == pid);
        its.find_map(|(_, published)| published.range_of(addr))
    }
}

fn simulated<'a>(published: &'a BTreeMap<Target, PublishedManaged>, target: &Target) -> Option<&'a ManagedProcess> {
    let (process, _) = published.get(target)?.simulated.as_ref()?;
    Some(process)
}

impl Model {
    /// Returns the process that the Unified view shows: the selected one, if it has managed memory and no list is asked for.
    pub(crate) fn managed_selected(&self) -> Option<Target> {
        if self.ui.unified.list {
            return None;
        }
        let (target, process) = self.world().managed.of_pid(self.selected_process()?.pid)?;
        let sums = process.sums.as_ref().ok()?;
        (sums.bytes > 0).then_some(*target)
    }

    /// Returns the running demo as a process with managed memory, if it is one.
    pub(crate) fn managed_demo(&self) -> Option<Target> {
        let (target, process) = self.world().managed.of_pid(self.demo.as_ref()?.pid?)?;
        let sums = process.sums.as_ref().ok()?;
        (sums.bytes > 0).then_some(*target)
    }

    /// Returns what is asked of the source of managed memory.
    pub(crate) fn managed_request(&self) -> ManagedRequest {
        let world = &self.live;
        let started: HashMap<u32, u64> = self.inputs.processes.iter().map(|p| (p.pid, p.start_time)).collect();
        let living = world.processes.iter().filter(|p| p.state.alive() && !p.simulated);
        let mut processes: Vec<Target> = living
            .filter_map(|p| {
                Some(Target {
                    pid: p.pid,
                    start_time: *started.get(&p.pid)?,
                })
            })
            .collect();
        processes.sort_unstable();
        processes.dedup();
        let observed = |target: &Target| !world.managed.is_simulated(*target);
        let managed = || {
            let with_memory = world.managed.with_memory().map(|(target, ..)| *target);
            with_memory.filter(observed).collect()
        };
        let open = self.ui.view == View::Unified;
        // The Demo view draws the map of its demo.
        let on_screen = match self.ui.view {
            View::Unified => self.managed_selected(),
            View::Demo => self.managed_demo(),
            _ => None,
        };
        let shown = on_screen.filter(observed);
        let counted = match (self.setup.tracking, open, on_screen) {
            (Tracking::Always, ..) | (Tracking::Shown, true, None) => managed(),
            (Tracking::Shown, true, Some(_)) => shown.into_iter().collect(),
            (Tracking::Shown, false, _) | (Tracking::Never, ..) => Vec::new(),
        };
        ManagedRequest {
            processes,
            simulated: on_screen.is_some() && shown.is_none(),
            shown,
            counted,
            is_shown: open,
            // Events slow a process down, so they are only requested while they are on the screen.
            causes: self.ui.unified.causes.filter(|causes| shown == Some(*causes)),
        }
    }
}
