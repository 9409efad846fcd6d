//! The demos: a failure that is created and fixed, and a training run whose phases show.

use std::time::{Duration, Instant};

use gpumem_tests::{Ended, Terminal, World, until};
use serde_json::Value;

/// Less than the default, so that unoptimised code fills and checks it quickly.
const BUDGET: &str = "256M";

/// Returns every line that a headless demo writes.
fn headless(world: &World, args: &[&str]) -> Vec<Value> {
    let args = [
        &["demo"],
        args,
        &["--headless", "--json", "--device", "sim", "--budget", BUDGET],
    ]
    .concat();
    let output = world.command(&args).output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &lines {
        assert_eq!(line["schema"], "gpumem-demo/1", "{line}");
    }
    assert_eq!(lines[0]["type"], "start");
    assert_eq!(lines[0]["simulated"], true);
    lines
}

fn bytes(step: &Value, figure: &str) -> u64 {
    step["stats"][figure].as_u64().unwrap()
}

#[test]
fn fragmentation_is_stepped_through_and_fixed_in_the_dashboard() {
    let world = World::without_gpu();
    let mut terminal = Terminal::start(
        &world,
        &["demo", "fragmentation", "--device", "sim", "--budget", BUDGET],
        120,
        40,
    );
    terminal.wait_for(&["1 of 6", "SIMULATED", "waits for you", "Enter → next step"]);
    terminal.keys("f");
    terminal.wait_for(&["nothing to fix at this step"]);
    terminal.keys("\r");
    terminal.wait_for(&["2 of 6", "waits for you"]);
    terminal.keys("\r");
    terminal.wait_for(&[
        "3 of 6",
        "it fails",
        "88 MiB free, largest hole 38 MiB, need 64 MiB",
        "fits into none",
        "f chooses a fix",
    ]);
    terminal.keys("f");
    terminal.wait_for(&["Choose a fix", "release", "remap", "default: join", "workspace"]);
    // The menu begins at the default.
    terminal.keys("\r");
    terminal.wait_for(&["4 of 6", "Join the holes by remapping", "waits for you"]);
    // Space pauses, and the demo does not go on meanwhile.
    terminal.keys(" ");
    terminal.wait_for(&["PAUSED"]);
    terminal.keys("\r");
    terminal.wait_for(&["paused: Space resumes"]);
    terminal.keys(" ");
    terminal.wait("it is resumed", |screen| !screen.contains("PAUSED"));
    terminal.keys("e");
    terminal.wait_for(&["This step", "Nothing was copied"]);
    terminal.keys("e");
    // An earlier step can be seen again.
    terminal.keys("\x1b[D");
    terminal.wait_for(&["3 of 6, seen again"]);
    terminal.keys("\x1b[C");
    terminal.wait("the current step", |screen| {
        screen.contains("4 of 6") && !screen.contains("seen again")
    });
    terminal.keys("\x1b[C");
    terminal.wait_for(&["5 of 6", "it succeeds", "waits for you"]);
    terminal.keys("1");
    terminal.wait_for(&["ran out of memory", "OOM x1"]);
    terminal.keys("3");
    terminal.wait_for(&["out of memory", "last 60 s"]);
    terminal.keys("7");
    terminal.wait_for(&["5 of 6"]);
    terminal.keys("\r");
    terminal.wait_for(&["6 of 6", "all intact", "waits for you"]);
    terminal.keys("\r");
    terminal.wait_for(&[
        "the large request failed before the fix",
        "it succeeded after remap",
        "every pattern was intact",
        "before: step 3",
        "after: step 6",
    ]);
    // A key too many does not start it again.
    terminal.keys("\r");
    terminal.wait_for(&["x lists the demos", "before: step 3", "after: step 6"]);
    terminal.keys("x");
    terminal.wait_for(&["Enter start", "each runs as a child process"]);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}

#[test]
fn unified_asks_before_it_answers_in_the_dashboard() {
    let world = World::without_gpu();
    let args = ["demo", "unified", "--device", "sim", "--size", "64M"];
    let mut terminal = Terminal::start(&world, &args, 120, 40);
    terminal.wait_for(&["1 of 13", "Guess: where is memory", "waits for you", "SIMULATED"]);
    terminal.keys("\r");
    terminal.wait_for(&[
        "2 of 13",
        "First touch: a prefetch",
        "Modelled: the kernel touches it first",
    ]);
    for step in 3..=12 {
        terminal.keys("\r");
        terminal.wait_for(&[&format!("{step} of 13"), "waits for you"]);
    }
    terminal.wait_for(&["does not fit, 4 passes", "f chooses a fix", "tiles", "split"]);
    terminal.keys("f");
    terminal.wait_for(&["Choose a fix"]);
    terminal.keys("\r");
    terminal.wait_for(&["13 of 13", "Fix tiles", "waits for you"]);
    terminal.keys("\r");
    terminal.wait_for(&["done"]);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}

/// A simulated device's memory is real memory, so two demos would need twice as much.
#[test]
fn only_one_demo_runs_at_a_time() {
    let world = World::without_gpu();
    let mut terminal = Terminal::start(&world, &[], 120, 40);
    terminal.wait_for(&["showing a simulated training run"]);
    terminal.keys("7");
    terminal.wait_for(&["Training step"]);
    let first = terminal.children();
    assert_eq!(first.len(), 1);
    // The demo has ended, and another can be chosen. Mouse reports in the encoding of older terminals choose none.
    terminal.keys("x");
    terminal.wait_for(&["Enter start"]);
    terminal.keys("\x1b[M !!\x1b[M#!!\x1b[M`!!");
    until("the demo is gone", || terminal.children().is_empty());
    let ended = world.channel_files().len();
    for _ in 0..3 {
        terminal.keys(&"\r".repeat(300));
        let asked = Instant::now();
        while asked.elapsed() < Duration::from_secs(1) {
            assert!(terminal.children().len() <= 1, "{:?}", terminal.children());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    until("the last demo asked for runs", || {
        terminal.children().len() == 1 && !first.contains(&terminal.children()[0])
    });
    terminal.wait_for(&["Training step"]);
    // The terminal passes a write on in parts, and each part may start a demo.
    assert!(world.channel_files().len() - ended < 20, "{:?}", world.channel_files());
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}

#[test]
fn each_fix_turns_the_failure_into_success() {
    for (fix, keeps_reserved) in [("release", false), ("remap", true), ("workspace", false)] {
        let world = World::without_gpu();
        let lines = headless(&world, &["fragmentation", "--fix", fix]);
        let steps: Vec<&Value> = lines.iter().filter(|line| line["type"] == "step").collect();
        let ids: Vec<&str> = steps.iter().map(|step| step["id"].as_str().unwrap()).collect();
        let fixed = format!("fix-{fix}");
        assert_eq!(
            ids,
            [
                "fill",
                "free-every-other",
                "request-fails",
                &fixed,
                "request-again",
                "verify"
            ]
        );
        for step in &steps {
            assert_eq!(
                bytes(step, "reserved"),
                bytes(step, "allocated") + bytes(step, "cached"),
                "{step}"
            );
            assert!(bytes(step, "largest_free") <= bytes(step, "free_total"), "{step}");
        }
        let oom = &steps[2]["oom"];
        let asked = oom["requested"].as_u64().unwrap();
        assert!(
            oom["largest_free"].as_u64().unwrap() < asked,
            "larger than any hole: {oom}"
        );
        assert!(
            oom["free_total"].as_u64().unwrap() > asked,
            "smaller than their sum: {oom}"
        );
        let named: Vec<&str> = steps[2]["choices"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["name"].as_str().unwrap())
            .collect();
        assert_eq!(named, ["release", "remap", "workspace"]);
        if keeps_reserved {
            assert_eq!(
                bytes(steps[3], "reserved"),
                bytes(steps[2], "reserved"),
                "nothing goes back to the driver"
            );
            assert!(bytes(steps[3], "largest_free") >= asked);
        }
        assert!(steps[4]["oom"].is_null(), "{}", steps[4]);
        assert_eq!(steps[5]["verified"], true);
        let last = lines.last().unwrap();
        let result = &last["result"];
        assert_eq!(
            (&last["type"], &result["fix"]),
            (&Value::from("result"), &Value::from(fix))
        );
        for promise in ["failed_before", "succeeded_after", "patterns_verified"] {
            assert_eq!(result[promise], true, "{promise} with {fix}");
        }
        assert!(result["words_checked"].as_u64().unwrap() > 0);
        assert_eq!(result["reserved_at_end"], 0);
    }
}

#[test]
fn a_training_runs_phases_rise_and_fall_in_its_lines() {
    let world = World::without_gpu();
    let lines = headless(
        &world,
        &[
            "train", "--steps", "3", "--layers", "6", "--batch", "16", "--pace", "1ms",
        ],
    );
    let steps: Vec<&Value> = lines.iter().filter(|line| line["type"] == "step").collect();
    assert_eq!(steps.len(), 3);
    for step in steps {
        let phases = step["phases"].as_array().unwrap();
        let told: Vec<_> = phases
            .iter()
            .map(|p| (p["name"].as_str().unwrap(), p["allocated"].as_u64().unwrap()))
            .collect();
        let [("forward", forward), ("backward", backward), ("optimizer", optimizer)] = told[..] else {
            unreachable!("{told:?}")
        };
        assert!(
            forward > backward && forward > optimizer,
            "activations pile up and go: {told:?}"
        );
    }
    assert_eq!(lines.last().unwrap()["result"]["reserved_at_end"], 0);
}

#[test]
fn a_training_run_that_leaks_says_where_it_leaks() {
    let world = World::without_gpu();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.pickle");
    let lines = headless(
        &world,
        &[
            "train",
            "--steps",
            "16",
            "--layers",
            "6",
            "--pace",
            "1ms",
            "--leak",
            "--snapshot",
            path.to_str().unwrap(),
        ],
    );
    let notices: Vec<&str> = lines.iter().filter_map(|line| line["message"].as_str()).collect();
    let [peak, leaks, wrote] = notices[..] else {
        unreachable!("{notices:?}")
    };
    assert!(peak.starts_with("peak: ") && peak.contains("activations"), "{peak}");
    let mut grows = leaks.split("GROWS ").skip(1).peekable();
    assert!(grows.peek().is_some_and(|place| place.contains("a step: ")), "{leaks}");
    for place in grows {
        // The size and tag of the leak, and the functions that asked for it.
        assert!(place.lines().nth(2).unwrap().contains("loss"), "{leaks}");
    }
    assert!(leaks.contains("weights"), "{leaks}");
    assert!(wrote.ends_with("train.pickle"));
    let snapshot = gpumem_alloc::Snapshot::read(&path).unwrap();
    assert_eq!(snapshot.check(), []);
    assert!(snapshot.requests(0).count() > 500);
    assert_eq!(lines.last().unwrap()["result"]["reserved_at_end"], 0);
}

/// The exit code is that of a failure and not that of bad arguments: the budget was large enough.
#[test]
fn a_training_run_that_fails_from_its_leak_says_so() {
    let world = World::without_gpu();
    let args = "demo train --headless --device sim --leak --pace 1ms --budget 1G --layers 2";
    let output = world.command(&args.split(' ').collect::<Vec<_>>()).output().unwrap();
    let said = gpumem_tests::said(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains(" steps leaked ") && said.contains(" MiB (--leak): "),
        "{said}"
    );
}

#[test]
fn a_training_runs_phases_show_on_the_timeline() {
    let world = World::without_gpu();
    let args = ["demo", "train", "--device", "sim", "--pace", "300ms"];
    let mut terminal = Terminal::start(&world, &args, 120, 40);
    terminal.wait_for(&["Training step 2", "forward", "backward", "optimizer"]);
    terminal.keys("3");
    terminal.wait_for(&["last 60 s", "SIMULATED", "allocated", "cached"]);
    terminal.wait_for(&["━ forward", "━ backward", "━ optimizer"]);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}
