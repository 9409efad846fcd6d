//! The thread that plays the scenario for one tracker.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::scenario::{Entry, Happening, Scenario, address_at};
use crate::tracker::{Queue, Tracker};

/// How often the thread checks whether its tracker is still open, and whether there was a flush.
const LOOK: Duration = Duration::from_millis(5);

/// Number of flushes so far. A flush is for all trackers.
pub(crate) static FLUSHES: AtomicU64 = AtomicU64::new(0);

/// Index and enabling flag of each counter, in the order of [`Happening::Count`].
const COUNTERS: [(usize, u64); 4] = [(0, 0x1), (1, 0x2), (2, 0x4), (9, 0x200)];

pub(crate) fn start(root: &Path, tracker: Arc<Tracker>, scenario: Scenario) {
    let root: PathBuf = root.to_owned();
    std::thread::spawn(move || play(&root, &tracker, scenario));
}

fn play(root: &Path, tracker: &Tracker, scenario: Scenario) {
    let begin = Instant::now();
    let mine = |line: &crate::scenario::Line| line.space.is_none_or(|space| space == tracker.space);
    for line in scenario.lines.into_iter().filter(mine) {
        let flushed = FLUSHES.load(Ordering::Relaxed);
        let held = matches!(line.what, Happening::Events { held: true, .. });
        let waits = || begin.elapsed() < line.at || (held && FLUSHES.load(Ordering::Relaxed) == flushed);
        while waits() {
            if !tracker.is_open(root) {
                return;
            }
            std::thread::sleep(LOOK.min(line.at.saturating_sub(begin.elapsed()).max(Duration::from_millis(1))));
        }
        if !tracker.is_open(root) {
            return;
        }
        happen(tracker, &line.what);
    }
}

fn happen(tracker: &Tracker, what: &Happening) {
    let enabled = tracker.enabled.load(Ordering::Relaxed);
    match (what, &tracker.queue) {
        (Happening::Count(counts), None) => {
            for (count, (place, flag)) in counts.iter().zip(COUNTERS) {
                if enabled & flag != 0 {
                    tracker.control.words()[place].fetch_add(*count, Ordering::Relaxed);
                }
            }
        }
        (&Happening::Events { entry, times, step, .. }, Some(queue)) => {
            // An entry of an unknown type plays a bug of the driver, which no mask suppresses.
            let wanted = address_at(entry[0]).is_none() || enabled >> entry[0] & 1 == 1;
            if wanted {
                push(tracker, queue, entry, times, step);
            }
        }
        _ => {}
    }
}

/// Indexes of words in the control page of a queue.
const GET_AHEAD: usize = 0;
const PUT_AHEAD: usize = 2;
const PUT_BEHIND: usize = 3;
const DROPPED: usize = 2;

/// Queues entries as `uvm_tools.c` does. An entry for which the queue is full is dropped and counted. The entries become visible together.
fn push(tracker: &Tracker, queue: &Queue, mut entry: Entry, times: u64, step: u64) {
    let (halves, words) = (tracker.control.halves(), queue.memory.words());
    let mask = queue.entries - 1;
    let mut put = halves[PUT_BEHIND].load(Ordering::Relaxed) & mask;
    for _ in 0..times {
        let get = halves[GET_AHEAD].load(Ordering::Acquire) & mask;
        if (put + 1) & mask == get {
            tracker.control.words()[DROPPED + usize::from(entry[0] & 63)].fetch_add(1, Ordering::Relaxed);
        } else {
            halves[PUT_AHEAD].store((put + 1) & mask, Ordering::Relaxed);
            let place = put as usize * (entry.len() / 8);
            for (word, bytes) in words[place..].iter().zip(entry.chunks_exact(8)) {
                word.store(
                    u64::from_ne_bytes(bytes.try_into().unwrap_or_default()),
                    Ordering::Relaxed,
                );
            }
            put = (put + 1) & mask;
        }
        if let Some(at) = address_at(entry[0]).filter(|_| step > 0) {
            let address = u64::from_ne_bytes(entry[at..at + 8].try_into().unwrap_or_default());
            entry[at..at + 8].copy_from_slice(&address.wrapping_add(step).to_ne_bytes());
        }
    }
    halves[PUT_BEHIND].store(put, Ordering::Release);
}
