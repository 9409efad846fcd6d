//! Walks by remembered rules against the library's unwinding, with rules that are wrong, and on stacks that are not the thread's.
#![allow(unsafe_code, clippy::unwrap_used)]

use std::ffi::{c_int, c_void};
use std::hint::black_box;

use super::tables::{Cfa, Rule};
use super::walk::{WALKER, walk};
use super::{MOST, unwind_by_library};

/// What a walk found, and what the library did from the same place.
type Both = (Option<Vec<u64>>, Vec<u64>);

#[inline(never)]
fn both() -> Both {
    let (mut walked, mut unwound) = ([0; MOST], [0; MOST]);
    let count = walk(&mut walked);
    let by_library = unwind_by_library(&mut unwound);
    (
        count.map(|count| walked[..count].to_vec()),
        unwound[..by_library].to_vec(),
    )
}

/// Whether they are the same but for the function above and what the library has in front of it.
#[track_caller]
fn same((walked, unwound): Both) {
    // This system has the tables.
    let walked = walked.unwrap();
    let begin = unwound.iter().position(|address| *address == walked[1]).unwrap();
    let common = unwound.len() - begin;
    assert_eq!(walked[1..][..common], unwound[begin..]);
    // Where the library stopped it had no more room.
    assert!(walked.len() == common + 1 || unwound.len() == MOST);
}

#[inline(never)]
fn deep(n: u32) -> Both {
    let deeper: fn(u32) -> Both = black_box(deep);
    black_box(if n == 0 { both() } else { deeper(n - 1) })
}

extern "C" fn compare(a: *const c_void, b: *const c_void) -> c_int {
    same(both());
    c_int::from(a > b)
}

#[test]
fn walks_go_where_the_unwinder_goes() {
    for n in (0..20).chain([60, 3, 0]) {
        same(deep(n));
    }
    std::thread::scope(|scope| {
        for n in [2, 9] {
            scope.spawn(move || same(deep(n)));
        }
    });
    // Through functions in C.
    let mut words = [3u64, 1, 2];
    // SAFETY: so many words, which it leaves there.
    unsafe { libc::qsort(words.as_mut_ptr().cast(), words.len(), 8, Some(compare)) };
}

/// Those of a library that went, and of what lies where it was.
#[test]
fn rules_of_before_a_library_went_are_forgotten() {
    let rules = [
        Rule::Called {
            cfa: Cfa::StackPointer(8),
            frame_pointer: None,
        },
        Rule::Called {
            cfa: Cfa::FramePointer(16),
            frame_pointer: Some(-16),
        },
        Rule::Called {
            cfa: Cfa::StackPointer(1 << 30),
            frame_pointer: None,
        },
        Rule::Called {
            cfa: Cfa::StackPointer(-8),
            frame_pointer: None,
        },
        Rule::Other,
        // Which leads somewhere.
        Rule::Outermost,
    ];
    for wrong in rules {
        same(deep(4));
        WALKER.with_borrow_mut(|walker| {
            let walker = walker.as_mut().unwrap();
            walker.loads.1 = walker.loads.1.wrapping_sub(1);
            let mine = walker.rules.values_mut().filter(|rule| **rule != Rule::Outermost);
            mine.for_each(|rule| *rule = wrong);
        });
        same(deep(4));
    }
}

/// Whatever a rule says, nothing but the stack is read.
#[test]
fn no_rule_leads_out_of_the_stack() {
    let mut random = 1u64;
    let mut next = |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    same(deep(8));
    let places: Vec<u64> = WALKER.with_borrow(|walker| walker.as_ref().unwrap().rules.keys().copied().collect());
    let mut counts = [0u32; 2];
    for _ in 0..20_000 {
        let offset = |n: u64| (n as i32 - 64).wrapping_mul([8, 1, 1 << 20, i32::MAX / 100][(n % 4) as usize]);
        WALKER.with_borrow_mut(|walker| {
            let rules = &mut walker.as_mut().unwrap().rules;
            let place = places[next(places.len() as u64) as usize];
            let cfa = [Cfa::StackPointer, Cfa::FramePointer][next(2) as usize](offset(next(200)));
            let frame_pointer = (next(2) == 0).then(|| offset(next(200)));
            rules.insert(place, Rule::Called { cfa, frame_pointer });
        });
        let (walked, unwound) = deep(next(9) as u32);
        assert!(unwound.len() > 3);
        counts[usize::from(walked.is_some())] += 1;
    }
    assert!(counts[0] > 100, "{counts:?}");
}

extern "C" fn body() {
    let (walked, unwound) = both();
    assert!(walked.is_none() && unwound.len() > 1, "{walked:x?} {unwound:x?}");
}

/// A coroutine's, of which nobody knows how far it may be read.
#[test]
fn another_stack_is_the_librarys() {
    let mut stack = vec![0u8; 1 << 20];
    let mut here = std::mem::MaybeUninit::<libc::ucontext_t>::uninit();
    let mut there = std::mem::MaybeUninit::<libc::ucontext_t>::uninit();
    // SAFETY: they and the stack are there until `body` has returned here.
    unsafe {
        assert_eq!(libc::getcontext(there.as_mut_ptr()), 0);
        let context = there.assume_init_mut();
        context.uc_stack.ss_sp = stack.as_mut_ptr().cast();
        context.uc_stack.ss_size = stack.len();
        context.uc_link = here.as_mut_ptr();
        libc::makecontext(context, body, 0);
        assert_eq!(libc::swapcontext(here.as_mut_ptr(), context), 0);
    }
    same(both());
}
