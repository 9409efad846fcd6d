//! The call stack of this thread, by who names its frames, or by the compiler's tables for unwinding.
#![allow(
    unsafe_code,
    reason = "what may unwind while names are looked up has no safe interface"
)]

pub(super) mod own;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod tables;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod walk;
#[cfg(all(test, target_arch = "x86_64", target_os = "linux"))]
mod walk_tests;

use super::named;
use super::table::Stack;
use crate::lock::Visitors;

/// Frames kept of a stack, the innermost ones, of which some are the allocator's. PyTorch has up to forty from where memory is wanted in a
/// backward pass to where the thread began.
const MOST: usize = 64;

/// Who is in the loader or the unwinder: on some systems these have locks, and in a child that was forked meanwhile nobody is there who could
/// let go of them.
static INSIDE: Visitors = Visitors::new();

/// The stack of the caller. To be called without any lock: unwinding takes the loader's. A forked child that cannot have these has
/// none.
pub(crate) fn capture() -> Stack {
    named::capture::<MOST>().unwrap_or_else(unwind)
}

/// The same in addresses, whoever could name them.
#[inline(never)]
pub(crate) fn unwind() -> Stack {
    let mut addresses = [0; MOST];
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    if let Some(count) = walk::walk(&mut addresses) {
        return Stack::of(&addresses[..count]);
    }
    let count = unwind_by_library(&mut addresses);
    Stack::of(&addresses[..count])
}

fn unwind_by_library(addresses: &mut [u64; MOST]) -> usize {
    let Some(_inside) = INSIDE.enter() else {
        return 0;
    };
    let mut count = 0;
    let frame = |frame: &backtrace::Frame| {
        let address = frame.ip() as u64;
        // Behind the outermost frame some systems have one without an address.
        if address != 0 {
            addresses[count] = address;
            count += 1;
        }
        count < MOST
    };
    // SAFETY: no more is asked than that threads do not unwind at once where the unwinder is not made for it; that of GCC and LLVM, which is
    // the only one on Linux, is, and nobody here unwinds beside this. With the crate's own lock this would wait for who looks names up, who
    // reads all of a program's debug information.
    unsafe { backtrace::trace_unsynchronized(frame) };
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::Symbols;

    #[inline(never)]
    fn deep(n: u32) -> Stack {
        // Without this an optimised test has a loop here.
        let deeper: fn(u32) -> Stack = std::hint::black_box(deep);
        let stack = if n == 0 { capture() } else { deeper(n - 1) };
        std::hint::black_box(stack)
    }

    #[inline(never)]
    fn elsewhere() -> Stack {
        std::hint::black_box(deep(3))
    }

    #[test]
    fn the_same_place_is_the_same_stack() {
        let mut seen = Vec::new();
        for n in [0, 1, 5, 5, 1, 0, 9, 100, 9] {
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
        assert_eq!(seen[7].addresses().len(), MOST, "of a deep one the innermost");
        let both: Vec<Stack> = (0..4).map(|i| if i % 2 == 0 { elsewhere() } else { deep(3) }).collect();
        assert_eq!((both[0], both[1]), (both[2], both[3]));
        assert_ne!(both[0], both[1], "another caller");
    }

    /// Who looks names up has the `backtrace` crate's lock for as long as it takes to read a program's debug information.
    #[test]
    fn stacks_are_taken_while_names_are_looked_up() {
        let mut taken = None;
        let take = || {
            let (said, heard) = std::sync::mpsc::channel();
            std::thread::spawn(move || said.send(deep(1).addresses().len()));
            heard.recv_timeout(std::time::Duration::from_secs(20))
        };
        for address in deep(1).addresses().iter() {
            backtrace::resolve(*address as *mut std::ffi::c_void, |_| {
                taken.get_or_insert_with(take);
            });
        }
        assert!(matches!(taken, Some(Ok(2..))), "{taken:?}");
    }

    #[test]
    fn threads_have_stacks_of_their_own_and_name_their_functions() {
        let here = deep(2);
        let there: Vec<Stack> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2)
                .map(|_| scope.spawn(|| (0..2).map(|_| deep(2)).collect()))
                .collect();
            let ended = threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| Vec::new()));
            ended.flatten().collect()
        });
        assert_eq!(there.len(), 4);
        assert!(there.iter().all(|stack| *stack == there[0] && *stack != here));
        let frames = Symbols::new().all_frames(here);
        // Optimised functions may have a name without its path.
        let named = frames
            .iter()
            .filter(|frame| frame.name == "deep" || frame.name.ends_with("unwind::tests::deep"));
        assert_eq!(named.count(), 3, "{frames:?}");
    }
}
