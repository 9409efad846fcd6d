//! How a thread waits for what takes nanoseconds, where the other may also have lost its processor: it looks again at once and
//! after longer and longer pauses, then after letting others run, then after sleeping for longer and longer.

use std::time::{Duration, Instant};

use crate::process;

/// Pauses of a processor before looks that come first, each twice as many as before: a look takes from who has the lock what it is about to
/// change, and who takes it again and again is held up by each.
const PAUSES: u32 = 64;
/// Then looks that let others run in between, for no longer than this.
pub(super) const PATIENT: u32 = 32;
const PATIENCE: Duration = Duration::from_micros(50);
/// Sleeps before more of them: doubled up to the longest.
const SLEEP: Duration = Duration::from_micros(20);
pub(super) const LONGEST: Duration = Duration::from_millis(1);

/// What is looked for, if it is found before the longest sleep.
pub(super) fn find<R>(mut look: impl FnMut() -> Option<R>) -> Option<R> {
    let mut pauses = 1;
    while pauses <= PAUSES {
        if let Some(found) = look() {
            return Some(found);
        }
        (0..pauses).for_each(|_| std::hint::spin_loop());
        pauses *= 2;
    }
    let began = Instant::now();
    for _ in 0..PATIENT {
        if let Some(found) = look() {
            return Some(found);
        }
        // Who is waited for may have to run where this thread does.
        std::thread::yield_now();
        if began.elapsed() > PATIENCE {
            break;
        }
    }
    let mut sleep = SLEEP;
    while sleep < LONGEST {
        process::sleep(sleep);
        sleep *= 2;
        if let Some(found) = look() {
            return Some(found);
        }
    }
    None
}

/// Waits until something is so.
pub(super) fn until(is_so: impl Fn() -> bool) {
    while find(|| is_so().then_some(())).is_none() {
        process::sleep(LONGEST);
    }
}
