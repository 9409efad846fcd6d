//! `replay` as people and programs run it: on the simulated device, on CUDA with the fake driver, and with bad input.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Output, Stdio};

use gpumem_tests::{Ended, Terminal, World, said};
use serde_json::Value;

/// The first 2,000 operations of a recorded program on four streams.
const TRACE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../demo/tests/data/multi_stream_2000.csv.gz"
);

fn replay(world: &World, args: &[&str]) -> Output {
    world.command(&[&["replay"], args].concat()).output().unwrap()
}

#[track_caller]
fn report(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", said(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], "gpumem-replay/1");
    assert_eq!(report["trace"]["operations"], 2000);
    report
}

#[test]
fn a_report_has_every_figure_and_its_label() {
    let world = World::without_gpu();
    let report = report(&replay(&world, &[TRACE, "--device", "sim", "--json", "--passes", "2"]));
    assert_eq!(report["simulated"], true);
    assert_eq!(report["allocator"]["name"], "gpumem");
    assert_eq!(report["allocator"]["publishing"], true);
    let memory = &report["memory"];
    let (requested, reserved) = (
        memory["peak_requested"].as_f64().unwrap(),
        memory["peak_reserved"].as_f64().unwrap(),
    );
    assert_eq!(memory["ratio"].as_f64().unwrap(), reserved / requested);
    for figure in ["internal", "external", "inactive_split", "reserved", "device_used"] {
        assert!(memory["fragmentation"][figure].is_number(), "{figure}: {memory}");
    }
    let time = &report["time"];
    assert!(
        time["cold_ns_per_op"].is_number() && time["steady_ns_per_op"].is_number() && time["own_ns_per_op"].is_number()
    );
    let passes = time["passes"].as_array().unwrap();
    assert_eq!(passes.len(), 2);
    assert!(passes[0]["driver_calls"]["cuMemCreate"].as_u64() > Some(0) && passes[0]["driver_ns"].as_u64() > Some(0));
    assert_eq!(report["out_of_memory"], serde_json::json!({"count": 0, "first": null}));
    assert_eq!(world.channel_files().len(), 1, "it published, and left its black box");

    // Without a driver the text report uses the simulated device, labelled as such, and `--json` is refused.
    let text = replay(&world, &[TRACE, "--no-publish"]);
    assert_eq!(text.status.code(), Some(0), "{}", said(&text.stderr));
    assert!(said(&text.stdout).starts_with("SIMULATED "), "{}", said(&text.stdout));
    let piped = world
        .command(&["replay", "-", "--no-publish"])
        .stdin(std::fs::File::open(TRACE).unwrap())
        .output()
        .unwrap();
    assert!(
        said(&piped.stdout).contains("2,000 operations"),
        "{}",
        said(&piped.stderr)
    );
    let refused = replay(&world, &[TRACE, "--json"]);
    assert_eq!(refused.status.code(), Some(3), "{}", said(&refused.stdout));
    assert!(said(&refused.stderr).contains("--device sim") && refused.stdout.is_empty());
    assert_eq!(world.channel_files().len(), 1, "nothing was published");
}

/// Some parent processes give their children a socket as stdin.
#[test]
fn stdin_may_be_a_socket() {
    let world = World::without_gpu();
    for args in [&["--no-publish"][..], &["--speed", "max", "--passes", "1"]] {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let writer = std::thread::spawn(move || (&ours).write_all(&std::fs::read(TRACE).unwrap()));
        let piped = world
            .command(&[&["replay", "-", "--device", "sim"], args].concat())
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .output()
            .unwrap();
        assert_eq!(piped.status.code(), Some(0), "{}", said(&piped.stderr));
        writer.join().unwrap().unwrap();
    }
}

/// PyTorch's options mean here what they mean there, whether a flag or the environment gives them. A flag of `replay` itself takes
/// precedence.
#[test]
fn flags_and_environment_configure_the_allocator() {
    let world = World::without_gpu();
    let run = |args: &[&str], environment: &str| {
        let args = [&["replay", TRACE, "--json", "--device", "sim", "--passes", "1"], args].concat();
        world
            .command(&args)
            .env("GPUMEM_ALLOC_CONF", environment)
            .output()
            .unwrap()
    };
    let figure = |output: &Output, name: &str| report(output)["memory"][name].as_u64().unwrap();
    let usual = run(&[], "");
    let rounded = run(&["--conf", "roundup_power2_divisions:1"], "nonsense");
    assert!(figure(&rounded, "peak_allocated") == figure(&usual, "peak_allocated"));
    let rounded = run(&[], "roundup_power2_divisions:2");
    assert!(figure(&rounded, "peak_allocated") > figure(&usual, "peak_allocated"));
    let grown = report(&run(&[], "expandable_segments:True,publish:off"));
    assert_eq!(report(&usual)["allocator"]["segments"], "stitched", "what auto is here");
    assert_eq!(grown["allocator"]["segments"], "virtual");
    assert_eq!(grown["allocator"]["publishing"], false);
    let limited = report(&run(
        &["--limit", "1G", "--segments", "plain"],
        "budget_mb:64,segments:stitched",
    ));
    assert_eq!(limited["allocator"]["segments"], "plain");
    assert_eq!(limited["allocator"]["limit"], 1u64 << 30);

    let idle = run(&["--conf", "garbage_collection_threshold:0.8"], "");
    let stderr = said(&idle.stderr);
    let note = "gpumem-tui replay: note: garbage_collection_threshold: no effect without a budget";
    assert!(stderr.starts_with(note) && stderr.lines().count() == 1, "{stderr}");
    assert_eq!(figure(&idle, "peak_reserved"), figure(&usual, "peak_reserved"));
    let used = run(&["--limit", "1G"], "garbage_collection_threshold:0.8");
    assert_eq!(
        (report(&used)["allocator"]["segments"].as_str(), &*said(&used.stderr)),
        (Some("plain"), "")
    );
    let idle = run(&["--segments", "stitched"], "max_split_size_mb:64");
    let stderr = said(&idle.stderr);
    assert!(
        stderr.contains("max_split_size_mb: no effect with stitched segments"),
        "{stderr}"
    );

    let list = world.command(&["replay", "--conf", "help"]).output().unwrap();
    assert_eq!(list.status.code(), Some(0), "{}", said(&list.stderr));
    let text = said(&list.stdout);
    assert!(text.starts_with("Options of GPUMEM_ALLOC_CONF") && text.contains("garbage_collection_threshold"));
    for (args, environment, expected) in [
        (
            &["--conf", "max_split_size:64"][..],
            "",
            "did you mean max_split_size_mb?",
        ),
        (
            &[],
            "backend:cudaMalloc",
            "GPUMEM_ALLOC_CONF, column 9: backend takes native or cudaMallocAsync",
        ),
        (
            &[],
            "gpu_direct_rdma:True,segments:plain",
            "gpu_direct_rdma means nothing with plain segments",
        ),
        (
            &["--conf", "", "--allocator", "cudamalloc"],
            "",
            "--conf is for --allocator gpumem only",
        ),
    ] {
        let output = run(args, environment);
        assert_eq!(output.status.code(), Some(2), "{args:?} {environment}");
        assert!(said(&output.stderr).contains(expected), "{}", said(&output.stderr));
    }
}

/// A monitor reports a condition on stderr once, however long it lasts.
#[test]
fn a_replay_may_be_monitored() {
    let world = World::without_gpu();
    let args = [
        "--device",
        "sim",
        "--json",
        "--passes",
        "1",
        "--speed",
        "2000",
        "--segments",
        "virtual",
    ];
    let monitor = "monitor:[ratio:0.01, below:0.001, seconds:0, least_mb:1, every_ms:5]";
    let output = replay(&world, &[&[TRACE], &args[..], &["--conf", monitor]].concat());
    let said = said(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.starts_with("gpumem: device 0: external fragmentation of "),
        "{said}"
    );
    assert!((1..5).contains(&said.lines().count()), "{said}");
}

#[test]
fn every_allocator_replays_on_cuda() {
    let driver = tempfile::tempdir().unwrap();
    gpumem_fake_cuda::install(driver.path()).unwrap();
    let world = World::without_gpu();
    let run = |args: &[&str], environment: &[(&str, &str)]| {
        let mut command = world.command(&[&["replay", TRACE, "--json", "--device", "cuda:0"], args].concat());
        command
            .env("LD_LIBRARY_PATH", driver.path())
            .envs(environment.iter().copied());
        command.output().unwrap()
    };
    for (allocator, call) in [
        ("gpumem", "cuMemMap"),
        ("cudamalloc", "cuMemAlloc"),
        ("cudamallocasync", "cuMemAllocAsync"),
    ] {
        let report = report(&run(&["--allocator", allocator, "--passes", "2"], &[]));
        assert_eq!(
            (&report["simulated"], &report["time"]["driver_cost"]),
            (&false.into(), &"measured".into())
        );
        let cold = &report["time"]["passes"][0];
        assert!(cold["driver_calls"][call].as_u64() > Some(0), "{allocator}: {cold}");
        assert_eq!(cold["driver_ns"].as_u64() > Some(0), allocator == "gpumem");
        let ratio = report["memory"]["ratio"].as_f64().unwrap();
        assert!((1.0..8.0).contains(&ratio), "{allocator}: {ratio}");
    }
    // Less memory than the trace needs: every allocator counts the failures.
    for allocator in ["gpumem", "cudamalloc", "cudamallocasync"] {
        let small = [("FAKE_CUDA_TOTAL", "134217728")];
        let report = report(&run(&["--allocator", allocator, "--passes", "1"], &small));
        let failures = &report["out_of_memory"];
        assert!(failures["count"].as_u64() > Some(0), "{allocator}: {failures}");
        let message = failures["first"]["message"].as_str().unwrap();
        assert!(message.to_lowercase().contains("memory"), "{allocator}: {message}");
        assert!(
            report["memory"]["peak_reserved"].as_u64() <= Some(128 << 20),
            "{allocator}"
        );
    }
    // An error of the driver does not count as out of memory.
    for (allocator, call) in [
        ("gpumem", "cuMemCreate"),
        ("cudamalloc", "cuMemFree"),
        ("cudamallocasync", "cuMemAllocAsync"),
    ] {
        let output = run(&["--allocator", allocator], &[("FAKE_CUDA_FAIL", &format!("{call}:5"))]);
        assert_eq!(output.status.code(), Some(1), "{allocator}: {}", said(&output.stdout));
        let complaint = said(&output.stderr);
        assert!(
            complaint.contains("operation ") && complaint.contains(call),
            "{allocator}: {complaint}"
        );
    }
    let missing = run(&[], &[("FAKE_CUDA_INIT", "100")]);
    assert_eq!(missing.status.code(), Some(3), "{}", said(&missing.stderr));
}

/// The driver is not asked after each block how much it has given out. It may have given out more even while the program holds less
/// than before.
#[test]
fn the_drivers_peak_is_found_where_sizes_are_rounded_up() {
    let driver = tempfile::tempdir().unwrap();
    gpumem_fake_cuda::install(driver.path()).unwrap();
    let mut rows = "op,id,bytes,stream\na,0,33554432,0\nf,0\n".to_owned();
    (1..16).for_each(|id| rows += &format!("a,{id},2097153,0\n"));
    let trace = driver.path().join("trace.csv");
    std::fs::write(&trace, rows).unwrap();
    let world = World::without_gpu();
    let args = ["replay", trace.to_str().unwrap(), "--json", "--allocator", "cudamalloc"];
    let mut command = world.command(&[&args[..], &["--device", "cuda:0"]].concat());
    let output = command.env("LD_LIBRARY_PATH", driver.path()).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["memory"]["peak_reserved"], 15 * (4 << 20));
}

#[test]
fn a_trace_that_cannot_be_replayed_is_an_error_message() {
    let world = World::without_gpu();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let whole = std::fs::read(TRACE).unwrap();
    let absent = folder.path().join("absent").to_str().unwrap().to_owned();
    for (path, code, expected) in [
        (absent, 1, "cannot be read"),
        (folder.path().to_str().unwrap().to_owned(), 1, "cannot be read"),
        (file("empty", b""), 1, "is empty"),
        (
            file("other", b"a,1,2,3\n"),
            1,
            "line 1, column 1: found \"a,1,2,3\"; expected the header",
        ),
        (
            file("bad.csv", b"op,id,bytes,stream\na,1,lots,0\n"),
            1,
            "bad.csv: line 2, column 5: found \"lots\"; expected a size in bytes",
        ),
        (file("short", &whole[..12]), 1, "is cut off or damaged"),
        (file("nothing", b"op,id,bytes,stream\n"), 1, "no operations"),
    ] {
        // Both as a measurement and as a paced replay.
        for more in [&[][..], &["--speed", "max"]] {
            let output = replay(&world, &[&[path.as_str(), "--device", "sim"], more].concat());
            assert_eq!(output.status.code(), Some(code), "{path}: {}", said(&output.stdout));
            let complaint = said(&output.stderr);
            let told = complaint.starts_with("gpumem-tui replay: ") && complaint.contains(expected);
            assert!(told && output.stdout.is_empty(), "{path}: {complaint}");
            assert_eq!(complaint.trim_end().lines().count(), 1, "{complaint}");
        }
    }
    for (args, expected) in [
        (&[][..], "TRACE"),
        (&[TRACE, "--passes", "0"], "--passes"),
        (&[TRACE, "--speed", "-1"], "\"-1\" is not a speed: say max"),
        (&[TRACE, "--allocator", "malloc"], "cudamallocasync"),
        (&[TRACE, "--segments", "odd"], "plain"),
        (&[TRACE, "--limit", "much"], "512MiB"),
        (&[TRACE, "--limit", "0"], "no room"),
        (&[TRACE, "--behind", "-1"], "a whole number"),
        (&[TRACE, "--behind", "3", "--speed", "100"], "--speed"),
        (
            &[TRACE, "--behind", "3", "--allocator", "cudamalloc"],
            "for --allocator gpumem only",
        ),
        (
            &[TRACE, "--device", "sim", "--allocator", "cudamallocasync"],
            "exists on a GPU only",
        ),
        (
            &[
                TRACE,
                "--device",
                "sim",
                "--allocator",
                "cudamalloc",
                "--segments",
                "plain",
            ],
            "--segments",
        ),
    ] {
        let output = replay(&world, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", said(&output.stdout));
        assert!(
            said(&output.stderr).contains(expected),
            "{args:?}: {}",
            said(&output.stderr)
        );
    }
}

/// The part that can be read is replayed, as a measurement and as a paced replay, and the damage is reported.
#[test]
fn a_damaged_log_is_replayed_and_reported_as_damaged() {
    let world = World::without_gpu();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("odd.csv");
    let rows = "1,2,allocate,0x10,64,0\n\x1b[31m loading \u{202e}\n1,2,free,0x10,64,0\n1,2,alloc";
    std::fs::write(&path, format!("Thread,Time,Action,Pointer,Size,Stream\n{rows}")).unwrap();
    let path = path.to_str().unwrap();
    let json = replay(&world, &[path, "--device", "sim", "--passes", "1", "--json"]);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    let trace = &json["trace"];
    assert_eq!(
        (&trace["operations"], &trace["odd_rows"], &trace["cut"]),
        (&2.into(), &1.into(), &true.into())
    );
    assert_eq!((&trace["logs"], &trace["other_sizes"]), (&1.into(), &0.into()));
    let odd = "1 invalid row (line 3, column";
    let cut = "the file is cut off: it ends within line 5";
    for more in [&["--passes", "1"][..], &["--speed", "max", "--passes", "1"]] {
        let output = replay(&world, &[&[path, "--device", "sim"], more].concat());
        let text = said(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(output.status.code(), Some(0), "{more:?}: {}", said(&output.stderr));
        assert!(text.contains(odd) && text.contains(cut), "{more:?}: {text}");
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text:?}");
    }
}

/// Operations take 16 bytes each. Where memory is limited, too many of them are an error and do not abort the process.
#[test]
fn a_trace_too_large_for_memory_is_an_error_message() {
    let world = World::without_gpu();
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("long.csv");
    let rows = "a,1,9,0\nf,1\n".repeat(5_000_000);
    std::fs::write(&trace, format!("op,id,bytes,stream\n{rows}")).unwrap();
    let command = world.command(&["replay", trace.to_str().unwrap(), "--device", "sim"]);
    let limited = std::process::Command::new("sh")
        .args(["-c", "ulimit -v 115000 && exec \"$0\" \"$@\""])
        .arg(command.get_program())
        .args(command.get_args())
        .output()
        .unwrap();
    let complaint = said(&limited.stderr);
    assert_eq!(limited.status.code(), Some(1), "{complaint}");
    let expected = "long.csv: line 4194306: there is no memory for more operations\n";
    assert!(complaint.ends_with(expected), "{complaint}");
}

#[test]
fn a_replay_is_watched_and_paced_in_the_dashboard() {
    let world = World::without_gpu();
    let args = ["replay", TRACE, "--watch", "--device", "sim", "--speed", "300"];
    let mut terminal = Terminal::start(&world, &args, 120, 40);
    terminal.wait_for(&["Demo: replay", "SIMULATED", "300 operations a second", "+ - speed"]);
    terminal.keys("+");
    terminal.wait_for(&["600 operations a second"]);
    terminal.keys("--");
    terminal.wait_for(&["150 operations a second"]);
    terminal.keys(" ");
    terminal.wait_for(&["It stands still"]);
    terminal.keys("1");
    terminal.wait_for(&["publishing", "multi_stream_2000.csv.gz", "JOB/COMMAND"]);
    terminal.keys("7 ");
    terminal.wait_for(&["150 operations a second"]);
    // Far faster than a machine can go, and back to a speed that it can keep.
    terminal.keys(&"+".repeat(24));
    terminal.wait_for(&["At full speed, ", " operations"]);
    terminal.keys("-");
    terminal.wait("a speed that is kept", |screen| !screen.contains("At full speed"));
    terminal.wait_for(&[" operations a second"]);
    terminal.keys("x");
    terminal.wait_for(&["stopped", "▸ replay", "multi_stream_2000.csv.gz once more"]);
    terminal.keys("\r");
    terminal.wait_for(&["running", "SIMULATED", "300 operations a second"]);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}

/// Otherwise the terminal would break lines within words.
#[test]
fn text_of_a_paced_replay_is_as_wide_as_the_terminal() {
    let world = World::without_gpu();
    let args = ["replay", TRACE, "--device", "sim", "--speed", "max", "--passes", "1"];
    let mut terminal = Terminal::start(&world, &args, 60, 24);
    assert_eq!(terminal.ended(), Ended::Code(0));
    let raw = terminal.raw();
    let raw = said(&raw);
    let words: Vec<&str> = raw.lines().filter(|line| line.starts_with("      allocated")).collect();
    assert!(!words.is_empty(), "{raw}");
    // Paths are not wrapped.
    for line in raw.lines().filter(|line| !line.contains('/')) {
        assert!(line.trim_end().len() <= 60, "{raw}");
    }
}

/// An error that only the replay can find is shown on the screen, and printed again once the screen is gone. The exit code is the
/// replay's.
#[test]
fn a_watched_replay_that_cannot_start_ends_with_its_error() {
    let driver = tempfile::tempdir().unwrap();
    gpumem_fake_cuda::install(driver.path()).unwrap();
    let world = World::without_gpu();
    let environment = [
        ("LD_LIBRARY_PATH", driver.path().to_str().unwrap()),
        ("FAKE_CUDA_INIT", "100"),
    ];
    let args = ["replay", TRACE, "--watch", "--device", "cuda"];
    let mut terminal = Terminal::start_with(&world, &args, 120, 40, &environment);
    terminal.wait_for(&["failed", "--device sim"]);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(3));
    let raw = terminal.raw();
    let left = b"\x1b[?1049l";
    let after = raw.windows(left.len()).position(|bytes| bytes == left).unwrap();
    let said = said(&raw[after..]);
    assert!(
        said.contains("gpumem-tui replay: ") && said.contains("--device sim"),
        "{said}"
    );
}

/// The message and the exit code are those without `--watch`, and the screen is left alone. A pipe is read only once, by the replay.
#[test]
fn a_bad_trace_is_refused_before_the_screen_is_taken() {
    let world = World::without_gpu();
    let folder = tempfile::tempdir().unwrap();
    let bad = folder.path().join("bad.csv");
    std::fs::write(&bad, "op,id,bytes,stream\na,1,0,0\nf,1\nodd\n").unwrap();
    let bad = bad.to_str().unwrap();
    for (path, device, conf, code, expected) in [
        ("/nowhere", "sim", "", 1, "gpumem-tui replay: /nowhere: cannot be read"),
        (bad, "sim", "", 1, "bad.csv: line 4, column 1: found \"odd\""),
        (
            TRACE,
            "sim",
            "odd:1",
            2,
            "gpumem-tui replay: GPUMEM_ALLOC_CONF, column 1",
        ),
        (
            TRACE,
            "sim",
            "max_chunk_mb:4,segments:plain",
            2,
            "gpumem-tui replay: GPUMEM_ALLOC_CONF, column 1: max_chunk_mb",
        ),
        (TRACE, "cuda", "", 3, "gpumem-tui replay: "),
    ] {
        let args = ["replay", path, "--watch", "--device", device];
        let environment = [("GPUMEM_ALLOC_CONF", conf)];
        let mut terminal = Terminal::start_with(&world, &args, 120, 40, &environment);
        assert_eq!(terminal.ended(), Ended::Code(code), "{path} {conf}");
        let (raw, text) = (terminal.raw(), terminal.text());
        assert!(text.contains(expected), "{text}");
        assert!(!raw.windows(8).any(|bytes| bytes == b"\x1b[?1049h"), "{text}");
    }
    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
    let args = ["replay", pipe.to_str().unwrap(), "--watch", "--device", "sim"];
    let mut terminal = Terminal::start(&world, &args, 120, 40);
    // Opening a pipe for writing waits for a reader.
    std::thread::spawn(move || std::fs::write(pipe, "op,id,bytes,stream\na,1,512,0\nf,1\n"));
    terminal.wait_for(&["of 2 operations"]);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}
