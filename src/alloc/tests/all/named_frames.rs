//! Call stacks of frames that the program names, as an interpreter does. In a process of its own: there is one source for all.

use std::cell::RefCell;

use gpumem_alloc::device::Timeline;
use gpumem_alloc::{Allocator, Config, History, Stack, Stacks, Stream};

use crate::common::has_a_process;

const MIB: u64 = 1 << 20;

thread_local! {
    /// `None`: it cannot tell.
    static FRAMES: RefCell<Option<Vec<u64>>> = const { RefCell::new(None) };
    /// What allocates while it is asked.
    static BUSY: RefCell<Option<Allocator>> = const { RefCell::new(None) };
}

fn source(numbers: &mut [u64]) -> Option<usize> {
    if let Some(allocator) = BUSY.with_borrow_mut(Option::take) {
        let addr = allocator.alloc_raw(MIB, Stream(9)).unwrap();
        allocator.free_raw(addr).unwrap();
        BUSY.set(Some(allocator));
    }
    FRAMES.with_borrow(|frames| {
        let frames = frames.as_ref()?;
        let count = frames.len().min(numbers.len());
        numbers[..count].copy_from_slice(&frames[..count]);
        Some(frames.len())
    })
}

/// Who held an only block at the peak, when the calling thread was in these frames.
fn owner(allocator: &Allocator, frames: &[u64]) -> Stack {
    owner_told(allocator, Some(frames.to_vec()))
}

fn owner_told(allocator: &Allocator, frames: Option<Vec<u64>>) -> Stack {
    FRAMES.set(frames);
    let addr = allocator.alloc_raw(MIB, Stream::DEFAULT).unwrap();
    allocator.reset_peaks();
    let peak = allocator.peak().unwrap();
    allocator.free_raw(addr).unwrap();
    assert_eq!(peak.owners.len(), 1);
    peak.owners[0].stack
}

#[test]
fn histories_have_the_frames_that_a_program_names() {
    if !has_a_process("named_frames::histories_have_the_frames_that_a_program_names") {
        return;
    }
    let (max_events, stacks) = (100, Stacks::All);
    let config = Config {
        history: History::On { max_events, stacks },
        ..Config::default()
    };
    let (_, allocator) = crate::common::start(1 << 30, Timeline::default(), config);
    let forward = Stack::name_frame("Net.forward", "net.py", 12);
    let main = Stack::name_frame("<module>", "train.py", 3);
    assert_eq!(forward, Stack::name_frame("Net.forward", "net.py", 12));
    assert!(forward != main && forward != Stack::name_frame("Net.forward", "net.py", 13));
    let native = owner(&allocator, &[forward]);
    assert!(!native.to_string().contains("net.py"), "nobody asks yet: {native}");

    Stack::set_source(Some(Box::new(source)));
    let stack = owner(&allocator, &[forward, main]);
    assert_eq!(*stack.addresses(), [forward, main]);
    assert_eq!(stack.to_string(), "Net.forward (net.py:12)\n<module> (train.py:3)");
    assert_eq!(owner(&allocator, &[forward, main]), stack);
    let snapshot = allocator.snapshot().unwrap();
    let mut names = Vec::new();
    snapshot.write_json(&mut names).unwrap();
    assert!(String::from_utf8_lossy(&names).contains("Net.forward"));
    // More than there is room for: the innermost are kept.
    let deep = owner(&allocator, &[forward; 1000]);
    assert!((20..1000).contains(&deep.addresses().len()));
    assert_eq!(owner(&allocator, &[]), Stack::NONE, "in none of its frames");
    // What cannot tell, or makes up an address, is not listened to.
    for nothing in [None, Some(vec![0x5555_0000_1234]), Some(vec![forward, 7])] {
        let stack = owner_told(&allocator, nothing);
        assert!(!stack.to_string().contains("net.py"), "{stack}");
        assert!(stack.addresses().len() > 3, "{stack}");
    }
    // Another thread's are its own.
    let there = std::thread::scope(|scope| scope.spawn(|| owner(&allocator, &[main])).join().unwrap());
    assert_eq!(there.to_string(), "<module> (train.py:3)");
    // It may do what it likes, for no lock is held.
    BUSY.set(Some(allocator.clone()));
    assert_eq!(owner(&allocator, &[forward, main]), stack);
    BUSY.set(None);

    // Without names they are those of the last ones that there was room for.
    let numbers: Vec<u64> = (0..30_000u32)
        .map(|line| Stack::name_frame(&"x".repeat(1000), "y.py", line))
        .collect();
    let distinct: std::collections::HashSet<&u64> = numbers.iter().collect();
    assert!((10_000..20_000).contains(&distinct.len()), "{}", distinct.len());
    let without = owner(&allocator, &numbers[29_999..]);
    assert_eq!(without.to_string(), "(not kept: too many places)");
    assert_eq!(owner(&allocator, &[forward, main]), stack, "those that are known stay");

    Stack::set_source(None);
    let native = owner(&allocator, &[main]);
    assert!(!native.to_string().contains("train.py"), "{native}");
}
