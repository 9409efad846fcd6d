//! Bad command lines are refused with a message, and the terminal is left alone.

use std::io::{self, ErrorKind, Read, Write};
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use gpumem_tests::{Ended, Modes, Terminal, World, said};
use rustix::fs::{OFlags, fcntl_setfl};
use serde_json::Value;

/// Checks each command line in a terminal, where the dashboard would have started, and in a pipe.
#[test]
fn bad_arguments_are_refused_before_the_terminal_is_touched() {
    let world = World::with_nvml("h100");
    let cases: [(&[&str], &str); 13] = [
        (&["--nonsense"], "--nonsense"),
        (&["--interval", "0"], "50ms"),
        (&["--interval", "1ms"], "50ms"),
        (&["--interval", "61m"], "1h"),
        (&["--interval", "-1s"], "must be from 50ms to 1h"),
        (&["--interval", "soon"], "500ms"),
        (&["demo", "train", "--pace", "-1s"], "must not be negative"),
        (&["demo", "train", "--budget", "-1G"], "is no size"),
        (&["--device", "first"], "an index such as 0"),
        (&["--device", "cuda:0"], "an index such as 0"),
        (&["demo", "nonsense"], "no demo \"nonsense\""),
        (&["demo", "nonsense", "--headless"], "no demo \"nonsense\""),
        (&["demo", "train", "--json"], "--headless"),
    ];
    for (args, expected) in cases {
        let mut terminal = Terminal::start(&world, args, 100, 24);
        assert_eq!(terminal.ended(), Ended::Code(2), "{args:?}");
        assert!(terminal.text().contains(expected), "{args:?}: {}", terminal.text());
        assert!(
            !said(&terminal.raw()).contains("\x1b[?1049h"),
            "{args:?} took the screen"
        );
        assert!(
            terminal.line_mode_is_back() && terminal.modes() == Modes::OF_A_SHELL,
            "{args:?}"
        );
        let piped = world.command(args).output().unwrap();
        let complaint = said(&piped.stderr);
        assert_eq!(piped.status.code(), Some(2), "{args:?}: {complaint}");
        assert!(complaint.contains(expected), "{args:?}: {complaint}");
    }
}

#[test]
fn a_budget_out_of_range_is_an_error_message() {
    let world = World::without_gpu();
    for budget in ["0", "1", "1K", "900T", "99999999999999999999", "much"] {
        let args = [
            "demo",
            "fragmentation",
            "--headless",
            "--device",
            "sim",
            "--budget",
            budget,
        ];
        let output = world.command(&args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{budget}: {}", said(&output.stderr));
        assert!(
            said(&output.stderr).to_lowercase().contains("budget"),
            "{budget}: {}",
            said(&output.stderr)
        );
        assert!(output.stdout.is_empty(), "{budget}: {}", said(&output.stdout));
    }
    // In the dashboard the same sentence is on the screen, and the exit code is the same.
    let args = ["demo", "fragmentation", "--device", "sim", "--budget", "1K"];
    let mut terminal = Terminal::start(&world, &args, 100, 30);
    terminal.wait_for(&["failed", "budget"]);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(2));
}

#[test]
fn a_report_goes_through_a_pipe() {
    let world = World::with_nvml("gpu0.used=4G");
    let run = |args: &[&str]| world.command(args).output().unwrap();
    let once = run(&["--once"]);
    assert_eq!(once.status.code(), Some(0));
    let text = said(&once.stdout);
    assert!(
        text.contains("NVIDIA H100") && text.contains("4.0") && !text.contains('\x1b'),
        "{text}"
    );
    let document: Value = serde_json::from_slice(&run(&["--json"]).stdout).unwrap();
    assert_eq!(document["devices"][0]["name"], "NVIDIA H100 80GB HBM3");
    let none = run(&["--json", "--device", "7"]);
    assert_eq!(none.status.code(), Some(3), "{}", said(&none.stderr));
}

/// Another program that has the same pipe may have made it non-blocking. A late reader still gets all the output.
#[test]
fn output_waits_for_its_reader_on_a_nonblocking_pipe() {
    let world = World::without_gpu();
    let trace = world.channels().join("trace.csv");
    std::fs::write(&trace, "op,id,bytes,stream\na,1,4096,0\n").unwrap();
    let trace = trace.to_str().unwrap();
    let demo = "demo train --headless --json --device sim --steps 2 --pace 1ms";
    let commands = [
        "--json --device sim".to_owned(),
        demo.to_owned(),
        format!("replay {trace} --device sim --json"),
    ];
    let began = commands.map(|args| {
        let (reader, mut writer) = io::pipe().unwrap();
        fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
        let mut before = 0;
        let full = loop {
            match writer.write(&[b' '; 4096]) {
                Ok(bytes) => before += bytes,
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        let args_of: Vec<_> = args.split(' ').collect();
        let mut command = world.command(&args_of);
        let child = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        (args, child, reader, before)
    });
    // By now each has something to write.
    sleep(Duration::from_secs(2));
    for (args, child, mut reader, before) in began {
        let mut text = Vec::new();
        reader.read_to_end(&mut text).unwrap();
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(0), "{args}: {}", said(&ended.stderr));
        let documents = serde_json::Deserializer::from_slice(&text[before..]).into_iter::<Value>();
        assert!(
            documents.map(Result::unwrap).count() > 0,
            "{args}: {}",
            said(&text[before..])
        );
    }
}

/// `--device sim` works on a machine with a GPU too.
#[test]
fn the_simulated_device_can_be_asked_for() {
    let world = World::with_nvml("h100");
    let mut terminal = Terminal::start(&world, &["--device", "sim"], 100, 30);
    terminal.wait_for(&[" SIMULATED ", "Simulated GPU"]);
    assert!(!terminal.text().contains("H100"));
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
    let document: Value =
        serde_json::from_slice(&world.command(&["--json", "--device", "sim"]).output().unwrap().stdout).unwrap();
    assert_eq!(
        (&document["simulated"], document["devices"].as_array().unwrap().len()),
        (&Value::Bool(true), 1)
    );
}
