//! Kills a program that embeds the allocator 1,000 times at random moments, while a reader reads its channels. Then a second reader opens
//! the black boxes. Neither may ever show a state that did not exist. A model follows the events: every set of figures must be the one
//! after some event, and every map must match the events except for the operation in progress.
//!
//! Run alone: `cargo test -p gpumem-tests --test kill`.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod model;
mod possible;
mod stitched;
mod workload;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use gpumem_alloc::SegmentMode;
use gpumem_channel::{EventKind, Life, Reader, Snapshot};
use gpumem_tests::{Random, World};
use model::Model;

const KILLS: u64 = 1_000;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some("publish") => workload::publish(args.next().unwrap().parse().unwrap(), args.next().is_some()),
        // Test runners ask for a list of tests.
        Some("--list") => println!("kill: test"),
        _ => campaign(),
    }
    ExitCode::SUCCESS
}

#[derive(Default, Debug)]
struct Tally {
    passes: u64,
    exact_maps: u64,
    lagging: u64,
    /// Pieces of stitched blocks that the maps showed.
    pieces: u64,
    /// Events of the black boxes.
    events: HashMap<EventKind, u64>,
    events_lost: u64,
    /// Kills in the middle of a change of structure.
    cut_off: u64,
    before_its_channels: u64,
}

fn campaign() {
    let world = World::without_gpu();
    let start = Instant::now();
    let mut random = Random::new(0x5eed);
    let mut tally = Tally::default();
    for seed in 1..=KILLS {
        let mut victim = Victim::start(&world, seed);
        match seed % 5 {
            // At any moment: while it starts, makes its channels, or works.
            0 => std::thread::sleep(Duration::from_micros(random.below(6_000))),
            // Some come far enough to run out of memory.
            1 if seed % 4 == 0 => victim.watch(Duration::from_micros(random.below(80_000)), &mut tally),
            _ => victim.watch(Duration::from_micros(random.below(5_000)), &mut tally),
        }
        victim.kill(&mut tally);
    }
    println!(
        "kill: {KILLS} kills in {:.1} s, no torn or impossible state; {tally:?}",
        start.elapsed().as_secs_f64()
    );
    assert!(
        tally.exact_maps > 2 * KILLS && tally.pieces > KILLS && tally.cut_off > 0 && tally.events.len() == 13,
        "the campaign covered too little"
    );
    println!("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
}

/// A publishing program, and a reader for each of its channels.
struct Victim<'a> {
    world: &'a World,
    seed: u64,
    child: Child,
    witnesses: Vec<Witness>,
}

impl Drop for Victim<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the victim of seed {}", self.seed);
        }
    }
}

impl Victim<'_> {
    fn start(world: &World, seed: u64) -> Victim<'_> {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["publish", &seed.to_string()]).stdin(Stdio::null());
        command.env("GPUMEM_DIR", world.channels());
        if !workload::every_event(seed) {
            command.arg("small ring");
        }
        Victim {
            world,
            seed,
            child: command.spawn().unwrap(),
            witnesses: Vec::new(),
        }
    }

    /// Reads its channels for `time`, once it has all of them.
    fn watch(&mut self, time: Duration, tally: &mut Tally) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.witnesses.len() < workload::DEVICES as usize {
            assert!(Instant::now() < deadline, "the victim never published");
            self.find();
            std::hint::spin_loop();
        }
        let end = Instant::now() + time;
        while Instant::now() < end {
            for witness in &mut self.witnesses {
                witness.look(tally);
            }
        }
    }

    /// Opens the channels that are new since the last call.
    fn find(&mut self) {
        let known = |path: &PathBuf| self.witnesses.iter().any(|witness| witness.path == *path);
        let new = self.world.channel_files().into_iter().filter(|path| !known(path));
        let new: Vec<Witness> = new.map(|path| Witness::open(&path, self.seed)).collect();
        self.witnesses.extend(new);
    }

    fn kill(mut self, tally: &mut Tally) {
        self.child.kill().unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(9),
            "it ended by itself: {status}"
        );
        self.find();
        tally.before_its_channels += u64::from(self.witnesses.len() < workload::DEVICES as usize);
        for mut witness in self.witnesses.drain(..) {
            let seen = witness.look(tally);
            let mut late = Witness::open(&witness.path, self.seed);
            let black_box = late.look(tally);
            assert_eq!((seen.life, black_box.life), (Life::Died, Life::Died));
            tally.cut_off += u64::from(witness.end(&seen));
            late.end(&black_box);
            assert_same(&seen, &black_box);
        }
        // Also removes unfinished files, which otherwise stay for a minute.
        for entry in std::fs::read_dir(self.world.channels()).unwrap().flatten() {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
}

/// A reader of one channel, and a model of what it read.
struct Witness {
    path: PathBuf,
    reader: Reader,
    segments: SegmentMode,
    /// `None` if events may be lost.
    model: Option<Model>,
    events: u64,
}

impl Witness {
    fn open(path: &Path, seed: u64) -> Witness {
        Witness {
            path: path.to_owned(),
            reader: Reader::open(path).unwrap(),
            segments: workload::segments_of(seed),
            model: workload::every_event(seed).then(Model::default),
            events: 0,
        }
    }

    fn take_events(&mut self, tally: &mut Tally) {
        let new = self.reader.events().unwrap();
        assert!(
            new.events
                .windows(2)
                .all(|pair| pair[0].lane != pair[1].lane || pair[0].index < pair[1].index),
            "events out of order"
        );
        match &mut self.model {
            Some(model) => {
                assert_eq!(new.lost, 0, "the ring holds all events of a victim");
                for event in &new.events {
                    model.take(event);
                    *tally.events.entry(event.kind).or_default() += 1;
                }
            }
            None => tally.events_lost += new.lost,
        }
    }

    fn look(&mut self, tally: &mut Tally) -> Snapshot {
        self.take_events(tally);
        let before = self.model.as_ref().map(|model| (model.heads(), model.before()));
        let snapshot = self.reader.refresh().unwrap();
        self.take_events(tally);
        let dead = snapshot.life != Life::Alive;
        possible::assert_possible(&snapshot, self.segments, dead);
        assert!(snapshot.event_count >= self.events, "went back");
        self.events = snapshot.event_count;
        tally.passes += 1;
        tally.lagging += u64::from(snapshot.lagging_segments > 0);
        tally.pieces += stitched::parts(&snapshot);
        if let (Some(model), Some((heads, before))) = (&mut self.model, &before) {
            if let Some(stats) = snapshot.devices.first().and_then(|device| device.stats) {
                model.assert_figures(&stats, before);
            }
            if snapshot.lagging_segments == 0 && !dead {
                let missing = possible::assert_told(&snapshot, model, heads);
                assert!(missing.is_empty(), "not shown: {missing:?}");
                tally.exact_maps += 1;
            }
            model.looked();
        }
        snapshot
    }

    /// Checks what the kill left. Returns whether it interrupted a change of structure.
    fn end(&self, snapshot: &Snapshot) -> bool {
        self.model
            .as_ref()
            .is_some_and(|model| possible::assert_black_box(snapshot, model))
    }
}

/// Asserts that a reader that watched and one that came later show the same.
fn assert_same(seen: &Snapshot, black_box: &Snapshot) {
    assert_eq!(seen.event_count, black_box.event_count);
    assert_eq!(seen.devices, black_box.devices);
}
