//! Files in the channel folder that are not channels, or no longer: they are reported, and the other channels are still read.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gpumem_tests::{Background, Ended, Random, Terminal, World};
use serde_json::Value;

/// Byte offsets of the format's frozen header.
const VERSION: usize = 8;
const OLDEST_READER: usize = 16;
/// Byte offset of the first section's position in the table of contents.
const FIRST_SECTION: usize = 512 + 8;

fn put(bytes: &mut [u8], at: usize, word: u64) {
    bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

/// Puts a changed copy of `channel` into the same folder.
fn copy(channel: &Path, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> PathBuf {
    let mut bytes = fs::read(channel).unwrap();
    change(&mut bytes);
    let path = channel.with_file_name(name);
    // Renamed when complete, as publishers do, so that no reader sees half a file.
    fs::write(path.with_extension("new"), bytes).unwrap();
    fs::rename(path.with_extension("new"), &path).unwrap();
    path
}

/// Returns the row of a program that runs.
fn row(world: &World, demo: &Background) -> Value {
    let document = world.json();
    let mut rows = document["processes"].as_array().unwrap().iter();
    let living = |row: &&Value| row["pid"] == demo.pid() && row["state"] == "publishing";
    rows.find(living).unwrap().clone()
}

#[test]
fn unreadable_files_are_named_with_a_reason() {
    let world = World::without_gpu();
    let (demo, _) = Background::fragmented(&world);
    let channel = world.channel_files()[0].clone();
    let before = row(&world, &demo);
    let mut terminal = Terminal::start(&world, &[], 160, 40);
    let pid = demo.pid().to_string();
    terminal.wait_for(&[&pid, "publish"]);

    copy(&channel, "text.gpumem", |bytes| *bytes = b"Dear diary,\n".repeat(9999));
    terminal.wait_for(&["text.gpumem cannot be read: not a gpumem channel"]);
    copy(&channel, "short.gpumem", |bytes| bytes.truncate(bytes.len() / 2));
    copy(&channel, "empty.gpumem", Vec::clear);
    copy(&channel, "newer.gpumem", |bytes| {
        put(bytes, VERSION, 9);
        put(bytes, OLDEST_READER, 8);
    });
    copy(&channel, "outside.gpumem", |bytes| put(bytes, FIRST_SECTION, 1 << 60));
    // These are not even looked at.
    copy(&channel, "other.txt", Vec::clear);
    fs::create_dir(channel.with_file_name("folder.gpumem")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", channel.with_file_name("link.gpumem")).unwrap();
    terminal.wait_for(&["5 channel files cannot be read: gpumem-tui doctor says why"]);
    terminal.wait_for(&[&pid, "publish"]);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));

    assert_eq!(row(&world, &demo), before, "the one that can be read is read as before");
    let document = world.json();
    let problems = document["unreadable_channels"].as_array().unwrap();
    let reasons = [
        ("text", "not a gpumem channel"),
        ("short", "its length is not the file's"),
        ("empty", "not a gpumem channel"),
        ("newer", "format 9 and needs a reader of format 8 or newer"),
        ("outside", "outside the file"),
    ];
    let doctor = world.command(&["doctor"]).output().unwrap();
    assert_eq!(doctor.status.code(), Some(1), "something is wrong here");
    // Its lines are wrapped.
    let doctor = String::from_utf8(doctor.stdout).unwrap();
    let doctor = doctor.split_whitespace().collect::<Vec<_>>().join(" ");
    for (name, reason) in reasons {
        let file = format!("{name}.gpumem");
        let problem = problems
            .iter()
            .find(|p| p["file"].as_str().unwrap().ends_with(&file))
            .unwrap();
        assert!(problem["reason"].as_str().unwrap().contains(reason), "{problem}");
        assert!(doctor.contains(&file) && doctor.contains(reason), "{doctor}");
    }
    assert_eq!(problems.len(), reasons.len());
}

/// A newer format that names this reader as new enough is read as far as this reader knows it.
#[test]
fn a_newer_compatible_format_is_read() {
    let world = World::without_gpu();
    let (mut demo, says) = Background::fragmented(&world);
    let channel = world.channel_files()[0].clone();
    let newer = copy(&channel, "newer.gpumem", |bytes| put(bytes, VERSION, 9));
    demo.kill();
    fs::remove_file(channel).unwrap();
    let lock = File::open(newer).unwrap();
    lock.lock().unwrap();
    assert_eq!(row(&world, &demo)["allocator"]["cached"], says["cached"]);
    assert_eq!(world.json()["unreadable_channels"], Value::Array(vec![]));
}

/// A channel file is deleted from `/dev/shm`. A dashboard that has it open still shows the program. One that starts later only reports
/// that the file was removed.
#[test]
fn a_channel_removed_while_its_program_runs_is_reported() {
    let world = World::with_nvml("gpu0.used=4G");
    let (mut demo, says) = Background::fragmented(&world);
    let pid = demo.pid();
    world.play(&format!("gpu0.process={pid}:1G:compute"));
    let channel = world.channel_files()[0].clone();
    let terminal = Terminal::start(&world, &["--interval", "100ms"], 160, 40);
    terminal.wait_for(&[&pid.to_string(), "publish"]);
    fs::remove_file(&channel).unwrap();
    let removed = format!("{}: removed while {pid} runs.", channel.display());
    terminal.wait_for(&[&removed, "do not see what it publishes", "publish"]);
    // Longer than it takes to look for channels again.
    std::thread::sleep(Duration::from_secs(5));
    terminal.wait_for(&[&removed, "publishing"]);

    let document = world.json();
    let problem = &document["unreadable_channels"][0];
    assert_eq!(problem["kind"], "removed", "{document}");
    assert_eq!(problem["file"], channel.to_str().unwrap());
    assert!(
        document["findings"].as_array().unwrap().iter().any(|finding| {
            let text = finding["text"].as_str().unwrap();
            text.contains(&removed) && text.ends_with("is not shown until it is restarted")
        }),
        "{document}"
    );
    let doctor = world.command(&["doctor"]).output().unwrap();
    let doctor = String::from_utf8(doctor.stdout).unwrap();
    let doctor = doctor.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(doctor.contains(&format!("removed while {pid} runs.")), "{doctor}");

    assert!(says["reserved"].as_u64() > Some(0), "{says}");
    demo.kill();
    terminal.wait("nothing of it any more", |screen| !screen.contains("removed while"));
}

#[test]
fn damaged_files_are_survived_in_every_view() {
    let world = World::with_nvml("h100");
    let (demo, says) = Background::fragmented(&world);
    let channel = world.channel_files()[0].clone();
    let mut random = Random::new(1);
    let mut next = || random.any() as usize;
    let mut locks = Vec::new();
    for (i, kept) in [0, 8, 512, 1024, 2048, 4096].into_iter().enumerate() {
        let path = copy(&channel, &format!("{i}.gpumem"), |bytes| {
            // The records in use are at the front of each section, so half of the flips are there.
            for flip in 0..4000 {
                let at = if flip % 2 == 0 {
                    kept + next() % 65536
                } else {
                    kept + next() % (bytes.len() - kept)
                };
                bytes[at] ^= 1 << (next() % 8);
            }
        });
        // Every other file seems to have a live publisher.
        if i % 2 == 0 {
            let file = File::open(&path).unwrap();
            file.lock().unwrap();
            locks.push(file);
        }
    }
    let mut terminal = Terminal::start(&world, &["--interval", "100ms"], 160, 40);
    let pid = demo.pid().to_string();
    terminal.wait_for(&[&pid, "publish"]);
    terminal.keys("b");
    for (key, shown) in [("1", "STATE"), ("3", "last 60 s"), ("7", "Demos"), ("2", "N process")] {
        terminal.keys(key);
        terminal.wait_for(&[shown]);
        if key == "2" {
            // Selects every process in turn, and goes back.
            terminal.keys("nnnnnnnnNNNNNNNN++--");
        }
    }
    terminal.keys("1");
    terminal.wait_for(&[&pid, "publish"]);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
    assert_eq!(row(&world, &demo)["allocator"]["reserved"], says["reserved"]);
}

#[test]
fn a_channel_truncated_while_open_keeps_its_last_figures() {
    let world = World::with_nvml("h100");
    let (mut demo, says) = Background::fragmented(&world);
    let original = world.channel_files()[0].clone();
    let path = copy(&original, "cut.gpumem", |_| {});
    let lock = File::options().read(true).write(true).open(&path).unwrap();
    lock.lock().unwrap();
    demo.kill();
    fs::remove_file(original).unwrap();
    let mut terminal = Terminal::start(&world, &["--interval", "100ms"], 160, 40);
    terminal.wait_for(&["publish"]);
    lock.set_len(1000).unwrap();
    let cached = format!("{:.1}M", says["cached"].as_u64().unwrap() as f64 / f64::from(1 << 20));
    terminal.wait_for(&["inconsistent", "cut short", &cached]);
    terminal.keys("2");
    terminal.wait_for(&["Process", "reserved"]);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}
