//! Whole programs, as PyTorch 2.11 asked for memory on an H100 (`tests/gpu/record.py`), on the simulated device: how much memory is
//! reserved for them, and that what repeats itself is not mapped again. They share nothing but that their sizes change all the time.

use std::path::Path;

use gpumem_demo::DeviceChoice;
use gpumem_demo::replay::{ReplayArgs, run};

const PROGRAMS: [&str; 12] = [
    "detect", "fsdp", "gnn", "moe", "points", "rl", "segment", "serving", "speech", "streams", "unet", "vit",
];

/// Its ratio, and how much it maps in each of four passes.
fn replayed(name: &str) -> (f64, Vec<u64>) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let report = run(&ReplayArgs {
        trace: data.join(format!("torch211_{name}.csv.gz")),
        device: DeviceChoice::Sim,
        publish: false,
        passes: 4,
        // One of them has several streams.
        conf: "cross_stream_reuse:on".parse().ok(),
        ..ReplayArgs::default()
    });
    let report = report.unwrap();
    assert_eq!(report.out_of_memory.count, 0, "{name}");
    let ratio = report.memory.ratio.unwrap();
    assert!((1.0..=1.06).contains(&ratio), "{name}: {ratio:.4}");
    let passes = report.time.passes.iter();
    let maps = passes.map(|pass| pass.driver_calls.get("cuMemMap").copied().unwrap_or(0));
    (ratio, maps.collect())
}

#[test]
fn programs_of_changing_sizes_reserve_little_more_than_they_ask_for_and_soon_map_nothing() {
    let mut product = 1.0;
    for name in PROGRAMS {
        let (ratio, maps) = replayed(name);
        product *= ratio;
        assert!(maps[3] * 20 <= maps[0], "{name}: {maps:?}");
    }
    let mean = product.powf(1.0 / PROGRAMS.len() as f64);
    assert!(mean <= 1.03, "{mean:.4}");
}

/// Twenty-five rounds at each of four resolutions, with something else after every ten: a row of many that are alike never comes.
#[test]
fn a_program_that_soon_does_something_else_maps_nothing_from_its_third_pass_on() {
    let (_, maps) = replayed("gan");
    assert!(maps[2] * 20 <= maps[0], "{maps:?}");
}
