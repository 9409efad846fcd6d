//! Samples managed memory: the ranges and pages of processes, and the driver's counters of those that are shown.
//!
//! Looking at pages takes time in proportion to the memory and the number of mappings. All processes together are looked at
//! no more often than costs a 600th of a core, and the one whose pages are shown as often as costs a fiftieth.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpumem_probe::{Facts, ManagedMemory, PtraceScope, Root, Target, UvmPolicy, UvmSupport, UvmWatch, Watching};

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::{Requests, Source};
use crate::check::{Check, Verdict, good, not};
use crate::clock;
use crate::model::{
    Causes, Counting, Inputs, KnownCauses, ManagedProcess, ManagedRequest, ManagedSample, ManagedSums, Model, Nanos,
    Origin, Pages, Places, Request, Sample,
};

/// How often counters are read while a view shows them.
const COUNTED: Duration = Duration::from_millis(250);
/// How often the policy is read.
const POLICY: Nanos = 10_000_000_000;
/// How long a process is left alone between two readings, as a multiple of the time that one took times the number of processes.
const REST: u32 = 600;
/// The same for a process without managed memory. Most never have any.
const REST_EMPTY: u32 = 2000;
/// The multiple for a process whose pages are shown. The number of processes does not matter for it.
const REST_SHOWN: u32 = 50;

/// The folder that stands for `/` for the driver's files.
pub(crate) fn driver_root() -> Root {
    let named = std::env::var_os("GPUMEM_UVM").filter(|path| !path.is_empty());
    named.map_or_else(Root::default, Root::at)
}

/// Runs this program again, even if its file was replaced meanwhile.
fn helper() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg("uvm-helper");
    command
}

/// The processes' managed memory.
pub(super) struct Managed {
    root: Root,
    memory: ManagedMemory,
    watch: UvmWatch,
    asked: ManagedRequest,
    known: BTreeMap<Target, Known>,
    policy: (Nanos, Option<UvmPolicy>),
    coherent: Option<Arc<str>>,
}

/// The last result for a process, and when to read it again.
struct Known {
    process: ManagedProcess,
    due: Instant,
}

impl Default for Managed {
    fn default() -> Self {
        let root = driver_root();
        Managed {
            memory: ManagedMemory::new(root.clone()),
            watch: UvmWatch::new(helper),
            asked: ManagedRequest::default(),
            known: BTreeMap::new(),
            policy: (0, None),
            coherent: UvmSupport::look(&root).coherent.map(Arc::from),
            root,
        }
    }
}

impl Source for Managed {
    fn name(&self) -> &'static str {
        "uvm"
    }

    fn sample(&mut self, request: &Request) -> Sample {
        let asked = request.managed.clone();
        let now = clock::now();
        if self.policy.1.is_none() || now.saturating_sub(self.policy.0) > POLICY {
            self.policy = (now, UvmPolicy::read(&self.root));
        }
        self.known.retain(|target, _| asked.processes.contains(target));
        for &target in &asked.processes {
            let shown = asked.shown == Some(target);
            let stale = |known: &Known| known.due <= Instant::now() || (shown && known.process.pages.is_none());
            if self.known.get(&target).is_none_or(stale) {
                let known = self.look(target, shown, asked.processes.len() as u32);
                self.known.insert(target, known);
            }
        }
        self.watch.set(&asked.counted, asked.causes);
        self.watch.wait(Duration::ZERO);
        let mut processes = BTreeMap::new();
        for (target, known) in &mut self.known {
            known.process.counting = counting(&self.watch, *target);
            if asked.shown != Some(*target) {
                known.process.pages = None;
            }
            processes.insert(*target, known.process.clone());
        }
        let causes = self.causes();
        for (target, process) in &mut processes {
            let its = causes.as_ref().filter(|(of, _)| of == target).map(|(_, causes)| causes);
            process.places = process.pages.as_ref().map(|pages| pages.sums(its)).unwrap_or_default();
        }
        self.asked = asked;
        Sample::Managed(ManagedSample {
            processes,
            policy: self.policy.1,
            coherent: self.coherent.clone(),
            causes,
        })
    }

    fn checks(&self, facts: &Facts, _: &Inputs) -> Vec<Check> {
        vec![check(facts, &UvmSupport::look(&self.root))]
    }

    fn json(&self, model: &Model) -> serde_json::Result<Option<Box<RawValue>>> {
        let policy = model.world().managed.sample.policy;
        let known = policy.unwrap_or_default();
        to_raw_value(&Json {
            loaded: policy.is_some(),
            prefetch: known.prefetch,
            prefetch_threshold_percent: known.prefetch_threshold,
            thrashing_detection: known.thrashing,
            access_counter_migration: known.access_counters,
            hmm: known.hmm_disabled.map(|off| !off),
            ats: known.ats,
        })
        .map(Some)
    }

    fn wait(&mut self, pace: Duration, requests: &Requests) -> bool {
        let unlike = |asked: &ManagedRequest, request: &Request| request.managed != *asked;
        if self.asked.counted.is_empty() && self.asked.causes.is_none() {
            let pace = if self.asked.shown.is_some() {
                COUNTED.min(pace)
            } else {
                pace
            };
            requests.sleep_unless(pace, |request| unlike(&self.asked, request));
            return true;
        }
        // Trackers are open. This notices the end of their processes, and checks for new requests in between.
        let until = Instant::now() + if self.asked.is_shown { COUNTED.min(pace) } else { pace };
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || unlike(&self.asked, &requests.newest()) {
                return true;
            }
            self.watch.wait(left.min(COUNTED));
        }
    }
}

/// What `doctor` says: whether page locations, counters and causes can be seen.
fn check(facts: &Facts, support: &UvmSupport) -> Check {
    let name = "unified";
    if facts.driver_module.is_err() {
        return not(
            name,
            Verdict::NoGpu,
            "managed memory is not watched without a driver",
            "it appears with the driver; gpumem-tui demo shows what a simulated device can",
        );
    }
    if let Some(why) = &support.coherent {
        let todo =
            "the map of view 5 tells pages apart only where GPU memory is not the host's; counters work all the same";
        return not(name, Verdict::Note, why, todo);
    }
    let root = rustix::process::geteuid().is_root();
    let allowed = root
        || facts
            .capabilities
            .as_ref()
            .is_ok_and(|capabilities| capabilities.sys_ptrace);
    let restricted = !allowed && !matches!(facts.ptrace_scope, Ok(PtraceScope::NoYama | PtraceScope::Classic));
    match (&support.interface, &support.tools) {
        (Err(why), _) => not(
            name,
            Verdict::Note,
            format!("pages can be located; migrations cannot be counted: {why}"),
            "a newer gpumem-tui may know this driver",
        ),
        (_, Err(why)) => not(
            name,
            Verdict::Note,
            "pages can be located; migrations cannot be counted",
            why,
        ),
        _ if restricted => not(
            name,
            Verdict::Note,
            "pages of your own processes can be located; counters need the right to trace them (Yama)",
            "run gpumem-tui as root, or sudo sysctl kernel.yama.ptrace_scope=0",
        ),
        (Ok(version), _) => good(
            name,
            format!("pages can be located, migrations counted (interface of driver {version})"),
        ),
    }
}

/// The source's field of the JSON document, which `JSON.md` describes.
#[derive(Serialize)]
struct Json {
    loaded: bool,
    prefetch: Option<bool>,
    prefetch_threshold_percent: Option<u64>,
    thrashing_detection: Option<bool>,
    access_counter_migration: Option<i64>,
    hmm: Option<bool>,
    ats: Option<bool>,
}

impl Managed {
    fn look(&mut self, target: Target, shown: bool, processes: u32) -> Known {
        let began = Instant::now();
        let (sums, pages) = match self.pages(target) {
            Ok((pages, origin)) => (Ok(sums(&pages, origin)), Some(Arc::new(pages)).filter(|_| shown)),
            Err(why) => (Err(why), None),
        };
        let took = began.elapsed();
        let rest = match &sums {
            _ if shown => REST_SHOWN,
            Ok(sums) if sums.ranges > 0 => REST.saturating_mul(processes),
            _ => REST_EMPTY.saturating_mul(processes),
        };
        Known {
            process: ManagedProcess {
                sums,
                pages,
                places: Places::default(),
                counting: Counting::Off,
            },
            due: Instant::now() + took.saturating_mul(rest),
        }
    }

    fn pages(&mut self, target: Target) -> Result<(Pages, Origin), String> {
        let denied = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::PermissionDenied => {
                "it is another user's, or protected: run gpumem-tui as root".to_owned()
            }
            _ => format!("its memory map cannot be read: {e}"),
        };
        let map = self.memory.map(target.pid).map_err(denied)?;
        let at = clock::now();
        let ranges = match map.ranges.is_empty() {
            true => Vec::new(),
            false => self.memory.residency(target.pid, &map.ranges).map_err(denied)?,
        };
        let origin = match (map.pytorch, map.bitsandbytes) {
            (_, true) => Origin::PagedOptimizer,
            (true, false) => Origin::PyTorch,
            (false, false) => Origin::Unknown,
        };
        let pages = Pages {
            at,
            ranges,
            left_out: map.left_out,
        };
        Ok((pages, origin))
    }

    fn causes(&self) -> Option<(Target, Causes)> {
        let (target, state) = self.watch.events_state()?;
        let causes = match state {
            Watching::Pending => Causes::Pending,
            Watching::Off(why) => Causes::Refused(why.clone()),
            Watching::On => match self.watch.events() {
                Some(events) => Causes::On(Box::new(KnownCauses::new(events))),
                None => Causes::Pending,
            },
        };
        Some((target, causes))
    }
}

fn counting(watch: &UvmWatch, target: Target) -> Counting {
    match watch.state(target) {
        None => Counting::Off,
        Some(Watching::Pending) => Counting::Pending,
        Some(Watching::Off(why)) => Counting::Refused(why.clone()),
        Some(Watching::On) => watch.counters(target).map_or(Counting::Pending, Counting::On),
    }
}

fn sums(pages: &Pages, origin: Origin) -> ManagedSums {
    let ranges = &pages.ranges;
    ManagedSums {
        origin,
        ranges: ranges.len() + pages.left_out,
        bytes: ranges.iter().fold(0, |sum: u64, r| sum.saturating_add(r.range.bytes())),
        on_cpu: ranges
            .iter()
            .map(|r| u64::from(r.spans.present()) * gpumem_probe::PAGE)
            .sum(),
    }
}
