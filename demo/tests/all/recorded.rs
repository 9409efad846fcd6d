//! Whole programs, as PyTorch 2.11 requested memory on an H100 (`tests/gpu/record.py`), on the simulated device: how much memory
//! they reserve, and that repeated requests are not mapped again. Their only common feature is that their sizes keep changing.

use std::path::Path;

use gpumem_demo::DeviceChoice;
use gpumem_demo::replay::{ReplayArgs, run};

const PROGRAMS: [&str; 12] = [
    "detect", "fsdp", "gnn", "moe", "points", "rl", "segment", "serving", "speech", "streams", "unet", "vit",
];

/// Returns the ratio of a program, and the chunks that it maps in each of four passes.
fn replayed(name: &str) -> (f64, Vec<u64>) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let report = run(&ReplayArgs {
        trace: data.join(format!("torch211_{name}.csv.gz")),
        device: DeviceChoice::Sim,
        publish: false,
        passes: 4,
        // One of the programs has several streams.
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
fn programs_of_changing_sizes_soon_map_nothing() {
    let mut product = 1.0;
    for name in PROGRAMS {
        let (ratio, maps) = replayed(name);
        product *= ratio;
        assert!(maps[3] * 20 <= maps[0], "{name}: {maps:?}");
    }
    let mean = product.powf(1.0 / PROGRAMS.len() as f64);
    assert!(mean <= 1.03, "{mean:.4}");
}

/// Twenty-five rounds at each of four resolutions, interrupted after every ten, so that many equal rounds never follow.
#[test]
fn interrupted_rounds_map_nothing_from_the_third_pass_on() {
    let (_, maps) = replayed("gan");
    assert!(maps[2] * 20 <= maps[0], "{maps:?}");
}
