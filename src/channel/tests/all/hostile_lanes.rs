//! Hostile lanes.

use std::path::Path;
use std::time::{Duration, Instant};

use gpumem_channel::{DeviceStats, Event, EventKind, LaneFigures, OpenError, Options, Reader, Snapshot, Touched};

use crate::common::{Count, channel_dir, operate, options, publisher_with};

/// Numbers of section kinds.
const LIVE: u64 = 1;
const EVENTS: u64 = 7;
const LANES: u64 = 10;
const GENERATIONS: u64 = 11;
const LANE_EVENTS: u64 = 12;

/// Makes a channel with a device and two lanes, whose figures are those of one event each. The other events wrap the
/// rings around.
fn real(dir: &Path, lanes: u32) -> Vec<u64> {
    let options = Options { lanes, ..options(dir) };
    let mut publisher = publisher_with(&options);
    publisher.stats(0, &DeviceStats::default(), Touched::ALL);
    let mark = Event {
        kind: EventKind::Mark,
        ..Event::default()
    };
    publisher.event(&mark);
    let mut opened: Vec<_> = (0..2).filter_map(|stream| publisher.lane(0, stream)).collect();
    for lane in &mut opened {
        for _ in 0..100 {
            operate(lane, 512);
        }
        let mut figures = LaneFigures::default();
        figures.small.allocation.add(5);
        lane.figures(&figures);
    }
    let bytes = std::fs::read(publisher.path()).unwrap();
    let words = bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    words.collect()
}

/// Returns the word at which the table of contents has the entry of a section: kind, offset, stride and count, version.
fn entry(words: &[u64], kind: u64) -> usize {
    let toc = words[4] as usize / 8;
    let entries = (toc..).step_by(4).take(words[5] as usize);
    entries.into_iter().find(|&at| words[at] == kind).unwrap()
}

/// Returns the first word of a section.
fn start(words: &[u64], kind: u64) -> usize {
    words[entry(words, kind) + 1] as usize / 8
}

fn set_count(words: &mut [u64], kind: u64, count: u64) {
    let at = entry(words, kind) + 2;
    words[at] = words[at] & 0xffff_ffff | count << 32;
}

/// Opens and reads words as a channel.
fn read(dir: &Path, words: &[u64]) -> Result<(Snapshot, u64), OpenError> {
    let path = dir.join("bent");
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    std::fs::write(&path, bytes).unwrap();
    let begin = Instant::now();
    let mut reader = Reader::open(&path)?;
    reader.refresh().unwrap();
    let lost = reader.events().unwrap().lost;
    let snapshot = reader.refresh().unwrap();
    assert!(begin.elapsed() < Duration::from_secs(2), "held up");
    Ok((snapshot, lost))
}

fn held(snapshot: &Snapshot) -> u64 {
    snapshot.devices[0].stats.unwrap().small.allocation.current
}

#[test]
fn sections_of_mismatched_sizes_are_refused() {
    let dir = channel_dir();
    let real = real(dir.path(), 3);
    let (snapshot, lost) = read(dir.path(), &real).unwrap();
    assert_eq!((snapshot.lanes.len(), held(&snapshot), lost), (2, 10, 2 * 36));
    // Room for three lanes; a ring has 64 events.
    let counts = [
        (LANES, 4),
        (LANES, 300),
        (GENERATIONS, 2),
        (GENERATIONS, 0),
        (LANE_EVENTS, 3 * 63),
        (LANE_EVENTS, 64),
        (LANE_EVENTS, 3 * 64 + 1),
        (LANE_EVENTS, 0),
        (LIVE, 8),
    ];
    for (kind, count) in counts {
        let mut bent = real.clone();
        set_count(&mut bent, kind, count);
        let outcome = read(dir.path(), &bent);
        assert!(matches!(outcome, Err(OpenError::Malformed(_))), "{count} of {kind}");
    }
    let mut bent = real.clone();
    let at = entry(&bent, GENERATIONS) + 2;
    // One word per lane.
    bent[at] = 3 << 32 | 8;
    assert!(matches!(read(dir.path(), &bent), Err(OpenError::Malformed(_))));
}

#[test]
fn claims_of_a_lane_are_bounded_by_its_channel() {
    let dir = channel_dir();
    let real = real(dir.path(), 3);
    let (live, lane) = (start(&real, LIVE), start(&real, LANES));
    // The largest possible number of lanes; the file has three.
    let mut bent = real.clone();
    bent[live + 8] = u64::MAX;
    assert_eq!(read(dir.path(), &bent).unwrap().0.lanes.len(), 3);
    // A device that the channel does not have: the lane's figures are added to no device.
    for device in [1, 200] {
        let mut bent = real.clone();
        bent[lane + 1] = 1 | device << 8;
        let (snapshot, _) = read(dir.path(), &bent).unwrap();
        assert_eq!((snapshot.lanes[0].device, held(&snapshot)), (device as u8, 5));
    }
    // More events than were published.
    for count in [101, 1 << 40, u64::MAX] {
        let mut bent = real.clone();
        bent[lane] = count;
        let (snapshot, lost) = read(dir.path(), &bent).unwrap();
        assert!(lost > 36 && snapshot.event_count > 101);
    }
    // Figures whose sum overflows a word.
    let mut bent = real.clone();
    for word in &mut bent[lane + 18..lane + 40] {
        *word = u64::MAX;
    }
    let (snapshot, _) = read(dir.path(), &bent).unwrap();
    assert!(held(&snapshot) <= i64::MAX as u64);
}

#[test]
fn file_of_format_1_has_no_lanes() {
    let dir = channel_dir();
    let mut old = real(dir.path(), 0);
    (old[1], old[2]) = (1, 1);
    set_count(&mut old, LIVE, 8);
    // Sections that format 1 did not have, given unknown kinds.
    for kind in [LANES, GENERATIONS, LANE_EVENTS] {
        let at = entry(&old, kind);
        old[at] = 99;
    }
    let (snapshot, lost) = read(dir.path(), &old).unwrap();
    assert_eq!((snapshot.lanes.len(), snapshot.event_count, lost), (0, 1, 0));
    let mut bent = old.clone();
    set_count(&mut bent, EVENTS, 3);
    assert!(matches!(read(dir.path(), &bent), Err(OpenError::Malformed(_))));
}
