//! Choosing devices and processes: `--device`, `--filter`, `--user`, `--pid`, `--sort`, and the keys for them.

use gpumem_channel::Publisher;
use gpumem_tests::{Ended, Terminal, World, publish, said, uuid_of};
use serde_json::Value;

/// Two GPUs, three publishers on the first and one on the second.
fn machine() -> (World, Vec<Publisher>) {
    let world = World::with_nvml("h100x2");
    let publishers = [0, 0, 0, 1].map(|gpu| publish(&world, uuid_of(gpu))).into();
    (world, publishers)
}

/// Returns the devices of the rows and the exit code.
fn rows(world: &World, args: &[&str]) -> (Vec<String>, Option<i32>) {
    let output = world.command(&[&["--json"], args].concat()).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let rows = document["processes"].as_array().cloned().unwrap_or_default();
    let device = |row: &Value| row["device"].as_str().unwrap_or_default().to_owned();
    (rows.iter().map(device).collect(), output.status.code())
}

#[test]
fn reports_list_what_the_command_line_chooses() {
    let (world, _publishers) = machine();
    let own = std::process::id().to_string();
    for (args, counts) in [
        (&[][..], [3, 1]),
        (&["--filter", "gpu:1"], [0, 1]),
        (&["--filter", "publishing -gpu:0"], [0, 1]),
        (&["--filter", "not publishing"], [0, 0]),
        (&["--pid", &own], [3, 1]),
        (&["--pid", "1", "--user", "nobody-here"], [0, 0]),
        (&["--device", "1"], [0, 1]),
        (&["--device", "0", "--device", "1"], [3, 1]),
        (&["--device", "1,7"], [0, 1]),
    ] {
        let (devices, code) = rows(&world, args);
        let of = |label: &str| devices.iter().filter(|device| *device == label).count();
        assert_eq!(([of("GPU 0"), of("GPU 1")], code), (counts, Some(0)), "{args:?}");
    }
    let once = world.command(&["--once", "--device", "1,7"]).output().unwrap();
    assert!(
        said(&once.stderr).contains("no such device: 7"),
        "{}",
        said(&once.stderr)
    );
    assert!(!said(&once.stdout).contains("GPU 0"), "{}", said(&once.stdout));
    let text = said(&world.command(&["--once", "--pid", "1"]).output().unwrap().stdout);
    assert!(text.contains("no process passes the filter"), "{text}");
}

#[test]
fn reports_are_sorted_by_the_chosen_column() {
    let world = World::with_nvml("gpus=1;gpu0.process=1:1G:compute;gpu0.process=2:2G:compute");
    let pids = |sort: &str| -> Vec<u64> {
        let output = world.command(&["--json", "--sort", sort]).output().unwrap();
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let rows = document["processes"].as_array().unwrap().iter();
        rows.map(|row| row["pid"].as_u64().unwrap()).collect()
    };
    assert_eq!(pids("nvml"), [2, 1]);
    assert_eq!(pids("-nvml"), [1, 2]);
    assert_eq!(pids("pid"), [1, 2]);
}

/// With such a filter a report would look as if no process were there.
#[test]
fn filter_that_makes_no_sense_is_refused() {
    let (world, _publishers) = machine();
    for (args, why) in [
        (["--filter", "pid:me"], "pid:me is not a number"),
        (["--filter", "state:dead"], "state:dead is not one of publishing, "),
        (["--sort", "size"], "use one of pid, user, "),
        (["--user", "a b"], "without blanks"),
    ] {
        for mode in ["--once", "--json"] {
            let output = world.command(&[&[mode], &args[..]].concat()).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{args:?}");
            assert!(said(&output.stderr).contains(why), "{args:?}: {}", said(&output.stderr));
        }
    }
}

#[test]
fn dashboard_lists_one_device_and_opens_the_publisher_that_matters() {
    let (world, _publishers) = machine();
    let mut terminal = Terminal::start(&world, &["--interval", "100ms", "--sort", "pid"], 120, 40);
    terminal.wait_for(&["4 rows", "PID▴"]);
    terminal.keys("d");
    terminal.wait_for(&["Processes on GPU 0", "3 rows, d lists all 4"]);
    terminal.keys("\x1b[C");
    terminal.wait_for(&["Processes on GPU 1", "1 row, d lists all 4"]);
    terminal.keys("/state:x");
    terminal.wait_for(&["state:x is not one of publishing"]);
    terminal.keys("\x15publishing\r");
    terminal.wait_for(&["1 of 4 match"]);
    terminal.keys("\x1b");
    terminal.wait_for(&["1 row, d lists all 4"]);
    terminal.keys("d");
    terminal.wait_for(&["─ Processes ─", "4 rows"]);
    // The selected process is on GPU 1, and it is the user who went there.
    terminal.keys("2");
    terminal.wait_for(&[&format!("{} on GPU 1", std::process::id())]);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}

#[test]
fn command_line_fills_the_filter_of_the_dashboard() {
    let (world, _publishers) = machine();
    let args = ["--interval", "100ms", "--user", "nobody-here", "--filter", "gpu:1"];
    let mut terminal = Terminal::start(&world, &args, 120, 40);
    terminal.wait_for(&["/user:nobody-here gpu:1", "0 of 4 match"]);
    terminal.keys("\x1b");
    terminal.wait_for(&["4 rows"]);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}
