//! Records guarded by a sequence word, which is odd during a write and a new even number after every write.
//!
//! Word 0 is the sequence word, the rest is data. The writer chooses the sequence numbers, which only have to grow, so
//! it never reads shared memory. A reader accepts a copy if the sequence word was the same even number before and after
//! copying.

use crate::word::Word;

/// Attempts before a reader reports a record as unreadable. A write takes tens of nanoseconds, so this many failures
/// mean that the writer was stopped or killed during a write, or writes all the time.
pub(crate) const ATTEMPTS: usize = 64;

/// Marks `record` as being written. `ticket` numbers the write; each must be larger than the last.
#[inline(always)]
pub(crate) fn begin<W: Word>(record: &[W], ticket: u64) {
    record[0].put(ticket * 2 + 1);
    // A reader that sees any of the data stores below also sees the odd number above.
    W::release_fence();
}

/// Ends the write begun with the same `ticket`.
#[inline(always)]
pub(crate) fn end<W: Word>(record: &[W], ticket: u64) {
    // A reader that sees the even number also sees all of the data.
    W::release_fence();
    record[0].put(ticket * 2 + 2);
}

/// Returns the sequence number after a finished write with `ticket`.
pub(crate) fn finished(ticket: u64) -> u64 {
    ticket * 2 + 2
}

/// Copies words 1.. of `record` into `out` once. Returns the sequence number, or `None` if the copy may be torn.
#[inline(always)]
pub(crate) fn try_read<W: Word>(record: &[W], out: &mut [u64]) -> Option<u64> {
    let before = record[0].get();
    if before & 1 == 1 {
        return None;
    }
    W::acquire_fence();
    for (to, from) in out.iter_mut().zip(&record[1..]) {
        *to = from.get();
    }
    W::acquire_fence();
    (record[0].get() == before).then_some(before)
}

/// Calls [`try_read`] up to [`ATTEMPTS`] times.
#[inline]
pub(crate) fn read<W: Word>(record: &[W], out: &mut [u64]) -> Option<u64> {
    for _ in 0..ATTEMPTS {
        if let Some(seq) = try_read(record, out) {
            return Some(seq);
        }
        std::hint::spin_loop();
    }
    None
}
