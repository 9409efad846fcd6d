//! Pids are reused: a process is not taken for an earlier one that had the same pid.

use std::fs::{self, File};
use std::path::PathBuf;

use gpumem_tests::{World, publish, uuid_of};
use serde_json::Value;

const MIB: u64 = 1 << 20;
/// Byte offsets in a channel of the publisher's start time, boot id and pid namespace.
const START_TIME: usize = (8 + 1) * 8;
const BOOT_ID: usize = (8 + 2) * 8;
const PID_NAMESPACE: usize = (8 + 4) * 8;

/// Returns a machine where NVML lists this process, with 2 GiB.
fn world() -> World {
    let pid = std::process::id();
    World::with_nvml(&format!("gpu0.used=2G;gpu0.process={pid}:2G:compute"))
}

/// Makes the channel of another process with our pid. Only the word at `differs` tells it from ours.
fn of_another(world: &World, differs: usize) -> PathBuf {
    let publisher = publish(world, uuid_of(0));
    let mut bytes = fs::read(publisher.path()).unwrap();
    let ours = publisher.path().to_owned();
    drop(publisher);
    fs::remove_file(ours).unwrap();
    let word = u64::from_le_bytes(bytes[differs..differs + 8].try_into().unwrap());
    bytes[differs..differs + 8].copy_from_slice(&(word - 1).to_le_bytes());
    let path = world.channels().join("another.gpumem");
    fs::write(&path, bytes).unwrap();
    path
}

/// Returns state, NVML's bytes and reserved bytes of every row with our pid, sorted by state.
fn rows(world: &World) -> Vec<(String, Option<u64>, Option<u64>)> {
    let document = world.json();
    let told = |row: &Value| {
        let state = row["state"].as_str().unwrap().to_owned();
        (state, row["nvml"].as_u64(), row["allocator"]["reserved"].as_u64())
    };
    let rows = document["processes"].as_array().unwrap().iter();
    let mut rows: Vec<_> = rows.filter(|row| row["pid"] == std::process::id()).map(told).collect();
    rows.sort();
    rows
}

#[test]
fn the_publisher_itself_is_one_row() {
    let world = world();
    let _publisher = publish(&world, uuid_of(0));
    assert_eq!(
        rows(&world),
        [("publishing".to_owned(), Some(2 << 30), Some(512 * MIB))]
    );
}

const DIED: (&str, Option<u64>, Option<u64>) = ("died", None, Some(512 * MIB));
const PUBLISHING: (&str, Option<u64>, Option<u64>) = ("publishing", None, Some(512 * MIB));
/// This process, which has memory of a GPU and no channel.
const WE: (&str, Option<u64>, Option<u64>) = ("not-publishing", Some(2 << 30), None);

#[test]
fn the_black_box_of_a_namesake_is_another_row() {
    let world = world();
    of_another(&world, START_TIME);
    assert_eq!(rows(&world), [DIED, WE].map(owned));
}

/// A publisher in another pid namespace may have the same pid, and may even have started at the same tick.
#[test]
fn a_living_namesake_gets_nothing_of_ours() {
    for differs in [START_TIME, PID_NAMESPACE] {
        let world = world();
        let lock = File::open(of_another(&world, differs)).unwrap();
        lock.lock().unwrap();
        assert_eq!(rows(&world), [WE, PUBLISHING].map(owned), "{differs}");
    }
}

/// The file outlived a reboot, in a folder that does. Its publisher is gone even if something holds the lock.
#[test]
fn the_publisher_of_another_boot_is_dead_even_if_locked() {
    let world = world();
    let lock = File::open(of_another(&world, BOOT_ID)).unwrap();
    lock.lock().unwrap();
    assert_eq!(rows(&world), [DIED, WE].map(owned));
    let doctor = world.command(&["doctor"]).output().unwrap();
    let text = String::from_utf8(doctor.stdout).unwrap();
    assert!(text.contains("0 live, 1 of programs that ended"), "{text}");
    let once = world.command(&["--once"]).output().unwrap();
    let text = String::from_utf8(once.stdout).unwrap();
    assert_eq!(once.status.code(), Some(0));
    assert!(text.contains("black boxes of programs that ended: 1"), "{text}");
}

fn owned((state, nvml, reserved): (&str, Option<u64>, Option<u64>)) -> (String, Option<u64>, Option<u64>) {
    (state.to_owned(), nvml, reserved)
}
