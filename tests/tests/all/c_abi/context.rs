//! The context that a thread has current, which every call leaves as it was.

use std::ptr::null_mut;

use super::{current_context, driver, library, passes, use_device};

const MIB: usize = 1 << 20;
/// Of the inner test's calls that make a context current one by one, or two in a row: all of them, and some more.
const CALLS: std::ops::Range<u32> = 2..16;

fn with_failures(first: u32, times: u32) -> String {
    let fail = format!("cuCtxSetCurrent:{first}:999:{times}");
    let environment = [("FAKE_CUDA_DEVICES", "2"), ("FAKE_CUDA_FAIL", &fail)];
    passes("context::inner_a_thread_has_its_context_back", &environment)
}

#[test]
fn a_context_that_is_not_put_back_is_tried_again_and_told() {
    let lost = "the context that was current on a thread could not be put back";
    let once: String = CALLS.map(|first| with_failures(first, 1)).collect();
    assert!(
        once.contains("cuCtxSetCurrent failed") && !once.contains(lost),
        "{once}"
    );
    let told = CALLS.filter(|first| with_failures(*first, 2).contains(lost));
    assert!(told.count() > 2);
}

#[test]
fn inner_a_thread_has_its_context_back() {
    let Some(abi) = library() else { return };
    let init = |init: unsafe extern "C" fn(u32) -> i32| {
        // SAFETY: no pointers.
        unsafe { init(0) }
    };
    assert_eq!(driver(c"cuInit", init), 0);
    use_device(1);
    let mut lost = 0;
    // What a call did to the context, and what it told.
    let mut check = |call: &mut dyn FnMut()| {
        let (context, count) = (current_context(), abi.error_count());
        call();
        let (changed, failed) = (current_context() != context, abi.error_count() - count);
        if changed {
            let error = abi.error().unwrap();
            assert!(failed > 0 && error.contains("CUDA_ERROR_UNKNOWN (999)"), "{error}");
            lost += 1;
        }
        assert_eq!(failed > 0 && !changed, abi.error().is_some());
    };
    for _ in 0..2 {
        let mut ptr = null_mut();
        check(&mut || ptr = abi.alloc(30 * MIB, 0, null_mut()));
        check(&mut || abi.free(ptr, 30 * MIB, 0, null_mut()));
        check(&mut || _ = abi.empty_cache(0));
    }
    assert!(lost <= 1);
}
