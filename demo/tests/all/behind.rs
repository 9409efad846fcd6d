//! Whole programs of several streams, as PyTorch 2.11 requested memory on H100s, on a simulated device that lags behind. With
//! `cross_stream_reuse` a stream's freed memory may go to another stream once the work on it is done, and not before.

use std::path::Path;

use gpumem_demo::replay::{AllocatorChoice, ReplayArgs, ReplayError, Report, run};
use gpumem_demo::{DeviceChoice, Segments};

fn replayed(name: &str, behind: u32, more: ReplayArgs) -> Result<Report, ReplayError> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    run(&ReplayArgs {
        trace: data.join(format!("{name}.csv.gz")),
        device: DeviceChoice::Sim,
        publish: false,
        passes: 4,
        behind,
        ..more
    })
}

/// Each stream needs the memory for itself that it has just freed. If streams never shared memory, the programs would take
/// 1.17, 1.47 and 2.36 times what they request, even if nothing were lost between blocks. When the age of free memory was that
/// of its youngest part, stitched segments took up to 1.85, 1.99 and 15 times as much, and virtual ones up to 1.47, 5.7 and 87,
/// growing from pass to pass. Plain ones would take up to 3.6 and 5.3 times as much if streams were queried only when others
/// are short of memory.
#[test]
fn lagging_device_costs_little_more_than_it_still_uses() {
    let most = [
        ("torch211_sharded", "stitched", [1.08, 1.2, 1.2, 1.2]),
        ("torch211_sharded", "virtual", [1.35, 1.4, 1.35, 1.35]),
        ("torch211_streams", "stitched", [1.06, 1.35, 1.4, 1.55]),
        ("torch211_streams", "virtual", [1.65, 1.95, 2.2, 2.4]),
        ("torch211_streams", "plain", [2.85, 3.15, 3.05, 3.45]),
        ("multi_stream_2000", "stitched", [1.06, 2.1, 2.7, 3.1]),
        ("multi_stream_2000", "virtual", [1.6, 3.0, 4.2, 4.5]),
        ("multi_stream_2000", "plain", [3.2, 4.0, 4.2, 4.6]),
    ];
    for (name, segments, most) in most {
        for (behind, most) in [0, 5, 10, 30].into_iter().zip(most) {
            let segments: Segments = segments.parse().unwrap();
            let more = ReplayArgs {
                segments: Some(segments),
                conf: "cross_stream_reuse:on".parse().ok(),
                ..ReplayArgs::default()
            };
            let report = replayed(name, behind, more).unwrap();
            assert_eq!((report.out_of_memory.count, report.behind), (0, behind.into()));
            let all = report.memory.peak_reserved_of_all_passes.unwrap();
            let ratio = all as f64 / report.memory.peak_requested as f64;
            let what = format!("{name} in {} segments, {behind} behind", segments.name());
            assert!((1.0..=most).contains(&ratio), "{what}: {ratio:.3}");
        }
    }
}

/// Streams that do not share memory take little more than the most that each of them needs. A lagging GPU makes no difference.
#[test]
fn separate_streams_take_little_more_than_each_needs() {
    for (name, most) in [
        ("torch211_sharded", 1.25),
        ("torch211_streams", 1.6),
        ("multi_stream_2000", 2.6),
    ] {
        let ratios = [0, 30].map(|behind| {
            let report = replayed(name, behind, ReplayArgs::default()).unwrap();
            report.memory.ratio.unwrap()
        });
        assert!(
            ratios.iter().all(|ratio| (1.0..=most).contains(ratio)),
            "{name}: {ratios:?}"
        );
    }
}

#[test]
fn behind_is_refused_for_other_allocators_and_gpus() {
    let more = ReplayArgs {
        allocator: AllocatorChoice::CudaMalloc,
        ..ReplayArgs::default()
    };
    let error = replayed("torch211_sharded", 10, more).unwrap_err();
    assert_eq!(
        (error.exit_code(), error.to_string().as_str()),
        (2, "--behind is for --allocator gpumem only")
    );
}
