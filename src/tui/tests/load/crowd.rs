//! Another user has a thousand channels of 256 devices each. They hide nobody else's channels, and do not keep the dashboard from
//! answering.

use std::fs::{DirBuilder, File, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gpumem_channel::{Device, DeviceKind, DeviceStats, Options, Publisher, Touched};
use gpumem_tests::{Ended, Terminal, World, publish, uuid_of};
use rustix::fs::FlockOperation;
use rustix::process::Signal;
use serde_json::Value;

use crate::alone;

/// The id of a user that does not exist.
const STRANGER: u32 = 54_321;
const CHANNELS: usize = 1000;
const DEVICES: u32 = 256;

/// The channels of that user, in a folder where root looks for them.
struct Crowd {
    folder: tempfile::TempDir,
    /// A reader takes a channel for live while its file is locked.
    _locks: Vec<File>,
}

impl Crowd {
    /// Makes the channels. Returns `None` without root's rights.
    fn gather(failed: usize) -> Option<Crowd> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: only root can make another user's channels");
            return None;
        }
        let folder = private("gpumem-crowd-");
        let owner = Some(STRANGER);
        let mut locks = fill(folder.path(), "crowd", 0, CHANNELS - failed, owner);
        locks.extend(fill(folder.path(), "failed", 1, failed, owner));
        chown(folder.path(), Some(STRANGER), Some(STRANGER)).unwrap();
        Some(Crowd { folder, _locks: locks })
    }

    /// Returns the environment in which a program sees these channels beside those of its own user, which are in `own`.
    fn environment(own: &Path) -> [(&'static str, &str); 2] {
        [("GPUMEM_DIR", ""), ("XDG_RUNTIME_DIR", own.to_str().unwrap())]
    }
}

/// Fills a folder with channels of 256 devices. They are live as long as the returned files are open.
fn fill(folder: &Path, job: &str, ooms: u64, count: usize, owner: Option<u32>) -> Vec<File> {
    let (_template, first) = template(job, ooms);
    let bytes = std::fs::read(&first).unwrap();
    let channel = |number| {
        let path = folder.join(format!("{job}-{number}.gpumem"));
        std::fs::write(&path, &bytes).unwrap();
        chown(&path, owner, owner).unwrap();
        let file = File::open(&path).unwrap();
        rustix::fs::flock(file.as_fd(), FlockOperation::LockExclusive).unwrap();
        file
    };
    (0..count).map(channel).collect()
}

/// Makes a folder in memory that no other user may enter.
fn private(prefix: &str) -> tempfile::TempDir {
    let private = Permissions::from_mode(0o700);
    let mut builder = tempfile::Builder::new();
    builder
        .prefix(prefix)
        .permissions(private)
        .tempdir_in("/dev/shm")
        .unwrap()
}

/// Makes a channel of 256 devices, one of which failed a request `ooms` times, in a folder of its own.
fn template(job: &str, ooms: u64) -> (tempfile::TempDir, PathBuf) {
    let folder = private("crowd-");
    let options = Options {
        dir: Some(folder.path().to_owned()),
        blocks: 64,
        segments: 8,
        events: 64,
        strings: 8,
        devices: DEVICES,
        lanes: 0,
        job: job.into(),
        ..Options::default()
    };
    let mut publisher = Publisher::create(&options).unwrap();
    for number in 0..DEVICES {
        let device = Device {
            kind: DeviceKind::Simulated,
            total: 1 << 30,
            name: "a device".into(),
            ..Device::default()
        };
        publisher.set_device(number as u8, &device);
        let mut stats = DeviceStats::default();
        stats.large.reserved_bytes.add(1 << 20);
        stats.all_peaks = stats.large.figures().map(|stat| stat.peak);
        stats.num_ooms = if number == DEVICES - 1 { ooms } else { 0 };
        publisher.stats(number as u8, &stats, Touched::ALL);
    }
    let path = folder.path().join("template");
    std::fs::copy(publisher.path(), &path).unwrap();
    (folder, path)
}

/// Starts a publisher of our own user. Also returns the folder in which it is looked for.
fn own() -> (World, Publisher) {
    let world = World::without_gpu();
    let inner = world.channels().join("gpumem");
    DirBuilder::new().mode(0o700).create(&inner).unwrap();
    let publisher = publish(&world, uuid_of(0));
    std::fs::rename(publisher.path(), inner.join(publisher.path().file_name().unwrap())).unwrap();
    (world, publisher)
}

/// Returns the peak of a process's resident memory so far, in KiB. `None` once it is gone.
fn peak_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

#[test]
fn a_report_shows_some_of_the_channels_and_counts_the_rest() {
    let _turn = alone();
    let Some(crowd) = Crowd::gather(3) else { return };
    let (world, _publisher) = own();
    let mut command = world.command(&["--json"]);
    command
        .env_remove("GPUMEM_DIR")
        .env("XDG_RUNTIME_DIR", world.channels());
    let begin = Instant::now();
    let mut child = command
        .stdout(File::create(world.channels().join("report")).unwrap())
        .spawn()
        .unwrap();
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        peak = peak.max(peak_kib(child.id()).unwrap_or(0));
        std::thread::sleep(Duration::from_millis(2));
    }
    println!("--json: {:.2?}, {} MiB", begin.elapsed(), peak >> 10);
    let report: Value = serde_json::from_slice(&std::fs::read(world.channels().join("report")).unwrap()).unwrap();
    let rows = |job: &str| {
        let rows = report["processes"].as_array().unwrap().iter();
        rows.filter(|row| row["job"] == job).count()
    };
    assert_eq!(
        (rows("crowd"), rows("failed")),
        (61 * 16, 3 * 16),
        "those that ran out of memory are all there"
    );
    let pid = std::process::id();
    let mine = |row: &&Value| row["pid"] == pid && row["job"].is_null();
    assert_eq!(
        report["processes"].as_array().unwrap().iter().filter(mine).count(),
        1,
        "our own is shown"
    );
    let users = report["channels_not_shown"].as_array().unwrap();
    let user = users.iter().find(|user| user["uid"] == STRANGER).unwrap();
    let counts = ["channels", "channels_not_shown", "devices_not_shown"].map(|field| user[field].as_u64().unwrap());
    assert_eq!(counts, [1000, 936, 64 * 240]);
    let said = format!("user {STRANGER}: 936 of 1,000 channels and 15,360 devices are not shown");
    let findings = report["findings"].as_array().unwrap();
    assert!(
        findings
            .iter()
            .any(|finding| finding["text"].as_str().unwrap().starts_with(&said)),
        "{findings:?}"
    );
    drop(crowd);
}

/// Checks that the help opens and closes, and that a signal ends the dashboard.
fn answers(mut terminal: Terminal) {
    let mut answers = Vec::new();
    for _ in 0..10 {
        for (key, seen) in [("?", true), ("\x1b", false)] {
            let begin = Instant::now();
            terminal.keys(key);
            terminal.wait("the help", |screen| screen.contains("Everywhere") == seen);
            answers.push(begin.elapsed());
            std::thread::sleep(Duration::from_millis(130));
        }
    }
    answers.sort();
    println!("keys: {:.2?} at most, {:.2?} mostly", answers[19], answers[10]);
    println!("memory: {} MiB", peak_kib(terminal.pid()).unwrap() >> 10);
    terminal.signal(Signal::TERM);
    assert_eq!(terminal.ended(), Ended::Code(128 + 15));
}

#[test]
fn the_dashboard_answers_keys_and_signals() {
    let _turn = alone();
    let Some(crowd) = Crowd::gather(0) else { return };
    let (world, _publisher) = own();
    let environment = Crowd::environment(world.channels());
    let terminal = Terminal::start_with(&world, &[], 120, 40, &environment);
    terminal.wait_for(&["rows"]);
    answers(terminal);
    assert!(crowd.folder.path().exists());
}

#[test]
fn our_own_channels_are_all_shown() {
    const OWN: usize = 40;
    let _turn = alone();
    let world = World::without_gpu();
    let _locks = fill(world.channels(), "own", 0, OWN, None);
    let report = world.json();
    assert_eq!(report["processes"].as_array().unwrap().len(), OWN * DEVICES as usize);
    assert_eq!(report["channels_not_shown"].as_array().unwrap().len(), 0);
    let terminal = Terminal::start(&world, &[], 120, 40);
    terminal.wait_for(&["rows"]);
    answers(terminal);
}
