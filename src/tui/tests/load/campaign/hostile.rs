//! Random mutants, such as an attacker would write to make a reader crash, hang, or believe impossible figures.

use gpumem_tests::Random;

use super::bases::Base;
use super::mutant::{Mutant, Step};
use super::words::{contents, section, word};

/// Words of a publisher's cell and of a lane's, and the word where a lane's cells begin.
const CELL: usize = 80;
const LANE_CELL: usize = 24;
const LANE_CELLS: usize = 16;
/// Words of a cell that are in use.
const CELL_USED: usize = 66;
const LANE_CELL_USED: usize = 22;

/// The words of a cell with one figure of the small pool and of the large one, and its peaks.
struct Place {
    now: [usize; 2],
    peak: [usize; 2],
}

const fn place(small: usize, large: usize, small_peak: usize) -> Place {
    Place {
        now: [small, large],
        peak: [small_peak, small_peak + 13],
    }
}

/// First word of the peaks of both pools' sums, which are stored in the order of [`FIGURES`].
const ALL_PEAKS: usize = 52;
const FIGURES: [Place; 9] = [
    place(2, 10, 26),
    place(4, 12, 27),
    place(5, 13, 28),
    place(7, 15, 29),
    place(9, 17, 30),
    place(33, 46, 34),
    place(36, 49, 37),
    place(18, 22, 31),
    place(20, 24, 32),
];

/// Numbers at the edges of the arithmetic done with them.
const EDGES: [u64; 16] = [
    0,
    1,
    2,
    7,
    8,
    63,
    512,
    1 << 31,
    u32::MAX as u64,
    1 << 32,
    1 << 62,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 512,
    u64::MAX - 7,
    u64::MAX,
];

/// Text that would control a terminal, or change what is beside it.
const TEXTS: [&str; 9] = [
    "\x1b[2J\x1b[H",
    "\x1b]0;x\x07",
    "a\r\nb\t",
    "\u{202e}abc",
    "\u{2066}ab",
    "\u{200b}\u{200d}",
    "\u{9b}31m",
    "\u{e0041}ab",
    "\u{2028}\u{feff}",
];

/// Returns a random mutant of any kind.
pub(crate) fn mutant(random: &mut Random, bases: &[Base]) -> Mutant {
    let base = &bases[random.below(bases.len() as u64) as usize];
    let steps = match random.below(16) {
        0..4 => lie(random, base),
        4..11 => vec![step(random, base, bases)],
        more => (9..more).map(|_| step(random, base, bases)).collect(),
    };
    Mutant {
        base: base.name.to_owned(),
        steps,
    }
}

/// Changes a figure together with its peaks, so that the peaks do not contradict it. Sometimes changes a second one.
fn lie(random: &mut Random, base: &Base) -> Vec<Step> {
    let mut steps = Vec::new();
    let Some((record, newest, start)) = newest_figures(random, base) else {
        return vec![Step::Bit(0)];
    };
    let old = |at: usize| word(&base.bytes, start + newest + at);
    let now: Vec<u64> = FIGURES.iter().flat_map(|figure| figure.now.map(old)).collect();
    for _ in 0..1 + random.below(2) {
        let (n, pool) = (random.below(FIGURES.len() as u64) as usize, random.below(2) as usize);
        let figure = &FIGURES[n];
        let lie = value(random, old(figure.now[pool]), &now);
        let sum = lie.saturating_add(old(figure.now[1 - pool]));
        let changes = [
            (figure.now[pool], lie),
            (figure.peak[pool], old(figure.peak[pool]).max(lie)),
            (ALL_PEAKS + n, old(ALL_PEAKS + n).max(sum)),
        ];
        steps.extend(changes.map(|(at, value)| Step::Set {
            section: "stats",
            record,
            word: newest + at,
            value,
        }));
    }
    steps
}

/// Returns a device's record, the position of its newest figures in it, and the position where it begins.
fn newest_figures(random: &mut Random, base: &Base) -> Option<(usize, usize, usize)> {
    let section = section(&base.bytes, "stats")?;
    let devices = if base.name == "two" { 2 } else { 1 };
    let record = random.below(devices) as usize;
    let start = section.record(record);
    let newest = usize::from(word(&base.bytes, start + CELL) > word(&base.bytes, start)) * CELL;
    Some((record, newest, start))
}

fn step(random: &mut Random, base: &Base, bases: &[Base]) -> Step {
    let bytes = &base.bytes;
    let words = bytes.len() as u64 / 8;
    let any = |random: &mut Random| random.below(words) as usize;
    match random.below(100) {
        0..34 => figure(random, base),
        34..42 => lane_figure(random, base),
        42..53 => field(random, base, "blocks", 8),
        53..61 => field(random, base, "segments", 9),
        61..66 => field(random, base, "events", 8),
        66..70 => field(random, base, "devices", 16),
        70..73 => field(random, base, "strings", 16),
        73..78 => set(random, base, "live", |random| (random.below(9) as usize, 0)),
        78..83 => header(random, bytes),
        83..88 => Step::Bit(random.below(words * 64) as usize),
        88..91 => record_over_another(random, base),
        91..93 => Step::Copy {
            from: any(random),
            to: any(random),
            words: 1 + random.below(8) as usize,
        },
        93..96 => {
            let other = &bases[random.below(bases.len() as u64) as usize];
            Step::From {
                base: other.name.to_owned(),
                word: any(random),
                words: 1 + random.below(256) as usize,
            }
        }
        96 => Step::Cut(random.below(bytes.len() as u64) as usize),
        97 => Step::Grow(1 + random.below(4096) as usize),
        _ => Step::File {
            word: any(random),
            value: value(random, 0, &[]),
        },
    }
}

/// Changes a word of the newest figures of a device. The cell's sequence number stays, so that the change is believed.
fn figure(random: &mut Random, base: &Base) -> Step {
    let Some((record, newest, start)) = newest_figures(random, base) else {
        return Step::Bit(0);
    };
    let at = newest + 2 + random.below(CELL_USED as u64 - 2) as usize;
    let others: Vec<u64> = (2..CELL_USED).map(|n| word(&base.bytes, start + newest + n)).collect();
    Step::Set {
        section: "stats",
        record,
        word: at,
        value: value(random, word(&base.bytes, start + at), &others),
    }
}

/// Changes a word of a lane, mostly one of its newest figures.
fn lane_figure(random: &mut Random, base: &Base) -> Step {
    let Some(section) = section(&base.bytes, "lanes") else {
        return Step::Bit(0);
    };
    let record = random.below(2) as usize;
    let start = section.record(record);
    let cells = start + LANE_CELLS;
    let newest = usize::from(word(&base.bytes, cells + LANE_CELL) > word(&base.bytes, cells)) * LANE_CELL;
    let at = match random.below(8) {
        0 => random.below(3) as usize,
        _ => LANE_CELLS + newest + 1 + random.below(LANE_CELL_USED as u64 - 1) as usize,
    };
    Step::Set {
        section: "lanes",
        record,
        word: at,
        value: value(random, word(&base.bytes, start + at), &[]),
    }
}

/// Changes a word of a record in use, rarely its sequence number: an even one means that the record is complete.
fn field(random: &mut Random, base: &Base, name: &'static str, words: u64) -> Step {
    set(random, base, name, |random| {
        let used = match name {
            "blocks" if base.name == "wide" => 1_800,
            "blocks" => 45,
            "segments" if base.name == "wide" => 30,
            "events" => 40,
            "devices" => 2,
            _ => 5,
        };
        let word = match random.below(16) {
            0 => 0,
            _ => 1 + random.below(words - 1),
        };
        (random.below(used) as usize, word as usize)
    })
}

fn set(
    random: &mut Random,
    base: &Base,
    name: &'static str,
    place: impl FnOnce(&mut Random) -> (usize, usize),
) -> Step {
    let (record, mut at) = place(random);
    // The word where a text begins.
    let text_at = match name {
        "devices" => Some(8),
        "strings" => Some(1),
        _ => None,
    };
    let is_text = text_at.is_some() && random.below(2) == 0;
    if let Some(text_at) = text_at.filter(|_| is_text) {
        at = text_at;
    }
    let old = section(&base.bytes, name).map_or(0, |section| word(&base.bytes, section.record(record) + at));
    let value = if is_text { text(random) } else { value(random, old, &[]) };
    Step::Set {
        section: name,
        record,
        word: at,
        value,
    }
}

/// Changes a word of the header, of the publisher's identity, or of the table of contents.
fn header(random: &mut Random, bytes: &[u8]) -> Step {
    let toc = contents(bytes);
    let at = match random.below(4) {
        0 => random.below(8) as usize,
        1 => 8 + random.below(31) as usize,
        _ => toc.start + random.below(toc.len() as u64) as usize,
    };
    let old = word(bytes, at);
    let halves = |low: u64, high: u64| (low & 0xffff_ffff) | high << 32;
    let new = match random.below(6) {
        0 => text(random),
        1 => {
            let other = toc.start + random.below(toc.len() as u64) as usize;
            value(random, word(bytes, other), &[])
        }
        // A stride and a count.
        2 => halves(old, value(random, old >> 32, &[])),
        3 => halves(value(random, old & 0xffff_ffff, &[]), old >> 32),
        _ => value(random, old, &[]),
    };
    Step::File { word: at, value: new }
}

fn record_over_another(random: &mut Random, base: &Base) -> Step {
    let (name, used) = [
        ("blocks", 45),
        ("segments", 5),
        ("events", 40),
        ("stats", 2),
        ("lanes", 2),
    ][random.below(5) as usize];
    let Some(section) = section(&base.bytes, name) else {
        return Step::Bit(0);
    };
    let mut record = || section.record(random.below(used) as usize);
    Step::Copy {
        from: record(),
        to: record(),
        words: section.stride,
    }
}

/// Returns eight bytes of a text that no terminal should receive.
fn text(random: &mut Random) -> u64 {
    let mut bytes = [b'x'; 8];
    let text = TEXTS[random.below(TEXTS.len() as u64) as usize].as_bytes();
    let length = text.len().min(8);
    bytes[..length].copy_from_slice(&text[..length]);
    u64::from_le_bytes(bytes)
}

/// Returns a number to replace `old`, which is stored beside `others`.
fn value(random: &mut Random, old: u64, others: &[u64]) -> u64 {
    let other = |random: &mut Random| match others.len() as u64 {
        0 => EDGES[random.below(EDGES.len() as u64) as usize],
        n => others[random.below(n) as usize],
    };
    match random.below(12) {
        0..3 => EDGES[random.below(EDGES.len() as u64) as usize],
        3 => old.wrapping_add(1),
        4 => old.wrapping_sub(1),
        5 => old.wrapping_add(512 * (1 + random.below(1 << 12))),
        6 => old.wrapping_sub(512 * (1 + random.below(1 << 12))),
        7 => old.wrapping_mul(2),
        8 => other(random),
        9 => other(random).wrapping_add(random.below(3)).wrapping_sub(1),
        10 => old ^ 1 << random.below(64),
        _ => random.any(),
    }
}
