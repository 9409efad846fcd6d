//! Excerpts of real traces replayed through every allocator of the simulated device.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use gpumem_demo::DeviceChoice;
use gpumem_demo::replay::{AllocatorChoice, ReplayArgs, ReplayError, Report, run};

/// The first 2,000 operations of two recorded programs.
const EXCERPTS: [&str; 2] = ["llm_serving_2000.csv.gz", "multi_stream_2000.csv.gz"];

fn excerpt(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn args(trace: PathBuf) -> ReplayArgs {
    ReplayArgs {
        trace,
        device: DeviceChoice::Sim,
        publish: false,
        ..ReplayArgs::default()
    }
}

/// Returns the operations of a trace: the block, and its size if the operation allocates it.
fn operations(name: &str) -> Vec<(u64, Option<u64>)> {
    let mut text = String::new();
    let file = std::fs::File::open(excerpt(name)).unwrap();
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let operation = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let bytes = (fields[0] == "a").then(|| fields[2].parse().unwrap());
        (fields[1].parse().unwrap(), bytes)
    };
    text.lines().skip(1).map(operation).collect()
}

/// Returns the peak of requested bytes, and of the same rounded up to `unit`, from a naive reader.
fn naive_peaks(name: &str, unit: u64) -> (u64, u64) {
    let mut live: HashMap<u64, u64> = HashMap::new();
    let (mut peak, mut rounded) = (0, 0);
    for (id, bytes) in operations(name) {
        match bytes {
            Some(bytes) => live.insert(id, bytes),
            None => live.remove(&id),
        };
        peak = peak.max(live.values().sum());
        rounded = rounded.max(live.values().map(|bytes| bytes.next_multiple_of(unit)).sum());
    }
    (peak, rounded)
}

/// Returns the peak bytes of 2 MiB pages that the blocks of a trace take, computed naively. Large blocks take whole pages.
/// Small ones take the smallest gap in a shared page, which is freed with its last block.
fn naive_pages(name: &str) -> u64 {
    const PAGE: u64 = 2 << 20;
    let mut pages: Vec<BTreeMap<u64, (u64, u64)>> = Vec::new();
    let (mut large, mut peak) = (HashMap::new(), 0);
    for (id, bytes) in operations(name) {
        let size = bytes.map(|bytes: u64| bytes.next_multiple_of(512));
        match size {
            Some(size) if size < PAGE => {
                let gaps = pages.iter().enumerate().flat_map(|(page, blocks)| {
                    let begins = std::iter::once(0).chain(blocks.iter().map(|(from, (size, _))| from + size));
                    let ends = blocks.keys().copied().chain([PAGE]);
                    begins.zip(ends).map(move |(from, to)| (to - from, page, from))
                });
                let fits = gaps.filter(|(gap, page, _)| *gap >= size && !pages[*page].is_empty());
                let (page, from) = fits.min().map_or((pages.len(), 0), |(_, page, from)| (page, from));
                if page == pages.len() {
                    pages.push(BTreeMap::new());
                }
                pages[page].insert(from, (size, id));
            }
            Some(size) => drop(large.insert(id, size.next_multiple_of(PAGE))),
            None if large.remove(&id).is_some() => {}
            None => pages
                .iter_mut()
                .for_each(|blocks| blocks.retain(|_, (_, its)| *its != id)),
        }
        let shared = pages.iter().filter(|blocks| !blocks.is_empty()).count() as u64 * PAGE;
        peak = peak.max(shared + large.values().sum::<u64>());
    }
    peak
}

fn check(report: &Report) {
    let memory = &report.memory;
    assert!(report.simulated && report.trace.operations == 2000 && report.trace.compressed);
    assert!(memory.peak_reserved >= memory.peak_allocated && memory.peak_reserved >= Some(memory.peak_requested));
    let ratio = memory.peak_reserved.unwrap() as f64 / memory.peak_requested as f64;
    assert_eq!(memory.ratio, Some(ratio));
    let passes = &report.time.passes;
    assert!(report.time.cold_ns_per_op == passes[0].ns_per_op && report.time.own_ns_per_op > 0.0);
    let steady = &passes[report.time.steady_pass.unwrap() as usize - 1];
    assert_eq!(report.time.steady_ns_per_op, Some(steady.ns_per_op));
    assert!(
        passes[1..]
            .iter()
            .all(|pass| steady.ns + steady.driver_ns.unwrap() <= pass.ns + pass.driver_ns.unwrap())
    );
    assert_eq!(report.time.driver_cost, "modelled");
}

#[test]
fn peaks_match_a_naive_reader_and_the_device() {
    for (name, segments) in EXCERPTS
        .into_iter()
        .flat_map(|name| ["plain", "virtual", "stitched"].map(|s| (name, s)))
    {
        let report = run(&ReplayArgs {
            segments: segments.parse().ok(),
            ..args(excerpt(name))
        });
        let report = report.unwrap();
        check(&report);
        let (requested, rounded) = naive_peaks(name, 512);
        assert_eq!(report.memory.peak_requested, requested, "{name}, {segments}");
        assert!(report.memory.peak_allocated >= Some(rounded), "{name}, {segments}");
        assert_eq!(report.out_of_memory.count, 0);
        let found = report.memory.fragmentation.clone().unwrap();
        assert_eq!(
            Some(found.reserved),
            report.memory.peak_reserved,
            "the peak was found: {name}, {segments}"
        );
        assert_eq!(found.device_used, found.reserved, "physical memory: {name}, {segments}");
        assert!(
            found.requested <= found.allocated && found.allocated <= found.reserved,
            "{found:?}"
        );
        let cold = &report.time.passes[0];
        assert!(!cold.driver_calls.is_empty() && cold.driver_ns > Some(0));
    }
}

/// A history changes where blocks lie, also in the pass that looks for the peak.
#[test]
fn fragmentation_is_that_of_the_peak_with_a_history() {
    let report = run(&ReplayArgs {
        conf: "history:on".parse().ok(),
        passes: 1,
        ..args(excerpt("torch211_streams.csv.gz"))
    });
    let memory = report.unwrap().memory;
    assert_eq!(memory.fragmentation.map(|found| found.reserved), memory.peak_reserved);
}

/// Looking at the free memory changes what lanes keep, and this program reserves more after that.
#[test]
fn fragmentation_is_that_of_the_reported_peak() {
    let report = run(&args(excerpt("torch211_gan.csv.gz"))).unwrap();
    let found = report.memory.fragmentation.unwrap();
    assert_eq!(Some(found.reserved), report.memory.peak_reserved);
}

#[test]
fn without_a_cache_every_operation_is_a_driver_call() {
    for name in EXCERPTS {
        let report = run(&ReplayArgs {
            allocator: AllocatorChoice::CudaMalloc,
            passes: 2,
            ..args(excerpt(name))
        });
        let report = report.unwrap();
        check(&report);
        let (requested, _) = naive_peaks(name, 512);
        assert_eq!(report.memory.peak_requested, requested);
        assert_eq!(report.memory.peak_reserved, Some(naive_pages(name)), "{name}");
        for pass in &report.time.passes {
            assert_eq!(pass.driver_calls.values().sum::<u64>(), 2000, "{pass:?}");
            assert!(pass.driver_ns > Some(2000 * 46_000) && !pass.driver_calls.contains_key("cuMemGetInfo"));
        }
        assert!(report.memory.fragmentation.is_none() && report.memory.peak_allocated.is_none());
    }
}

fn trace(rows: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(format!("op,id,bytes,stream\n{rows}").as_bytes())
        .unwrap();
    file
}

/// The device is queried only at times. A trace smaller than the device's granularity must not be reported as taking nothing,
/// and the last operations before a refusal count.
#[test]
fn small_trace_takes_memory() {
    const PAGE: u64 = 2 << 20;
    let absurd = u64::MAX / 2;
    for (rows, reserved, refused) in [
        ("a,1,100,0\nf,1\n".to_owned(), Some(PAGE), 0),
        ("a,1,100,0\na,2,100,0\na,3,100,0\n".to_owned(), Some(PAGE), 0),
        ("a,1,100,0\nf,1\na,2,60,0\na,3,70,0\nf,2\n".to_owned(), Some(PAGE), 0),
        (format!("a,1,9,0\na,2,9,0\na,3,{absurd},0\n"), Some(PAGE), 1),
        (format!("a,3,{absurd},0\na,1,9,0\na,2,9,0\nf,1\n"), Some(PAGE), 1),
        (format!("a,3,{absurd},0\na,1,9,0\na,2,9,0\n"), Some(PAGE), 1),
        (format!("a,1,{absurd},0\n"), Some(0), 1),
    ] {
        let file = trace(&rows);
        let report = run(&ReplayArgs {
            allocator: AllocatorChoice::CudaMalloc,
            passes: 1,
            ..args(file.path().to_owned())
        });
        let report = report.unwrap();
        assert_eq!(report.memory.peak_reserved, reserved, "{rows}");
        assert_eq!(report.memory.ratio.is_some(), reserved > Some(0), "{rows}");
        assert_eq!(report.out_of_memory.count, refused, "{rows}");
    }
    let file = trace("a,1,100,0\n");
    let report = run(&ReplayArgs {
        allocator: AllocatorChoice::CudaMalloc,
        limit: Some(PAGE - 1),
        ..args(file.path().to_owned())
    });
    assert_eq!(
        report.unwrap().memory.peak_reserved,
        Some(0),
        "freed memory does not count"
    );
}

/// A channel that could not be created is not reported, even if it was requested.
#[test]
fn publishing_is_reported_only_with_a_channel() {
    let (folder, file) = (
        tempfile::tempdir_in("/dev/shm").unwrap(),
        tempfile::NamedTempFile::new().unwrap(),
    );
    for (dir, publishing) in [(&*folder.path().join("channels"), true), (file.path(), false)] {
        let report = run(&ReplayArgs {
            publish: true,
            channel_dir: Some(dir.to_owned()),
            passes: 1,
            ..args(excerpt(EXCERPTS[0]))
        });
        assert_eq!(report.unwrap().allocator.publishing, publishing, "{}", dir.display());
    }
}

/// Requests that find no memory are counted, and the replay goes on.
#[test]
fn requests_beyond_the_limit_are_counted() {
    let whole = naive_peaks(EXCERPTS[0], 1).0;
    for allocator in [AllocatorChoice::Gpumem, AllocatorChoice::CudaMalloc] {
        let report = run(&ReplayArgs {
            allocator,
            limit: Some(whole / 2),
            passes: 2,
            ..args(excerpt(EXCERPTS[0]))
        });
        let report = report.unwrap();
        let first = report.out_of_memory.first.as_ref().unwrap();
        assert!(
            first.pass == 1 && first.bytes > 0 && first.message.contains("requested"),
            "{first:?}"
        );
        let counted: u64 = report.time.passes.iter().map(|pass| pass.out_of_memory).sum();
        assert!(report.out_of_memory.count == counted && counted > 0);
        assert!(report.memory.peak_requested <= whole / 2 && report.memory.peak_requested > 0);
        let reserved = report.memory.peak_reserved.unwrap();
        assert!(
            (report.memory.peak_requested..=whole / 2).contains(&reserved),
            "{reserved}"
        );
        let text = report.text();
        assert!(
            text.contains(&format!("The first was operation {}", first.operation)),
            "{text}"
        );
        // This is more than the first of many failing requests would have needed.
        let peak = report.trace.peak_requested;
        assert!(peak >= whole && text.contains("The whole trace requests "), "{text}");
        // The blocks live at the trace's end are not those of this replay.
        assert!(text.contains("if none had been refused"), "{text}");
    }
}

/// A fraction of the device is a limit like others. The lowest limit applies and is reported.
#[test]
fn lowest_limit_is_reported() {
    const TENTH: u64 = 8 << 30;
    let limit_of = |limit, conf: &str| {
        let report = run(&ReplayArgs {
            limit,
            conf: conf.parse().ok(),
            passes: 1,
            ..args(excerpt(EXCERPTS[0]))
        });
        let report = report.unwrap();
        (report.allocator.limit, report.text().contains("at most 8.0 GiB"))
    };
    let conf = "budget_fraction:0.1";
    assert_eq!(limit_of(None, ""), (None, false));
    assert_eq!(limit_of(None, conf), (Some(TENTH), true));
    assert_eq!(limit_of(Some(2 * TENTH), conf), (Some(TENTH), true));
    assert_eq!(limit_of(Some(TENTH / 2), conf), (Some(TENTH / 2), false));
    let both = "budget_mb:8192,per_process_memory_fraction:0.2";
    assert_eq!(limit_of(None, both), (Some(TENTH), true));
}

/// Sizes larger than any device, and unknown streams.
#[test]
fn absurd_requests_are_refused() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let absurd = u64::MAX;
    let rows = format!(
        "op,id,bytes,stream\na,1,100,{absurd}\nf,1\na,{absurd},{absurd},7\nf,{absurd}\na,2,{},7\na,3,5,7\n",
        1u64 << 62
    );
    file.write_all(rows.as_bytes()).unwrap();
    for allocator in [AllocatorChoice::Gpumem, AllocatorChoice::CudaMalloc] {
        let report = run(&ReplayArgs {
            allocator,
            passes: 2,
            ..args(file.path().to_owned())
        });
        let report = report.unwrap();
        assert_eq!(
            (report.out_of_memory.count, report.memory.peak_requested),
            (4, 100),
            "{report:?}"
        );
        assert_eq!(report.out_of_memory.first.as_ref().unwrap().operation, 3);
        assert!(report.text().starts_with("SIMULATED"));
    }
}

/// A trace with more streams than the allocator tracks is refused before the replay, and not in the middle of it.
#[test]
fn trace_with_too_many_streams_is_refused() {
    let rows = |streams| (0..streams).map(|n| format!("a,{n},1,{n}\n")).collect::<String>();
    let most = trace(&rows(4096));
    let report = run(&ReplayArgs {
        passes: 1,
        ..args(most.path().to_owned())
    });
    assert_eq!(report.unwrap().trace.streams, 4096);
    let more = trace(&rows(4097));
    let said = run(&args(more.path().to_owned())).unwrap_err().to_string();
    let place = ": line 4098, column 10: more than 4096 streams; expected one of them";
    assert!(said.ends_with(place), "{said}");
}

#[test]
fn text_report_fits_80_columns_and_says_simulated() {
    for (allocator, limit, passes) in [
        (AllocatorChoice::Gpumem, Some(128 << 20), 12),
        (AllocatorChoice::CudaMalloc, None, 1),
    ] {
        let report = run(&ReplayArgs {
            allocator,
            limit,
            passes,
            ..args(excerpt(EXCERPTS[1]))
        });
        // A path without spaces is not wrapped.
        let mut report = report.unwrap();
        report.trace.file = EXCERPTS[1].to_owned();
        let text = report.text();
        assert!(text.starts_with("SIMULATED "), "{text}");
        assert!(
            text.lines()
                .all(|line| line.chars().count() <= 80 && line == line.trim_end()),
            "{text}"
        );
        assert!(text.lines().count() < 40, "not every pass has a line: {text}");
        assert_eq!(text.contains("10 other passes are not listed"), passes == 12, "{text}");
    }
}

#[test]
fn entries_with_unknown_actions_are_reported() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let event = |action: &str| format!("{{\"action\": \"{action}\", \"addr\": 512, \"size\": 7}}");
    let write = |actions: &[&str]| {
        let events: Vec<String> = actions.iter().map(|action| event(action)).collect();
        let snapshot = format!("{{\"device_traces\": [[{}]]}}", events.join(","));
        std::fs::write(file.path(), snapshot).unwrap();
    };
    write(&["alloc", "free_requestd", "segment_map", "free"]);
    let report = run(&args(file.path().to_owned())).unwrap();
    let text = report.text().split_whitespace().collect::<Vec<_>>().join(" ");
    let left_out = "; left out: 2 entries whose action is not known (free_requestd, free)";
    assert!(text.contains(left_out), "{text}");
    assert_eq!(serde_json::to_value(&report).unwrap()["trace"]["unknown_actions"], 2);
    write(&["segment_map", "free"]);
    let said = run(&args(file.path().to_owned())).unwrap_err().to_string();
    let all = "1 entry whose action is not known (free), 1 entry that asks for no memory and frees none";
    assert!(said.ends_with(&format!("; left out: {all}")), "{said}");
}

#[test]
fn traces_that_cannot_be_replayed_are_refused() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let code = |args: &ReplayArgs| run(args).unwrap_err().exit_code();
    assert_eq!(code(&args("/nowhere/at/all".into())), 1);
    assert_eq!(code(&args(file.path().to_owned())), 1);
    file.write_all(b"op,id,bytes,stream\na,1,0,0\n").unwrap();
    let said = run(&args(file.path().to_owned())).unwrap_err().to_string();
    let nothing = ": the trace has no operations";
    assert!(
        said.ends_with(&format!("{nothing}; left out: 1 request of 0 bytes")),
        "{said}"
    );
    let rmm = "Thread,Time,Action,Pointer,Size,Stream\n1,2,allocate failure,(nil),9,0\n1,2,free,(nil),0,0\n1,2,free,(nil),0,0\n";
    let event = |action: &str| format!("{{\"action\": \"{action}\", \"addr\": 512, \"size\": 7, \"stream\": 0}}");
    let events = [event("segment_alloc"), event("segment_free"), event("oom")].join(",");
    let snapshot = format!("{{\"segments\": [], \"device_traces\": [[{events}]]}}");
    for text in [rmm, &snapshot] {
        std::fs::write(file.path(), text).unwrap();
        let said = run(&args(file.path().to_owned())).unwrap_err().to_string();
        let left_out = "1 request that had failed when recorded, 2 entries that ask for no memory and free none";
        assert!(said.ends_with(&format!("{nothing}; left out: {left_out}")), "{said}");
    }
    std::fs::write(file.path(), "op,id,bytes,stream\n").unwrap();
    let said = run(&args(file.path().to_owned())).unwrap_err().to_string();
    assert!(said.ends_with(nothing), "{said}");
    let pool = ReplayArgs {
        allocator: AllocatorChoice::CudaMallocAsync,
        ..args(excerpt(EXCERPTS[0]))
    };
    assert!(matches!(run(&pool), Err(ReplayError::NoPool)) && code(&pool) == 2);
    let segments = ReplayArgs {
        allocator: AllocatorChoice::CudaMalloc,
        segments: "plain".parse().ok(),
        ..args(excerpt(EXCERPTS[0]))
    };
    assert_eq!(code(&segments), 2);
}
