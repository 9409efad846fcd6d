//! SIGKILL of a publishing process, 1,000 times at random moments, while a reader watches; then the black box is opened by a
//! reader that comes late. Neither may ever show a state that cannot be. Run alone: `cargo test -p gpumem-channel --test kill`.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod common;

use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use common::{Heap, Random, assert_possible, channel_dir, options};
use gpumem_channel::{Device, DeviceKind, Life, Publisher, Reader};

const KILLS: u32 = 1_000;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some("publish") => publish(args.next().unwrap().parse().unwrap()),
        // Test runners ask for a list of tests.
        Some("--list") => println!("kill: test"),
        _ => campaign(),
    }
    ExitCode::SUCCESS
}

/// The victim: publishes random operations until it is killed.
fn publish(seed: u64) {
    let dir = std::env::var_os("GPUMEM_DIR").unwrap();
    let mut publisher = Publisher::create(&options(dir.as_ref())).unwrap();
    publisher.set_device(
        0,
        &Device {
            kind: DeviceKind::Simulated,
            total: 1 << 40,
            ..Device::default()
        },
    );
    let mut heap = Heap::new(seed);
    loop {
        heap.step(&mut publisher);
    }
}

struct Victim(Child);

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[derive(Default, Debug)]
struct Tally {
    passes: u64,
    complete: u64,
    cut_off: u64,
    lagging: u64,
}

fn campaign() {
    let dir = channel_dir();
    let start = Instant::now();
    let mut random = Random(0x5eed);
    let mut tally = Tally::default();
    for n in 0..KILLS {
        one_kill(dir.path(), u64::from(n) + 1, &mut random, &mut tally);
    }
    println!(
        "kill: {KILLS} kills in {:.1} s, no torn or impossible state; {tally:?}",
        start.elapsed().as_secs_f64()
    );
    assert!(
        tally.complete > u64::from(KILLS),
        "the campaign saw too little to mean anything"
    );
    println!("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
}

fn one_kill(dir: &std::path::Path, seed: u64, random: &mut Random, tally: &mut Tally) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["publish", &seed.to_string()])
        .env("GPUMEM_DIR", dir)
        .stdin(Stdio::null());
    let mut victim = Victim(command.spawn().unwrap());
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut reader = loop {
        let found = std::fs::read_dir(dir).unwrap().flatten().map(|e| e.path());
        let ours = format!("{}-", victim.0.id());
        let ours = found.filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&ours)));
        if let Some(reader) = ours
            .filter_map(|path| Reader::open(&path).ok().map(|r| (path, r)))
            .next()
        {
            break reader;
        }
        assert!(Instant::now() < deadline, "the victim never published");
        std::hint::spin_loop();
    };
    let kill_at = Instant::now() + Duration::from_micros(random.below(3_000));
    let mut events = 0;
    let mut look = |reader: &mut Reader, tally: &mut Tally| {
        let snapshot = reader.refresh().unwrap();
        assert_possible(&snapshot);
        assert!(snapshot.event_count >= events, "went back");
        events = snapshot.event_count;
        let new = reader.events().unwrap();
        assert!(
            new.events.windows(2).all(|w| w[0].index < w[1].index),
            "events out of order"
        );
        tally.passes += 1;
        tally.lagging += u64::from(snapshot.lagging_segments);
        let maps = snapshot.devices.iter().flat_map(|d| &d.segments);
        tally.complete += maps.filter(|m| m.complete).count() as u64;
        snapshot
    };
    while Instant::now() < kill_at {
        look(&mut reader.1, tally);
    }
    victim.0.kill().unwrap();
    victim.0.wait().unwrap();
    let last = look(&mut reader.1, tally);
    assert_eq!(last.life, Life::Died);
    let mut late = Reader::open(&reader.0).unwrap();
    let black_box = look(&mut late, tally);
    assert_eq!(black_box.life, Life::Died);
    // At most the one segment that the kill interrupted is not whole.
    let cut_off = black_box
        .devices
        .iter()
        .flat_map(|d| &d.segments)
        .filter(|m| !m.complete)
        .count();
    assert!(cut_off <= 1, "{cut_off} segments are incomplete");
    tally.cut_off += cut_off as u64;
    std::fs::remove_file(&reader.0).unwrap();
}
