//! `demo train` on the simulated device.

use std::io::{BufReader, PipeWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use gpumem_demo::protocol::Body;
use gpumem_demo::{DemoError, End, Ended, RunArgs, Train, exit_code};
use gpumem_text::units::MIB;

use crate::common::{args, play, steered};

fn train(steps: u64) -> Train {
    Train {
        steps,
        ..Train::default()
    }
}

#[test]
fn allocated_rises_in_forward_and_falls_in_backward() {
    let ran = play(train(20), &args(), None);
    let steps = ran.steps();
    assert_eq!(steps.len(), 20);
    let mut before = 0;
    for step in &steps {
        let [forward, backward, optimizer] = step.phases.as_slice() else {
            panic!("{:?}", step.phases)
        };
        let names = [&forward.name, &backward.name, &optimizer.name];
        assert_eq!(names, ["forward", "backward", "optimizer"]);
        assert!(forward.allocated > before, "{step:?}");
        assert!(backward.allocated < forward.allocated, "{step:?}");
        if step.step > 1 {
            assert!(
                optimizer.allocated < backward.allocated,
                "gradients are freed: {step:?}"
            );
            assert_eq!(
                optimizer.allocated, before,
                "only weights and optimizer states stay: {step:?}"
            );
        }
        before = optimizer.allocated;
    }
    assert_eq!(ran.outcome().reserved_at_end, 0);
    assert_eq!(ran.outcome().steps_done, 20);
    assert_eq!(exit_code(&ran.ended), 0);
}

/// By default a machine without a GPU shows a device that is mostly in use, and a large sawtooth.
#[test]
fn simulated_device_is_mostly_in_use() {
    let ran = play(train(100), &RunArgs { budget: None, ..args() }, None);
    let gib = 1024 * MIB;
    for step in &ran.steps()[1..] {
        let [forward, _, optimizer] = step.phases.as_slice() else {
            panic!("{:?}", step.phases)
        };
        assert!((48 * gib..60 * gib).contains(&forward.allocated), "{step:?}");
        assert!((24 * gib..26 * gib).contains(&optimizer.allocated), "{step:?}");
        assert!(step.stats.reserved <= 75 * gib);
        assert!(!step.detail.contains("half"), "{}", step.detail);
    }
    assert!(ran.outcome().as_promised());
}

#[test]
fn varying_batches_fragment_the_cache() {
    let ran = play(train(30), &args(), None);
    let worst = ran
        .steps()
        .iter()
        .filter_map(|s| s.stats.external_fragmentation)
        .fold(0.0, f64::max);
    assert!(worst > 0.1, "external fragmentation stayed at {worst}");
    let budget = ran.start().budget.unwrap();
    assert!(ran.steps().iter().all(|s| s.stats.peak_reserved <= budget));
}

#[test]
fn same_seed_gives_the_same_run() {
    let figures = |seed| {
        let ran = play(train(10), &RunArgs { seed, ..args() }, None);
        ran.steps()
            .iter()
            .map(|s| (s.title.clone(), s.stats.allocated, s.stats.reserved))
            .collect::<Vec<_>>()
    };
    assert_eq!(figures(7), figures(7));
    assert_ne!(figures(7), figures(8));
}

#[test]
fn impossible_dimensions_are_refused() {
    for (layers, batch) in [(0, 32), (100_000, 32), (12, 0), (12, u32::MAX)] {
        let ran = play(
            Train {
                layers,
                batch,
                ..train(1)
            },
            &args(),
            None,
        );
        assert!(
            matches!(&ran.ended, Err(DemoError::Argument { .. })),
            "{layers} x {batch}"
        );
        assert_eq!(exit_code(&ran.ended), 2);
    }
}

#[test]
fn models_of_every_shape_train_within_their_budget() {
    for (layers, batch, budget) in [(1, 1, 256), (512, 65536, 256), (3, 7, 1024), (48, 128, 4096)] {
        let ran = play(
            Train {
                layers,
                batch,
                ..train(8)
            },
            &RunArgs {
                budget: Some(budget * MIB),
                ..args()
            },
            None,
        );
        assert!(
            ran.outcome().as_promised(),
            "{layers} x {batch} in {budget} MiB: {:?}",
            ran.ended
        );
        assert!(ran.steps().iter().all(|s| s.stats.peak_reserved <= budget * MIB));
    }
}

/// The model must be made for the smaller of two budgets, or it would run out of memory.
#[test]
fn budget_of_the_configuration_counts() {
    let ran = play(
        train(8),
        &RunArgs {
            conf: Some("budget_mb:300".parse().unwrap()),
            budget: Some(4096 * MIB),
            ..args()
        },
        None,
    );
    assert!(ran.outcome().as_promised(), "{:?}", ran.ended);
    assert!(
        ran.steps()
            .iter()
            .all(|s| s.stats.ooms == 0 && s.stats.peak_reserved <= 300 * MIB)
    );
}

/// Returns a stdin that stays open while the demo runs, as a dashboard's does.
fn held_open() -> (Box<BufReader<std::io::PipeReader>>, PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    (Box::new(BufReader::new(reader)), writer)
}

#[test]
fn demo_ends_with_its_parent_within_a_step() {
    let (input, mut parent) = held_open();
    // A step takes an hour, so only an input within it can end the demo.
    let args = RunArgs {
        steer: true,
        pace: Some(Duration::from_secs(3600)),
        ..args()
    };
    let began = Instant::now();
    let demo = std::thread::spawn(move || play(train(0), &args, Some(input)));
    parent.write_all(b"next\n").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    drop(parent);
    let ran = demo.join().unwrap();
    assert_eq!(ran.ended.as_ref().ok(), Some(&Ended::Early(End::ParentGone)));
    assert!(began.elapsed() < Duration::from_secs(60));
    assert_eq!(ran.notices().len(), 1, "next is answered: {:?}", ran.notices());
}

#[test]
fn quit_ends_the_demo() {
    // The longest possible pace must not overflow the clock.
    let ran = steered(
        train(0),
        &RunArgs {
            pace: Some(Duration::MAX),
            ..args()
        },
        "quit\n",
    );
    assert_eq!(ran.ended.as_ref().ok(), Some(&Ended::Early(End::Quit)));
}

/// It is refused before anything else, and no file is left behind.
#[test]
fn unwritable_snapshot_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("old.json"), "old").unwrap();
    std::fs::create_dir(at("taken.pickle")).unwrap();
    let _bound = std::os::unix::net::UnixListener::bind(at("socket.json")).unwrap();
    let before = std::fs::read_dir(folder.path()).unwrap().count();
    let mut refused = vec![
        ("x.pickle.gz", "its name ends in .pickle or .json"),
        ("x.json.gz", "its name ends in .pickle or .json"),
        ("x.pkl", "its name ends in .pickle or .json"),
        (".json", "its name ends in .pickle or .json"),
        ("pickle", "its name ends in .pickle or .json"),
        ("x.pickle/", "its name ends in .pickle or .json"),
        ("", "its name ends in .pickle or .json"),
        ("missing/x.pickle", "folder: No such file or directory"),
        ("old.json/x.pickle", "folder: Not a directory"),
        ("taken.pickle", "it exists and is not a file"),
        ("socket.json", "it exists and is not a file"),
    ];
    std::fs::create_dir(at("kept")).unwrap();
    std::fs::set_permissions(at("kept"), std::fs::Permissions::from_mode(0o555)).unwrap();
    // Root may write anywhere.
    if std::fs::write(at("kept/try"), "").is_err() {
        refused.push(("kept/x.json", "folder: Permission denied"));
    }
    for (name, why) in refused {
        let demo = Train {
            snapshot: Some(at(name)),
            ..train(1)
        };
        let ran = play(demo, &args(), None);
        let error = ran.ended.unwrap_err();
        assert_eq!(error.exit_code(), 2, "{name}: {error}");
        let said = error.to_string();
        assert!(said.starts_with("--snapshot: ") && said.contains(why), "{name}: {said}");
        assert!(matches!(ran.lines[..], [Body::Error { .. }]), "{name}: {:?}", ran.lines);
    }
    assert_eq!(std::fs::read_to_string(at("old.json")).unwrap(), "old");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), before + 1);
    let demo = Train {
        snapshot: Some(at("old.json")),
        ..train(1)
    };
    assert!(play(demo, &args(), None).ended.is_ok());
    assert!(std::fs::read(at("old.json")).unwrap().starts_with(b"{"));
}
