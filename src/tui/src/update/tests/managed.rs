//! Managed memory: its part of devices and processes, its findings, and the Unified view's keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpumem_channel::{
    DeviceKind, Life, Managed, ManagedBlock, ManagedCounters, ManagedFigures, ManagedRange as ManagedChannelRange,
};
use gpumem_probe::{BLOCK, BlockMoves, Counters, Events, ManagedRange, Reading, Resident, Spans, Target};

use super::sample::*;
use crate::event::{Event, Key};
use crate::model::*;
use crate::update::update;

const TARGET: Target = Target { pid: 99, start_time: 7 };
const START: u64 = 0x7f00_0000_0000;

/// Managed memory of process 99 at this time: `bytes`, a quarter of it on the CPU.
fn managed(at: Nanos, bytes: u64, counting: Counting, causes: Option<Causes>) -> Event {
    let range = ManagedRange {
        start: START,
        end: START + bytes,
    };
    let mut spans = Spans::new((bytes / 4096) as u32);
    spans.push(0..(bytes / 4096 / 4) as u32);
    let process = ManagedProcess {
        sums: Ok(ManagedSums {
            ranges: 1,
            bytes,
            on_cpu: bytes / 4,
            origin: Origin::Unknown,
        }),
        pages: Some(Arc::new(Pages {
            at,
            ranges: vec![Resident { range, spans }],
            left_out: 0,
        })),
        places: Places::default(),
        counting,
    };
    let sample = Sample::Managed(ManagedSample {
        processes: BTreeMap::from([(TARGET, process)]),
        causes: causes.map(|causes| (TARGET, causes)),
        ..ManagedSample::default()
    });
    let taken = Taken::new(at, std::time::Duration::from_secs(1));
    Event::Sampled(Box::new(Sampled { taken, sample }))
}

/// A card of which NVML counts 20 GiB, 5 GiB of them for process 99, which has so much managed memory.
fn with_managed(bytes: u64) -> Model {
    let mut model = model();
    feed(&mut model, [nvml(SECOND, 20 * GIB, &[(99, 5 * GIB)])]);
    update(&mut model, SECOND, managed(SECOND, bytes, Counting::Off, None));
    model
}

fn memory(model: &Model) -> Partition {
    *model.world().devices[0].memory.value().unwrap()
}

#[test]
fn managed_memory_is_a_part_of_the_device() {
    // NVML counts 15 GiB that no process has; of 60 GiB up to 45 are not on the CPU.
    let parts = memory(&with_managed(60 * GIB));
    assert_eq!((parts.managed, parts.other), (15 * GIB, 5 * GIB));
    // Of 8 GiB no more than 6 can be on the GPU.
    let parts = memory(&with_managed(8 * GIB));
    assert_eq!((parts.managed, parts.other), (6 * GIB, 14 * GIB));
    let sum = parts.allocated + parts.cached + parts.others() + parts.driver.unwrap_or(0) + parts.free;
    assert_eq!(sum, parts.total);
}

#[test]
fn unknown_process_memory_gives_no_bound() {
    let mut model = model();
    let mut listed = nvml(SECOND, 20 * GIB, &[(99, 5 * GIB)]);
    if let Event::Sampled(sampled) = &mut listed
        && let Sample::Nvml(sample) = &mut sampled.sample
        && let Reading::Value(list) = &mut sample.gpus[0].processes
    {
        list[0].used = Reading::NotSupported;
    }
    feed(&mut model, [listed]);
    update(&mut model, SECOND, managed(SECOND, 60 * GIB, Counting::Off, None));
    assert_eq!(memory(&model).managed, 0);
}

#[test]
fn row_of_a_process_has_its_managed_memory() {
    let model = with_managed(8 * GIB);
    let row = &model.world().processes[0];
    let sums = row.managed.value().unwrap();
    assert_eq!((sums.bytes, sums.not_on_cpu()), (8 * GIB, 6 * GIB));
    // Memory that is accounted for has no unknown owner.
    let texts = model.world().findings.iter().map(|f| f.text.as_str());
    let unowned: Vec<_> = texts.filter(|text| text.contains("by no process NVML lists")).collect();
    assert_eq!(unowned.len(), 1, "9 GiB remain: {unowned:?}");
    assert!(unowned[0].contains("9.0 GiB"), "{unowned:?}");
}

/// A channel of a simulated device with one block of managed memory, of which the CPU has 64 pages and 64 KiB were evicted.
fn simulated(pid: u32, kind: DeviceKind, moved: u64) -> Channel {
    let mut channel = channel_on(pid, &[], kind, Life::Alive);
    let mut snapshot = (*channel.snapshot).clone();
    let mut counters = ManagedCounters::default();
    counters.to_gpu[1].bytes = moved;
    snapshot.managed = Some(Managed {
        ranges: vec![ManagedChannelRange {
            addr: BLOCK,
            size: BLOCK,
            ..ManagedChannelRange::default()
        }],
        blocks: vec![ManagedBlock {
            addr: BLOCK,
            on_cpu: [u64::MAX, 0, 0, 0, 0, 0, 0, 0],
            evicted: 1 << 31,
            ..ManagedBlock::default()
        }],
        figures: ManagedFigures {
            counters: Some(counters),
            ..ManagedFigures::default()
        },
    });
    channel.snapshot = Arc::new(snapshot);
    channel
}

#[test]
fn pages_of_a_simulated_device_come_from_its_channel() {
    let mut model = model();
    for n in 1..4 {
        let channel = simulated(5, DeviceKind::Simulated, n * MIB);
        feed(&mut model, [channels(n * SECOND, vec![channel])]);
    }
    let row = &model.world().processes[0];
    let sums = row.managed.value().unwrap();
    assert_eq!((sums.bytes, sums.on_cpu), (BLOCK, 64 * 4096));
    let (target, process) = model.world().managed.of_pid(5).unwrap();
    let (target, places) = (*target, process.places);
    assert_eq!((places.cpu, places.evicted), (64 * 4096, 64 << 10));
    let rates = model.world().managed.past[&target].rates().unwrap();
    assert_eq!(rates.to_gpu, MIB as f64);
    // Nothing is asked of the kernel or the driver.
    model.ui.view = View::Unified;
    let request = model.managed_request();
    assert!(request.simulated);
    assert_eq!(
        (request.shown, request.counted, request.processes),
        (None, vec![], vec![])
    );
    // The driver tells nothing of it either: its sample leaves it alone.
    update(&mut model, 4 * SECOND, managed(4 * SECOND, GIB, Counting::Off, None));
    assert!(model.world().managed.process(target).is_some() && model.world().managed.past.contains_key(&target));
    feed(&mut model, [channels(5 * SECOND, vec![])]);
    assert!(model.world().managed.process(target).is_none() && !model.world().managed.past.contains_key(&target));
}

#[test]
fn published_pages_of_a_real_device_are_not_believed() {
    let mut model = model();
    feed(&mut model, [channels(SECOND, vec![simulated(5, DeviceKind::Cuda, 0)])]);
    assert!(model.world().managed.of_pid(5).is_none());
    assert!(model.world().managed.published_range(5, BLOCK).is_some());
}

fn counted(to_gpu: u64, to_cpu: u64, cpu_faults: u64) -> Counting {
    Counting::On(Counters {
        to_gpu,
        to_cpu,
        cpu_faults,
        gpu_faults: 0,
    })
}

fn findings(model: &Model) -> Vec<&str> {
    let about = model.world().findings.iter().filter(|f| f.text.starts_with("99: "));
    about.map(|f| f.text.as_str()).collect()
}

#[test]
fn bytes_that_go_both_ways_again_are_a_finding() {
    let mut model = with_managed(GIB);
    for n in 0..8u64 {
        let moved = n * GIB;
        update(
            &mut model,
            (2 + n) * SECOND,
            managed((2 + n) * SECOND, GIB, counted(moved, moved, 0), None),
        );
    }
    let found = findings(&model);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].contains("at least 4 times in 10 s by prefetch calls"),
        "{found:?}"
    );
    // One way only is a program that goes through its data.
    let mut model = with_managed(GIB);
    for n in 0..8u64 {
        update(
            &mut model,
            (2 + n) * SECOND,
            managed((2 + n) * SECOND, GIB, counted(n * GIB, GIB / 2, 0), None),
        );
    }
    assert_eq!(findings(&model), Vec::<&str>::new());
}

#[test]
fn burst_of_migrations_has_one_mark() {
    let mut model = with_managed(GIB);
    let totals = [0, 0, 10, 200, 400, 420, 600, 600, 600, 600, 900];
    for (n, mib) in (0..).zip(totals) {
        let at = 2 * SECOND + n * SECOND / 2;
        update(&mut model, at, managed(at, GIB, counted(mib * MIB, 0, 0), None));
    }
    let marks = model.world().devices[0].history.marks.iter();
    let found: Vec<_> = marks.map(|mark| (mark.kind, mark.bytes / MIB)).collect();
    assert_eq!(found, [(MarkKind::Migration, 200), (MarkKind::Migration, 300)]);
}

/// Samples can be further apart than the second over which a rate is taken.
#[test]
fn burst_is_marked_when_samples_are_rare() {
    let mut model = with_managed(GIB);
    for (n, mib) in (1..).zip([0, 0, 400]) {
        let at = n * 2 * SECOND;
        update(&mut model, at, managed(at, GIB, counted(mib * MIB, 0, 0), None));
    }
    let marks = model.world().devices[0].history.marks.iter();
    let found: Vec<_> = marks.map(|mark| (mark.kind, mark.bytes / MIB)).collect();
    assert_eq!(found, [(MarkKind::Migration, 200)]);
}

#[test]
fn faults_that_stall_are_a_finding() {
    let mut model = with_managed(GIB);
    for n in 0..8u64 {
        update(
            &mut model,
            (2 + n) * SECOND,
            managed((2 + n) * SECOND, GIB, counted(0, 0, n * 20_000), None),
        );
    }
    let found = findings(&model);
    assert!(
        found[0].contains("at least 16,384 page faults of the CPU a second"),
        "{found:?}"
    );
}

#[test]
fn eviction_is_a_finding_with_its_size() {
    let mut model = with_managed(GIB);
    let block = BlockMoves {
        start: START,
        evicted: 0xffff,
        ..BlockMoves::default()
    };
    let events = Events {
        blocks: vec![block],
        ..Events::default()
    };
    let causes = Causes::On(Box::new(KnownCauses::new(events)));
    update(
        &mut model,
        2 * SECOND,
        managed(2 * SECOND, GIB, Counting::Off, Some(causes)),
    );
    let found = findings(&model);
    assert!(
        found[0].contains("does not fit the GPU by at least 1.0 MiB"),
        "{found:?}"
    );
}

#[test]
fn counters_are_attached_only_while_they_are_shown() {
    let mut model = with_managed(GIB);
    model.inputs.processes = vec![gpumem_probe::Process {
        pid: 99,
        start_time: 7,
        parent: None,
        user: "ml".into(),
        command: "python".into(),
        label: "python".into(),
        rss: 0,
        stopped: false,
        hints: [].into(),
    }];
    let asked = |model: &Model| model.managed_request();
    assert_eq!((asked(&model).counted, asked(&model).processes), (vec![], vec![TARGET]));
    press(&mut model, &[Key::Char('5')]);
    assert_eq!(
        (asked(&model).counted, asked(&model).shown),
        (vec![TARGET], Some(TARGET))
    );
    press(&mut model, &[Key::Char('c')]);
    assert_eq!(asked(&model).causes, Some(TARGET));
    press(&mut model, &[Key::Char('c'), Key::Char('1')]);
    assert_eq!((asked(&model).counted, asked(&model).causes), (vec![], None));
    model.setup.tracking = Tracking::Always;
    assert_eq!(asked(&model).counted, [TARGET]);
    model.setup.tracking = Tracking::Never;
    press(&mut model, &[Key::Char('5'), Key::Char('c')]);
    assert_eq!((asked(&model).counted, asked(&model).causes), (vec![], None));
}

#[test]
fn cursor_moves_by_cells_and_lines() {
    let mut model = with_managed(64 * MIB);
    press(&mut model, &[Key::Char('5')]);
    let layout = MapLayout {
        bytes_per_cell: MIB,
        columns: 10,
        folded: false,
        least_cell: 4096,
        cell_step: 1,
    };
    model.ui.hits.pages = MapGeometry {
        layout,
        whole: layout,
        lines: 4,
    };
    let steps = [
        (Key::Right, 1),
        (Key::Down, 11),
        (Key::Left, 10),
        (Key::Left, 9),
        (Key::PageDown, 39),
        (Key::Up, 29),
        (Key::Home, 0),
        (Key::Left, 0),
    ];
    for (key, mib) in steps {
        press(&mut model, &[key]);
        assert_eq!(model.ui.unified.cursor, Some(START + mib * MIB), "{key:?}");
    }
    press(&mut model, &[Key::End, Key::Right]);
    assert_eq!(model.ui.unified.cursor, Some(START + 64 * MIB - 1));
}

#[test]
fn pages_are_where_they_moved_last() {
    let bytes = 2 * BLOCK;
    let range = ManagedRange {
        start: START,
        end: START + bytes,
    };
    let mut spans = Spans::new(1024);
    // The first 64 KiB came back to the CPU after they were seen moving.
    spans.push(0..16);
    let pages = Pages {
        at: 0,
        ranges: vec![Resident { range, spans }],
        left_out: 0,
    };
    let all = (START, START + bytes);
    let places = |cpu, gpu, evicted, prefetched, elsewhere| Places {
        cpu,
        gpu,
        evicted,
        prefetched,
        elsewhere,
    };
    let k = 64 << 10;
    assert_eq!(pages.places(0, all, None), places(k, 0, 0, 0, 63 * k));
    let block = BlockMoves {
        start: START,
        on_gpu: 0b1110,
        evicted: 0b11_0000,
        prefetched: 0b100_0000,
        // It was mapped, and is not present: it left since. The first part came back instead.
        mapped: 0b1000_0001,
        ..BlockMoves::default()
    };
    let events = Events {
        blocks: vec![block],
        ..Events::default()
    };
    let causes = Causes::On(Box::new(KnownCauses::new(events)));
    assert_eq!(pages.places(0, all, Some(&causes)), places(k, 4 * k, 2 * k, k, 56 * k));
    // A cell of one page.
    let page = (START + 64 * 1024, START + 65 * 1024);
    assert_eq!(pages.places(0, page, Some(&causes)), places(0, 4096, 0, 0, 0));
}
