//! The publisher of PyTorch processes: what it is told, what is seen, and how its channel ends.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gpumem_channel::{BlockState, EventKind, Life, Reader, Snapshot};
use gpumem_snapshot::{Action, Block, Frame, Segment, SegmentType, Snapshot as Pickled, StackId, TraceEntry};
use gpumem_tests::{Ended, Terminal, World, until};
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;
const CARD: &str = "GPU-66616b65-2d63-7564-612d-757569640000";

/// A publisher, which takes this process for the PyTorch process.
struct Publisher {
    child: Child,
    input: Option<UnixStream>,
    answers: std::sync::mpsc::Receiver<String>,
}

impl Publisher {
    fn start(world: &World, pid: u32) -> Publisher {
        let mut command: Command = world.command(&["publisher"]);
        // As the Python package does: who made the socket is the PyTorch process.
        let (ours, theirs) = UnixStream::pair().unwrap();
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // It holds the other end, too.
        drop(command);
        let output: ChildStdout = child.stdout.take().unwrap();
        let (sender, answers) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let mut publisher = Publisher {
            input: Some(ours),
            child,
            answers,
        };
        publisher.say(
            &json!({"type": "hello", "version": 1, "pid": pid, "program": "train.py", "job": "night", "rank": 3, "world_size": 4, "torch_folder": "/site/torch"}),
        );
        publisher
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    fn map(&mut self, snapshot: &Pickled) {
        let mut pickle = Vec::new();
        snapshot.write_pickle(&mut pickle).unwrap();
        self.say(&json!({"type": "map", "bytes": pickle.len()}));
        self.input.as_mut().unwrap().write_all(&pickle).unwrap();
    }

    fn answer(&self) -> String {
        self.answers.recv_timeout(Duration::from_secs(20)).unwrap()
    }

    fn ended(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }
}

fn device() -> Value {
    json!({"type": "device", "index": 0, "uuid": CARD, "name": "H200", "total": 80u64 << 30, "limit": null})
}

/// Figures of one large segment of 40 MiB, of which `allocated` are allocated.
fn stats(allocated: u64) -> Value {
    let mut figures = serde_json::Map::new();
    for (name, value) in [
        ("segment", 1),
        ("reserved_bytes", 40 * MIB),
        ("allocation", 1),
        ("active", 1),
        ("allocated_bytes", allocated),
        ("active_bytes", allocated),
        ("requested_bytes", allocated - 100),
    ] {
        for pool in ["all", "large_pool"] {
            for what in ["current", "peak", "allocated"] {
                figures.insert(format!("{name}.{pool}.{what}"), value.into());
            }
        }
    }
    figures.insert("num_ooms".into(), 2.into());
    json!({"type": "stats", "device": 0, "stats": figures})
}

/// A snapshot of that segment.
fn snapshot(allocated: u64) -> Pickled {
    let block = |address, size, state| Block {
        address,
        size,
        requested_size: size,
        state,
        frames: StackId::EMPTY,
        extra: None,
    };
    let start = 0x7f00_0000_0000;
    let blocks = vec![
        block(start, allocated, gpumem_snapshot::BlockState::ActiveAllocated),
        block(
            start + allocated,
            40 * MIB - allocated,
            gpumem_snapshot::BlockState::Inactive,
        ),
    ];
    Pickled {
        segments: vec![Segment {
            device: 0,
            address: start,
            total_size: 40 * MIB,
            allocated_size: allocated,
            active_size: allocated,
            requested_size: allocated,
            stream: 0,
            segment_type: SegmentType::Large,
            segment_pool_id: (0, 0),
            is_expandable: false,
            frames: StackId::EMPTY,
            blocks,
            extra: None,
        }],
        ..Pickled::default()
    }
}

fn row(world: &World) -> Value {
    world.json()["processes"][0].clone()
}

fn open(world: &World) -> Reader {
    until("the channel", || !world.channel_files().is_empty());
    Reader::open(&world.channel_files()[0]).unwrap()
}

/// A publisher with figures, and a reader whom it has told that it wants blocks.
fn watched(world: &World) -> (Publisher, Reader) {
    let mut publisher = Publisher::start(world, std::process::id());
    publisher.say(&device());
    publisher.say(&stats(30 * MIB));
    let reader = open(world);
    reader.want_blocks().unwrap();
    assert_eq!(publisher.answer(), r#"{"watched":true}"#);
    (publisher, reader)
}

/// Reads until the channel is as wanted.
fn read(reader: &mut Reader, wanted: impl Fn(&Snapshot) -> bool) -> Snapshot {
    let mut newest = Snapshot::default();
    until("the channel is as wanted", || {
        newest = reader.refresh().unwrap();
        wanted(&newest)
    });
    newest
}

#[test]
fn figures_of_pytorch_are_those_of_its_process() {
    let world = World::with_nvml(&format!(
        "gpus=1;gpu0.uuid={CARD};gpu0.used=1G;gpu0.process={}:600M:compute",
        std::process::id()
    ));
    let mut publisher = Publisher::start(&world, std::process::id());
    publisher.say(&device());
    publisher.say(&stats(30 * MIB));
    let mut reader = open(&world);
    read(&mut reader, |snapshot| {
        snapshot
            .devices
            .first()
            .is_some_and(|map| map.stats.is_some_and(|s| s.num_ooms == 2))
    });
    let row = row(&world);
    assert_eq!(
        (&row["pid"], &row["state"], &row["job"], &row["rank"]),
        (
            &std::process::id().into(),
            &"publishing".into(),
            &"night".into(),
            &3.into()
        )
    );
    let figures = &row["allocator"];
    assert_eq!(
        [
            &figures["reserved"],
            &figures["allocated"],
            &figures["cached"],
            &figures["ooms"]
        ],
        [&json!(40 * MIB), &json!(30 * MIB), &json!(10 * MIB), &json!(2)]
    );
    assert_eq!(
        (&figures["largest_free"], &figures["external_fragmentation"]),
        (&Value::Null, &Value::Null)
    );
    publisher.say(&json!({"type": "bye"}));
    publisher.ended();
    assert_eq!(reader.refresh().unwrap().life, Life::Closed);
}

/// Who comes late sees what was before.
#[test]
fn earlier_figures_of_pytorch_are_in_the_timeline() {
    let world = World::with_nvml(&format!("gpus=1;gpu0.uuid={CARD};gpu0.used=1G"));
    let mut publisher = Publisher::start(&world, std::process::id());
    publisher.say(&device());
    for allocated in [10 * MIB, 35 * MIB, 20 * MIB] {
        publisher.say(&stats(allocated));
        std::thread::sleep(Duration::from_millis(700));
    }
    let reader = open(&world);
    let past = reader.past_figures().unwrap();
    let held: Vec<_> = past
        .iter()
        .map(|past| (past.device, past.allocated, past.reserved))
        .collect();
    assert_eq!(
        held,
        [
            (0, 10 * MIB, 40 * MIB),
            (0, 35 * MIB, 40 * MIB),
            (0, 20 * MIB, 40 * MIB)
        ]
    );
    let mut terminal = Terminal::start(&world, &[], 120, 40);
    terminal.wait_for(&["publishing"]);
    terminal.keys("3");
    terminal.wait_for(&["publishers only until"]);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
    publisher.ended();
}

#[test]
fn map_is_there_only_while_somebody_looks() {
    let world = World::without_gpu();
    let (mut publisher, mut reader) = watched(&world);
    publisher.map(&snapshot(30 * MIB));
    let shown = read(&mut reader, |snapshot| !snapshot.devices[0].segments.is_empty());
    let blocks: Vec<_> = shown.devices[0]
        .blocks()
        .map(|block| (block.size, block.state))
        .collect();
    assert_eq!(
        blocks,
        [(30 * MIB, BlockState::Allocated), (10 * MIB, BlockState::Free)]
    );
    assert!(shown.devices[0].segments[0].complete && shown.devices[0].contradiction.is_none());
    // Newer figures beside older blocks are no contradiction.
    publisher.say(&stats(39 * MIB));
    let later = read(&mut reader, |snapshot| {
        snapshot.devices[0]
            .stats
            .is_some_and(|stats| stats.cached_bytes() == MIB)
    });
    assert_eq!(later.devices[0].contradiction, None);
    // Only what changed is written again: the segment keeps its slot.
    publisher.map(&snapshot(39 * MIB));
    let changed = read(&mut reader, |snapshot| snapshot.devices[0].free().largest == MIB);
    assert_eq!(changed.devices[0].segments[0].slot, shown.devices[0].segments[0].slot);
    // Nobody asks any more.
    assert_eq!(publisher.answer(), r#"{"watched":false}"#);
    let gone = read(&mut reader, |snapshot| snapshot.devices[0].segments.is_empty());
    assert_eq!(gone.sampled.unwrap().blocks_at, 0);
    publisher.say(&json!({"type": "map_skipped", "reason": "history is on"}));
    let skipped = read(&mut reader, |snapshot| {
        snapshot.sampled.is_some_and(|s| s.skipped().is_some())
    });
    let why = skipped.sampled.unwrap().skipped().unwrap();
    assert_eq!(skipped.string(why), "history is on");
    publisher.ended();
}

/// The program is killed: the end of input comes without a word.
#[test]
fn failed_request_and_its_map_outlive_the_program() {
    let world = World::with_nvml(&format!("gpus=1;gpu0.uuid={CARD}"));
    let mut publisher = Publisher::start(&world, std::process::id());
    publisher.say(&device());
    // A long run has used all names that marks may have.
    for step in 0..1000 {
        publisher.say(&json!({"type": "mark", "name": format!("step {step}")}));
    }
    publisher.say(
        &json!({"type": "oom", "device": 0, "requested": 20 * MIB, "total": 0, "free": 5 * MIB,
        "message": "CUDA out of memory", "where": "train.py:41 in forward"}),
    );
    publisher.say(&stats(30 * MIB));
    publisher.map(&snapshot(30 * MIB));
    let mut reader = open(&world);
    read(&mut reader, |snapshot| {
        !snapshot.devices.is_empty() && !snapshot.devices[0].segments.is_empty()
    });
    publisher.ended();
    let row = row(&world);
    assert_eq!(row["state"], "died");
    let text = world.json().to_string();
    assert!(
        text.contains("train.py:41 in forward tried to allocate 20.0 MiB, the device had 5.0 MiB free"),
        "{text}"
    );
    assert_eq!(reader.refresh().unwrap().devices[0].segments.len(), 1);
}

#[test]
fn publisher_of_another_process_is_refused() {
    let world = World::without_gpu();
    let publisher = Publisher::start(&world, 1);
    assert!(
        publisher
            .answer()
            .starts_with(r#"{"error":"the messages come from another process"#)
    );
    publisher.ended();
    assert!(world.channel_files().is_empty());
}

/// The allocated block of [`snapshot`], allocated by `line` of the program.
fn with_line(mut found: Pickled, line: i64) -> Pickled {
    let tables = &mut found.tables;
    let mut frame = |name: &str, file: &str, line| {
        let (name, filename) = (tables.text(name), tables.text(file));
        tables.frame(Frame {
            name,
            filename,
            line,
            extra: None,
        })
    };
    let frames = [
        frame("forward", "/site/torch/nn/linear.py", 9),
        frame("step", "/home/ana/train.py", line),
    ];
    found.segments[0].blocks[0].frames = tables.stack(&frames);
    found
}

/// An entry of a history.
fn entry(action: Action, time_us: u64, found: &Pickled) -> TraceEntry {
    let block = &found.segments[0].blocks[0];
    TraceEntry {
        action,
        addr: block.address,
        size: block.requested_size,
        stream: 0,
        time_us,
        frames: (action == Action::Alloc).then_some(block.frames),
        compile_context: None,
        user_metadata: None,
        extra: None,
    }
}

fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_micros()).unwrap()
}

#[test]
fn history_gives_blocks_a_tag_or_a_line() {
    let world = World::without_gpu();
    let (mut publisher, mut reader) = watched(&world);
    let begun = now_us() - 10_000_000;
    let mut shown = |publisher: &mut Publisher, size: u64, line, entries: &[(Action, u64)]| {
        let mut found = with_line(snapshot(size), line);
        let trace = entries
            .iter()
            .map(|(action, after)| entry(*action, begun + after, &found));
        found.device_traces = vec![trace.collect()];
        publisher.map(&found);
        let newest = read(&mut reader, |snapshot| {
            snapshot.devices[0]
                .blocks()
                .next()
                .is_some_and(|block| block.size == size)
        });
        let block = *newest.devices[0].blocks().next().unwrap();
        let age = newest.read_at.saturating_sub(block.time) / 1_000_000_000;
        (newest.string(block.tag).to_owned(), age)
    };
    let mark = |publisher: &mut Publisher, tag: &str, after: u64| {
        publisher.say(&json!({"type": "mark", "name": "m", "tag": tag, "at": begun + after}));
    };

    mark(&mut publisher, "model", 100);
    mark(&mut publisher, "", 200);
    let entries = [(Action::Alloc, 150), (Action::Snapshot, 300)];
    assert_eq!(shown(&mut publisher, 30 * MIB, 7, &entries), ("model".into(), 10));
    // It is freed, and its place is taken outside of all tags.
    let entries = [
        (Action::Snapshot, 300),
        (Action::FreeRequested, 310),
        (Action::FreeCompleted, 311),
        (Action::Alloc, 5_000_000),
        (Action::Snapshot, 5_000_001),
    ];
    assert_eq!(
        shown(&mut publisher, 31 * MIB, 8, &entries),
        ("train.py:8 in step".into(), 5)
    );
    mark(&mut publisher, "optimizer", 6_000_000);
    let entries = [
        (Action::Snapshot, 5_000_001),
        (Action::Alloc, 6_000_001),
        (Action::Snapshot, 6_000_002),
    ];
    assert_eq!(shown(&mut publisher, 32 * MIB, 8, &entries).0, "optimizer");
    publisher.ended();
    let kinds: Vec<_> = reader.events().unwrap().events.iter().map(|event| event.kind).collect();
    use EventKind::{Alloc, Free, FreeCompleted, Mark};
    let expected = [Mark, Mark, Alloc, Free, FreeCompleted, Alloc, Mark, Alloc];
    assert_eq!(kinds, expected, "each entry is told once");
}

/// When operations were lost, a block of the same size from the same line is taken to be the same, and no other.
#[test]
fn tags_survive_a_gap_only_with_their_line() {
    let world = World::without_gpu();
    let (mut publisher, mut reader) = watched(&world);
    let at = now_us();
    publisher.say(&json!({"type": "mark", "name": "m", "tag": "model", "at": at}));
    let mut found = with_line(snapshot(30 * MIB), 7);
    found.device_traces = vec![vec![
        entry(Action::Alloc, at + 1, &found),
        entry(Action::Snapshot, at + 2, &found),
    ]];
    publisher.map(&found);
    let mut tag_is = |wanted: &str| {
        let tag = |snapshot: &Snapshot| {
            let block = snapshot.devices[0].blocks().next().map(|block| block.tag);
            block.map(|tag| snapshot.string(tag).to_owned())
        };
        read(&mut reader, |snapshot| tag(snapshot).as_deref() == Some(wanted));
    };
    tag_is("model");
    // The history was too long to be read.
    publisher.map(&with_line(snapshot(30 * MIB), 7));
    publisher.say(&json!({"type": "mark", "name": "x"}));
    tag_is("model");
    // The ring was overwritten since.
    let mut later = with_line(snapshot(30 * MIB), 7);
    later.device_traces = vec![vec![entry(Action::Snapshot, at + 9, &later)]];
    publisher.map(&later);
    tag_is("model");
    publisher.map(&with_line(snapshot(30 * MIB), 8));
    tag_is("train.py:8 in step");
    publisher.map(&snapshot(30 * MIB));
    tag_is("");
    publisher.ended();
}

#[test]
fn history_that_is_not_read_is_said() {
    let world = World::without_gpu();
    let mut publisher = Publisher::start(&world, std::process::id());
    publisher.say(&device());
    publisher.say(&stats(30 * MIB));
    let mut pickle = Vec::new();
    snapshot(30 * MIB).write_pickle(&mut pickle).unwrap();
    publisher.say(&json!({"type": "map", "bytes": pickle.len(), "events_skipped": "it has many entries"}));
    publisher.input.as_mut().unwrap().write_all(&pickle).unwrap();
    let mut reader = open(&world);
    let newest = read(&mut reader, |snapshot| {
        snapshot.sampled.is_some_and(|sampled| sampled.events_skipped.0 > 0)
    });
    assert_eq!(
        newest.string(newest.sampled.unwrap().events_skipped),
        "it has many entries"
    );
    publisher.ended();
}

/// NVML counts 600 MiB and PyTorch has reserved 40 MiB.
#[test]
fn memory_outside_of_pytorch_is_told_apart() {
    let world = World::with_nvml(&format!(
        "gpus=1;gpu0.uuid={CARD};gpu0.used=1G;gpu0.process={}:600M:compute",
        std::process::id()
    ));
    let mut publisher = Publisher::start(&world, std::process::id());
    publisher.say(&device());
    let growing = stats(30 * MIB)
        .to_string()
        .replace(&(40 * MIB).to_string(), &(30 * MIB).to_string());
    publisher.say(&serde_json::from_str(&growing).unwrap());
    // Memory was taken since: the driver's figure may be of before or after that.
    publisher.say(&stats(30 * MIB));
    let mut reader = open(&world);
    let measured = |snapshot: &Snapshot| {
        snapshot.devices[0]
            .outside
            .is_some_and(|outside| outside.measured_at > 0)
    };
    let newest = read(&mut reader, |snapshot| {
        !snapshot.devices.is_empty() && snapshot.devices[0].stats.is_some()
    });
    assert!(!measured(&newest));
    publisher.say(&json!({"type": "users", "names": "NCCL (2 groups)"}));
    publisher.say(&stats(30 * MIB));
    read(&mut reader, measured);
    let outside = json!({"bytes": 560 * MIB, "at_start": 560 * MIB, "users": "NCCL (2 groups)"});
    assert_eq!(row(&world)["outside"], outside);
    publisher.ended();
}
