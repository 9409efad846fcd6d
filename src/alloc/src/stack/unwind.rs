//! The call stack of this thread, cheaply.
//!
//! The compiler's unwinder takes 0.1 µs a frame: 2 µs from twenty functions deep, ten from Python. But a program allocates from the
//! same places again and again, so the stacks seen before are remembered, as [`Memo`] says, and recognised by their return addresses.

use std::cell::RefCell;

use super::memo::Memo;
use super::table::Stack;

/// Frames kept of a stack, the innermost ones.
const MOST: usize = 64;

thread_local! {
    static MEMO: RefCell<Memo> = RefCell::new(Memo::default());
}

/// The stack of the caller. To be called without any lock: unwinding takes the loader's on older systems.
pub(crate) fn capture() -> Stack {
    let with = MEMO.try_with(|memo| memo.try_borrow_mut().map(|mut memo| recall(&mut memo)));
    // While the thread ends, and in a signal handler that interrupted a capture.
    with.ok()
        .and_then(Result::ok)
        .unwrap_or_else(|| recall(&mut Memo::default()))
}

/// A function of its own, whose frame has one size: where its variables lie tells where its return address does.
#[inline(never)]
fn recall(memo: &mut Memo) -> Stack {
    let here = 0u8;
    let place = std::hint::black_box(&raw const here) as usize;
    if let Some(stack) = memo.find(place, return_address) {
        return stack;
    }
    let (addresses, slots) = unwind(place);
    let stack = Stack::of(&addresses);
    let path: Vec<(usize, u64)> = slots.into_iter().zip(addresses.iter().copied()).collect();
    if path.len() == addresses.len() && stack != Stack::OTHER {
        memo.learn(place, &path, stack);
    }
    stack
}

/// The return addresses of the callers of the function that has a variable at `place`, and as many places as are known where they
/// lie on the stack.
#[inline(never)]
fn unwind(place: usize) -> (Vec<u64>, Vec<usize>) {
    let mut addresses = Vec::with_capacity(MOST);
    let mut slots = Vec::with_capacity(MOST);
    let visit = |frame: &backtrace::Frame| {
        let (address, top) = (frame.ip() as u64, frame.sp() as usize);
        // Frames below the variable's are those of the unwinder.
        if top > place && address != 0 {
            addresses.push(address);
            let slot = top - size_of::<usize>();
            if KNOWN_SLOTS && slot > place && return_address(slot) == address && slots.len() + 1 == addresses.len() {
                slots.push(slot);
            }
        }
        addresses.len() < MOST
    };
    // SAFETY: what needs synchronisation is Windows' library, which this crate does not run on; here it is the compiler's runtime,
    // for any thread.
    unsafe { backtrace::trace_unsynchronized(visit) };
    (addresses, slots)
}

/// Whether a call leaves its return address right below the caller's frame. It does on x86-64; elsewhere nothing is remembered.
const KNOWN_SLOTS: bool = cfg!(target_arch = "x86_64");

/// The word at a place on this thread's stack.
fn return_address(slot: usize) -> u64 {
    // SAFETY: `slot` lies above the frame of `recall`, whose caller it is, and below the beginning of the stack, where the unwinder
    // found a frame: now, or when this thread was as deep in the stack as now (`Memo` is a thread's own). A thread's stack stays
    // mapped above its top. It is read as bytes of memory that others may write, aligned as every slot for an address is.
    unsafe { (slot as *const u64).read_volatile() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn deep(n: u32) -> Stack {
        let stack = if n == 0 { capture() } else { deep(n - 1) };
        std::hint::black_box(stack)
    }

    #[inline(never)]
    fn elsewhere() -> Stack {
        std::hint::black_box(deep(3))
    }

    #[test]
    fn a_stack_is_recognised_and_is_what_the_unwinder_finds() {
        let mut seen = Vec::new();
        for n in [0, 1, 5, 5, 1, 0, 40, 100, 40] {
            let again: Vec<Stack> = (0..3).map(|_| deep(n)).collect();
            assert!(again.iter().all(|stack| *stack == again[0]), "{n} deep: {again:?}");
            assert!(again[0].addresses().len() > n.min(60) as usize);
            seen.push(again[0]);
        }
        assert_eq!(
            (seen[2], seen[1], seen[0], seen[6]),
            (seen[3], seen[4], seen[5], seen[8])
        );
        let distinct: std::collections::HashSet<_> = seen.iter().collect();
        assert_eq!(distinct.len(), 5);
        let both: Vec<Stack> = (0..4).map(|i| if i % 2 == 0 { elsewhere() } else { deep(3) }).collect();
        assert_eq!((both[0], both[1]), (both[2], both[3]));
        assert_ne!(both[0], both[1], "another caller");
    }

    #[test]
    fn threads_have_stacks_of_their_own_and_name_their_functions() {
        let here = deep(2);
        let there: Vec<Stack> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2)
                .map(|_| scope.spawn(|| (0..2).map(|_| deep(2)).collect()))
                .collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().unwrap_or_else(|_| Vec::new()))
                .collect()
        });
        assert_eq!(there.len(), 4);
        assert!(there.iter().all(|stack| *stack == there[0] && *stack != here));
        let names: Vec<String> = super::super::Symbols::new()
            .all_frames(here)
            .into_iter()
            .map(|frame| frame.name)
            .collect();
        assert_eq!(
            names
                .iter()
                .filter(|name| name.ends_with("unwind::tests::deep"))
                .count(),
            3,
            "{names:?}"
        );
    }
}
