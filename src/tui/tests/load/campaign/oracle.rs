//! Decides what the words of a file say about each device, and whether that can be true. It follows the definitions of the figures
//! (`JSON.md` and the format's documentation) with its own decoder and its own rules.

use super::words::{Section, section, word};

/// Words of a publisher's cell and of a lane's, and the word of a lane's record where its cells begin.
const CELL: usize = 80;
const LANE_CELL: usize = 24;
const LANE_CELLS: usize = 16;
/// Counters of the live section.
const LIVE_EVENTS: usize = 0;
const LIVE_BLOCKS: usize = 1;
const LIVE_SEGMENTS: usize = 2;
const LIVE_DEVICES: usize = 3;
const LIVE_LANES: usize = 8;
/// Kinds of events that change the free blocks before the figures follow: a block is handed out or comes back, a segment is taken or
/// grows.
const MOVES: [u64; 5] = [1, 2, 3, 4, 6];

/// Figures of a pool, in the order in which the peaks of both pools' sums are stored.
const FIGURES: usize = 9;
const ACTIVE: usize = 1;
const REQUESTED: usize = 2;
const ALLOCATED: usize = 3;
const ACTIVE_BYTES: usize = 4;
const RESERVED: usize = 6;
const SPLIT_BYTES: usize = 8;
/// The words of a cell with the current value of each figure: in the pool's hot words, its splits, and its cold words.
const HOT: [(usize, usize); 5] = [(0, 0), (ACTIVE, 2), (REQUESTED, 3), (ALLOCATED, 5), (ACTIVE_BYTES, 7)];
const HOT_AT: [usize; 2] = [2, 10];
const SPLIT: [(usize, usize); 2] = [(7, 0), (8, 2)];
const SPLIT_AT: [usize; 2] = [18, 22];
const COLD_AT: [usize; 2] = [26, 39];
/// Figures whose peaks come first in the cold words. Segments and reserved bytes follow, each with current value, peak and sum.
const PEAKS: [usize; 7] = [0, 1, 2, 3, 4, 7, 8];
const SEGMENTS: usize = 5;
/// First word of the peaks of both pools' sums.
const ALL_PEAKS_AT: usize = 52;
/// First word of each pool's counts in a lane's cell, two words for each count.
const LANE_AT: [usize; 2] = [2, 12];
const LANE_FIGURES: [usize; 5] = [0, REQUESTED, ALLOCATED, 7, 8];

/// What a device's words say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// There are no complete figures.
    Nothing,
    /// Nothing is wrong with them.
    Sound(Figures),
    /// They cannot be true.
    Contradictory(&'static str),
    /// Later events changed the figures, which the oracle does not follow.
    Undecided,
}

/// Figures of both pools together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) reserved: u64,
    pub(crate) allocated: u64,
    pub(crate) active: u64,
    pub(crate) requested: u64,
}

/// What a file says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Oracle {
    /// The claim of each device that may be shown, in order.
    pub(crate) claims: Vec<Claim>,
    /// How much more than the cached bytes may be in free blocks of each device: the bytes of a block that is being moved, whose event is
    /// written first. `None` if a record is being written: then the bytes are not known.
    pub(crate) begun: Option<[u64; 2]>,
}

impl Oracle {
    /// Returns whether a row with these figures can be a sound device of the file. Rows do not say which of the devices they show.
    pub(crate) fn allows(&self, shown: &Figures) -> bool {
        self.claims.iter().any(|claim| match claim {
            Claim::Sound(figures) => figures == shown,
            Claim::Undecided => true,
            Claim::Nothing | Claim::Contradictory(_) => false,
        })
    }
}

/// Returns what the words of a file say. `None` if its sections are not as they have to be.
pub(crate) fn ask(bytes: &[u8]) -> Option<Oracle> {
    let live = section(bytes, "live").filter(|live| live.stride == 1 && live.count > LIVE_LANES)?;
    let counter = |n: usize| word(bytes, live.start + n);
    let devices = section(bytes, "devices")?;
    let stats = section(bytes, "stats").filter(|stats| stats.stride >= 2 * CELL && stats.count > 0)?;
    let lanes = section(bytes, "lanes");
    let opened = lanes.map_or(0, |lanes| lanes.count.min(counter(LIVE_LANES) as usize));
    let lanes: Vec<usize> = lanes
        .map(|lanes| (0..opened).map(|lane| lanes.record(lane)).collect())
        .unwrap_or_default();
    let count = (counter(LIVE_DEVICES) as usize).min(devices.count).min(stats.count);
    let claim = |device: usize| claim(bytes, stats.record(device), device, counter(LIVE_EVENTS), &lanes);
    Some(Oracle {
        claims: (0..count).map(claim).collect(),
        begun: begun(bytes, &live, &lanes),
    })
}

/// Returns whether a record's sequence number says that it is complete.
fn is_whole(number: u64) -> bool {
    number.is_multiple_of(2) && number > 0
}

/// Returns the newest complete cell of two.
fn newest(bytes: &[u8], first: usize, stride: usize) -> Option<usize> {
    let cells = [first, first + stride].into_iter();
    cells
        .filter(|cell| is_whole(word(bytes, *cell)))
        .max_by_key(|cell| word(bytes, *cell))
}

fn claim(bytes: &[u8], record: usize, device: usize, events: u64, lanes: &[usize]) -> Claim {
    let Some(cell) = newest(bytes, record, CELL) else {
        return Claim::Nothing;
    };
    let at = |n: usize| word(bytes, cell + n);
    let (mut now, mut peak) = ([[0u64; FIGURES]; 2], [[0u64; FIGURES]; 2]);
    for pool in 0..2 {
        for (figure, n) in HOT {
            now[pool][figure] = at(HOT_AT[pool] + n);
        }
        for (figure, n) in SPLIT {
            now[pool][figure] = at(SPLIT_AT[pool] + n);
        }
        for (n, figure) in PEAKS.into_iter().enumerate() {
            peak[pool][figure] = at(COLD_AT[pool] + n);
        }
        for (n, figure) in [(7, SEGMENTS), (10, RESERVED)] {
            now[pool][figure] = at(COLD_AT[pool] + n);
            peak[pool][figure] = at(COLD_AT[pool] + n + 1);
        }
    }
    if at(1) != events {
        return Claim::Undecided;
    }
    // A sum of parts raises its peaks.
    let mut peaks_count = true;
    for &lane in lanes {
        if usize::from((word(bytes, lane + 1) >> 8) as u8) != device {
            continue;
        }
        let part = newest(bytes, lane + LANE_CELLS, LANE_CELL);
        let told = part.map_or(0, |part| word(bytes, part + 1));
        if word(bytes, lane) != told {
            return Claim::Undecided;
        }
        let Some(part) = part else { continue };
        peaks_count = false;
        for pool in 0..2 {
            for (n, figure) in LANE_FIGURES.into_iter().enumerate() {
                let more = word(bytes, part + LANE_AT[pool] + 2 * n);
                let with_active = match figure {
                    0 => Some(ACTIVE),
                    ALLOCATED => Some(ACTIVE_BYTES),
                    _ => None,
                };
                for figure in [Some(figure), with_active].into_iter().flatten() {
                    now[pool][figure] = now[pool][figure].wrapping_add(more);
                }
            }
        }
    }
    // A figure that one part has given up and another not yet taken over is read as nothing.
    if !peaks_count && now.as_flattened().iter().any(|figure| *figure > i64::MAX as u64) {
        return Claim::Undecided;
    }
    judge(&now, &peak, peaks_count, |figure| at(ALL_PEAKS_AT + figure))
}

/// Applies the definitions. Reserved is what was taken from the driver. Active, allocated and requested are each a part of the figure
/// before.
fn judge(
    now: &[[u64; FIGURES]; 2],
    peak: &[[u64; FIGURES]; 2],
    peaks_count: bool,
    peak_of_all: impl Fn(usize) -> u64,
) -> Claim {
    let mut all = [0; FIGURES];
    for figure in 0..FIGURES {
        let Some(sum) = now[0][figure].checked_add(now[1][figure]) else {
            return Claim::Contradictory("more than can be counted");
        };
        all[figure] = sum;
        let passed = (0..2).any(|pool| peak[pool][figure] < now[pool][figure]) || peak_of_all(figure) < sum;
        if peaks_count && passed {
            return Claim::Contradictory("a peak below what there is");
        }
    }
    for (part, whole, text) in [
        (ALLOCATED, RESERVED, "allocated more than reserved"),
        (ACTIVE_BYTES, RESERVED, "active more than reserved"),
        (ALLOCATED, ACTIVE_BYTES, "allocated more than active"),
        (REQUESTED, ACTIVE_BYTES, "requested more than active"),
    ] {
        if all[part] > all[whole] {
            return Claim::Contradictory(text);
        }
    }
    if all[SPLIT_BYTES] > all[RESERVED] - all[ALLOCATED] {
        return Claim::Contradictory("more in pinned free blocks than cached");
    }
    Claim::Sound(Figures {
        reserved: all[RESERVED],
        allocated: all[ALLOCATED],
        active: all[ACTIVE_BYTES],
        requested: all[REQUESTED],
    })
}

/// Returns the bytes of each device's blocks whose events are the last of their rings.
fn begun(bytes: &[u8], live: &Section, lanes: &[usize]) -> Option<[u64; 2]> {
    let counter = |n: usize| word(bytes, live.start + n);
    for (name, used) in [("segments", LIVE_SEGMENTS), ("blocks", LIVE_BLOCKS)] {
        let table = section(bytes, name)?;
        let used = table.count.min(counter(used) as usize);
        if (0..used).any(|record| word(bytes, table.record(record)) % 2 == 1) {
            return None;
        }
    }
    let ring = section(bytes, "events").filter(|ring| ring.count > 0)?;
    let mut rings = vec![(ring, counter(LIVE_EVENTS))];
    if let Some(all) = section(bytes, "lane_events").filter(|_| !lanes.is_empty()) {
        let count = all.count / section(bytes, "lanes")?.count;
        if count == 0 {
            return None;
        }
        rings.extend(lanes.iter().enumerate().map(|(n, lane)| {
            let ring = Section {
                start: all.record(n * count),
                count,
                ..all
            };
            (ring, word(bytes, *lane))
        }));
    }
    let mut begun = [0u64; 2];
    for (ring, events) in rings {
        let Some(last) = events.checked_sub(1) else { continue };
        let record = ring.record((last % ring.count as u64) as usize);
        let about = word(bytes, record + 2);
        let device = begun.get_mut((about >> 8 & 0xff) as usize);
        if let Some(begun) = device.filter(|_| MOVES.contains(&(about & 0xff))) {
            *begun = begun.saturating_add(word(bytes, record + 4));
        }
    }
    Some(begun)
}
