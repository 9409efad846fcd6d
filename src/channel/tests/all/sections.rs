//! Files of newer programs, with sections unknown to this reader, and of older ones, which lack some that it knows.

use std::path::Path;

use gpumem_channel::{
    Block, BlockState, DeviceStats, Event, EventKind, ManagedBlock, ManagedFigures, ManagedRange, OpenError, Options,
    Outside, PAST, PastFigures, PoolId, Preferred, Reader, Segment, Snapshot, Touched,
};

use crate::common::{channel_dir, operate, options, publisher_with};

/// Numbers of section kinds: required ones, and those of lanes, which a file may lack.
const REQUIRED: [u64; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
const OF_LANES: [u64; 3] = [10, 11, 12];
/// A kind that no version has.
const UNKNOWN: u64 = 4711;

/// A channel as words, with its table of contents separate.
struct File {
    words: Vec<u64>,
    /// Kind, offset in bytes, stride | count << 32, version.
    toc: Vec<[u64; 4]>,
}

impl File {
    /// Makes the file of a publisher with data in every section.
    fn published(dir: &Path, lanes: u32) -> File {
        let mut publisher = publisher_with(&Options { lanes, ..options(dir) });
        let tag = publisher.intern("weights");
        let segment = Segment {
            addr: 1 << 30,
            size: 1 << 20,
            mapped: 1 << 20,
            ..Segment::default()
        };
        let block = Block {
            addr: segment.addr,
            size: segment.size,
            requested: segment.size - 7,
            state: BlockState::Allocated,
            pool: PoolId::LARGE,
            tag,
            ..Block::default()
        };
        publisher.event(&Event {
            kind: EventKind::SegmentAlloc,
            size: segment.size,
            ..Event::default()
        });
        publisher.segment_begin(0);
        publisher.block(0, &block, None);
        publisher.segment_end(0, Some((&segment, Some(0))));
        let mut stats = DeviceStats::default();
        stats.large.segment.add(1);
        stats.large.reserved_bytes.add(segment.size);
        stats.all_peaks = stats.large.figures().map(|stat| stat.peak);
        publisher.stats(0, &stats, Touched::ALL);
        if let Some(mut lane) = publisher.lane(0, 7) {
            operate(&mut lane, 512);
        }
        let bytes = std::fs::read(publisher.path()).unwrap();
        let (words, _) = bytes.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let (entries, _) = words[words[4] as usize / 8..].as_chunks();
        let toc = entries[..words[5] as usize].to_vec();
        File { words, toc }
    }

    /// Appends a section of these words at place `at` of the table of contents.
    fn add(&mut self, at: usize, kind: u64, stride: usize, words: &[u64]) {
        self.words.resize(self.words.len().next_multiple_of(8), 0);
        let packed = (stride as u64 * 8) | ((words.len() / stride) as u64) << 32;
        self.toc.insert(at, [kind, self.words.len() as u64 * 8, packed, 3]);
        self.words.extend(words);
    }

    fn without(&self, kinds: &[u64]) -> File {
        let toc = self.toc.iter().filter(|entry| !kinds.contains(&entry[0]));
        File {
            words: self.words.clone(),
            toc: toc.copied().collect(),
        }
    }

    /// Opens and reads the file, with the table of contents at the end.
    fn read(&self, dir: &Path) -> Result<Snapshot, OpenError> {
        let mut words = self.words.clone();
        words[4] = words.len() as u64 * 8;
        words[5] = self.toc.len() as u64;
        words.extend(self.toc.as_flattened());
        words[3] = words.len() as u64 * 8;
        let path = dir.join("changed");
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        std::fs::write(&path, bytes).unwrap();
        let mut reader = Reader::open(&path)?;
        reader.refresh().unwrap();
        assert_eq!(reader.events().unwrap().lost, 0);
        Ok(reader.refresh().unwrap())
    }
}

/// Returns a snapshot as text, without the time at which it was read.
fn describe(mut snapshot: Snapshot) -> String {
    snapshot.read_at = 0;
    format!("{snapshot:?}")
}

#[test]
fn unknown_section_is_skipped_anywhere() {
    let dir = channel_dir();
    let plain = File::published(dir.path(), 2);
    let expected = describe(plain.read(dir.path()).unwrap());
    assert!(
        expected.contains("weights") && expected.contains("requested: 1048569"),
        "{expected}"
    );
    for at in 0..=plain.toc.len() {
        for (stride, count) in [(1, 1), (4, 300), (1000, 1)] {
            let mut newer = File {
                words: plain.words.clone(),
                toc: plain.toc.clone(),
            };
            newer.add(at, UNKNOWN, stride, &vec![u64::MAX; stride * count]);
            newer.add(at, UNKNOWN + 1, 1, &[7]);
            assert_eq!(
                describe(newer.read(dir.path()).unwrap()),
                expected,
                "at {at}, {count} of {stride}"
            );
        }
    }
}

/// The positions of unknown sections are checked too.
#[test]
fn unknown_section_must_not_overlap_others() {
    let dir = channel_dir();
    let mut bent = File::published(dir.path(), 2);
    let blocks = bent.toc.iter().find(|entry| entry[0] == 5).unwrap()[1];
    bent.toc.push([UNKNOWN, blocks, 8 | 1 << 32, 1]);
    assert!(matches!(bent.read(dir.path()), Err(OpenError::Malformed(_))));
    let outside = bent.words.len() as u64 * 8 + (1 << 20);
    bent.toc.last_mut().unwrap()[1] = outside;
    assert!(matches!(bent.read(dir.path()), Err(OpenError::Malformed(_))));
}

/// Older programs have no lanes: none are shown, and the publisher's own figures are complete.
#[test]
fn file_of_an_older_program_is_read_without_lanes() {
    let dir = channel_dir();
    let file = File::published(dir.path(), 2);
    assert_eq!(file.read(dir.path()).unwrap().lanes.len(), 1);
    let old = file.without(&OF_LANES).read(dir.path()).unwrap();
    assert_eq!(old.lanes, []);
    let stats = old.devices[0].stats.unwrap();
    assert_eq!(
        (stats.large.reserved_bytes.current, stats.small.allocation.current),
        (1 << 20, 0)
    );
    assert_eq!(old.devices[0].contradiction, None);
    // The same as for a publisher without lanes.
    let none = File::published(dir.path(), 0);
    let listed = none.toc.iter().filter(|entry| OF_LANES.contains(&entry[0]));
    assert!(listed.clone().count() == 3 && listed.clone().all(|entry| entry[2] >> 32 == 0));
    let [listed, left_out] = [none.read(dir.path()), none.without(&OF_LANES).read(dir.path())];
    assert_eq!(describe(listed.unwrap()), describe(left_out.unwrap()));
}

#[test]
fn file_without_a_required_section_is_refused() {
    let dir = channel_dir();
    let file = File::published(dir.path(), 2);
    let known: Vec<u64> = file.toc.iter().map(|entry| entry[0]).collect();
    assert!(
        known
            .iter()
            .all(|kind| REQUIRED.contains(kind) || OF_LANES.contains(kind))
    );
    for kind in REQUIRED {
        let refused = file.without(&[kind]).read(dir.path()).unwrap_err();
        assert!(
            matches!(refused, OpenError::Malformed("a section is missing")),
            "{kind}: {refused}"
        );
    }
    // A lane needs all three sections.
    for kind in [11, 12] {
        let refused = file.without(&[kind]).read(dir.path());
        assert!(matches!(refused, Err(OpenError::Malformed(_))), "{kind}");
    }
}

/// A newer program's records may be longer. The words after the known ones are not read.
#[test]
fn known_words_of_longer_records_are_read() {
    let dir = channel_dir();
    let file = File::published(dir.path(), 0);
    let expected = describe(file.read(dir.path()).unwrap());
    for (kind, words) in [(2u64, 24usize), (4, 16), (8, 16)] {
        let entry = *file.toc.iter().find(|entry| entry[0] == kind).unwrap();
        let (start, count) = (entry[1] as usize / 8, (entry[2] >> 32) as usize);
        let records = file.words[start..][..count * words].chunks(words);
        let longer: Vec<u64> = records.flat_map(|record| [record, &[u64::MAX; 8]].concat()).collect();
        let mut newer = file.without(&[kind]);
        newer.add(0, kind, words + 8, &longer);
        assert_eq!(describe(newer.read(dir.path()).unwrap()), expected, "{kind}");
    }
}

#[test]
fn managed_memory_is_published_only_on_request() {
    let dir = channel_dir();
    let plain = publisher_with(&options(dir.path()));
    let mut reader = Reader::open(plain.path()).unwrap();
    assert_eq!(reader.refresh().unwrap().managed, None);

    let mut publisher = publisher_with(&Options {
        managed: 3,
        managed_blocks: 2,
        ..options(dir.path())
    });
    let tag = publisher.intern("table");
    let range = |addr, size| ManagedRange {
        addr,
        size,
        preferred: Preferred::Cpu,
        read_mostly: true,
        tag,
        ..ManagedRange::default()
    };
    let ranges = [range(8 << 20, 4 << 20), range(2 << 20, 100), range(11 << 20, 4096)];
    for (slot, range) in (0..).zip(&ranges) {
        assert!(publisher.managed_range(slot, Some(range)));
    }
    assert!(!publisher.managed_range(3, Some(&ranges[0])), "the table has three");
    let block = ManagedBlock {
        addr: 8 << 20,
        on_gpu: 5,
        ..ManagedBlock::default()
    };
    assert!(publisher.managed_block(1, Some(&block)));
    assert!(!publisher.managed_block(2, Some(&block)));
    let figures = ManagedFigures {
        bytes_left_out: 77,
        ..ManagedFigures::default()
    };
    assert!(publisher.managed_figures(&figures));

    let mut reader = Reader::open(publisher.path()).unwrap();
    let snapshot = reader.refresh().unwrap();
    let found = snapshot.managed.clone().unwrap();
    let places: Vec<_> = found.ranges.iter().map(|range| (range.addr, range.size)).collect();
    assert_eq!(places, [(2 << 20, 100), (8 << 20, 4 << 20)], "the third overlaps");
    assert_eq!(snapshot.string(found.ranges[0].tag), "table");
    assert!(found.ranges.iter().all(|range| range.time > 0 && range.read_mostly));
    assert_eq!((found.blocks, found.figures), (vec![block], figures));

    for slot in 0..3 {
        publisher.managed_range(slot, None);
    }
    publisher.managed_block(1, None);
    let found = reader.refresh().unwrap().managed.unwrap();
    assert!(found.ranges.is_empty() && found.blocks.is_empty());
}

/// What a publisher hears of late keeps its time, and what it knows of memory outside of the allocator has a device.
#[test]
fn sampled_publisher_tells_the_past_and_the_outside() {
    let dir = channel_dir();
    let plain = publisher_with(&options(dir.path()));
    let mut reader = Reader::open(plain.path()).unwrap();
    let snapshot = reader.refresh().unwrap();
    assert_eq!((snapshot.sampled, snapshot.devices[0].outside), (None, None));
    assert_eq!(reader.past_figures().unwrap(), []);

    let mut publisher = publisher_with(&Options {
        sampled: true,
        ..options(dir.path())
    });
    let users = publisher.intern("NCCL");
    let outside = Outside {
        at_start: 518 << 20,
        measured_at: 9,
        users,
    };
    assert!(publisher.outside(0, &outside));
    assert!(!publisher.outside(200, &outside), "the table has fewer devices");
    let now = publisher.now();
    for time in [now - 5, u64::MAX] {
        publisher.past_event(&Event {
            time,
            ..Event::default()
        });
    }
    let segment = Segment {
        addr: 1 << 30,
        size: 2 << 20,
        mapped: 2 << 20,
        ..Segment::default()
    };
    let block = Block {
        addr: segment.addr,
        size: segment.size,
        requested: 7,
        state: BlockState::Allocated,
        time: now - 3,
        ..Block::default()
    };
    publisher.segment_begin(0);
    assert!(publisher.past_block(0, &block, None));
    publisher.segment_end(0, Some((&segment, Some(0))));

    for n in 1..=PAST as u64 + 5 {
        let figures = PastFigures {
            time: n,
            device: 3,
            allocated: n * 10,
            reserved: n * 20,
        };
        assert!(publisher.past_figures(&figures));
    }

    let mut reader = Reader::open(publisher.path()).unwrap();
    let snapshot = reader.refresh().unwrap();
    let past = reader.past_figures().unwrap();
    assert_eq!((past.len(), past[0].time), (PAST, 6), "the oldest were overwritten");
    let newest = past.last().unwrap();
    assert_eq!((newest.device, newest.allocated, newest.reserved), (3, 20_530, 41_060));
    let found = snapshot.devices[0].outside.unwrap();
    assert_eq!((found, snapshot.string(found.users)), (outside, "NCCL"));
    assert_eq!(snapshot.devices[0].blocks().next().unwrap().time, now - 3);
    let times: Vec<u64> = reader.events().unwrap().events.iter().map(|event| event.time).collect();
    assert_eq!(times[0], now - 5);
    assert!(
        times[1] >= now && times[1] <= publisher.now(),
        "no event is of the future"
    );
}

/// Whoever asks for blocks as soon as the channel has its name is heard, before its program has looked for the first time.
#[test]
fn blocks_that_are_wanted_at_once_are_wanted() {
    let dir = channel_dir();
    for _ in 0..100 {
        let publisher = publisher_with(&options(dir.path()));
        Reader::open(publisher.path()).unwrap().want_blocks().unwrap();
        let first = publisher.wanted_at();
        assert!(first.is_some());
        std::thread::sleep(std::time::Duration::from_millis(12));
        Reader::open(publisher.path()).unwrap().want_blocks().unwrap();
        assert_ne!(publisher.wanted_at(), first);
    }
}
