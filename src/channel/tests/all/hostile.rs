//! Hostile files: a reader may refuse them or show less, but must never crash, hang, or show impossible values.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gpumem_channel::{
    Block, BlockState, Device, DeviceKind, EventKind, LaneFigures, OpenError, Operation, Publisher, ReadError, Reader,
    Snapshot, Split,
};

use crate::common::{Heap, Random, campaign, channel_dir, options};

/// Returns the bytes of a real channel.
fn real(dir: &Path) -> Vec<u8> {
    let mut publisher = Publisher::create(&options(dir)).unwrap();
    publisher.set_device(
        0,
        &Device {
            kind: DeviceKind::Cuda,
            total: 80 << 30,
            name: "H100".into(),
            ..Device::default()
        },
    );
    let tag = publisher.intern("optimizer");
    publisher.event(&gpumem_channel::Event {
        tag,
        ..Default::default()
    });
    Heap::after(3, 2_000, &mut publisher);
    for stream in 0..2 {
        publish_on_lane(&mut publisher, stream);
    }
    let bytes = std::fs::read(publisher.path()).unwrap();
    let path = publisher.path().to_owned();
    drop(publisher);
    std::fs::remove_file(path).unwrap();
    bytes
}

/// Publishes some data on a lane, and closes the lane.
fn publish_on_lane(publisher: &mut Publisher, stream: u64) {
    let mut lane = publisher.lane(0, stream).unwrap();
    for _ in 0..40 {
        let kind = EventKind::Alloc;
        let block = &Block {
            addr: 1 << 20,
            size: 512,
            ..Block::default()
        };
        let (slot, next, split) = (4000, None, Split::NO);
        let published = lane.operation(&Operation {
            kind,
            slot,
            state: block.state,
            block,
            next,
            split,
        });
        if published.figures_due {
            lane.figures(&LaneFigures::default());
        }
        publisher.meet(&mut lane);
    }
}

/// Checks what must hold for every snapshot, however hostile the file is.
fn assert_sane(snapshot: &Snapshot) {
    for device in &snapshot.devices {
        let mut after = 0;
        for map in &device.segments {
            assert!(map.segment.addr >= after, "segments overlap");
            after = map.segment.addr.checked_add(map.segment.size).unwrap();
            let mut at = map.segment.addr;
            for block in map.blocks.iter() {
                assert!(block.addr >= at && block.size > 0);
                assert!(!map.complete || block.addr == at);
                at = block.addr.checked_add(block.size).unwrap();
            }
            assert!(at <= after && (!map.complete || at == after));
        }
    }
    assert!(snapshot.lanes.len() <= 3, "more lanes than the file has");
    for string in snapshot.strings.iter() {
        assert!(!string.chars().any(char::is_control));
    }
    assert!(!snapshot.identity.program.chars().any(char::is_control));
}

/// Opens and reads `bytes` as a channel, twice, within a time that no user would notice.
fn read(path: &Path, bytes: &[u8]) -> Result<(), String> {
    std::fs::write(path, bytes).unwrap();
    let start = Instant::now();
    let outcome = (|| {
        let mut reader = Reader::open(path).map_err(|e| e.to_string())?;
        for _ in 0..2 {
            assert_sane(&reader.refresh().map_err(|e| e.to_string())?);
            reader.events().map_err(|e| e.to_string())?;
        }
        Ok(())
    })();
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "a hostile file held the reader up"
    );
    outcome
}

fn word(bytes: &[u8], n: usize) -> u64 {
    u64::from_le_bytes(bytes[n * 8..][..8].try_into().unwrap())
}

fn set_word(bytes: &mut [u8], n: usize, value: u64) {
    bytes[n * 8..][..8].copy_from_slice(&value.to_le_bytes());
}

/// Sections as (kind, first byte, stride, count), from the table of contents.
fn sections(bytes: &[u8]) -> Vec<(u64, usize, usize, usize)> {
    let toc = word(bytes, 4) as usize / 8;
    let entry = |i| (toc + i * 4, word(bytes, toc + i * 4 + 2));
    let section = |(at, packed): (usize, u64)| {
        (
            word(bytes, at),
            word(bytes, at + 1) as usize,
            (packed & 0xffff_ffff) as usize,
            (packed >> 32) as usize,
        )
    };
    (0..word(bytes, 5) as usize).map(entry).map(section).collect()
}

/// Entries of the table of contents.
const SECTIONS: usize = 11;
const BLOCKS: u64 = 5;

#[test]
fn no_bit_flip_does_harm() {
    let dir = channel_dir();
    let bytes = real(dir.path());
    let path = dir.path().join("flipped");
    assert_eq!(read(&path, &bytes), Ok(()), "the unchanged file is read");
    let mut random = Random(99);
    // Bits of the header and the table of contents, all of them in the full campaign, and random ones everywhere.
    let head = 8 * 8 * (64 + 4 * SECTIONS as u64);
    let step = if campaign(10) == 10 { 1 } else { 9 };
    let anywhere = (0..campaign(4_000)).map(|_| random.below(bytes.len() as u64 * 8));
    let mut refused = 0;
    for bit in (0..head).step_by(step).chain(anywhere.collect::<Vec<_>>()) {
        let mut flipped = bytes.clone();
        flipped[bit as usize / 8] ^= 1 << (bit % 8);
        refused += u32::from(read(&path, &flipped).is_err());
    }
    assert!(refused > 100, "the header's checks refuse: {refused}");
}

#[test]
fn hostile_words_do_no_harm() {
    let dir = channel_dir();
    let bytes = real(dir.path());
    let path = dir.path().join("words");
    let mut random = Random(5);
    let evil = [
        0,
        1,
        2,
        7,
        8,
        63,
        1 << 31,
        u64::from(u32::MAX),
        1 << 32,
        1 << 62,
        i64::MAX as u64,
        u64::MAX - 7,
        u64::MAX,
    ];
    for n in (0..64 + 4 * SECTIONS).chain(
        (0..campaign(2_000))
            .map(|_| random.below(bytes.len() as u64 / 8) as usize)
            .collect::<Vec<_>>(),
    ) {
        for value in evil {
            let mut bent = bytes.clone();
            set_word(&mut bent, n, value);
            let _ = read(&path, &bent);
        }
    }
}

#[test]
fn truncated_files_are_refused() {
    let dir = channel_dir();
    let bytes = real(dir.path());
    let path = dir.path().join("short");
    for len in (0..1024).step_by(8).chain((1024..bytes.len()).step_by(40_009)) {
        assert!(read(&path, &bytes[..len]).is_err(), "{len} of {} bytes", bytes.len());
    }
    assert!(matches!(
        Reader::open(&path.with_extension("missing")),
        Err(OpenError::Io(_))
    ));
}

/// Gigabytes of tables cost nothing in a file with holes, except for its reader.
#[test]
fn file_with_holes_is_refused() {
    let dir = channel_dir();
    let path = dir.path().join("sparse");
    let mut bytes = real(dir.path());
    let long = (bytes.len() as u64 + (1 << 20)) & !7;
    set_word(&mut bytes, 3, long);
    std::fs::write(&path, &bytes).unwrap();
    let open = || Reader::open(&path).map(drop).map_err(|e| e.to_string());
    File::options().write(true).open(&path).unwrap().set_len(long).unwrap();
    assert_eq!(
        open(),
        Err("malformed channel: parts of it were never written".to_owned())
    );
    bytes.resize(long as usize, 0);
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(open(), Ok(()));
}

#[test]
fn truncating_an_open_file_is_an_error_not_a_crash() {
    let dir = channel_dir();
    let path = dir.path().join("cut");
    std::fs::write(&path, real(dir.path())).unwrap();
    let mut reader = Reader::open(&path).unwrap();
    reader.refresh().unwrap();
    File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
    assert!(matches!(reader.refresh(), Err(ReadError::Truncated)));
}

#[test]
fn other_files_are_refused_without_blocking() {
    let dir = channel_dir();
    let other = |name: &str| dir.path().join(name);
    std::fs::write(other("text"), "hello\n".repeat(10_000)).unwrap();
    std::fs::write(other("empty"), "").unwrap();
    std::os::unix::fs::symlink("/dev/zero", other("link")).unwrap();
    let status = std::process::Command::new("mkfifo")
        .arg(other("fifo"))
        .status()
        .unwrap();
    assert!(status.success());
    let start = Instant::now();
    for path in ["text", "empty", "link", "fifo"]
        .map(other)
        .into_iter()
        .chain(["/dev/zero", "/proc/self/mem"].map(PathBuf::from))
    {
        assert!(Reader::open(&path).is_err(), "{}", path.display());
    }
    assert!(Reader::open(dir.path()).is_err());
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[test]
fn newer_format_error_says_what_to_do() {
    let dir = channel_dir();
    let mut bytes = real(dir.path());
    set_word(&mut bytes, 1, 9);
    let path = dir.path().join("newer");
    assert_eq!(
        read(&path, &bytes),
        Ok(()),
        "a newer writer that old readers understand is read"
    );
    set_word(&mut bytes, 2, 9);
    let refused = read(&path, &bytes).unwrap_err();
    assert!(
        refused.contains("format 9") && refused.contains("update gpumem"),
        "{refused}"
    );
}

#[test]
fn unknown_sections_and_states_are_tolerated() {
    let dir = channel_dir();
    let mut bytes = real(dir.path());
    // Appends an entry of an unknown kind. Renaming the entry of the string section instead would make that section
    // missing.
    let (_, start, stride, _) = *sections(&bytes).iter().find(|s| s.0 == BLOCKS).unwrap();
    let state = |bytes: &[u8], slot: usize| bytes[start + slot * stride + 5 * 8];
    let slot = (0..100).find(|&slot| state(&bytes, slot) == 2).unwrap();
    bytes[start + slot * stride + 5 * 8] = 77;
    let path = dir.path().join("future");
    std::fs::write(&path, &bytes).unwrap();
    let snapshot = Reader::open(&path).unwrap().refresh().unwrap();
    let unknown = snapshot.devices[0]
        .blocks()
        .filter(|b| b.state == BlockState::Unknown(77))
        .count();
    assert_eq!(unknown, 1, "an unknown state is kept as unknown");
}

#[test]
fn endless_and_crossed_lists_terminate() {
    let dir = channel_dir();
    let bytes = real(dir.path());
    let (_, start, stride, count) = *sections(&bytes).iter().find(|s| s.0 == BLOCKS).unwrap();
    let path = dir.path().join("lists");
    for target in [0u32, 1, 2, 50, u32::MAX - 1] {
        let mut bent = bytes.clone();
        for slot in 0..count {
            // The upper half of word 6 is the next block's slot.
            let next = start + slot * stride + 6 * 8 + 4;
            bent[next..next + 4].copy_from_slice(&target.to_le_bytes());
        }
        assert_eq!(read(&path, &bent), Ok(()));
        let snapshot = Reader::open(&path).unwrap().refresh().unwrap();
        let broken = snapshot.devices[0].segments.iter().filter(|m| !m.complete).count();
        assert!(broken > 0, "broken lists are reported as incomplete");
        assert!(
            snapshot.devices[0].blocks().count() > 100,
            "the known blocks are still shown"
        );
    }
}

#[test]
fn concurrent_corruption_does_no_harm() {
    let dir = channel_dir();
    let bytes = real(dir.path());
    let path = dir.path().join("scribbled");
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .unwrap();
    file.write_all_at(&bytes, 0).unwrap();
    let mut reader = Reader::open(&path).unwrap();
    let end = Instant::now() + Duration::from_secs(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(17);
            while Instant::now() < end {
                // Everything but the header, which is read once. A quarter of the writes copy one word over another.
                let at = 1024 + random.below(bytes.len() as u64 / 8 - 128) * 8;
                let value = match random.below(4) {
                    0 => word(&bytes, random.below(bytes.len() as u64 / 8) as usize),
                    1 => random.below(u64::MAX),
                    2 => random.below(64),
                    _ => 0,
                };
                file.write_all_at(&value.to_le_bytes(), at.min(bytes.len() as u64 - 8))
                    .unwrap();
            }
        });
        let mut passes = 0;
        while Instant::now() < end {
            let start = Instant::now();
            assert_sane(&reader.refresh().unwrap());
            reader.events().unwrap();
            assert!(start.elapsed() < Duration::from_secs(1), "held up");
            passes += 1;
        }
        assert!(passes > 10, "{passes}");
    });
}
