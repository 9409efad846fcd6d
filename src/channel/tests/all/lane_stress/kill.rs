//! The same program killed at random moments: the channel it leaves matches its events, except for the one operation
//! that each thread was doing.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gpumem_channel::Reader;

use crate::common::{Random, campaign, channel_dir};
use crate::lane_stress::program::{LANES, Program};
use crate::lane_stress::witness::Witness;

/// Size of the rings, which hold all events of a victim.
const RING: u64 = 1 << 16;

#[test]
fn killed_lanes_match_their_events() {
    let mut random = Random(77);
    let (mut events, mut cut_off) = (0, 0);
    let kills = campaign(40);
    for _ in 0..kills {
        let dir = channel_dir();
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "lane_stress::kill::victim"])
            .env("GPUMEM_TEST_VICTIM", dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let path = channel_in(dir.path());
        let mut there = Witness::new(Reader::open(&path).unwrap());
        // The kill comes a random time after that.
        while there.reader.refresh().unwrap().lanes.len() < LANES {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(random.below(20_000)));
        there.look();
        victim.kill().unwrap();
        victim.wait().unwrap();
        let mut late = Witness::new(Reader::open(&path).unwrap());
        let (seen, black_box) = (there.look_at_black_box(), late.look_at_black_box());
        assert_eq!(
            seen.devices, black_box.devices,
            "a reader that watched shows the same as one that opens the file late"
        );
        assert_eq!(seen.lanes, black_box.lanes);
        events += black_box.event_count;
        cut_off += u64::from(!black_box.devices[0].segments[0].complete);
    }
    assert!(events > kills * 1_000, "only {events} events");
    println!("{kills} kills after {events} events, {cut_off} in the middle of a block");
}

/// Waits for the only channel of a directory.
fn channel_in(dir: &Path) -> PathBuf {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let mut paths = std::fs::read_dir(dir).unwrap().flatten().map(|entry| entry.path());
        if let Some(path) = paths.find(|path| path.extension().is_some_and(|end| end == "gpumem")) {
            let hidden = path
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if !hidden {
                return path;
            }
        }
        assert!(Instant::now() < deadline, "the victim never published");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The other process of the test above; does nothing by itself.
#[test]
fn victim() {
    let Some(dir) = std::env::var_os("GPUMEM_TEST_VICTIM") else {
        return;
    };
    let program = Program::new(dir.as_ref(), RING);
    program.watched.store(false, std::sync::atomic::Ordering::Relaxed);
    let seed = u64::from(std::process::id());
    std::thread::scope(|scope| {
        for number in 0..LANES {
            let program = &program;
            scope.spawn(move || program.work_on_lane(number, Random(seed * 97 + number as u64 + 1)));
        }
        scope.spawn(|| program.work_on_heap(Random(seed * 97 + 50)));
    });
    std::thread::sleep(Duration::from_secs(60));
}
