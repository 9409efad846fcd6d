//! Unified memory: the dashboard and its helper beside processes with managed memory, in front of a fake driver.

mod stage;

use std::time::{Duration, Instant};

use gpumem_tests::{Ended, Modes, Terminal, lives, stopped, until};
use rustix::process::Signal;
use serde_json::Value;

use self::stage::{BLOCK, Stage, Watched, cells, helper, helpers, wait_for_sentence, wait_until_gone, words};

/// How long a tracker may stay open after its process has ended.
const LIMIT: Duration = Duration::from_millis(100);
/// A busy machine runs a process late now and then. A tracker that is forgotten is open every time.
const TRIES: usize = 5;
/// Pages of 64 MiB and of 2 GiB.
const SMALL: u64 = 32 * BLOCK;
const LARGE: u64 = 1024 * BLOCK;

#[test]
#[ignore = "not a test: every test of this file starts it as the watched process"]
fn watched_process() {
    stage::play_watched();
}

#[test]
#[ignore = "not a test: process_whose_map_cannot_be_read_is_named starts it"]
fn without_rights() {
    stage::run_without_rights();
}

/// Asserts that it takes no longer than [`LIMIT`].
fn in_time(what: &str, attempt: impl Fn() -> Duration) {
    let times: Vec<Duration> = (0..TRIES).map(|_| attempt()).take_while(|time| *time > LIMIT).collect();
    assert!(times.len() < TRIES, "{what}: a tracker was open for {times:?}");
}

/// A dashboard that shows the managed memory of the only process, and counts.
fn showing(stage: &Stage) -> Terminal {
    let mut terminal = stage.dashboard(&[]);
    terminal.wait_for(&["MANAGED"]);
    terminal.keys("5");
    terminal.wait_for(&["GPU faults", " managed in 1 range", "1 cell ="]);
    terminal
}

fn quit(mut terminal: Terminal) {
    let left = helpers(terminal.pid());
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
    left.into_iter().for_each(wait_until_gone);
}

#[test]
fn overview_and_reports_have_the_managed_part() {
    let stage = Stage::new("");
    let mut watched = stage.watched(1, LARGE);
    watched[0].say(&format!("touch 0 {SMALL}"));

    let terminal = stage.dashboard(&[]);
    terminal.wait_for(&["MANAGED", "2.0G 3%", "managed, at most 1.9"]);
    // It is looked at without the driver.
    assert_eq!(stage.fake.requests().unwrap(), []);
    assert_eq!(helpers(terminal.pid()), [0; 0]);
    quit(terminal);

    let once = stage.report(&["--once"]);
    assert!(
        once.contains("2.0G 3%") && words(&once).contains("managed at most 1.9 GiB"),
        "{once}"
    );
    let json: Value = serde_json::from_str(&stage.report(&["--json"])).unwrap();
    let process = &json["processes"][0];
    assert_eq!(process["managed"], LARGE * 4096);
    assert_eq!(process["managed_on_cpu"], SMALL * 4096);
    let memory = &json["devices"][0]["memory"];
    assert_eq!(memory["managed_at_most"], (LARGE - SMALL) * 4096);
    let part = |name: &str| memory[name].as_u64().unwrap();
    let parts = [
        "allocated",
        "cached",
        "other",
        "managed_at_most",
        "driver_reserved",
        "free",
    ];
    assert_eq!(parts.map(part).iter().sum::<u64>(), part("total"), "{memory}");
    assert_eq!(stage.fake.requests().unwrap(), []);
}

#[test]
fn counters_and_pages_are_shown_as_they_change() {
    let stage = Stage::new("0 count to_gpu=0x6400000 gpu_faults=6900\n300 count to_cpu=0x3200000 cpu_faults=150");
    let mut watched = stage.watched(1, SMALL);
    let mut terminal = showing(&stage);
    terminal.wait_for(&["total 100 MiB", "total 6,900", "total 50.0 MiB", "total 150"]);
    stage.wait_for_trackers(1);

    // The cursor covers the first cell.
    let all = |text: &str, glyph: char| cells(text).chars().skip(1).all(|cell| cell == glyph);
    terminal.wait("nothing on the CPU", |text| all(text, '░'));
    terminal.wait_for(&["░ not on the CPU 64.0M"]);
    watched[0].say(&format!("touch 0 {}", SMALL / 2));
    terminal.wait("its first half on the CPU", |text| {
        let cells = cells(text);
        let on_cpu = cells.trim_start_matches('◆').trim_start_matches('▓');
        let half = cells.chars().count() / 2;
        on_cpu.chars().count().abs_diff(half) <= 1 && on_cpu.chars().skip(1).all(|cell| cell == '░')
    });
    terminal.wait_for(&["▓ on the CPU 32.0M   ░ not on the CPU 32.0M"]);
    watched[0].say(&format!("leave 0 {BLOCK}"));
    terminal.wait_for(&["▓ on the CPU 30.0M   ░ not on the CPU 34.0M"]);
    watched[0].say(&format!("touch 0 {SMALL}"));
    terminal.wait("all of it on the CPU", |text| all(text, '▓'));
    watched[0].say(&format!("leave 0 {SMALL}"));
    terminal.wait("nothing on the CPU", |text| all(text, '░'));

    // The cursor, and cells of half the size each time.
    let size = |text: &str| {
        words(text.split("1 cell = ").nth(1).unwrap())
            .split(' ')
            .take(2)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let whole = size(&terminal.text());
    terminal.keys("\x1b[C");
    terminal.wait("the second cell", |text| {
        cells(text).starts_with("░◆") && !text.contains("◆ 700000000000 ")
    });
    terminal.keys("+");
    terminal.wait("smaller cells", |text| size(text) != whole);
    terminal.keys("+++++++++++++++++++++++++");
    terminal.wait_for(&["1 cell = 4 KiB"]);
    terminal.keys("0\x1b[H");
    terminal.wait("the whole map", |text| {
        size(text) == whole && cells(text).starts_with('◆')
    });
    quit(terminal);
}

#[test]
fn causes_are_told_until_they_are_ended() {
    let stage = Stage::new(
        "\
0 event migration cause=2 from=0 to=1 address=0x700000000000 bytes=0x200000 step=0x200000 times=4
0 event migration cause=3 from=1 to=0 address=0x700000000000 bytes=0x100000 times=3
0 event thrashing from=0 address=0x700000400000 bytes=4096 times=5
",
    );
    let _watched = stage.watched(1, SMALL);
    let mut terminal = showing(&stage);
    stage.wait_for_trackers(1);
    terminal.keys("c");
    let fault = "fault (coherence) 8.0M 4 0 0";
    let prefetch = "driver's prefetch 0 0 3.0M 3";
    wait_for_sentence(&terminal, fault);
    wait_for_sentence(&terminal, prefetch);
    wait_for_sentence(&terminal, "pages thrashing 5");
    // The part that moved to the CPU last was mapped there and is not present: it has left since.
    wait_for_sentence(&terminal, "on the GPU 8.0M");
    wait_for_sentence(&terminal, "unknown or never touched 56.0M");
    stage.wait_for_trackers(2);
    terminal.keys("c");
    terminal.wait("the panel is closed", |text| !text.contains("Causes"));
    stage.wait_for_trackers(1);
    // Nothing slows the process unless its causes are on the screen.
    terminal.keys("c");
    wait_for_sentence(&terminal, fault);
    terminal.keys("1");
    terminal.wait_for(&["MANAGED"]);
    stage.wait_for_trackers(0);
    quit(terminal);
}

#[test]
fn list_and_next_process() {
    let stage = Stage::new("space=1 0 count to_gpu=0x100000");
    let watched = stage.watched(2, SMALL);
    let [first, second] = [0, 1].map(|n| watched[n].pid().to_string());
    let title = |pid: &str| format!("─ {pid}: ");
    let mut terminal = showing(&stage);
    let shown = |pid: &str| terminal.text().contains(&title(pid));
    let (here, other) = if shown(&first) {
        (&first, &second)
    } else {
        (&second, &first)
    };
    stage.wait_for_trackers(1);

    terminal.keys("a");
    terminal.wait_for(&["Managed memory of all processes", "H>D/s", &first, &second]);
    stage.wait_for_trackers(2);
    until("the shown one is chosen", || terminal.selected(here));
    terminal.keys(if here < other { "\x1b[B" } else { "\x1b[A" });
    until("the other is chosen", || terminal.selected(other));
    terminal.keys("\r");
    terminal.wait_for(&[&title(other), " managed in 1 range"]);
    stage.wait_for_trackers(1);
    // To one end of the list and to the other.
    let key = |forward: bool| if forward { "n" } else { "N" };
    terminal.keys(key(other < here));
    terminal.wait_for(&[&title(here)]);
    terminal.keys(key(here < other));
    terminal.wait_for(&[&title(other)]);
    quit(terminal);
}

#[test]
fn trackers_are_attached_as_was_asked_for() {
    let stage = Stage::new("");
    let _watched = stage.watched(1, SMALL);
    let mut off = stage.dashboard(&["--uvm", "off"]);
    off.wait_for(&["MANAGED"]);
    off.keys("5");
    off.wait_for(&["counters are off (--uvm off)", "1 cell ="]);
    off.keys("c");
    off.wait_for(&["--uvm off: nothing is attached to processes"]);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(stage.fake.requests().unwrap(), []);
    quit(off);

    let on = stage.dashboard(&["--uvm", "on"]);
    on.wait_for(&["MANAGED"]);
    stage.wait_for_trackers(1);
    quit(on);
    assert_eq!(stage.trackers(), 0);
}

#[test]
fn wrong_keys_and_small_screens_do_no_harm() {
    let stage = Stage::new("");
    let _watched = stage.watched(1, SMALL);
    let mut terminal = showing(&stage);
    for (columns, rows) in [(20, 5), (1, 1), (300, 3), (3, 100), (20, 5)] {
        terminal.keys("zZ@#$%^&*()[]{}8\x01\x02\x1bOs\x1b[15~\x1b[99~\x1b[I");
        terminal.keys("\x1b[A\x1b[B\x1b[C\x1b[D\x1b[5~\x1b[6~\x1b[F\x1b[H++--0nNcca\x1b[B\ra\r");
        terminal.resize(columns, rows);
    }
    terminal.wait_for(&["mana"]);
    terminal.resize(120, 40);
    terminal.wait_for(&["GPU faults", " managed in 1 range", "1 cell ="]);
    stage.wait_for_trackers(1);
    quit(terminal);
}

#[test]
fn process_that_is_killed_while_it_is_shown() {
    in_time("the process is killed", || {
        let stage = Stage::new("");
        let mut watched = stage.watched(1, SMALL);
        let terminal = showing(&stage);
        stage.wait_for_trackers(1);
        watched[0].kill();
        let time = stage.until_released();
        wait_for_sentence(&terminal, "No process has managed memory");
        // NVML notices too.
        stage.list(&[]);
        wait_for_sentence(&terminal, "No process has managed memory");
        quit(terminal);
        time
    });
}

#[test]
fn dashboard_that_is_killed_leaves_nothing() {
    in_time("the dashboard is killed", || {
        let stage = Stage::new("");
        let _watched = stage.watched(1, SMALL);
        let mut terminal = showing(&stage);
        stage.wait_for_trackers(1);
        let helper = helper(terminal.pid());
        terminal.signal(Signal::KILL);
        let time = stage.until_released();
        assert_eq!(terminal.ended(), Ended::Signal);
        wait_until_gone(helper);
        time
    });
}

#[test]
fn process_that_ends_while_the_dashboard_is_suspended() {
    in_time("the process is killed", || {
        let stage = Stage::new("");
        let mut watched = stage.watched(1, SMALL);
        let terminal = showing(&stage);
        stage.wait_for_trackers(1);
        let helper = helper(terminal.pid());
        terminal.signal(Signal::TSTP);
        until("it is stopped", || stopped(terminal.pid()));
        assert!(lives(helper) && !stopped(helper));
        watched[0].kill();
        let time = stage.until_released();
        terminal.signal(Signal::CONT);
        until("the terminal is the dashboard's", || {
            terminal.modes() != Modes::OF_A_SHELL
        });
        wait_for_sentence(&terminal, "No process has managed memory");
        quit(terminal);
        time
    });
}

#[test]
fn what_cannot_be_seen_is_told() {
    let stage = Stage::new("");
    let _watched = stage.watched(1, SMALL);
    let told = |sentence: &str| {
        let mut terminal = stage.dashboard(&[]);
        terminal.wait_for(&["MANAGED"]);
        terminal.keys("5");
        wait_for_sentence(&terminal, sentence);
        // Its pages are known all the same.
        terminal.wait_for(&["64.0 MiB managed in 1 range", "1 cell ="]);
        quit(terminal);
    };
    stage.fake.set_version("610.10.02").unwrap();
    told("no counters: the interface of driver 610.10.02 is not known: it is of the series 515 to 595");
    stage.fake.set_version("580.159.04").unwrap();
    std::fs::remove_file(stage.fake.tools()).unwrap();
    told("is missing: nvidia-modprobe -u -c=0 makes it; a container needs --device /dev/nvidia-uvm-tools");
}

#[test]
fn process_whose_map_cannot_be_read_is_named() {
    let stage = Stage::new("");
    let watched = stage.protected(SMALL);
    let unknown = format!(
        "No process is known to have managed memory. Whether {} has any is not known: it is another user's, or protected: run \
         gpumem-tui as root",
        watched.pid()
    );
    // A user who may profile every process reads its map, and not what it has open.
    let protected = "it is another user's, or protected: run gpumem-tui as root";
    for (rights, sentence) in [("trace profile", unknown.as_str()), ("trace", protected)] {
        let mut terminal = stage.dashboard_without(rights);
        terminal.wait_for(&["STATE", &watched.pid().to_string()]);
        terminal.keys("5");
        wait_for_sentence(&terminal, sentence);
        assert_eq!(stage.fake.requests().unwrap(), []);
        quit(terminal);
    }
}

/// Milliseconds of CPU time that a process took so far.
fn cpu_time(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks = |n: usize| fields[n].parse::<u64>().unwrap();
    (ticks(11) + ticks(12)) * 1000 / rustix::param::clock_ticks_per_second()
}

/// Resident memory of a process, in KiB.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_hundred_processes() {
    /// More are not watched at the same time.
    const MOST: usize = 64;
    let stage = Stage::new("");
    let watched: Vec<Watched> = stage.watched(100, SMALL);
    let mut terminal = stage.dashboard(&["--uvm", "on"]);
    terminal.wait_for(&["MANAGED", "100 rows"]);
    stage.wait_for_trackers(MOST);
    let helper = helper(terminal.pid());
    let times = || [terminal.pid(), helper].map(cpu_time);
    let (before, begin) = (times(), Instant::now());
    std::thread::sleep(Duration::from_secs(3));
    let (after, wall) = (times(), begin.elapsed().as_millis() as f64);
    let [dashboard, helper] = [0, 1].map(|n| (after[n] - before[n]) as f64 * 100.0 / wall);
    let resident = resident(terminal.pid());
    println!(
        "100 processes with managed memory: {dashboard:.1} % of a core, its helper {helper:.1} %; {:.1} MiB resident",
        resident as f64 / 1024.0
    );
    // A build without optimisation has 13 MiB more of code.
    let most = if cfg!(debug_assertions) { 30 } else { 16 };
    assert!(resident < most << 10, "{resident} KiB");
    assert_eq!(stage.trackers(), MOST);
    terminal.keys("5a");
    wait_for_sentence(&terminal, "no counters: 64 processes are watched, and no more can be");
    drop(watched);
    until("no tracker is open", || stage.trackers() == 0);
    quit(terminal);
}
